"""An Iceberg relation of a plan as the planner takes it: its table, pinned to what Spark would read.

Used by ``session``. The table is opened from its metadata file, which never changes, and its indexes are found through
the catalog that Spark loaded it from: the user's session is all the configuration there is. Must not plan reads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cachetools import LRUCache
from propcache.api import cached_property
from py4j.protocol import Py4JJavaError
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from skipstone.compat.catalyst import Relation
from skipstone.compat.icebergjava import (
    BASE_TABLE,
    CHANGELOG,
    DATA_TABLES,
    IDENTIFIERS,
    METADATA,
    NO_SUCH_TABLE,
    PATH_IDENTIFIER,
    REFRESHING,
    SPARK_TABLE,
    SPARK_TABLES,
    STATIC_OPERATIONS,
    BaseTable,
    IcebergCatalog,
    IcebergIO,
    IcebergTable,
    SparkCatalog,
    SparkTable,
    TableIdentifier,
    TableOperations,
    vended_properties,
    vends,
)
from skipstone.compat.icebergjava import TableMetadata as JavaMetadata
from skipstone.compat.java import JavaMap, JavaObject, JavaType, Jvm, Option, java_class
from skipstone.compat.methods import Path, With, getter, said_of
from skipstone.query.plans.analysis.catalyst import Node, expression_id, read_tree
from skipstone.query.plans.refusals import Refusal
from skipstone.tables.decoding.metadatafiles import read_metadata
from skipstone.tables.storage import storage_io

logger = logging.getLogger("skipstone.query")

_ROW_LINEAGE = frozenset({"_row_id", "_last_updated_sequence_number"})
_METADATA_COLUMNS = _ROW_LINEAGE | {"_file", "_pos", "_spec_id", "_partition", "_deleted"}
#: Read options that change how rows are read and not which.
_HARMLESS_OPTIONS = frozenset(
    {"path", "split-size", "lookback", "file-open-cost", "vectorization-enabled", "batch-size", "locality"}
)
_METADATA_FILES = 256
_CLASS: Path = (JavaObject.getClass, JavaType.getName)
_PROPERTIES: Path = (Relation.table, SparkTable.table, IcebergTable.properties)

_metadata: LRUCache[str, TableMetadata] = LRUCache(_METADATA_FILES)
_lock = threading.Lock()


class RelationRefused(Exception):
    """The relation is read as Spark reads it."""

    def __init__(self, refusal: Refusal, detail: str = "") -> None:
        super().__init__(detail)
        self.refusal = refusal
        self.detail = detail


@dataclass(frozen=True)
class IcebergRelation:
    """A relation with its table.

    ``snapshot_id``: None reads the head, in the table's own schema. ``schema``: what Spark reads it in.
    ``java``: the relation in the JVM; ``freeze``: makes ``frozen``.
    """

    name: str
    table: Table
    snapshot_id: int | None
    schema: Schema
    columns: Mapping[int, tuple[str, str]]
    java: Relation
    freeze: Callable[[], BaseTable]

    @cached_property
    def frozen(self) -> BaseTable:
        """A Java table of that schema and of the metadata opened here."""
        return self.freeze()


def is_iceberg(jvm: Jvm, java: Relation) -> bool:
    """Whether a relation is one of Iceberg's that was not rewritten yet."""
    return _table_class(jvm, java) in (SPARK_TABLE, CHANGELOG)


def _table_class(jvm: Jvm, java: Relation) -> str:
    return str(getter(jvm, Relation.table, *_CLASS).apply(java))


class _Relation(NamedTuple):
    """What a relation in the JVM says of itself and of its table, in the order of ``_OF_RELATION``."""

    table_class: str
    has_no_catalog: bool
    has_no_name: bool
    options: Mapping[str, str]
    travels: bool
    snapshot_id: int | None
    branch: str | None
    encryption_key: str | None
    wap: str | None


_OF_RELATION: tuple[Path, ...] = (
    (Relation.table, SparkTable.table, JavaObject.getClass),
    (Relation.catalog, Option.isEmpty),
    (Relation.identifier, Option.isEmpty),
    (Relation.options,),
    (Relation.timeTravelSpec, Option.isDefined),
    (Relation.table, SparkTable.snapshotId),
    (Relation.table, SparkTable.branch),
    (*_PROPERTIES, With(JavaMap.get, "encryption.key-id")),
    (*_PROPERTIES, With(JavaMap.get, "write.wap.enabled")),
)


class _Opened(NamedTuple):
    """What a table in the JVM says of itself: how its files are read, by what class, and its name."""

    io: Mapping[str, str]
    io_class: str
    name: str


_OF_TABLE: tuple[Path, ...] = (
    (BaseTable.io, IcebergIO.properties),
    (BaseTable.io, JavaObject.getClass),
    (BaseTable.name,),
)


class _Metadata(NamedTuple):
    """What metadata in the JVM says of itself."""

    location: str
    uuid: str
    schema_id: int


_OF_METADATA: tuple[Path, ...] = (
    (JavaMetadata.metadataFileLocation,),
    (JavaMetadata.uuid,),
    (JavaMetadata.currentSchemaId,),
)


@dataclass(frozen=True, eq=False)
class OpenTable:
    """The table of a relation: ``table`` is what its metadata file says, as is ``current`` in the JVM."""

    java: BaseTable
    current: JavaMetadata
    table: Table
    name: str


class QueryTables:
    """The tables of one query. Each is opened once, and its catalog asked once, so that all planning is of one moment;
    not to be kept for longer, as credentials grow old.
    """

    def __init__(self, jvm: Jvm) -> None:
        self.jvm = jvm
        self._catalogs: dict[str, SparkCatalogView] = {}
        self._opened: dict[int, OpenTable] = {}
        self._said: dict[int, _Relation] = {}

    def open(self, key: int, java: Relation) -> OpenTable:
        """The table of the relation with a key. Raises RelationRefused for what is no table of rows."""
        found = self._opened.get(key)
        if found is None:
            self._says(key, java)
            found = self._opened[key] = self._open(java)
        return found

    def open_relation(self, key: int, node: Node, java: Relation, wap_branch: str | None) -> IcebergRelation:
        """The relation with its table. ``wap_branch``: what the session reads instead of main.

        Raises RelationRefused.
        """
        said = self._says(key, java)
        _require_plain_read(self.jvm, java, said, wap_branch)
        opened = self.open(key, java)
        pinned = _pin(self.jvm, java, opened, said)
        columns = _columns(node, pinned.schema)

        def freeze() -> BaseTable:
            return _frozen(self.jvm, opened.java, opened.current, pinned.schema)

        return IcebergRelation(opened.name, opened.table, pinned.snapshot_id, pinned.schema, columns, java, freeze)

    def _says(self, key: int, java: Relation) -> _Relation:
        found = self._said.get(key)
        if found is None:
            if _table_class(self.jvm, java) == CHANGELOG:
                raise RelationRefused(Refusal.CHANGELOG_TABLE)
            found = self._said[key] = _Relation(*said_of(self.jvm, java, _OF_RELATION))
        if found.table_class not in DATA_TABLES:
            raise RelationRefused(Refusal.METADATA_TABLE)
        return found

    def _open(self, java: Relation) -> OpenTable:
        jvm = self.jvm
        catalog = str(getter(jvm, Relation.catalog, Option.get, SparkCatalog.name).apply(java))
        table: BaseTable = getter(jvm, Relation.table, SparkTable.table).apply(java)
        metadata: JavaMetadata = getter(jvm, BaseTable.operations, TableOperations.current).apply(table)
        opened = _Opened(*said_of(jvm, table, _OF_TABLE))
        # not the identifier of the relation: it may end in a selector such as branch_audit
        identifier = tuple(opened.name.removeprefix(f"{catalog}.").split("."))
        view = self._view(catalog, java)
        return OpenTable(table, metadata, _table(identifier, table, opened, metadata, view), opened.name)

    def _view(self, name: str, java: Relation) -> SparkCatalogView:
        found = self._catalogs.get(name)
        if found is None:
            found = self._catalogs[name] = SparkCatalogView(self.jvm, java.catalog().get().icebergCatalog())
        return found


def _require_plain_read(jvm: Jvm, java: Relation, said: _Relation, wap_branch: str | None) -> None:
    if said.has_no_catalog or said.has_no_name:
        raise RelationRefused(Refusal.NO_CATALOG)
    if getter(jvm, Relation.identifier, Option.get, *_CLASS).apply(java) == PATH_IDENTIFIER:
        raise RelationRefused(Refusal.NO_CATALOG)
    if unknown := said.options.keys() - _HARMLESS_OPTIONS:
        raise RelationRefused(Refusal.READ_OPTION, f"option {min(unknown)}")
    if said.encryption_key:
        raise RelationRefused(Refusal.ENCRYPTED)
    if wap_branch and str(said.wap).lower() == "true":
        raise RelationRefused(Refusal.READ_OPTION, f"spark.wap.branch is {wap_branch}")


def _table(
    identifier: tuple[str, ...], java: BaseTable, opened: _Opened, current: JavaMetadata, catalog: SparkCatalogView
) -> Table:
    metadata = _Metadata(*said_of(catalog.jvm, current, _OF_METADATA))
    io = _file_io(catalog.jvm, java, opened, metadata.location)
    return Table(identifier, _read_metadata(metadata.location, metadata.uuid, io), metadata.location, io, catalog)


def _file_io(jvm: Jvm, java: BaseTable, opened: _Opened, location: str) -> FileIO:
    """By the properties of Java's own, and the credentials that a catalog vends for the longest prefix of the place."""
    vended = vended_properties(jvm, java.io()) if vends(jvm, opened.io_class) else {}
    prefix = max((one for one in vended if location.startswith(one)), key=len, default=None)
    return storage_io({**opened.io, **(vended[prefix] if prefix else {})}, location)


def _read_metadata(location: str, table_uuid: str, io: FileIO) -> TableMetadata:
    """The metadata in a file, which never changes while it is of the table ``table_uuid``."""
    with _lock:
        found = _metadata.get(location)
    if found is None or str(found.table_uuid) != table_uuid:
        found = read_metadata(io.new_input(location))
        with _lock:
            _metadata[location] = found
    return found


@dataclass(frozen=True)
class _Pinned:
    snapshot_id: int | None
    schema: Schema


def _pin(jvm: Jvm, java: Relation, opened: OpenTable, said: _Relation) -> _Pinned:
    """The snapshot that Spark pinned when it analyzed the query, and the schema it reads it in."""
    snapshot_id, metadata = said.snapshot_id, opened.table.metadata
    if snapshot_id is None:
        raise RelationRefused(Refusal.EMPTY)
    current = metadata.schema()
    if java.table().equals(java_class(jvm, SPARK_TABLES)(opened.java)):
        return _Pinned(None if metadata.current_snapshot_id == snapshot_id else snapshot_id, current)
    schema = _snapshot_schema(metadata, snapshot_id)
    travels = said.travels and said.branch is None
    if not travels and schema.fields != current.fields:
        raise RelationRefused(Refusal.SCHEMA_DIFFERS)
    return _Pinned(snapshot_id, schema)


def _snapshot_schema(metadata: TableMetadata, snapshot_id: int) -> Schema:
    snapshot = metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise RelationRefused(Refusal.FAILED, f"snapshot {snapshot_id} is not in the metadata any more")
    found = [schema for schema in metadata.schemas if schema.schema_id == snapshot.schema_id]
    return found[0] if found else metadata.schema()


def _frozen(jvm: Jvm, table: BaseTable, metadata: JavaMetadata, schema: Schema) -> BaseTable:
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
    return _frozen(jvm, java, java.operations().current(), table.schema())


def reads_row_lineage(node: Node) -> bool:
    """Whether a relation gives out columns of row lineage, which tasks made from JSON do not know."""
    return any(read_tree(tree).fields["name"] in _ROW_LINEAGE for tree in node.fields["output"])


def _columns(node: Node, schema: Schema) -> dict[int, tuple[str, str]]:
    types = {field.name: str(field.field_type) for field in schema.fields}
    attributes = [read_tree(tree) for tree in node.fields["output"]]
    names = {str(attribute.fields["name"]) for attribute in attributes}
    if unknown := names - types.keys() - _METADATA_COLUMNS:
        raise RelationRefused(Refusal.SCHEMA_DIFFERS, f"column {min(unknown)}")
    known = [(expression_id(attribute), str(attribute.fields["name"])) for attribute in attributes]
    return {number: (name, types[name]) for number, name in known if name in types}


class SparkCatalogView(NoopCatalog):
    """What finding indexes needs of a catalog, from the Java catalog of a Spark session: as it is when first asked."""

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
        names = [one.removeprefix(prefix) for one in listed.split(", ") if one.startswith(prefix)]
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
        return _table(levels, table, _Opened(*said_of(self.jvm, table, _OF_TABLE)), metadata, self)

    def _newest(self, java: TableIdentifier) -> tuple[BaseTable, JavaMetadata]:
        """A table and its metadata: only the catalog is asked where a table that is known can ask it."""
        jvm, table = self.jvm, self._java.loadTable(java)
        if getter(jvm, BaseTable.operations, *_CLASS).apply(table) in REFRESHING:
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
        found = self._namespaces.get(levels)
        if found is None:
            found = self._namespaces[levels] = self._identifiers.parse(".".join((*levels, "any"))).namespace()
        return found


def _levels(identifier: str | tuple[str, ...]) -> tuple[str, ...]:
    """The parts of an identifier; the planner joins a namespace of several levels by dots."""
    parts = (identifier,) if isinstance(identifier, str) else identifier
    *namespace, last = parts
    if isinstance(identifier, str):
        return tuple(last.split("."))
    return (*(level for part in namespace for level in part.split(".")), last)
