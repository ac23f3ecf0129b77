"""Columns of a feed that the table does not have: who has a value, and of which type they would be.

Called by ``batches`` for each change, and by the merge run to add up what changes said. A type is told by the schema of
messages, without one by the values; a column of which neither tells one type is never added, only named.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)
from skipstone_core.merging.feeds import UPSERT

from skipstone.sources.feeds.kafka.connect import DECIMAL
from skipstone.sources.feeds.shapes import Change, FeedTarget, Raw, Semantic, Semantics, ValueStyle
from skipstone.sources.feeds.values import postgres
from skipstone.sources.typed.filetypes import TIME_OF_DAY, added_type, file_type

#: A column of batches: JSON of what a change has beside the table's columns, with the type of each value (null where it
#: is null, empty where nothing tells one); null where it has nothing.
UNKNOWN_COLUMN = "_skipstone_unknown"
_UNTOLD = ""
_MAX_DIGITS = 38
_LONGS = range(-(1 << 63), 1 << 63)
_BASES: Mapping[str, IcebergType] = {
    "boolean": BooleanType(),
    "int8": IntegerType(),
    "int16": IntegerType(),
    "int32": IntegerType(),
    "int64": LongType(),
    **dict.fromkeys(("float", "float32"), FloatType()),  # as Kafka Connect's converters of JSON and of Avro call it
    **dict.fromkeys(("double", "float64"), DoubleType()),
    "string": StringType(),
    "bytes": BinaryType(),
}
#: Types by the end of what a schema calls them.
_MEANINGS: Mapping[str, IcebergType] = {
    "Date": DateType(),
    "IsoDate": DateType(),
    "Timestamp": TimestampType(),
    "MicroTimestamp": TimestampType(),
    "NanoTimestamp": TimestampType(),
    "IsoTimestamp": TimestampType(),
    "ZonedTimestamp": TimestamptzType(),
    **dict.fromkeys(("Time", "MicroTime", "NanoTime", "IsoTime", "ZonedTime"), TIME_OF_DAY),
}
_TIMES = ("io.debezium.time.", "org.apache.kafka.connect.data.")
#: Spans of time, which no type of Iceberg is.
_UNTYPED = ("Interval", "MicroDuration")
#: Bytes that are not those of the database.
_BITS = "io.debezium.data.Bits"
_WIDER = (("int", "long"), ("float", "double"), ("int", "double"), ("long", "double"))


@dataclass(frozen=True)
class UnknownColumn:
    """A column that the table lacks: ``rows`` have a value, of the ``types``."""

    rows: int = 0
    types: frozenset[str] = frozenset()

    def plus(self, other: UnknownColumn) -> UnknownColumn:
        """Both together."""
        return UnknownColumn(self.rows + other.rows, self.types | other.types)

    @property
    def type(self) -> IcebergType | None:
        """The type that takes all values; None where there is none."""
        kinds = set(self.types)
        for narrow, wide in _WIDER:
            if {narrow, wide} <= kinds:
                kinds.remove(narrow)
        if len(kinds) != 1 or _UNTOLD in kinds:
            return None
        return IcebergType.model_validate(kinds.pop())


def noted(
    changes: Sequence[Change], target: FeedTarget, semantics: Semantics, absent: Sequence[Raw]
) -> list[str | None]:
    """UNKNOWN_COLUMN of ``changes``. ``absent``: what stands for a value that the message leaves out."""
    known = {column.name for column in target.columns}
    if not any(change.op == UPSERT and change.values.keys() - known for change in changes):
        return [None] * len(changes)
    return [_noted(change, known, target.values, semantics, absent) for change in changes]


def noted_columns(columns: Mapping[str, pa.Array], writes: Sequence[bool]) -> list[str | None]:
    """The same of columns of a file, for rows that ``writes`` says are written."""
    types = {name: _type_of(column) for name, column in columns.items()}
    valid = {name: column.is_valid().to_pylist() for name, column in columns.items()}
    notes: list[str | None] = []
    for at, is_written in enumerate(writes):
        kinds = {name: types[name] if valid[name][at] else None for name in columns}
        notes.append(json.dumps(kinds) if is_written and columns else None)
    return notes


def tally(column: pa.ChunkedArray) -> Mapping[str, UnknownColumn]:
    """What the changes of some batches have beside the table's columns, by name."""
    return merged_tallies(
        {
            name: UnknownColumn(entry["counts"], frozenset([kind])) if kind is not None else UnknownColumn()
            for name, kind in types.items()
        }
        for entry in column.value_counts().to_pylist()
        if (types := json.loads(entry["values"]) if entry["values"] is not None else None)
    )


def merged_tallies(parts: Iterable[Mapping[str, UnknownColumn]]) -> Mapping[str, UnknownColumn]:
    """The sums of ``parts``."""
    sums: dict[str, UnknownColumn] = {}
    for part in parts:
        for name, column in part.items():
            sums[name] = sums.get(name, UnknownColumn()).plus(column)
    return sums


def _noted(
    change: Change, known: set[str], style: ValueStyle, semantics: Semantics, absent: Sequence[Raw]
) -> str | None:
    if change.op != UPSERT:
        return None
    rest = {name: value for name, value in change.values.items() if name not in known}
    types = {
        name: None if value is None or value in absent else _type_name(value, (semantics or {}).get(name), style)
        for name, value in rest.items()
    }
    return json.dumps(types) if types else None


def _type_name(value: Raw, semantic: Semantic | None, style: ValueStyle) -> str:
    kind = _by_value(value, style) if semantic is None else _by_schema(semantic)
    return _UNTOLD if kind is None else str(kind)


def _by_schema(semantic: Semantic) -> IcebergType | None:
    if postgres.is_postgres(semantic):
        return postgres.added_type(semantic)
    if semantic.name == DECIMAL:
        scale = semantic.scale
        return DecimalType(_MAX_DIGITS, scale) if scale is not None and 0 <= scale <= _MAX_DIGITS else None
    if semantic.name == _BITS:
        return None
    if semantic.name.startswith(_TIMES):
        short = semantic.name.rpartition(".")[2]
        if short in _MEANINGS or short in _UNTYPED:
            return _MEANINGS.get(short)
    return _BASES.get(semantic.type)


def _by_value(value: Raw, style: ValueStyle) -> IcebergType | None:
    match value:
        case bool():
            return BooleanType()
        case int():
            return LongType() if value in _LONGS else None
        case float() | Decimal():
            return DoubleType()
        case str():
            return StringType()
        case bytes():
            return BinaryType()
    is_json = isinstance(value, Mapping | list) and style.has_json
    return StringType() if is_json else None


def _type_of(column: pa.Array) -> str:
    reading = file_type(column.type)
    kind = None if reading is None else added_type(reading.natural)
    return str(kind) if isinstance(kind, PrimitiveType) else _UNTOLD
