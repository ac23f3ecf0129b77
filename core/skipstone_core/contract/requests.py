"""What a run is asked to do.

The operator writes a JobRequest into a ConfigMap; the driver reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar

from skipstone_core.codec import decode, encode
from skipstone_core.contract import CONTRACT_VERSION
from skipstone_core.contract.badrecords import FAIL_ON_BAD_RECORDS, BadRecordsSpec
from skipstone_core.contract.branches import BranchSpec
from skipstone_core.contract.columns import MatchNames, PartitionFieldSpec, SortFieldSpec, UnknownColumns
from skipstone_core.contract.deltatables import SourceDeltaRef
from skipstone_core.contract.feeds import ColumnPrecision, EqualRows, Infinity, NonFinite, TimePrecision
from skipstone_core.contract.formats import ChangeFormat, SourceFormat
from skipstone_core.contract.indextypes import NO_PARAMETERS, IndexParameters
from skipstone_core.contract.places import PlaceRef, SourceLocationRef
from skipstone_core.contract.spark import SparkRef
from skipstone_core.contract.stores import HBaseRef
from skipstone_core.errors import ContractViolation
from skipstone_core.funnel import PruneStage
from skipstone_core.maintenance.policies import MaintenancePolicy, MaintenanceStep


class RunKind(StrEnum):
    """What a run does; also the label ``skipstone.dev/operation`` of its pods."""

    CHECK = "Check"
    TABLE = "Table"
    LOAD = "Load"
    REINDEX = "Reindex"
    MERGE = "Merge"
    DRY_RUN = "DryRun"
    OBSERVE = "Observe"
    CONFIRM = "Confirm"
    DROP = "Drop"
    MAINTAIN = "Maintain"


#: Kinds that need Spark; the others are PyIceberg only and start no JVM.
SPARK_KINDS = frozenset({RunKind.LOAD, RunKind.REINDEX, RunKind.MERGE, RunKind.DRY_RUN, RunKind.MAINTAIN})


class CatalogType(StrEnum):
    """The catalogs with an engine."""

    SQL = "Sql"
    REST = "Rest"


class Management(StrEnum):
    """Who owns a table's schema and existence."""

    MANAGED = "Managed"
    OBSERVED = "Observed"


class DuplicatesPolicy(StrEnum):
    """What happens to a source that another job already applied to the same table."""

    REFUSE = "Refuse"
    ALLOW = "Allow"


class ConsumePolicy(StrEnum):
    """Which of the files that a source names are read."""

    ALL = "All"
    NEW = "New"


class LoadMode(StrEnum):
    """How the files of a load become files of the table."""

    COPY = "Copy"
    REGISTER = "Register"


class MergeAction(StrEnum):
    """What a merge clause does to the rows it takes."""

    UPDATE = "Update"
    DELETE = "Delete"
    INSERT = "Insert"


class PruningStrategy(StrEnum):
    """Which stages of the prune funnel a merge uses."""

    AUTO = "Auto"
    NONE = "None"
    MIN_MAX = "MinMax"


class SchemaEvolution(StrEnum):
    """What a merge does about source columns that the table does not have."""

    NONE = "None"
    ADD_COLUMNS = "AddColumns"


@dataclass(frozen=True, kw_only=True)
class CatalogRef:
    """How to open the catalog. Credentials come from the environment, never from here.

    ``uri`` of an Sql catalog is an SQLAlchemy URL; an empty uri means SQLite at ``<root>/catalog.db``.
    ``allow_plaintext_credentials``: a Rest catalog may get them over http.
    """

    type: CatalogType
    name: str = "skipstone"
    uri: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    allow_plaintext_credentials: bool = False


@dataclass(frozen=True, kw_only=True)
class WarehouseRef(PlaceRef):
    """Where tables live.

    ``locations``: those that this run reads; a check reads all. ``credentials_prefix`` begins the names of the
    variables that hold its credentials, and no variable without it is used for them; None: they have their own names.
    """

    WHAT: ClassVar[str] = "a warehouse"

    name: str
    catalog: CatalogRef
    index_namespace: str | None = None
    locations: tuple[SourceLocationRef, ...] = ()
    credentials_prefix: str | None = None


def levels_of(namespace: str) -> tuple[str, ...]:
    """The levels of a namespace that is written with dots between them."""
    return tuple(namespace.split("."))


@dataclass(frozen=True, kw_only=True)
class TableRef:
    """A table in the catalog and the Table resource that declares it. Levels of ``namespace`` are joined by dots.

    ``table_uuid``, ``location`` and ``namespace_id`` (the mark on its namespace) are what status remembers; None before
    the table was first seen. ``maintenance``: by which its health is told; None: it is not. ``branch``: whose head
    stands for that of the table; None: main. It is None when unset, as in SourceSpec.
    """

    namespace: str
    name: str
    uid: str
    management: Management = Management.MANAGED
    table_uuid: str | None = None
    location: str | None = None
    namespace_id: str | None = None
    maintenance: MaintenancePolicy | None = None
    branch: BranchSpec | None = None

    @property
    def on_main(self) -> TableRef:
        """The same table with the head of main."""
        return self if self.branch is None else replace(self, branch=None)

    @property
    def identifier(self) -> tuple[str, ...]:
        """Levels of the namespace, and the name, as PyIceberg takes them."""
        return (*levels_of(self.namespace), self.name)


@dataclass(frozen=True, kw_only=True)
class IndexRef:
    """A SecondaryIndex resource: ``columns`` in index order, ``include``: columns whose values are stored beside them,
    ``parameters``: those of its type, ``uid`` of the resource. ``is_inline``: runs that commit to the table enter their
    files before they end. ``unused_below_percent``: queries and merges leave it alone while it covers a smaller part of
    the rows, None: however little it covers. ``store``: what holds its entries, None: the index table.
    """

    name: str
    uid: str
    columns: tuple[str, ...]
    include: tuple[str, ...] = ()
    parameters: IndexParameters = NO_PARAMETERS
    is_inline: bool = False
    unused_below_percent: int | None = None
    store: HBaseRef | None = None


@dataclass(frozen=True, kw_only=True)
class ColumnSpec:
    """One column. ``type`` is an Iceberg type name such as ``long``, ``decimal(9,2)``, ``timestamptz``."""

    name: str
    type: str
    required: bool = False
    doc: str = ""


@dataclass(frozen=True, kw_only=True)
class TableTask:
    """Create the table, adopt it, or evolve it to this shape. ``field_ids`` is what status remembers (name to id)."""

    columns: tuple[ColumnSpec, ...] = ()
    primary_key: tuple[str, ...] = ()
    partitioning: tuple[PartitionFieldSpec, ...] = ()
    sort_order: tuple[SortFieldSpec, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    field_ids: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ColumnMapping:
    """Source column ``from_`` (JSON: ``from``) feeds table column ``column``. Unmapped columns map by equal name."""

    column: str
    from_: str


@dataclass(frozen=True, kw_only=True)
class SourceTableRef:
    """A table whose rows are read: those of its head, of a ``snapshot`` (its id), or of a ``ref`` (a branch or a tag).

    ``from_snapshot``: only rows that later snapshots appended; "0" stands for the time before the first one. With
    ``consume`` New, where the first job with this value begins. ``where``: only rows on which this predicate is true.
    ``change_keys``: what changed since ``from_snapshot`` is read, in rows that these columns name.
    """

    table: TableRef
    snapshot: str | None = None
    ref: str | None = None
    from_snapshot: str | None = None
    where: str | None = None
    change_keys: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """The table as people call it."""
        return f"{self.table.namespace}.{self.table.name}"


@dataclass(frozen=True, kw_only=True)
class HivePartitions:
    """Names of folders such as ``day=2026-01-31`` hold values of columns, whose types ``columns`` gives (else string).
    ``where``: only files are read in whose folders this predicate over such columns is true.
    """

    columns: tuple[ColumnSpec, ...] = ()
    where: str | None = None


@dataclass(frozen=True, kw_only=True)
class SourceSpec:
    """Files to read; ``paths`` are relative to ``location``: files, directories or glob patterns.

    ``location``: name of a source location of the Warehouse; the root of the Warehouse when empty.
    ``options``: header, delimiter, quote, escape, encoding, nullValue, dateFormat, timestampFormat, multiLine.
    ``columns`` gives types to source columns of untyped formats that the table does not declare (else string).
    ``consumer`` says whose memory of consumed files counts with ``consume`` New. ``settle_seconds``: files that changed
    more recently are not read yet. ``replay_from``: the first file, or what its path begins with, from which on all
    files are read once more, by the first job that has this value.
    ``change_format``: the files are a change feed that this tool wrote; merges only. ``allow_truncate``: a truncate in
    it empties the table. ``time_precision``: the unit of times and timestamps in messages that carry no schema.
    ``column_time_precisions``: the same of single columns. ``replica_identity``: columns that the source database logs
    of deleted rows. ``unavailable_value``: what the tool writes in the place of values that the database did not log.
    ``tables``: which of the tool's tables the feed is of, with * for any text. ``generated``: expressions of columns
    that the source database generates and the feed leaves out. ``non_finite``, ``infinity``, ``equal_rows``: None is
    Refuse; ``unknown_columns``: None is Ignore; ``match_names``: None is Exact, merges only. ``only_rejected``: of the
    changes in the files, those count that earlier merges left out. ``table``: rows of a table are read in place of
    files; a run writes them to Parquet files of its own. ``hive_partitions``: folders are read with all that is below
    them, and hold values of columns. ``delta``: the files that the log of a Delta table names are read.
    These are None when unset, so that requests without them stay as they were.
    """

    format: SourceFormat
    paths: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[ColumnSpec, ...] = ()
    mapping: tuple[ColumnMapping, ...] = ()
    duplicates: DuplicatesPolicy = DuplicatesPolicy.REFUSE
    consume: ConsumePolicy = ConsumePolicy.ALL
    consumer: str = ""
    replay_from: str | None = None
    settle_seconds: int = 0
    location: str = ""
    change_format: ChangeFormat | None = None
    allow_truncate: bool | None = None
    time_precision: TimePrecision | None = None
    column_time_precisions: tuple[ColumnPrecision, ...] | None = None
    replica_identity: tuple[str, ...] | None = None
    unavailable_value: str | None = None
    tables: tuple[str, ...] | None = None
    non_finite: NonFinite | None = None
    infinity: Infinity | None = None
    equal_rows: EqualRows | None = None
    generated: Mapping[str, str] | None = None
    unknown_columns: UnknownColumns | None = None
    match_names: MatchNames | None = None
    only_rejected: bool | None = None
    table: SourceTableRef | None = None
    hive_partitions: HivePartitions | None = None
    delta: SourceDeltaRef | None = None


@dataclass(frozen=True, kw_only=True)
class LoadTask:
    """Append the source's rows to the table as one segment. ``mode`` Register: the very files become the table's."""

    source: SourceSpec
    mode: LoadMode = LoadMode.COPY
    bad_records: BadRecordsSpec = FAIL_ON_BAD_RECORDS
    time_zone: str = "UTC"


@dataclass(frozen=True, kw_only=True)
class ReindexTask:
    """Bring one index in sync. ``max_segments`` bounds one run; None is all that are missing.

    ``rebuild``: the request of a full rebuild, which is done once: files that entered the index before it are entered
    again; None: none is asked for.
    """

    index: IndexRef
    max_segments: int | None = None
    rebuild: str | None = None


@dataclass(frozen=True, kw_only=True)
class MergeKey:
    """Source column ``source`` must equal target column ``target``."""

    target: str
    source: str


@dataclass(frozen=True, kw_only=True)
class MergeClause:
    """First clause whose ``when`` holds wins.

    ``values`` maps target column to a source column, a literal or an expression, as text; None is by equal name.
    ``present``: columns that a source row does not have stay as they are. It is None when unset, as in SourceSpec.
    """

    action: MergeAction
    when: str | None = None
    values: Mapping[str, str] | None = None
    present: bool | None = None


@dataclass(frozen=True, kw_only=True)
class MergeTask:
    """Apply a change feed. ``sequence_by`` names the source column whose greatest value wins per key.

    ``target_sequence``: the table column that keeps it, so that changes older than their row are ignored.
    ``target_where``: condition on pairs of rows that is part of the match. ``disabled_stages``: of the prune funnel.
    ``bad_records``: None is Fail.
    """

    source: SourceSpec
    keys: tuple[MergeKey, ...]
    when_matched: tuple[MergeClause, ...] = ()
    when_not_matched: tuple[MergeClause, ...] = ()
    when_not_matched_by_source: tuple[MergeClause, ...] = ()
    sequence_by: str | None = None
    target_sequence: str | None = None
    schema_evolution: SchemaEvolution = SchemaEvolution.NONE
    time_zone: str = "UTC"
    pruning: PruningStrategy = PruningStrategy.AUTO
    target_where: str | None = None
    disabled_stages: tuple[PruneStage, ...] = ()
    bad_records: BadRecordsSpec | None = None

    @property
    def adds_columns(self) -> bool:
        """Return whether columns that the table lacks are added to it."""
        by_source = self.source.unknown_columns is UnknownColumns.ADD
        return by_source or self.schema_evolution is SchemaEvolution.ADD_COLUMNS


@dataclass(frozen=True, kw_only=True)
class ObservedTable:
    """One table of an observe run with the indexes to report."""

    table: TableRef
    indexes: tuple[IndexRef, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ObserveTask:
    """Report the state of all due tables of one Warehouse."""

    tables: tuple[ObservedTable, ...]


@dataclass(frozen=True, kw_only=True)
class ConfirmTask:
    """Find out whether ``txn`` committed; when not, fence it off by an empty snapshot."""

    txn: str


@dataclass(frozen=True, kw_only=True)
class DropTask:
    """Drop the table (``index`` None) or one index table, with its data, if it is ours (owner property)."""

    index: IndexRef | None = None


#: Bytes of data files that one commit of a compaction rewrites at most, unless one group of files has more.
MAX_COMMIT_BYTES = 4 * 1024 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class MaintainTask:
    """Do ``steps`` as ``policy`` asks, each part in a commit of its own.

    ``max_commit_bytes``: of files that one commit of a compaction rewrites. ``spared_owners``: uids of resources whose
    runs may still commit to the table; what their runs wrote is not an orphan. ``in_use_since_ms``: when the oldest run
    began that reads the table and goes on, in milliseconds since 1970; what was main's head since then does not expire.
    """

    policy: MaintenancePolicy
    steps: tuple[MaintenanceStep, ...]
    max_commit_bytes: int = MAX_COMMIT_BYTES
    spared_owners: tuple[str, ...] = ()
    in_use_since_ms: int | None = None


#: The way out when a request is of another release than the image that reads it.
_OTHER_IMAGE = "set spec.spark.image of the Warehouse to an image of the operator's version, or leave it out"


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """All that one run needs to know. Exactly the task of its ``kind`` is present (a check has none, a dry run that of
    a merge).

    ``owner_kind``/``owner_name``/``owner_uid`` name the resource; ``indexes`` are all indexes of ``table``,
    whose state the run reports at its end. ``txn`` is empty for kinds that commit by coverage or not at all.
    ``source_warehouse``: that of the source table; None: ``warehouse``.
    """

    kind: RunKind
    run_id: str
    attempt: int
    warehouse: WarehouseRef
    owner_kind: str
    owner_name: str
    owner_uid: str
    txn: str = ""
    table: TableRef | None = None
    indexes: tuple[IndexRef, ...] = ()
    spark: SparkRef = field(default_factory=SparkRef)
    table_task: TableTask | None = None
    load: LoadTask | None = None
    reindex: ReindexTask | None = None
    merge: MergeTask | None = None
    observe: ObserveTask | None = None
    confirm: ConfirmTask | None = None
    drop: DropTask | None = None
    maintain: MaintainTask | None = None
    source_warehouse: WarehouseRef | None = None
    version: int = CONTRACT_VERSION

    @property
    def table_uid(self) -> str:
        """The uid of the Table resource; empty when the run has none."""
        return self.table.uid if self.table is not None else ""

    def to_json(self) -> str:
        """The text that goes into the ConfigMap."""
        return json.dumps(encode(self), sort_keys=True, indent=1)

    @staticmethod
    def from_json(text: str) -> JobRequest:
        """Read a request; raises ContractViolation for another version (naming both) or an unreadable field."""
        raw = json.loads(text)
        version = raw.get("version") if isinstance(raw, dict) else None
        if version != CONTRACT_VERSION:
            problem = f"request has version {version}, this image reads version {CONTRACT_VERSION}"
            raise ContractViolation(f"{problem}: {_OTHER_IMAGE}")
        try:
            return decode(JobRequest, raw)
        except ContractViolation as error:
            raise ContractViolation(f"{error}: {_OTHER_IMAGE}") from error
