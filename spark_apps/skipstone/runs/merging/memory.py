"""How much memory it takes to rewrite a file, told before it is read: by its rows and the source rows of its key range.

Called by the merge run, which decides by it how many files are rewritten at a time. An estimate: how much text a data
file holds is not known.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skipstone.kernels.changes import ChangeSlice
from skipstone.pruning.funnel import Candidates
from skipstone.runs.merging.source import Changes
from skipstone.tables.arrow import arrow_schema
from skipstone.tables.filesets import PinnedTable

#: Source rows are read, put together and picked from; each of these has a copy of its own.
SOURCE_COPIES = 3
#: Bytes of a value whose type does not tell them.
VALUE_BYTES = 32


def held_bytes(changes: Changes, target: PinnedTable, candidates: Candidates) -> int:
    """Bytes in memory of the candidate file that takes most, with its source rows."""
    if not len(candidates.files):
        return 0
    rows = target.files.files["records"].to_numpy()[candidates.files]
    own = rows * sum(_width(field.type) for field in arrow_schema(target.table.schema()))
    return int((own + SOURCE_COPIES * _source_bytes(candidates, changes.slices)).max())


def _source_bytes(candidates: Candidates, slices: tuple[ChangeSlice, ...]) -> npt.NDArray[np.float64]:
    """Bytes of the source rows that each candidate file may hold."""
    pieces = candidates.pieces
    if pieces is None:
        return np.full(len(candidates.files), float(sum(change_slice.held for change_slice in slices)))
    widths = np.array([change_slice.held / max(change_slice.rows, 1) for change_slice in slices])
    weights = (pieces.stop - pieces.start) * widths[pieces.slices]
    at = np.searchsorted(candidates.files, pieces.files)
    return np.asarray(np.bincount(at, weights=weights, minlength=len(candidates.files)), np.float64)


def _width(kind: pa.DataType) -> int:
    try:
        return -(-int(kind.bit_width) // 8)
    except ValueError:
        return VALUE_BYTES
