"""The meaning of a merge in fifty lines: rows are dictionaries, the table is a list of them.

Used by the random merge tests only. It shares the parser and the scalar meaning of predicates with the product, and the
scalar canonical form of keys; nothing else.
"""

from __future__ import annotations

import itertools
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
    """``assigned`` None deletes the row. ``present``: columns that a change does not have stay as they are.

    ``always``: it has no condition. ``asks_table``: its condition names a column of the table.
    """

    when: When
    assigned: Assigned | None
    present: bool = False
    always: bool = False
    asks_table: bool = False


@dataclass(frozen=True)
class Merge:
    """``target_key``/``source_key``: row to key, None when part of it is null. ``order``: of sequence values.

    ``names``: of the table's columns.

    A source row without a column has no item of its name.
    """

    target_key: Callable[[Row], Any]
    source_key: Callable[[Row], Any]
    fit: Callable[[str, Any], Any]
    order: Callable[[Any], Any]
    names: Sequence[str] = ()
    sequence: str | None = None
    stored: str | None = None
    where: When = lambda _: True
    matched: Sequence[Clause] = ()
    not_matched: Sequence[Clause] = ()
    by_source: Sequence[Clause] = ()
    counts: Counter[str] = field(default_factory=Counter)

    def apply(self, target: Sequence[Row], source: Sequence[Row]) -> list[Row]:
        """The table afterwards; ``counts`` say what happened."""
        histories, result, seen = self.histories(source), [], set()
        for row in target:
            key = self.target_key(row) if self.where(sided(row, {})) else None
            history = [] if key is None else histories.get(key, [])
            if not history:
                result += self.changed(row, {}, self.by_source)
                continue
            seen.add(key)
            self.counts["matched"] += 1
            result += self.replayed(row, history if self.composes else history[-1:])
        unseen = [history for key, history in histories.items() if key not in seen]
        if not self.composes:
            unseen = [[row] for history in unseen for row in history]
        for history in [*unseen, *([row] for row in source if self.source_key(row) is None)]:
            made = self.replayed(None, history)
            self.counts["inserted"] += len(made)
            result += made
        self.count_deletes([*unseen, *([row] for row in source if self.source_key(row) is None)], source)
        return result

    def count_deletes(self, unseen: Sequence[Sequence[Row]], source: Sequence[Row]) -> None:
        """One for each key without a row whose only change deletes whatever there is, and inserts nothing."""
        sure = list(itertools.takewhile(lambda clause: not clause.asks_table, self.matched))
        rows = Counter(self.source_key(row) for row in source)
        known = set()
        for history in unseen:
            key, change = self.source_key(history[0]), sided({}, history[-1])
            repeated = key is not None and rows[key] > 1 and self.sequence is not None
            if repeated or (key is not None and key in known) or first(self.not_matched, change):
                continue
            clause = first(sure, change)
            if clause is not None and clause.assigned is None:
                known.add(key)
                self.counts["deletes without row"] += 1

    def is_late(self, row: Row, change: Row) -> bool:
        """Whether the row is newer than the change."""
        return bool(self.stored) and self.order(change[self.sequence]) < self.order(row[self.stored])

    def replayed(self, row: Row | None, history: Sequence[Row]) -> list[Row]:
        """What changes make of a row, one after the other, or of none."""
        was, applied, late, blank = row, False, False, dict.fromkeys(self.names)
        for number, change in enumerate(history):
            clause = first(self.not_matched if row is None else self.matched, sided(row or {}, change))
            if row is not None:
                if number and (self.target_key(row) != self.source_key(change) or not self.where(sided(row, {}))):
                    raise Refused("the row no longer matches")
                if self.is_late(row, change):
                    late, clause = True, None
            if clause is not None:
                applied = True
                row = None if clause.assigned is None else self.assigned(clause, row or blank, change)
        if was is not None and (applied or late):
            self.counts["ignored" if not applied else "deleted" if row is None else "updated"] += 1
        return [] if row is None else [row]

    @property
    def composes(self) -> bool:
        """Whether all changes of a key count."""
        return self.sequence is not None and any(clause.present for clause in self.matched)

    @property
    def takes_repeated(self) -> bool:
        """Whether keys may stand in several rows without a sequence."""
        if self.matched:
            return len(self.matched) == 1 and self.matched[0].assigned is None and self.matched[0].always
        return bool(self.not_matched) and not self.by_source

    def histories(self, source: Sequence[Row]) -> dict[Any, list[Row]]:
        """The changes of each key that count, by their sequence."""
        found: dict[Any, list[Row]] = {}
        for row in source:
            key = self.source_key(row)
            if key is not None:
                found.setdefault(key, []).append(row)
        for key, rows in found.items():
            if self.sequence is not None:
                rows.sort(key=lambda row: self.order(row[self.sequence]))
                found[key] = rows if self.composes else rows[-1:]
            elif len(rows) > 1 and not self.takes_repeated:
                raise Refused("duplicate keys")
        return found

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
        values = {
            column: given(how, what, row, change)
            for column, (how, what) in (clause.assigned or {}).items()
            if not (clause.present and how == "source" and what not in change)
        }
        return row | {column: self.fit(column, value) for column, value in values.items()}


def given(how: str, what: Any, row: Row, change: Row) -> Any:
    """What a clause writes into a column."""
    match how:
        case "source":
            return change.get(what)
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
