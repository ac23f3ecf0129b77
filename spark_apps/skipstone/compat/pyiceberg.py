"""PyIceberg's internals that commits, catalogs and readers use.

A new version of PyIceberg breaks here and in the tests of this module, not in the middle of a commit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from copy import copy
from functools import lru_cache
from typing import Any, Protocol, Self, TypeVar, cast
from urllib.parse import quote_plus

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from propcache.api import cached_property
from pyarrow.fs import FileSystem, S3FileSystem
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog, TableResponse
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.io import FileIO, InputFile, OutputFile, load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO, _to_requested_schema
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile, _inherit_from_manifest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StagedTable, Table, Transaction
from pyiceberg.table.metadata import TableMetadata, TableMetadataCommonFields, TableMetadataV2, TableMetadataV3
from pyiceberg.table.snapshots import Snapshot, SnapshotSummaryCollector
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.table.update.snapshot import _SnapshotProducer
from pyiceberg.transforms import MonthTransform, Transform, YearTransform
from pyiceberg.typedef import EMPTY_DICT, IcebergBaseModel, Identifier, Properties, Record
from pyiceberg.types import IcebergType
from pyiceberg.utils.concurrent import ExecutorFactory
from requests import Session
from requests.adapters import DEFAULT_POOLSIZE
from sqlalchemy import Engine, Select, bindparam, select
from urllib3 import Retry

SnapshotProducer = _SnapshotProducer
#: Connections to a REST catalog that are kept open: as many threads may ask it at once.
CONNECTIONS = 64
#: A location with a scheme: that, the authority if there is one, and the path.
_WITH_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(.*)", re.DOTALL)
#: Schemes whose authority does not belong to the path. PyIceberg takes that of ``file`` for a folder of its process.
_WITHOUT_AUTHORITY = frozenset({"hdfs", "viewfs", "file"})
_DAY_MICROSECONDS = 86_400_000_000
_Metadata = TypeVar("_Metadata", bound=IcebergBaseModel)


def sharing(metadata: TableMetadata) -> TableMetadata:
    """``metadata`` to be the base of updates. Deep copies of what they make of it are of its own class again, and share
    its snapshots, log entries, schemas and the like.

    PyIceberg makes a deep copy for each set of updates, which takes longer with each snapshot that a table has. What
    metadata is made of is frozen, or is written once, as summaries of snapshots are; only the lists and mappings in
    which it stands change, and a copy has those of its own. Metadata of format version 1 also has mappings further down
    and is copied as PyIceberg does.
    """
    if type(metadata) is TableMetadataV2:
        return _in_class(_SharedV2, metadata)
    return _in_class(_SharedV3, metadata) if type(metadata) is TableMetadataV3 else metadata


def copied(metadata: TableMetadata) -> TableMetadata:
    """``metadata`` with lists and mappings of its own, which share what is in them as those of ``sharing`` do."""
    if isinstance(metadata, TableMetadataV2 | TableMetadataV3):
        return _in_class(type(metadata), metadata)
    return metadata.model_copy(deep=True)


def _in_class(kind: type[_Metadata], metadata: IcebergBaseModel) -> _Metadata:
    """``metadata`` as one of ``kind``, which has the same fields, in lists and mappings of its own."""
    made = kind.__new__(kind)
    held = {name: copy(value) if isinstance(value, list | dict) else value for name, value in vars(metadata).items()}
    state = {**metadata.__getstate__(), "__dict__": held, "__pydantic_fields_set__": set(metadata.model_fields_set)}
    made.__setstate__(state)
    return made


class _SharedV2(TableMetadataV2):
    """See ``sharing``."""

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return cast(Self, _in_class(TableMetadataV2, self))


class _SharedV3(TableMetadataV3):
    """See ``sharing``."""

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return cast(Self, _in_class(TableMetadataV3, self))


def _newest_first(self: TableMetadataCommonFields, snapshot_id: int) -> Snapshot | None:
    return next((snapshot for snapshot in reversed(self.snapshots) if snapshot.snapshot_id == snapshot_id), None)


# PyIceberg looks from the oldest on, and nearly everybody asks for the newest, dozens of times for each commit.
TableMetadataCommonFields.snapshot_by_id = _newest_first  # type: ignore[method-assign]


def summary_of(snapshot: Snapshot) -> Mapping[str, str]:
    """Return the summary of ``snapshot`` without its operation, as PyIceberg does, many times faster."""
    private = snapshot.summary.__pydantic_private__ if snapshot.summary is not None else None
    return private["_additional_properties"] if private else EMPTY_DICT


class CachingTransaction(Transaction):
    """PyIceberg's copies all metadata, a snapshot at a time, whenever it is asked for; this one when it changed, and
    without copying what nobody changes."""

    _known: tuple[tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata with the updates so far; nobody may change it."""
        if not self._updates:
            return self._table.metadata
        if self._known is None or self._known[0] is not self._updates:
            self._known = self._updates, update_table_metadata(sharing(self._table.metadata), self._updates)
        return self._known[1]


def transaction_table(transaction: Transaction) -> Table:
    """The table that ``transaction`` changes, as it was before."""
    return transaction._table


def staged_requirements(transaction: Transaction) -> tuple[TableRequirement, ...]:
    """Return the requirements that the catalog checks before it takes the updates."""
    return transaction._requirements


def staged_updates(transaction: Transaction) -> tuple[TableUpdate, ...]:
    """Return the updates that the catalog is asked for."""
    return transaction._updates


def change_updates(transaction: Transaction, change: Callable[[TableUpdate], TableUpdate]) -> None:
    """Replace each staged update by what ``change`` makes of it."""
    transaction._updates = tuple(change(update) for update in transaction._updates)


def discard_manifests(producer: SnapshotProducer) -> None:  # type: ignore[type-arg]
    """Delete the manifests and manifest lists that ``producer`` wrote."""
    producer._clean_all_uncommitted()


def manifest_workers() -> tuple[Any, int]:
    """The pool that writes manifests, and how many of its tasks run at once."""
    pool = ExecutorFactory.get_or_create()
    return pool, pool._max_workers if isinstance(pool, ThreadPoolExecutor) else 1


def delete_old_metadata(catalog: Catalog, base: Table, metadata: TableMetadata) -> None:
    """Delete the metadata files that ``metadata`` no longer lists, as the table's properties ask. Raises OSError."""
    catalog._delete_old_metadata(base.io, base.metadata, metadata)


def with_inherited(entry: ManifestEntry, manifest: ManifestFile) -> ManifestEntry:
    """``entry`` with the sequence numbers, snapshot and spec that it leaves to its manifest."""
    return _inherit_from_manifest(entry, manifest)


def optional_value(file: DataFile, position: int) -> Any:
    """The value of a field of ``file`` that PyIceberg has no name for; None when the manifest does not have it."""
    return file._data[position] if len(file._data) > position else None


def partition_path(spec: PartitionSpec, partition: Record, schema: Schema) -> str:
    """The name of a partition. Days and moments that are none for Python, which names them, go by their numbers."""
    try:
        return spec.partition_to_path(partition, schema)
    except (OverflowError, ValueError):
        named = zip(spec.fields, (partition[at] for at in range(len(partition))), strict=True)
        return "/".join(f"{quote_plus(field.name)}={quote_plus(str(value))}" for field, value in named)


def transformed_values(transform: Transform[Any, Any], kind: IcebergType, values: pa.Array) -> pa.Array:
    """PyIceberg's transform of ``values``, which are of type ``kind``.

    Years and months are those of all days that Iceberg has: PyIceberg gives null for days some 262,000 years away.
    """
    transformed = transform.pyarrow_transform(kind)(values)
    if transformed.null_count == values.null_count or not isinstance(transform, YearTransform | MonthTransform):
        return transformed
    is_date = pa.types.is_date32(values.type)
    numbers = pc.fill_null(values.cast(pa.int32() if is_date else pa.int64()), 0).to_numpy().astype(np.int64)
    days = (numbers if is_date else numbers // _DAY_MICROSECONDS).astype("datetime64[D]")
    unit = "datetime64[Y]" if isinstance(transform, YearTransform) else "datetime64[M]"
    mask = values.is_null().to_numpy(zero_copy_only=False)
    return pa.array(days.astype(unit).astype(np.int64), mask=mask).cast(pa.int32())


class SnapshotSummary(SnapshotSummaryCollector):
    """PyIceberg's summary of a snapshot, with the names of all partitions that other engines write."""

    def update_partition_metrics(
        self,
        partition_spec: PartitionSpec,
        file: DataFile,
        is_add_file: bool,  # noqa: FBT001 - as PyIceberg has it
        schema: Schema,
    ) -> None:
        """Count ``file`` as one that its partition gains or loses."""
        metrics = self.partition_metrics[partition_path(partition_spec, file.partition, schema)]
        (metrics.add_file if is_add_file else metrics.remove_file)(file)


def field_ids(schema: Schema) -> Mapping[int, Any]:
    """The ids of all fields of ``schema``, nested ones included, as keys."""
    return schema._lazy_id_to_field


def to_requested_schema(requested: Schema, file_schema: Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    """``batch``, which has ``file_schema``, in the columns and types of ``requested``; ns timestamps become us."""
    return _to_requested_schema(requested, file_schema, batch, downcast_ns_timestamp_to_us=True)


class HookedSqlCatalog(SqlCatalog):
    """PyIceberg's SQL catalog with the steps of a commit as public methods."""

    def __init__(self, name: str, **properties: str) -> None:
        """``properties`` as PyIceberg takes them."""
        super().__init__(name, **properties)
        #: What commits that are about to be written were made of, by the file that they go to.
        self._bases: dict[str, TableMetadata] = {}

    def file_io(self, properties: Properties, location: str | None) -> FileIO:
        """The FileIO of a table with ``properties`` at ``location``."""
        return super()._load_file_io(properties, location)

    def watch(self, engine: Engine) -> None:
        """Called with the engine before it is asked anything."""
        raise NotImplementedError

    @staticmethod
    def metadata_in(file: InputFile) -> TableMetadata:
        """Return the metadata in ``file``."""
        raise NotImplementedError

    def before_change(self, table: Table) -> None:
        """Called before ``table`` is changed; raises when it must not be."""
        raise NotImplementedError

    def adjusted(self, before: TableMetadata, after: TableMetadata) -> TableMetadata:
        """What is written in place of ``after``, the metadata that a commit makes of ``before``."""
        raise NotImplementedError

    @staticmethod
    def put_metadata(metadata: TableMetadata, base: TableMetadata | None, file: OutputFile) -> None:
        """Write ``metadata``, which was made of ``base`` unless the table is new, to ``file``. Raises OSError."""
        raise NotImplementedError

    @staticmethod
    def writable(metadata: TableMetadata) -> TableMetadata:
        """``metadata`` as PyIceberg can write it."""
        raise NotImplementedError

    @staticmethod
    def writing(io: FileIO, path: str) -> AbstractContextManager[None]:
        """What surrounds the writing of the metadata file ``path``, which comes before the swap."""
        raise NotImplementedError

    def metadata_location_of(self, identifier: Identifier) -> str | None:
        """Where the metadata of a table is now; None for a table that is not there. Raises what SQLAlchemy raises."""
        namespace = Catalog.namespace_to_string(Catalog.namespace_from(identifier))
        given = {"catalog": self.name, "namespace": namespace, "name": Catalog.table_name_from(identifier)}
        with self.engine.connect() as connection:
            location: str | None = connection.execute(self._locations, given).scalar()
        return location

    @cached_property
    def _locations(self) -> Select[Any]:
        """What PyIceberg asks for a table, without what makes an object of the answer, which takes longer."""
        known = select(IcebergTables.metadata_location).where(
            IcebergTables.catalog_name == bindparam("catalog"),
            IcebergTables.table_namespace == bindparam("namespace"),
            IcebergTables.table_name == bindparam("name"),
        )
        kinds = self._iceberg_type_filter()
        return known if kinds is None else known.where(kinds)

    def _init_catalog(self) -> None:
        self.watch(self.engine)
        super()._init_catalog()

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        return self.file_io(properties, location)

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        location = orm_table.metadata_location
        if not location:
            return super()._convert_orm_to_iceberg(orm_table)
        metadata = self.metadata_in(load_file_io(self.properties, location).new_input(location))
        identifier = (*self.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name)
        return Table(identifier, metadata, location, self.file_io(metadata.properties, location), self)

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        if current_table is None:
            return super()._update_and_stage_table(current_table, table_identifier, requirements, updates)
        self.before_change(current_table)
        base = copy(current_table)
        base.metadata = sharing(current_table.metadata)
        staged = super()._update_and_stage_table(base, table_identifier, requirements, updates)
        staged.metadata = self.adjusted(current_table.metadata, staged.metadata)
        if staged.metadata != current_table.metadata:  # else PyIceberg writes no file
            self._bases[staged.metadata_location] = current_table.metadata
        return staged

    def _write_metadata(self, metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:  # type: ignore[override]
        base = self._bases.pop(metadata_path, None)
        with self.writing(io, metadata_path):
            self.put_metadata(self.writable(metadata), base, io.new_output(metadata_path))


class SigningKeys(Protocol):
    """The keys that sign a request, in the names of boto3."""

    access_key: str
    secret_key: str
    token: str | None


class _SigningSession:
    """Stands in for the session of boto3 that PyIceberg asks for keys each time it signs a request."""

    def __init__(self, session: Any, taken: Callable[[Callable[[], SigningKeys | None]], SigningKeys]) -> None:
        self._session, self._taken = session, taken
        self.region_name = session.region_name

    def get_credentials(self) -> _SigningSession:
        """Those that are good now."""
        return self

    def get_frozen_credentials(self) -> SigningKeys:
        """As ``HookedRestCatalog.keys_taken`` gives them."""
        return self._taken(self._find)

    def _find(self) -> SigningKeys | None:
        credentials = self._session.get_credentials()
        keys: SigningKeys | None = credentials and credentials.get_frozen_credentials()
        return keys


class HookedRestCatalog(RestCatalog):
    """PyIceberg's REST catalog with a FileIO of ours; it sends no request twice by itself."""

    def before_signing(self) -> None:
        """Called before requests are signed at all; raises when they cannot be."""
        raise NotImplementedError

    def keys_taken(self, find: Callable[[], SigningKeys | None]) -> SigningKeys:
        """The keys that sign one request, of those that ``find`` looks up. It raises what boto3 raises."""
        raise NotImplementedError

    def opened(self, table: Table) -> Table:
        """What is given out in place of ``table``, which the catalog has just told of."""
        raise NotImplementedError

    def file_io(self, properties: Properties, location: str | None) -> FileIO:
        """The FileIO of a table with ``properties`` at ``location``."""
        return super()._load_file_io(properties, location)

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        return self.file_io(properties, location)

    def _create_session(self) -> Session:
        session = super()._create_session()
        for adapter in session.adapters.values():
            adapter.init_poolmanager(DEFAULT_POOLSIZE, CONNECTIONS)  # type: ignore[attr-defined]
        return session

    def _init_sigv4(self, session: Session) -> None:
        self.before_signing()
        super()._init_sigv4(session)
        adapter: Any = session.get_adapter(self.uri)
        # Who repeats a commit has to look first whether it landed, and only our own loop does.
        adapter.max_retries = Retry(0, read=False)
        adapter._boto_session = _SigningSession(adapter._boto_session, self.keys_taken)

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        return self.opened(super()._response_to_table(identifier_tuple, table_response))


class HookedFileIO(PyArrowFileIO):
    """PyIceberg's FileIO with whole names, and a choice of the file systems for volumes and for S3."""

    @staticmethod
    def parse_location(location: str, properties: Properties = EMPTY_DICT) -> tuple[str, str, str]:
        """Scheme, authority and path of ``location``; the authority is the first part of a path in an object store.

        A location is not a URL: PyIceberg ends a path at ``#`` or ``?`` and leaves out tabs, and so opens another file.
        """
        match = _WITH_SCHEME.fullmatch(location)
        if match is None:
            return PyArrowFileIO.parse_location(location, properties)
        scheme, authority, path = match[1].lower(), match[2] or "", match[3]
        return scheme, authority, path if scheme in _WITHOUT_AUTHORITY else f"{authority}{path}"

    def local_file_system(self) -> FileSystem:
        """The file system of paths without a scheme and of ``file:``."""
        raise NotImplementedError

    def s3_file_system(self, file_system: S3FileSystem) -> FileSystem:
        """The file system of S3; ``file_system``: as the properties describe it."""
        raise NotImplementedError

    def replace_properties(self, properties: Properties) -> None:
        """Reach files by ``properties`` from now on."""
        self.properties = properties
        self.fs_by_scheme = lru_cache(self._initialize_fs)

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        return self.s3_file_system(super()._initialize_s3_fs(netloc))

    def _initialize_local_fs(self) -> FileSystem:
        return self.local_file_system()
