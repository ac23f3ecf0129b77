"""The types of Parquet and ORC columns: how Spark must read each, and which Iceberg types it may feed.

Called by the readers of both formats. Pure: Arrow types in, column expressions out. Nothing is lost: where a type does
not hold every value of the other, each value is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import MAXYEAR, MINYEAR
from typing import cast

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
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyspark.sql import Column
from pyspark.sql import functions as F

from skipstone.compat.lineage.opaque import UNKNOWN
from skipstone.compat.lineage.primitives import ByPrimitive
from skipstone.sources.text.values import Conversion, in_zone

#: What times of a day become in a column that a source adds: a column of the type time closes the table to Spark.
TIME_OF_DAY = StringType()
_Expression = Callable[[Column], Column]
_UUID_BYTES = 16


def _same(raw: Column) -> Column:
    return raw


def _valid_text(raw: Column) -> Column:
    """Parquet and ORC files say that text is UTF-8; nobody checked it when they were written."""
    return F.when(F.is_valid_utf8(raw), raw)


def _in_known_years(raw: Column) -> Column:
    """Null for a year before 1 or after 9999."""
    return F.when(F.year(raw).between(MINYEAR, MAXYEAR), raw)


@dataclass(frozen=True, kw_only=True)
class FileType:
    """How a file's column is read.

    ``spark``: DDL type that Spark reads it as. ``natural``: the Iceberg type it stands for. ``value``: from the read
    column to the frame's form of ``natural``, null where that would lose something. ``inside``: what is within its
    values: the element, the key and the value, or the fields by name; None for what cannot be loaded.
    """

    spark: str
    natural: IcebergType
    value: _Expression = _same
    inside: tuple[tuple[str, FileType | None], ...] = ()


def file_type(kind: pa.DataType) -> FileType | None:
    """The reading of an Arrow type, which Parquet files may name in their own words: as Parquet says.

    None for what is not loaded (half floats, intervals).
    """
    kind = _in_parquet(kind)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if pa.types.is_nested(kind):
        return nested_type(pa.field("", kind), lambda inner: file_type(inner.type))
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


def _in_parquet(kind: pa.DataType) -> pa.DataType:
    """What Parquet has of a type for which it has no name."""
    if kind in _PLAIN:
        return kind
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _in_parquet(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _in_parquet(kind.storage_type)
    return pa.int64() if pa.types.is_duration(kind) else kind


def nested_type(field: pa.Field, leaf: Callable[[pa.Field], FileType | None]) -> FileType | None:
    """The reading of a list, map or struct, by what ``leaf`` says of other types; None if no part can be loaded."""
    kind = field.type
    if not pa.types.is_nested(kind):
        return leaf(field)
    if pa.types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        types = {part.name: nested_type(part, leaf) for part in fields}
        return struct_type(types) if len(types) == len(fields) else None
    if pa.types.is_map(kind):
        return map_type(nested_type(kind.key_field, leaf), nested_type(kind.item_field, leaf))
    is_list = any(test(kind) for test in _LISTS)
    return list_type(nested_type(kind.value_field, leaf)) if is_list else None


def list_type(element: FileType | None) -> FileType | None:
    """The reading of a list of such elements."""
    if element is None:
        return None
    natural = ListType(element_id=1, element_type=element.natural, element_required=False)
    return FileType(spark=f"array<{element.spark}>", natural=natural, inside=(("element", element),))


def map_type(key: FileType | None, value: FileType | None) -> FileType | None:
    """The reading of a map."""
    if key is None or value is None:
        return None
    natural = MapType(key_id=1, key_type=key.natural, value_id=2, value_type=value.natural, value_required=False)
    return FileType(spark=f"map<{key.spark}, {value.spark}>", natural=natural, inside=(("key", key), ("value", value)))


def struct_type(fields: Mapping[str, FileType | None]) -> FileType | None:
    """The reading of a struct: of the fields that can be loaded."""
    loaded = {name: reading for name, reading in fields.items() if reading is not None}
    if not loaded:
        return None
    natural = StructType(
        *(NestedField(at, name, reading.natural) for at, (name, reading) in enumerate(loaded.items(), 1))
    )
    ddl = ", ".join(f"{_quoted(name)}: {reading.spark}" for name, reading in loaded.items())
    return FileType(spark=f"struct<{ddl}>", natural=natural, inside=tuple(fields.items()))


def spark_type(kind: IcebergType) -> str:
    """The Spark type in which a frame holds ``kind``: uuid is string and time is bigint."""
    match kind:
        case ListType():
            return f"array<{spark_type(kind.element_type)}>"
        case MapType():
            return f"map<{spark_type(kind.key_type)}, {spark_type(kind.value_type)}>"
        case StructType():
            return (
                f"struct<{', '.join(f'{_quoted(part.name)}: {spark_type(part.field_type)}' for part in kind.fields)}>"
            )
        case _ if str(kind) == UNKNOWN:
            return "string"
        case _:
            return _IN_FRAMES.find(kind) or str(kind)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def is_unchanged(kind: FileType, target: IcebergType) -> bool:
    """Return whether a value that fits is ``target`` as it is read."""
    return kind.natural == target and kind.value in (_same, _valid_text)


def is_plain(kind: FileType | None, target: IcebergType) -> bool:
    """Return whether Arrow's own cast and full validation of a column are all that it takes to feed ``target``."""
    if kind is None or kind.value not in (_same, _valid_text, _in_known_years):
        return False
    return kind.natural == target or (type(kind.natural), type(target)) in _CAST_EXACTLY


def is_copied(stored: pa.DataType, target: IcebergType) -> bool:
    """Return whether ``feed`` makes ``target`` of a file's column of Arrow type ``stored``, value by value."""
    kind = file_type(stored)
    return kind is not None and _find_recast(kind.natural, target) is not None


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
    recast = _find_recast(kind.natural, target)
    if recast is None:
        return None
    what = "valid UTF-8 text" if isinstance(target, StringType) else f"{target} without loss"
    return Conversion(recast(kind.value(raw), _Pair(kind.natural, target, time_zone)), what)


@dataclass(frozen=True)
class _Pair:
    """Values of type ``natural`` become ``target``; moments without a zone are of ``time_zone``."""

    natural: IcebergType
    target: IcebergType
    time_zone: str


_Recast = Callable[[Column, _Pair], Column]


def _find_recast(natural: IcebergType, target: IcebergType) -> _Recast | None:
    """How values of one type become those of another, without loss or null; None where they do not."""
    if natural == target:
        return _unchanged
    if isinstance(natural, FixedType) and isinstance(target, UUIDType) and len(natural) != _UUID_BYTES:
        return None
    return (_RECASTS.find(natural) or {}).get(type(target))


def _unchanged(value: Column, _pair: _Pair) -> Column:
    return value


def _instant(wall_clock: Column, pair: _Pair) -> Column:
    """As ``in_zone``; null for the first and the last two days of all, of which some would leave what a long holds."""
    instant = wall_clock.cast("timestamp")
    if pair.time_zone == "UTC":
        return instant
    micros = F.unix_micros(instant)
    return F.when(micros.between(-_MOST_SHIFTED, _MOST_SHIFTED), in_zone(instant, pair.time_zone))


def _decimal(value: Column, pair: _Pair) -> Column:
    """In the scale and digits of a decimal; null where a value has more."""
    target = cast(DecimalType, pair.target)
    made = value.try_cast(f"decimal({target.precision},{target.scale})")
    back = "bigint" if isinstance(pair.natural, LongType) else str(pair.natural)
    return F.when(made.try_cast(back) == value, made)


def _whole(value: Column, pair: _Pair) -> Column:
    """Whole numbers within the range of the target, else null."""
    whole = value.try_cast("int" if isinstance(pair.target, IntegerType) else "bigint")
    if isinstance(pair.natural, LongType):
        return whole
    if isinstance(pair.natural, DecimalType):
        return F.when(whole.try_cast(str(pair.natural)) == value, whole)
    number = value.cast("double")  # the greatest long is no double: one more would be taken for it
    return F.when((whole.cast("double") == number) & (number < _LONGS), whole)


def _floating(value: Column, pair: _Pair) -> Column:
    """Whole numbers that the target holds exactly, else null."""
    number = value.cast(str(pair.target))
    return F.when((number < _LONGS) & (number.try_cast("bigint") == value), number)


def _double(value: Column, _pair: _Pair) -> Column:
    return value.cast("double")


def _narrowed(value: Column, _pair: _Pair) -> Column:
    """Doubles that are floats, else null."""
    narrow = value.cast("float")
    return F.when(F.isnan(value) | (narrow.cast("double") == value), narrow)


def _of_length(value: Column, pair: _Pair) -> Column:
    return F.when(F.octet_length(value) == len(cast(FixedType, pair.target)), value)


def _uuid(text: Column, _pair: _Pair) -> Column:
    return F.when(text.rlike("^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"), F.lower(text))


def _uuid_text(raw: Column) -> Column:
    return F.regexp_replace(F.lower(F.hex(raw)), "^(.{8})(.{4})(.{4})(.{4})(.{12})$", "$1-$2-$3-$4-$5")


def _milliseconds_of_day(raw: Column) -> Column:
    return raw.cast("bigint") * 1000


#: INT96 holds days that are beyond all timestamps, which readers make other timestamps of without a word.
INT96 = FileType(spark="timestamp", natural=TimestamptzType(), value=_in_known_years)
_LISTS = (
    pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view,
    pa.types.is_large_list_view,
)  # fmt: skip
#: The Spark types of frames; None: of the same name as the Iceberg type.
_IN_FRAMES: ByPrimitive[str | None] = ByPrimitive(
    boolean=None,
    integer="int",
    long="bigint",
    float=None,
    double=None,
    decimal=None,
    date=None,
    time="bigint",
    timestamp="timestamp_ntz",
    timestamptz="timestamp",
    timestamp_ns=None,
    timestamptz_ns=None,
    string=None,
    uuid="string",
    fixed="binary",
    binary=None,
    opaque=None,
)
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
    pa.string_view(): _TEXT,
    pa.binary(): _BYTES,
    pa.large_binary(): _BYTES,
    pa.binary_view(): _BYTES,
    pa.uuid(): FileType(spark="binary", natural=UUIDType(), value=_uuid_text),
    pa.date32(): FileType(spark="date", natural=DateType()),
    pa.time32("ms"): FileType(spark="int", natural=TimeType(), value=_milliseconds_of_day),
    pa.time64("us"): FileType(spark="bigint", natural=TimeType()),
}

#: Times of day as text, which sorts as they do. The session's zone is UTC.
_TIME_OF_DAY = "HH:mm:ss.SSSSSS"
#: One more than the greatest long.
_LONGS = float(1 << 63)
#: Microseconds from 1970 that are a long in every zone.
_MOST_SHIFTED = (1 << 63) - 2 * 86_400_000_000
#: How values of a type become those of the other types that hold them, besides its own.
_RECASTS: ByPrimitive[Mapping[type[IcebergType], _Recast]] = ByPrimitive(
    boolean={},
    integer={
        LongType: lambda value, _pair: value.cast("bigint"),
        FloatType: _floating,
        DoubleType: _double,
        DecimalType: _decimal,
    },
    long={IntegerType: _whole, FloatType: _floating, DoubleType: _floating, DecimalType: _decimal},
    float={IntegerType: _whole, LongType: _whole, DoubleType: _double},
    double={IntegerType: _whole, LongType: _whole, FloatType: _narrowed},
    decimal={IntegerType: _whole, LongType: _whole, DecimalType: _decimal},
    date={},
    time={
        LongType: _unchanged,
        StringType: lambda value, _pair: F.date_format(F.timestamp_micros(value), _TIME_OF_DAY),
    },
    timestamp={TimestamptzType: _instant},
    timestamptz={},
    timestamp_ns={},
    timestamptz_ns={},
    string={UUIDType: _uuid},
    uuid={},
    fixed={BinaryType: _unchanged, UUIDType: lambda value, _pair: _uuid_text(value)},
    binary={FixedType: _of_length},
    opaque={},
)
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
    reading = nested_type(field, orc_type) if pa.types.is_nested(field.type) else file_type(field.type)
    if reading is not None and isinstance(reading.natural, DateType):
        return replace(reading, value=lambda raw: F.when(raw >= F.lit(_GREGORIAN).cast("date"), raw))
    return reading
