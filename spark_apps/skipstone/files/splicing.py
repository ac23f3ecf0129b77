"""A Parquet file put together from column chunks: fresh ones that Arrow encodes, and ones copied from another file.

Used by the writer for what a merge rewrites: a chunk in which no row changes is copied as it is, byte for byte, with
its statistics and page index; only offsets change. Source of the formats: parquet.thrift of apache/parquet-format.
Must not know partitions, sort orders or commits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from propcache.api import cached_property
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema

from skipstone.files.bloom.sealing import SealedFilter, seal_filter, unsealed
from skipstone.files.footers import MAGIC, TAIL, UNREADABLE, Source, elements_by_column, read_at, read_footer
from skipstone.files.opaque.annotations import annotated, is_shredded, stored_types
from skipstone.files.parquet import FILTER_SIZES, NanCounter, open_writer, statistics_of
from skipstone.tables.arrow import arrow_schema
from skipstone.tables.parquet.thrift import CompactReader, Int32, Raw, Struct, encode_struct, with_fields
from skipstone.tables.parquetfiles import DamagedFileError, WholeFile, read_metadata, seal_of, size_of_open

#: Chunks are copied in such pieces.
_PIECE_BYTES = 4 * 1024 * 1024
_CODECS = {"none": 0, "snappy": 1, "gzip": 2, "brotli": 4, "lz4": 7, "zstd": 6}
#: Writers whose chunks are copied: readers work around faults of others by the writer's name, which a copy loses.
_WRITERS = re.compile(rb"parquet-cpp-arrow version |parquet-mr version 1\.1\d\.")
#: Fields of a column chunk that lies in another file or is encrypted.
_ELSEWHERE = (1, 8, 9)


class ChunkSource:
    """An open Parquet file that chunks are copied from."""

    def __init__(self, source: Source) -> None:
        """Raises one of UNREADABLE for what is not a plain Parquet file, or damaged."""
        self.source = source
        self.footer = read_footer(source)
        self.elements = elements_by_column(self.footer[2])

    @property
    def groups(self) -> list[Struct]:
        """The row groups."""
        return list(self.footer[4])

    @cached_property
    def parquet(self) -> WholeFile:
        """For reading columns of it."""
        self.source.seek(0)
        return WholeFile(self.source, use_threads=True)

    @property
    def is_known(self) -> bool:
        """Return whether all of the file means the same under the name of another writer."""
        plain = 7 in self.footer and 8 not in self.footer
        return plain and _WRITERS.match(bytes(self.footer.get(6, b""))) is not None

    def chunks(self, group: int) -> dict[str, list[Struct]]:
        """The chunks of a row group by their column at the top of the schema."""
        by_column: dict[str, list[Struct]] = {}
        for chunk in self.groups[group][1]:
            by_column.setdefault(chunk[3][3][0].decode(), []).append(chunk)
        return by_column


class SplicedLayout:
    """The layout of files of one schema and one set of options. Made once per task."""

    def __init__(self, schema: Schema, options: dict[str, Any]) -> None:
        """``options``: see ``open_writer``."""
        self.schema = schema
        self.bloom_columns = frozenset(options.get(FILTER_SIZES, ()))
        self.columns = arrow_schema(schema)
        self._options = options
        footer = annotated(self.encode(self.columns.empty_table()).footer, schema)
        self._footer = CompactReader(footer).struct()
        self._elements = elements_by_column(self._footer[2])
        self._opaque = frozenset(field.name for field in schema.fields if stored_types(Schema(field)))

    def encode(self, rows: pa.Table) -> ChunkSource:
        """A file in memory that holds ``rows`` (of some columns) as one row group.

        Raises ValueError for more than Arrow writes into one (2^26).
        """
        sink = pa.BufferOutputStream()
        with open_writer(sink, rows.schema, self._options, rows, rows.num_rows) as writer:
            if rows.num_rows:
                writer.write_table(rows, row_group_size=rows.num_rows)
        content = sink.getvalue()
        encoded = ChunkSource(pa.BufferReader(content))
        if sum(group[3] for group in encoded.groups[:1]) != rows.num_rows:
            raise ValueError(f"{rows.num_rows} rows were not encoded as one row group")  # the rest would be lost
        return encoded

    def copyable(self, source: ChunkSource, group: int) -> frozenset[str]:
        """Columns of which a row group is what this layout would write, but for its compression's effort."""
        if not source.is_known:
            return frozenset()
        chunks, codec = source.chunks(group), _CODECS.get(self._options["compression"])
        return frozenset(
            name
            for name, elements in self._elements.items()
            if self._is_alike(name, source.elements.get(name, ()), elements)
            and all(_is_plain(chunk) and chunk[3][4] == codec for chunk in chunks[name])
            and (name not in self.bloom_columns or all(_has_filter(chunk[3]) for chunk in chunks[name]))
        )

    def _is_alike(self, name: str, theirs: Sequence[Struct], ours: Sequence[Struct]) -> bool:
        """Return whether a column of another file says the same of itself, or can only be copied and fits as it is."""
        if _raw(theirs) == _raw(ours):
            return True
        if name not in self._opaque or not theirs:
            return False
        return list(theirs) == list(ours) or (is_shredded(theirs) and _is_same_field(theirs[0], ours[0]))

    def copied_as(self, source: ChunkSource) -> dict[str, tuple[Struct, ...]]:
        """The columns that can only be copied as ``source`` has them, and what it says of them."""
        return {name: source.elements[name] for name in self._opaque if is_shredded(source.elements.get(name, ()))}

    def footer(self, groups: list[Any], rows: int, others: Mapping[str, Sequence[Struct]]) -> bytes:
        """The footer of a file of these row groups. ``others``: what it says of some columns in place of the usual."""
        fields: dict[int, Any] = {3: rows, 4: groups}
        if others:
            below = [others.get(name, elements) for name, elements in self._elements.items()]
            elements = [*self._footer[2][:1], *chain.from_iterable(below)]
            fields[2] = [Raw(element.raw) for element in elements]
            fields[7] = [
                Raw(self._footer[7][0].raw) for element in elements if not element.get(5)
            ]  # the order of each leaf
        return with_fields(self._footer.raw, fields)


@dataclass(frozen=True)
class FreshChunks:
    """Rows of some columns as the chunks of one row group, which lie in memory. ``nans``: those of the rows."""

    encoded: ChunkSource
    nans: NanCounter
    rows: int

    def chunks(self) -> dict[str, list[Struct]]:
        """The chunks by their column."""
        return self.encoded.chunks(0)


class _Origin(NamedTuple):
    """A column chunk and the file that it is copied from."""

    source: ChunkSource
    chunk: Struct


@dataclass(frozen=True)
class _Moved:
    """A chunk in its new place: its metadata, and its column index and offset index."""

    metadata: Raw
    column_index: bytes
    offset_index: bytes


class SplicedFile:
    """An open data file made of column chunks."""

    def __init__(self, io: FileIO, path: str, layout: SplicedLayout) -> None:
        """``path`` must not exist; it is created with the first row group."""
        self.path = path
        self._io = io
        self._layout = layout
        self._at = 0
        self._groups: list[tuple[int, list[_Moved]]] = []
        self._others: dict[str, tuple[Struct, ...]] = {}
        self._nans = NanCounter()

    @cached_property
    def _sink(self) -> Any:
        sink = self._io.new_output(self.path).create(overwrite=False)
        sink.write(MAGIC)
        self._at = len(MAGIC)
        return sink

    @property
    def is_empty(self) -> bool:
        """Return whether it has no row group: there is no file then."""
        return not self._groups

    def encode(self, rows: pa.Table) -> FreshChunks:
        """``rows``, of some columns, for ``append`` or ``copy``. Several threads may encode at a time.

        Raises ValueError as ``SplicedLayout.encode`` does.
        """
        nans = NanCounter()
        nans.count(rows)
        return FreshChunks(self._layout.encode(rows), nans, rows.num_rows)

    def append(self, fresh: FreshChunks) -> None:
        """Write rows of all columns as one row group."""
        self._nans.found.update(fresh.nans.found)
        self._append([_Origin(fresh.encoded, chunk) for chunk in fresh.encoded.groups[0][1]], fresh.rows)

    def copy(self, source: ChunkSource, group: int, fresh: FreshChunks | None = None) -> None:
        """A row group of ``source``, with other values in the columns of ``fresh``; those left must be copyable."""
        chunks, replaced = source.chunks(group), set()
        origins = {
            name: [_Origin(source, chunk) for chunk in chunks.get(name, ())] for name in self._layout.columns.names
        }
        if fresh is not None:
            self._nans.found.update(fresh.nans.found)
            made = {name: [_Origin(fresh.encoded, chunk) for chunk in own] for name, own in fresh.chunks().items()}
            replaced = set(made)
            origins |= made
        kept = [field.name for field in self._layout.columns if field.name not in replaced]
        self._others |= {name: elements for name, elements in self._layout.copied_as(source).items() if name in kept}
        self._nans.count_in(source.parquet, group, [self._layout.columns.field(name) for name in kept])
        self._append(
            [origin for column_origins in origins.values() for origin in column_origins], int(source.groups[group][3])
        )

    def close(self, properties: dict[str, str]) -> dict[str, Any]:
        """Finish the file; its statistics as DataFile arguments. ``properties`` hold the table's metrics modes.

        The footer is of our making, so Arrow reads it from the storage before anybody relies on the file. Raises
        OSError when the storage does not hold what was written.
        """
        indexed = [[self._indexed(chunk) for chunk in moved] for _, moved in self._groups]
        groups = [_row_group(rows, moved, chunks) for (rows, moved), chunks in zip(self._groups, indexed, strict=True)]
        footer = self._layout.footer(groups, sum(rows for rows, _ in self._groups), self._others)
        end = seal_of(footer) + footer + TAIL.pack(len(footer), MAGIC)
        self._sink.write(end)
        self._sink.close()
        return statistics_of(self._read_back(len(end)), self._layout.schema, self._nans, properties)

    def abort(self) -> None:
        """End the file, if there is one, so that nothing is sent later; who calls this deletes it."""
        if "_sink" in vars(self):
            self._sink.close()

    def _read_back(self, tail: int) -> pq.FileMetaData:
        """The footer as it lies in the storage; ``tail``: bytes after the last index."""
        with self._io.new_input(self.path).open() as stream:
            size = size_of_open(stream)
            if size != self._at + tail:
                raise OSError(f"{self.path} has {size} bytes in the storage, {self._at + tail} were written")
            try:
                footer = read_metadata(stream)
            except DamagedFileError as error:
                raise OSError(f"{self.path} is not in the storage as it was written: {error}") from error
        rows = sum(rows for rows, _ in self._groups)
        if (footer.num_rows, footer.num_row_groups) != (rows, len(self._groups)):
            raise OSError(f"{self.path} says {footer.num_rows} rows in the storage, {rows} were written")
        return footer

    def _append(self, origins: Sequence[_Origin], rows: int) -> None:
        self._groups.append((rows, [self._move(origin.source.source, origin.chunk) for origin in origins]))

    def _move(self, source: Source, chunk: Struct) -> _Moved:
        sink, metadata = self._sink, chunk[3]
        begin = _begin(metadata)
        shift = self._at - begin
        for piece in _pieces(source, begin, metadata[7]):
            sink.write(piece)
        self._at += metadata[7]
        dictionary = metadata[11] + shift if metadata.get(11) else None
        # index pages stay behind, and so do the bloom filters that the table does not ask for
        places = {9: metadata[9] + shift, 10: None, 11: dictionary}
        moved = with_fields(metadata.raw, places | self._move_filter(source, metadata))
        return _Moved(moved, *_page_index(source, chunk, shift))

    def _move_filter(self, source: Source, metadata: Struct) -> dict[int, Any]:
        """The place of a chunk's bloom filter, which is written here; none of one that is damaged."""
        is_asked = metadata[3][0].decode() in self._layout.bloom_columns and _has_filter(metadata)
        sealed = _sealed_filter(source, metadata) if is_asked else None
        if sealed is None:
            return {8: unsealed(metadata) or None, 14: None, 15: None}
        self._sink.write(sealed.content)
        self._at += len(sealed.content)
        return {8: sealed.key_values, 14: self._at - len(sealed.content), 15: Int32(len(sealed.content))}

    def _indexed(self, moved: _Moved) -> Raw:
        """A chunk's entry in the footer; its indexes are written here."""
        fields: dict[int, Any] = {2: 0, 3: moved.metadata}
        for number, index in ((4, moved.offset_index), (6, moved.column_index)):
            if index:
                self._sink.write(index)
                fields |= {number: self._at, number + 1: Int32(len(index))}
                self._at += len(index)
        return encode_struct(fields)


def _row_group(rows: int, moved: Sequence[_Moved], chunks: list[Raw]) -> Raw:
    metadata = [CompactReader(chunk.metadata).struct() for chunk in moved]
    return encode_struct(
        {
            1: chunks,
            2: sum(struct[6] for struct in metadata),
            3: rows,
            5: _begin(metadata[0]),
            6: sum(struct[7] for struct in metadata),
        }
    )


def _is_same_field(theirs: Struct, ours: Struct) -> bool:
    """Return whether a column of another file has the same name and field id, and no nulls where ours has none."""
    return all(theirs.get(number) == ours.get(number) for number in (4, 9)) and theirs[3] <= ours[3] <= 1


def _raw(elements: Sequence[Struct]) -> list[bytes]:
    return [element.raw for element in elements]


def _is_plain(chunk: Struct) -> bool:
    """Return whether a chunk lies in the file, is not encrypted and says how many nulls it has."""
    return not any(field in chunk for field in _ELSEWHERE) and 3 in chunk[3].get(12, {})


def _has_filter(metadata: Struct) -> bool:
    """Return whether a chunk has a bloom filter that says how long it is."""
    return 14 in metadata and 15 in metadata


def _sealed_filter(source: Source, metadata: Struct) -> SealedFilter | None:
    """The filter of a chunk; None of one that is damaged, or not where the footer says: rows do not depend on it."""
    try:
        return seal_filter(read_at(source, metadata[14], metadata[15]), metadata)
    except UNREADABLE:
        return None


def _begin(metadata: Struct) -> int:
    """Where the pages of a chunk begin, the dictionary first."""
    return int(min(metadata.get(11) or metadata[9], metadata[9]))


def _pieces(source: Source, begin: int, length: int) -> Iterator[bytes]:
    for at in range(begin, begin + length, _PIECE_BYTES):
        yield read_at(source, at, min(_PIECE_BYTES, begin + length - at))


def _page_index(source: Source, chunk: Struct, shift: int) -> tuple[bytes, bytes]:
    """Column index and offset index of a chunk that lies ``shift`` further on; empty where there is none to use."""
    try:
        column_index = read_at(source, chunk[6], chunk[7]) if 6 in chunk else b""
        return column_index, _shifted(read_at(source, chunk[4], chunk[5]), shift)
    except UNREADABLE:
        return b"", b""


def _shifted(index: bytes, shift: int) -> Raw:
    """An offset index of pages that lie ``shift`` further on."""
    locations = CompactReader(index).struct()[1]
    pages = [
        encode_struct({1: location[1] + shift, 2: Int32(location[2]), 3: location.get(3, 0)}) for location in locations
    ]
    return with_fields(index, {1: pages})
