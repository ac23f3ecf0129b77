"""Whether a merge changes files in all places where the table lists them.

Called when the tasks of a merge are done. A writer can add a file that the table has already; commits and position
deletes name files by their paths, so what a merge does in one place happens in the others, too. Must not read files.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from skipstone_core.errors import BadData
from skipstone_core.reasons import Reason

from skipstone.kernels.merging import FileResult
from skipstone.tables.filesets import FileSet


def require_all_places(files: FileSet, results: Sequence[FileResult]) -> None:
    """Raise BadData (SOURCE_UNREADABLE) for a changed file that keeps another place, or has other deletes there."""
    changed = {result.file_id: result.rewritten for result in results if result.rewritten or result.marked}
    paths = files.files["path"].combine_chunks()
    mine = paths.take(pa.array(list(changed), pa.int64()))
    places = np.flatnonzero(pc.is_in(paths, value_set=mine).to_numpy(zero_copy_only=False)).tolist()
    if len(places) == len(mine.unique()):
        return
    by_path: dict[str, list[int]] = {}
    for place in places:
        by_path.setdefault(paths[place].as_py(), []).append(place)
    for path, same in by_path.items():
        if len(same) > 1 and not _is_one_change(files, changed, same):
            raise BadData(
                Reason.SOURCE_UNREADABLE,
                f"the table lists {path} {len(same)} times, and this merge would change rows in one place that it "
                "keeps in another. Write the table's files again with the engine that added the file, in Spark by "
                "rewrite_data_files with the option rewrite-all",
            )


def _is_one_change(files: FileSet, changed: dict[int, bool], places: Sequence[int]) -> bool:
    """Return whether the file goes in all its places, or loses the same rows in all of them."""
    if any(place not in changed for place in places) or len({changed[place] for place in places}) > 1:
        return False
    deletes = {frozenset(delete.file.file_path for delete in files.applying_deletes(place)) for place in places}
    return changed[places[0]] or len(deletes) == 1
