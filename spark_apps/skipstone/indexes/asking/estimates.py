"""How many entries of an index a range holds at least, by the bounds of its row groups, without reading any entry.

Called by lookup, which weighs what taking so many hits costs, and by the query planner. Must not decide anything.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from skipstone.indexes.asking.probes import entry_files
from skipstone.indexes.asking.rowgroups import read_footer
from skipstone.indexes.definition import key_name
from skipstone.indexes.found import FoundIndex
from skipstone.indexes.keytests import AllOf, Maybe, Null, Range, Test
from skipstone.tables.filesets import ColumnBounds

#: Files of an index whose footers are read for this.
_MOST_FILES = 64
Mask = npt.NDArray[np.bool_]


def entries_at_least(index: FoundIndex, test: Test) -> int:
    """So many entries of ``index``, or more, pass ``test``: those of row groups that lie inside its range.

    0 for what is no range of the first column, or one that something else narrows, but for nulls in other columns.
    Entries of files that are gone count too. Raises UnreadableIndexFile.
    """
    definition = index.index.definition
    ranges = _ranges(test, definition.field_ids[0])
    files = entry_files(index, test) if ranges else ()
    if not 0 < len(files) <= _MOST_FILES:
        return 0
    found = 0
    for file in files:
        footer = read_footer(index.index.table.io, file, definition)
        bounds = footer.bounds(key_name(0))
        inside = np.logical_and.reduce([_inside(one, bounds) for one in ranges])
        nulls = bounds.null_count.fill_null(0).to_numpy(zero_copy_only=False)
        found += int((footer.rows - nulls)[inside].sum())
    return found


def _ranges(test: Test, field_id: int) -> list[Range]:
    """The ranges of a column that a test is, besides what leaves out nulls only; none for another test."""
    parts = test.parts if isinstance(test, AllOf) else (test,)
    narrowing = [one for one in parts if not (isinstance(one, Maybe) or (isinstance(one, Null) and not one.expected))]
    ranges = [one for one in narrowing if isinstance(one, Range) and one.field_id == field_id]
    return ranges if len(ranges) == len(narrowing) else []


def _inside(wanted: Range, bounds: ColumnBounds) -> Mask:
    """Which row groups have known bounds, and these within a range."""
    known = pc.and_(pc.is_valid(bounds.lower), pc.and_(pc.is_valid(bounds.upper), pc.is_valid(bounds.null_count)))
    if wanted.lower is not None:
        known = pc.and_(known, (pc.greater if wanted.lower_open else pc.greater_equal)(bounds.lower, wanted.lower))
    if wanted.upper is not None:
        known = pc.and_(known, (pc.less if wanted.upper_open else pc.less_equal)(bounds.upper, wanted.upper))
    found: Mask = pc.fill_null(known, fill_value=False).to_numpy(zero_copy_only=False)
    return found
