"""The source of a merge by ranges of keys, each written down by one task of Spark in memory that it has.

Called by ``source`` and ``feed``. How many rows a packed file has in memory is known once they are there: where a task
gets too many, it counts them, and all is read again in more ranges. Must not know what is written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from skipstone_core.contract.formats import SourceFormat

from skipstone.kernels.holding.packing import PackedRows
from skipstone.sources.listing import SourceListing
from skipstone.storage.port import StoredFile
from skipstone.tables.parquetfiles import read_metadata
from skipstone.tasks.failures import opened
from skipstone.tasks.mapping import BatchKernel, map_batches

#: Source bytes per slice. A slice is sorted in the memory of one task.
SLICE_BYTES = 64 * 1024 * 1024
#: Bytes in memory that a task holds at most at first; then, what a range is made for.
MOST_HELD_BYTES = 96 * 1024 * 1024
RANGE_BYTES = 32 * 1024 * 1024
#: What a task that writes a slice answers, as Arrow and as Spark have it.
ANSWER = pa.schema([pa.field("answer", pa.binary(), nullable=False)])
ANSWER_DDL = "answer binary not null"
#: Smaller sources are one range whatever their footers say.
_LOOKED_AT_BYTES = 16 * 1024 * 1024


class TooMuch(Exception):
    """The rows of a task are more than it may hold: ``nbytes``."""

    def __init__(self, nbytes: int) -> None:
        """All of them were counted."""
        super().__init__(nbytes)
        self.nbytes = nbytes


class BoundedRows:
    """Collects rows as ``PackedRows`` does, and only counts their bytes once they are too many."""

    def __init__(self, make: Callable[[], PackedRows], most: int | None) -> None:
        """``most``: bytes in memory; None: any."""
        self._make, self._most = make, most
        self._held, self._passed = make(), 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        rows = self._make() if self._passed else self._held
        rows.add(batch)
        if self._passed:
            self._passed += rows.nbytes
        elif self._most is not None and rows.nbytes > self._most:
            self._held, self._passed = self._make(), rows.nbytes

    def table(self) -> pa.Table:
        """All rows; no others follow. Raises TooMuch."""
        if self._passed:
            raise TooMuch(self._passed)
        return self._held.table()


@dataclass(frozen=True)
class Slices:
    """The answers of tasks. ``dropped``: answers from before all was read again."""

    answers: Sequence[object]
    dropped: Sequence[object] = ()


def slices_of(
    frame: DataFrame, keys: Sequence[Column], source_bytes: int, kernel: Callable[[int | None], BatchKernel]
) -> Slices:
    """Return the answers of tasks that write ``frame`` by ranges of ``keys``, for about so many ``source_bytes``.

    ``kernel``: of a task that holds at most so many bytes (None: any), and answers TooMuch otherwise.
    """
    count = max(1, -(-source_bytes // SLICE_BYTES))
    answers = _answers(frame, keys, count, kernel(MOST_HELD_BYTES))
    held = sum(answer.nbytes for answer in answers if isinstance(answer, TooMuch))
    if not held:
        return Slices(answers)
    others = [answer for answer in answers if not isinstance(answer, TooMuch)]
    more = max(count + 1, len(others) - (-held // RANGE_BYTES))
    return Slices(_answers(frame, keys, more, kernel(None)), others)


def _answers(frame: DataFrame, keys: Sequence[Column], count: int, kernel: BatchKernel) -> list[object]:
    """All rows of a key are in one partition: one partition for a small source, ranges of keys for a large one."""
    parted = frame.coalesce(1) if count == 1 else frame.repartitionByRange(count, *keys)
    return [opened(bytes(row.answer)) for row in map_batches(parted, kernel, ANSWER_DDL).collect()]


def bounded(work: Callable[[], object]) -> object:
    """Return the answer of ``work``, or TooMuch."""
    try:
        return work()
    except TooMuch as error:
        return error


def unpacked_bytes(listing: SourceListing, kind: SourceFormat, columns: Collection[str]) -> int:
    """Bytes of ``columns`` before they are packed, as footers tell; of other formats those of the files."""
    if kind is not SourceFormat.PARQUET or listing.total_bytes < _LOOKED_AT_BYTES:
        return listing.total_bytes
    try:
        return max(listing.total_bytes, sum(_footer_bytes(file, columns) for file in listing.stored) // 2)
    except (OSError, pa.ArrowException):
        return listing.total_bytes


def _footer_bytes(stored: StoredFile, columns: Collection[str]) -> int:
    with stored.open(buffering=0) as source:
        footer = read_metadata(source)
    groups = map(footer.row_group, range(footer.num_row_groups))
    chunks = (group.column(at) for group in groups for at in range(group.num_columns))
    return sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.split(".")[0] in columns)
