"""The Table: an Iceberg table that Skipstone creates and evolves, or one that it watches.

Imported by reconcilers, manifests and the CRD generator. Data only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from skipstone_core.contract.reports import MAX_LISTED_PROPERTIES
from skipstone_core.contract.requests import Management
from skipstone_core.maintenance.policies import MaintenanceStep

from skipstone_operator.resources.common import (
    OBSERVED_GENERATION,
    Condition,
    CurrentRun,
    LastRun,
    LocalRef,
    ReclaimPolicy,
    SeenMetadata,
)
from skipstone_operator.resources.maintenance.spec import MaintenanceSpec
from skipstone_operator.resources.maintenance.status import Health, StepResult
from skipstone_operator.resources.rules import limits
from skipstone_operator.resources.rules.markers import (
    Doc,
    Rule,
    allowed_keys,
    distinct,
    frozen_required,
    name_text,
    time_text,
)

MAX_PROPERTY_NAME = 256
MAX_CAVEATS = 10
IDENTIFIER_PART = "^[A-Za-z0-9_-]+$"


class Transform(StrEnum):
    """Partition transforms of Iceberg."""

    IDENTITY = "Identity"
    YEAR = "Year"
    MONTH = "Month"
    DAY = "Day"
    HOUR = "Hour"
    BUCKET = "Bucket"
    TRUNCATE = "Truncate"


WITH_WIDTH = (Transform.BUCKET, Transform.TRUNCATE)


class SortDirection(StrEnum):
    """Direction of a sort field."""

    ASCENDING = "Ascending"
    DESCENDING = "Descending"


class NullOrder(StrEnum):
    """Where nulls go in a sort order."""

    FIRST = "First"
    LAST = "Last"


@dataclass(frozen=True, kw_only=True)
class Identifier:
    """Where the table is in the catalog."""

    namespace: Annotated[
        str,
        Doc(
            "Catalog namespace of the table; with several levels, a dot between them, such as sales.eu.",
            min_length=1,
            max_length=128,
            pattern=limits.NAMESPACE,
            help=f"identifier.namespace {limits.NAMESPACE_HELP}",
        ),
    ]
    name: Annotated[
        str,
        Doc(
            "Name of the table in the catalog.",
            min_length=1,
            max_length=128,
            pattern=IDENTIFIER_PART,
            help="identifier.name may hold letters, digits, '_' and '-' only: write the namespace into "
            "identifier.namespace",
            rules=(
                Rule(
                    holds=lambda name: "__si_" not in name,
                    rule="!self.contains('__si_')",
                    message="identifier.name may not contain '__si_', which marks index tables: choose another name",
                ),
            ),
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of the table."""

    name: Annotated[str, name_text("Name of the column.")]
    type: Annotated[
        str,
        Doc(
            f"Iceberg type name: {limits.COLUMN_TYPE_HELP}.",
            min_length=1,
            max_length=32,
            pattern=limits.COLUMN_TYPE,
            help=f"columns[].type must be one of {limits.COLUMN_TYPE_HELP}: nested types are not supported",
        ),
    ]
    required: Annotated[bool, Doc("Whether the column refuses nulls.")] = False
    doc: Annotated[str, Doc("Comment on the column, kept in the table.", max_length=1024)] = ""


@dataclass(frozen=True, kw_only=True)
class PartitionField:
    """One field of the partition spec."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            holds=lambda field: (field.width is not None) == (field.transform in WITH_WIDTH),
            rule="has(self.width) == (self.transform in ['Bucket', 'Truncate'])",
            message="partitioning[].width is needed for the transforms Bucket and Truncate and not allowed for others",
            field_path=".width",
        ),
    )

    column: Annotated[str, name_text("Source column of the partition field.")]
    transform: Annotated[Transform, Doc("How values become partitions.")] = Transform.IDENTITY
    width: Annotated[
        int | None, Doc("Number of buckets, or length to truncate to.", minimum=1, maximum=2_147_483_647)
    ] = None


@dataclass(frozen=True, kw_only=True)
class SortField:
    """One field of the sort order."""

    column: Annotated[str, name_text("Column to sort by.")]
    direction: Annotated[SortDirection, Doc("Ascending or Descending.")] = SortDirection.ASCENDING
    nulls: Annotated[
        NullOrder | None, Doc("Where nulls go; first when ascending and last when descending if absent.")
    ] = None


def _named(fields: Iterable[Any]) -> Iterator[str]:
    return (field if isinstance(field, str) else field.column for field in fields)


def _known_columns(name: str, attribute: str, each: str) -> Rule:
    return Rule(
        holds=lambda spec: (
            not spec.columns or {column.name for column in spec.columns}.issuperset(_named(getattr(spec, attribute)))
        ),
        rule=(
            f"!has(self.{name}) || !has(self.columns) || self.columns.size() == 0 || "
            f"self.{name}.all(f, self.columns.exists(c, c.name == {each}))"
        ),
        message=f"{name} names a column that spec.columns does not list: add the column or correct the name",
        field_path=f".{name}",
    )


def _is_sorted_by_known(spec: Any) -> bool:
    compaction = spec.maintenance.compaction if spec.maintenance is not None else None
    names = {column.name for column in spec.columns}
    return compaction is None or not names or names.issuperset(compaction.sort_by)


def _only_managed(name: str, attribute: str) -> Rule:
    return Rule(
        holds=lambda spec: spec.management != Management.OBSERVED or not getattr(spec, attribute),
        rule=f"self.management != 'Observed' || !has(self.{name}) || self.{name}.size() == 0",
        message=f"{name} is not allowed with management Observed, which never changes the table: remove it",
        field_path=f".{name}",
    )


@dataclass(frozen=True, kw_only=True)
class TableSpec:
    """What the table should be."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        frozen_required("warehouseRef"),
        frozen_required("identifier"),
        Rule(
            holds=lambda spec: spec.management != Management.MANAGED or bool(spec.columns),
            rule="self.management != 'Managed' || (has(self.columns) && self.columns.size() > 0)",
            message="columns must list at least one column for management Managed: add columns or set management to "
            "Observed",
            field_path=".columns",
        ),
        _only_managed("columns", "columns"),
        _only_managed("primaryKey", "primary_key"),
        _only_managed("partitioning", "partitioning"),
        _only_managed("sortOrder", "sort_order"),
        _only_managed("properties", "properties"),
        Rule(
            holds=lambda spec: spec.management != Management.OBSERVED or spec.reclaim_policy == ReclaimPolicy.RETAIN,
            rule="self.management != 'Observed' || self.reclaimPolicy == 'Retain'",
            message="reclaimPolicy Delete is not allowed with management Observed, whose data belongs to somebody "
            "else: use Retain",
            field_path=".reclaimPolicy",
        ),
        Rule(  # the operator judges it with the table's columns in hand: one that has such a column keeps it
            rule="(has(self.allowTypesUnreadableBySpark) && self.allowTypesUnreadableBySpark) || !has(self.columns) || "
            f"self.columns.all(c, c.type != '{limits.CLOSED_TYPE}')",
            message=f"columns[].type {limits.CLOSED_TYPE} {limits.CLOSED_WAY_OUT}",
            field_path=".columns",
        ),
        _known_columns("primaryKey", "primary_key", "f"),
        _known_columns("partitioning", "partitioning", "f.column"),
        _known_columns("sortOrder", "sort_order", "f.column"),
        Rule(
            holds=_is_sorted_by_known,
            rule="!has(self.maintenance) || !has(self.maintenance.compaction) || "
            "!has(self.maintenance.compaction.sortBy) || !has(self.columns) || self.columns.size() == 0 || "
            "self.maintenance.compaction.sortBy.all(f, self.columns.exists(c, c.name == f))",
            message="maintenance.compaction.sortBy names a column that spec.columns does not list: add the column or "
            "correct the name",
            field_path=".maintenance.compaction.sortBy",
        ),
        Rule(
            holds=lambda spec: all(column.required for column in spec.columns if column.name in spec.primary_key),
            rule="!has(self.primaryKey) || !has(self.columns) || self.columns.size() == 0 || "
            "self.columns.all(c, !(c.name in self.primaryKey) || c.required)",
            message="primaryKey columns must be declared with required: true, since Iceberg allows no null in them",
            field_path=".primaryKey",
        ),
        Rule(
            holds=lambda spec: not spec.refresh_interval_seconds or spec.refresh_interval_seconds >= 30,
            rule="!has(self.refreshIntervalSeconds) || self.refreshIntervalSeconds == 0 || "
            "self.refreshIntervalSeconds >= 30",
            message="refreshIntervalSeconds must be 0 (off) or at least 30",
            field_path=".refreshIntervalSeconds",
        ),
    )

    warehouse_ref: Annotated[LocalRef, Doc("The Warehouse of the table. Never changes.")]
    identifier: Annotated[Identifier, Doc("The table's name in the catalog. Never changes.")]
    columns: Annotated[
        tuple[Column, ...],
        Doc(
            "Columns of a Managed table. New columns are added and safe type promotions applied; other changes are "
            "refused.",
            max_items=limits.MAX_COLUMNS,
            list_key="name",
            item=Doc("One column."),
        ),
    ] = ()
    allow_types_unreadable_by_spark: Annotated[
        bool,
        Doc(
            f"Accept columns of the type {limits.CLOSED_TYPE}. Spark 4.1 with Iceberg 1.12 cannot open a table that "
            "has one, even if a query does not name it."
        ),
    ] = False
    primary_key: Annotated[
        tuple[str, ...],
        Doc(
            "Columns that identify a row.",
            max_items=limits.MAX_KEYS,
            item=name_text("One column."),
            rules=(distinct("primaryKey"),),
        ),
    ] = ()
    partitioning: Annotated[
        tuple[PartitionField, ...],
        Doc(
            "The partition spec; unpartitioned when empty.",
            max_items=limits.MAX_KEYS,
            item=Doc("One partition field."),
        ),
    ] = ()
    sort_order: Annotated[
        tuple[SortField, ...],
        Doc("How rows are sorted inside data files.", max_items=limits.MAX_KEYS, item=Doc("One sort field.")),
    ] = ()
    properties: Annotated[
        Mapping[str, str],
        Doc(
            "Iceberg table properties from a list of allowed ones; the resources reference names them.",
            max_properties=limits.MAX_MAP,
            item=Doc("Value of the property, as text.", max_length=limits.MAX_VALUE),
            rules=(
                allowed_keys(
                    "properties",
                    limits.TABLE_PROPERTIES,
                    prefixes=limits.TABLE_PROPERTY_PREFIXES,
                    hint="use the Iceberg properties that the resources reference lists (commit.retry.* is never one)",
                ),
            ),
        ),
    ] = field(default_factory=dict)
    management: Annotated[
        Management,
        Doc("Managed: Skipstone creates and evolves the table. Observed: another owner does."),
    ] = Management.MANAGED
    reclaim_policy: Annotated[
        ReclaimPolicy,
        Doc("What happens to the data when this resource is deleted; a table not created here is always kept."),
    ] = ReclaimPolicy.RETAIN
    refresh_interval_seconds: Annotated[
        int | None,
        Doc(
            "Seconds without a report after which an observe run reads the table again; 0 is never. When absent, 0 "
            "for Managed and 300 for Observed.",
            minimum=0,
            maximum=31_536_000,
        ),
    ] = None
    maintenance: Annotated[
        MaintenanceSpec | None,
        Doc(
            "Maintenance of the table: compaction, expiry of snapshots, orphan files, and its time window; none when "
            "absent."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Segments:
    """Segments of the table by status."""

    total: Annotated[int, Doc("Segments with a live data file.", minimum=0)] = 0
    valid: Annotated[int, Doc("Segments as they were written.", minimum=0)] = 0
    partial: Annotated[int, Doc("Segments whose load rejected rows.", minimum=0)] = 0
    updated: Annotated[int, Doc("Segments with deletes or rewritten files.", minimum=0)] = 0
    latest: Annotated[int | None, Doc("Id of the newest segment.", minimum=0)] = None


@dataclass(frozen=True, kw_only=True)
class PropertiesSeen:
    """Table properties, set by anybody, that loads and merges do not follow."""

    ignored: Annotated[
        tuple[str, ...],
        Doc(
            "The first ignored properties, by name.",
            max_items=MAX_LISTED_PROPERTIES,
            item=Doc("Name of a table property.", max_length=MAX_PROPERTY_NAME),
        ),
    ] = ()
    ignored_total: Annotated[int, Doc("The number of ignored properties.", minimum=0)] = 0
    refused: Annotated[
        str, Doc("Why loads or merges refuse the value of a property; empty when they refuse none.", max_length=1024)
    ] = ""


@dataclass(frozen=True, kw_only=True)
class IndexTally:
    """How many indexes the table has."""

    total: Annotated[int, Doc("SecondaryIndexes that name the table.", minimum=0)] = 0
    in_sync: Annotated[int, Doc("Indexes that cover every live segment.", minimum=0)] = 0


@dataclass(frozen=True, kw_only=True)
class Writer:
    """Who may write the table now."""

    kind: Annotated[str, name_text("Kind of the resource that writes.", max_length=63)]
    name: Annotated[str, name_text("Name of the resource that writes.", max_length=253)]
    uid: Annotated[str, name_text("Uid of the resource that writes.", max_length=64)]
    run: Annotated[str, Doc("Its run.", max_length=63)] = ""
    since: Annotated[str | None, time_text("When it became the writer.")] = None


@dataclass(frozen=True, kw_only=True)
class TableStatus:
    """What is known of the table."""

    observed_generation: Annotated[int, OBSERVED_GENERATION] = 0
    conditions: Annotated[
        tuple[Condition, ...],
        Doc(
            "Ready, Progressing and Healthy, and Reconciling or Stalled while they hold.",
            max_items=16,
            list_key="type",
            item=Doc("One condition."),
        ),
    ] = ()
    table_uuid: Annotated[str, Doc("UUID of the Iceberg table; set once.", max_length=64)] = ""
    location: Annotated[str, Doc("Where the data is.", max_length=2048)] = ""
    namespace_id: Annotated[
        str, Doc("Random mark on the catalog's namespace, by which later runs recognize the catalog.", max_length=64)
    ] = ""
    format_version: Annotated[int, Doc("Format version of the Iceberg table; 0 when not known.", minimum=0)] = 0
    owned: Annotated[
        bool | None,
        Doc("Whether this resource created the table and may purge it; absent until a run has reported it."),
    ] = None
    field_ids: Annotated[
        Mapping[str, int],
        Doc("Iceberg field id of each column.", max_properties=2 * limits.MAX_COLUMNS, item=Doc("Field id.")),
    ] = field(default_factory=dict)
    column_types: Annotated[
        Mapping[str, str],
        Doc(
            "Iceberg type of each column.",
            max_properties=2 * limits.MAX_COLUMNS,
            item=Doc("Type name.", max_length=4096),
        ),
    ] = field(default_factory=dict)
    problem: Annotated[str, Doc("The problem that a run found with the table; empty when none.", max_length=128)] = ""
    problem_message: Annotated[str, Doc("The sentence that goes with it.", max_length=4096)] = ""
    snapshot_id: Annotated[str, Doc("Current snapshot, as text since JSON numbers lose digits.", max_length=32)] = ""
    sequence_number: Annotated[int, Doc("Sequence number of the current snapshot.", minimum=0)] = 0
    observed_time: Annotated[str | None, time_text("When a run last read the table's head.")] = None
    untold_time: Annotated[
        str | None,
        time_text("When a job ended whose commit is not in the status yet; absent when there is none."),
    ] = None
    metadata: Annotated[SeenMetadata | None, Doc("The metadata of the table that the status describes.")] = None
    rows: Annotated[int, Doc("Rows in live data files, without those that position deletes remove.", minimum=0)] = 0
    files: Annotated[int, Doc("Live data files.", minimum=0)] = 0
    bytes: Annotated[int, Doc("Bytes of live data files.", minimum=0)] = 0
    segments: Annotated[Segments, Doc("Segments by status.")] = Segments()
    properties: Annotated[
        PropertiesSeen, Doc("Properties of the Iceberg table that loads and merges do not follow.")
    ] = PropertiesSeen()
    caveats: Annotated[
        tuple[str, ...],
        Doc(
            "Limits of other engines with the table, and the way out.",
            max_items=MAX_CAVEATS,
            item=Doc("One of them.", max_length=1024),
        ),
    ] = ()
    indexes: Annotated[IndexTally, Doc("Indexes of the table.")] = IndexTally()
    indexes_in_sync: Annotated[str, Doc("Indexes in sync and all indexes, such as 2/3.", max_length=32)] = ""
    writer: Annotated[Writer | None, Doc("The resource whose run may write the table now; none when absent.")] = None
    current_run: Annotated[CurrentRun | None, Doc("The table change or drop in progress.")] = None
    last_run: Annotated[LastRun | None, Doc("The table change that ended last.")] = None
    applied_generation: Annotated[int, Doc("The generation whose spec is in the table.", minimum=0)] = 0
    applied_hash: Annotated[str, Doc("Hash over the inputs of the last applied change.", max_length=64)] = ""
    failed_attempts: Annotated[int, Doc("Failed attempts in a row.", minimum=0)] = 0
    failed_inputs_hash: Annotated[
        str, Doc("Inputs that failed permanently; retried when they change.", max_length=64)
    ] = ""
    retry_time: Annotated[str | None, time_text("The earliest time of the next attempt.")] = None
    health: Annotated[
        Health | None,
        Doc("The health of the table by spec.maintenance; absent without it, and until a run has reported it."),
    ] = None
    last_maintenance: Annotated[
        tuple[StepResult, ...],
        Doc(
            "The steps of maintenance, in the order of their last attempts.",
            max_items=16,
            list_key="step",
            item=Doc("One."),
        ),
    ] = ()
    maintain_run: Annotated[CurrentRun | None, Doc("The maintain run in progress.")] = None
    maintain_steps: Annotated[
        tuple[MaintenanceStep, ...], Doc("The requested steps.", max_items=16, item=Doc("One step."))
    ] = ()
    maintain_request: Annotated[
        str,
        Doc(
            "Value of the annotation skipstone.dev/maintain that requested it; empty without a request.", max_length=256
        ),
    ] = ""
    last_maintain_run: Annotated[LastRun | None, Doc("The maintain run that ended last.")] = None
    failed_maintains: Annotated[
        int, Doc("Maintain runs in a row that failed, or completed no due step.", minimum=0)
    ] = 0
    maintains_given_way: Annotated[
        int, Doc("Maintain runs in a row that gave way to a job before their first commit.", minimum=0)
    ] = 0
    maintain_retry_time: Annotated[str | None, time_text("The earliest time of the next maintain run.")] = None
    observed_maintain: Annotated[
        str, Doc("Value of the annotation skipstone.dev/maintain last acted upon, shortened.", max_length=256)
    ] = ""
