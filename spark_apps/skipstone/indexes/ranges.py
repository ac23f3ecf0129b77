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
from propcache.api import cached_property
from pyiceberg.schema import Schema

from skipstone.indexes.keys import python_keys, storage_type, stored_keys
from skipstone.indexes.keytests import AllTests, AnyTest, Maybe, NoKey, Null, Points, Range, Test
from skipstone.tables.filesets import ColumnBounds

Mask = npt.NDArray[np.bool_]
#: So many texts are compared with all bounds one by one; more are searched for each bound.
_FEW_POINTS = 16


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
        """Return the known ends of a column; None when none is known."""
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
            column = columns.get(test.field_id)
            bounds = None if column is None else known.column(column)
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
        _Ends(bound if column.storage is None else stored_keys(bound, column.storage))
        for bound in (bounds.lower, bounds.upper)
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


class _Ends:
    """One end of all files' ranges, stored keys; ``known`` where there is one.

    ``texts``: the keys as bytes where these compare as the keys do, else None. ``values``: the keys for NumPy.
    """

    def __init__(self, stored: pa.Array) -> None:
        self.known: Mask = pc.is_valid(stored).to_numpy(zero_copy_only=False)
        self.texts = _as_texts(stored)
        self._stored = stored

    @cached_property
    def values(self) -> npt.NDArray[np.generic]:
        """Int64 or Python objects, both of which compare as the keys do; any where nothing is known."""
        return _as_numpy(self._stored)

    def compare(self, operator: str, key: pa.Scalar) -> Mask:
        """Which ends compare so with ``key``, unknown ones included."""
        keys = pa.repeat(key, 1)
        if self.texts is not None:
            passes = _ARROW[operator](self.texts, keys.view(pa.binary())[0])
            return np.asarray(pc.fill_null(passes, pa.scalar(value=True)).to_numpy(zero_copy_only=False), np.bool_)
        mask = np.ones(len(self.known), np.bool_)
        mask[self.known] = _NUMPY[operator](self.values[self.known], _as_numpy(keys)).astype(np.bool_)
        return mask


_ARROW = {"<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}
_NUMPY = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


def _as_texts(values: pa.Array) -> pa.Array | None:
    """Stored keys as bytes that compare as the keys do; None where they are not."""
    is_text = pa.types.is_string(values.type) or pa.types.is_binary(values.type)
    return values.view(pa.binary()) if is_text else None


def _as_numpy(values: pa.Array) -> npt.NDArray[np.generic]:
    kind = values.type
    if pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    if pa.types.is_decimal(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind):
        objects = python_keys(values)
        filler = next((item for item in objects if item is not None), None)
        return np.array([filler if item is None else item for item in objects] + [None], dtype=object)[:-1]
    numbers: npt.NDArray[np.generic] = pc.fill_null(values.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return numbers


def _points_mask(test: Points, lower: _Ends, upper: _Ends) -> Mask:
    if lower.texts is not None and len(test.values) <= _FEW_POINTS:
        ranges = (lower.compare("<=", point) & upper.compare(">=", point) for point in test.values)
        return reduce(np.logical_or, ranges) | ~(lower.known & upper.known)
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
        mask &= upper.compare(">" if test.lower_open else ">=", test.lower)
    if test.upper is not None:
        mask &= lower.compare("<" if test.upper_open else "<=", test.upper)
    return mask
