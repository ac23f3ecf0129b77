"""What the bounds of files say about a test: which files may hold a matching row.

Called by lookup (files of an index and their row groups) and by the query planner (files of the table). Whatever is
unknown may match. Must not read files: bounds come from manifests and footers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from skipstone.indexes.keys import python_keys, storage_type, stored_keys
from skipstone.indexes.keytests import AllTests, AnyTest, Maybe, NoKey, Null, Points, Range, Test
from skipstone.tables.filesets import ColumnBounds

Mask = npt.NDArray[np.bool_]


class Bounded(Protocol):
    """Files, or row groups, with bounds of their columns."""

    def __len__(self) -> int:
        """How many."""

    def bounds(self, field_id: int) -> ColumnBounds:
        """Bounds of one column, one element each; raises KeyError for a column that has none."""


@dataclass(frozen=True)
class BoundsColumn:
    """Where the bounds of a tested column are: its field id there; ``storage`` None: already in stored form."""

    field_id: int
    storage: str | None


def bounds_columns(schema: Schema) -> dict[int, BoundsColumn]:
    """The columns of a table whose bounds can be tested, by field id."""
    storages = ((field.field_id, storage_type(field.field_type)) for field in schema.fields)
    return {field_id: BoundsColumn(field_id, storage) for field_id, storage in storages if storage}


class KnownBounds:
    """Bounds in comparable form, each column worked out once."""

    def __init__(self, of: Bounded) -> None:
        """``of``: whose bounds."""
        self._of = of
        self._columns: dict[tuple[int, str | None], _Column | None] = {}

    def __len__(self) -> int:
        """How many files or row groups."""
        return len(self._of)

    def column(self, column: BoundsColumn) -> _Column | None:
        """What is known of a column; None when nothing is."""
        key = (column.field_id, column.storage)
        if key not in self._columns:
            self._columns[key] = _column(self._of, column)
        return self._columns[key]


def files_that_may_match(test: Test, files: Bounded | KnownBounds, columns: Mapping[int, BoundsColumn]) -> Mask:
    """One boolean per file (or row group); ``columns`` by the field id that the test names, others are unknown."""
    known = files if isinstance(files, KnownBounds) else KnownBounds(files)
    match test:
        case NoKey():
            return np.zeros(len(known), np.bool_)
        case Maybe():
            return np.ones(len(known), np.bool_)
        case AllTests():
            return reduce(np.logical_and, [files_that_may_match(part, known, columns) for part in test.parts])
        case AnyTest():
            return reduce(np.logical_or, [files_that_may_match(part, known, columns) for part in test.parts])
        case Points() | Range() | Null():
            found = columns.get(test.field_id)
            bounds = None if found is None else known.column(found)
            return np.ones(len(known), np.bool_) if bounds is None else _leaf_mask(test, bounds)


@dataclass(frozen=True)
class _Column:
    """One column of all files; unknown counts say that there may be nulls, and values."""

    has_null: Mask
    has_value: Mask
    lower: _Ends
    upper: _Ends


def _column(files: Bounded, column: BoundsColumn) -> _Column | None:
    try:
        bounds = files.bounds(column.field_id)
    except KeyError:
        return None
    lower, upper = (
        _comparable(one if column.storage is None else stored_keys(one, column.storage))
        for one in (bounds.lower, bounds.upper)
    )
    nulls, values = bounds.null_count, bounds.value_count
    return _Column(_true_or_unknown(pc.greater(nulls, 0)), _true_or_unknown(pc.not_equal(nulls, values)), lower, upper)


def _leaf_mask(test: Points | Range | Null, column: _Column) -> Mask:
    match test:
        case Null():
            return column.has_null if test.expected else column.has_value
        case Points():
            return column.has_value & _points_mask(test, column.lower, column.upper)
        case Range():
            return column.has_value & _range_mask(test, column.lower, column.upper)


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
        objects = python_keys(values)
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
        above = np.greater if test.lower_open else np.greater_equal
        mask[upper.known] &= above(upper.values[upper.known], _alone(test.lower))
    if test.upper is not None:
        below = np.less if test.upper_open else np.less_equal
        mask[lower.known] &= below(lower.values[lower.known], _alone(test.upper))
    return mask


def _alone(value: pa.Scalar) -> npt.NDArray[np.generic]:
    """An array of one value: NumPy cuts zeros off the end of a text or bytes that it compares as it is."""
    return _as_numpy(pa.repeat(value, 1))
