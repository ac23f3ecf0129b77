"""Iceberg's classes in the JVM of a Spark session, and the methods that we call of each.

The runtime of Iceberg for Spark is the user's; with a version that lacks one of these names queries stay as they are.
Must not decide anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from skipstone.compat.java import JavaMap, JavaName, JavaObject, Jvm, described, java_class

_ICEBERG = "org.apache.iceberg"
SPARK_TABLE = f"{_ICEBERG}.spark.source.SparkTable"
CHANGELOG = f"{_ICEBERG}.spark.source.SparkChangelogTable"
PATH_IDENTIFIER = f"{_ICEBERG}.spark.PathIdentifier"
#: Tables of rows; others are metadata tables.
DATA_TABLES = frozenset({f"{_ICEBERG}.BaseTable", f"{_ICEBERG}.rest.RESTTable"})
NO_SUCH_TABLE = "NoSuchTableException"
#: Operations by which a table finds its newest metadata, and needs nothing else of its catalog.
REFRESHING = frozenset({f"{_ICEBERG}.hive.HiveTableOperations", f"{_ICEBERG}.jdbc.JdbcTableOperations"})


@described(f"{_ICEBERG}.Table")
class IcebergTable(JavaObject, Protocol):
    """A table."""

    def io(self) -> IcebergIO: ...
    def name(self) -> str: ...
    def properties(self) -> JavaMap: ...
    def specs(self) -> JavaObject: ...


@described(f"{_ICEBERG}.BaseTable")
class BaseTable(IcebergTable, Protocol):
    """A table that tells where its metadata is."""

    def operations(self) -> TableOperations: ...


@described(f"{_ICEBERG}.io.FileIO")
class IcebergIO(JavaObject, Protocol):
    """How files are read."""

    def properties(self) -> JavaMap: ...


@described(f"{_ICEBERG}.io.SupportsStorageCredentials")
class VendedIO(JavaObject, Protocol):
    """How files are read by what a catalog vends for them."""

    def credentials(self) -> Sequence[StorageCredential]: ...


@described(f"{_ICEBERG}.io.StorageCredential")
class StorageCredential(JavaObject, Protocol):
    """Credentials for the files below ``prefix``."""

    def config(self) -> JavaMap: ...
    def prefix(self) -> str: ...


@described(f"{_ICEBERG}.TableOperations")
class TableOperations(JavaObject, Protocol):
    """Reads and writes the metadata of a table."""

    def current(self) -> TableMetadata: ...
    def refresh(self) -> TableMetadata: ...


@described(f"{_ICEBERG}.TableMetadata")
class TableMetadata(JavaObject, Protocol):
    """The metadata of a table."""

    def currentSchemaId(self) -> int: ...
    def metadataFileLocation(self) -> str: ...
    def uuid(self) -> str: ...


@described(f"{_ICEBERG}.TableMetadata$Builder")
class MetadataBuilder(JavaObject, Protocol):
    """Changes a copy of the metadata of a table."""

    def setCurrentSchema(self, schema_id: int) -> MetadataBuilder: ...
    def discardChanges(self) -> MetadataBuilder: ...
    def build(self) -> TableMetadata: ...


@described(SPARK_TABLE)
class SparkTable(JavaObject, Protocol):
    """A table as Spark holds it."""

    def branch(self) -> str | None: ...
    def name(self) -> str: ...
    def snapshotId(self) -> int | None: ...
    def table(self) -> BaseTable: ...


@described(f"{_ICEBERG}.spark.SparkCatalog")
class SparkCatalog(JavaObject, Protocol):
    """A catalog of a Spark session."""

    def icebergCatalog(self) -> IcebergCatalog: ...
    def name(self) -> str: ...


@described(f"{_ICEBERG}.catalog.Catalog")
class IcebergCatalog(JavaObject, Protocol):
    """A catalog."""

    def invalidateTable(self, table: TableIdentifier) -> None: ...
    def listTables(self, namespace: JavaObject) -> JavaObject: ...
    def loadTable(self, table: TableIdentifier) -> BaseTable: ...


@described(f"{_ICEBERG}.catalog.TableIdentifier")
class TableIdentifier(JavaObject, Protocol):
    """The name of a table, and what makes one."""

    def namespace(self) -> JavaObject: ...


@described(f"{_ICEBERG}.catalog.TableIdentifier")
class _Identifiers(Protocol):
    def of(self, namespace: JavaObject, name: str) -> TableIdentifier: ...
    def parse(self, text: str) -> TableIdentifier: ...


@described(f"{_ICEBERG}.TableMetadata")
class _Metadata(Protocol):
    def buildFrom(self, metadata: TableMetadata) -> MetadataBuilder: ...


@described(f"{_ICEBERG}.spark.ScanTaskSetManager")
class TaskSets(JavaObject, Protocol):
    """Holds sets of tasks that staged scans read."""

    def stageTasks(self, table: IcebergTable, set_id: str, tasks: JavaObject) -> None: ...
    def removeTasks(self, table: IcebergTable, set_id: str) -> object: ...


@described(f"{_ICEBERG}.spark.ScanTaskSetManager")
class _TaskSetManager(Protocol):
    def get(self) -> TaskSets: ...


@described(f"{_ICEBERG}.rest.TableScanResponseParser")
class _TaskParser(Protocol):
    def parseDeleteFiles(self, tree: JavaObject, specs: JavaObject) -> JavaObject: ...
    def parseFileScanTasks(
        self,
        tree: JavaObject,
        deletes: JavaObject,
        specs: JavaObject,
        case_sensitive: bool,  # noqa: FBT001 - as Iceberg has it
    ) -> JavaObject: ...


@described(f"{_ICEBERG}.shaded.com.fasterxml.jackson.databind.ObjectMapper")
class JsonMapper(JavaObject, Protocol):
    """Reads and writes JSON: whole collections go over in one call."""

    def readTree(self, text: str) -> JavaObject: ...
    def writeValueAsString(self, value: JavaObject) -> str: ...


BASE_TABLE: JavaName[Callable[[JavaObject, str], BaseTable]] = JavaName(f"{_ICEBERG}.BaseTable")
IDENTIFIERS: JavaName[_Identifiers] = JavaName(f"{_ICEBERG}.catalog.TableIdentifier")
JSON_MAPPER: JavaName[Callable[[], JsonMapper]] = JavaName(
    f"{_ICEBERG}.shaded.com.fasterxml.jackson.databind.ObjectMapper"
)
METADATA: JavaName[_Metadata] = JavaName(f"{_ICEBERG}.TableMetadata")
SPARK_TABLES: JavaName[Callable[[BaseTable], SparkTable]] = JavaName(SPARK_TABLE)
STAGED_TABLES: JavaName[Callable[[BaseTable, str], SparkTable]] = JavaName(f"{_ICEBERG}.spark.source.SparkRewriteTable")
STATIC_OPERATIONS: JavaName[Callable[[TableMetadata | str, IcebergIO], JavaObject]] = JavaName(
    f"{_ICEBERG}.StaticTableOperations"
)
TASK_PARSER: JavaName[_TaskParser] = JavaName(f"{_ICEBERG}.rest.TableScanResponseParser")
TASK_SETS: JavaName[_TaskSetManager] = JavaName(f"{_ICEBERG}.spark.ScanTaskSetManager")


def vended_properties(jvm: Jvm, io: IcebergIO) -> dict[str, dict[str, str]]:
    """Return the properties that a catalog vends beside those of ``io``, by the prefix of their files."""
    mapper = java_class(jvm, JSON_MAPPER)()
    credentials = cast(VendedIO, io).credentials()
    return {
        str(credential.prefix()): json.loads(mapper.writeValueAsString(credential.config()))
        for credential in credentials
    }
