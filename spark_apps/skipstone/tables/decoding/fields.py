"""The fields of manifest entries as Arrow columns, read from Avro records in lockstep.

Called by the decoder. Whatever is not of the type that the manifest format gives a field raises NotDecodable.
Must not know manifests as files, nor what entries inherit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from skipstone.tables.decoding.avro import AvroRecord, AvroType, NotDecodable, Nullable, Repeated, Sized, Varint
from skipstone.tables.decoding.cursor import ALL, Cursor, Ints, Rows, Spans

#: Field ids of the manifest format that have a part of their own in decoding.
DATA_FILE, FORMAT, PARTITION = 2, 101, 102
Fields = tuple[tuple[int | None, AvroType], ...]


class Turn(NamedTuple):
    """The items that were read in one turn: in which records, which item of its record each is, and their parts."""

    rows: Rows
    ordinals: Ints
    parts: tuple[Ints, ...]


@dataclass(frozen=True)
class Reading:
    """A cursor over ``payload`` before a field; each method reads the field of all records."""

    cursor: Cursor
    payload: pa.Buffer

    def columns(self, fields: Fields) -> dict[str, pa.Array]:
        """Read ``fields``; those that are not known are passed over."""
        arrays = {}
        for field_id, kind in fields:
            if field_id in _KNOWN:
                name, read = _KNOWN[field_id]
                arrays[name] = read(self, kind)
            else:
                self.cursor.pass_over(kind)
        return arrays

    def longs(self, kind: AvroType) -> pa.Array:
        """An optional int or long as int64."""
        values, valid = np.zeros(len(self.cursor), np.int64), np.zeros(len(self.cursor), np.bool_)
        rows, inner = self._present(kind)
        _expect(inner, Varint)
        values[rows], valid[rows] = self.cursor.longs(rows), True
        return pa.array(values, mask=~valid)

    def binary(self, kind: AvroType) -> pa.Array:
        """A string or bytes as binary."""
        _expect(kind, Sized)
        return self._cut(self.cursor.spans())

    def optional_binary(self, kind: AvroType) -> pa.Array:
        """Optional bytes as binary."""
        rows, inner = self._present(kind)
        _expect(inner, Sized)
        where: Any = np.full(len(self.cursor), -1, np.int64)
        spans = self.cursor.spans(rows)
        where[rows] = np.arange(len(spans.starts))
        return self._cut(spans).take(pa.array(where, mask=where < 0))

    def encoded(self, kind: AvroType) -> pa.Array:
        """The bytes of a value as they are."""
        starts = self.cursor.at.copy()
        self.cursor.pass_over(kind)
        self.cursor.skip(0)
        return self._cut(Spans(starts, self.cursor.at.copy()))

    def list_of_longs(self, kind: AvroType) -> pa.Array:
        """An optional list of longs."""
        rows, inner = self._present(kind)
        _require(inner == Repeated(Varint()))
        turns = [Turn(active, place, (self.cursor.longs(active),)) for active, place in self.cursor.turns(rows)]
        offsets, (values,) = _flatten(len(self.cursor), turns, 1)
        missing = np.ones(len(self.cursor), np.bool_)
        missing[rows] = False
        return pa.ListArray.from_arrays(_narrow(offsets), pa.array(values), mask=pa.array(missing))

    def counts(self, kind: AvroType) -> pa.Array:
        """An optional map<int, long>; null becomes an empty one."""
        rows, inner = self._present(kind)
        _expect_pairs(inner, Varint)
        turns = []
        for active, place in self.cursor.turns(rows):
            keys = self.cursor.longs(active)
            turns.append(Turn(active, place, (keys, self.cursor.longs(active))))
        offsets, (keys, values) = _flatten(len(self.cursor), turns, 2)
        return map_column(offsets, keys, pa.array(values))

    def bounds(self, kind: AvroType) -> pa.Array:
        """An optional map<int, bytes>; null becomes an empty one."""
        rows, inner = self._present(kind)
        _expect_pairs(inner, Sized)
        turns = []
        for active, place in self.cursor.turns(rows):
            keys, values = self.cursor.longs(active), self.cursor.spans(active)
            turns.append(Turn(active, place, (keys, values.starts, values.ends)))
        offsets, (keys, starts, ends) = _flatten(len(self.cursor), turns, 3)
        return map_column(offsets, keys, self._cut(Spans(starts, ends)))

    def _present(self, kind: AvroType) -> tuple[Rows, AvroType]:
        if isinstance(kind, Nullable):
            return self.cursor.present(), kind.inner
        return ALL, kind

    def _cut(self, spans: Spans) -> pa.Array:
        """The ranges as binary values: of the payload cut at all their ends, every other piece."""
        if not len(spans.starts):
            return pa.array([], pa.binary())
        offsets = np.column_stack([spans.starts, spans.ends]).astype(np.int32).ravel()
        pieces = len(offsets) - 1
        cut = pa.Array.from_buffers(pa.binary(), pieces, [None, pa.py_buffer(offsets), self.payload])
        return cut.take(pa.array(np.arange(0, pieces, 2, dtype=np.int32)))


#: Field id -> name of the column and how it is read.
_KNOWN: dict[int | None, tuple[str, Callable[[Reading, AvroType], pa.Array]]] = {
    0: ("status", Reading.longs),
    1: ("snapshot_id", Reading.longs),
    3: ("sequence", Reading.longs),
    4: ("file_sequence", Reading.longs),
    100: ("path", Reading.binary),
    FORMAT: ("format", Reading.binary),
    PARTITION: ("partition", Reading.encoded),
    134: ("content", Reading.longs),
    103: ("records", Reading.longs),
    104: ("size", Reading.longs),
    108: ("column_sizes", Reading.counts),
    109: ("value_counts", Reading.counts),
    110: ("null_counts", Reading.counts),
    137: ("nan_counts", Reading.counts),
    125: ("lower", Reading.bounds),
    128: ("upper", Reading.bounds),
    131: ("key_metadata", Reading.optional_binary),
    132: ("split_offsets", Reading.list_of_longs),
    140: ("sort_order_id", Reading.longs),
    142: ("first_row_id", Reading.longs),
}


def _flatten(records: int, turns: Sequence[Turn], width: int) -> tuple[Ints, list[Ints]]:
    """Items read turn by turn as one column per part, by record, and the offset at which each record begins."""
    counts = np.zeros(records, np.int64)
    for turn in turns:
        counts[turn.rows] += 1
    offsets = np.zeros(records + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    columns = [np.empty(offsets[-1], np.int64) for _ in range(width)]
    for rows, ordinals, parts in turns:
        places = offsets[:-1][rows] + ordinals
        for column, part in zip(columns, parts, strict=True):
            column[places] = part
    return offsets, columns


def map_column(offsets: Ints, keys: Ints, items: pa.Array) -> pa.Array:
    """A map column from the offset of each row, the keys and their items; no row may have a key twice."""
    _require(_are_distinct(offsets, keys))
    return pa.MapArray.from_arrays(_narrow(offsets), _narrow(keys), items)


def _are_distinct(offsets: Ints, keys: Ints) -> bool:
    """True if no record has a key twice; keys mostly ascend, so that nothing needs to be sorted."""
    ascends = np.ones(len(keys), np.bool_)
    ascends[1:] = keys[1:] > keys[:-1]
    ascends[offsets[:-1][offsets[:-1] < len(keys)]] = True
    if ascends.all():
        return True
    records = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order = np.lexsort((keys, records))
    same = (np.diff(keys[order]) == 0) & (np.diff(records[order]) == 0)
    return not same.any()


def _narrow(values: Ints) -> pa.Array:
    """As int32; raises ArrowInvalid when a value does not fit."""
    return pa.array(values).cast(pa.int32())


def _expect(kind: AvroType, expected: type) -> None:
    _require(isinstance(kind, expected))


def _expect_pairs(kind: AvroType, value: type) -> None:
    """A map with int keys, which Iceberg writes as an array of records of key and value."""
    match kind:
        case Repeated(AvroRecord(((_, Varint()), (_, item)))) if isinstance(item, value):
            return
    raise NotDecodable("a map of statistics is not written as Iceberg writes it")


def _require(condition: object) -> None:
    if not condition:
        raise NotDecodable("the manifest does not keep to its schema")
