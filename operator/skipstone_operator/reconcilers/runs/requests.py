"""What each run is asked to do: JobRequests and the manifests around them.

Called by the deciders when they intend or launch a run. Pure; the bytes are made by the manifests room.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypedDict

from skipstone_core.codec import decode, encode
from skipstone_core.contract.badrecords import BadRecordsSpec
from skipstone_core.contract.branches import BranchSpec
from skipstone_core.contract.requests import (
    ConfirmTask,
    ConsumePolicy,
    DropTask,
    IndexRef,
    JobRequest,
    LoadTask,
    MaintainTask,
    MergeAction,
    MergeClause,
    MergeKey,
    MergeTask,
    ObservedTable,
    ObserveTask,
    ReindexTask,
    RunKind,
    SourceSpec,
    TableRef,
    TableTask,
)
from skipstone_core.contract.spark import SparkRef
from skipstone_core.errors import BadSpec
from skipstone_core.ids import REINDEX_ANNOTATION, canonical_hash, job_txn, run_id, table_txn
from skipstone_core.indexing.asked import is_full_reindex

from skipstone_operator.manifests import Owner, RunManifest, check_pod_template, check_spark
from skipstone_operator.ports import JsonObject, RunDefaults
from skipstone_operator.reconcilers.runs.places import build_source_warehouse_ref, build_warehouse_ref
from skipstone_operator.reconcilers.runs.tables import build_source, build_table_ref, consumer_of, with_changes
from skipstone_operator.resources.common import CurrentRun
from skipstone_operator.resources.kinds import API_VERSION
from skipstone_operator.resources.loadjob import LoadJobSpec
from skipstone_operator.resources.mergejob import MergeJobSpec
from skipstone_operator.resources.merging.clauses import (
    MatchedClause,
    NotMatchedBySourceClause,
    NotMatchedClause,
    UpdatedColumns,
)
from skipstone_operator.resources.rules.amounts import read_seconds
from skipstone_operator.resources.secondaryindex import Maintenance
from skipstone_operator.resources.source import BadRecords
from skipstone_operator.worlds.keeping import KeptDrivers
from skipstone_operator.worlds.subjects import (
    AnySubject,
    ClaimFacts,
    Finding,
    IndexSubject,
    JobSubject,
    Place,
    Raw,
    Setting,
    TableSubject,
    WarehouseSubject,
    is_dry_run,
)

#: Fields of a job that may change while it runs; no run depends on them.
_RUN_FIELDS = ("suspend", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished")


class Task(TypedDict, total=False):
    """The fields of a JobRequest that say what the run does, and to what."""

    table: TableRef
    indexes: tuple[IndexRef, ...]
    load: LoadTask
    merge: MergeTask
    confirm: ConfirmTask
    table_task: TableTask
    reindex: ReindexTask
    observe: ObserveTask
    drop: DropTask
    maintain: MaintainTask


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """Everything about a run but its name: ``task`` are the JobRequest's fields for its kind.

    ``locations``: names of the source locations that it reads. ``source_warehouse``: that of the source table, if it is
    another one.
    """

    kind: RunKind
    owner: AnySubject
    warehouse: WarehouseSubject
    claim: ClaimFacts | None
    defaults: RunDefaults
    inputs: Mapping[str, object]
    task: Task
    txn: str = ""
    deadline_seconds: int | None = None
    table: TableSubject | None = None
    locations: tuple[str, ...] = ()
    source_warehouse: WarehouseSubject | None = None
    kept: KeptDrivers | None = None

    @property
    def grounds(self) -> tuple[Raw, ...]:
        """What the decision to start the run rests on, the owner first."""
        claim = self.claim.raw if self.claim is not None else {}
        others = (subject.raw for subject in (self.table, self.source_warehouse) if subject is not None)
        return tuple(raw for raw in (self.owner.raw, self.warehouse.raw, claim, *others) if raw)

    @property
    def inputs_hash(self) -> str:
        """Eight hexadecimal digits over what the run depends on: the owner's part and the effective Warehouse."""
        effective = effective_warehouse(self.warehouse, self.claim, self.defaults, self.locations)
        return canonical_hash({"kind": self.kind.value, "owner": dict(self.inputs), "warehouse": effective})

    def intent(self, attempt: int, now: str) -> CurrentRun:
        """What is written before anything is created."""
        inputs_hash = self.inputs_hash
        return CurrentRun(
            id=run_id(self.owner.meta.uid, inputs_hash, attempt),
            kind=self.kind,
            attempt=attempt,
            inputs_hash=inputs_hash,
            txn=self.txn,
            generation=self.owner.meta.generation,
            start_time=now,
        )


def build_manifest(plan: RunPlan, current: CurrentRun) -> RunManifest:
    """The manifest of the intended run ``current``."""
    owner, warehouse = plan.owner, plan.warehouse
    request = JobRequest(
        kind=plan.kind,
        run_id=current.id,
        attempt=current.attempt,
        warehouse=build_warehouse_ref(warehouse, plan.locations),
        owner_kind=owner.kind,
        owner_name=owner.meta.name,
        owner_uid=owner.meta.uid,
        txn=plan.txn,
        spark=build_spark_ref(warehouse, plan.defaults),
        source_warehouse=build_source_warehouse_ref(plan.source_warehouse) if plan.source_warehouse else None,
        **plan.task,
    )
    return RunManifest(
        request=request,
        owner=Owner(api_version=API_VERSION, kind=owner.kind, name=owner.meta.name, uid=owner.meta.uid),
        namespace=owner.meta.namespace,
        warehouse=warehouse.spec,
        warehouse_uid=warehouse.meta.uid,
        defaults=plan.defaults,
        deadline_seconds=plan.deadline_seconds,
        one_node=plan.claim is not None and plan.claim.one_node,
        source_warehouse=plan.source_warehouse.spec if plan.source_warehouse else None,
    )


def find_invalid_setting(warehouse: WarehouseSubject) -> Finding | None:
    """Why no pod can be built from the Warehouse: a setting or a field of the template that is not allowed."""
    try:
        check_spark(warehouse.spec.spark)
        check_pod_template(warehouse.spec.spark.pod_template)
    except BadSpec as error:
        return Finding(error.reason, str(error))
    return None


def effective_warehouse(
    warehouse: WarehouseSubject, claim: ClaimFacts | None, defaults: RunDefaults, locations: tuple[str, ...] = ()
) -> JsonObject:
    """What of the Warehouse a run that reads ``locations`` depends on, with the chart's defaults filled in."""
    spec = encode(warehouse.spec)
    for unused in ("maxConcurrentRuns", "planning", "warmDrivers"):
        spec.pop(unused, None)
    if read := [location for location in spec.pop("sourceLocations") if location["name"] in locations]:
        spec["sourceLocations"] = read
    return {
        "uid": warehouse.meta.uid,
        "spec": spec,
        "image": effective_image(warehouse, defaults),
        "serviceAccount": warehouse.spec.spark.service_account_name or defaults.service_account,
        "oneNode": claim is not None and claim.one_node,
    }


def source_warehouse_inputs(warehouse: WarehouseSubject) -> JsonObject:
    """What of the Warehouse of a source table a run depends on: how its catalog and its storage are reached."""
    spec = encode(warehouse.spec)
    names = ("catalog", "storage", "credentialsSecretRef", "indexNamespace")
    return {"uid": warehouse.meta.uid, "spec": {name: spec[name] for name in names if name in spec}}


def effective_image(warehouse: WarehouseSubject, defaults: RunDefaults) -> str:
    """The image that runs use."""
    return warehouse.spec.spark.image or defaults.image


def build_spark_ref(warehouse: WarehouseSubject, defaults: RunDefaults) -> SparkRef:
    """How much a Spark run may use."""
    spark = warehouse.spec.spark
    return SparkRef(
        instances=spark.executor.instances if defaults.executors else 0,
        executor_cores=spark.executor.cores,
        driver_cores=spark.driver.cores,
        small_work=spark.small_work,
        event_log_seconds=read_seconds(spark.event_log.max_age) if spark.event_log else None,
    )


def build_index_refs(indexes: Iterable[IndexSubject]) -> tuple[IndexRef, ...]:
    """The indexes whose state a run reports, oldest first; those going away are left out."""
    living = sorted((index for index in indexes if not index.deleting), key=lambda index: index.age)
    return tuple(build_index_ref(index) for index in living)


def build_index_ref(index: IndexSubject) -> IndexRef:
    """One index as the data plane sees it."""
    spec, meta = index.spec, index.meta
    inline, least = spec.maintenance is Maintenance.INLINE and not spec.suspend, spec.unused_below_percent or None
    ref = IndexRef(name=meta.name, uid=meta.uid, columns=spec.columns, include=spec.include, parameters=spec.parameters)
    store = None if spec.store is None else spec.store.ref()
    return replace(ref, is_inline=inline, unused_below_percent=least, store=store)


def _about_table(place: Place, table: TableSubject, job: JobSubject | None = None) -> Task:
    """The table that a run is about, and its indexes. ``job``: whose branch it is about, if it names one."""
    ref = build_table_ref(table)
    if job is not None and (branch := job.spec.branch) is not None:
        ref = replace(ref, branch=BranchSpec(name=branch.name, if_missing=branch.if_missing))
    return {"table": ref, "indexes": build_index_refs(place.indexes)}


def _table_inputs(table: TableSubject) -> dict[str, object]:
    return {"uid": table.meta.uid, "identifier": encode(table.spec.identifier)}


def plan_job_run(
    job: JobSubject, place: Place, table: TableSubject, warehouse: WarehouseSubject, setting: Setting
) -> RunPlan:
    """The run of a LoadJob or MergeJob."""
    spec = {name: value for name, value in encode(job.spec).items() if name not in _RUN_FIELDS}
    kind = RunKind.LOAD if isinstance(job.spec, LoadJobSpec) else RunKind.MERGE
    dry = is_dry_run(job)
    source: dict[str, object] = {} if place.source is None else {"sourceTable": _table_inputs(place.source)}
    if place.source_warehouse is not None:
        source["sourceWarehouse"] = source_warehouse_inputs(place.source_warehouse)
    return RunPlan(
        kind=RunKind.DRY_RUN if dry else kind,
        owner=job,
        warehouse=warehouse,
        claim=place.claim,
        defaults=setting.defaults,
        inputs={"spec": spec, "table": _table_inputs(table), **source},
        task={**_about_table(place, table, job), **build_job_task(job, place.source)},
        txn="" if dry else job_txn(job.meta.uid),
        deadline_seconds=job.spec.active_deadline_seconds,
        table=table,
        locations=(job.spec.source.location,) if job.spec.source.location else (),
        source_warehouse=place.source_warehouse,
        kept=place.kept,
    )


def build_job_task(job: JobSubject, source_table: TableSubject | None = None) -> Task:
    """The field of the JobRequest that holds the job's task. ``source_table``: which its source names, if it does."""
    spec = job.spec
    source = build_source(spec.source, source_table)
    if source.consume is ConsumePolicy.NEW:
        source = replace(source, consumer=consumer_of(job))
    if isinstance(spec, LoadJobSpec):
        bad = _bad_records(spec.bad_records)
        return {"load": LoadTask(source=source, mode=spec.mode, bad_records=bad, time_zone=spec.time_zone)}
    return {"merge": _build_merge_task(spec, source)}


def _build_merge_task(spec: MergeJobSpec, source: SourceSpec) -> MergeTask:
    task = _build_given_task(spec, source)
    return with_changes(task) if spec.source.table is not None and spec.source.table.changes else task


def _build_given_task(spec: MergeJobSpec, source: SourceSpec) -> MergeTask:
    return MergeTask(
        source=source,
        keys=tuple(MergeKey(target=key.target, source=key.source) for key in spec.keys),
        when_matched=tuple(_clause(c, c.set) for c in spec.when_matched),
        when_not_matched=tuple(_clause(c, c.values) for c in spec.when_not_matched),
        when_not_matched_by_source=tuple(_clause(c, c.set) for c in spec.when_not_matched_by_source),
        sequence_by=spec.sequence_by,
        target_sequence=spec.target_sequence,
        schema_evolution=spec.schema_evolution,
        time_zone=spec.time_zone,
        pruning=spec.pruning.strategy,
        target_where=spec.target_where,
        disabled_stages=spec.pruning.disabled_stages,
        bad_records=_bad_records(spec.bad_records) if spec.bad_records is not None else None,
    )


def _bad_records(spec: BadRecords) -> BadRecordsSpec:
    return BadRecordsSpec(policy=spec.policy, max_count=spec.max_count)


def _clause(
    clause: MatchedClause | NotMatchedClause | NotMatchedBySourceClause, values: Mapping[str, str] | None
) -> MergeClause:
    present = True if isinstance(clause, MatchedClause) and clause.columns is UpdatedColumns.PRESENT else None
    return MergeClause(action=MergeAction(clause.action.value), when=clause.when, values=values, present=present)


def plan_confirm_run(
    job: JobSubject, place: Place, table: TableSubject, warehouse: WarehouseSubject, setting: Setting
) -> RunPlan:
    """The run that finds out whether the job's transaction committed, and fences it off when not."""
    txn = job_txn(job.meta.uid)
    return RunPlan(
        kind=RunKind.CONFIRM,
        owner=job,
        warehouse=warehouse,
        claim=place.claim,
        defaults=setting.defaults,
        inputs={"txn": txn, "table": _table_inputs(table)},
        task={**_about_table(place, table, job), "confirm": ConfirmTask(txn=txn)},
        txn=txn,
        deadline_seconds=int(setting.timing.service_run_deadline),
        table=table,
    )


def plan_table_run(table: TableSubject, place: Place, warehouse: WarehouseSubject, setting: Setting) -> RunPlan:
    """The run that creates, adopts or evolves a Managed table."""
    return RunPlan(
        kind=RunKind.TABLE,
        owner=table,
        warehouse=warehouse,
        claim=place.claim,
        defaults=setting.defaults,
        inputs=table_change_inputs(table),
        task={**_about_table(place, table), "table_task": build_table_task(table)},
        txn=table_txn(table.meta.uid, table.meta.generation),
        deadline_seconds=int(setting.timing.service_run_deadline),
    )


def table_change_inputs(table: TableSubject) -> dict[str, object]:
    """What of the Table a change depends on: its spec without what only the operator reads, and the generation."""
    spec = encode(table.spec)
    for name in ("reclaimPolicy", "refreshIntervalSeconds", "maintenance", "allowTypesUnreadableBySpark"):
        spec.pop(name, None)
    return {"spec": spec, "generation": table.meta.generation}


def build_table_task(table: TableSubject) -> TableTask:
    """The shape that the table should have."""
    spec = encode(table.spec)
    names = ("columns", "primaryKey", "partitioning", "sortOrder", "properties")
    wanted = {name: spec[name] for name in names if name in spec}
    return decode(TableTask, {**wanted, "fieldIds": dict(table.status.field_ids)})


def plan_reindex_run(
    index: IndexSubject, place: Place, table: TableSubject, warehouse: WarehouseSubject, setting: Setting
) -> RunPlan:
    """The run that brings an index in sync. What it depends on decides when a failure is tried again.

    A request by hand (the annotation) is part of it: asking again tries again.
    """
    request = reindex_request(index)
    task = ReindexTask(index=build_index_ref(index), rebuild=request if is_full_reindex(request) else None)
    return RunPlan(
        kind=RunKind.REINDEX,
        owner=index,
        warehouse=warehouse,
        claim=place.claim,
        defaults=setting.defaults,
        inputs={
            "columns": list(index.spec.columns),
            **({"include": list(index.spec.include)} if index.spec.include else {}),
            **index.spec.parameters.given,
            "type": index.spec.type.value,
            **({"unusedBelowPercent": index.spec.unused_below_percent} if index.spec.unused_below_percent else {}),
            **({"store": index.spec.store.ref().settings} if index.spec.store else {}),
            "request": request,
            "table": {**_table_inputs(table), "schema": dict(table.status.column_types)},
        },
        task={**_about_table(place, table), "reindex": task},
        deadline_seconds=int(setting.timing.run_deadline),
        table=table,
    )


def reindex_request(index: IndexSubject) -> str:
    """The value of the annotation by which users ask for a reindex, as long as status keeps it."""
    return index.meta.annotations.get(REINDEX_ANNOTATION, "")[:256]


def plan_check_run(warehouse: WarehouseSubject, claim: ClaimFacts | None, setting: Setting) -> RunPlan:
    """The run that tries catalog and storage."""
    return RunPlan(
        kind=RunKind.CHECK,
        owner=warehouse,
        warehouse=warehouse,
        claim=claim,
        defaults=setting.defaults,
        inputs={"generation": warehouse.meta.generation},
        task={},
        deadline_seconds=int(setting.timing.service_run_deadline),
        locations=tuple(location.name for location in warehouse.spec.source_locations),
    )


@dataclass(frozen=True, kw_only=True)
class DueTable:
    """A Table that an observe run looks at, with its SecondaryIndexes."""

    table: TableSubject
    indexes: tuple[IndexSubject, ...]


def plan_observe_run(
    warehouse: WarehouseSubject,
    claim: ClaimFacts | None,
    tables: Iterable[DueTable],
    setting: Setting,
) -> RunPlan:
    """The run that looks at all due tables of one Warehouse. Which ones is decided at launch: no hash over them."""
    observed = tuple(
        ObservedTable(table=build_table_ref(due.table), indexes=build_index_refs(due.indexes)) for due in tables
    )
    return RunPlan(
        kind=RunKind.OBSERVE,
        owner=warehouse,
        warehouse=warehouse,
        claim=claim,
        defaults=setting.defaults,
        inputs={"generation": warehouse.meta.generation},
        task={"observe": ObserveTask(tables=observed)},
        deadline_seconds=int(setting.timing.service_run_deadline),
    )


@dataclass(frozen=True, kw_only=True)
class DropTarget:
    """What a drop run drops: the table, or one index of it."""

    owner: TableSubject | IndexSubject
    table: TableRef
    index: IndexRef | None = None


def plan_drop_run(
    target: DropTarget, warehouse: WarehouseSubject, claim: ClaimFacts | None, setting: Setting
) -> RunPlan:
    """The run that purges the data of a deleted resource, if it is ours."""
    return RunPlan(
        kind=RunKind.DROP,
        owner=target.owner,
        warehouse=warehouse,
        claim=claim,
        defaults=setting.defaults,
        inputs={"uid": target.owner.meta.uid},
        task={"table": target.table, "drop": DropTask(index=target.index)},
        deadline_seconds=int(setting.timing.service_run_deadline),
    )


def plan_maintain_run(
    table: TableSubject, place: Place, setting: Setting, task: MaintainTask, request: str
) -> RunPlan | None:
    """The run that does the steps of ``task``, when the Warehouse is there.

    ``request``: the value of the annotation that asks for it by hand, or empty.
    """
    if (warehouse := place.warehouse) is None:
        return None
    return RunPlan(
        kind=RunKind.MAINTAIN,
        owner=table,
        warehouse=warehouse,
        claim=place.claim,
        defaults=setting.defaults,
        inputs={
            "policy": encode(task.policy),
            "steps": [step.value for step in task.steps],
            "request": request,
            "table": _table_inputs(table),
        },
        task={**_about_table(place, table), "maintain": task},
        deadline_seconds=int(setting.timing.run_deadline),
    )
