"""Finds the changes of keys that have several, in the slices of the source.

Called by the merge kernels. Reads slices only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from skipstone_core.merging.merges import MergePlan

from skipstone.kernels.canonical import Int64s
from skipstone.kernels.changes import ChangeReader, ChangeSlice, SlicePart, first_of_others
from skipstone.kernels.holding.spooling import SourceRows, picked
from skipstone.kernels.partial import Bits


@dataclass(frozen=True)
class Histories:
    """The changes of some keys: those of key i are the rows [starts[i], stops[i]) of ``changes``, the oldest first."""

    changes: SourceRows
    starts: Int64s
    stops: Int64s

    def of(self, numbers: Int64s) -> Histories:
        """Those of some keys, in this order."""
        return Histories(self.changes, self.starts[numbers], self.stops[numbers])


@dataclass(frozen=True)
class KeyedRows:
    """Some rows with keys of the slice with this number, ascending."""

    slice: int
    rows: Int64s


@dataclass(frozen=True)
class _Places:
    """Changes of keys: the ``rows`` of ``parts``, key by key, and how many each key has."""

    parts: tuple[SlicePart, ...]
    rows: Int64s
    counts: Int64s

    @property
    def read(self) -> int:
        """Rows of the parts."""
        return sum(part.stop - part.start for part in self.parts)


@dataclass
class HistoryReader:
    """Finds the changes of keys that have several. One per task; ``reader`` reads all columns that the merge needs."""

    plan: MergePlan
    slices: Sequence[ChangeSlice]
    reader: ChangeReader
    _firsts: dict[int, Int64s] = field(default_factory=dict)

    def has_several(self, parts: Sequence[SlicePart]) -> Bits:
        """For each row of ``parts``, which have keys: whether its key has other changes."""
        flags = [np.zeros(0, dtype=bool)]
        for part in parts:
            several = np.zeros(part.stop - part.start, dtype=bool)
            firsts = self._first_of_others(part.slice)
            several[firsts[(firsts >= part.start) & (firsts < part.stop)] - part.start] = True
            flags.append(several)
        return np.concatenate(flags)

    def read(self, keyed: Sequence[KeyedRows]) -> Histories:
        """The changes of the keys of some rows."""
        spans = [self._find(keyed_rows.slice, keyed_rows.rows) for keyed_rows in keyed]
        begins = np.cumsum([0, *(span.read for span in spans)])[:-1]
        rows = np.concatenate([span.rows + begin for span, begin in zip(spans, begins, strict=True)])
        counts = np.concatenate([span.counts for span in spans])
        source = self.reader.read([part for span in spans for part in span.parts])
        ends = np.cumsum(counts)
        return Histories(picked(source, pa.array(rows)), ends - counts, ends)

    def _find(self, number: int, keyed: Int64s) -> _Places:
        """Where the changes of keys of one slice are."""
        change_slice, firsts = self.slices[number], self._first_of_others(number)
        lower, upper = np.searchsorted(firsts, keyed, side="left"), np.searchsorted(firsts, keyed, side="right")
        start, stop, begin = int(lower[0]), int(upper[-1]), change_slice.rows - change_slice.others
        others = SlicePart(number, begin + start, begin + stop)
        last = SlicePart(number, int(keyed[0]), int(keyed[-1]) + 1)
        counts = np.asarray(upper - lower + 1, dtype=np.int64)
        is_last = np.zeros(int(counts.sum()), dtype=bool)
        is_last[np.cumsum(counts) - 1] = True
        rows = np.empty(len(is_last), dtype=np.int64)
        rows[is_last] = stop - start + keyed - keyed[0]
        rows[~is_last] = np.flatnonzero(np.isin(firsts[start:stop], keyed))
        return _Places((others, last), rows, counts)

    def _first_of_others(self, number: int) -> Int64s:
        if number not in self._firsts:
            change_slice = self.slices[number]
            firsts = (
                first_of_others(change_slice, self.plan.keys) if change_slice.others else np.empty(0, dtype=np.int64)
            )
            self._firsts[number] = firsts
        return self._firsts[number]
