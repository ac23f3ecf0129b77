"""How many entries of an index a condition will meet, by the bounds of its row groups, without reading any entry.

Called by the query planner; whoever weighs the sides of joins asks for it. Row groups of a sorted index are a histogram
of its first column. Must not decide anything.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skipstone.indexes.asking.probes import entry_files
from skipstone.indexes.asking.rowgroups import read_footer
from skipstone.indexes.definition import key_name
from skipstone.indexes.found import FoundIndex
from skipstone.indexes.keytests import AllOf, Maybe, Null, Range, Test

#: Storage types of which a value more is a step more; of others the middle of two values is not known.
_STEPS = frozenset({"long", "date", "timestamp", "timestamptz"})
#: Files of an index whose footers are read for an estimate.
_MOST_FILES = 64
Numbers = npt.NDArray[np.float64]


def expected_rows(index: FoundIndex, test: Test) -> int | None:
    """About how many rows of the files that ``index`` covers pass ``test``; None when its entries do not tell.

    They do of a range of the first column that nothing else narrows. Values of a row group count as evenly spread.
    Raises UnreadableIndexFile.
    """
    definition = index.index.definition
    found = _range(test, definition.field_ids[0])
    if found is None or definition.key_storages[0] not in _STEPS:
        return None
    files = entry_files(index, test)
    if len(files) > _MOST_FILES:
        return None
    footers = [read_footer(index.index.table.io, file, definition) for file in files]
    bounds = [(footer.bounds(key_name(0)), footer.rows) for footer in footers]
    parts = (rows * _part(found, _numbers(known.lower), _numbers(known.upper)) for known, rows in bounds)
    return int(sum(float(part.sum()) for part in parts))


def _range(test: Test, field_id: int) -> Range | None:
    """The range of a column that a test is, besides what leaves out nulls only."""
    parts = test.parts if isinstance(test, AllOf) else (test,)
    narrowing = [
        part for part in parts if not (isinstance(part, Maybe) or (isinstance(part, Null) and not part.expected))
    ]
    ranges = [part for part in narrowing if isinstance(part, Range) and part.field_id == field_id]
    if not ranges or len(ranges) < len(narrowing):
        return None
    lower = [(one.lower, one.lower_open) for one in ranges if one.lower is not None]
    upper = [(one.upper, one.upper_open) for one in ranges if one.upper is not None]
    if len(lower) > 1 or len(upper) > 1:
        return None
    (least, above), (most, below) = (*lower, (None, False))[0], (*upper, (None, False))[0]
    return Range(field_id, least, most, above, below)


def _part(wanted: Range, lower: Numbers, upper: Numbers) -> Numbers:
    """The part of the values from ``lower`` to ``upper``, both included, that is wanted."""
    least = -np.inf if wanted.lower is None else _number(wanted.lower) + wanted.lower_open
    most = np.inf if wanted.upper is None else _number(wanted.upper) - wanted.upper_open
    common = np.minimum(upper, most) - np.maximum(lower, least) + 1
    return np.nan_to_num(np.clip(common / (upper - lower + 1), 0.0, 1.0))


def _numbers(values: pa.Array) -> Numbers:
    """Stored values as steps; NaN for null."""
    kind = pa.int32() if pa.types.is_date32(values.type) else pa.int64()
    return np.asarray(values.cast(kind).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)


def _number(value: pa.Scalar) -> float:
    return float(_numbers(pa.array([value.as_py()], value.type))[0])
