"""What the bounds of files say about a test: which files may hold a matching row.

Called by lookup (files of an index) and by the query planner (files of the table). Whatever is unknown may match.
Must not read files: bounds come from manifests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.indexes.keys import stored_keys
from skipstone.indexes.predicates import AllOf, AnyOf, Maybe, Never, Null, Points, Range, Test
from skipstone.tables.filesets import ColumnBounds, FileSet

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class BoundsColumn:
    """Where the bounds of a tested column are: field id in the FileSet; ``storage`` None: already in stored form."""

    field_id: int
    storage: str | None


def files_that_may_match(test: Test, files: FileSet, columns: Mapping[int, BoundsColumn]) -> Mask:
    """One boolean per file; ``columns`` by the field id that the test names, others are unknown."""
    match test:
        case Never():
            return np.zeros(len(files), np.bool_)
        case Maybe():
            return np.ones(len(files), np.bool_)
        case AllOf():
            return reduce(np.logical_and, [files_that_may_match(part, files, columns) for part in test.parts])
        case AnyOf():
            return reduce(np.logical_or, [files_that_may_match(part, files, columns) for part in test.parts])
        case Points() | Range() | Null():
            column = columns.get(test.field_id)
            bounds = None if column is None else _bounds(files, column.field_id)
            return np.ones(len(files), np.bool_) if bounds is None else _leaf_mask(test, bounds, column)


def _bounds(files: FileSet, field_id: int) -> ColumnBounds | None:
    try:
        return files.bounds(field_id)
    except KeyError:
        return None


def _leaf_mask(test: Points | Range | Null, bounds: ColumnBounds, column: BoundsColumn | None) -> Mask:
    nulls, values = bounds.null_count, bounds.value_count
    if isinstance(test, Null) and test.expected:
        return _true_or_unknown(pc.greater(nulls, 0))
    has_value = _true_or_unknown(pc.not_equal(nulls, values))
    if isinstance(test, Null):
        return has_value
    storage = column.storage if column else None
    lower, upper = (_comparable(one if storage is None else stored_keys(one, storage)) for one in _ends(bounds))
    return has_value & (
        _points_mask(test, lower, upper) if isinstance(test, Points) else _range_mask(test, lower, upper)
    )


def _ends(bounds: ColumnBounds) -> tuple[pa.Array, pa.Array]:
    return bounds.lower, bounds.upper


def _true_or_unknown(values: pa.Array) -> Mask:
    filled: Mask = pc.fill_null(values, pa.scalar(value=True)).to_numpy(zero_copy_only=False)
    return filled


@dataclass(frozen=True)
class _Ends:
    """One end of all files' ranges as NumPy values; ``known`` where there is one."""

    values: npt.NDArray[np.generic]
    known: Mask


def _comparable(values: pa.Array) -> _Ends:
    """Stored keys as int64 or Python objects, both of which compare as the keys do."""
    known: Mask = pc.is_valid(values).to_numpy(zero_copy_only=False)
    return _Ends(_as_numpy(values), known)


def _as_numpy(values: pa.Array) -> npt.NDArray[np.generic]:
    kind = values.type
    if pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    if pa.types.is_decimal(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind):
        objects = values.to_pylist()
        filler = next((one for one in objects if one is not None), None)
        return np.array([filler if one is None else one for one in objects] + [None], dtype=object)[:-1]
    numbers: npt.NDArray[np.generic] = pc.fill_null(values.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return numbers


def _points_mask(test: Points, lower: _Ends, upper: _Ends) -> Mask:
    points = _as_numpy(test.values)
    known = lower.known & upper.known
    mask = np.ones(len(known), np.bool_)
    first = np.searchsorted(points, lower.values[known], side="left")
    last = np.searchsorted(points, upper.values[known], side="right")
    mask[known] = first < last
    return mask


def _range_mask(test: Range, lower: _Ends, upper: _Ends) -> Mask:
    mask = np.ones(len(lower.known), np.bool_)
    if test.lower is not None:
        least = _as_numpy(pa.array([test.lower.as_py()], test.lower.type))[0]
        ends = upper.values[upper.known]
        mask[upper.known] &= (ends > least if test.lower_open else ends >= least).astype(np.bool_)
    if test.upper is not None:
        greatest = _as_numpy(pa.array([test.upper.as_py()], test.upper.type))[0]
        ends = lower.values[lower.known]
        mask[lower.known] &= (ends < greatest if test.upper_open else ends <= greatest).astype(np.bool_)
    return mask
