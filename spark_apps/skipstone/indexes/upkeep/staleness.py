"""Which entries of an index belong to data files that no retained snapshot of the table holds any more.

Called before an index is merged: by the reindex run, and by runs that entered what they committed. Answers only when
dropping them pays, because it may read old manifests. Must not change anything.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table
from skipstone_core.indexing.indexes import is_purge_worthwhile

from skipstone.indexes.coverage import cover_files
from skipstone.indexes.stores.port import store_of
from skipstone.indexes.tables import IndexTable
from skipstone.tables.filesets import FileSet, read_file_set


class RetainedSnapshots:
    """Those of a table that runs look at for several indexes."""

    def __init__(self, table: Table) -> None:
        """As ``table`` has them."""
        self.table = table
        snapshots = table.metadata.snapshots
        ids = {snapshot.snapshot_id for snapshot in snapshots}
        #: The segments that they added, ascending.
        self.segments = np.array(sorted({snapshot.sequence_number or 0 for snapshot in snapshots}), np.int64)
        #: Those whose parents are not retained.
        self.first = tuple(snapshot.snapshot_id for snapshot in snapshots if snapshot.parent_snapshot_id not in ids)


def stale_file_ids(retained: RetainedSnapshots, files: FileSet, index: IndexTable, covers: pa.Table) -> frozenset[int]:
    """File ids whose entries may be dropped; empty when that would free too little.

    ``files`` is the current snapshot; files of any other retained snapshot (time travel, branch, tag) are kept: what a
    retained snapshot added, and what those hold whose parents are not retained. All others hold nothing else. So are
    files of commits that the table of ``retained`` does not know yet.
    """
    entries, segments = store_of(index).size(covers).entries, covers["segment"].to_numpy()
    may_be_gone = np.isin(segments, retained.segments, invert=True) & (segments <= files.sequence_number)
    unlisted = _unlisted(files, covers) & may_be_gone
    for snapshot_id in retained.first:
        if not is_purge_worthwhile(_rows(covers, unlisted), entries):
            return frozenset()
        if snapshot_id != files.snapshot_id:
            unlisted &= _unlisted(read_file_set(retained.table, snapshot_id), covers)
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
