"""How many entries of an index a range holds at least, by the bounds of its pages, without reading any entry.

Called by lookup, which weighs what taking so many hits costs, and by the query planner. Must not decide anything.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.indexes.asking.keypages import key_pages
from skipstone.indexes.asking.probes import entry_files
from skipstone.indexes.asking.rowgroups import read_footer
from skipstone.indexes.definition import key_name
from skipstone.indexes.found import FoundIndex
from skipstone.indexes.keytests import AllTests, Maybe, Null, Range, Test

#: Files of an index whose footers are read for this.
_MOST_FILES = 64
#: Row groups of a file that are at an end of the range, of which pages are looked at: a range has two ends.
_MOST_CUT = 2
Mask = npt.NDArray[np.bool_]


def entries_at_least(index: FoundIndex, test: Test) -> int:
    """So many entries of ``index``, or more, pass ``test``: those of row groups, and of pages, inside its range.

    0 for what is not a range of the first column, or one that something else narrows, but for nulls in other columns.
    Entries of files that are gone count too. Raises UnreadableIndexFile.
    """
    definition = index.index.definition
    ranges = _ranges(test, definition.field_ids[0])
    files = entry_files(index, test) if ranges else ()
    if not 0 < len(files) <= _MOST_FILES:
        return 0
    count = 0
    for file in files:
        footer = read_footer(index.index.table.io, file, definition)
        bounds = footer.bounds(key_name(0))
        nulls = bounds.null_count.fill_null(0).to_numpy(zero_copy_only=False)
        ends = bounds.lower, bounds.upper
        inside = _all_inside(ranges, *ends) & bounds.null_count.is_valid().to_numpy(zero_copy_only=False)
        count += int((footer.rows - nulls)[inside].sum())
        cut = np.flatnonzero(_overlapping(ranges, *ends) & ~inside)[:_MOST_CUT]
        for pages in key_pages(index.index.table.io, file, footer, cut.tolist()).values():
            within = _all_inside(ranges, pages.lower, pages.upper)
            count += int((np.diff(pages.first) - pages.nulls)[within].sum())
    return count


def _ranges(test: Test, field_id: int) -> list[Range]:
    """The ranges of a column that a test is, besides what leaves out nulls only; none for another test."""
    parts = test.parts if isinstance(test, AllTests) else (test,)
    narrowing = [
        part for part in parts if not (isinstance(part, Maybe) or (isinstance(part, Null) and not part.expected))
    ]
    ranges = [part for part in narrowing if isinstance(part, Range) and part.field_id == field_id]
    return ranges if len(ranges) == len(narrowing) else []


def _all_inside(ranges: list[Range], lower: pa.Array, upper: pa.Array) -> Mask:
    """Return a mask of the bounds that are known and within all ranges."""
    return _mask(reduce(lambda known, span: _within(known, span, lower, upper), ranges, _known(lower, upper)))


def _overlapping(ranges: list[Range], lower: pa.Array, upper: pa.Array) -> Mask:
    """Return a mask of the bounds that are known and overlap each range."""
    return _mask(reduce(lambda known, span: _within(known, span, upper, lower), ranges, _known(lower, upper)))


def _known(lower: pa.Array, upper: pa.Array) -> pa.Array:
    return pc.and_(pc.is_valid(lower), pc.is_valid(upper))


def _within(known: pa.Array, wanted: Range, least: pa.Array, most: pa.Array) -> pa.Array:
    """``known``, and ``least`` is above the lower end of a range and ``most`` below the upper one."""
    if wanted.lower is not None:
        known = pc.and_(known, (pc.greater if wanted.lower_open else pc.greater_equal)(least, wanted.lower))
    if wanted.upper is not None:
        known = pc.and_(known, (pc.less if wanted.upper_open else pc.less_equal)(most, wanted.upper))
    return known


def _mask(known: pa.Array) -> Mask:
    mask: Mask = pc.fill_null(known, fill_value=False).to_numpy(zero_copy_only=False)
    return mask
