"""Metadata files of tables, each read whenever it is asked for and parsed once.

The cache goes by what a file holds, not by its name: a file that is gone, damaged or exchanged is noticed at each read.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Final, Literal

from pydantic import Field, field_validator
from pydantic import ValidationError as PydanticValidationError
from pyiceberg.exceptions import ValidationError
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.serializers import Compressor, ToOutputFile
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, TableMetadataV2, TableMetadataV3
from pyiceberg.table.snapshots import MetadataLogEntry
from pyiceberg.typedef import IcebergBaseModel
from pyiceberg.types import transform_dict_value_to_str
from pyiceberg.utils.config import Config

from skipstone.caches import ByteCache, ContentCache
from skipstone.compat.pyiceberg import copied
from skipstone.tables.decoding.completing import completed
from skipstone.tables.decoding.metadatatexts import KnownTexts, metadata_text

_BUDGET: Final = 64 * 1024 * 1024
#: Bytes that parsed metadata takes in memory for each byte of JSON, measured at 10 to 1,000 snapshots, ...
_EXPANSION: Final = 6
#: ... and more for each field of a schema, which has few bytes of JSON: measured at 200 and 1,000 columns.
_FIELD_BYTES: Final = 1000
#: What JSON says once of each field of a schema, nested ones included.
_OF_FIELD: Final = b'"required"'

#: PyIceberg's setting by which metadata tells what is null, too.
_WITH_NULLS: Final = "legacy-current-snapshot-id"


#: Parsed metadata, and about the bytes that it takes.
_parsed: ContentCache[tuple[TableMetadata, int]] = ContentCache("parsed metadata", _BUDGET, lambda kept: kept[1])
#: What a table's metadata was written as last, by the table's UUID.
_texts: ByteCache[str, KnownTexts] = ByteCache("texts of metadata", 16 * 1024 * 1024, lambda known: known.nbytes)


class DamagedMetadataError(ValidationError):
    """A metadata file is not text, or was compressed and is not all there."""


def read_metadata(file: InputFile) -> TableMetadata:
    """The metadata in ``file``, completed; what the caller changes in its lists and mappings, no other caller sees.

    Raises OSError, FileNotFoundError included, when the file cannot be read; PyIceberg's ValidationError when it holds
    no metadata, DamagedMetadataError among them.
    """
    with file.open() as source:
        content = source.read()

    def parse() -> tuple[TableMetadata, int]:
        plain = _decompressed(file.location, content)
        return completed(TableMetadataUtil.parse_raw(_text(file.location, plain))), _size(plain, plain)

    return copied(_parsed.get(content, parse, _form(file.location))[0])


def write_metadata(metadata: TableMetadata, base: TableMetadata | None, file: OutputFile) -> None:
    """Write ``metadata`` to ``file``, and know from then on what is in it, unless it is new: ``base`` is None then.

    ``base`` is what ``metadata`` was made of, as ``read_metadata`` gave it. Raises OSError, and ValidationError when
    nobody could read the file.
    """
    if not isinstance(base, TableMetadataV2 | TableMetadataV3) or Config().get_bool(_WITH_NULLS):
        ToOutputFile.table_metadata(metadata, file)
        return
    table = str(metadata.table_uuid)
    text = metadata_text(metadata, base, _texts.peek(table) or KnownTexts())
    parsed, encoded = text.read(), text.text().encode()
    content = Compressor.get_compressor(file.location).bytes_compressor()(encoded)
    with file.create() as stream:
        stream.write(content)
    _texts.put(table, text.known())
    _parsed.put(content, (parsed, _size(encoded, text.rest.encode())), _form(file.location))


@dataclass(frozen=True)
class OldMetadata:
    """The needed parts of replaced metadata: ``log``, the files before it, oldest first."""

    log: tuple[str, ...]
    properties: Mapping[str, str]


def read_old_metadata(file: InputFile) -> OldMetadata:
    """Return the content of ``file`` without snapshots, which take the most time. Raises as ``read_metadata`` does."""
    try:
        head = _Head.model_validate_json(_text(file.location, read_stored(file)))
    except PydanticValidationError as error:
        raise DamagedMetadataError(f"{file.location} holds no metadata: {error}") from error
    return OldMetadata(tuple(entry.metadata_file for entry in head.metadata_log), head.properties)


class _Head(IcebergBaseModel):
    """The fields that all metadata has, and those that are read here, as PyIceberg reads them."""

    format_version: Literal[1, 2, 3] = Field(alias="format-version")
    location: str
    metadata_log: list[MetadataLogEntry] = Field(alias="metadata-log", default_factory=list)
    properties: dict[str, str] = Field(default_factory=dict)

    @field_validator("properties", mode="before")
    @classmethod
    def _as_texts(cls, value: object) -> object:
        return transform_dict_value_to_str(value) if isinstance(value, dict) else value


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


def _text(location: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DamagedMetadataError(f"{location} is not text: {error}") from error


def _size(content: bytes, schemas: bytes) -> int:
    """Return about the bytes of memory for metadata parsed from ``content``; ``schemas``: its part with schemas."""
    return len(content) * _EXPANSION + schemas.count(_OF_FIELD) * _FIELD_BYTES


def _form(location: str) -> str:
    """Return the form in which PyIceberg reads a file of this name."""
    return type(Compressor.get_compressor(location)).__name__
