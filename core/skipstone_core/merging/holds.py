"""Rows of which a merge left out a change: which of their later changes may be applied, and which wait with it.

Used by the data plane when it resolves a change feed. A row is *held* while a change of it is missing. A change that
sets every column that the missing ones would have set, or deletes the row, makes them obsolete; any other one would
be applied as if nothing was missing. Must not know keys, files or feeds: a change is known by its place, as text.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from skipstone_core.errors import ContractViolation
from skipstone_core.history.consumption import RecordPointer, decode_pointer, encode_pointer

#: Hexadecimal digits that stand for a log.
_LOG_DIGITS = 12


class Decision(StrEnum):
    """What becomes of a change. SKIP: it cannot be applied, and the row is as after it or a later one."""

    APPLY = "Apply"
    REJECT = "Reject"
    SKIP = "Skip"


_SEPARATOR = ":"


def place_of(log: str, position: str) -> str:
    """Return the place of a change as text, the same whenever it is read; ``position`` sorts as changes of a log do."""
    return f"{hashlib.sha256(log.encode()).hexdigest()[:_LOG_DIGITS]}{_SEPARATOR}{position}"


def is_before(place: str, other: str) -> bool:
    """Return whether ``place`` is known to be before ``other``: both are of one log."""
    log, _, position = place.partition(_SEPARATOR)
    other_log, _, other_position = other.partition(_SEPARATOR)
    return log == other_log and position < other_position


@dataclass(frozen=True, kw_only=True)
class RowChange:
    """One change of a row. ``place``: as ``place_of`` makes it. ``sets``: the columns whose values it has.

    ``leaves``: it has columns whose values it does not tell, because they are unchanged.
    ``fault``: it cannot be applied, whatever was before.
    """

    place: str
    sets: frozenset[str] = frozenset()
    is_delete: bool = False
    leaves: bool = False
    fault: bool = False


@dataclass(frozen=True, kw_only=True)
class HeldRow:
    """A row of which changes were left out. ``missing``: their places, in the order of the log; none: it is whole.

    ``lost``: columns that a missing change sets; ``is_gone``: one of them deletes the row. ``through``: the place of
    the change that was applied last where one was missing; empty when there is none.
    """

    missing: tuple[str, ...] = ()
    lost: frozenset[str] = frozenset()
    is_gone: bool = False
    through: str = ""

    def covered_by(self, change: RowChange) -> bool:
        """Return whether ``change`` makes all missing ones obsolete."""
        if change.is_delete:
            return True
        return self.lost <= change.sets and not (self.is_gone and change.leaves)

    def without(self, change: RowChange) -> HeldRow:
        """Return the row after ``change`` was left out."""
        if change.place in self.missing:
            return self
        later = (at for at, place in enumerate(self.missing) if is_before(change.place, place))
        at = next(later, len(self.missing))
        return replace(
            self,
            missing=(*self.missing[:at], change.place, *self.missing[at:]),
            lost=self.lost | change.sets,
            is_gone=self.is_gone or change.is_delete,
        )

    def after(self, change: RowChange) -> HeldRow:
        """Return the row after ``change`` was applied: what was missing before it is obsolete, and forgotten."""
        left = self.missing[self.missing.index(change.place) + 1 :] if change.place in self.missing else ()
        return replace(self, missing=left, through=change.place) if left else HeldRow(through=change.place)

    def has_overtaken(self, change: RowChange) -> bool:
        """Return whether a change after ``change`` has made it obsolete."""
        is_known = change.place == self.through or is_before(change.place, self.through)
        return is_known and change.place not in self.missing


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The decisions over changes of one row, in their order, and what is remembered of the row.

    ``recreates``: for each change, whether the row is a new one with it, because a missing change deletes the old one.
    """

    decisions: tuple[Decision, ...]
    recreates: tuple[bool, ...]
    row: HeldRow


def judge_changes(row: HeldRow, changes: tuple[RowChange, ...]) -> Judged:
    """Decide over all ``changes`` of one row in one run, in their order.

    From the first one with a fault on, all are left out: what is kept of them is complete, and in order. Changes that
    were before all missing ones, or before the one that made those obsolete, come again with those after them.
    """
    decisions: list[Decision] = []
    recreates: list[bool] = []
    obsolete = _obsolete(row, changes)
    stopped, last = False, ""
    for at, change in enumerate(changes):
        if at in obsolete:
            decisions.append(Decision.SKIP)
            recreates.append(False)
            continue
        stopped = stopped or change.fault
        comes_again = bool(row.missing) and is_before(change.place, row.missing[0])
        has_gap = bool(row.missing) and row.missing[0] != change.place and not comes_again
        is_applied = not stopped and (not has_gap or row.covered_by(change))
        decisions.append(Decision.APPLY if is_applied else Decision.REJECT)
        recreates.append(is_applied and has_gap and row.is_gone)
        if not is_applied:
            row = row.without(change)
            continue
        last = change.place
        if row.missing and not comes_again:
            row = row.after(change)
    if is_before(last, row.through):
        row = replace(row, through=last)  # the row went back to it
    return Judged(decisions=tuple(decisions), recreates=tuple(recreates), row=row)


def _obsolete(row: HeldRow, changes: tuple[RowChange, ...]) -> frozenset[int]:
    """Which of ``changes`` with a fault are passed over: those whose values the row has got before, and keeps.

    If a change before one is applied again, the row goes back behind it: then one after it must set its values again.
    """
    obsolete: set[int] = set()
    fits = [at for at, change in enumerate(changes) if not change.fault]
    for at, change in enumerate(changes):
        if not change.fault:
            continue
        goes_back = bool(fits) and fits[0] < at
        if not row.has_overtaken(change) or (goes_back and not _is_set_again(row, change, changes, fits, at)):
            break
        obsolete.add(at)
    return frozenset(obsolete)


def _is_set_again(row: HeldRow, lost: RowChange, changes: tuple[RowChange, ...], fits: list[int], at: int) -> bool:
    """Return whether a change after ``at`` is applied that sets all that ``lost`` sets. ``fits``: sound changes."""
    alone = HeldRow().without(lost)
    for later in itertools.takewhile(lambda number: number > at, reversed(fits)):
        change = changes[later]
        is_certain = not row.missing or is_before(change.place, row.missing[0])
        if is_certain and alone.covered_by(change):
            return True
    return False


#: By the names of the key columns, and the text of the key.
HeldRows = Mapping[str, Mapping[str, HeldRow]]
_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class HoldsRecord:
    """All held rows of a table after one commit.

    ``earlier``: the record that was written before it, whatever branch its commit is of.
    """

    table_uuid: str
    rows: HeldRows = field(default_factory=dict)
    earlier: RecordPointer | None = None


def encode_holds(record: HoldsRecord) -> bytes:
    """Return the content of a file that ``decode_holds`` reads."""
    rows = {
        names: {key: [row.missing, sorted(row.lost), row.is_gone, row.through] for key, row in of.items()}
        for names, of in record.rows.items()
    }
    previous = encode_pointer(record.earlier) if record.earlier else None
    raw = {"version": _VERSION, "table": record.table_uuid, "previous": previous, "rows": rows}
    return json.dumps(raw, separators=(",", ":"), sort_keys=True).encode()


def decode_holds(content: bytes) -> HoldsRecord:
    """Read what ``encode_holds`` wrote. Raises ContractViolation when it is something else."""
    try:
        raw = json.loads(content)
        if raw["version"] != _VERSION:
            raise ContractViolation(f"a record of held rows has version {raw['version']}: this image is too old for it")
        rows = {
            str(names): {
                str(key): HeldRow(
                    missing=tuple(missing), lost=frozenset(lost), is_gone=bool(gone), through=str(through)
                )
                for key, (missing, lost, gone, through) in of.items()
            }
            for names, of in raw["rows"].items()
        }
        earlier = decode_pointer(raw["previous"]) if raw["previous"] else None
        return HoldsRecord(table_uuid=str(raw["table"]), rows=rows, earlier=earlier)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ContractViolation(f"a record of held rows cannot be read: {error}") from error
