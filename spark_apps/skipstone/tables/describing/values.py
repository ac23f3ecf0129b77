"""Partition values as JSON, by Iceberg's single-value serialization.

Used by the description of scan tasks. Days and moments of any year are written, of which Python knows a few only.
Must not know files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import PrimitiveType
from skipstone_core.errors import BadData
from skipstone_core.reasons import Reason

from skipstone.compat.lineage.primitives import ByPrimitive
from skipstone.compat.pyiceberg import field_ids
from skipstone.tables.decoding.entries import Partition

_NULL = "null"
#: No JSON number is infinite, but every reader takes one that is too large for infinity.
_INFINITY = "1e999"
_DAY_SECONDS = 86_400
#: Digits of the fraction of a second.
_MICROS, _NANOS = 6, 9
_LAST_PLAIN_YEAR = 9999


class PartitionTexts:
    """The partitions of one spec as JSON: lists of values in the order of its fields."""

    def __init__(self, table: Table, spec: PartitionSpec, read_in: Schema, *, tells_null: bool = True) -> None:
        """``read_in``: the schema in which rows are read, which may be older than the table's. ``tells_null``: else
        a partition with a null has no values at all.
        """
        self._tells_null = tells_null
        self._types = partition_types(table, spec)
        self._names = [field.name for field in spec.fields]
        self._known: list[dict[Any, str]] = [{} for _ in self._types]
        sources = [field.source_id for field in spec.fields]
        self._is_dropped = [source not in field_ids(table.schema()) for source in sources]
        self._is_read = [source in field_ids(read_in) for source in sources]

    def of(self, partition: Partition) -> str:
        """The JSON of a partition; raises BadData for a value that JSON cannot have."""
        if not self._tells_null and (None in partition or any(self._is_dropped)):
            return "[]"
        return f"[{','.join(self._value(place, value) for place, value in enumerate(partition))}]"

    def _value(self, place: int, value: Any) -> str:
        if value is None:
            return _NULL
        if self._is_dropped[place]:
            return self._dropped(place)
        if isinstance(value, float):  # two zeros are equal and not the same
            return self._float(place, value)
        known = self._known[place]
        text = known.get(value)
        if text is None:
            text = known[value] = _text(self._types[place], value)
        return text

    def _dropped(self, place: int) -> str:
        """Iceberg has no type for a column that is gone, and takes nothing but null for a value of it."""
        if self._is_read[place]:
            why = (
                "its column is dropped, so JSON tasks cannot carry its values, which older snapshots need: read the "
                "snapshot with a client that plans for itself"
            )
            raise BadData(Reason.INVALID_SPEC, why, field=self._names[place])
        return _NULL

    def _float(self, place: int, value: float) -> str:
        if math.isnan(value):
            why = (
                "a partition is NaN, which JSON tasks cannot carry: read the table with a client that plans for itself"
            )
            raise BadData(Reason.INVALID_SPEC, why, field=self._names[place])
        if math.isinf(value):
            return _INFINITY if value > 0 else f"-{_INFINITY}"
        return repr(value)


def partition_types(table: Table, spec: PartitionSpec) -> list[PrimitiveType]:
    """The types of a spec's fields; the source column may be in an older schema only."""
    schemas: list[Schema] = [table.schema(), *table.schemas().values()]
    kinds: list[PrimitiveType] = []
    for part in spec.fields:
        sources = [schema for schema in schemas if part.source_id in field_ids(schema)]
        kind = part.transform.result_type(sources[0].find_type(part.source_id))
        if not isinstance(kind, PrimitiveType):
            raise TypeError(f"partition field {part.name} is a {kind}")
        kinds.append(kind)
    return kinds


def _text(kind: PrimitiveType, value: Any) -> str:
    write = _TEXTS.of(kind)
    if write is None:
        raise TypeError(f"a partition value of type {kind} cannot be described")
    return write(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _bytes(value: bytes) -> str:
    return f'"{value.hex().upper()}"'


def _moment(units: int, digits: int) -> str:
    days, rest = divmod(units, _DAY_SECONDS * 10**digits)
    return f"{_date(days)}T{_time(rest, digits)}"


def _date(days: int) -> str:
    """A day as ISO 8601 has it: years have four digits, or more with their sign."""
    text = str(np.datetime64(days, "D"))
    year, month_and_day = int(text[:-6]), text[-6:]
    sign = "-" if year < 0 else "+" if year > _LAST_PLAIN_YEAR else ""
    return f"{sign}{abs(year):04}{month_and_day}"


def _time(units: int, digits: int) -> str:
    seconds, fraction = divmod(units, 10**digits)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:0{digits}}"


def all_texts(
    table: Table, spec_ids: Sequence[int], read_in: Schema, *, tells_null: bool = True
) -> dict[int, PartitionTexts]:
    """The texts of some specs by their ids, see PartitionTexts."""
    specs = table.specs()
    return {spec_id: PartitionTexts(table, specs[spec_id], read_in, tells_null=tells_null) for spec_id in spec_ids}


#: How JSON has the values of each type; None for types of which no partition is made.
_TEXTS: ByPrimitive[Callable[[Any], str] | None] = ByPrimitive(
    boolean=_json,
    integer=_json,
    long=_json,
    float=_json,
    double=_json,
    decimal=lambda value: f'"{value:f}"',
    date=lambda days: f'"{_date(days)}"',
    time=lambda micros: f'"{_time(micros, _MICROS)}"',
    timestamp=lambda micros: f'"{_moment(micros, _MICROS)}"',
    timestamptz=lambda micros: f'"{_moment(micros, _MICROS)}+00:00"',
    timestamp_ns=lambda nanos: f'"{_moment(nanos, _NANOS)}"',
    timestamptz_ns=lambda nanos: f'"{_moment(nanos, _NANOS)}+00:00"',
    string=_json,
    uuid=lambda value: f'"{value}"',
    fixed=_bytes,
    binary=_bytes,
    opaque=None,
)
