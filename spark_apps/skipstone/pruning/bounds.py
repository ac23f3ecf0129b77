"""From a file set's column statistics to the ranges that key-range search takes.

Called by merge runs and the commit guard. Must not read data files.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow.compute as pc
from skipstone_core.merges import BoundKey

from skipstone.pruning.keyranges import FileRanges
from skipstone.rewrite.canonical import canonical
from skipstone.tables.filesets import FileSet


def file_ranges(files: FileSet, keys: Sequence[BoundKey]) -> list[FileRanges]:
    """Canonical bounds of every file for each of ``keys``, in their order."""
    return [_ranges(files, key) for key in keys]


def _ranges(files: FileSet, key: BoundKey) -> FileRanges:
    found = files.bounds(files.schema.find_field(key.target).field_id)
    only_nulls = pc.fill_null(pc.equal(found.null_count, found.value_count), fill_value=False)
    return FileRanges(
        canonical(found.lower, key.type),
        canonical(found.upper, key.type),
        np.asarray(only_nulls.to_numpy(zero_copy_only=False), dtype=bool),
    )
