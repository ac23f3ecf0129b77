"""The compaction kernel: the live rows of some files in fewer files, with as little decoding as they allow.

Called inside tasks, one per core with many groups each. Where the order of rows does not matter, column chunks of large
row groups in which no row is deleted are copied as they are. Must not commit and must not know how files were chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from skipstone_core.errors import BadData, UserError
from skipstone_core.reasons import Reason

from skipstone.files.footers import UNREADABLE
from skipstone.files.reader import DataFileDescription, OpenDataFile, OpenWholeFile, open_data_file
from skipstone.files.splicing import ChunkSource, SplicedFile
from skipstone.files.writer import DataFileWriter, WriteSpec
from skipstone.kernels.ordering import SortedRows

#: Row groups of fewer rows than this, and of fewer bytes, are put together: readers pay for each.
COPIED_ROWS = 128 * 1024
COPIED_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class GroupWork:
    """Files that become ``outputs`` files. ``is_kept``: all of one partition of the spec that is written."""

    number: int
    files: tuple[DataFileDescription, ...]
    outputs: int
    is_kept: bool


@dataclass(frozen=True, kw_only=True)
class CompactWork:
    """The work of one task. Picklable."""

    write: WriteSpec
    groups: tuple[GroupWork, ...]


@dataclass(frozen=True)
class GroupProblem:
    """Why a group cannot be rewritten. ``vanished``: a file is not there, as when another writer expired snapshots."""

    reason: Reason
    message: str
    vanished: bool = False


@dataclass(frozen=True, kw_only=True)
class GroupResult:
    """The result of a group: ``written`` are rows for ``to_data_files``. ``problem``: why nothing was written."""

    number: int
    written: tuple[bytes, ...] = ()
    rows: int = 0
    problem: GroupProblem | None = None


def compact_groups(work: CompactWork, task_id: str) -> tuple[GroupResult, ...]:
    """Write each group; one that cannot be read does not keep the others from being written."""
    return tuple(_attempted(work.write, group, f"{task_id}-{group.number}") for group in work.groups)


def _attempted(write: WriteSpec, group: GroupWork, task_id: str) -> GroupResult:
    writer = DataFileWriter(write, task_id)
    try:
        rows = _written(writer, group)
        files = writer.close()
        _require_all(group, rows, sum(file.records for file in files))
        return GroupResult(number=group.number, written=tuple(file.to_row() for file in files), rows=rows)
    except FileNotFoundError as error:
        writer.abort()
        message = f"a file that the table names cannot be read: {error}"
        return GroupResult(number=group.number, problem=GroupProblem(Reason.SOURCE_UNREADABLE, message, vanished=True))
    except UserError as error:
        writer.abort()
        return GroupResult(number=group.number, problem=GroupProblem(error.reason, str(error)))
    except BaseException:
        writer.abort()
        raise


def _require_all(group: GroupWork, read: int, written: int) -> None:
    if read != written:
        paths = ", ".join(file.path for file in group.files[:3])
        raise BadData(Reason.INTERNAL_ERROR, f"{read} rows of {paths} were read and {written} written")


def _written(writer: DataFileWriter, group: GroupWork) -> int:
    """Write the group; how many rows were read."""
    counted = _Counted()
    if writer.sorts:
        with SortedRows(writer, group.outputs) as rows:
            for file in group.files:
                for batch in counted.of(_all_rows(file, writer.arrow_schema.names)):
                    rows.take(batch)
            rows.write()
    elif group.is_kept and group.files[0].spec_id == writer.partitioning.spec_id:
        spliced = writer.splice(group.files[0].partition)
        writer.fill(spliced, counted.of(_left_to_write(writer, spliced, group.files, counted)))
    else:
        for file in group.files:
            for batch in counted.of(_all_rows(file, writer.arrow_schema.names)):
                writer.write(batch)
    return counted.rows


@dataclass
class _Counted:
    """How many rows were read."""

    rows: int = 0

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, counted."""
        for batch in batches:
            self.rows += batch.num_rows
            yield batch


def _all_rows(file: DataFileDescription, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with open_data_file(file) as opened:
        for group in range(len(opened.group_rows)):
            yield from opened.read(names, group)


def _left_to_write(
    writer: DataFileWriter, spliced: SplicedFile, files: Sequence[DataFileDescription], counted: _Counted
) -> Iterator[pa.RecordBatch]:
    """Rows that are to be encoded; chunks of others are copied to ``spliced`` on the way."""
    names = writer.arrow_schema.names
    for file in files:
        with open_data_file(file) as opened:
            chunks = _chunks(opened)
            for group, rows in enumerate(opened.group_rows):
                if chunks is not None and _copied(writer, spliced, opened, chunks, group):
                    counted.rows += rows
                else:
                    yield from opened.read(names, group)


def _chunks(opened: OpenDataFile) -> ChunkSource | None:
    """Return the source of copied chunks; None where none can be copied, or none is worth it."""
    if isinstance(opened, OpenWholeFile) or max(opened.group_rows, default=0) == 0:
        return None
    if opened.file.size < COPIED_BYTES and max(opened.group_rows) < COPIED_ROWS:
        return None
    try:
        chunks = ChunkSource(opened.source)
    except UNREADABLE:
        return None
    return chunks if chunks.is_known else None


def _copied(
    writer: DataFileWriter, spliced: SplicedFile, opened: OpenDataFile, chunks: ChunkSource, group: int
) -> bool:
    """Copy a row group, but for columns that are to be encoded; False when all of it is."""
    rows = opened.group_rows[group]
    nbytes = int(chunks.groups[group].get(6) or chunks.groups[group][2])
    if rows < COPIED_ROWS and nbytes < COPIED_BYTES:
        return False
    if opened.has_deleted(group) or writer.layout.copied_as(chunks):  # other files may have such columns otherwise
        return False
    copyable = writer.layout.copyable(chunks, group) - writer.lineage_columns
    foreign = [name for name in writer.arrow_schema.names if name not in copyable]
    if len(foreign) == len(writer.arrow_schema.names):
        return False
    fresh, held = [], 0
    for batch in opened.read(foreign, group) if foreign else ():
        fresh.append(batch)
        held += batch.nbytes
        if held > writer.flush_bytes:
            return False
    made = spliced.encode(writer.conform(pa.Table.from_batches(fresh))) if fresh else None
    spliced.copy(chunks, group, made)
    return True
