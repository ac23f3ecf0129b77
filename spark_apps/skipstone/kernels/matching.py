"""The exact join of a merge: which source row, if any, each target row matches.

Called by the merge kernel per file and by the commit guard. Keys come in canonical form; a null matches nothing.
Must not read files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from propcache.api import cached_property
from skipstone_core.merging.merges import MergePlan

from skipstone.kernels.canonical import Int64s, canonical, int64s, null_rows
from skipstone.kernels.clauses import holds, source_columns, target_columns
from skipstone.kernels.computing.structs import column_at

#: What ``match`` says of a target row that no source row matches.
UNMATCHED = -1
#: Fewer numbers are looked for one by one.
_FEW = 1_024
#: Slots for each of the numbers that are looked in, about, and how many there are at least and at most, as powers of 2.
_SLOTS, _FEWEST_BITS, _MOST_BITS = 8, 12, 24
#: 2^64 divided by the golden ratio: multiples of it are spread evenly (Knuth, The Art of Computer Programming 3, 6.4).
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class _Ordered:
    """Ascending numbers, each of them once, in which many others are looked for.

    Most numbers are not among them: one bit of a table tells that, before the binary search.
    """

    def __init__(self, numbers: Int64s) -> None:
        self._numbers = numbers
        bits = max(_FEWEST_BITS, (_SLOTS * len(numbers)).bit_length())
        self._shift = np.uint64(64 - min(bits, _MOST_BITS))

    def __len__(self) -> int:
        return len(self._numbers)

    def find(self, wanted: Int64s) -> Int64s:
        """The place of each wanted number, UNMATCHED where it is not there."""
        if not len(self._numbers):
            return np.full(len(wanted), UNMATCHED, dtype=np.int64)
        if len(wanted) < _FEW:
            return self._search(wanted)
        maybe = np.flatnonzero(self._taken[self._slots(wanted)])
        if 2 * len(maybe) > len(wanted):
            return self._search(wanted)
        places = np.full(len(wanted), UNMATCHED, dtype=np.int64)
        places[maybe] = self._search(wanted[maybe])
        return places

    def _search(self, wanted: Int64s) -> Int64s:
        places = np.searchsorted(self._numbers, wanted)
        places[places == len(self._numbers)] = 0
        return np.where(self._numbers[places] == wanted, places, UNMATCHED)

    def _slots(self, numbers: Int64s) -> npt.NDArray[np.uint64]:
        return np.ascontiguousarray(numbers).view(np.uint64) * _SPREAD >> self._shift

    @cached_property
    def _taken(self) -> npt.NDArray[np.bool_]:
        """Which slots hold a number."""
        taken = np.zeros(1 << (64 - int(self._shift)), dtype=bool)
        taken[self._slots(self._numbers)] = True
        return taken


@dataclass(frozen=True)
class _Step:
    """One key column: its distinct values and, after the first column, the distinct pairs with the code before."""

    values: _Ordered | pa.Array
    pairs: _Ordered | None

    @property
    def width(self) -> int:
        return len(self.values)


class KeyMatcher:
    """Finds source rows by key. Built once per source slice, used for every batch of a file.

    Columns are joined one by one through dense codes (never more codes than source rows), so a composite key needs no
    concatenated bytes and nothing can collide.
    """

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        """``columns``: canonical key columns of the source, no nulls, no key twice (the caller has seen to both)."""
        self._steps: list[_Step] = []
        codes: Int64s | None = None
        for column in columns:
            values, index = _distinct(column)
            if codes is None:
                self._steps.append(_Step(values, None))
                codes = index
                continue
            pairs, codes = np.unique(codes * len(values) + index, return_inverse=True)
            self._steps.append(_Step(values, _Ordered(pairs)))
        self._rows = np.empty(len(columns[0]), dtype=np.int64)
        self._rows[codes] = np.arange(len(columns[0]))

    def match(self, columns: Sequence[pa.Array]) -> Int64s:
        """The source row of each target row, UNMATCHED where there is none."""
        if not len(self._rows):
            return np.full(len(columns[0]), UNMATCHED, dtype=np.int64)
        codes = _lookup(columns[0], self._steps[0].values)
        for column, step in zip(columns[1:], self._steps[1:], strict=True):
            codes = _join(codes, _lookup(column, step.values), step)
        return np.where(codes >= 0, self._rows[codes], UNMATCHED)


def _join(codes: Int64s, index: Int64s, step: _Step) -> Int64s:
    if step.pairs is None:
        raise ValueError("the first key column has no pairs")
    places = step.pairs.find(codes * step.width + index)
    return np.where((codes >= 0) & (index >= 0), places, UNMATCHED)


def _distinct(column: pa.Array) -> tuple[_Ordered | pa.Array, Int64s]:
    """Distinct values of a column and the position of each row's value among them."""
    if pa.types.is_int64(column.type):
        numbers = int64s(column)
        if bool((numbers[1:] > numbers[:-1]).all()):
            return _Ordered(numbers), np.arange(len(numbers))
        values, index = np.unique(numbers, return_inverse=True)
        return _Ordered(values), index.astype(np.int64, copy=False)
    encoded = column.dictionary_encode()
    return encoded.dictionary, encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _lookup(column: pa.Array, values: _Ordered | pa.Array) -> Int64s:
    if isinstance(values, _Ordered):
        places = values.find(int64s(column))
        return np.where(null_rows([column]), UNMATCHED, places) if column.null_count else places
    index = pc.index_in(column, value_set=values, skip_nulls=True)
    return np.asarray(pc.fill_null(index, UNMATCHED).to_numpy(zero_copy_only=False), dtype=np.int64)


def match_batch(matcher: KeyMatcher, batch: pa.RecordBatch, plan: MergePlan, source: pa.Table) -> Int64s:
    """The source row of each row; of those with equal keys the condition decides."""
    match = matcher.match([canonical(column_at(batch, key.target), key.type) for key in plan.keys])
    hits = np.flatnonzero(match != UNMATCHED)
    if plan.target_where is None or not len(hits):
        return match
    columns = target_columns(plan, batch.take(pa.array(hits)))
    columns |= source_columns(source.select(plan.where_source), match[hits])
    kept = np.full(len(match), UNMATCHED, dtype=np.int64)
    hits = hits[holds(plan.target_where, columns, len(hits))]
    kept[hits] = match[hits]
    return kept
