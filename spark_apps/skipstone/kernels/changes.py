"""The source of a merge, materialized once: sorted by key, one row per key, in immutable Parquet slices.

Called inside Spark tasks when the source is read and again by every task that merges files. A small slice of a merge
that no task of Spark works on stays in memory.
A slice holds one row of each key first, in key order, then the rows with a null in some key, then the other rows of
keys that have several, where the merge needs them. Must not know the target.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from skipstone.kernels.holding.packing import compacted, is_packed, joined, packed_rows
from skipstone.kernels.holding.spooling import SourceRows, Spool
from skipstone.kernels.matching import KeyMatcher
from skipstone.storage.port import Storage, StoredFile
from skipstone.tables.parquetfiles import WholeFile
from skipstone.tables.shaping.dictionaries import dictionary_columns

ROW_GROUP_ROWS = 64 * 1024
#: Slices up to this size travel with the tasks.
CARRIED_BYTES = 1024 * 1024
_CACHE_BYTES = 128 * 1024 * 1024
_CHUNK = 4 * 1024 * 1024
#: Bytes of a row group, about, and of the rows that a task holds in memory; texts of more are spooled.
GROUP_BYTES = 16 * 1024 * 1024
HELD_BYTES = 64 * 1024 * 1024
#: Bytes of such a dictionary: what is not in it would be decoded at once.
_DICTIONARY_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True)
class ChangeSlice:
    """One materialized file. ``rows`` in all, the first ``keyed`` of them have a key; ``read`` came from the source.

    ``others``: the last rows, each with the key of one of the first, by key and sequence.
    ``base``: number of the slice's first row among the rows of all slices. ``checksum``: sha256 of the file.
    ``content``: all of a small one. ``stored``: the object that it is; else ``path`` is a file of this machine.
    ``held``: bytes of all its rows in memory. ``table``: its rows, while it is in memory and nowhere else.
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
    table: pa.Table | None = field(default=None, repr=False, compare=False)

    def source(self) -> Any:
        """Return the input for a Parquet reader."""
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
        """Return whether no key may stand twice."""
        return self.sequence is None and self.repeated is RepeatedKeys.REFUSED

    @property
    def keeps_all(self) -> bool:
        """Return whether all rows of a key are kept."""
        return self.repeated in (RepeatedKeys.EACH, RepeatedKeys.COMPOSED)


class SortedChanges(NamedTuple):
    """Rows in the order of a slice, the first ``keyed`` of them with keys; ``others`` as of ChangeSlice."""

    rows: pa.Table
    keyed: int
    others: int = 0


def sorted_slice(changes: pa.Table, rule: SortRule, path: str) -> ChangeSlice:
    """Sort and drop superseded rows; ``path`` names the slice, which is in memory.

    Raises BadData (DUPLICATE_SOURCE_KEYS) naming the key's columns.
    """
    table, keyed, others = last_changes(packed_rows(changes, rule.keys), rule)
    return ChangeSlice(
        path=path,
        rows=table.num_rows,
        keyed=keyed,
        read=changes.num_rows,
        size=0,
        checksum="",
        held=table.nbytes,
        others=others,
        table=table.combine_chunks(),
    )


def write_slice(changes: pa.Table, rule: SortRule, path: str) -> ChangeSlice:
    """Sort, drop superseded rows and write to a file of this machine. Raises as ``sorted_slice`` does."""
    return in_file(sorted_slice(changes, rule, path))


def in_file(change_slice: ChangeSlice) -> ChangeSlice:
    """A slice that is in memory as the file that its path names."""
    path = change_slice.path
    _write(_held_table(change_slice), path)
    return replace(change_slice, size=Path(path).stat().st_size, checksum=checksum(path), table=None)


def in_storage(change_slice: ChangeSlice, storage: Storage, path: str) -> ChangeSlice:
    """A slice that is in memory without a file when it is small, else as an object of ``storage``."""
    sink = pa.BufferOutputStream()
    _write(_held_table(change_slice), sink)
    content = sink.getvalue().to_pybytes()
    sealed = replace(change_slice, size=len(content), checksum=hashlib.sha256(content).hexdigest(), table=None)
    if len(content) <= CARRIED_BYTES:
        return replace(sealed, content=content)
    storage.keep_content(path, content)
    (entry,) = storage.entries([path])
    if entry is None:
        raise DependencyUnavailable(Reason.STORAGE_UNAVAILABLE, f"{sealed.path} was just put and is gone: try again")
    return replace(sealed, stored=StoredFile(storage, entry))


def _held_table(change_slice: ChangeSlice) -> pa.Table:
    if change_slice.table is None:
        raise ValueError(f"{change_slice.path} is not in memory")
    return change_slice.table


def _write(table: pa.Table, sink: Any) -> None:
    """``sink``: a path or an open file."""
    packed = any(map(pa.types.is_dictionary, table.schema.types))
    options: dict[str, Any] = {"dictionary_pagesize_limit": _DICTIONARY_BYTES} if packed else {}
    step = min(ROW_GROUP_ROWS, max(1, GROUP_BYTES * table.num_rows // max(table.nbytes, 1)))
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=dictionary_columns(table),
        **options,
    ) as writer:
        for start in range(0, table.num_rows, step):
            # Arrow writes the whole dictionary of a column into each row group
            writer.write_table(compacted(table.slice(start, step)) if packed else table.slice(start, step))


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
    for change_slice in slices:
        if change_slice.content is not None or change_slice.table is not None:
            continue
        if change_slice.stored is not None:
            if list(change_slice.stored.storage.entries([change_slice.stored.entry.path])) != [
                change_slice.stored.entry
            ]:
                raise _changed(change_slice)
            continue
        path = Path(change_slice.path)
        if (
            not path.exists()
            or path.stat().st_size != change_slice.size
            or checksum(change_slice.path) != change_slice.checksum
        ):
            raise _changed(change_slice)


def _changed(change_slice: ChangeSlice) -> BadData:
    return BadData(Reason.SOURCE_CHANGED, f"the materialized source {change_slice.path} changed while it was merged")


class ChangeReader:
    """Reads parts of slices with a bounded cache of row groups. One per task."""

    def __init__(self, slices: Sequence[ChangeSlice], columns: Sequence[str]) -> None:
        """``columns``: the source columns that are read."""
        self._slices = slices
        self._columns = list(dict.fromkeys(columns))
        self._open: dict[int, WholeFile] = {}
        self._known: dict[int, frozenset[str]] = {}
        self._spool = Spool()
        self._numbers: dict[tuple[object, ...], pa.Table] = {}
        self._cache: LRUCache[tuple[int, int], pa.Table] = LRUCache(_CACHE_BYTES, getsizeof=_table_bytes)

    def read(self, parts: Iterable[SlicePart]) -> SourceRows:
        """The rows of ``parts``, one after the other; long texts of many are in a file of this machine."""
        read = list(parts)
        names = self._packed({part.slice for part in read})
        if not names or sum(self._held(part) for part in read) <= HELD_BYTES:
            return self.table(read)
        return self._spool.rows([piece for part in read for piece in self._pieces(part, names)])

    def table(self, parts: Iterable[SlicePart]) -> pa.Table:
        """The rows of ``parts`` in memory, each column in one chunk."""
        return joined([piece for part in parts for piece in self._pieces(part)])

    def _held(self, part: SlicePart) -> int:
        """Bytes of the rows of a part, about."""
        change_slice = self._slices[part.slice]
        return change_slice.held * (part.stop - part.start) // max(change_slice.rows, 1)

    def _packed(self, numbers: set[int]) -> list[str]:
        """The columns that are in dictionaries in some of the slices."""
        for number in numbers - self._known.keys():
            table = self._slices[number].table
            schema = self._file(number).schema_arrow if table is None else table.schema
            self._known[number] = frozenset(name for name in self._columns if is_packed(schema.field(name).type))
        packed = frozenset[str]().union(*(self._known[number] for number in numbers))
        return [name for name in self._columns if name in packed]

    def _pieces(self, part: SlicePart, spooled: Sequence[str] = ()) -> Iterator[pa.Table]:
        """The rows of a part by row groups; at least one piece. ``spooled``: columns whose texts are spooled."""
        starts = self._starts(part.slice)
        first = max(0, int(np.searchsorted(starts, part.start, side="right")) - 1)
        last = max(first, int(np.searchsorted(starts, part.stop, side="left")) - 1)
        for group in range(first, min(last, len(starts) - 2) + 1):
            begin = max(part.start, int(starts[group]))
            rows = self._spooled(part.slice, group, spooled) if spooled else self._group(part.slice, group)
            yield rows.slice(begin - int(starts[group]), max(0, min(part.stop, int(starts[group + 1])) - begin))

    def _starts(self, number: int) -> Int64s:
        """The first row of each row group of a slice, and the end. One in memory is one row group."""
        change_slice = self._slices[number]
        groups = self._file(number).group_rows if change_slice.table is None else (change_slice.rows,)
        return np.cumsum([0, *groups])

    def _spooled(self, number: int, group: int, names: Sequence[str]) -> pa.Table:
        """A row group with the texts of ``names`` in the spool, where they are put once."""
        key = (number, group, *names)
        if key not in self._numbers:
            self._numbers[key] = self._spool.add(self._read_group(number, group), names)
        return self._numbers[key]

    def _read_group(self, number: int, group: int) -> pa.Table:
        table = self._slices[number].table
        return self._file(number).read_group(group, self._columns) if table is None else table.select(self._columns)

    def _group(self, number: int, group: int) -> pa.Table:
        if self._slices[number].table is not None:
            return self._read_group(number, group)
        if (number, group) in self._cache:
            return self._cache[number, group]
        table = self._read_group(number, group)
        if table.nbytes < _CACHE_BYTES:
            self._cache[number, group] = table
        return table

    def _file(self, number: int) -> WholeFile:
        if number not in self._open:
            self._open[number] = WholeFile(self._slices[number].source(), use_threads=True)
        return self._open[number]


def read_keys(change_slice: ChangeSlice, keys: Sequence[BoundKey]) -> list[pa.Array]:
    """Canonical key columns of the rows of a slice that have a key, in the order of ``keys``."""
    return _canonical_keys(read_key_rows(change_slice, keys), keys)


def read_key_rows(change_slice: ChangeSlice, keys: Sequence[BoundKey]) -> pa.Table:
    """The key columns of the rows of a slice that have a key, as the source has them."""
    return _read_columns(change_slice, keys).slice(0, change_slice.keyed)


def first_of_others(change_slice: ChangeSlice, keys: Sequence[BoundKey]) -> Int64s:
    """For each of the ``others`` of a slice, the number (within the slice) of the row that has its key; ascending."""
    rows = _read_columns(change_slice, keys)
    matcher = KeyMatcher(_canonical_keys(rows.slice(0, change_slice.keyed), keys))
    return matcher.match(_canonical_keys(rows.slice(change_slice.rows - change_slice.others), keys))


def _read_columns(change_slice: ChangeSlice, keys: Sequence[BoundKey]) -> pa.Table:
    """The key columns of all rows of a slice."""
    columns = list(dict.fromkeys(key.source for key in keys))
    if change_slice.table is not None:
        return change_slice.table.select(columns)
    return WholeFile(change_slice.source(), use_threads=True).read(columns)


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
        array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
        ranks = pc.rank(canonical(array.dictionary, kind), tiebreaker="dense")
        return ranks.take(array.indices)
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
