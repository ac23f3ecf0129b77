"""What of a table is read from a covering index, and what is not.

Used by ``choosing``. A file is read from the index when the index covers it and its deletes are known row by row; else
it is missing. Must not know Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.table import Table
from skipstone_core.errors import UserError
from skipstone_core.indexing.snapshots import DeleteKind

from skipstone.files.projections import deleted_positions
from skipstone.files.reader import describe_files
from skipstone.indexes.found import FoundIndex
from skipstone.query.plans import cost
from skipstone.tables.filesets import FileSet

Mask = npt.NDArray[np.bool_]
DELETED_SCHEMA = pa.schema([pa.field("file_id", pa.int32()), pa.field("pos", pa.int64())])


@dataclass(frozen=True, eq=False)
class CoveredRows:
    """The rows of a snapshot that are read from an index, and the files that are not.

    ``missing``: ordinals of the files that may hold a row of the query and are read themselves. ``file_ids``: whose
    entries are rows; None: all entries are. ``deleted``: entries that are not rows any more (DELETED_SCHEMA).
    ``single``, ``mixed``: entries in files of one bucket, and of all buckets.
    """

    index: FoundIndex
    files: FileSet
    missing: tuple[int, ...]
    file_ids: npt.NDArray[np.int32] | None
    deleted: pa.Table
    single: int
    mixed: int

    @property
    def missing_rows(self) -> int:
        """Rows of the files that are read themselves."""
        return int(self.files.files["records"].to_numpy()[list(self.missing)].sum())


def plan_rows(
    table: Table, files: FileSet, index: FoundIndex, candidates: Mask, *, only_rows: bool = False
) -> CoveredRows:
    """Return the rows to read of a snapshot; ``candidates``: the files that may hold a row of the query.

    ``only_rows``: entries that are not rows, or of files that are not candidates, must not even be looked at.
    """
    usable = index.covered.copy()
    if only_rows:
        usable &= candidates
        usable[[ordinal for ordinal in np.flatnonzero(usable).tolist() if files.has_deletes(ordinal)]] = False
    deleted = [DELETED_SCHEMA.empty_table(), *_deletes(table, files, index, usable)]
    ids = index.files.coverage.file_ids[usable]
    entries = index.index.entries
    all_rows = sum(file.records for file in entries)
    live = int(files.files["records"].to_numpy()[usable].sum())
    single = sum(file.records for file in entries if file.bucket is not None)
    return CoveredRows(
        index=index,
        files=files,
        missing=tuple(np.flatnonzero(candidates & ~usable).tolist()),
        file_ids=None if live == all_rows else np.sort(ids),
        deleted=pa.concat_tables(deleted),
        single=single,
        mixed=all_rows - single,
    )


def _deletes(table: Table, files: FileSet, index: FoundIndex, usable: Mask) -> list[pa.Table]:
    """Deleted rows of the usable files; those whose deletes are too many, or not by position, are usable no more."""
    if not files.delete_files:
        return []
    deleted, left = [], cost.BUCKET_JOIN_DELETED
    for count, ordinal in sorted(_counted(files, usable)):
        left -= count
        rows = None if left < 0 else _deleted(table, files, ordinal)
        if rows is None:
            usable[ordinal] = False
        else:
            deleted.append(_entries(int(index.files.coverage.file_ids[ordinal]), rows))
    return deleted


def _counted(files: FileSet, usable: Mask) -> list[tuple[int, int]]:
    """The usable files with deletes: how many these are at most, and the file; others than by position are too many."""
    counted = []
    for ordinal in np.flatnonzero(usable).tolist():
        deletes = files.applying_deletes(ordinal)
        if not deletes:
            continue
        is_plain = all(delete.kind is DeleteKind.POSITION for delete in deletes)
        count = sum(delete.file.record_count for delete in deletes) if is_plain else cost.BUCKET_JOIN_DELETED + 1
        counted.append((count, ordinal))
    return counted


def _deleted(table: Table, files: FileSet, ordinal: int) -> npt.NDArray[np.int64] | None:
    """Positions of deleted rows; None when only other engines read the deletes."""
    try:
        (file,) = describe_files(table, files, [ordinal])
    except UserError:
        return None
    return deleted_positions(file)


def _entries(file_id: int, positions: Sequence[int] | npt.NDArray[np.int64]) -> pa.Table:
    ids = np.full(len(positions), file_id, np.int32)
    return pa.table([pa.array(ids), pa.array(positions, pa.int64())], schema=DELETED_SCHEMA)
