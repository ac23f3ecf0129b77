"""Sorts more rows than memory holds and writes them as files of about the same size: an external merge sort.

Called by the compaction kernel for the rows of one group. Rows are sorted in runs that fit into memory; runs that do
not fit together are kept in local files, cut at the same keys, and each range of keys is put together and sorted again.
Source of the algorithm: Knuth, The Art of Computer Programming, volume 3, section 5.4. Must not know which rows these
are.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa

from skipstone.files.partitions import SortKeys
from skipstone.files.writer import DataFileWriter

#: Bytes of rows that are sorted at once.
RUN_BYTES = 128 * 1024 * 1024
_SAMPLES = 64


@dataclass(frozen=True)
class _Run:
    """Sorted rows in a file, and how many."""

    path: Path
    rows: int
    nbytes: int

    def table(self) -> pa.Table:
        """The rows, mapped into memory."""
        return pa.ipc.open_file(pa.memory_map(str(self.path))).read_all()


@dataclass
class SortedRows:
    """Takes the rows of one group in any order; ``write`` gives them to ``writer`` in its order.

    Rows of several partitions are sorted in each.
    """

    writer: DataFileWriter
    outputs: int
    run_bytes: int = RUN_BYTES
    _rows: list[pa.Table] = field(default_factory=list)
    _held: int = 0
    _runs: list[_Run] = field(default_factory=list)
    _folder: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> SortedRows:
        """Nothing is on disk yet."""
        self._path = Path(self._folder.enter_context(tempfile.TemporaryDirectory(prefix="skipstone-sort-")))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove what is on disk."""
        self._folder.close()

    def take(self, batch: pa.RecordBatch) -> None:
        """Rows in the columns of the table."""
        self._rows.append(self.writer.conform(pa.Table.from_batches([batch])))
        self._held += batch.nbytes
        if self._held >= self.run_bytes:
            self._spill()

    def write(self) -> None:
        """Write all rows; the files are finished when the writer is closed."""
        if self._rows and self._runs:
            self._spill()
        count = sum(run.rows for run in self._runs) + sum(rows.num_rows for rows in self._rows)
        most = max(1, -(-count // self.outputs))
        for rows in self._ranges() if self._runs else self._at_once():
            self.writer.write_ordered(rows, most)

    def _at_once(self) -> Iterator[pa.Table]:
        if self._rows:
            yield self.writer.in_order(pa.concat_tables(self._rows))

    def _spill(self) -> None:
        ordered = self.writer.in_order(pa.concat_tables(self._rows)).combine_chunks()
        self._rows, self._held = [], 0
        path = self._path / f"run-{len(self._runs)}"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, ordered.schema) as out:
            out.write_table(ordered)
        self._runs.append(_Run(path, ordered.num_rows, ordered.nbytes))

    def _ranges(self) -> Iterator[pa.Table]:
        """Rows of all runs by ranges of keys, each about as large as a run."""
        tables = [run.table() for run in self._runs]
        count = max(1, -(-sum(run.nbytes for run in self._runs) // self.run_bytes))
        keys = [self.writer.sort_keys(table) for table in tables]
        cuts = _cuts(keys, count)
        starts = [
            [0, *(_place(key, cut) for cut in cuts), table.num_rows] for key, table in zip(keys, tables, strict=True)
        ]
        for number in range(len(cuts) + 1):
            parts = [
                table.slice(start[number], start[number + 1] - start[number])
                for table, start in zip(tables, starts, strict=True)
            ]
            yield self.writer.in_order(pa.concat_tables(parts))


def _cuts(keys: Sequence[SortKeys], count: int) -> list[SortKeys]:
    """Keys that part the rows of all runs into about ``count`` ranges of the same size."""
    samples = SortKeys.joined(
        [key.at(np.linspace(0, len(key) - 1, _SAMPLES * count, dtype=np.int64)) for key in keys if len(key)]
    )
    ordered = samples.at(samples.order())
    places = [len(ordered) * number // count for number in range(1, count)]
    return [ordered.at(np.array([place])) for place in places]


def _place(keys: SortKeys, cut: SortKeys) -> int:
    """The first row whose key is not below ``cut``; ``keys`` are in order."""
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        pair = SortKeys.joined([cut, keys.at(np.array([middle]))])
        if pair.order()[0] == 0:  # a stable order: the cut is not above the row
            high = middle
        else:
            low = middle + 1
    return low
