"""Metadata files of tables, each read whenever it is asked for and parsed once.

The cache goes by what a file holds, not by its name: a file that is gone, damaged or exchanged is noticed at each read.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Final

from pyiceberg.exceptions import ValidationError
from pyiceberg.io import InputFile, OutputFile, OutputStream
from pyiceberg.serializers import Compressor, ToOutputFile
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, TableMetadataV2, TableMetadataV3

from skipstone.compat.pyiceberg import copied, reread
from skipstone.tables.caches import ByteCache, content_key

_BUDGET: Final = 64 * 1024 * 1024
#: Bytes that parsed metadata takes in memory for each byte of JSON, measured at 10 to 1,000 snapshots, ...
_EXPANSION: Final = 6
#: ... and more for each field of a schema, which has few bytes of JSON: measured at 200 and 1,000 columns.
_FIELD_BYTES: Final = 1000
#: What JSON says once of each field of a schema, nested ones included.
_OF_FIELD: Final = b'"required"'

#: Parsed metadata and the bytes it takes, by the digest of its file.
_parsed: ByteCache[bytes, tuple[TableMetadata, int]] = ByteCache("parsed metadata", _BUDGET, lambda kept: kept[1])


class DamagedMetadataError(ValidationError):
    """What stands for a metadata file is no text, or was compressed and is not all there."""


def read_metadata(file: InputFile) -> TableMetadata:
    """The metadata in ``file``; what the caller changes in its lists and mappings, no other caller sees.

    Raises OSError, FileNotFoundError included, when the file cannot be read; PyIceberg's ValidationError when it holds
    no metadata, DamagedMetadataError among them.
    """
    with file.open() as source:
        content = source.read()

    def parse() -> tuple[TableMetadata, int]:
        told = _decompressed(file.location, content)
        return TableMetadataUtil.parse_raw(_text(file.location, told)), _size(told)

    return copied(_parsed.get(_key(file.location, content), parse)[0])


def write_metadata(metadata: TableMetadata, base: TableMetadata | None, file: OutputFile) -> None:
    """Write ``metadata`` to ``file``, and know from then on what is in it, unless it is new: ``base`` is None then.

    ``base`` is what ``metadata`` was made of, as ``read_metadata`` gave it. Raises OSError, and ValidationError when
    nobody could read the file.
    """
    recorded = _Recorded(file)
    ToOutputFile.table_metadata(metadata, recorded)
    if not isinstance(base, TableMetadataV2 | TableMetadataV3):
        return
    content = b"".join(recorded.parts)
    size = _size(_decompressed(file.location, content))
    _parsed.get(_key(file.location, content), lambda: (reread(metadata, base), size))


def read_stored(file: InputFile) -> bytes:
    """The JSON in the metadata file ``file``, decompressed.

    Raises OSError when it cannot be read, DamagedMetadataError when it is not all there.
    """
    with file.open() as source:
        return _decompressed(file.location, source.read())


def _decompressed(location: str, content: bytes) -> bytes:
    try:
        with Compressor.get_compressor(location).stream_decompressor(BytesIO(content)) as stream:
            return bytes(stream.read())
    except (OSError, EOFError, zlib.error) as error:  # no trouble of the storage: all of the content is here
        raise DamagedMetadataError(f"{location} cannot be decompressed: {error}") from error


def _text(location: str, told: bytes) -> str:
    try:
        return told.decode()
    except UnicodeDecodeError as error:
        raise DamagedMetadataError(f"{location} is no text: {error}") from error


def _size(told: bytes) -> int:
    """About the bytes that metadata takes in memory which is parsed of ``told``."""
    return len(told) * _EXPANSION + told.count(_OF_FIELD) * _FIELD_BYTES


def _key(location: str, content: bytes) -> bytes:
    """Of what PyIceberg makes of ``content`` in a file of this name."""
    return content_key(content, type(Compressor.get_compressor(location)).__name__)


class _Recorded(OutputFile):
    """``file``, which keeps what is written to it in ``parts``."""

    def __init__(self, file: OutputFile) -> None:
        super().__init__(file.location)
        self.parts: list[bytes] = []
        self._file = file

    def __len__(self) -> int:
        return len(self._file)

    def exists(self) -> bool:
        """As the file tells."""
        return self._file.exists()

    def to_input_file(self) -> InputFile:
        """That of the file."""
        return self._file.to_input_file()

    @contextmanager
    def create(self, overwrite: bool = False) -> Iterator[_RecordingStream]:  # type: ignore[override] # noqa: FBT001, FBT002
        """What PyIceberg writes to, in a ``with`` statement."""
        with self._file.create(overwrite) as stream:
            yield _RecordingStream(stream, self.parts)


@dataclass(frozen=True)
class _RecordingStream:
    stream: OutputStream
    parts: list[bytes]

    def write(self, content: bytes) -> int:
        self.parts.append(content)
        return self.stream.write(content)
