"""The types of Parquet and ORC columns: how Spark must read each, and which Iceberg types it may feed.

Called by the readers of both formats. Pure: Arrow types in, column expressions out. Nothing is lost: where a type does
not hold every value of the other, each value is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa
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
from pyspark.sql import Column
from pyspark.sql import functions as F

from skipstone.sources.text.values import Conversion, in_zone

#: What times of a day become in a column that a source adds: a column of the type time closes the table to Spark.
TIME_OF_DAY = StringType()
_Expression = Callable[[Column], Column]


def _same(raw: Column) -> Column:
    return raw


def _valid_text(raw: Column) -> Column:
    """Parquet and ORC files say that text is UTF-8; nobody checked it when they were written."""
    return F.when(F.is_valid_utf8(raw), raw)


@dataclass(frozen=True, kw_only=True)
class FileType:
    """How a file's column is read.

    ``spark``: DDL type that Spark reads it as. ``natural``: the Iceberg type it stands for. ``value``: from the read
    column to the frame's form of ``natural``, null where that would lose something.
    """

    spark: str
    natural: IcebergType
    value: _Expression = _same


def file_type(kind: pa.DataType) -> FileType | None:
    """The reading of an Arrow type; None for what is not loaded (nested types, half floats, intervals)."""
    if pa.types.is_dictionary(kind):
        return file_type(kind.value_type)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if pa.types.is_decimal(kind) and kind.precision <= 38:
        return FileType(
            spark=f"decimal({kind.precision},{kind.scale})", natural=DecimalType(kind.precision, kind.scale)
        )
    if pa.types.is_fixed_size_binary(kind):
        return FileType(spark="binary", natural=FixedType(kind.byte_width))
    if pa.types.is_timestamp(kind):
        return _timestamp(kind)
    return None


def added_type(natural: IcebergType) -> IcebergType:
    """The type of a column that is added to a table for values of the type ``natural``."""
    return TIME_OF_DAY if isinstance(natural, TimeType) else natural


def is_plain(kind: FileType | None, target: IcebergType) -> bool:
    """Whether Arrow's own cast and full validation of a column are all that it takes to feed ``target``."""
    if kind is None or kind.value not in (_same, _valid_text):
        return False
    return kind.natural == target or (type(kind.natural), type(target)) in _CAST_EXACTLY


def is_copied(found: pa.DataType, target: IcebergType) -> bool:
    """Whether ``feed`` makes ``target`` of a file's column of the Arrow type ``found``, value by value."""
    kind = file_type(found)
    if kind is None:
        return False
    natural = kind.natural
    numbers = (IntegerType, LongType, DecimalType, FloatType, DoubleType)
    if isinstance(natural, numbers):
        return _is_number_fed(natural, target)
    match natural, target:
        case (FixedType(), UUIDType()):
            return len(natural) == 16
        case (
            (TimestampType(), TimestamptzType())
            | (FixedType(), BinaryType())
            | (BinaryType(), FixedType())
            | (StringType(), UUIDType())
            | (TimeType(), LongType() | StringType())
        ):
            return True
        case _:
            return bool(natural == target)


def _is_number_fed(natural: IcebergType, target: IcebergType) -> bool:
    whole = isinstance(target, IntegerType | LongType)
    floating = isinstance(target, FloatType | DoubleType)
    match natural:
        case IntegerType() | LongType():
            return whole or floating or isinstance(target, DecimalType)
        case DecimalType():
            return whole or isinstance(target, DecimalType)
        case _:
            return whole or floating


def _timestamp(kind: pa.TimestampType) -> FileType:
    zoned = kind.tz is not None
    natural = TimestamptzType() if zoned else TimestampType()
    if kind.unit != "ns":
        return FileType(spark="timestamp" if zoned else "timestamp_ntz", natural=natural)

    def from_nanoseconds(raw: Column) -> Column:
        micros = F.call_function("div", raw, F.lit(1000))
        moment = F.when(raw % 1000 == 0, F.timestamp_micros(micros))
        return moment if zoned else moment.cast("timestamp_ntz")

    return FileType(spark="bigint", natural=natural, value=from_nanoseconds)


def feed(kind: FileType, raw: Column, target: IcebergType, time_zone: str) -> Conversion | None:
    """``raw`` as ``target``; None when the file's type cannot feed it without loss."""
    value = kind.value(raw)
    widened = _widened(kind.natural, value, target, time_zone)
    what = "valid UTF-8 text" if isinstance(target, StringType) else f"{target} without loss"
    return None if widened is None else Conversion(widened, what)


def _widened(natural: IcebergType, value: Column, target: IcebergType, time_zone: str) -> Column | None:
    if natural == target:
        return value
    match natural, target:
        case (TimestampType(), TimestamptzType()):
            return in_zone(value.cast("timestamp"), time_zone)
        case (IntegerType() | LongType() | DecimalType() | FloatType() | DoubleType(), _):
            return _number(natural, value, target)
        case (TimeType(), LongType()):
            return value
        case (TimeType(), StringType()):
            return F.date_format(F.timestamp_micros(value), _TIME_OF_DAY)
        case _:
            return _widened_bytes(natural, value, target)


def _number(natural: IcebergType, value: Column, target: IcebergType) -> Column | None:
    match natural, target:
        case (IntegerType(), LongType()):
            return value.cast("bigint")
        case (IntegerType() | FloatType(), DoubleType()):
            return value.cast("double")
        case (IntegerType() | LongType() | DecimalType(), DecimalType()):
            return _decimal(natural, value, target)
        case (LongType() | DecimalType() | FloatType() | DoubleType(), IntegerType() | LongType()):
            return _whole(natural, value, target)
        case (DoubleType(), FloatType()):
            narrow = value.cast("float")
            return F.when(F.isnan(value) | (narrow.cast("double") == value), narrow)
        case (IntegerType() | LongType(), FloatType() | DoubleType()):
            return _floating(value, target)
        case _:
            return None


def _decimal(natural: IcebergType, value: Column, target: DecimalType) -> Column:
    """In the scale and digits of ``target``; null where a value has more."""
    made = value.try_cast(f"decimal({target.precision},{target.scale})")
    back = "bigint" if isinstance(natural, LongType) else str(natural)
    return F.when(made.try_cast(back) == value, made)


def _whole(natural: IcebergType, value: Column, target: IcebergType) -> Column:
    """Whole numbers within the range of ``target``, else null."""
    whole = value.try_cast("int" if isinstance(target, IntegerType) else "bigint")
    if isinstance(natural, LongType):
        return whole
    if isinstance(natural, DecimalType):
        return F.when(whole.try_cast(str(natural)) == value, whole)
    number = value.cast("double")  # the greatest long is no double: one more would be taken for it
    return F.when((whole.cast("double") == number) & (number < _LONGS), whole)


def _floating(value: Column, target: IcebergType) -> Column:
    """Whole numbers that ``target`` holds exactly, else null."""
    number = value.cast(str(target))
    return F.when((number < _LONGS) & (number.try_cast("bigint") == value), number)


def _widened_bytes(natural: IcebergType, value: Column, target: IcebergType) -> Column | None:
    match natural, target:
        case (FixedType(), BinaryType()):
            return value
        case (BinaryType(), FixedType()):
            return F.when(F.octet_length(value) == len(target), value)
        case (FixedType(), UUIDType()) if len(natural) == 16:
            return _uuid_text(value)
        case (StringType(), UUIDType()):
            return F.when(value.rlike("^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"), F.lower(value))
        case _:
            return None


def _uuid_text(raw: Column) -> Column:
    return F.regexp_replace(F.lower(F.hex(raw)), "^(.{8})(.{4})(.{4})(.{4})(.{12})$", "$1-$2-$3-$4-$5")


def _milliseconds_of_day(raw: Column) -> Column:
    return raw.cast("bigint") * 1000


_TEXT = FileType(spark="string", natural=StringType(), value=_valid_text)
_BYTES = FileType(spark="binary", natural=BinaryType())
_PLAIN: dict[pa.DataType, FileType] = {
    pa.bool_(): FileType(spark="boolean", natural=BooleanType()),
    pa.int8(): FileType(spark="tinyint", natural=IntegerType(), value=lambda raw: raw.cast("int")),
    pa.int16(): FileType(spark="smallint", natural=IntegerType(), value=lambda raw: raw.cast("int")),
    pa.int32(): FileType(spark="int", natural=IntegerType()),
    pa.int64(): FileType(spark="bigint", natural=LongType()),
    pa.uint8(): FileType(spark="smallint", natural=IntegerType(), value=lambda raw: raw.cast("int")),
    pa.uint16(): FileType(spark="int", natural=IntegerType()),
    pa.uint32(): FileType(spark="bigint", natural=LongType()),
    pa.uint64(): FileType(spark="decimal(20,0)", natural=DecimalType(20, 0)),
    pa.float32(): FileType(spark="float", natural=FloatType()),
    pa.float64(): FileType(spark="double", natural=DoubleType()),
    pa.string(): _TEXT,
    pa.large_string(): _TEXT,
    pa.binary(): _BYTES,
    pa.large_binary(): _BYTES,
    pa.uuid(): FileType(spark="binary", natural=UUIDType(), value=_uuid_text),
    pa.date32(): FileType(spark="date", natural=DateType()),
    pa.time32("ms"): FileType(spark="int", natural=TimeType(), value=_milliseconds_of_day),
    pa.time64("us"): FileType(spark="bigint", natural=TimeType()),
}

#: Times of day as text, which sorts as they do. The session's zone is UTC.
_TIME_OF_DAY = "HH:mm:ss.SSSSSS"
#: One more than the greatest long.
_LONGS = float(1 << 63)
#: Types between which Arrow casts without loss, or refuses.
_CAST_EXACTLY = frozenset(
    {
        (IntegerType, LongType),
        (LongType, IntegerType),
        (IntegerType, DecimalType),
        (LongType, DecimalType),
        (DecimalType, DecimalType),
        (FloatType, DoubleType),
    }
)

#: ORC's timestamps have no zone and arrive as instants of UTC; before the Gregorian calendar they are ambiguous.
_GREGORIAN = "1582-10-15"


def orc_type(field: pa.Field) -> FileType | None:
    """The reading of a column of an ORC file; None also for instants, which Spark cannot read from ORC."""
    if (field.metadata or {}).get(b"spark.sql.catalyst.type") == b"timestamp_ntz":
        return FileType(spark="timestamp_ntz", natural=TimestampType())
    if pa.types.is_timestamp(field.type):
        if field.type.tz is not None:
            return None
        return FileType(
            spark="timestamp",
            natural=TimestampType(),
            value=lambda raw: F.when(raw >= F.lit(_GREGORIAN).cast("timestamp"), raw.cast("timestamp_ntz")),
        )
    found = file_type(field.type)
    if found is not None and isinstance(found.natural, DateType):
        return replace(found, value=lambda raw: F.when(raw >= F.lit(_GREGORIAN).cast("date"), raw))
    return found
