"""Index keys in Arrow: how a column's values are stored in an index, and literals likewise.

Build, lookup and row filters all go through here, so that a value has one form only: every NaN is one value and the
greatest, -0.0 is 0.0, integers are 64-bit, timestamps microseconds, strings order by their UTF-8 bytes.
Must not read files. No float is ever compared as a float.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from skipstone.compat.lineage.primitives import ByPrimitive
from skipstone.kernels.canonical import floats_in_order, ordered_floats
from skipstone.tables.arrow import arrow_type_of
from skipstone.tables.bounds import decode_bounds

#: Storage type of each Iceberg type that can be a key, else None; the scale follows ``decimal``, which has 38 digits.
_STORAGE: ByPrimitive[str | None] = ByPrimitive(
    boolean="boolean",
    integer="long",
    long="long",
    float="double",
    double="double",
    decimal="decimal",
    date="date",
    time="time",
    timestamp="timestamp",
    timestamptz="timestamptz",
    timestamp_ns=None,
    timestamptz_ns=None,
    string="string",
    uuid="binary",
    fixed="binary",
    binary="binary",
    opaque=None,
)
_COLUMN_TYPES: dict[str, IcebergType] = {
    "boolean": BooleanType(),
    "long": LongType(),
    "double": LongType(),
    "date": DateType(),
    "time": TimeType(),
    "timestamp": TimestampType(),
    "timestamptz": TimestamptzType(),
    "string": StringType(),
    "binary": BinaryType(),
}
_ARROW_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "long": pa.int64(),
    "double": pa.int64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}
#: With the number of digits before the scale where these are fewer.
_DECIMAL = re.compile(r"decimal\((?:(\d+),)?(\d+)\)")
_MAX_DIGITS = "38"


def storage_type(kind: IcebergType) -> str | None:
    """How keys of an Iceberg type are stored; None when the type (struct, list, map, …) cannot be a key."""
    storage = _STORAGE.find(kind)
    return f"{storage}({kind.scale})" if isinstance(kind, DecimalType) else storage


def column_type(storage: str) -> IcebergType:
    """The Iceberg type of an index table's key column."""
    decimal = _DECIMAL.fullmatch(storage)
    return DecimalType(int(decimal[1] or _MAX_DIGITS), int(decimal[2])) if decimal else _COLUMN_TYPES[storage]


def arrow_type(storage: str) -> pa.DataType:
    """The Arrow type of stored keys."""
    decimal = _DECIMAL.fullmatch(storage)
    return pa.decimal128(int(decimal[1] or _MAX_DIGITS), int(decimal[2])) if decimal else _ARROW_TYPES[storage]


def compared_storage(storage: str) -> str:
    """The storage type in which stored values compare with literals, which may have more digits."""
    decimal = _DECIMAL.fullmatch(storage)
    return f"decimal({decimal[2]})" if decimal else storage


def stored_keys(values: pa.Array | pa.ChunkedArray, storage: str) -> pa.Array | pa.ChunkedArray:
    """Bring column values into their stored form; nulls stay null. Raises pa.ArrowInvalid for values out of range."""
    if isinstance(values, pa.ChunkedArray):
        chunks = [stored_keys(chunk, storage) for chunk in values.chunks]
        return pa.chunked_array(chunks, type=arrow_type(storage))
    plain = _plain(values)
    if storage == "double":
        return ordered_floats(plain)
    return _cast(plain, arrow_type(storage))


def physical_keys(raw: Sequence[object], storage: str) -> pa.Array:
    """Physical values of a Parquet file, None among them, as stored keys. Texts need not be UTF-8, as in Spark."""
    target = arrow_type(storage)
    if pa.types.is_decimal(target):
        if any(isinstance(value, int) for value in raw):  # those of few digits are integers in Parquet
            raw = [value.to_bytes(8, "big", signed=True) if isinstance(value, int) else value for value in raw]
        return decode_bounds(pa.array(raw, pa.binary()), column_type(storage), target)
    return pa.array(raw, _plain_type(target)).view(target)


def encoded_keys(raw: Sequence[bytes | None], storage: str) -> pa.Array:
    """Values as Parquet writes a single one, None among them, as stored keys. Raises ValueError for what is none."""
    target = arrow_type(storage)
    if pa.types.is_boolean(target):
        return physical_keys([None if value is None else value != b"\0" for value in raw], storage)
    if pa.types.is_decimal(target) or pa.types.is_string(target) or pa.types.is_binary(target):
        return physical_keys(raw, storage)
    if any(value is not None and 8 * len(value) != target.bit_width for value in raw):
        raise ValueError(f"a {storage} has {target.bit_width} bits")
    return physical_keys(
        [None if value is None else int.from_bytes(value, "little", signed=True) for value in raw], storage
    )


def python_keys(stored: pa.Array) -> list[object]:
    """Stored keys as Python holds and orders them, whatever they are: texts as bytes, dates and times as numbers."""
    keys: list[object] = stored.view(_plain_type(stored.type)).to_pylist()
    return keys


def stored_key(value: object, stored_type: pa.DataType) -> pa.Scalar:
    """One of ``python_keys`` as it is stored."""
    return pa.array([value], _plain_type(stored_type)).view(stored_type)[0]


def _plain_type(stored_type: pa.DataType) -> pa.DataType:
    """The type of the same bits whose values Python has all of."""
    if pa.types.is_temporal(stored_type):
        return pa.int32() if stored_type.bit_width == 32 else pa.int64()
    return pa.binary() if pa.types.is_string(stored_type) else stored_type


def _plain(values: pa.Array) -> pa.Array:
    if isinstance(values, pa.ExtensionArray):
        return values.storage
    return values.dictionary_decode() if isinstance(values, pa.DictionaryArray) else values


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else pc.cast(values, kind)


def is_exact(kind: IcebergType) -> bool:
    """Return whether a stored key tells its value: keys of floats do not, as all zeros, and all NaNs, are one key."""
    return storage_type(kind) not in (None, "double")


def column_values(stored: pa.Array, kind: IcebergType) -> pa.Array:
    """Stored keys of a column of ``kind`` as its values; floats come back equal, not always bit by bit."""
    values = floats_in_order(stored) if storage_type(kind) == "double" else stored
    return _cast(values, arrow_type_of(kind))


def stored_literals(values: list[object], kind: IcebergType) -> pa.Array:
    """Literals of a predicate (Python values of the column's Iceberg type) in the stored form of that column."""
    storage = storage_type(kind)
    if storage is None:
        raise TypeError(f"no keys of type {kind}")
    if isinstance(kind, UUIDType):
        values = [value if isinstance(value, bytes) else value.bytes for value in values]  # type: ignore[attr-defined]
    literal_type = pa.float64() if storage == "double" else arrow_type(storage)
    return stored_keys(pa.array(values, type=literal_type), storage)
