"""Long lists in plans: kept out of a plan's JSON, and fetched as one text.

Used by ``uses``. Catalyst writes the JSON of a node in a time that grows with the square of its children, and a list of
literals is a node of as many children. Spark's own rules turn such lists into sets, of which the JSON shows nothing.
Must not touch the plan that is run.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import cast

from skipstone.compat.catalyst import (
    SCALA_BUILDER,
    InSet,
    LiteralSeq,
    LiteralSet,
    LogicalPlan,
    RowLiteral,
    Rule,
    StructType,
)
from skipstone.compat.java import Jvm, java_class, text_in_pieces
from skipstone.compat.scalafunctions import hex_texts, most_leaves, row_texts, rule_everywhere
from skipstone.query.plans.refusals import Refusal, RelationRefused

#: Leaves of an expression above which its lists are made sets.
LONG = 100
#: Leaves of an expression that no rule makes smaller; its JSON takes about a second.
MAX_LEAVES = 4_000
#: Values of a list that are looked up.
MAX_VALUES = 50_000
_RULES = (Rule.CONSTANT_FOLDING, Rule.OPTIMIZE_IN)


def with_sets(jvm: Jvm, plan: LogicalPlan) -> LogicalPlan:
    """``plan`` with sets of literals in place of long lists, in the plans of its subqueries too.

    Nodes and expressions keep their places. Raises RelationRefused when an expression stays too large.
    """
    if most_leaves(jvm, plan) <= LONG:
        return plan
    for rule in _RULES:
        plan = plan.transformDownWithSubqueries(rule_everywhere(jvm, rule))
    if most_leaves(jvm, plan) > MAX_LEAVES:
        raise RelationRefused(Refusal.LIST_TOO_LONG, f"an expression has more than {MAX_LEAVES:,} terms")
    return plan


def members(jvm: Jvm, in_set: InSet) -> Sequence[str] | None:
    """The values of a set of literals but null, as texts of what Catalyst holds (bytes as hexadecimal digits); None
    when they are too many.
    """
    values = _values(in_set)
    if values is None or values.isEmpty():
        return None if values is None else ()
    separator = _separator()
    is_binary = str(in_set.child().dataType().catalogString()) == "binary"
    return _joined(jvm, hex_texts(jvm, values) if is_binary else values, separator).split(separator)


def rows(jvm: Jvm, in_set: InSet) -> Sequence[Sequence[str]] | None:
    """The rows of a set of literals, as texts of what Catalyst holds in each field; None when they are too many."""
    row_set = _values(in_set)
    if row_set is None or row_set.isEmpty():
        return None if row_set is None else ()
    return texts_of_rows(jvm, row_set, cast(StructType, in_set.child().dataType()))


def texts_of_rows(jvm: Jvm, rows: LiteralSet | LiteralSeq, schema: StructType) -> Sequence[Sequence[str]]:
    """Different rows as texts of what Catalyst holds in each field."""
    between, within = _separator(), _separator()
    texts = row_texts(jvm, rows, schema, within).distinct()
    return () if texts.isEmpty() else [row.split(within) for row in _joined(jvm, texts, between).split(between)]


def fields(literal: RowLiteral) -> Sequence[str]:
    """The fields of a struct literal, as texts of what Catalyst holds."""
    separator = _separator()
    return str(literal.value().toSeq(literal.dataType()).mkString(separator)).split(separator)


def _values(in_set: InSet) -> LiteralSet | None:
    """The values of a set but null; None when they are too many."""
    values = in_set.hset()
    if values.size() > MAX_VALUES:
        return None
    return values.excl(None) if values.contains(None) else values


def _separator() -> str:
    """Return a text that nobody can have written into a value."""
    return secrets.token_hex(16)


def _joined(jvm: Jvm, values: LiteralSet | LiteralSeq, separator: str) -> str:
    builder = java_class(jvm, SCALA_BUILDER)()
    return text_in_pieces(values.addString(builder, separator).underlying())
