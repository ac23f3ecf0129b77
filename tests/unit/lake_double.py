"""A cluster and a lake in memory: a kubelet that moves driver pods on, and drivers that commit at most once.

What a driver does is decided by ``script``; without one it does its work. Used by the life-cycle tests of reconcilers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from skipstone_core.contract.keeping import FILES_VARIABLE, READY_REPORT, kept_driver_uid
from skipstone_core.contract.reports import (
    IndexState,
    JobReport,
    MetadataMark,
    RunOutcome,
    SegmentCounts,
    StepReport,
    TableState,
    report_digest,
)
from skipstone_core.contract.requests import IndexRef, JobRequest, RunKind, TableRef
from skipstone_core.maintenance.health import TableHealth
from skipstone_core.maintenance.policies import MaintenancePolicy, MaintenanceStep
from skipstone_core.reasons import Reason

from tests.unit.kube_double import MemoryKube

Pod = dict[str, Any]


@dataclass
class LakeTable:
    """One table: its commits by transaction, its segments, and which of them each index covers.

    ``small``: files that wait for compaction, one of each append.
    ``least``: the percentage of rows below which each index is left alone.
    ``versions``: how often the table (by its own name, empty) and each index were changed, as metadata files count.
    Runs of doubles take no time: what they tell of one second can be put in order by this only.
    """

    owner: str
    columns: dict[str, str]
    commits: dict[str, int] = field(default_factory=dict)
    aborted: set[str] = field(default_factory=set)
    segments: list[int] = field(default_factory=list)
    covered: dict[str, set[int]] = field(default_factory=dict)
    sequence: int = 0
    small: int = 0
    versions: dict[str, int] = field(default_factory=dict)
    least: dict[str, int] = field(default_factory=dict)

    def change(self, index: str = "") -> None:
        """Count a change of the table, or of the index with this uid."""
        self.versions[index] = self.versions.get(index, 0) + 1

    def mark(self, index: str = "") -> MetadataMark:
        """Which metadata a run reads now; an index that does not exist has none."""
        version = self.versions.get(index, 0)
        return MetadataMark() if index and not version else MetadataMark(uuid=index or "uuid-1", version=version)


@dataclass(frozen=True)
class Ends:
    """How a scripted driver ends: with an exit code, and a report or none. ``commits``: it does its work first.

    ``steps``: those of a maintain run that had ended.
    """

    exit_code: int
    reason: Reason | None = None
    commits: bool = False
    end_reason: str = "Error"
    outcome: RunOutcome = RunOutcome.FAILED
    steps: tuple[StepReport, ...] = ()


Script = Callable[[JobRequest], Ends | None]


@dataclass
class Lake:
    """All tables, and the drivers' behavior.

    ``dies_before_entering``: no run gets as far as its Inline indexes. ``failing_step``: how all steps end.
    """

    tables: dict[tuple[str, str], LakeTable] = field(default_factory=dict)
    script: Script = lambda _request: None
    dies_before_entering: bool = False
    failing_step: Reason | None = None

    def run(self, request: JobRequest) -> tuple[int, JobReport | None, str]:
        """Do a driver's work: exit code, report, and the container's end reason."""
        ends = self.script(request)
        if ends is None or ends.commits:
            report = self.work(request)
            if ends is None:
                return 0, report, "Completed"
        if ends.reason is None:
            return ends.exit_code, None, ends.end_reason
        report = replace(_blank(request), outcome=ends.outcome, reason=ends.reason, message="as scripted")
        report = replace(report, steps=ends.steps)
        return ends.exit_code, report, ends.end_reason

    def work(self, request: JobRequest) -> JobReport:
        """What the data plane does, in a few lines."""
        work = {
            RunKind.CHECK: self._check,
            RunKind.TABLE: self._create,
            RunKind.LOAD: self._append,
            RunKind.MERGE: self._append,
            RunKind.DRY_RUN: self._plan,
            RunKind.REINDEX: self._reindex,
            RunKind.OBSERVE: self._observe,
            RunKind.CONFIRM: self._confirm,
            RunKind.DROP: self._drop,
            RunKind.MAINTAIN: self._maintain,
        }
        return work[request.kind](request)

    def _check(self, request: JobRequest) -> JobReport:
        return replace(_blank(request), outcome=RunOutcome.COMMITTED, reason=Reason.CHECKED)

    def _create(self, request: JobRequest) -> JobReport:
        assert request.table is not None and request.table_task is not None
        columns = {column.name: column.type for column in request.table_task.columns}
        table = self.tables.setdefault(request.table.identifier, LakeTable(request.table.uid, columns))
        table.columns.update(columns)
        table.change()
        reason = Reason.CREATED if table.owner == request.table.uid else Reason.ADOPTED
        return replace(self._committed(request, 1), reason=reason)

    def _append(self, request: JobRequest) -> JobReport:
        assert request.table is not None
        table = self.tables[request.table.identifier]
        if request.txn in table.aborted:
            return replace(_blank(request), outcome=RunOutcome.FAILED, reason=Reason.ABORTED)
        already = request.txn in table.commits
        table.commits[request.txn] = table.commits.get(request.txn, 0) + (not already)
        if not already:
            table.sequence += 1
            table.segments.append(table.sequence)
            table.small += 1
            table.change()
            self._enter(request, table)
        outcome = RunOutcome.ALREADY_COMMITTED if already else RunOutcome.COMMITTED
        reason = Reason.ALREADY_COMMITTED if already else Reason.COMMITTED
        counts = {"segment": table.sequence, "rowsLoaded": 10, "filesTotal": 4, "filesCandidate": 1}
        return replace(self._committed(request, 2), outcome=outcome, reason=reason, counts=counts)

    def _plan(self, request: JobRequest) -> JobReport:
        assert request.merge is not None and not request.txn
        counts = {"filesTotal": 4, "filesCandidate": 1, "rowsUpdated": 7}
        return replace(_blank(request), outcome=RunOutcome.PLANNED, reason=Reason.DRY_RUN, counts=counts)

    def _reindex(self, request: JobRequest) -> JobReport:
        assert request.table is not None and request.reindex is not None
        table = self.tables[request.table.identifier]
        covered = table.covered.setdefault(request.reindex.index.uid, set())
        built = set(table.segments) - covered
        covered |= built
        table.least[request.reindex.index.uid] = request.reindex.index.unused_below_percent or 0
        table.change(request.reindex.index.uid)
        return replace(self._committed(request, 3), counts={"segments": len(built)})

    def _enter(self, request: JobRequest, table: LakeTable) -> None:
        """What a run committed goes into the indexes that are kept inline, before it ends."""
        if self.dies_before_entering:
            return
        for index in request.indexes:
            if index.is_inline:
                table.covered.setdefault(index.uid, set()).add(table.sequence)
                table.change(index.uid)

    def _maintain(self, request: JobRequest) -> JobReport:
        assert request.table is not None and request.maintain is not None
        table = self.tables[request.table.identifier]
        steps = tuple(self._step(request, table, step) for step in request.maintain.steps)
        return replace(self._committed(request, 4), steps=steps)

    def _step(self, request: JobRequest, table: LakeTable, step: MaintenanceStep) -> StepReport:
        if self.failing_step is not None:
            return StepReport(step=step, is_done=False, reason=self.failing_step, message="as scripted")
        rewritten = table.small if step is MaintenanceStep.COMPACTION else 0
        if rewritten:
            table.sequence += 1
            table.segments = [table.sequence]
            table.small = 0
            table.change()
            self._enter(request, table)
        reason = Reason.COMMITTED if rewritten else Reason.IDLE
        return StepReport(step=step, is_done=True, reason=reason, counts={"filesRewritten": rewritten})

    def _observe(self, request: JobRequest) -> JobReport:
        assert request.observe is not None
        states = tuple(self.state(seen.table, seen.indexes) for seen in request.observe.tables)
        return replace(_blank(request), outcome=RunOutcome.COMMITTED, reason=Reason.OBSERVED, table_states=states)

    def _confirm(self, request: JobRequest) -> JobReport:
        assert request.table is not None and request.confirm is not None
        table = self.tables[request.table.identifier]
        if request.confirm.txn in table.commits:
            return replace(
                self._committed(request, 2), outcome=RunOutcome.ALREADY_COMMITTED, reason=Reason.ALREADY_COMMITTED
            )
        table.aborted.add(request.confirm.txn)
        table.change()
        return replace(self._committed(request, 0), outcome=RunOutcome.ABSENT, reason=Reason.ABORTED)

    def _drop(self, request: JobRequest) -> JobReport:
        assert request.table is not None and request.drop is not None
        table = self.tables.get(request.table.identifier)
        index = request.drop.index
        if index is not None and table is not None:
            table.covered.pop(index.uid, None)
            table.versions.pop(index.uid, None)
        elif index is None and table is not None:
            if table.owner != request.table.uid:
                return replace(_blank(request), outcome=RunOutcome.COMMITTED, reason=Reason.NOT_CREATED_HERE)
            del self.tables[request.table.identifier]
        return replace(_blank(request), outcome=RunOutcome.COMMITTED, reason=Reason.DATA_DELETED, message="purged")

    def _committed(self, request: JobRequest, snapshot: int) -> JobReport:
        assert request.table is not None
        return replace(
            _blank(request),
            outcome=RunOutcome.COMMITTED,
            reason=Reason.COMMITTED,
            snapshot_id=str(snapshot),
            table_states=(self.state(request.table, request.indexes),),
        )

    def state(self, ref: TableRef, indexes: tuple[IndexRef, ...]) -> TableState:
        """The head of a table as every run reports it at its end."""
        table = self.tables.get(ref.identifier)
        if table is None:
            problem, message = Reason.TABLE_MISSING, "the table is gone"
            return TableState(namespace=ref.namespace, name=ref.name, uid=ref.uid, problem=problem, message=message)
        return TableState(
            namespace=ref.namespace,
            name=ref.name,
            uid=ref.uid,
            table_uuid="uuid-1",
            owner=table.owner,
            snapshot_id=str(table.sequence),
            sequence_number=table.sequence,
            rows=10 * len(table.segments),
            files=len(table.segments),
            segments=SegmentCounts(total=len(table.segments), valid=len(table.segments), latest=table.sequence),
            columns=table.columns,
            field_ids={name: number for number, name in enumerate(table.columns, 1)},
            indexes=tuple(index_state(table, index) for index in indexes),
            location="/skipstone/main/air/flights",
            metadata=table.mark(),
            health=None if ref.maintenance is None else health_of(table, ref.maintenance),
        )


def health_of(table: LakeTable, policy: MaintenancePolicy) -> TableHealth:
    """How the table is: compaction is due once there are as many small files as it takes."""
    enough = policy.compaction is not None and table.small >= policy.compaction.min_input_files
    return TableHealth(small_files=table.small, due_files=table.small if enough else 0, snapshots=table.sequence)


def index_state(table: LakeTable, index: IndexRef) -> IndexState:
    """How far one index covers the table."""
    covered = table.covered.get(index.uid, set())
    missing = tuple(segment for segment in table.segments if segment not in covered)
    total = len(table.segments)
    return IndexState(
        uid=index.uid,
        name=index.name,
        segments_total=total,
        segments_synced=total - len(missing),
        segments_missing=len(missing),
        missing_segments=missing[:20],
        files_live=total,
        files_covered=total - len(missing),
        rows_live=10 * total,
        rows_covered=10 * (total - len(missing)),
        exists=index.uid in table.covered,
        metadata=table.mark(index.uid),
        unused_below_percent=table.least.get(index.uid, 0),
    )


def _blank(request: JobRequest) -> JobReport:
    return JobReport(
        run_id=request.run_id,
        attempt=request.attempt,
        kind=request.kind,
        outcome=RunOutcome.RUNNING,
        reason=Reason.DRIVER_RUNNING,
    )


@dataclass
class Kubelet:
    """Moves every driver pod one stage on: scheduled, running, ended. ``holds`` keeps pods where they are.

    On a node in ``dead`` nothing moves, and nobody confirms the end of a pod.
    """

    kube: MemoryKube
    lake: Lake
    holds: Callable[[Pod], bool] = lambda _pod: False
    dead: set[str] = field(default_factory=set)

    def tick(self) -> None:
        for pod in list(self.kube.find("Pod")):
            if pod.get("spec", {}).get("nodeName") in self.dead:
                continue
            if pod["metadata"].get("deletionTimestamp"):
                self.kube.drop("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"])
            elif not self.holds(pod):
                self._move(pod)

    def _move(self, pod: Pod) -> None:
        phase = pod["status"].get("phase", "Pending")
        if phase == "Running" and is_kept_driver(pod):
            mark = {"skipstone.dev/report": READY_REPORT}
            self.kube.edit("Pod", pod["metadata"]["name"], lambda p: p["metadata"]["annotations"].update(mark))
        elif kept_driver_uid(pod) and not self._may_move(pod, phase):
            return
        elif phase == "Pending":
            status = {"phase": "Running", "containerStatuses": [_container(running=True, at=self.kube.clock.text())]}
            self.kube.edit("Pod", pod["metadata"]["name"], lambda p: p.update(status=status))
        elif phase == "Running":
            end_pod(self.kube, self.lake, pod)

    def _may_move(self, pod: Pod, phase: str) -> bool:
        """Whether the kept driver of a pod is there, and has no other run."""
        uid = kept_driver_uid(pod)
        drivers = [
            p for p in self.kube.find("Pod") if p["metadata"]["uid"] == uid and p["status"]["phase"] == "Running"
        ]
        runs = [p for p in self.kube.find("Pod") if kept_driver_uid(p) == uid and p["status"]["phase"] == "Running"]
        return bool(drivers) and not any(map(self.holds, drivers)) and (phase == "Running" or not runs)


def is_kept_driver(pod: Pod) -> bool:
    """Whether a pod is a kept driver."""
    return bool(pod["metadata"]["labels"]["skipstone.dev/operation"] == "Keep")


def end_pod(kube: MemoryKube, lake: Lake, pod: Pod) -> None:
    """Let the driver of ``pod`` do its work and end."""
    conf = kube.objects["ConfigMap", "lake", pod["metadata"]["name"].removesuffix("-driver") + "-conf"]
    request = JobRequest.from_json(conf["data"]["request.json"])
    if kept_driver_uid(pod):
        variables = {v["name"]: v.get("value") for v in pod["spec"]["containers"][0]["env"]}
        assert json.loads(variables[FILES_VARIABLE]) == conf["data"]
    code, report, reason = lake.run(request)
    ended: Pod = {"exitCode": code, "reason": reason, "startedAt": kube.clock.text(), "finishedAt": kube.clock.text()}
    annotations = dict(pod["metadata"].get("annotations", {}))
    if report is not None:
        annotations["skipstone.dev/report"] = report.to_json()
        ended["message"] = message_of(report)
    status = {
        "phase": "Succeeded" if code == 0 else "Failed",
        "containerStatuses": [{"name": "spark-kubernetes-driver", "state": {"terminated": ended}}],
    }

    def end(target: Pod) -> None:
        target["metadata"]["annotations"] = annotations
        target["status"] = status

    kube.edit("Pod", pod["metadata"]["name"], end)


def message_of(report: JobReport) -> str:
    """The termination message that a driver writes beside ``report`` in its annotation."""
    digest = report_digest(report.to_json())
    return replace(report, table_states=(), annotation_sha256=digest).to_json()


def _container(*, running: bool, at: str) -> Pod:
    state = {"running": {"startedAt": at}} if running else {"waiting": {"reason": "ContainerCreating"}}
    return {"name": "spark-kubernetes-driver", "state": state}


def request_of(kube: MemoryKube, run_id: str) -> JobRequest:
    """The request in the ConfigMap of a run."""
    return JobRequest.from_json(kube.objects["ConfigMap", "lake", f"{run_id}-conf"]["data"]["request.json"])


def dump(obj: object) -> str:
    """For messages of failed tests."""
    return json.dumps(obj, indent=1, sort_keys=True, default=str)
