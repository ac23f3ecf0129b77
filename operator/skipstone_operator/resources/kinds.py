"""The kinds by name, and how an object of the API becomes a typed resource.

Called by reconcilers, the watch and the CRD generator. Must not judge a spec: ``checks`` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from skipstone_core.codec import decode
from skipstone_core.errors import ContractViolation

from skipstone_operator.resources.common import MAX_RESOURCE_NAME, Metadata
from skipstone_operator.resources.loadjob import LoadJobSpec, LoadJobStatus
from skipstone_operator.resources.mergejob import MergeJobSpec, MergeJobStatus
from skipstone_operator.resources.mergeschedule import MergeScheduleSpec, MergeScheduleStatus
from skipstone_operator.resources.secondaryindex import SecondaryIndexSpec, SecondaryIndexStatus
from skipstone_operator.resources.table import TableSpec, TableStatus
from skipstone_operator.resources.warehouse import WarehouseSpec, WarehouseStatus

GROUP = "skipstone.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
CATEGORY = "skipstone"

#: Fields by which the operator selects: a pass costs what it is about, not what else is in the namespace.
TABLE_FIELD = "spec.tableRef.name"
WAREHOUSE_FIELD = "spec.warehouseRef.name"
IDENTIFIER_FIELD = "spec.identifier.name"

S = TypeVar("S")
T = TypeVar("T")
S_co = TypeVar("S_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, kw_only=True)
class Kind(Generic[S, T]):
    """One kind: its names and its types. ``max_name`` bounds the names of its objects.

    ``selectable``: paths of required fields by which the API server can select objects.
    """

    name: str
    plural: str
    singular: str
    short_name: str
    text: str
    spec: type[S]
    status: type[T]
    max_name: int = MAX_RESOURCE_NAME
    selectable: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Resource(Generic[S_co, T_co]):
    """One object of the API."""

    kind: str
    metadata: Metadata
    spec: S_co
    status: T_co


WAREHOUSE = Kind(
    name="Warehouse",
    plural="warehouses",
    singular="warehouse",
    short_name="wh",
    text="Where tables live and how Spark runs.",
    spec=WarehouseSpec,
    status=WarehouseStatus,
)
TABLE = Kind(
    name="Table",
    plural="tables",
    singular="table",
    short_name="tbl",
    text="An Iceberg table that Skipstone creates and evolves, or one that it watches.",
    spec=TableSpec,
    status=TableStatus,
    selectable=(WAREHOUSE_FIELD, IDENTIFIER_FIELD),
)
SECONDARY_INDEX = Kind(
    name="SecondaryIndex",
    plural="secondaryindexes",
    singular="secondaryindex",
    short_name="si",
    text="A lookup index on a Table, kept in sync segment by segment.",
    spec=SecondaryIndexSpec,
    status=SecondaryIndexStatus,
    selectable=(TABLE_FIELD,),
)
LOAD_JOB = Kind(
    name="LoadJob",
    plural="loadjobs",
    singular="loadjob",
    short_name="lj",
    text="Appends files to a Table as one segment, at most once.",
    spec=LoadJobSpec,
    status=LoadJobStatus,
    selectable=(TABLE_FIELD,),
)
MERGE_JOB = Kind(
    name="MergeJob",
    plural="mergejobs",
    singular="mergejob",
    short_name="mj",
    text="Applies a feed of changes to a Table, at most once.",
    spec=MergeJobSpec,
    status=MergeJobStatus,
    selectable=(TABLE_FIELD,),
)
MERGE_SCHEDULE = Kind(
    name="MergeSchedule",
    plural="mergeschedules",
    singular="mergeschedule",
    short_name="ms",
    text="Creates MergeJobs at the times of a cron expression.",
    spec=MergeScheduleSpec,
    status=MergeScheduleStatus,
    # The names of its MergeJobs end with a minute.
    max_name=52,
)

KINDS: Mapping[str, Kind[Any, Any]] = {
    kind.name: kind for kind in (WAREHOUSE, TABLE, SECONDARY_INDEX, LOAD_JOB, MERGE_JOB, MERGE_SCHEDULE)
}


def parse_as(kind: Kind[S, T], raw: Mapping[str, Any]) -> Resource[S, T]:
    """The typed resource of an API object of ``kind``; unknown fields are ignored.

    Raises ContractViolation naming the path of a field that is missing or of a wrong type.
    """
    if raw.get("kind", kind.name) != kind.name:
        raise ContractViolation(f"kind: expected {kind.name}, got {raw.get('kind')!r}")
    return Resource(
        kind=kind.name,
        metadata=decode(Metadata, raw.get("metadata") or {}, path="metadata", strict=False),
        spec=decode(kind.spec, raw.get("spec") or {}, path="spec", strict=False),
        status=decode(kind.status, raw.get("status") or {}, path="status", strict=False),
    )


def parse(raw: Mapping[str, Any]) -> Resource[Any, Any]:
    """The typed resource of an API object by its ``kind``; raises ContractViolation for a kind that is not ours."""
    kind = KINDS.get(str(raw.get("kind")))
    if kind is None:
        raise ContractViolation(f"kind: {raw.get('kind')!r} is none of {', '.join(KINDS)}")
    return parse_as(kind, raw)
