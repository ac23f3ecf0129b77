"""Which entries of an index belong to data files that no retained snapshot of the table holds any more.

Called by the reindex run before it merges. Answers only when dropping them pays, because it reads old manifests.
Must not change anything.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table
from skipstone_core.indexing.indexes import is_purge_worthwhile

from skipstone.indexes.coverage import cover_files
from skipstone.indexes.tables import IndexTable
from skipstone.tables.filesets import FileSet, read_file_set


def stale_file_ids(table: Table, files: FileSet, index: IndexTable, covers: pa.Table) -> frozenset[int]:
    """File ids whose entries may be dropped; empty when that would free too little.

    ``files`` is the current snapshot; files of any other retained snapshot (time travel, branch, tag) are kept.
    """
    entries = sum(file.records for file in index.entries)
    unlisted = _unlisted(files, covers)
    for snapshot in table.metadata.snapshots:
        if not is_purge_worthwhile(_rows(covers, unlisted), entries):
            return frozenset()
        if snapshot.snapshot_id != files.snapshot_id:
            unlisted &= _unlisted(read_file_set(table, snapshot.snapshot_id), covers)
    if not is_purge_worthwhile(_rows(covers, unlisted), entries):
        return frozenset()
    return frozenset(covers["file_id"].filter(pa.array(unlisted)).to_pylist())


def _unlisted(files: FileSet, covers: pa.Table) -> npt.NDArray[np.bool_]:
    """Which cover rows name no file of the snapshot."""
    live = cover_files(files, covers).file_ids
    named: npt.NDArray[np.bool_] = np.isin(covers["file_id"].to_numpy(), live, invert=True)
    return named


def _rows(covers: pa.Table, chosen: npt.NDArray[np.bool_]) -> int:
    return int(pc.sum(covers["records"].filter(pa.array(chosen))).as_py() or 0)
