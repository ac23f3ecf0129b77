"""Takes the changes that cannot be applied, and those that wait for them, out of all changes of some keys.

Called by ``resolving`` with changes sorted by key and order. Which may be applied is the core's rule
(``merging.holds``); here rows of Arrow become what it judges. Only rows of which a change is missing are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from skipstone_core.merging.feeds import DELETE, MISSING_COLUMN, OP_COLUMN
from skipstone_core.merging.holds import Decision, HeldRow, RowChange, judge_changes, place_of
from skipstone_core.merging.merges import KEPT_COLUMN, BoundKey

from skipstone.kernels.canonical import Int64s
from skipstone.kernels.partial import Bits, unpack_bits
from skipstone.sources.feeds.registry import IsExact
from skipstone.sources.feeds.rejecting.keytexts import KeyTexts
from skipstone.sources.feeds.shapes import FAULT_COLUMN, LOG_COLUMN, ORDER_COLUMN, ORIGIN_COLUMN, OTHER_COLUMN, ROW_BITS

Bools = npt.NDArray[np.bool_]
#: The order as the message tells it, where a snapshot has corrected ORDER_COLUMN.
PLACE_COLUMN = "_skipstone_place"
#: Bytes of a place that tell the file, and the line with the row in it: ``batches`` adds them.
_FILE, _LINE = slice(-12, -8), slice(-8, None)
_FEED_BYTES = 12
_NEW = HeldRow()


class Stop(NamedTuple):
    """From the change with ``order`` on, those of a row are left out. ``reason``: why, in words.

    ``is_fault``: it is about that change itself.
    """

    order: bytes
    reason: str
    is_fault: bool = False


@dataclass(frozen=True, kw_only=True)
class Holding:
    """What is known before of rows of which a change is missing, by the text of their keys.

    ``rows``: those that earlier merges left; ``stops``: those that other rows of the same feed bring about. ``absent``:
    keys of rows that the table does not have. ``files``: paths by their numbers. ``only_rejected``: all changes that no
    earlier merge left out are passed over. ``is_exact``: see ``feeds.registry``.
    """

    is_exact: IsExact

    rows: Mapping[str, HeldRow] = field(default_factory=dict)
    stops: Mapping[str, Stop] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()
    files: tuple[str, ...] = ()
    only_rejected: bool = False


class Rejected(NamedTuple):
    """A change that is left out. ``key``: of its row; ``other``: the other key of a message that changes one.

    ``is_fault``: it cannot be applied; else it waits for another one.
    """

    file: int
    line: int
    reason: str
    is_fault: bool
    key: str
    other: str | None
    order: bytes


class KeyMove(NamedTuple):
    """A message that moves a row from one key to another: both are changed or none is."""

    key: str
    other: str
    order: bytes


@dataclass(frozen=True, kw_only=True)
class Sifted:
    """What is left of changes. ``recreates``: changes with which a row is a new one; ``skipped``: obsolete changes.

    ``passed``: changes that the task does not ask for. ``rows``: what is to be remembered of rows from now on.
    ``absent``: changes of rows that the table does not have.
    """

    changes: pa.Table
    starts: Int64s
    recreates: Bools
    rejected: tuple[Rejected, ...] = ()
    skipped: int = 0
    passed: int = 0
    rows: Mapping[str, HeldRow] = field(default_factory=dict)
    links: tuple[KeyMove, ...] = ()
    absent: Bools | None = None


def sift_changes(changes: pa.Table, starts: Int64s, keys: Sequence[BoundKey], holding: Holding) -> Sifted:
    """Take out what may not be applied. ``starts``: for each change the first one of its key."""
    texts = KeyTexts.of_rows(changes, keys)
    groups = _groups(changes, starts, texts, holding)
    considered = np.full(len(starts), not holding.only_rejected)
    left, recreates = np.full(len(starts), not holding.only_rejected), np.zeros(len(starts), dtype=bool)
    reader = _Reader(changes, texts, holding)
    rejected: list[Rejected] = []
    rows: dict[str, HeldRow] = {}
    skipped = 0
    for start, text in groups.items():
        end = int(np.searchsorted(starts, start, side="right"))
        numbers = reader.wanted(range(start, end), text)
        described = tuple(reader.change(row, text) for row in numbers)
        before = holding.rows.get(text, _NEW)
        judged = judge_changes(before, described)
        reason = reader.reason(numbers, text)
        for row, decision, recreated in zip(numbers, judged.decisions, judged.recreates, strict=True):
            left[row], recreates[row], considered[row] = decision is Decision.APPLY, recreated, True
            skipped += decision is Decision.SKIP
            if decision is Decision.REJECT:
                rejected.append(reader.rejected(row, text, reason))
        if judged.row != before:
            rows[text] = judged.row
    passed = len(starts) - int(left.sum()) - len(rejected) - skipped
    numbers_before = np.cumsum(left) - left
    return Sifted(
        changes=changes if left.all() else changes.filter(pa.array(left)),
        starts=starts if left.all() else numbers_before[starts][left],
        recreates=recreates[left],
        rejected=tuple(rejected),
        skipped=skipped,
        passed=passed,
        rows=rows,
        absent=_absent(texts, starts, holding)[left],
        links=tuple(_links(changes, texts, considered)),
    )


def spread_stops(links: Sequence[KeyMove], rejected: Sequence[Rejected]) -> Mapping[str, Stop]:
    """Return where rows stop because of messages that change keys: of such a message, both rows wait or none does.

    ``links``: all of a feed; ``rejected``: the changes that are left out so far.
    """
    held: dict[str, bytes] = {}
    for change in rejected:
        held[change.key] = min(change.order, held.get(change.key, change.order))
    stops: dict[str, Stop] = {}
    reason = "the message changes a key, and a change before it of the row with the other key is left out"
    for link in sorted(links, key=lambda link: link.order):
        stopped = [key for key in (link.key, link.other) if key in held and held[key] <= link.order]
        for key in (link.key, link.other) if stopped else ():
            if key not in held or held[key] > link.order:
                held[key] = link.order
                stops[key] = Stop(link.order, reason)
    return stops


def _absent(texts: KeyTexts, starts: Int64s, holding: Holding) -> Bools:
    """Which changes are of rows that the table does not have."""
    is_absent = np.zeros(len(starts), dtype=bool)
    is_absent[list(texts.rows_of(holding.absent))] = True
    return is_absent


def _links(changes: pa.Table, texts: KeyTexts, considered: Bools) -> list[KeyMove]:
    others = changes.column(OTHER_COLUMN)
    if others.null_count == len(others):
        return []
    orders = changes.column(ORDER_COLUMN)
    rows = pc.indices_nonzero(others.is_valid()).to_pylist()
    return [KeyMove(texts.text(row), others[row].as_py(), orders[row].as_py()) for row in rows if considered[row]]


def _groups(changes: pa.Table, starts: Int64s, texts: KeyTexts, holding: Holding) -> Mapping[int, str]:
    """The keys to look at: the first row of each, and its text."""
    faults = pc.indices_nonzero(changes.column(FAULT_COLUMN).is_valid()).to_numpy()
    groups = {int(start): texts.text(int(start)) for start in np.unique(starts[faults])}
    known = texts.rows_of(frozenset([*holding.rows, *holding.stops]))
    return groups | {int(starts[row]): text for row, text in known.items()}


class _Reader:
    """Reads single rows of ``changes``."""

    def __init__(self, changes: pa.Table, texts: KeyTexts, holding: Holding) -> None:
        self._changes = changes
        self._holding = holding
        names = changes.column_names
        self._columns = [name for name in names if not name.startswith("_skipstone_")]
        self._kept = unpack_bits(changes.column(KEPT_COLUMN), len(self._columns))
        self._missing: Bits = unpack_bits(changes.column(MISSING_COLUMN), len(self._columns))
        self._places = changes.column(PLACE_COLUMN)
        self._orders = changes.column(ORDER_COLUMN)
        self._reasons: dict[str, str] = {}

    def wanted(self, rows: Sequence[int], text: str) -> list[int]:
        """Those of ``rows`` that are asked for."""
        if not self._holding.only_rejected:
            return list(rows)
        known = frozenset(self._holding.rows.get(text, _NEW).missing)
        return [number for number in rows if self._id(number) in known]

    def change(self, row: int, text: str) -> RowChange:
        """As the core judges it."""
        sets = [name for name, kept in zip(self._columns, self._kept[row], strict=True) if not kept]
        return RowChange(
            place=self._id(row),
            sets=frozenset(sets),
            is_delete=self._value(OP_COLUMN, row) == DELETE,
            leaves=bool(self._missing[row].any()),
            fault=self._value(FAULT_COLUMN, row) is not None or self._stops(row, text),
        )

    def reason(self, rows: Sequence[int], text: str) -> str:
        """Why changes without a fault of their own wait."""
        first = next((row for row in rows if self._value(FAULT_COLUMN, row) is not None), None)
        if first is not None:
            number, line = self._where(first)
            return f"an earlier change of its row cannot be applied: '{self._file(number)}', line {line}"
        stop = self._holding.stops.get(text)
        if stop is None:
            return "a change of its row that an earlier merge left out is missing"
        return "an earlier change of its row cannot be applied" if stop.is_fault else stop.reason

    def rejected(self, row: int, text: str, reason: str) -> Rejected:
        """A row that is left out."""
        fault, order = self._value(FAULT_COLUMN, row), self._orders[row].as_py()
        stop = self._holding.stops.get(text)
        if fault is None and stop is not None and stop.is_fault and stop.order == order:
            fault = stop.reason
        number, line = self._where(row)
        reason = self._reasons.setdefault(fault or reason, fault or reason)  # few texts, of many changes
        return Rejected(number, line, reason, fault is not None, text, self._value(OTHER_COLUMN, row), order)

    def _stops(self, row: int, text: str) -> bool:
        stop = self._holding.stops.get(text)
        return stop is not None and self._orders[row].as_py() >= stop.order

    def _where(self, row: int) -> tuple[int, int]:
        place = self._places[row].as_py()
        return int.from_bytes(place[_FILE], "big"), int.from_bytes(place[_LINE], "big") >> ROW_BITS

    def _file(self, number: int) -> str:
        return self._holding.files[number]

    def _id(self, row: int) -> str:
        """The place of a row: that in the log, and that in its file where the log tells none."""
        place = self._places[row].as_py()
        origin, log = str(self._value(ORIGIN_COLUMN, row)), self._value(LOG_COLUMN, row)
        position = place[:-_FEED_BYTES].hex()
        if not self._holding.is_exact(origin, log, place[:-_FEED_BYTES]):
            number, line = self._where(row)
            position = f"{position} {PurePosixPath(self._file(number)).name} {line:012d}"
            # The first row of a message is known by its line alone, as records of earlier releases have it.
            within = int.from_bytes(place[_LINE], "big") & (1 << ROW_BITS) - 1
            position += f" {within:08d}" if within else ""
        return place_of(f"{origin} {log}", position)

    def _value(self, column: str, row: int) -> str | None:
        value: str | None = self._changes.column(column)[row].as_py()
        return value
