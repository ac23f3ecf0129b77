"""Filters of engines: trees of tests on columns, as scan planning asks for them, with Iceberg's meaning.

Made by ``icebergjson``; who plans scans turns them into predicates and judges partitions by them. A test is false for
null unless it says otherwise: ``!=``, ``not-in`` and ``not-starts-with`` are true for null, as Iceberg's are. Must not
know tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from skipstone_core.language.predicates import Value

# fmt: off
FilterOperator = Literal[
    "=", "!=", "<", "<=", ">", ">=", "in", "not-in", "starts-with", "not-starts-with",
    "is-null", "not-null", "is-nan", "not-nan",
]
# fmt: on
IDENTITY = "identity"


@dataclass(frozen=True)
class Term:
    """A column by its field id, or what an Iceberg transform makes of it: ``bucket[16]``, ``day``."""

    field_id: int
    transform: str = IDENTITY


@dataclass(frozen=True)
class Always:
    """True for every row."""


@dataclass(frozen=True)
class Never:
    """True for no row."""


@dataclass(frozen=True)
class Unjudged:
    """A part that nobody here understands, of some columns: any row may pass. ``what``: names it for people, without
    values.
    """

    field_ids: frozenset[int]
    what: str


@dataclass(frozen=True)
class ColumnTest:
    """``term operator values``. Values are of the kind that predicates compare with the term's type.

    One value for comparisons and prefixes, none for tests of null and NaN, at least one for lists.
    """

    term: Term
    operator: FilterOperator
    values: tuple[Value, ...] = ()


@dataclass(frozen=True)
class AllOf:
    """Conjunction of two or more."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True)
class AnyOf:
    """Disjunction of two or more."""

    parts: tuple[Filter, ...]


#: A tree holds no negations: they are moved into its tests.
Filter = Always | Never | Unjudged | ColumnTest | AllOf | AnyOf


def leaves(tree: Filter) -> Iterator[Always | Never | Unjudged | ColumnTest]:
    """Everything in ``tree`` that is not a conjunction or disjunction, from left to right."""
    if isinstance(tree, AllOf | AnyOf):
        for part in tree.parts:
            yield from leaves(part)
    else:
        yield tree


def columns_of(tree: Filter) -> frozenset[int]:
    """Field ids of all columns that ``tree`` names."""
    named: set[int] = set()
    for leaf in leaves(tree):
        match leaf:
            case ColumnTest():
                named.add(leaf.term.field_id)
            case Unjudged():
                named |= leaf.field_ids
            case _:
                pass
    return frozenset(named)
