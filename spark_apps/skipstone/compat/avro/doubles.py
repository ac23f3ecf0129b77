"""Doubles in Avro files, read exactly: PyIceberg's compiled decoder reads them with the precision of floats.

Partition values are read that way, and written back when a commit rewrites a manifest: 0.1 became another number.
What we read ourselves has readers of its own; other users of PyIceberg in the process, as in a notebook, see no change
unless the process commits.
"""

from __future__ import annotations

from functools import lru_cache

from pyiceberg.avro import STRUCT_DOUBLE
from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.avro.reader import DoubleReader, Reader
from pyiceberg.avro.resolver import ReadSchemaResolver, SchemaPartnerAccessor
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.schema import Schema, visit_with_partner
from pyiceberg.types import DoubleType, IcebergType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from skipstone.compat.avro.naming import read_schema
from skipstone.compat.avro.whole import read_records

_INEXACT = 0.1
#: Iceberg's read version that knows deletion vectors and row ids.
_READ_VERSION = 3
#: Schemas of manifests whose reading is found out once: one for each form of a table and its partitions.
_SCHEMAS_KEPT = 64


def _exactly(_: DoubleReader, decoder: BinaryDecoder) -> float:
    return float(STRUCT_DOUBLE.unpack(decoder.read(STRUCT_DOUBLE.size))[0])


class _ExactDoubleReader(DoubleReader):
    def read(self, decoder: BinaryDecoder) -> float:
        return _exactly(self, decoder)


class _ExactResolver(ReadSchemaResolver):
    def visit_double(self, double_type: DoubleType, partner: IcebergType | None) -> Reader:
        return _ExactDoubleReader()  # type: ignore[no-untyped-call]


def _reader(written: Schema | IcebergType, wanted: Schema | IcebergType | None, resolver: _ExactResolver) -> Reader:
    reader: Reader = visit_with_partner(written, wanted, resolver, SchemaPartnerAccessor())  # type: ignore[misc]
    return reader


def exact_reader(kind: IcebergType) -> Reader:
    """PyIceberg's reader of values of ``kind`` that reads all eight bytes of a double."""
    return _reader(kind, kind, _ExactResolver())


def exact_entries(manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
    """All entries of ``manifest`` with all fields of format version 3, as they are written.

    Raises OSError when it cannot be read, and NotWholeError when it is not all there.
    """
    return read_records(io.new_input(manifest.manifest_path), _entry_reader)


@lru_cache(maxsize=_SCHEMAS_KEPT)
def _entry_reader(written: str) -> Reader:
    schema = AvroSchemaConversion().avro_to_iceberg(read_schema(written))
    resolver = _ExactResolver(
        {-1: ManifestEntry, 2: DataFile}, {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent}
    )
    return _reader(schema, MANIFEST_ENTRY_SCHEMAS[_READ_VERSION], resolver)


def read_doubles_exactly() -> None:
    """Make all of this process read all eight bytes of a double; a process that commits has to.

    PyIceberg reads the manifests that a commit rewrites in threads of its own. Does nothing once PyIceberg is right.
    """
    if new_decoder(STRUCT_DOUBLE.pack(_INEXACT)).read_double() != _INEXACT:
        DoubleReader.read = _exactly  # type: ignore[method-assign, assignment]
