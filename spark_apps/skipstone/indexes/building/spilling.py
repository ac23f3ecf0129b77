"""Puts more rows in order than fit in memory: sorted buffers wait in files of this machine until all of them are there.

An external merge sort that never compares row by row: keys at which the files can be cut are known from the first row
of each batch; what lies between two cuts is read from all files and sorted as a buffer is, by plain numbers.
Bounded memory whatever comes in, many rows of one key included. Must not know what rows mean.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.indexes.building.packing import in_key_order, sort_order
from skipstone.kernels.canonical import Int64s

#: A batch in a file is this part of what is sorted at once: small, as the batches of all files at a cut are read twice.
_BATCHES = 64
_FIRST = pa.array([0])


class Spills:
    """Sorted buffers in a temporary folder, which is gone when the context ends.

    ``keys``: so many columns, the first ones, are what rows are sorted by, nulls last. ``most_bytes``: of what is read
    and sorted at once when they are merged, more or less.
    """

    def __init__(self, keys: int, most_bytes: int) -> None:
        """Make no file yet."""
        self._keys, self._most_bytes = keys, most_bytes
        self._kept = ExitStack()
        self._folder: Path | None = None
        self._spills: list[_Spill] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    def __bool__(self) -> bool:
        """Return whether there is a buffer."""
        return bool(self._spills)

    def add(self, parts: Iterable[pa.Table]) -> None:
        """Take one buffer, in order and not empty."""
        if self._folder is None:
            self._folder = Path(self._kept.enter_context(tempfile.TemporaryDirectory(prefix="skipstone-")))
        path = str(self._folder / f"{len(self._spills)}.arrow")
        firsts, sizes = _written(path, parts, self._keys, self._most_bytes // _BATCHES)
        file = pa.ipc.open_file(self._kept.enter_context(pa.OSFile(path)))
        self._spills.append(_Spill(file, firsts, sizes))

    def merged(self) -> Iterator[pa.Table]:
        """All rows in key order; rows of equal keys in the order in which they were added."""
        ranks, cuts = _cuts(self._spills, self._most_bytes)
        starts = [0] * len(self._spills)
        for cut in cuts:
            ends = [spill.position(cut, rank) for spill, rank in zip(self._spills, ranks, strict=True)]
            yield from self._between(starts, ends, is_one_key=cut.is_behind)
            starts = ends
        yield from self._between(starts, [spill.rows for spill in self._spills], is_one_key=False)

    def _between(self, starts: Sequence[int], ends: Sequence[int], *, is_one_key: bool) -> Iterator[pa.Table]:
        spills = [spill for spill, start, end in zip(self._spills, starts, ends, strict=True) if start < end]
        batches = (
            batch
            for spill, start, end in zip(self._spills, starts, ends, strict=True)
            for batch in spill.read(start, end)
        )
        if is_one_key or len(spills) == 1:
            yield from (pa.Table.from_batches([batch]) for batch in batches)
        elif spills:
            yield from self._in_order(pa.Table.from_batches(batches).combine_chunks())

    def _in_order(self, rows: pa.Table) -> Iterator[pa.Table]:
        keys = [[_one_array(rows.column(number))] for number in range(self._keys)]
        others = [_one_array(rows.column(number)) for number in range(self._keys, rows.num_columns)]
        for part in in_key_order(keys, [rows.num_rows]):
            taken = pa.array(part.offsets)
            yield pa.Table.from_arrays([*part.keys, *(other.take(taken) for other in others)], schema=rows.schema)


@dataclass(frozen=True)
class _Cut:
    """A place between rows: before all rows of ``key``, or behind them. ``rank``: of the key among first keys."""

    rank: int
    key: tuple[pa.Scalar, ...]
    is_behind: bool


class _Spill:
    """A file of sorted rows. ``firsts``: the keys of the first row of each batch, ``sizes``: rows of each."""

    def __init__(self, file: pa.ipc.RecordBatchFileReader, firsts: pa.Table, sizes: Sequence[int]) -> None:
        self._file, self.firsts = file, firsts
        self._starts: Int64s = np.cumsum([0, *sizes])
        self.batch_bytes = file.get_batch(0).nbytes

    @property
    def rows(self) -> int:
        """Of the whole file."""
        return int(self._starts[-1])

    def position(self, cut: _Cut, ranks: Int64s) -> int:
        """How many rows are before ``cut``. ``ranks``: of the first key of each batch."""
        before = int(np.searchsorted(ranks, cut.rank, "right" if cut.is_behind else "left"))
        if not before:
            return 0
        last = self._file.get_batch(before - 1)
        return int(self._starts[before - 1]) + _count_before(last, cut)

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The rows from ``start`` to ``end``."""
        if start >= end:
            return
        first, last = (int(np.searchsorted(self._starts, at, "right")) - 1 for at in (start, end - 1))
        for number in range(first, last + 1):
            at = int(self._starts[number])
            batch = self._file.get_batch(number)
            yield batch.slice(max(0, start - at), min(end - at, batch.num_rows) - max(0, start - at))


def _written(path: str, parts: Iterable[pa.Table], keys: int, batch_bytes: int) -> tuple[pa.Table, list[int]]:
    """Write a file; the keys of the first row of each batch, and its rows."""
    firsts: list[pa.Table] = []
    sizes: list[int] = []
    writer: pa.ipc.RecordBatchFileWriter | None = None
    with pa.OSFile(path, "wb") as sink:
        for part in parts:
            writer = writer or pa.ipc.new_file(sink, part.schema)
            rows = max(1, part.num_rows * batch_bytes // part.nbytes)
            for batch in part.to_batches(max_chunksize=rows):
                writer.write_batch(batch)
                # taken, not sliced: a slice keeps the whole batch in memory
                firsts.append(pa.Table.from_batches([batch.select(range(keys)).take(_FIRST)]))
                sizes.append(batch.num_rows)
        if writer is not None:
            writer.close()
    return pa.concat_tables(firsts), sizes


def _cuts(spills: Sequence[_Spill], most_bytes: int) -> tuple[list[Int64s], list[_Cut]]:
    """The ranks of the first keys of the batches of each file, and where to cut: about ``most_bytes`` are between two
    cuts, or rows of one key only.
    """
    firsts = pa.concat_tables(spill.firsts for spill in spills)
    columns = [_one_array(column) for column in firsts.columns]
    order = sort_order(columns)
    in_order = [column.take(pa.array(order)) for column in columns]
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(_changes(in_order))
    sizes = np.concatenate([np.full(len(spill.firsts), spill.batch_bytes) for spill in spills])
    held, cuts, starts = 0.0, [], np.flatnonzero(np.diff(ranks[order], prepend=-1))
    for rank, weight in enumerate(np.bincount(ranks, weights=sizes).tolist()):
        key = tuple(column[int(starts[rank])] for column in in_order)
        is_heavy = weight > most_bytes
        if is_heavy or held >= most_bytes:
            cuts.append(_Cut(rank, key, is_behind=False))
            held = 0.0
        if is_heavy:
            cuts.append(_Cut(rank, key, is_behind=True))
        else:
            held += weight
    ends = np.cumsum([len(spill.firsts) for spill in spills])
    return np.split(ranks, ends[:-1]), cuts


def _changes(columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows that differ from the row before; the first one does not."""
    changes = np.zeros(len(columns[0]), np.bool_)
    for column in columns:
        later, earlier = column.slice(1), column.slice(0, len(column) - 1)
        both_null = pc.and_(later.is_null(), earlier.is_null())
        same = pc.or_(pc.fill_null(pc.equal(later, earlier), fill_value=False), both_null)
        changes[1:] |= ~same.to_numpy(zero_copy_only=False)
    return changes


def _count_before(rows: pa.RecordBatch, cut: _Cut) -> int:
    """How many rows of a batch are before a cut, nulls last."""
    before, same = pa.repeat(pa.scalar(value=False), rows.num_rows), pa.repeat(pa.scalar(value=True), rows.num_rows)
    for column, value in zip(rows.columns, cut.key, strict=False):
        less = pc.fill_null(pc.less(column, value), fill_value=False) if value.is_valid else column.is_valid()
        equal = pc.fill_null(pc.equal(column, value), fill_value=False) if value.is_valid else column.is_null()
        before = pc.or_(before, pc.and_(same, less))
        same = pc.and_(same, equal)
    earlier = pc.or_(before, same) if cut.is_behind else before
    return int(pc.sum(earlier).as_py())


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks)
