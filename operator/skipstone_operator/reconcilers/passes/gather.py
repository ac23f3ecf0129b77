"""Reading the world: fresh GETs and LISTs, made into what deciders judge.

Called by ``reconcile`` once per pass. Reads only; keeps nothing between passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from skipstone_core.contract.requests import RunKind
from skipstone_core.errors import ContractViolation

from skipstone_operator import labels
from skipstone_operator.manifests import conf_map_name, driver_pod_name
from skipstone_operator.manifests.planning import PLANNING_KINDS, server_name
from skipstone_operator.memory import Memory
from skipstone_operator.ports import AccessDenied, JsonObject, Key, KubeApi, Ports
from skipstone_operator.reconcilers.passes.orphans import find_orphaned_pods
from skipstone_operator.resources.common import CurrentRun
from skipstone_operator.resources.kinds import (
    IDENTIFIER_FIELD,
    LOAD_JOB,
    MERGE_JOB,
    MERGE_SCHEDULE,
    SECONDARY_INDEX,
    TABLE,
    TABLE_FIELD,
    WAREHOUSE,
    WAREHOUSE_FIELD,
    Kind,
)
from skipstone_operator.worlds.identity import find_older_claimant
from skipstone_operator.worlds.keeping import KeptDrivers, read_kept_drivers
from skipstone_operator.worlds.nodes import settle
from skipstone_operator.worlds.pods import PodFacts, read_pod
from skipstone_operator.worlds.runs import RunWorld
from skipstone_operator.worlds.subjects import (
    Children,
    ClaimFacts,
    IndexSubject,
    JobSubject,
    LocationClaim,
    Place,
    Raw,
    ScheduleSubject,
    ServerFacts,
    ServerObject,
    Setting,
    Subject,
    TableSubject,
    Unreadable,
    WarehouseSubject,
    deletes_data,
    read_claim,
    read_conf,
    read_subject,
)
from skipstone_operator.worlds.worlds import IndexWorld, JobWorld, ScheduleWorld, TableWorld, WarehouseWorld

S = TypeVar("S")
T = TypeVar("T")
DRIVERS = {labels.MANAGED_BY_LABEL: labels.MANAGED_BY, labels.ROLE_LABEL: labels.DRIVER_ROLE}


def read_setting(ports: Ports) -> Setting:
    """What is the same for the whole pass."""
    return Setting(now=ports.clock.now(), defaults=ports.defaults, timing=ports.timing)


@dataclass(frozen=True)
class Reader:
    """Reads of one namespace, typed."""

    kube: KubeApi
    namespace: str
    memory: Memory
    setting: Setting

    async def get_subject(self, kind: Kind[S, T], name: str) -> Subject[S, T] | None:
        """One resource of ours. Raises ContractViolation when this release cannot read its spec."""
        raw = await self.kube.get(kind.name, self.namespace, name) if name else None
        try:
            return _read_one(kind, raw, self.memory) if raw is not None else None
        except ContractViolation as error:
            raise ContractViolation(f"{kind.name} {name}: {error}") from error

    async def list_subjects(
        self, kind: Kind[S, T], fields: Mapping[str, str] | None = None
    ) -> tuple[Subject[S, T], ...]:
        """Resources of one kind with these fields, without those that cannot be read: their own keys tell of them."""
        return _read_all(kind, await self.kube.list(kind.name, self.namespace, fields=fields), self.memory)[0]

    async def list_of_table(self, kind: Kind[S, T], table: str) -> tuple[tuple[Subject[S, T], ...], list[Unreadable]]:
        """All jobs or indexes of one kind that name this Table, and those of them that cannot be read."""
        objects = await self.kube.list(kind.name, self.namespace, fields={TABLE_FIELD: table})
        return _read_all(kind, objects, self.memory)

    async def list_readers(self, kind: Kind[S, T], table: str) -> tuple[Subject[S, T], ...]:
        """All jobs or schedules of one kind that have this Table as their source, of those that can be read."""
        objects = await self.kube.list(kind.name, self.namespace)
        return _read_all(kind, (raw for raw in objects if _reads(raw, table)), self.memory)[0]

    async def get_claim(self, warehouse: WarehouseSubject | None) -> ClaimFacts | None:
        """The claim of a Warehouse that has one."""
        pvc = warehouse.spec.storage.pvc if warehouse is not None else None
        return await self.find_claim(pvc.claim_name) if pvc is not None else None

    async def find_claim(self, name: str) -> ClaimFacts | None:
        """The claim of this name."""
        raw = await self.kube.get("PersistentVolumeClaim", self.namespace, name)
        return read_claim(raw) if raw is not None else None

    async def list_location_claims(self, warehouse: WarehouseSubject) -> tuple[LocationClaim, ...]:
        """The claims that source locations of a Warehouse name."""
        named = [
            (location.name, location.pvc.claim_name)
            for location in warehouse.spec.source_locations
            if location.pvc is not None
        ]
        return tuple([LocationClaim(name, claim, await self.find_claim(claim)) for name, claim in named])

    async def list_children(self, selector: dict[str, str]) -> Children:
        """Driver pods and ConfigMaps of runs with these labels."""
        wanted = {**DRIVERS, **selector}
        pods = await self.kube.list("Pod", self.namespace, labels=wanted)
        confs = await self.kube.list("ConfigMap", self.namespace, labels=wanted)
        return Children(pods=tuple(map(self.read_pod, pods)), confs=tuple(map(read_conf, confs)))

    async def list_owned(self, owner_uid: str) -> Children:
        """Driver pods and ConfigMaps of one owner."""
        return _owned(await self.list_children({labels.OWNER_UID_LABEL: owner_uid}), owner_uid)

    async def list_pods(self, selector: dict[str, str]) -> tuple[PodFacts, ...]:
        """Driver pods with these labels."""
        return tuple(map(self.read_pod, await self.kube.list("Pod", self.namespace, labels={**DRIVERS, **selector})))

    def read_pod(self, raw: JsonObject) -> PodFacts:
        """The facts of a pod, which may have a long report to tell, and whether it is still waited for."""
        return settle(self.memory.recall(raw, "Pod", read_pod), self.setting.now, self.setting.timing)

    async def list_observers(self, warehouse: WarehouseSubject | None) -> tuple[PodFacts, ...]:
        """Pods of the Warehouse's observe runs, which may tell of any of its tables."""
        if warehouse is None:
            return ()
        operation = {labels.OPERATION_LABEL: RunKind.OBSERVE.value}
        return await self.list_pods({labels.WAREHOUSE_UID_LABEL: warehouse.meta.uid, **operation})

    async def read_run(self, current: CurrentRun | None, owner_uid: str) -> RunWorld | None:
        """The current run: its Pod and ConfigMap by direct GET, and the executors that outlived its driver."""
        if current is None:
            return None
        raw_pod = await self.kube.get("Pod", self.namespace, driver_pod_name(current.id))
        raw_conf = await self.kube.get("ConfigMap", self.namespace, conf_map_name(current.id))
        pod = self.read_pod(raw_pod) if raw_pod is not None else None
        run = RunWorld(
            current=current,
            owner_uid=owner_uid,
            pod=pod,
            conf=read_conf(raw_conf) if raw_conf is not None else None,
        )
        launched = pod is not None or current.launch_time is not None
        if not launched or (pod is not None and pod.live):
            return run
        return replace(run, executors=await self._list_executors(current.id))

    async def read_kept(self, warehouse: WarehouseSubject | None) -> KeptDrivers:
        """The kept drivers of a Warehouse that asks for some or had some, and their runs."""
        if warehouse is None or (warehouse.spec.warm_drivers is None and warehouse.status.warm_drivers is None):
            return KeptDrivers()
        wanted = {**DRIVERS, labels.WAREHOUSE_UID_LABEL: warehouse.meta.uid}
        return read_kept_drivers(await self.kube.list("Pod", self.namespace, labels=wanted))

    async def read_server(self, warehouse: WarehouseSubject, key: str) -> ServerFacts:
        """The objects of a planning server that is asked for or was made; ``key`` is for one that has no key yet."""
        if warehouse.spec.planning is None and warehouse.status.planning is None:
            return ServerFacts()
        name = server_name(warehouse.meta.name)
        objects = {kind: await self.kube.get(kind, self.namespace, name) for kind in PLANNING_KINDS}
        return ServerFacts(objects={k: ServerObject(raw) for k, raw in objects.items() if raw is not None}, key=key)

    async def _list_executors(self, run_id: str) -> tuple[PodFacts, ...]:
        selector = {labels.APP_SELECTOR_LABEL: run_id, labels.ROLE_LABEL: labels.EXECUTOR_ROLE}
        return tuple(map(read_pod, await self.kube.list("Pod", self.namespace, labels=selector)))


def _read_one(kind: Kind[S, T], raw: Raw, memory: Memory) -> Subject[S, T]:
    return memory.recall(raw, kind.name, partial(read_subject, kind))


def _read_all(
    kind: Kind[S, T], objects: Iterable[JsonObject], memory: Memory
) -> tuple[tuple[Subject[S, T], ...], list[Unreadable]]:
    subjects: list[Subject[S, T]] = []
    unreadable: list[Unreadable] = []
    for raw in objects:
        try:
            subjects.append(_read_one(kind, raw, memory))
        except ContractViolation as error:
            unreadable.append(Unreadable(raw, error))
    return tuple(subjects), unreadable


async def gather_table(key: Key, ports: Ports) -> TableWorld:
    """Everything under a Table's key."""
    setting = read_setting(ports)
    reader = Reader(ports.kube, key.namespace, ports.memory, setting)
    table: TableSubject | None = await reader.get_subject(TABLE, key.name)
    loads, bad_loads = await reader.list_of_table(LOAD_JOB, key.name)
    merges, bad_merges = await reader.list_of_table(MERGE_JOB, key.name)
    jobs: tuple[JobSubject, ...] = (*loads, *merges)
    unreadable = (*bad_loads, *bad_merges)
    near = _near(reader, table, ports)
    place = await _read_place(reader, key.name, table, near)
    place = replace(place, kept=await near.read_kept(place.warehouse))
    if table is None:
        worlds = [await _read_lone_job(reader, job, place, setting) for job in jobs]
        return TableWorld(key=key, setting=setting, place=place, jobs=tuple(worlds), unreadable=unreadable)
    children = await reader.list_children({labels.TABLE_UID_LABEL: table.meta.uid})
    observers = await near.list_observers(place.warehouse)
    run = await reader.read_run(table.status.current_run, table.meta.uid)
    maintain = await reader.read_run(table.status.maintain_run, table.meta.uid)
    pods = _with_run((*children.pods, *observers, *await _list_orphaned_pods(table, place, ports)), run)
    return TableWorld(
        key=key,
        setting=setting,
        table=table,
        place=place,
        jobs=tuple([await _read_job(reader, job, place, setting, children) for job in jobs]),
        run=run,
        maintain=maintain,
        children=_owned(children, table.meta.uid),
        pods=_with_run(pods, maintain),
        older_claimant=await _find_older_claimant(table, place.warehouse, ports, near),
        unreadable=unreadable,
        readers=await _list_readers(near, table),
    )


async def _list_readers(near: Reader, table: TableSubject) -> tuple[JobSubject | ScheduleSubject, ...]:
    """The jobs and schedules that have the Table as their source, if its snapshots expire."""
    if table.spec.maintenance is None or table.spec.maintenance.snapshots is None:
        return ()
    return (
        *await near.list_readers(LOAD_JOB, table.meta.name),
        *await near.list_readers(MERGE_JOB, table.meta.name),
        *await near.list_readers(MERGE_SCHEDULE, table.meta.name),
    )


def _reads(raw: Raw, table: str) -> bool:
    """Return whether a job or schedule has the Table of this name as its source."""
    spec = raw.get("spec") or {}
    source = (spec["mergeTemplate"]["spec"] if "mergeTemplate" in spec else spec).get("source") or {}
    return (source.get("table") or {}).get("name") == table


async def _list_orphaned_pods(table: TableSubject, place: Place, ports: Ports) -> tuple[PodFacts, ...]:
    """Drivers of an earlier Table of the same table. A cached pass starts nothing, so it does not read them."""
    is_cached = ports.cached is not None and ports.kube is ports.cached
    if is_cached or table.status.table_uuid or place.warehouse is None:
        return ()
    pods = await find_orphaned_pods(table, place.warehouse, ports.kube)
    now = ports.clock.now()
    return tuple(pod for pod in pods if settle(pod, now, ports.timing).live)


def _with_run(pods: tuple[PodFacts, ...], run: RunWorld | None) -> tuple[PodFacts, ...]:
    """``pods`` with that of ``run`` as it was read last: what ends between two reads tells in full or not at all."""
    if run is None or run.pod is None:
        return pods
    return (*(pod for pod in pods if pod.uid != run.pod.uid), run.pod)


def _near(reader: Reader, table: TableSubject | None, ports: Ports) -> Reader:
    """Where is read on what no start of a run depends: a run that starts may know its indexes late.

    What is deleted is judged on what the API server has.
    """
    if ports.cached is None or table is None or table.deleting:
        return reader
    return replace(reader, kube=ports.cached)


async def _read_place(reader: Reader, of_table: str, table: TableSubject | None, near: Reader | None = None) -> Place:
    near = near or reader
    indexes: tuple[IndexSubject, ...]
    indexes, _ = await near.list_of_table(SECONDARY_INDEX, of_table)
    name = table.spec.warehouse_ref.name if table is not None else ""
    warehouse: WarehouseSubject | None = await reader.get_subject(WAREHOUSE, name)
    return Place(table=table, warehouse=warehouse, claim=await reader.get_claim(warehouse), indexes=indexes)


def _owned(children: Children, uid: str) -> Children:
    return Children(
        pods=tuple(pod for pod in children.pods if pod.owner_uid == uid),
        confs=tuple(conf for conf in children.confs if conf.owner_uid == uid),
    )


async def _read_job(reader: Reader, job: JobSubject, place: Place, setting: Setting, children: Children) -> JobWorld:
    asked = job.status.table_uid
    if place.table is not None and asked and asked != place.table.meta.uid:
        # The job began on another Table of this name: its children bear that one's uid.
        return await _read_lone_job(reader, job, place, setting)
    return JobWorld(
        job=job,
        place=await _with_source(reader, job, place),
        setting=setting,
        run=await reader.read_run(job.status.current_run, job.meta.uid),
        children=_owned(children, job.meta.uid),
    )


async def _with_source(reader: Reader, job: JobSubject, place: Place) -> Place:
    """With the Table that the job reads, and its Warehouse if that is another one.

    The job waits for one that this release cannot read: it tells of itself.
    """
    if job.spec.source.table is None:
        return place
    with suppress(ContractViolation):
        source: TableSubject | None = await reader.get_subject(TABLE, job.spec.source.table.name)
        place = replace(place, source=source)
        if source is None or place.table is None or source.spec.warehouse_ref == place.table.spec.warehouse_ref:
            return place
        warehouse: WarehouseSubject | None = await reader.get_subject(WAREHOUSE, source.spec.warehouse_ref.name)
        return replace(place, source_warehouse=warehouse, source_claim=await reader.get_claim(warehouse))
    return place


async def _read_lone_job(reader: Reader, job: JobSubject, place: Place, setting: Setting) -> JobWorld:
    begun = job.status.attempts > 0 or job.status.current_run is not None
    return JobWorld(
        job=job,
        place=await _with_source(reader, job, place),
        setting=setting,
        run=await reader.read_run(job.status.current_run, job.meta.uid),
        children=await reader.list_owned(job.meta.uid) if begun else Children(),
    )


async def _find_older_claimant(
    table: TableSubject, warehouse: WarehouseSubject | None, ports: Ports, near: Reader
) -> TableSubject | None:
    """Asks the API server about every namespace until the Table has its table: others claim it later then."""
    if warehouse is None:
        return None
    kube = near.kube if table.status.table_uuid else ports.kube
    tables: list[TableSubject] = []
    warehouses: dict[Key, WarehouseSubject] = {warehouse.key: warehouse}
    for namespace in sorted({*ports.namespaces, table.meta.namespace}):
        reader = Reader(kube, namespace, ports.memory, near.setting)
        try:
            rivals = await reader.list_subjects(TABLE, {IDENTIFIER_FIELD: table.spec.identifier.name})
            tables.extend(rivals)
            warehouses |= await _read_warehouses(reader, rivals, warehouses)
        except AccessDenied:
            # Nothing there can be launched either; a namespace that goes away keeps nobody from working.
            if namespace == table.meta.namespace:
                raise
    return find_older_claimant(table, warehouse, tables, warehouses)


async def _read_warehouses(
    reader: Reader, tables: Iterable[TableSubject], known: Mapping[Key, WarehouseSubject]
) -> dict[Key, WarehouseSubject]:
    """The Warehouses of ``tables``, as far as they are not known and can be read."""
    by_key: dict[Key, WarehouseSubject] = {}
    for name in sorted({table.spec.warehouse_ref.name for table in tables}):
        key = Key(WAREHOUSE.name, reader.namespace, name)
        if key in known:
            continue
        try:
            subject = await reader.get_subject(WAREHOUSE, name)
        except ContractViolation:
            continue
        if subject is not None:
            by_key[key] = subject
    return by_key


async def gather_index(key: Key, ports: Ports) -> IndexWorld | None:
    """Everything under a SecondaryIndex's key; None when there is none."""
    reader = Reader(ports.kube, key.namespace, ports.memory, read_setting(ports))
    index: IndexSubject | None = await reader.get_subject(SECONDARY_INDEX, key.name)
    if index is None:
        return None
    table: TableSubject | None = await reader.get_subject(TABLE, index.spec.table_ref.name)
    place = await _read_place(reader, index.spec.table_ref.name, table)
    if table is None:
        # Its drop needs the Warehouse even when the Table is gone.
        warehouse = await reader.get_subject(WAREHOUSE, index.status.warehouse)
        place = replace(place, warehouse=warehouse, claim=await reader.get_claim(warehouse))
    owned = await reader.list_owned(index.meta.uid)
    uid = table.meta.uid if table is not None else index.status.table_uid
    pods = await reader.list_pods({labels.TABLE_UID_LABEL: uid}) if uid else ()
    run = await reader.read_run(index.status.current_run, index.meta.uid)
    return IndexWorld(
        index=index,
        setting=reader.setting,
        place=place,
        run=run,
        children=owned,
        pods=_with_run((*pods, *await reader.list_observers(place.warehouse)), run),
    )


async def gather_warehouse(key: Key, ports: Ports) -> WarehouseWorld | None:
    """Everything under a Warehouse's key; None when there is none."""
    reader = Reader(ports.kube, key.namespace, ports.memory, read_setting(ports))
    warehouse: WarehouseSubject | None = await reader.get_subject(WAREHOUSE, key.name)
    if warehouse is None:
        return None
    tables = list(await reader.list_subjects(TABLE, {WAREHOUSE_FIELD: key.name}))
    indexes = await reader.list_subjects(SECONDARY_INDEX)
    names = {table.meta.name for table in tables}
    status = warehouse.status
    return WarehouseWorld(
        warehouse=warehouse,
        setting=reader.setting,
        claim=await reader.get_claim(warehouse),
        location_claims=await reader.list_location_claims(warehouse),
        tables=tuple(tables),
        indexes={name: tuple(i for i in indexes if i.spec.table_ref.name == name) for name in names},
        dependants=tuple(_dependants(key.name, tables, indexes, names)),
        check=await reader.read_run(status.current_run, warehouse.meta.uid),
        observe=await reader.read_run(status.observe_run, warehouse.meta.uid),
        children=await reader.list_owned(warehouse.meta.uid),
        server=await reader.read_server(warehouse, ports.new_key()),
        kept=await reader.read_kept(warehouse),
    )


def _dependants(
    warehouse: str, tables: Iterable[TableSubject], indexes: Iterable[IndexSubject], names: set[str]
) -> Iterable[TableSubject | IndexSubject]:
    yield from (table for table in tables if deletes_data(table))
    for index in indexes:
        mine = index.spec.table_ref.name in names or index.status.warehouse == warehouse
        if mine and deletes_data(index):
            yield index


async def gather_schedule(key: Key, ports: Ports) -> ScheduleWorld | None:
    """Everything under a MergeSchedule's key; None when there is none."""
    reader = Reader(ports.kube, key.namespace, ports.memory, read_setting(ports))
    schedule: ScheduleSubject | None = await reader.get_subject(MERGE_SCHEDULE, key.name)
    if schedule is None:
        return None
    jobs = await ports.kube.list(MERGE_JOB.name, key.namespace)
    own, unreadable = _read_all(MERGE_JOB, (raw for raw in jobs if _is_owned(raw, schedule.meta.uid)), ports.memory)
    names = {job.meta.name for job in own} | {str(each.raw["metadata"]["name"]) for each in unreadable}
    return ScheduleWorld(
        schedule=schedule,
        setting=reader.setting,
        jobs=own,
        taken=frozenset({str(raw["metadata"]["name"]) for raw in jobs} - names),
    )


def _is_owned(raw: Raw, uid: str) -> bool:
    owners = raw["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("uid") == uid for owner in owners)
