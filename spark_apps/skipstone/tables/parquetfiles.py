"""Reads Parquet files with all their rows or not at all: Arrow passes by what a damaged header makes of a page.

Whatever reads rows of Parquet files in the data plane reads them here. Must not know what the rows mean.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from propcache.api import cached_property
from skipstone_core.errors import BadData
from skipstone_core.reasons import Reason

from skipstone.tables.parquet.longcolumns import joined, long_chunks
from skipstone.tables.parquet.longpages import LongChunk, dictionary_bytes
from skipstone.tables.parquet.pagesizes import PagedChunk, UnevenRows, opened
from skipstone.tables.parquet.unpacking import is_of_texts, unpacked

#: Rows of a batch where the caller does not say.
BATCH_ROWS = 64 * 1024
#: Bytes that are decoded at once, about: a dictionary or a codec may hold a long text many times in few bytes.
BATCH_BYTES = 32 * 1024 * 1024
#: Rows that are decoded at once, at least, and the part of the bytes that is put together.
_LEAST_ROWS = 16
_PARTS = 2
#: Pages that take more than so many times the bytes that are decoded at once are not unpacked as a whole.
_LONG_PAGES = 2
#: Bytes that a number in a dictionary and its levels take at most.
_CODE_BYTES = 8
#: Bytes in memory of values that are all of one length; those of FIXED_LEN_BYTE_ARRAY have the one of their column.
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
#: The encoding of values that repeat the beginning of those before them.
_PREFIXED = "DELTA_BYTE_ARRAY"
#: An open file, or the path of one on this machine.
ParquetSource = Any
#: Before a footer of ours: these bytes, and the CRC-32 of the footer, which Parquet does not protect.
_SEAL = b"SKIPSEAL"
SEAL_BYTES = len(_SEAL) + 4
#: Before a seal of ours: these bytes, the CRC-32 of all page indexes, which stand before it, and their length.
_PAGES_SEAL = b"SKIPPAGE"
_PAGES_SEAL_BYTES = len(_PAGES_SEAL) + 4 + 8
#: Behind it: its length and the magic.
_TRAILER_BYTES = 8
#: Bytes at a file's end that are read at once, in the hope that the footer is in them.
_GUESS_BYTES = 64 * 1024
#: How files that Arrow wrote begin to say so. Checksums of other writers are not trusted.
_OUR_WRITER = "parquet-cpp-arrow"
#: What Spark writes into files whose dates and times follow the calendar before its version 3.
_OLD_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_SPARK_VERSION = b"org.apache.spark.version"
#: What Arrow says of a page that is not the one that was written, and of bytes that no codec or header can be.
_WRONG_BYTES = re.compile(
    r"CRC checksum|decompress|inflate|GZipCodec|Corrupt \w+ compressed data|deserialize thrift", re.IGNORECASE
)


class DamagedFileError(pa.ArrowInvalid):  # type: ignore[misc]  # Arrow has no types
    """A file gives other rows than its footer tells, or pages that are not those that were written."""


@contextmanager
def naming_damage(what: str) -> Iterator[None]:
    """Raise BadData (SOURCE_UNREADABLE) that names ``what``, a file of a table with its path, when it is damaged."""
    try:
        yield
    except DamagedFileError as error:
        message = f"{what} is damaged: {error}. Restore it from a copy, or roll the table back."
        raise BadData(Reason.SOURCE_UNREADABLE, message) from error


class WholeFile:
    """An open Parquet file. Checksums of pages are verified where Arrow wrote them, as it did in all files of ours."""

    def __init__(
        self,
        source: ParquetSource,
        metadata: pq.FileMetaData | None = None,
        *,
        use_threads: bool = False,
        **options: Any,
    ) -> None:
        """``metadata``: the file's footer where it is known. ``options``: of ``pyarrow.parquet.ParquetFile``.

        Raises DamagedFileError for a footer whose row groups are not all of its rows, and what Arrow raises.
        """
        metadata = metadata or read_metadata(source)
        options.setdefault("page_checksum_verification", (metadata.created_by or "").startswith(_OUR_WRITER))
        self._options = options
        self._source = source
        self._file = pq.ParquetFile(source, metadata=metadata, **options)
        self._use_threads = use_threads
        self.metadata: pq.FileMetaData = self._file.metadata
        #: Rows of each row group.
        self.group_rows = tuple(self.metadata.row_group(n).num_rows for n in range(self.metadata.num_row_groups))
        _require("the file", sum(self.group_rows), self.metadata.num_rows)

    @property
    def schema(self) -> pq.ParquetSchema:
        """The columns as Parquet has them."""
        return self._file.schema

    @property
    def schema_arrow(self) -> pa.Schema:
        """The columns as Arrow has them."""
        return self._file.schema_arrow

    def read(self, columns: Sequence[str]) -> pa.Table:
        """All rows. Raises DamagedFileError, and what Arrow raises when the storage fails."""
        self._prefetch(range(len(self.group_rows)), columns)
        with _damage():
            table = self._file.read(columns=list(columns), use_threads=self._use_threads).select(columns)
        _require("the file", table.num_rows, self.metadata.num_rows)
        return table

    def read_group(self, group: int, columns: Sequence[str]) -> pa.Table:
        """The rows of a row group. Raises as ``read`` does."""
        self._prefetch([group], columns)
        with _damage():
            table = self._file.read_row_group(group, columns=list(columns), use_threads=self._use_threads)
        _require(f"row group {group}", table.num_rows, self.group_rows[group])
        return table.select(columns)

    def batches(
        self,
        columns: Sequence[str],
        groups: Collection[int] | None = None,
        rows: int = BATCH_ROWS,
        nbytes: int = BATCH_BYTES,
        *,
        packed: Collection[str] = (),
    ) -> Iterator[pa.RecordBatch]:
        """The rows of row groups (None: of all), at most so many ``rows`` at once, and about ``nbytes`` in memory
        unless a few rows are more. Texts are texts, also where a file's schema says that they are in a dictionary.
        ``packed``: columns of texts that come in dictionaries where these are small.

        Raises as ``read`` does, maybe after the last batch of a row group: until then a row may hold values of
        several rows, so whoever stops before must not use what it has.
        """
        for group in range(len(self.group_rows)) if groups is None else groups:
            count = 0
            self._prefetch([group], columns)
            for batch in self._decoded(columns, group, rows, nbytes, packed):
                count += batch.num_rows
                yield batch.select(columns)
            _require(f"row group {group}", count, self.group_rows[group])

    def _prefetch(self, groups: Collection[int], columns: Sequence[str]) -> None:
        """Let a file in an object store ask for all column chunks that will be read at once."""
        if (prefetch := getattr(self._source, "prefetch", None)) is None:
            return
        chunks = [chunk for group in groups for chunk in _chunks(self.metadata.row_group(group), columns)]
        starts = [
            min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset) for chunk in chunks
        ]
        prefetch([(at, at + chunk.total_compressed_size) for at, chunk in zip(starts, chunks, strict=True)])

    def _decoded(
        self, columns: Sequence[str], group: int, rows: int, nbytes: int, packed: Collection[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """The batches of a row group. Texts that a dictionary repeats stay in it until few enough rows are cut off;
        what else may be long is decoded in pieces, which are put together where they are not.
        """
        if long := self._long(columns, group, nbytes):
            others = [name for name in columns if name not in long]
            decoded = self._decoded(others, group, rows, nbytes // _PARTS) if others else None
            with opened(self._source) as source, _damage():
                yield from joined(source, long, decoded, self.schema_arrow, nbytes // _PARTS)
            return
        decoding = self._decoding(columns, group, rows, nbytes)
        if decoding.rows == rows and not decoding.kept and decoding.uneven is None:
            small = [name for name in packed if self._has_small_dictionary(name, group)]
            file = self._with_dictionaries(small) if small else self._file
            yield from self._batches(file, columns, group, rows)
            return
        file = self._with_dictionaries(decoding.kept) if decoding.kept else self._file
        held: list[pa.RecordBatch] = []
        count = size = 0
        decoded = self._fitting(file, columns, group, decoding)
        for batch in (piece for whole in decoded for piece in unpacked(whole, nbytes // _PARTS, decoding.kept)):
            if held and (
                count + batch.num_rows > rows or size + batch.nbytes > nbytes // _PARTS or _has_dictionaries(batch)
            ):
                yield from _together(held)
                held, count, size = [], 0, 0
            held.append(batch)
            count, size = count + batch.num_rows, size + batch.nbytes
        if held:
            yield from _together(held)

    def _long(self, columns: Sequence[str], group: int, nbytes: int) -> Mapping[str, LongChunk]:
        """The columns of which no page is to be unpacked as a whole."""
        chunks = _chunks(self.metadata.row_group(group), columns)
        if all(chunk.total_uncompressed_size <= _LONG_PAGES * nbytes for chunk in chunks):
            return {}
        checks = bool(self._options["page_checksum_verification"])
        with opened(self._source) as source:
            by_name = long_chunks(source, self._file, group, columns, _LONG_PAGES * nbytes)
        return {name: replace(chunk, checks=checks) for name, chunk in by_name.items()}

    def _decoding(self, columns: Sequence[str], group: int, rows: int, nbytes: int) -> _Decoding:
        """How a row group is decoded by about ``nbytes`` at once.

        Of repeated values in structs and lists the longest stands for all, and the size of the chunk for the longest
        where Arrow gives no dictionary, or values repeat the beginning of those before them.
        """
        row_group = self.metadata.row_group(group)
        chunks, count = _chunks(row_group, columns), max(row_group.num_rows, 1)
        at_once = min(rows, count)
        usual = sum(self._size(chunk) for chunk in chunks) // count
        kept = {name for name in columns if is_of_texts(self.schema_arrow.field(name).type)}
        repeated = [chunk for chunk in chunks if chunk.physical_type == "BYTE_ARRAY" and _repeats(chunk)]
        longest: dict[str, int] = {}
        if (usual + sum(int(chunk.total_uncompressed_size) for chunk in repeated)) * at_once > nbytes:
            longest = self._longest_repeated([chunk for chunk in repeated if _PREFIXED not in chunk.encodings], group)
            for chunk in repeated:
                path, size = chunk.path_in_schema, int(chunk.total_uncompressed_size)
                each = longest.get(path, size) * max(int(chunk.num_values), count) // count
                if path in columns and path in longest:
                    kept |= {path} if each * at_once * _PARTS > nbytes and self._is_coded(chunk, nbytes) else set()
                else:
                    usual += each
        most = min(rows, max(_LEAST_ROWS, nbytes // max(usual, 1)))
        paged = [self._paged(chunk, count, longest) for chunk in chunks]
        return _Decoding(most, frozenset(kept), UnevenRows.of(paged, min(most, count), nbytes))

    def _has_small_dictionary(self, column: str, group: int) -> bool:
        """Return whether texts take a byte each at most, their dictionary included: a plain one takes four."""
        chunks = _chunks(self.metadata.row_group(group), [column])
        return len(chunks) == 1 and _repeats(chunks[0]) and chunks[0].total_uncompressed_size <= chunks[0].num_values

    def _is_coded(self, chunk: Any, nbytes: int) -> bool:
        """Return whether all values of a chunk are in a dictionary of at most ``nbytes``: Arrow adds the others."""
        size = int(chunk.total_uncompressed_size)
        if size <= nbytes // (_PARTS * _PARTS):
            return True
        begin = chunk.dictionary_page_offset or chunk.data_page_offset
        with opened(self._source) as source:
            held = dictionary_bytes(source, begin, begin + chunk.total_compressed_size)
        return 0 < held <= nbytes and size - held <= _CODE_BYTES * chunk.num_values + nbytes // (_PARTS * _PARTS)

    def _paged(self, chunk: Any, rows: int, longest: Mapping[str, int]) -> PagedChunk:
        """A column chunk by its pages."""
        begin, path = chunk.data_page_offset, chunk.path_in_schema
        return PagedChunk(
            start=begin,
            end=min(begin, chunk.dictionary_page_offset or begin) + chunk.total_compressed_size,
            values=chunk.num_values,
            rows=rows,
            nbytes=self._size(chunk),
            width=self._widths.get(path),
            repeated=longest.get(path, 0),
            is_nested=path in self._nested,
        )

    @cached_property
    def _nested(self) -> frozenset[str]:
        """Columns of which a row may have several values."""
        leaves = [self.schema.column(number) for number in range(len(self.schema))]
        return frozenset(leaf.path for leaf in leaves if leaf.max_repetition_level)

    def _size(self, chunk: Any) -> int:
        """Bytes that the values of a column chunk take in memory, each text that is repeated once."""
        width = self._widths.get(chunk.path_in_schema)
        return int(chunk.total_uncompressed_size if width is None else width * chunk.num_values)

    @cached_property
    def _widths(self) -> dict[str, int]:
        """Bytes in memory of each value of columns whose values are all of one length."""
        leaves = [self.schema.column(number) for number in range(len(self.schema))]
        widths = {leaf.path: _WIDTHS.get(leaf.physical_type, leaf.length) for leaf in leaves}
        return {path: width for path, width in widths.items() if width > 0}

    def long_texts(self, columns: Collection[str], group: int, nbytes: int) -> list[str]:
        """Those of some columns of texts, each in a dictionary, that have one of more than ``nbytes``."""
        chunks = _chunks(self.metadata.row_group(group), [*columns])
        longest = self._longest_repeated(chunks, group)
        return [name for name in columns if longest.get(name, nbytes + 1) > nbytes]

    def _longest_repeated(self, chunks: Sequence[Any], group: int) -> dict[str, int]:
        """Bytes of the longest value in the dictionary of each chunk of texts, where Arrow gives it."""
        paths = [chunk.path_in_schema for chunk in chunks]
        if not paths:
            return {}
        with _damage():
            rows = self._with_dictionaries(paths).iter_batches(1, row_groups=[group], columns=paths, use_threads=False)
            first = next(rows, None)
        dictionaries = (
            [] if first is None else [dictionary for column in first.columns for dictionary in _dictionaries(column)]
        )
        if len(dictionaries) != len(paths):
            return {}
        lengths = (pc.max(pc.binary_length(dictionary)).as_py() for dictionary in dictionaries)
        return {path: length or 0 for path, length in zip(paths, lengths, strict=True)}

    def _with_dictionaries(self, paths: Collection[str]) -> pq.ParquetFile:
        """The file, with the texts of some columns as dictionaries."""
        options = {**self._options, "read_dictionary": sorted(paths)}
        return pq.ParquetFile(self._source, metadata=self.metadata, **options)

    def _fitting(
        self, file: pq.ParquetFile, columns: Sequence[str], group: int, decoding: _Decoding
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a row group, as many at once as are few enough bytes by what their pages say."""
        if decoding.uneven is None:
            yield from self._batches(file, columns, group, decoding.rows)
            return
        with opened(self._source) as source:
            sizes, start = decoding.uneven.sizes(source), 0
            batches = self._batches(file, columns, group, sizes.fitting(0))
            while batch := next(batches, None):
                yield batch
                start += batch.num_rows
                file.reader.set_batch_size(sizes.fitting(start))  # Arrow looks at it before each batch

    def _batches(self, file: pq.ParquetFile, columns: Sequence[str], group: int, rows: int) -> Iterator[pa.RecordBatch]:
        threads = self._use_threads and len(columns) > 1  # they take columns; to wait for one of one only costs time
        with _damage():
            yield from file.iter_batches(rows, row_groups=[group], columns=list(columns), use_threads=threads)


@dataclass(frozen=True)
class _Decoding:
    """How a row group is decoded: ``rows`` at once, and the columns that are ``kept`` in a dictionary at first.

    ``uneven``: what may have most of its bytes in few rows.
    """

    rows: int
    kept: frozenset[str]
    uneven: UnevenRows | None


def _dictionaries(values: pa.Array) -> list[pa.Array]:
    """The dictionaries of texts that values are in, nested ones too, in the order of Parquet's columns."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return [values.dictionary] if is_of_texts(kind) else []
    if pa.types.is_struct(kind):
        return [dictionary for at in range(kind.num_fields) for dictionary in _dictionaries(values.field(at))]
    if pa.types.is_map(kind):
        return [*_dictionaries(values.keys), *_dictionaries(values.items)]
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return _dictionaries(values.values) if is_list else []


def _chunks(group: Any, columns: Sequence[str]) -> list[Any]:
    """The column chunks of a row group that hold ``columns``, whole ones, whose names may have dots."""
    wanted = tuple(f"{name}." for name in columns)
    chunks = map(group.column, range(group.num_columns))
    return [chunk for chunk in chunks if f"{chunk.path_in_schema}.".startswith(wanted)]


def _repeats(chunk: Any) -> bool:
    """Return whether a column chunk may hold a long value many times in few bytes."""
    return any("DICTIONARY" in encoding or encoding == _PREFIXED for encoding in chunk.encodings)


def _has_dictionaries(batch: pa.RecordBatch) -> bool:
    """Return whether values, nested ones too, are in dictionaries in memory: they take more as soon as they are not."""
    return any("dictionary<" in str(kind) for kind in batch.schema.types)


def _together(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return pa.Table.from_batches(batches).combine_chunks().to_batches() if len(batches) > 1 else batches


def read_metadata(source: ParquetSource) -> pq.FileMetaData:
    """The footer of a file: its path, or the open file. Raises DamagedFileError, and what Arrow raises."""
    if isinstance(source, str):
        with Path(source).open("rb") as opened:
            return read_metadata(opened)
    return metadata_of(read_tail(source))


def follows_old_calendar(footer: pq.FileMetaData) -> bool:
    """Return whether dates and times of a file follow the calendar that Spark had before its version 3."""
    metadata = footer.metadata or {}
    return any(name in metadata for name in _OLD_CALENDAR) or metadata.get(_SPARK_VERSION, b"3") < b"3"


def read_tail(source: Any) -> bytes:
    """The end of an open file: its whole footer and the seal before it, or as much as there is."""
    size = size_of_open(source)
    tail = _last_bytes(source, size, _GUESS_BYTES)
    wanted = _footer_length(tail) + _TRAILER_BYTES + SEAL_BYTES
    if wanted <= len(tail) or wanted > size + SEAL_BYTES:
        return tail
    return _last_bytes(source, size, wanted)


def size_of_open(source: Any) -> int:
    """The size of an open file, which is at its end then."""
    size = source.seek(0, os.SEEK_END)
    return int(source.tell() if size is None else size)


def metadata_of(tail: bytes) -> pq.FileMetaData:
    """Return the footer of a file. Raises DamagedFileError, and as Arrow does for bytes that are not a footer."""
    require_seal(tail)  # first: some changed footers end the process in Arrow
    return pq.read_metadata(pa.BufferReader(tail))


def require_seal(tail: bytes) -> None:
    """Raise DamagedFileError when the end of a file is not what was written. Files of others have no seal."""
    start = len(tail) - _TRAILER_BYTES - _footer_length(tail) - SEAL_BYTES
    if start >= 0 and tail.startswith(_SEAL, start):
        if tail[start : start + SEAL_BYTES] != seal_of(tail[start + SEAL_BYTES : -_TRAILER_BYTES]):
            raise DamagedFileError("the footer is not the one that was written")
    elif (other := tail.rfind(_SEAL)) >= 0:
        sealed = tail[other + SEAL_BYTES : -_TRAILER_BYTES]
        if tail[other : other + SEAL_BYTES] == seal_of(sealed):
            raise DamagedFileError("the length of the footer is not the one that was written")


def seal_of(footer: bytes) -> bytes:
    """Return the bytes before the footer of our files: other readers skip them, since no offset leads there."""
    return _SEAL + zlib.crc32(footer).to_bytes(4, "little")


def seal_of_pages(indexes: bytes) -> bytes:
    """Return the bytes behind the page indexes of our files."""
    return _PAGES_SEAL + zlib.crc32(indexes).to_bytes(4, "little") + len(indexes).to_bytes(8, "little")


def read_page_indexes(source: Any) -> tuple[int, bytes] | None:
    """Where the page indexes of an open file begin, and all of them; None where these are not those that were written,
    or there is no seal to tell.
    """
    size = size_of_open(source)
    length = _footer_length(_last_bytes(source, size, _TRAILER_BYTES))
    behind = size - _TRAILER_BYTES - length - SEAL_BYTES
    seal = _bytes_at(source, behind - _PAGES_SEAL_BYTES, _PAGES_SEAL_BYTES)
    count = int.from_bytes(seal[-8:], "little")
    begin = behind - _PAGES_SEAL_BYTES - count
    if not seal.startswith(_PAGES_SEAL) or begin < 0:
        return None
    content = _bytes_at(source, begin, count)
    return (begin, content) if seal_of_pages(content) == seal else None


def _bytes_at(source: Any, begin: int, count: int) -> bytes:
    source.seek(max(0, begin))
    return _read(source, count)


def _last_bytes(source: Any, size: int, count: int) -> bytes:
    return _bytes_at(source, size - count, count)


def _read(source: Any, count: int) -> bytes:
    content = bytearray()
    while len(content) < count and (more := source.read(count - len(content))):  # a file without a buffer may give less
        content += more
    return bytes(content)


def _footer_length(tail: bytes) -> int:
    return int.from_bytes(tail[-_TRAILER_BYTES:-4], "little")


@contextmanager
def _damage() -> Iterator[None]:
    """Raise DamagedFileError for what Arrow finds wrong with the bytes, not for a storage that does not answer."""
    try:
        yield
    except pa.ArrowInvalid as error:
        raise DamagedFileError(str(error)) from error
    except OSError as error:
        if _WRONG_BYTES.search(str(error)):
            raise DamagedFileError(str(error)) from error
        raise


def _require(what: str, read: int, expected: int) -> None:
    if read != expected:
        raise DamagedFileError(f"{read} of {expected} rows of {what} can be read")
