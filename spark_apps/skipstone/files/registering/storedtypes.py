"""Which types of Parquet columns all readers of an Iceberg table take for a type of the table, with the same values.

Used by ``columns``. Narrower than what a load converts: a registered file is read as it is, by every engine. Timestamps
in milliseconds, for example, are read by Spark as microseconds. Must not read files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.types import DecimalType, FixedType, IcebergType

from skipstone.compat.lineage.primitives import ByPrimitive

_DECIMALS = ("INT32", "INT64", "FIXED_LEN_BYTE_ARRAY")
#: Time zones that Arrow notes beside instants and PyIceberg takes for UTC; None: of INT96.
_ZONES = (None, "UTC", "+00:00", "Etc/UTC", "Z")
_UUID_BYTES = 16
_Fits = Callable[["StoredType", IcebergType], bool]


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
    fits = _FITS.find(kind)
    return fits is not None and _is_plain(stored.arrow) and fits(stored, kind)


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


def _is_signed(stored: StoredType) -> bool:
    return stored.annotation == "None" or (stored.annotation == "Int" and bool(stored.logical["isSigned"]))


def _is_decimal(stored: StoredType, kind: IcebergType) -> bool:
    """A decimal of equal scale and no more digits: readers do not move the point."""
    column, logical = cast(DecimalType, kind), stored.logical
    is_one = stored.annotation == "Decimal" and stored.physical in _DECIMALS
    return is_one and bool(logical["scale"] == column.scale and logical["precision"] <= column.precision)


def _is_timestamp(stored: StoredType, *, is_zoned: bool) -> bool:
    if stored.physical == "INT96":
        return is_zoned
    return _is_micros(stored, "Timestamp") and bool(stored.logical["isAdjustedToUTC"]) is is_zoned


def _is_micros(stored: StoredType, name: str) -> bool:
    return stored.annotation == name and bool(stored.logical["timeUnit"] == "microseconds")


def _is_annotated(physical: str, *annotations: str) -> _Fits:
    return lambda stored, _kind: stored.physical == physical and stored.annotation in annotations


def _is_of_length(stored: StoredType, length: int, *annotations: str) -> bool:
    is_fixed = stored.physical == "FIXED_LEN_BYTE_ARRAY" and stored.annotation in ("None", *annotations)
    return is_fixed and stored.length == length


#: Judges whether all readers give the values of a column as those of a type; None for types that are not registered.
_FITS: ByPrimitive[_Fits | None] = ByPrimitive(
    boolean=lambda stored, _kind: stored.physical == "BOOLEAN",
    integer=lambda stored, _kind: stored.physical == "INT32" and _is_signed(stored),
    long=lambda stored, _kind: stored.physical in ("INT32", "INT64") and _is_signed(stored),
    float=lambda stored, _kind: stored.physical == "FLOAT",
    double=lambda stored, _kind: stored.physical in ("FLOAT", "DOUBLE"),
    decimal=_is_decimal,
    date=_is_annotated("INT32", "Date"),
    time=lambda stored, _kind: _is_micros(stored, "Time"),
    timestamp=lambda stored, _kind: _is_timestamp(stored, is_zoned=False),
    timestamptz=lambda stored, _kind: _is_timestamp(stored, is_zoned=True),
    timestamp_ns=None,
    timestamptz_ns=None,
    string=_is_annotated("BYTE_ARRAY", "String"),
    uuid=lambda stored, _kind: _is_of_length(stored, _UUID_BYTES, "UUID"),
    fixed=lambda stored, kind: _is_of_length(stored, len(cast(FixedType, kind))),
    binary=_is_annotated("BYTE_ARRAY", "None"),
    opaque=None,
)
