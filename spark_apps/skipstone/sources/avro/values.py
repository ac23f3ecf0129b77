"""Avro's types: how Spark sees a column of each, and from the values of records to Arrow arrays.

Called by ``schemas`` and ``files``. Values come as the layout has them: numbers, bytes, and the position of a symbol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import accumulate
from typing import NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc

from skipstone.sources.typed.filetypes import FileType, file_type, list_type, map_type, struct_type

Value = bool | int | float | bytes | None
_DAY_MICROSECONDS = 86_400_000_000
_MOST_LONG = 2**63 - 1
_DECIMAL_BYTES = 16
_MOST_DIGITS = 38
_UUID_BYTES = 16


class Column(NamedTuple):
    """Values as Spark's tasks take them; ``bad`` are true where one is outside of the range of its type."""

    values: pa.Array
    bad: pa.Array | None = None


@dataclass(frozen=True)
class AvroType:
    """How a column is loaded: as ``file_type``, made by ``column``, which raises what Arrow does for other values."""

    file_type: FileType
    column: Callable[[Sequence[Value]], Column]


def _typed(kind: pa.DataType) -> AvroType:
    return AvroType(_known(kind), lambda values: Column(pa.array(values, kind)))


def _known(kind: pa.DataType) -> FileType:
    reading = file_type(kind)
    assert reading is not None, kind  # noqa: S101
    return reading


def _text_column(values: Sequence[Value]) -> Column:
    """Return texts as they are: UTF-8 is checked with the text of all formats."""
    return Column(pa.array(values, pa.binary()).view(pa.string()))


def _symbol_column(symbols: pa.Array, values: Sequence[Value]) -> Column:
    return Column(symbols.take(pa.array(values, pa.int32())))


def _date_column(values: Sequence[Value]) -> Column:
    return Column(pa.array(values, pa.int32()).view(pa.date32()))


def _time_column(scale: int, values: Sequence[Value]) -> Column:
    numbers = pa.array(values, pa.int64())
    bad = pc.or_(pc.less(numbers, 0), pc.greater_equal(numbers, _DAY_MICROSECONDS // scale))
    return Column(pc.multiply(pc.if_else(bad, 0, numbers), scale), bad)


def _moment_column(kind: pa.DataType, scale: int, values: Sequence[Value]) -> Column:
    numbers, most = pa.array(values, pa.int64()), _MOST_LONG // scale
    bad = pc.or_(pc.less(numbers, -most - 1), pc.greater(numbers, most)) if scale > 1 else None
    kept = numbers if bad is None else pc.multiply(pc.if_else(bad, 0, numbers), scale)
    return Column(kept.view(kind), bad)


def _decimal_column(kind: pa.Decimal128Type, values: Sequence[Value]) -> Column:
    """From big-endian two's complement."""
    limit = 10**kind.precision
    numbers = [int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) else 0 for value in values]
    bad = [
        value is not None and (value == b"" or abs(number) >= limit)
        for value, number in zip(values, numbers, strict=True)
    ]
    content = b"".join(
        (0 if wrong else number).to_bytes(_DECIMAL_BYTES, "little", signed=True)
        for number, wrong in zip(numbers, bad, strict=True)
    )
    valid = pa.array([value is not None for value in values])
    array = pa.Array.from_buffers(kind, len(numbers), [valid.buffers()[1], pa.py_buffer(content)])
    return Column(array, pa.array(bad, pa.bool_()))


_PLAIN: dict[str, AvroType] = {
    "boolean": _typed(pa.bool_()),
    "int": _typed(pa.int32()),
    "long": _typed(pa.int64()),
    "float": _typed(pa.float32()),
    "double": _typed(pa.float64()),
    "bytes": _typed(pa.binary()),
    "string": AvroType(_known(pa.string()), _text_column),
}
_INSTANT, _LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
_LOGICAL: dict[tuple[str, str], AvroType] = {
    ("int", "date"): AvroType(_known(pa.date32()), _date_column),
    ("int", "time-millis"): AvroType(_known(pa.time64("us")), partial(_time_column, 1000)),
    ("long", "time-micros"): AvroType(_known(pa.time64("us")), partial(_time_column, 1)),
    ("long", "timestamp-millis"): AvroType(_known(_INSTANT), partial(_moment_column, _INSTANT, 1000)),
    ("long", "timestamp-micros"): AvroType(_known(_INSTANT), partial(_moment_column, _INSTANT, 1)),
    ("long", "timestamp-nanos"): AvroType(_known(pa.timestamp("ns", tz="UTC")), _PLAIN["long"].column),
    ("long", "local-timestamp-millis"): AvroType(_known(_LOCAL), partial(_moment_column, _LOCAL, 1000)),
    ("long", "local-timestamp-micros"): AvroType(_known(_LOCAL), partial(_moment_column, _LOCAL, 1)),
    ("long", "local-timestamp-nanos"): AvroType(_known(pa.timestamp("ns")), _PLAIN["long"].column),
}


def plain_type(name: str, symbols: Sequence[str] = (), size: int = 0) -> AvroType | None:
    """The type ``name`` without a logical type; None for one that is not loaded."""
    if name == "enum":
        return AvroType(_known(pa.string()), partial(_symbol_column, pa.array(symbols, pa.string())))
    if name == "fixed":
        return AvroType(_known(pa.binary(size)), _PLAIN["bytes"].column)
    return _PLAIN.get(name)


def logical_type(name: str, tree: Mapping[str, object], size: int = 0) -> AvroType | None:
    """The logical type that ``tree`` gives to the type ``name``; None for none and for one that is not valid."""
    logical = tree.get("logicalType")
    if logical == "decimal" and name in ("bytes", "fixed"):
        return _decimal(tree.get("precision"), tree.get("scale", 0))
    if logical == "uuid" and name == "fixed" and size == _UUID_BYTES:
        return AvroType(_known(pa.uuid()), _PLAIN["bytes"].column)
    return _LOGICAL.get((name, logical)) if isinstance(logical, str) else None


def _decimal(precision: object, scale: object) -> AvroType | None:
    if not isinstance(precision, int) or not isinstance(scale, int):
        return None
    if not (1 <= precision <= _MOST_DIGITS and 0 <= scale <= precision):
        return None
    kind = pa.decimal128(precision, scale)
    return AvroType(_known(kind), partial(_decimal_column, kind))


def list_column(item: AvroType | None) -> AvroType | None:
    """Lists of ``item``; None for one that is not loaded."""
    kind = list_type(item.file_type) if item is not None else None
    if item is None or kind is None:
        return None

    def column(values: Sequence[Value]) -> Column:
        rows = cast("Sequence[Sequence[Value] | None]", values)
        items = item.column([value for row in rows for value in row or ()])
        return Column(_listed(rows, items.values), _any_bad(rows, items.bad))

    return AvroType(kind, column)


def map_column(value: AvroType | None) -> AvroType | None:
    """Maps from text to ``value``, which the layout has as lists of pairs; None for one that is not loaded."""
    kind = map_type(_PLAIN["string"].file_type, value.file_type) if value is not None else None
    if value is None or kind is None:
        return None

    def column(values: Sequence[Value]) -> Column:
        rows = cast("Sequence[Sequence[Mapping[str, Value]] | None]", values)
        pairs = [pair for row in rows for pair in row or ()]
        keys, held = _text_column([pair["k"] for pair in pairs]).values, value.column([pair["v"] for pair in pairs])
        made = pa.MapArray.from_arrays(_offsets(rows), keys, held.values, mask=_nulls(rows))
        return Column(made, _any_bad(rows, held.bad))

    return AvroType(kind, column)


def record_column(fields: Mapping[str, AvroType | None], places: Sequence[str]) -> AvroType | None:
    """Records by the names of their fields; ``places``: what the layout calls them. None if no field is loaded."""
    kind = struct_type({name: field.file_type if field is not None else None for name, field in fields.items()})
    loaded = [(place, field) for place, field in zip(places, fields.values(), strict=True) if field is not None]
    names = [name for name, field in fields.items() if field is not None]
    if kind is None:
        return None

    def column(values: Sequence[Value]) -> Column:
        rows = cast("Sequence[Mapping[str, Value] | None]", values)
        parts = [field.column([None if row is None else row[place] for row in rows]) for place, field in loaded]
        made = pa.StructArray.from_arrays([part.values for part in parts], names, mask=_nulls(rows))
        bad = [part.bad.fill_null(value=False) for part in parts if part.bad is not None]
        return Column(made, reduce(pc.or_, bad) if bad else None)

    return AvroType(kind, column)


def _listed(rows: Sequence[Sequence[object] | None], values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(_offsets(rows), values, mask=_nulls(rows))


def _offsets(rows: Sequence[Sequence[object] | None]) -> pa.Array:
    return pa.array([0, *accumulate(len(row or ()) for row in rows)], pa.int32())


def _nulls(rows: Sequence[object]) -> pa.Array:
    return pa.array([row is None for row in rows], pa.bool_())


def _any_bad(rows: Sequence[Sequence[object] | None], bad: pa.Array | None) -> pa.Array | None:
    """Return which rows have a bad value within; None when none has."""
    if bad is None:
        return None
    places = [at for at, row in enumerate(rows) for _ in row or ()]
    bad_rows = {at for at, is_bad in zip(places, bad.to_pylist(), strict=True) if is_bad}
    return pa.array([at in bad_rows for at in range(len(rows))], pa.bool_())
