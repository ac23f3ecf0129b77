"""Tables of the catalogs of a Spark session: opened from their metadata files, which never change.

Used by ``relations``, and to find indexes. The user's session is all the configuration there is. Must not know plans.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import NamedTuple

from cachetools import LRUCache
from py4j.protocol import Py4JJavaError
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from skipstone.compat.icebergjava import (
    BASE_TABLE,
    IDENTIFIERS,
    METADATA,
    NO_SUCH_TABLE,
    REFRESHING,
    STATIC_OPERATIONS,
    BaseTable,
    IcebergCatalog,
    IcebergIO,
    TableIdentifier,
    TableOperations,
    VendedIO,
    vended_properties,
)
from skipstone.compat.icebergjava import TableMetadata as JavaMetadata
from skipstone.compat.java import JavaObject, JavaType, Jvm, java_class
from skipstone.compat.methods import IsA, Path, getter, values_at
from skipstone.tables.decoding.metadatafiles import read_metadata
from skipstone.tables.storage import storage_io

logger = logging.getLogger("skipstone.query")

#: From an object to the name of its class.
CLASS: Path = (JavaObject.getClass, JavaType.getName)
_METADATA_FILES = 256

_metadata: LRUCache[str, TableMetadata] = LRUCache(_METADATA_FILES)
_lock = threading.Lock()


class _Opened(NamedTuple):
    """The facts of a table in the JVM: how its files are read, and whether a catalog vends more for that."""

    io: Mapping[str, str]
    is_vended: bool


_OF_TABLE: tuple[Path, ...] = (
    (BaseTable.io, IcebergIO.properties),
    (BaseTable.io, IsA(VendedIO)),
)


class _Metadata(NamedTuple):
    """The facts of metadata in the JVM."""

    location: str
    uuid: str
    schema_id: int


_OF_METADATA: tuple[Path, ...] = (
    (JavaMetadata.metadataFileLocation,),
    (JavaMetadata.uuid,),
    (JavaMetadata.currentSchemaId,),
)


class SparkCatalogView(NoopCatalog):
    """The parts of a catalog that finding indexes needs, of the Java catalog of a Spark session when first asked."""

    def __init__(self, jvm: Jvm, java: IcebergCatalog) -> None:
        super().__init__("spark")
        self.jvm = jvm
        self._identifiers = java_class(jvm, IDENTIFIERS)
        self._java = java
        self._namespaces: dict[tuple[str, ...], JavaObject] = {}
        self._listed: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
        self._loaded: dict[tuple[str, ...], Table] = {}

    def list_tables(self, namespace: str | tuple[str, ...]) -> list[tuple[str, ...]]:
        """The tables of a namespace, by one call to the JVM however many they are."""
        levels = _levels(namespace)
        if levels not in self._listed:
            self._listed[levels] = self._list(levels)
        return self._listed[levels]

    def _list(self, levels: tuple[str, ...]) -> list[tuple[str, ...]]:
        prefix = ".".join(levels) + "."
        listed = str(self._java.listTables(self._namespace(levels)).toString()).strip("[]")
        names = [name.removeprefix(prefix) for name in listed.split(", ") if name.startswith(prefix)]
        return [(*levels, name) for name in names]

    def load_table(self, identifier: str | tuple[str, ...]) -> Table:
        """A table as it is now: Spark's cached copy of an index may be older than its last commit.

        Raises NoSuchTableError.
        """
        levels = _levels(identifier)
        if levels not in self._loaded:
            self._loaded[levels] = self._load(levels)
        return self._loaded[levels]

    def _load(self, levels: tuple[str, ...]) -> Table:
        try:
            table, metadata = self._newest(self._identifier(levels))
        except Py4JJavaError as error:
            if NO_SUCH_TABLE in str(error.java_exception.getClass().getName()):
                raise NoSuchTableError(f"there is no table {'.'.join(levels)}") from error
            raise
        return open_table(levels, table, metadata, self)

    def _newest(self, java: TableIdentifier) -> tuple[BaseTable, JavaMetadata]:
        """A table and its metadata: only the catalog is asked where a table that is known can ask it."""
        jvm, table = self.jvm, self._java.loadTable(java)
        if getter(jvm, BaseTable.operations, *CLASS).apply(table) in REFRESHING:
            try:
                return table, getter(jvm, BaseTable.operations, TableOperations.refresh).apply(table)
            except Py4JJavaError as error:  # another table has this name now, or none
                logger.debug("%s is loaded again: %s", java.toString(), error.java_exception.toString())
        self._java.invalidateTable(java)
        table = self._java.loadTable(java)
        return table, table.operations().current()

    def java_table(self, identifier: str | tuple[str, ...]) -> BaseTable:
        """A table in the JVM, as Spark's cache has it if it does."""
        return self._java.loadTable(self._identifier(identifier))

    def _identifier(self, identifier: str | tuple[str, ...]) -> TableIdentifier:
        *namespace, name = _levels(identifier)
        return self._identifiers.of(self._namespace(tuple(namespace)), name)

    def frozen(self, identifier: str | tuple[str, ...], location: str) -> BaseTable:
        """The table of Java's of the metadata file at ``location``, whatever is committed to it later."""
        table = self.java_table(identifier)
        current = table.operations().current()
        is_current = str(current.metadataFileLocation()) == location
        operations = java_class(self.jvm, STATIC_OPERATIONS)(current if is_current else location, table.io())
        return java_class(self.jvm, BASE_TABLE)(operations, table.name())

    def _namespace(self, levels: tuple[str, ...]) -> JavaObject:
        namespace = self._namespaces.get(levels)
        if namespace is None:
            namespace = self._namespaces[levels] = self._identifiers.parse(".".join((*levels, "any"))).namespace()
        return namespace


def _levels(identifier: str | tuple[str, ...]) -> tuple[str, ...]:
    """The parts of an identifier; the planner joins a namespace of several levels by dots."""
    parts = (identifier,) if isinstance(identifier, str) else identifier
    *namespace, last = parts
    if isinstance(identifier, str):
        return tuple(last.split("."))
    return (*(level for part in namespace for level in part.split(".")), last)


def open_table(identifier: tuple[str, ...], java: BaseTable, current: JavaMetadata, catalog: SparkCatalogView) -> Table:
    """A table of a catalog as its metadata file says, which is that of ``current``, one of ``java``'s."""
    opened = _Opened(*values_at(catalog.jvm, java, _OF_TABLE))
    metadata = _Metadata(*values_at(catalog.jvm, current, _OF_METADATA))
    io = _file_io(catalog.jvm, java, opened, metadata.location)
    return Table(identifier, _read_metadata(metadata.location, metadata.uuid, io), metadata.location, io, catalog)


def _file_io(jvm: Jvm, java: BaseTable, opened: _Opened, location: str) -> FileIO:
    """By the properties of Java's own, and the credentials that a catalog vends for the longest prefix of the place."""
    vended = vended_properties(jvm, java.io()) if opened.is_vended else {}
    prefix = max(
        (vended_prefix for vended_prefix in vended if location.startswith(vended_prefix)), key=len, default=None
    )
    return storage_io({**opened.io, **(vended[prefix] if prefix else {})}, location)


def _read_metadata(location: str, table_uuid: str, io: FileIO) -> TableMetadata:
    """The metadata in a file, which never changes while it is of the table ``table_uuid``."""
    with _lock:
        metadata = _metadata.get(location)
    if metadata is None or str(metadata.table_uuid) != table_uuid:
        metadata = read_metadata(io.new_input(location))
        with _lock:
            _metadata[location] = metadata
    return metadata


def frozen_table(jvm: Jvm, table: BaseTable, metadata: JavaMetadata, schema: Schema) -> BaseTable:
    """The table as it is now, whatever is committed to it later: staged scans read by the names of its schema."""
    if metadata.currentSchemaId() != schema.schema_id:
        builder = java_class(jvm, METADATA).buildFrom(metadata)
        metadata = builder.setCurrentSchema(schema.schema_id).discardChanges().build()
    operations = java_class(jvm, STATIC_OPERATIONS)(metadata, table.io())
    return java_class(jvm, BASE_TABLE)(operations, table.name())


def java_table(jvm: Jvm, table: Table) -> BaseTable | None:
    """A Java table of the metadata that ``table``, one that a catalog of a Spark session gave, was opened with.

    None when the catalog gives another table now.
    """
    catalog = table.catalog
    java = catalog.java_table(table.name()) if isinstance(catalog, SparkCatalogView) else None
    if java is None or str(java.operations().current().uuid()) != str(table.metadata.table_uuid):
        return None
    return frozen_table(jvm, java, java.operations().current(), table.schema())
