"""Hints of a query about the indexes of one of its tables: which of them are used whatever they cost, or that none is.

Read from Spark's hints by the data plane, and obeyed by its planner. A hint changes what is read, never an answer. Must
not know how a hint is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from skipstone_core.ids import index_table_name, index_table_prefix


@dataclass(frozen=True, slots=True)
class IndexHint:
    """``names``: SecondaryIndexes, or index tables, that are used whatever they cost. ``is_any``: all indexes are.

    ``is_none``: no index is used, whatever else is said. ``problems``: a sentence on each hint of the query that names
    none of its tables.
    """

    names: tuple[str, ...] = ()
    is_any: bool = False
    is_none: bool = False
    problems: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return whether it says anything."""
        return self.is_any or self.is_none or bool(self.names)

    def __or__(self, other: IndexHint) -> IndexHint:
        """Both together."""
        names = tuple(dict.fromkeys([*self.names, *other.names]))
        problems = tuple(dict.fromkeys([*self.problems, *other.problems]))
        return IndexHint(names, self.is_any or other.is_any, self.is_none or other.is_none, problems)

    def chosen(self, table: str, index_tables: Iterable[str]) -> frozenset[str]:
        """Return those of the ``index_tables`` of ``table`` that are used whatever they cost."""
        if self.is_none:
            return frozenset()
        return frozenset(
            name for name in index_tables if self.is_any or any(_is_of(name, table, wanted) for wanted in self.names)
        )

    def unknown(self, table: str, index_tables: Iterable[str]) -> tuple[str, ...]:
        """Return the names that none of the ``index_tables`` of ``table`` has."""
        tables = tuple(index_tables)
        return tuple(wanted for wanted in self.names if not any(_is_of(name, table, wanted) for name in tables))

    def text(self) -> str:
        """The hint as JSON; ``read_hint`` reads it."""
        return json.dumps([self.names, self.is_any, self.is_none, self.problems])


NO_HINT = IndexHint()


def read_hint(text: str) -> IndexHint:
    """The hint of which ``text`` is the JSON."""
    names, is_any, is_none, problems = json.loads(text)
    return IndexHint(tuple(names), is_any, is_none, tuple(problems))


def all_of(hints: Iterable[IndexHint]) -> IndexHint:
    """All ``hints`` together."""
    return reduce(IndexHint.__or__, hints, NO_HINT)


def _is_of(index_table: str, table: str, wanted: str) -> bool:
    """Return whether ``wanted``, in any case, is the name of an index table or that of its SecondaryIndex."""
    own, _, _ = index_table.rpartition("_")
    named, _, _ = index_table_name(table, wanted, "").rpartition("_")
    known = (index_table, own) if index_table.startswith(index_table_prefix(table)) else (index_table,)
    return any(name.lower() in (wanted.lower(), named.lower()) for name in known)
