"""Is the resolution of equality deletes still right on a newer head? Judged over everything committed since the plan.

Used by the commit loop before every swap. A resolution takes equality deletes away, so none of them may apply to a data
file whose rows it did not look at. Equality deletes of others stay, whatever they say. Must not write.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from skipstone_core.history.commits import Conflicted
from skipstone_core.indexing.snapshots import DeleteKind, Pinned

from skipstone.tables.committing.validation import Window, find_shape_conflict, plan_again, rolled_back, window_since
from skipstone.tables.filesets import FileSet, read_file_set
from skipstone.tables.shaping.formats import has_lineage

Mask = npt.NDArray[np.bool_]
#: What tells that a data file is the one that was there in the plan.
_IDENTITY = ("path", "data_sequence", "segment")


def find_resolution_conflict(
    table: Table, pinned: Pinned, marked: Sequence[DataFile], resolved: Sequence[DataFile]
) -> Conflicted | None:
    """The first reason why equality deletes ``resolved`` on ``pinned`` must not go from the head of ``table``, or None.

    ``marked``: data files of which rows are deleted by position instead. Raises OSError.
    """
    if conflict := find_shape_conflict(table, pinned):
        return conflict
    head = table.current_snapshot()
    if head is None or head.snapshot_id == pinned.snapshot_id:
        return None
    window = window_since(table, pinned)
    if window is None:
        return rolled_back()
    known = _known(window.files, read_file_set(table, pinned.snapshot_id))
    return _marked_conflict(window, known, marked) or _unseen_conflict(
        window, np.flatnonzero(~known), {file.file_path for file in resolved}
    )


def _known(files: FileSet, planned: FileSet) -> Mask:
    """Which of ``files`` were there in the plan."""
    now, then = (known.files.select(list(_IDENTITY)).combine_chunks() for known in (files, planned))
    places = pc.index_in(now["path"], value_set=then["path"].combine_chunks())
    same = [pc.equal(now[name], then[name].take(places)) for name in _IDENTITY]
    mask = [np.asarray(pc.fill_null(equal, fill_value=False).to_numpy(), dtype=bool) for equal in same]
    return np.asarray(np.logical_and.reduce(mask))


def _marked_conflict(window: Window, known: Mask, marked: Sequence[DataFile]) -> Conflicted | None:
    if not marked:
        return None
    paths = pa.array([file.file_path for file in marked], pa.string())
    rows = pc.index_in(paths, value_set=window.files.files["path"].combine_chunks())
    for path, row in zip(paths.to_pylist(), rows.to_pylist(), strict=True):
        if row is None or not known[row]:
            return plan_again(f"{path} was removed by another writer")
        # files of positions are read beside one another, but a deletion vector must name all rows of its data file
        if has_lineage(window.head) and _has_new_positions(window, row):
            return plan_again(f"another writer deleted rows of {path}")
    return None


def _has_new_positions(window: Window, row: int) -> bool:
    return any(
        delete.kind is not DeleteKind.EQUALITY and delete.added_snapshot_id in window.snapshot_ids
        for delete in window.files.applying_deletes(row)
    )


def _unseen_conflict(window: Window, unseen: npt.NDArray[np.int64], resolved: Set[str]) -> Conflicted | None:
    """A data file that came since the plan, with rows of before an equality delete that is resolved."""
    for row, deletes in zip(unseen.tolist(), window.files.deletes_of_each(unseen), strict=True):
        for delete in deletes:
            if delete.kind is DeleteKind.EQUALITY and delete.file.file_path in resolved:
                path = window.files.files["path"][row].as_py()
                return plan_again(f"another writer added {path}, to which {delete.file.file_path} applies")
    return None
