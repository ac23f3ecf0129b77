"""Applies delete files to the rows of one data file: position deletes, deletion vectors, equality deletes.

Used by the reader only. Must not ignore a delete: what cannot be read raises.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc
from pyiceberg.io import InputStream
from pyiceberg.manifest import FileFormat
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.types import IcebergType, LongType, StringType
from pyroaring import BitMap64

from skipstone.caches import ByteCache
from skipstone.files.avro.columns import read_avro_columns
from skipstone.tables.arrow import field_id
from skipstone.tables.deletes import PATH_FIELD_ID
from skipstone.tables.parquetfiles import DamagedFileError, WholeFile, naming_damage
from skipstone.tables.storage import ON_VOLUMES, FileAccess

POSITION_FIELD_ID = 2147483545
#: What a deletion vector begins with, after its length; its checksum follows it.
VECTOR_MAGIC = bytes.fromhex("d1d33964")
REFERENCED_FILE = "referenced-data-file"
_LENGTH_BYTES = _CHECKSUM_BYTES = 4
POSITION_CONTENT = 1
EQUALITY_CONTENT = 2


@dataclass(frozen=True)
class _Column:
    """A column of a delete file, and its type in the table."""

    number: int
    kind: IcebergType


_POSITION_COLUMNS: Final = (_Column(PATH_FIELD_ID, StringType()), _Column(POSITION_FIELD_ID, LongType()))


@dataclass(frozen=True)
class DeleteDescription:
    """A delete file as tasks take it.

    ``content``: 1 position (a deletion vector when ``file_format`` is PUFFIN), 2 equality. ``equality_ids``: field
    ids whose equality deletes a row; ``equality_kinds``: their types in the table. ``path``: of the delete file.
    ``is_own``: it has positions of one data file only. ``access``: how it is reached. ``place``: offset and length of a
    deletion vector in its file, when they are known.
    """

    path: str
    content: int
    file_format: str
    equality_ids: tuple[int, ...] = ()
    equality_kinds: tuple[IcebergType, ...] = ()
    is_own: bool = False
    access: FileAccess = ON_VOLUMES
    place: tuple[int, int] | None = None


class Deletions:
    """All deletes of one data file, loaded."""

    def __init__(self, path: str, deletes: Sequence[DeleteDescription], types: dict[int, pa.DataType]) -> None:
        """Read the delete files of the data file ``path``; ``types`` of the equality columns by field id."""
        positions = [_positions(delete, path) for delete in deletes if delete.content == POSITION_CONTENT]
        self._positions = np.unique(np.concatenate([np.empty(0, np.int64), *positions]))
        self._equality = [
            (delete.equality_ids, equality_rows(delete, types))
            for delete in deletes
            if delete.content == EQUALITY_CONTENT
        ]

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        """Rows deleted by position, ascending."""
        return self._positions

    @property
    def is_by_value(self) -> bool:
        """Return whether rows are deleted by what they say, so that only reading them tells which."""
        return bool(self._equality)

    def live_rows(self, positions: npt.NDArray[np.int64], columns: dict[int, pa.Array]) -> pa.Array | None:
        """Which of the rows at ``positions`` (ascending) live; None when all do. ``columns``: equality columns."""
        live = ~_among(positions, self._positions)
        for ids, deleted in self._equality:
            live &= ~_rows_in([columns[field] for field in ids], deleted)
        return None if live.all() else pa.array(live)


def _among(positions: npt.NDArray[np.int64], deleted: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which ascending positions are deleted."""
    if not len(positions):
        return np.zeros(0, dtype=bool)
    first, last = np.searchsorted(deleted, [positions[0], positions[-1] + 1])
    return np.isin(positions, deleted[first:last], assume_unique=True)


def _rows_in(rows: list[pa.Array], wanted: list[pa.Array]) -> npt.NDArray[np.bool_]:
    """Which tuples of ``rows`` are among the tuples of ``wanted``; null equals null."""
    count = len(rows[0])
    codes = np.zeros(count + len(wanted[0]), dtype=np.int64)
    for column, other in zip(rows, wanted, strict=True):
        both = pc.dictionary_encode(pa.concat_arrays([column, other]), null_encoding="encode")
        mixed = codes * max(len(both.dictionary), 1) + both.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(mixed, return_inverse=True)[1].astype(np.int64)
    return np.isin(codes[:count], codes[count:])


def _positions(delete: DeleteDescription, path: str) -> npt.NDArray[np.int64]:
    if delete.file_format == "PUFFIN":
        return _vector(delete, path)
    if delete.is_own:
        return _own.get(delete.path, lambda: _own_positions(delete))
    table = _read_columns(_DeleteFile(delete.path, delete.file_format, delete.access), _POSITION_COLUMNS)
    mine = table.filter(pc.equal(table.column(0), path))
    return np.asarray(mine.column(1).to_numpy(), dtype=np.int64)


#: Positions of delete files of one data file each.
_own: ByteCache[str, npt.NDArray[np.int64]] = ByteCache(
    "positions", 64 * 1024 * 1024, lambda positions: positions.nbytes
)


def _own_positions(delete: DeleteDescription) -> npt.NDArray[np.int64]:
    with _opened(delete.path, delete.access) as source:
        file = WholeFile(source)
        (name,) = (field.name for field in file.schema_arrow if field_id(field) == POSITION_FIELD_ID)
        return np.asarray(file.read([name]).column(0).to_numpy(), dtype=np.int64)


def _vector(delete: DeleteDescription, path: str) -> npt.NDArray[np.int64]:
    """Rows that a deletion vector names; of a file that holds several, only that of ``path`` is read."""
    with _opened(delete.path, delete.access) as source:
        if delete.place is not None:
            offset, length = delete.place
            source.seek(offset)
            return _vector_rows(source.read(length))
        puffin = PuffinFile(source.read())
        vectors = [np.empty(0, np.int64)]
        for blob in puffin.footer.blobs:
            rows = _vector_rows(puffin.get_blob_payload(blob))
            if blob.properties[REFERENCED_FILE] == path:
                vectors.append(rows)
        return np.concatenate(vectors)


def _vector_rows(blob: bytes) -> npt.NDArray[np.int64]:
    """The rows of a deletion vector: its length, magic and bitmap, and the CRC-32 of these two."""
    end = len(blob) - _CHECKSUM_BYTES
    length, checked, checksum = blob[:_LENGTH_BYTES], blob[_LENGTH_BYTES:end], blob[end:]
    is_whole = int.from_bytes(length, "big") == len(checked) and zlib.crc32(checked) == int.from_bytes(checksum, "big")
    if not is_whole or not checked.startswith(VECTOR_MAGIC):
        raise DamagedFileError("a deletion vector is not the one that was written")
    return np.array(BitMap64.deserialize(checked[len(VECTOR_MAGIC) :]).to_array(), dtype=np.int64)


def encode_vector(positions: npt.NDArray[np.int64]) -> bytes:
    """``positions`` (ascending) as a deletion vector, see ``_vector_rows``."""
    bitmap = BitMap64(positions.astype(np.uint64))
    bitmap.run_optimize()
    checked = VECTOR_MAGIC + bitmap.serialize()
    length, checksum = len(checked), zlib.crc32(checked)
    return length.to_bytes(_LENGTH_BYTES, "big") + checked + checksum.to_bytes(_CHECKSUM_BYTES, "big")


def equality_rows(delete: DeleteDescription, types: dict[int, pa.DataType]) -> list[pa.Array]:
    """The rows of an equality delete file: a column for each of its ids, in ``types``. Raises BadData for damage."""
    pairs = zip(delete.equality_ids, delete.equality_kinds, strict=True)
    columns = tuple(_Column(number, kind) for number, kind in pairs)
    table = _read_columns(_DeleteFile(delete.path, delete.file_format, delete.access), columns)
    return [
        table.column(position).combine_chunks().cast(types[field]) for position, field in enumerate(delete.equality_ids)
    ]


@dataclass(frozen=True)
class _DeleteFile:
    """Where a delete file is, in which format, and how it is reached."""

    path: str
    file_format: str
    access: FileAccess


@lru_cache(maxsize=16)
def _read_columns(delete: _DeleteFile, columns: tuple[_Column, ...]) -> pa.Table:
    """Columns of a delete file by field id; one delete file often serves many data files of a task."""
    with _opened(delete.path, delete.access) as source:
        if delete.file_format == FileFormat.AVRO.value:
            return read_avro_columns(source, {column.number: column.kind for column in columns})
        if delete.file_format == FileFormat.ORC.value:
            return _orc_columns(source, [column.number for column in columns])
        file = WholeFile(source)
        names = {field_id(field): field.name for field in file.schema_arrow}
        for column in columns:
            if column.number not in names:
                raise DamagedFileError(f"it lacks the column of the field {column.number}")
        if PATH_FIELD_ID in names:  # one path stands in many rows
            file = WholeFile(source, file.metadata, read_dictionary=[names[PATH_FIELD_ID]])
        return file.read([names[column.number] for column in columns])


def _orc_columns(source: InputStream, field_ids: Sequence[int]) -> pa.Table:
    try:
        file = orc.ORCFile(source)
        names = {field_id(field): field.name for field in file.schema}
        return file.read([names[number] for number in field_ids]).select([names[number] for number in field_ids])
    except (pa.ArrowInvalid, KeyError) as error:
        raise DamagedFileError(str(error)) from error


@contextmanager
def _opened(path: str, access: FileAccess) -> Iterator[InputStream]:
    with naming_damage(f"the delete file {path}"), access.open(path).new_input(path).open() as source:
        yield source
