"""Which types of Parquet columns all readers of an Iceberg table take for a type of the table, with the same values.

Used by ``columns``. Narrower than what a load converts: a registered file is read as it is, by every engine. Timestamps
in milliseconds, for example, are read by Spark as microseconds. Must not read files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

_DECIMALS = ("INT32", "INT64", "FIXED_LEN_BYTE_ARRAY")
#: Time zones that Arrow notes beside instants and PyIceberg takes for UTC; None: of INT96.
_ZONES = (None, "UTC", "+00:00", "Etc/UTC", "Z")
_UUID_BYTES = 16


@dataclass(frozen=True)
class StoredType:
    """The type of a Parquet column: ``physical``, and what its ``logical`` annotation says, under ``Type`` its name.

    ``length``: bytes of a FIXED_LEN_BYTE_ARRAY. ``arrow``: what Arrow makes of it.
    """

    physical: str
    logical: Mapping[str, Any]
    length: int
    arrow: pa.DataType

    @property
    def annotation(self) -> str:
        """The name of the annotation; None as text when there is none, as Parquet says."""
        return str(self.logical["Type"])

    def __str__(self) -> str:
        """As messages show it."""
        shown = {name: value for name, value in self.logical.items() if name in _SHOWN}
        text = ", ".join(f"{_SHOWN[name]} {str(value).lower()}" for name, value in shown.items())
        annotation = "" if self.annotation == "None" else f" {self.annotation}" + (f" ({text})" if text else "")
        size = f"({self.length})" if self.physical == "FIXED_LEN_BYTE_ARRAY" else ""
        noted = "" if _is_plain(self.arrow) else f", which Arrow reads as {self.arrow}"
        return f"{self.physical}{size}{annotation}{noted}"


_SHOWN = {
    "bitWidth": "bits",
    "isSigned": "signed",
    "precision": "precision",
    "scale": "scale",
    "isAdjustedToUTC": "UTC",
    "timeUnit": "in",
}


def stored_type(column: pq.ColumnSchema, arrow: pa.DataType) -> StoredType:
    """The type of a column; ``arrow``: what Arrow makes of it."""
    logical = json.loads(column.logical_type.to_json())
    return StoredType(column.physical_type, logical, column.length, arrow)


def is_read_as(stored: StoredType, kind: IcebergType) -> bool:
    """Return whether every reader gives the values of such a column as ``kind``, a primitive type."""
    return _is_plain(stored.arrow) and _fits(stored, kind)


def _is_plain(arrow: pa.DataType) -> bool:
    """Return whether Arrow's readers take the column for what Parquet says, not for what a writer noted beside.

    PyIceberg keeps what Arrow makes of texts and bytes, and cannot put dictionaries and views beside plain ones of
    other files. It reads instants in UTC only, and decimals of one width.
    """
    if pa.types.is_timestamp(arrow):
        return bool(arrow.tz in _ZONES)
    if pa.types.is_decimal(arrow):
        return bool(pa.types.is_decimal128(arrow))
    is_extended = isinstance(arrow, pa.BaseExtensionType) and not isinstance(arrow, pa.UuidType)
    is_view = pa.types.is_string_view(arrow) or pa.types.is_binary_view(arrow)
    return not (is_extended or is_view or pa.types.is_dictionary(arrow) or pa.types.is_duration(arrow))


def _fits(stored: StoredType, kind: IcebergType) -> bool:
    match kind:
        case BooleanType():
            return stored.physical == "BOOLEAN"
        case FloatType():
            return stored.physical == "FLOAT"
        case DoubleType():
            return stored.physical in ("FLOAT", "DOUBLE")
        case IntegerType():
            return stored.physical == "INT32" and _is_signed(stored)
        case LongType():
            return stored.physical in ("INT32", "INT64") and _is_signed(stored)
        case DecimalType():
            return _is_decimal(stored, kind)
        case DateType() | TimeType() | TimestampType() | TimestamptzType():
            return _is_moment(stored, kind)
        case _:
            return _is_bytes(stored, kind)


def _is_signed(stored: StoredType) -> bool:
    return stored.annotation == "None" or (stored.annotation == "Int" and bool(stored.logical["isSigned"]))


def _is_decimal(stored: StoredType, kind: DecimalType) -> bool:
    """A decimal of equal scale and no more digits: readers do not move the point."""
    logical = stored.logical
    is_one = stored.annotation == "Decimal" and stored.physical in _DECIMALS
    return is_one and bool(logical["scale"] == kind.scale and logical["precision"] <= kind.precision)


def _is_moment(stored: StoredType, kind: IcebergType) -> bool:
    if isinstance(kind, DateType):
        return (stored.physical, stored.annotation) == ("INT32", "Date")
    is_zoned = isinstance(kind, TimestamptzType)
    if stored.physical == "INT96":
        return is_zoned
    name = "Time" if isinstance(kind, TimeType) else "Timestamp"
    if stored.annotation != name or stored.logical["timeUnit"] != "microseconds":
        return False
    return name == "Time" or bool(stored.logical["isAdjustedToUTC"]) is is_zoned


def _is_bytes(stored: StoredType, kind: IcebergType) -> bool:
    stored_as = (stored.physical, stored.annotation)
    match kind:
        case StringType():
            return stored_as == ("BYTE_ARRAY", "String")
        case BinaryType():
            return stored_as == ("BYTE_ARRAY", "None")
        case FixedType():
            return stored_as == ("FIXED_LEN_BYTE_ARRAY", "None") and stored.length == len(kind)
        case UUIDType():
            return (
                stored_as[0] == "FIXED_LEN_BYTE_ARRAY"
                and stored_as[1] in ("None", "UUID")
                and stored.length == _UUID_BYTES
            )
        case _:
            return False
