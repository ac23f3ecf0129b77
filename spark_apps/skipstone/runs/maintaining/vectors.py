"""The delete files by position that take the place of equality deletes: one for each data file with such rows.

Called by the step that resolves equality deletes. Deletes by position that are there already are in the new file too.
Must not commit.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from skipstone_core.errors import BadData
from skipstone_core.indexing.snapshots import DeleteKind
from skipstone_core.reasons import Reason

from skipstone.files.positions import to_delete_files, write_deletes, write_vector
from skipstone.files.projections import DataFileDescription, deleted_positions
from skipstone.files.reader import describe_delete, describe_files
from skipstone.files.writer import WriteSpec, write_spec
from skipstone.kernels.canonical import Int64s
from skipstone.runs.maintaining.deletedrows import KnownRows, rows_of
from skipstone.tables.committing.writing import WrittenFiles
from skipstone.tables.filesets import FileSet, PinnedTable
from skipstone.tables.shaping.formats import has_lineage
from skipstone.tables.upkeep.equality import WAY_OUT
from skipstone.tasks.runner import InProcess

#: Delete files that are written at a time: they are small, and mostly wait for the storage.
_WRITERS = 8


@dataclass
class Marking:
    """``deletes``: new ones, of the data files ``marked``; ``replaced``: whose rows they name too.

    ``rows``: that are deleted by them and were not by position before; ``nbytes``: of the new files.
    """

    marked: list[DataFile] = field(default_factory=list)
    deletes: list[DataFile] = field(default_factory=list)
    replaced: list[DataFile] = field(default_factory=list)
    rows: int = 0
    nbytes: int = 0


@dataclass(frozen=True)
class _Work:
    """One data file, with its deletes by position, and rows to delete."""

    write: WriteSpec
    path: str
    file: DataFileDescription
    rows: Int64s
    is_vector: bool


@dataclass(frozen=True)
class _Done:
    """``row``: of the delete file, empty when all rows were deleted before; ``rows``: those that were not."""

    file_id: int
    row: bytes = b""
    rows: int = 0


def mark_rows(pinned: PinnedTable, known_rows: KnownRows, token: str, written: WrittenFiles, marking: Marking) -> None:
    """Write the delete files of ``known_rows``, noted in ``written`` at once. Raises BadData, OSError."""
    table, files = pinned.table, pinned.files
    write, is_vector = write_spec(table, token), has_lineage(table)
    rows = dict(rows_of(files, known_rows))
    _require_single(files, list(rows))
    suffix = "puffin" if is_vector else "parquet"
    works = [
        _Work(
            write,
            f"{write.location}/{token}-{number:05}-deletes.{suffix}",
            _with_positions(file, files),
            rows[file.file_id],
            is_vector,
        )
        for number, file in enumerate(describe_files(table, files, list(rows), with_deletes=False))
    ]

    def take(done: _Done) -> None:
        if not done.row:
            return
        (delete,) = written.note(to_delete_files([done.row]))
        marking.deletes.append(delete)
        marking.marked.append(files.data_file(done.file_id))
        marking.replaced += [before.file for before in files.applying_deletes(done.file_id) if before.is_replaceable]
        marking.rows += done.rows
        marking.nbytes += delete.file_size_in_bytes

    InProcess(_WRITERS).run(_write, works, take)


def _require_single(files: FileSet, ordinals: list[int]) -> None:
    """Raise BadData for a data file that is in the table twice: a delete by position is of both, whatever their age."""
    paths = files.files["path"].combine_chunks()
    marked = paths.take(pa.array(ordinals, pa.int64()))
    if pc.sum(pc.is_in(paths, value_set=marked)).as_py() in (None, len(marked)):
        return
    counts = Counter(paths.to_pylist())
    twice = next(path for path in marked.to_pylist() if counts[path] > 1)
    message = (
        f"the data file {twice} is in the table more than once, so its rows cannot be deleted by position: {WAY_OUT}"
    )
    raise BadData(Reason.DELETES_UNSUPPORTED, message)


def _with_positions(file: DataFileDescription, files: FileSet) -> DataFileDescription:
    deletes = [delete for delete in files.applying_deletes(file.file_id) if delete.kind is DeleteKind.POSITION]
    return replace(file, deletes=tuple(describe_delete(delete, files.schema, file.access) for delete in deletes))


def _write(work: _Work, _: str) -> _Done:
    before = deleted_positions(work.file)
    new = np.setdiff1d(work.rows, before, assume_unique=True)
    if not len(new):
        return _Done(work.file.file_id)
    # a vector stands for all deletes by position of its file
    kept = before if work.is_vector else deleted_positions(work.file, own=True)
    positions = np.union1d(kept, new)
    try:
        made = (write_vector if work.is_vector else write_deletes)(work.write, work.path, work.file, positions)
    except BaseException:
        with suppress(OSError):  # it may not have been made
            work.write.access.open(work.path).delete(work.path)
        raise
    return _Done(work.file.file_id, made.to_row(), len(new))
