"""An object of ours both as the API gave it and as typed values, and the place its runs happen in.

Gathered by reconcilers, judged by deciders. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Generic, TypeVar

from skipstone_core.codec import salvage
from skipstone_core.errors import ContractViolation
from skipstone_core.reasons import Reason

from skipstone_operator import labels
from skipstone_operator.conditions import READY, is_true
from skipstone_operator.ports import Key, RunDefaults, Timing
from skipstone_operator.resources.common import Metadata, OwnerReference, ReclaimPolicy
from skipstone_operator.resources.jobstatus import JobStatus
from skipstone_operator.resources.kinds import API_VERSION, Kind, Resource, parse_as
from skipstone_operator.resources.loadjob import LoadJobSpec
from skipstone_operator.resources.mergejob import MergeJobSpec, MergeJobStatus
from skipstone_operator.resources.mergeschedule import MergeScheduleSpec, MergeScheduleStatus
from skipstone_operator.resources.secondaryindex import SecondaryIndexSpec, SecondaryIndexStatus
from skipstone_operator.resources.table import TableSpec, TableStatus
from skipstone_operator.resources.warehouse import WarehouseSpec, WarehouseStatus
from skipstone_operator.worlds.keeping import KeptDrivers
from skipstone_operator.worlds.pods import PodFacts
from skipstone_operator.worlds.runs import ConfFacts

S = TypeVar("S")
T = TypeVar("T")
S_co = TypeVar("S_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)
#: An object as the API gave it.
Raw = Mapping[str, Any]


@dataclass(frozen=True)
class Subject(Generic[S_co, T_co]):
    """One object: ``raw`` to write it back, ``resource`` to judge it."""

    raw: Raw
    resource: Resource[S_co, T_co]

    @property
    def meta(self) -> Metadata:
        """Its metadata."""
        return self.resource.metadata

    @property
    def spec(self) -> S_co:
        """Its typed spec."""
        return self.resource.spec

    @property
    def status(self) -> T_co:
        """Its typed status."""
        return self.resource.status

    @property
    def kind(self) -> str:
        """Its kind."""
        return self.resource.kind

    @property
    def key(self) -> Key:
        """The key under its own kind."""
        return Key(self.kind, self.meta.namespace, self.meta.name)

    @property
    def deleting(self) -> bool:
        """Return whether its deletion was asked for."""
        return self.meta.deletion_timestamp is not None

    @property
    def age(self) -> tuple[str, str]:
        """What orders objects: the older first, then by name."""
        return (self.meta.creation_timestamp, self.meta.name)

    @property
    def owner(self) -> OwnerReference | None:
        """The resource that controls it."""
        return next((owner for owner in self.meta.owner_references if owner.controller), None)

    @property
    def reference(self) -> dict[str, str]:
        """How Events refer to it."""
        return {
            "apiVersion": API_VERSION,
            "kind": self.kind,
            "namespace": self.meta.namespace,
            "name": self.meta.name,
            "uid": self.meta.uid,
        }


TableSubject = Subject[TableSpec, TableStatus]
WarehouseSubject = Subject[WarehouseSpec, WarehouseStatus]
IndexSubject = Subject[SecondaryIndexSpec, SecondaryIndexStatus]
JobSubject = Subject[LoadJobSpec | MergeJobSpec, JobStatus]
MergeJobSubject = Subject[MergeJobSpec, MergeJobStatus]
ScheduleSubject = Subject[MergeScheduleSpec, MergeScheduleStatus]
#: An object of any kind of ours.
AnySubject = Subject[object, object]


def is_dry_run(subject: AnySubject) -> bool:
    """Return whether it is a MergeJob that writes nothing."""
    return isinstance(subject.spec, MergeJobSpec) and subject.spec.dry_run is True


def read_subject(kind: Kind[S, T], raw: Raw) -> Subject[S, T]:
    """Parse ``raw``. What cannot be read of the status is absent: users and other releases write it too.

    Raises ContractViolation for a spec that the CRD would not have let in.
    """
    known = parse_as(kind, {**raw, "status": {}})
    status = raw.get("status")
    return Subject(raw, replace(known, status=salvage(kind.status, status if isinstance(status, Mapping) else {})))


@dataclass(frozen=True)
class Unreadable:
    """An object whose spec this release cannot read, and why."""

    raw: Raw
    error: ContractViolation


@dataclass(frozen=True)
class Finding:
    """Something that stands in the way, in one sentence."""

    reason: Reason
    message: str


@dataclass(frozen=True)
class ClaimFacts:
    """A PersistentVolumeClaim: its access modes, as granted or else as asked for."""

    name: str
    access_modes: tuple[str, ...]
    raw: Raw = field(default_factory=dict, compare=False, repr=False)

    @property
    def one_node(self) -> bool:
        """Return whether all pods must be on one node."""
        return not {"ReadWriteMany"} & set(self.access_modes)

    @property
    def many_read(self) -> bool:
        """Return whether pods on several nodes can read it at once."""
        return bool({"ReadWriteMany", "ReadOnlyMany"} & set(self.access_modes))

    @property
    def one_pod(self) -> bool:
        """Return whether only one pod may use the claim at a time."""
        return self.access_modes == ("ReadWriteOncePod",)


def read_claim(raw: Raw) -> ClaimFacts:
    """The facts of a PersistentVolumeClaim."""
    granted = (raw.get("status") or {}).get("accessModes") or (raw.get("spec") or {}).get("accessModes") or ()
    return ClaimFacts(raw["metadata"]["name"], tuple(granted), raw)


@dataclass(frozen=True)
class LocationClaim:
    """The claim ``name`` of a source location; ``facts`` None when there is no such claim."""

    location: str
    name: str
    facts: ClaimFacts | None


@dataclass(frozen=True)
class ServerObject:
    """One object that has the name of the server."""

    raw: Raw

    @property
    def kind(self) -> str:
        """Its kind."""
        return str(self.raw["kind"])

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.raw["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return str(self.raw["metadata"].get("namespace", ""))

    @property
    def uid(self) -> str:
        """Its uid."""
        return str(self.raw["metadata"].get("uid", ""))

    @property
    def hash(self) -> str:
        """The hash of the manifest as it was written last."""
        return str((self.raw["metadata"].get("annotations") or {}).get(labels.MANIFEST_HASH_ANNOTATION, ""))

    @property
    def deleting(self) -> bool:
        """Return whether its deletion was asked for."""
        return bool(self.raw["metadata"].get("deletionTimestamp"))

    def is_owned_by(self, uid: str) -> bool:
        """Return whether the resource with this uid controls it."""
        owners = self.raw["metadata"].get("ownerReferences") or ()
        return any(owner.get("controller") and owner.get("uid") == uid for owner in owners)


@dataclass(frozen=True, kw_only=True)
class ServerFacts:
    """The objects of a server by kind. ``key``: a fresh random text for the Secret, should one be made."""

    objects: Mapping[str, ServerObject] = field(default_factory=dict)
    key: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The same for every decision of one reconcile: the time, what the chart says, how long things may take."""

    now: datetime
    defaults: RunDefaults
    timing: Timing = field(default_factory=Timing)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the runs of a table happen: the table with its indexes, and its Warehouse with the claim.

    ``source``: the Table that the source of a job names, if that is there. ``source_warehouse`` and ``source_claim``:
    of that Table, if its Warehouse is another one. ``kept``: the kept drivers of ``warehouse``.
    """

    table: TableSubject | None = None
    warehouse: WarehouseSubject | None = None
    claim: ClaimFacts | None = None
    indexes: tuple[IndexSubject, ...] = ()
    source: TableSubject | None = None
    source_warehouse: WarehouseSubject | None = None
    source_claim: ClaimFacts | None = None
    kept: KeptDrivers | None = None


@dataclass(frozen=True, kw_only=True)
class Children:
    """Driver pods and ConfigMaps of one owner."""

    pods: tuple[PodFacts, ...] = ()
    confs: tuple[ConfFacts, ...] = ()


def read_conf(raw: Raw) -> ConfFacts:
    """The facts of a run's ConfigMap."""
    metadata = raw["metadata"]
    conf_labels = metadata.get("labels") or {}
    return ConfFacts(
        name=metadata["name"],
        namespace=metadata.get("namespace", ""),
        uid=metadata.get("uid", ""),
        run_id=conf_labels.get(labels.RUN_ID_LABEL, ""),
        owner_uid=conf_labels.get(labels.OWNER_UID_LABEL, ""),
        operation=conf_labels.get(labels.OPERATION_LABEL, ""),
    )


def children_of(children: Children, operation: str) -> Children:
    """Those of ``children`` that belong to runs of one operation."""
    return Children(
        pods=tuple(pod for pod in children.pods if pod.operation == operation),
        confs=tuple(conf for conf in children.confs if conf.operation == operation),
    )


def warehouse_ready(warehouse: WarehouseSubject) -> bool:
    """Return whether runs may use the Warehouse: checked at its present generation, and staying."""
    judged = warehouse.status.observed_generation == warehouse.meta.generation
    return judged and is_true(warehouse.status.conditions, READY)


def find_warehouse_finding(name: str, warehouse: WarehouseSubject | None) -> Finding | None:
    """Why the Warehouse of this name cannot be used now."""
    if warehouse is None:
        return Finding(Reason.WAREHOUSE_NOT_FOUND, f"spec.warehouseRef: there is no Warehouse {name!r} here; create it")
    if warehouse_ready(warehouse):
        return None
    return Finding(Reason.WAREHOUSE_NOT_READY, f"Warehouse {name!r} is not ready: see its conditions")


def find_table_finding(name: str, table: TableSubject | None, field: str = "spec.tableRef") -> Finding | None:
    """Why the Table of this name, which ``field`` names, cannot be used by jobs and indexes now."""
    if table is None:
        return Finding(Reason.TABLE_NOT_FOUND, f"{field}: there is no Table {name!r} here; create it")
    if table.deleting:
        return Finding(Reason.TABLE_NOT_FOUND, f"{field}: Table {name!r} is being deleted")
    if table_ready(table):
        return None
    return Finding(Reason.TABLE_NOT_READY, f"Table {name!r} is not ready: see its conditions")


def table_ready(table: TableSubject) -> bool:
    """Return whether the Table's present generation is what the catalog holds."""
    condition = next((c for c in table.status.conditions if c.type == READY), None)
    current = condition is not None and condition.observed_generation == table.meta.generation
    return current and is_true(table.status.conditions, READY)


def deletes_data(subject: TableSubject | IndexSubject) -> bool:
    """Return whether the data goes with the resource."""
    return subject.spec.reclaim_policy is ReclaimPolicy.DELETE
