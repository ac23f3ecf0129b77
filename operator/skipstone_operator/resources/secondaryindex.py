"""The SecondaryIndex: an index on a Table, kept in sync segment by segment.

Imported by reconcilers, manifests and the CRD generator. Data only.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Annotated, ClassVar

from skipstone_core.contract.indextypes import IndexParameter, IndexParameters, IndexType

from skipstone_operator.resources.common import (
    OBSERVED_GENERATION,
    Condition,
    CurrentRun,
    LastRun,
    LocalRef,
    ReclaimPolicy,
    SeenMetadata,
)
from skipstone_operator.resources.indexstore import IndexStore
from skipstone_operator.resources.rules import limits
from skipstone_operator.resources.rules.markers import (
    Doc,
    Rule,
    distinct,
    frozen_optional,
    frozen_required,
    name_text,
    time_text,
)

_PARAMETERS = {parameter.name: parameter for kind in IndexType for parameter in kind.traits.parameters}


def _parameter(name: str) -> Doc:
    """The field of a parameter."""
    known = _PARAMETERS[name]
    return Doc(f"{known.says} Never changes.", minimum=known.minimum, maximum=known.maximum)


def _parameter_rules(kind: IndexType, parameter: IndexParameter) -> tuple[Rule, ...]:
    """That an index of type ``kind``, and no other, has ``parameter``."""
    name = parameter.name
    return (
        Rule(
            holds=lambda spec: spec.type is not kind or getattr(spec, name) is not None,
            rule=f"self.type != '{kind}' || has(self.{name})",
            message=f"{name} is required for an index of type {kind}: set {parameter.means}",
            field_path=".type",
        ),
        Rule(
            holds=lambda spec: spec.type is kind or getattr(spec, name) is None,
            rule=f"self.type == '{kind}' || !has(self.{name})",
            message=f"{name} is for indexes of type {kind} only: remove it or set type to {kind}",
            field_path=f".{name}",
        ),
    )


class Maintenance(StrEnum):
    """When a reindex starts."""

    AUTO = "Auto"
    MANUAL = "Manual"
    INLINE = "Inline"


@dataclass(frozen=True, kw_only=True)
class SecondaryIndexSpec:
    """What the index should be."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        frozen_required("tableRef"),
        frozen_required("columns"),
        frozen_optional("include"),
        frozen_required("type"),
        *(frozen_optional(name) for name in _PARAMETERS),
        Rule(
            rule="has(self.store) == has(oldSelf.store) && (!has(self.store) || self.store.type == oldSelf.store.type)",
            message="store cannot be added or removed after creation, nor its type changed: create another resource "
            "instead",
            field_path=".store",
        ),
        Rule(
            holds=lambda spec: spec.store is None or (spec.type is IndexType.LOOKUP and not spec.include),
            rule="!has(self.store) || (self.type == 'Lookup' && (!has(self.include) || self.include.size() == 0))",
            message="store is for indexes of type Lookup without include only: remove store, or include and buckets",
            field_path=".store",
        ),
        *(rule for kind in IndexType for part in kind.traits.parameters for rule in _parameter_rules(kind, part)),
        Rule(
            holds=lambda spec: (
                spec.min_covered_percent is None
                or spec.unused_below_percent is None
                or spec.unused_below_percent <= spec.min_covered_percent
            ),
            rule=(
                "!has(self.minCoveredPercent) || !has(self.unusedBelowPercent) || "
                "self.unusedBelowPercent <= self.minCoveredPercent"
            ),
            message=(
                "unusedBelowPercent is greater than minCoveredPercent, at which the index counts as ready: lower it, "
                "or raise minCoveredPercent"
            ),
            field_path=".unusedBelowPercent",
        ),
        Rule(
            holds=lambda spec: not set(spec.include) & set(spec.columns),
            rule="!has(self.include) || self.include.all(c, !(c in self.columns))",
            message="include names a column that columns names already: name each column once",
            field_path=".include",
        ),
    )

    table_ref: Annotated[LocalRef, Doc("The Table that is indexed. Never changes.")]
    columns: Annotated[
        tuple[str, ...],
        Doc(
            "Indexed columns in index order. Never changes.",
            min_items=1,
            max_items=limits.MAX_KEYS,
            item=name_text("One column."),
            rules=(distinct("columns"),),
        ),
    ]
    include: Annotated[
        tuple[str, ...],
        Doc(
            "Columns whose values the index stores beside the keys, so that queries for both need only the index. Not "
            "part of the order. Never changes.",
            max_items=limits.MAX_KEYS,
            item=name_text("One column."),
            rules=(distinct("include"),),
        ),
    ] = ()
    type: Annotated[
        IndexType,
        Doc(f"Kind of index. {' '.join(f'{kind} {kind.traits.says}.' for kind in IndexType)} Never changes."),
    ] = IndexType.LOOKUP
    buckets: Annotated[int | None, _parameter("buckets")] = None
    store: Annotated[
        IndexStore | None,
        Doc(
            "A key-value store that holds the entries instead of the index table. Such an index serves merges and "
            "conditions that name values of all its columns. It cannot be added, removed or given another type; other "
            "changes apply after the next reindex, which starts at once unless maintenance is Manual."
        ),
    ] = None
    maintenance: Annotated[
        Maintenance,
        Doc(
            "Auto: reindex as soon as segments are missing. Manual: only when the annotation skipstone.dev/reindex "
            "gets a new value. Inline: loads, merges and compactions add their files to the index before they end; "
            "files that they could not add are reindexed as with Auto."
        ),
    ] = Maintenance.AUTO
    suspend: Annotated[bool, Doc("Start no reindex while true; queries still use the index and stay right.")] = False
    reclaim_policy: Annotated[ReclaimPolicy, Doc("What happens to the index table when this resource is deleted.")] = (
        ReclaimPolicy.DELETE
    )
    max_lag_segments: Annotated[
        int | None, Doc("Ready turns False when more segments than this are missing.", minimum=0, maximum=1_000_000)
    ] = None
    min_covered_percent: Annotated[
        int | None, Doc("Ready turns False when a smaller percentage of the rows is covered.", minimum=0, maximum=100)
    ] = None
    unused_below_percent: Annotated[
        int | None,
        Doc(
            "Queries and merges do not use the index, and Ready turns False, while a smaller percentage of the rows is "
            "covered. A change applies after the next reindex, which starts at once unless maintenance is Manual.",
            minimum=0,
            maximum=100,
        ),
    ] = None

    @property
    def parameters(self) -> IndexParameters:
        """The parameters of the type."""
        return IndexParameters(**{part.name: getattr(self, part.name) for part in fields(IndexParameters)})


@dataclass(frozen=True, kw_only=True)
class IndexSegments:
    """Segments of the table, as the index sees them."""

    total: Annotated[int, Doc("Live segments of the table.", minimum=0)] = 0
    synced: Annotated[int, Doc("Segments whose live files are all covered.", minimum=0)] = 0
    missing: Annotated[int, Doc("Segments with a live file that is not covered.", minimum=0)] = 0
    failed: Annotated[int, Doc("Segments that could not be indexed.", minimum=0)] = 0


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How much of something is covered."""

    live: Annotated[int, Doc("The live amount in the table.", minimum=0)] = 0
    covered: Annotated[int, Doc("The amount that the index covers.", minimum=0)] = 0


@dataclass(frozen=True, kw_only=True)
class SecondaryIndexStatus:
    """How far the index covers the table."""

    observed_generation: Annotated[int, OBSERVED_GENERATION] = 0
    conditions: Annotated[
        tuple[Condition, ...],
        Doc(
            "Ready, Synced, Progressing and Degraded, and Reconciling or Stalled while they hold.",
            max_items=16,
            list_key="type",
            item=Doc("One condition."),
        ),
    ] = ()
    column_list: Annotated[str, Doc("Indexed columns, joined by commas.", max_length=8448)] = ""
    warehouse: Annotated[str, Doc("Name of the Warehouse of the index.", max_length=253)] = ""
    table_namespace: Annotated[str, Doc("Catalog namespace of the indexed table.", max_length=128)] = ""
    table_name: Annotated[str, Doc("Name of the indexed table in the catalog.", max_length=128)] = ""
    table_uid: Annotated[str, Doc("Uid of the Table.", max_length=64)] = ""
    table_uuid: Annotated[str, Doc("UUID of the indexed Iceberg table.", max_length=64)] = ""
    table_sequence_number: Annotated[int, Doc("Sequence number of the table's head last seen.", minimum=0)] = 0
    synced_sequence_number: Annotated[
        int, Doc("Sequence number up to which the index covers all segments.", minimum=0)
    ] = 0
    observed_time: Annotated[str | None, time_text("When a run last read the heads of table and index.")] = None
    metadata: Annotated[SeenMetadata | None, Doc("The metadata of the table that the status describes.")] = None
    index_metadata: Annotated[
        SeenMetadata | None, Doc("The metadata of the index table that the status describes.")
    ] = None
    last_sync_time: Annotated[str | None, time_text("When a reindex last committed.")] = None
    segments: Annotated[IndexSegments, Doc("Segments by coverage.")] = IndexSegments()
    files: Annotated[Coverage, Doc("Data files by coverage.")] = Coverage()
    rows: Annotated[Coverage, Doc("Rows by coverage.")] = Coverage()
    missing_segments: Annotated[
        tuple[int, ...], Doc("The oldest 20 segments that are not covered.", max_items=20, item=Doc("Segment id."))
    ] = ()
    synced: Annotated[str, Doc("Synced and live segments, such as 3/5.", max_length=64)] = ""
    missing: Annotated[str, Doc("Ids of missing segments, such as 1,4.", max_length=256)] = ""
    covered: Annotated[str, Doc("Share of rows covered, such as 98 %.", max_length=16)] = ""
    exists: Annotated[bool, Doc("Whether the index table exists.")] = False
    entries: Annotated[int, Doc("Entries of the index.", minimum=0)] = 0
    bytes: Annotated[int, Doc("Bytes of the index.", minimum=0)] = 0
    rows_to_merge: Annotated[
        int, Doc("Entries that a reindex would merge or drop now; 0 when none are due.", minimum=0)
    ] = 0
    unused_below_percent: Annotated[
        int,
        Doc("The percentage of rows below which queries and merges do not use the index.", minimum=0, maximum=100),
    ] = 0
    store: Annotated[
        str, Doc("The store that holds the entries, with its settings; empty for the index table.", max_length=1024)
    ] = ""
    degraded: Annotated[str, Doc("Why a run found the index unusable; empty when healthy.", max_length=128)] = ""
    degraded_message: Annotated[str, Doc("The sentence that goes with it.", max_length=4096)] = ""
    observed_reindex: Annotated[
        str, Doc("Value of the annotation skipstone.dev/reindex last acted upon, shortened.", max_length=256)
    ] = ""
    current_run: Annotated[CurrentRun | None, Doc("The reindex or drop in progress.")] = None
    last_run: Annotated[LastRun | None, Doc("The reindex that ended last.")] = None
    failed_attempts: Annotated[int, Doc("Failed attempts in a row.", minimum=0)] = 0
    failed_inputs_hash: Annotated[
        str, Doc("Inputs that failed permanently; retried when they change.", max_length=64)
    ] = ""
    retry_time: Annotated[str | None, time_text("The earliest time of the next attempt.")] = None
