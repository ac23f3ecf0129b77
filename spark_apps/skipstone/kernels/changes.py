"""The source of a merge, materialized once: sorted by key, one row per key, in immutable Parquet slices.

Called inside Spark tasks when the source is read and again by every task that merges files.
A slice holds one row of each key first, in key order, then the rows with a null in some key, then the other rows of
keys that have several, where the merge needs them. Must not know the target.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from cachetools import LRUCache
from skipstone_core.errors import BadData, DependencyUnavailable
from skipstone_core.keys import KeyType
from skipstone_core.merging.merges import SEVERAL_COLUMN, BoundKey, RepeatedKeys
from skipstone_core.reasons import Reason

from skipstone.kernels.canonical import Int64s, canonical, float_bits, null_rows
from skipstone.kernels.matching import KeyMatcher
from skipstone.storage.port import Storage, StoredFile
from skipstone.tables.parquetfiles import WholeFile
from skipstone.tables.shaping.dictionaries import dictionary_columns

ROW_GROUP_ROWS = 64 * 1024
#: Slices up to this size travel with the tasks.
CARRIED_BYTES = 1024 * 1024
_CACHE_BYTES = 128 * 1024 * 1024
_CHUNK = 4 * 1024 * 1024
#: Texts of a column that are longer on the average are kept in a dictionary: a file may repeat each of them many times.
_LONG_BYTES = 256
#: Bytes of rows from which on all share one dictionary.
_SHARED_BYTES = 64 * 1024 * 1024
#: Bytes of such a dictionary: what is not in it would be decoded at once.
_DICTIONARY_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True)
class ChangeSlice:
    """One materialized file. ``rows`` in all, the first ``keyed`` of them have a key; ``read`` came from the source.

    ``others``: the last rows, each with the key of one of the first, by key and sequence.
    ``base``: number of the slice's first row among the rows of all slices. ``checksum``: sha256 of the file.
    ``content``: all of a small one. ``stored``: the object that it is; else ``path`` is a file of this machine.
    ``held``: bytes of all its rows in memory.
    """

    path: str
    rows: int
    keyed: int
    read: int
    size: int
    checksum: str
    base: int = 0
    held: int = 0
    others: int = 0
    content: bytes | None = field(default=None, repr=False)
    stored: StoredFile | None = None

    def source(self) -> Any:
        """What a Parquet reader takes."""
        if self.content is not None:
            return pa.BufferReader(self.content)
        return self.stored.open(buffering=0) if self.stored else self.path


@dataclass(frozen=True)
class SlicePart:
    """Rows [start, stop) of slice number ``slice``."""

    slice: int
    start: int
    stop: int


@dataclass(frozen=True)
class SortRule:
    """In which order of ``keys`` a slice is sorted, by what column's type the last change is told, and what is kept of
    ``repeated`` keys: with a ``sequence``, REFUSED means LAST. ``marks_several``: see the plan.
    """

    keys: tuple[BoundKey, ...]
    sequence: str | None
    types: Mapping[str, KeyType]
    repeated: RepeatedKeys = RepeatedKeys.REFUSED
    marks_several: bool = False

    @property
    def refuses(self) -> bool:
        """Whether no key may stand twice."""
        return self.sequence is None and self.repeated is RepeatedKeys.REFUSED

    @property
    def keeps_all(self) -> bool:
        """Whether all rows of a key are kept."""
        return self.repeated in (RepeatedKeys.EACH, RepeatedKeys.COMPOSED)


class PackedRows:
    """Collects rows of the source; columns of long texts become dictionaries, but those of keys."""

    def __init__(self, schema: pa.Schema, keys: Sequence[BoundKey], columns: Collection[str] | None = None) -> None:
        """Hold nothing yet; all rows have ``schema``. ``columns``: those that may become dictionaries; None: all."""
        names = set(schema.names if columns is None else columns) - {key.source for key in keys}
        self._schema = schema
        self._texts = [field.name for field in schema if field.name in names and _is_of_texts(field.type)]
        self._packed: set[str] = set()
        self._batches: list[pa.RecordBatch] = []
        #: Bytes in memory of the rows.
        self.nbytes = 0
        self._bearable = _SHARED_BYTES

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        long = _LONG_BYTES * batch.num_rows
        found = {name for name in self._texts if batch.num_rows and batch[name].nbytes > long} - self._packed
        if found:
            self._packed |= found
            self._batches = [_packed(one, found) for one in self._batches]
            self.nbytes = sum(one.nbytes for one in self._batches)
        self._batches.append(_packed(batch, self._packed))
        self.nbytes += self._batches[-1].nbytes
        if self._packed and self.nbytes > self._bearable:
            self._share()

    def _share(self) -> None:
        """Let all rows share their dictionaries: each batch came with its own."""
        whole = pa.Table.from_batches(self._batches).unify_dictionaries().combine_chunks()
        self._batches = whole.to_batches()
        self.nbytes = sum(one.nbytes for one in self._batches)
        self._bearable = max(_SHARED_BYTES, 2 * self.nbytes)

    def table(self) -> pa.Table:
        """All rows; no others follow."""
        batches, self._batches = self._batches, []
        fields = [
            field.with_type(pa.dictionary(pa.int32(), field.type)) if field.name in self._packed else field
            for field in self._schema
        ]
        return pa.Table.from_batches(batches, schema=pa.schema(fields)).unify_dictionaries()


def _packed(batch: pa.RecordBatch, names: Collection[str]) -> pa.RecordBatch:
    """``batch`` with ``names`` as dictionaries; its other columns are copied, as one buffer may hold them all."""
    if not any(not pa.types.is_dictionary(batch.schema.field(name).type) for name in names):
        return batch
    columns, fields = [], []
    for kept, column in zip(batch.schema, batch.columns, strict=True):
        is_new = kept.name in names and not pa.types.is_dictionary(kept.type)
        columns.append(column.dictionary_encode() if is_new else _copied(column))
        fields.append(kept.with_type(columns[-1].type))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, batch.schema.metadata))


def _copied(array: pa.Array) -> pa.Array:
    """``array`` in memory of its own: a batch of Spark is one buffer, which lives as long as any of its columns."""
    return pa.concat_arrays([array, array.slice(0, 0)])


def packed_rows(changes: pa.Table, keys: Sequence[BoundKey]) -> pa.Table:
    """``changes`` as ``PackedRows`` holds them."""
    rows = PackedRows(changes.schema, keys)
    for batch in changes.to_batches():
        rows.add(batch)
    return rows.table()


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Rows of several slices, each column in one chunk: in a dictionary if that is so in one of them."""
    names = tables[0].column_names
    packed = [name for name in names if any(pa.types.is_dictionary(table.schema.field(name).type) for table in tables)]
    for name in packed:
        at = names.index(name)
        tables = [
            table
            if pa.types.is_dictionary(table.schema.field(at).type)
            else table.set_column(at, name, table.column(at).dictionary_encode())
            for table in tables
        ]
    return pa.concat_tables(tables).combine_chunks()


def _is_of_texts(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


class SortedChanges(NamedTuple):
    """Rows in the order of a slice, the first ``keyed`` of them with keys; ``others`` as of ChangeSlice."""

    rows: pa.Table
    keyed: int
    others: int = 0


def write_slice(changes: pa.Table, rule: SortRule, path: str) -> ChangeSlice:
    """Sort, drop superseded rows and write. Raises BadData (DUPLICATE_SOURCE_KEYS) naming the key's columns."""
    table, keyed, others = last_changes(packed_rows(changes, rule.keys), rule)
    _write(table, path)
    size = Path(path).stat().st_size
    return ChangeSlice(
        path=path,
        rows=table.num_rows,
        keyed=keyed,
        read=changes.num_rows,
        size=size,
        checksum=checksum(path),
        held=table.nbytes,
        others=others,
    )


def _write(table: pa.Table, sink: Any) -> None:
    """``sink``: a path or an open file."""
    use = dictionary_columns(table)
    packed = any(map(pa.types.is_dictionary, table.schema.types))
    pq.write_table(
        table,
        sink,
        row_group_size=ROW_GROUP_ROWS,
        compression="zstd",
        compression_level=1,
        use_dictionary=use,
        dictionary_pagesize_limit=_DICTIONARY_BYTES if packed else None,
    )


def put_slice(changes: pa.Table, rule: SortRule, storage: Storage, path: str) -> ChangeSlice:
    """As ``write_slice``, without a file when it is small, else as an object of ``storage``."""
    table, keyed, others = last_changes(packed_rows(changes, rule.keys), rule)
    sink = pa.BufferOutputStream()
    _write(table, sink)
    content = sink.getvalue().to_pybytes()
    one = ChangeSlice(
        path=storage.where(path),
        rows=table.num_rows,
        keyed=keyed,
        read=changes.num_rows,
        size=len(content),
        checksum=hashlib.sha256(content).hexdigest(),
        held=table.nbytes,
        others=others,
    )
    if len(content) <= CARRIED_BYTES:
        return replace(one, content=content)
    storage.keep_content(path, content)
    (entry,) = storage.entries([path])
    if entry is None:
        raise DependencyUnavailable(Reason.STORAGE_UNAVAILABLE, f"{one.path} was just put and is gone: try again")
    return replace(one, stored=StoredFile(storage, entry))


def last_changes(changes: pa.Table, rule: SortRule) -> SortedChanges:
    """The last row of each key in key order, then all rows without a key, then earlier rows of keys if they are kept.

    Equal sequence values are told apart by the rows' content, so the result does not depend on the order of rows.
    Raises BadData when a key occurs twice and no sequence tells which row is the last.
    """
    nulls = null_rows(_canonical_keys(changes, rule.keys))
    keyless = changes.filter(pa.array(nulls))
    keyed = changes.filter(pa.array(~nulls)) if nulls.any() else changes
    order = _sort_columns(keyed, rule)
    keyed = keyed.take(
        pc.sort_indices(order, sort_keys=[(name, "ascending", "at_start") for name in order.column_names])
    )
    superseded = _same_as_next(_canonical_keys(keyed, rule.keys))
    if rule.marks_several:
        keyed = _marked(keyed, np.append(False, superseded)[: len(superseded)])
        keyless = _marked(keyless, np.zeros(keyless.num_rows, dtype=bool))
    if not superseded.any():
        return SortedChanges(pa.concat_tables([keyed, keyless]), keyed.num_rows)
    if rule.refuses:
        raise _duplicate(rule.keys)
    others = keyed.filter(pa.array(superseded)) if rule.keeps_all else keyed.slice(0, 0)
    keyed = keyed.filter(pa.array(~superseded))
    return SortedChanges(pa.concat_tables([keyed, keyless, others]), keyed.num_rows, others.num_rows)


def _marked(rows: pa.Table, several: npt.NDArray[np.bool_]) -> pa.Table:
    return rows.append_column(SEVERAL_COLUMN, pa.array(several))


def checksum(path: str) -> str:
    """The sha256 of a file."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def verify_slices(slices: Iterable[ChangeSlice]) -> None:
    """Raise BadData (SOURCE_CHANGED) when a materialized file is not the one that was written."""
    for one in slices:
        if one.content is not None:
            continue
        if one.stored is not None:
            if list(one.stored.storage.entries([one.stored.entry.path])) != [one.stored.entry]:
                raise _changed(one)
            continue
        path = Path(one.path)
        if not path.exists() or path.stat().st_size != one.size or checksum(one.path) != one.checksum:
            raise _changed(one)


def _changed(one: ChangeSlice) -> BadData:
    return BadData(Reason.SOURCE_CHANGED, f"the materialized source {one.path} changed while it was merged")


class ChangeReader:
    """Reads parts of slices with a bounded cache of row groups. One per task."""

    def __init__(self, slices: Sequence[ChangeSlice], columns: Sequence[str]) -> None:
        """``columns``: the source columns that are read."""
        self._slices = slices
        self._columns = list(dict.fromkeys(columns))
        self._open: dict[int, WholeFile] = {}
        self._cache: LRUCache[tuple[int, int], pa.Table] = LRUCache(_CACHE_BYTES, getsizeof=_table_bytes)

    def read(self, parts: Iterable[SlicePart]) -> pa.Table:
        """The rows of ``parts``, one after the other, each column in one chunk."""
        return joined([self._rows(part) for part in parts])

    def _rows(self, part: SlicePart) -> pa.Table:
        first, last = part.start // ROW_GROUP_ROWS, max(part.start, part.stop - 1) // ROW_GROUP_ROWS
        table = pa.concat_tables([self._group(part.slice, group) for group in range(first, last + 1)])
        return table.slice(part.start - first * ROW_GROUP_ROWS, part.stop - part.start)

    def _group(self, number: int, group: int) -> pa.Table:
        if (number, group) in self._cache:
            return self._cache[number, group]
        table = self._file(number).read_group(group, self._columns)
        if table.nbytes < _CACHE_BYTES:
            self._cache[number, group] = table
        return table

    def _file(self, number: int) -> WholeFile:
        if number not in self._open:
            self._open[number] = WholeFile(self._slices[number].source(), use_threads=True)
        return self._open[number]


def read_keys(one: ChangeSlice, keys: Sequence[BoundKey]) -> list[pa.Array]:
    """Canonical key columns of the rows of a slice that have a key, in the order of ``keys``."""
    return _canonical_keys(read_key_rows(one, keys), keys)


def read_key_rows(one: ChangeSlice, keys: Sequence[BoundKey]) -> pa.Table:
    """The key columns of the rows of a slice that have a key, as the source has them."""
    columns = list(dict.fromkeys(key.source for key in keys))
    return WholeFile(one.source(), use_threads=True).read(columns).slice(0, one.keyed)


def first_of_others(one: ChangeSlice, keys: Sequence[BoundKey]) -> Int64s:
    """For each of the ``others`` of a slice, the number (within the slice) of the row that has its key; ascending."""
    columns = list(dict.fromkeys(key.source for key in keys))
    rows = WholeFile(one.source(), use_threads=True).read(columns)
    matcher = KeyMatcher(_canonical_keys(rows.slice(0, one.keyed), keys))
    return matcher.match(_canonical_keys(rows.slice(one.rows - one.others), keys))


def source_keys(changes: pa.Table, keys: Sequence[BoundKey]) -> list[pa.Array]:
    """Canonical key columns of source rows, in the order of ``keys``."""
    return _canonical_keys(changes, keys)


def _canonical_keys(changes: pa.Table, keys: Sequence[BoundKey]) -> list[pa.Array]:
    return [canonical(changes.column(key.source), key.type) for key in keys]


def _sort_columns(changes: pa.Table, rule: SortRule) -> pa.Table:
    """Keys, then the sequence, then the content, all canonical; at last what the canonical form of floats hides."""
    named: dict[str, Any] = {f"key{i}": column for i, column in enumerate(_canonical_keys(changes, rule.keys))}
    if rule.sequence is None:
        return pa.table(named)
    names = [rule.sequence, *sorted(set(changes.column_names) - {rule.sequence})]
    for i, name in enumerate(names):
        named[f"content{i}"] = _content(changes.column(name), rule.types.get(name))
    floats = [column for column in changes.columns if pa.types.is_floating(column.type)]
    return pa.table(named | {f"bits{i}": float_bits(column) for i, column in enumerate(floats)})


def _content(column: pa.ChunkedArray, kind: KeyType | None) -> pa.Array:
    if kind is not None and pa.types.is_dictionary(column.type):
        one = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
        ranks = pc.rank(canonical(one.dictionary, kind), tiebreaker="dense")
        return ranks.take(one.indices)
    if kind is not None:
        return canonical(column, kind)
    return pa.array([repr(value) for value in column.cast(_in_numbers(column.type)).to_pylist()], type=pa.string())


def _in_numbers(kind: pa.DataType) -> pa.DataType:
    """``kind`` with numbers for days and times: Python has not all of them."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_numbers(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_in_numbers(kind.key_type)), kind.item_field.with_type(_in_numbers(kind.item_type))
        )
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_numbers(kind.value_type)))
    return pa.int32() if pa.types.is_date32(kind) else pa.int64() if pa.types.is_timestamp(kind) else kind


def _same_as_next(keys: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """Which rows have the key of the row after them; keys are sorted."""
    rows = len(keys[0])
    same = np.zeros(rows, dtype=bool)
    if rows > 1:
        pairs = [pc.equal(key.slice(0, rows - 1), key.slice(1)).to_numpy(zero_copy_only=False) for key in keys]
        same[:-1] = np.logical_and.reduce(pairs)
    return same


def _duplicate(keys: Sequence[BoundKey]) -> BadData:
    names = ", ".join(key.source for key in keys)
    message = f"several source rows have the same key in {names}: name the column that orders them in spec.sequenceBy"
    return BadData(Reason.DUPLICATE_SOURCE_KEYS, message, field="spec.source")


def _table_bytes(table: pa.Table) -> int:
    return int(table.nbytes)
