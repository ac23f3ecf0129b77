"""Settings of Debezium and its converters, what users declare for each, and which values each is known to change.

Used by the soak of Debezium. A value that differs from the database's is a fault unless it is here: see "Values that
tools change" in docs/guide/feeds.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    ListType,
    StringType,
    TimestampType,
    TimestamptzType,
)
from skipstone_core.contract.feeds import Infinity, TimePrecision
from skipstone_core.contract.requests import ChangeFormat, SourceFormat

from tests.spark.debezium import FLAT_FIELDS, Engine
from tests.spark.debezium_odd import TABLE as ODD_TABLE
from tests.spark.postgres_columns import Column
from tests.spark.postgres_tables import BY_KEY, PARTS, SHAPES

#: Tables that a flat feed has: the transform leaves truncates out.
_FLAT_TABLES = (ODD_TABLE, *(shape.name for shape in SHAPES if not shape.is_truncated))
_TABLES = (ODD_TABLE, *(shape.name for shape in SHAPES))
_ALL = {
    "heartbeat.interval.ms": "500",
    "provide.transaction.metadata": "true",
    # A machine with other work takes long to start it.
    "task.management.timeout.ms": "900000",
}
_NULLS = {"converter.replace.null.with.default": "false"}
_UNWRAP = {
    "transforms": "unwrap",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms.unwrap.replace.null.with.default": "false",
    "transforms.unwrap.delete.tombstone.handling.mode": "rewrite",
    "transforms.unwrap.add.fields": FLAT_FIELDS,
}
#: The first and the last moment that nanoseconds of 64 bits tell.
_NANOS = tuple(datetime.fromtimestamp(seconds, UTC) for seconds in (-9223372036, 9223372036))


@dataclass(frozen=True)
class Setting:
    """One engine, in words ``about``. ``unit``: ``source.timePrecision``; ``decimals``, ``times``, ``bytes``: modes.

    ``is_flat``: through ExtractNewRecordState; ``has_schemas``: messages carry them; ``fills``: null becomes a default.
    """

    engine: Engine
    about: str
    is_flat: bool = False
    has_schemas: bool = True
    fills: bool = False
    decimals: str = "precise"
    times: str = "adaptive"
    bytes: str = "bytes"
    unit: TimePrecision | None = None

    @property
    def name(self) -> str:
        """That of its engine."""
        return self.engine.name

    @property
    def format(self) -> SourceFormat:
        """Of its files."""
        return SourceFormat(self.engine.format)

    @property
    def change_format(self) -> ChangeFormat:
        """Of its messages."""
        return ChangeFormat.DEBEZIUM_FLAT if self.is_flat else ChangeFormat.DEBEZIUM

    def declared(self, column: Column) -> IcebergType:
        """The type of the table's column for ``column``."""
        return column.kind if column.is_bits else self._declared(column.kind)

    def _declared(self, kind: IcebergType) -> IcebergType:
        if isinstance(kind, ListType):
            return ListType(kind.element_id, self._declared(kind.element_type), element_required=False)
        if isinstance(kind, DecimalType) and self.decimals == "double":
            return DoubleType()
        if isinstance(kind, BinaryType) and self.bytes == "hex":
            return StringType()
        return kind


def _setting(name: str, about: str, **fields: Any) -> Setting:
    modes = {
        "decimal.handling.mode": fields.get("decimals", "precise"),
        "time.precision.mode": fields.get("times", "adaptive"),
        "binary.handling.mode": fields.get("bytes", "bytes"),
        "converter.schemas.enable": str(fields.get("has_schemas", True)).lower(),
    }
    is_flat, is_avro = fields.get("is_flat", False), fields.pop("is_avro", False)
    nulls = {} if fields.get("fills", False) else _NULLS
    via_root = fields.pop("via_root", True)
    tables = _FLAT_TABLES if is_flat else _TABLES
    if not via_root:
        tables = (*(table for table in tables if table != PARTS.name), *PARTS.partitions)
    roots = {"publish.via.partition.root": str(via_root).lower()}
    settings = {**_ALL, **modes, **nulls, **(_UNWRAP if is_flat else {}), **roots}
    engine = Engine(name, tables, settings, lines=200, format="Avro" if is_avro else "Json", beside=BY_KEY.name)
    return Setting(engine, about, **fields)


SCHEMAS = _setting("schemas", "Json with schemas")
PLAIN = _setting(
    "plain", "Json, `decimal.handling.mode=string`, `time.precision.mode=microseconds`, partitions as tables",
    has_schemas=False, decimals="string", times="microseconds", unit=TimePrecision.MICROS, via_root=False,
)  # fmt: skip
FLAT = _setting(
    "flat", "flat Json with schemas, `decimal.handling.mode=string`, `isostring`, `base64-url-safe`",
    is_flat=True, decimals="string", times="isostring", bytes="base64-url-safe",
)  # fmt: skip
FILLED = _setting(
    "filled", "Json with schemas, nulls replaced by defaults, `decimal.handling.mode=double`, `base64`",
    fills=True, decimals="double", times="adaptive_time_microseconds", bytes="base64",
)  # fmt: skip
FLAT_PLAIN = _setting(
    "flatplain", "flat Json, `decimal.handling.mode=string`, `time.precision.mode=nanoseconds`, `hex`",
    is_flat=True, has_schemas=False, decimals="string", times="nanoseconds", bytes="hex", unit=TimePrecision.NANOS,
)  # fmt: skip
AVRO = _setting("avro", "Avro of Apicurio's converter, which replaces nulls by defaults", fills=True, is_avro=True)
SETTINGS = (SCHEMAS, PLAIN, FLAT, FILLED, FLAT_PLAIN, AVRO)


def wanted(column: Column, value: Any, setting: Setting, infinity: Infinity | None) -> Any:
    """``value``, as PostgreSQL shows it, in the type that ``setting`` declares. ``infinity``: ``source.infinity``.

    NaN and infinities of ``numeric`` are null, which ``source.nonFinite`` says where they are not null before.
    """
    parsed = _parsed(column, value, infinity)
    return parsed if column.is_bits else _converted(parsed, setting)


def _parsed(column: Column, value: Any, infinity: Infinity | None) -> Any:
    if not isinstance(value, str) or column.shown != "{}::text":
        return value
    match column.kind:
        case DecimalType():
            return Decimal(value)
        case DateType() | TimestampType() | TimestamptzType() if "infinity" in value:
            return _bound(column.kind, value, infinity)
        case DateType():
            return date.fromisoformat(value)
        case TimestampType() | TimestamptzType():
            return datetime.fromisoformat(value)
        case _ if column.sql == "bit(1)":
            return value == "1"
        case BinaryType():
            return _little_endian(value)
    return value


def _bound(kind: IcebergType, value: str, infinity: Infinity | None) -> Any:
    if infinity is not Infinity.MAX:
        return None
    if isinstance(kind, DateType):
        return date.min if value.startswith("-") else date.max
    least = datetime(1, 1, 1, tzinfo=UTC)
    bound = least if value.startswith("-") else datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)
    return bound if isinstance(kind, TimestamptzType) else bound.replace(tzinfo=None)


def _little_endian(bits: str) -> bytes:
    """Bytes as Debezium writes them: the last bit is the first of the first byte, without zeros at the end."""
    return int(bits, 2).to_bytes((len(bits) + 7) // 8, "little").rstrip(b"\0")


def _converted(value: Any, setting: Setting) -> Any:
    match value:
        case list():
            return [_converted(item, setting) for item in value]
        case Decimal() if setting.decimals == "double":
            return float(value)
        case Decimal() if not value.is_finite():
            return None
        case bytes() if setting.bytes == "hex":
            return value.hex()
    return value


@dataclass(frozen=True)
class Known:
    """A change of values that ``what`` names. ``made``: yields what becomes of a value that is changed."""

    what: str
    made: Callable[[Column, Any, Setting], Iterator[Any]]
    is_of_snapshots: bool = False


def changed(column: Column, value: Any, setting: Setting, *, is_initial: bool) -> Iterator[tuple[str, Any]]:
    """What may be there instead of ``value``, with the name of the change. ``is_initial``: only a snapshot told it."""
    for known in _KNOWN:
        if is_initial or not known.is_of_snapshots:
            for made in known.made(column, value, setting):
                yield known.what, _converted(made, setting)


def _default(column: Column, value: Any, setting: Setting) -> Iterator[Any]:
    if value is None and column.default and setting.fills:
        yield column.filled


def _nanoseconds(column: Column, value: Any, setting: Setting) -> Iterator[Any]:
    moment = _parsed(column, value, Infinity.MAX)
    is_told = not isinstance(moment, datetime) or _NANOS[0] <= moment.replace(tzinfo=UTC) <= _NANOS[1]
    if setting.times == "nanoseconds" and not is_told:
        yield None


def _shifted(column: Column, value: Any, setting: Setting) -> Iterator[Any]:
    parsed = _parsed(column, value, Infinity.MAX)
    if _gregorian(parsed) != parsed:
        yield _gregorian(parsed)


def _gregorian(value: Any) -> Any:
    """Ten days later for a date that calendars leave out that change from Julian to Gregorian dates."""
    is_left_out = type(value) is date and date(1582, 10, 5) <= value <= date(1582, 10, 14)
    return value + timedelta(days=10) if is_left_out else value


def _unlogged(column: Column, value: Any, setting: Setting) -> Iterator[Any]:
    """Null where Debezium has no placeholder for a large value that an update left as it was."""
    is_apart = column.sql == "bytea" and column.large and value is not None and len(value) > _PAGE
    if is_apart and setting.bytes.startswith("base64"):
        yield None


def _arrays(column: Column, value: Any, setting: Setting) -> Iterator[Any]:
    if not isinstance(value, list):
        return
    if any(_gregorian(item) != item for item in value):
        yield list(map(_gregorian, value))
    if value and isinstance(value[0], list):
        yield [None] * len(value)
    if column.sql == "mood[]" and None in value:
        yield None
    if any(isinstance(item, Decimal) and not item.is_finite() for item in value):
        yield None


#: Larger values are stored apart from their row, and are logged when they change.
_PAGE = 1900
_KNOWN = (
    Known("unchanged large bytea, base64", _unlogged),
    Known("null in a column with DEFAULT", _default),
    Known("timestamp outside 1677 to 2262, nanoseconds", _nanoseconds),
    Known("date from 1582-10-05 to 1582-10-14, snapshot", _shifted, is_of_snapshots=True),
    Known("arrays", _arrays),
)
