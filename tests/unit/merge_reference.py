"""The meaning of a merge in fifty lines: rows are dictionaries, the table is a list of them.

Used by the random merge tests only. It shares the parser and the scalar meaning of predicates with the product, and the
scalar canonical form of keys; nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
#: A row (keyed ``source.x`` and ``target.y``) to whether the clause takes it.
When = Callable[[Row], bool]
#: How a column gets its value: ("source", column), ("literal", value) or ("computed", function of both rows).
Assigned = Mapping[str, tuple[str, Any]]


class Refused(Exception):
    """The merge must fail."""


@dataclass(frozen=True)
class Clause:
    """``assigned`` None deletes the row."""

    when: When
    assigned: Assigned | None


@dataclass(frozen=True)
class Merge:
    """``target_key``/``source_key``: row to key, None when part of it is null. ``order``: of sequence values."""

    target_key: Callable[[Row], Any]
    source_key: Callable[[Row], Any]
    fit: Callable[[str, Any], Any]
    order: Callable[[Any], Any]
    sequence: str | None = None
    stored: str | None = None
    where: When = lambda _: True
    matched: Sequence[Clause] = ()
    not_matched: Sequence[Clause] = ()
    by_source: Sequence[Clause] = ()
    counts: Counter[str] = field(default_factory=Counter)

    def apply(self, target: Sequence[Row], source: Sequence[Row]) -> list[Row]:
        """The table afterwards; ``counts`` say what happened."""
        changes, result, seen = self.last_changes(source), [], set()
        for row in target:
            key = self.target_key(row) if self.where(sided(row, {})) else None
            change = None if key is None else changes.get(key)
            if change is None:
                result += self.changed(row, {}, self.by_source)
                continue
            seen.add(key)
            self.counts["matched"] += 1
            if self.stored and self.order(change[self.sequence]) < self.order(row[self.stored]):
                self.counts["ignored"] += 1
                result.append(row)
            else:
                result += self.changed(row, change, self.matched)
        keyless = [row for row in source if self.source_key(row) is None]
        for change in [*(row for key, row in changes.items() if key not in seen), *keyless]:
            clause = first(self.not_matched, sided({}, change))
            if clause is not None:
                self.counts["inserted"] += 1
                result.append(self.assigned(clause, dict.fromkeys(self.columns(target), None), change))
        return result

    def columns(self, target: Sequence[Row]) -> list[str]:
        """Columns of inserted rows that nothing feeds are null: they need no names here."""
        return list(target[0]) if target else []

    def last_changes(self, source: Sequence[Row]) -> dict[Any, Row]:
        """The change of each key with the greatest sequence."""
        last: dict[Any, Row] = {}
        for row in source:
            key = self.source_key(row)
            if key is None:
                continue
            if key in last and self.sequence is None:
                raise Refused("duplicate keys")
            if key not in last or self.order(last[key][self.sequence]) < self.order(row[self.sequence]):
                last[key] = row
        return last

    def changed(self, row: Row, change: Row, clauses: Sequence[Clause]) -> list[Row]:
        """What becomes of a row of the table."""
        clause = first(clauses, sided(row, change))
        if clause is None:
            return [row]
        if clause.assigned is None:
            self.counts["deleted"] += 1
            return []
        self.counts["updated"] += 1
        return [self.assigned(clause, row, change)]

    def assigned(self, clause: Clause, row: Row, change: Row) -> Row:
        """``row`` with what ``clause`` writes into it."""
        values = {column: given(how, what, row, change) for column, (how, what) in (clause.assigned or {}).items()}
        return row | {column: self.fit(column, value) for column, value in values.items()}


def given(how: str, what: Any, row: Row, change: Row) -> Any:
    """What a clause writes into a column."""
    match how:
        case "source":
            return change[what]
        case "computed":
            return what(sided(row, change))
        case _:
            return what


def first(clauses: Sequence[Clause], row: Row) -> Clause | None:
    """The first clause that takes the row."""
    return next((clause for clause in clauses if clause.when(row)), None)


def sided(target: Row, source: Row) -> Row:
    """Both rows as predicates name their columns."""
    return {f"target.{n}": v for n, v in target.items()} | {f"source.{n}": v for n, v in source.items()}
