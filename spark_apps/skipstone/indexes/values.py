"""Included values in Arrow: how a column's values are stored beside the keys of an index, and read back.

Builds store them, answers read them. Unlike a key, a stored value says exactly which value it was: floats keep NaN and
the sign of zero. Types are as wide as those of keys, so that a widened column keeps its index, except that a decimal of
up to 18 digits is a 64-bit integer: of a wider one Spark makes an object for each value. Must not read files.
"""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.types import DecimalType, DoubleType, IcebergType

from skipstone.indexes.keys import arrow_type, column_type, column_values, storage_type, stored_keys
from skipstone.tables.arrow import arrow_type_of

#: The storage type that differs between keys, which are numbers in order, and values.
_FLOATS = "double"
#: Digits of a decimal that is a 64-bit integer.
_LONG_DIGITS = 18


def value_storage_type(kind: IcebergType) -> str | None:
    """How included values of an Iceberg type are stored; None when the type cannot be included."""
    if isinstance(kind, DecimalType) and kind.precision <= _LONG_DIGITS:
        return f"decimal({_LONG_DIGITS},{kind.scale})"
    return storage_type(kind)


def value_column_type(storage: str) -> IcebergType:
    """The Iceberg type of an index table's column of included values."""
    return DoubleType() if storage == _FLOATS else column_type(storage)


def value_arrow_type(storage: str) -> pa.DataType:
    """The Arrow type of stored values."""
    return pa.float64() if storage == _FLOATS else arrow_type(storage)


def stored_values(values: pa.Array, storage: str) -> pa.Array:
    """Bring column values into their stored form; nulls stay null."""
    return values.cast(pa.float64()) if storage == _FLOATS else stored_keys(values, storage)


def included_values(stored: pa.Array, kind: IcebergType) -> pa.Array:
    """Stored values of a column of ``kind`` as its values, bit by bit."""
    wanted = arrow_type_of(kind)
    return stored.cast(wanted) if pa.types.is_floating(wanted) else column_values(stored, kind)
