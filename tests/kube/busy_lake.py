"""A namespace in which every metric has something to tell: objects of all kinds, well and unwell, and their drivers.

What the drivers tell is made up, in the words of real ones; the operator and the API server are real.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from skipstone_core.contract.reports import JobReport, StepReport
from skipstone_core.contract.requests import JobRequest, RunKind
from skipstone_core.reasons import Reason

from tests.cluster.controlplane import ControlPlane
from tests.kube.access import admin_access
from tests.kube.faults.kubelet import Driven, SimulatedKubelet
from tests.unit import objects
from tests.unit.lake_double import Ends, Lake, message_of

Obj = objects.Obj
COMPACTED = {"compaction": {"minInputFiles": 2}}
#: Opens in the first hour of a year only.
CLOSED = {"schedule": "0 0 1 1 *", "duration": "1h"}
CHANGED = {
    "rowsSource": 7,
    "rowsMatched": 3,
    "rowsUpdated": 2,
    "rowsDeleted": 1,
    "rowsInserted": 3,
    "rowsUnmatchedUpdates": 1,
}
STAGES = {"read": 1200, "prune": 300, "rewrite": 2500, "commit": 90}
WORK = {"filesRewritten": 2, "bytesRewritten": 4096, "filesDeleted": 2, "bytesDeleted": 4096}
#: Healthy and unhealthy resources by kind and name: what kstatus says of each in the end, and what Argo CD says.
EXPECTED = {
    ("Warehouse", "main"): ("Current", "Healthy"),
    ("Warehouse", "served"): ("Current", "Healthy"),
    ("Warehouse", "lost"): ("InProgress", "Progressing"),
    ("Warehouse", "refused"): ("Failed", "Degraded"),
    ("Table", "flights"): ("Current", "Healthy"),
    ("Table", "archive"): ("Current", "Healthy"),
    ("Table", "kept"): ("Current", "Healthy"),
    ("Table", "airports"): ("Current", "Healthy"),
    ("Table", "twin"): ("Failed", "Degraded"),
    ("SecondaryIndex", "by-tail"): ("Current", "Healthy"),
    ("SecondaryIndex", "by-hand"): ("InProgress", "Progressing"),
    ("SecondaryIndex", "broken"): ("Failed", "Degraded"),
    ("LoadJob", "jan"): ("Current", "Healthy"),
    ("LoadJob", "bad"): ("Failed", "Degraded"),
    ("LoadJob", "unlucky"): ("InProgress", "Progressing"),
    ("LoadJob", "paused"): ("InProgress", "Suspended"),
    ("MergeJob", "feed"): ("Current", "Healthy"),
    ("MergeJob", "bad-feed"): ("Failed", "Degraded"),
    ("MergeSchedule", "minutely"): ("Current", "Healthy"),
    ("MergeSchedule", "paused"): ("Current", "Suspended"),
    ("MergeSchedule", "never"): ("Failed", "Degraded"),
}


def claim(name: str, mode: str = "ReadWriteOnce") -> Obj:
    """A claim that no volume has to be bound to."""
    found = objects.claim(mode, name=name)
    found["spec"] |= {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "none"}
    return found


def first_objects() -> list[Obj]:
    """What has to be there before the others."""
    return [
        claim("lake-data"),
        claim("of-one-pod", "ReadWriteOncePod"),
        objects.warehouse(),
        objects.table(),
        # Apart from the schedule, whose jobs maintenance would give way to.
        objects.table("kept", identifier={"namespace": "air", "name": "kept"}, maintenance=COMPACTED),
        objects.table("archive", identifier={"namespace": "air", "name": "archive"},
                      maintenance={**COMPACTED, "window": CLOSED}),
        # A job that tries again and again lets no other one write its table.
        objects.table("airports", identifier={"namespace": "air", "name": "airports"}),
    ]  # fmt: skip


def other_objects() -> list[Obj]:
    """Jobs, indexes and schedules, and resources that cannot become what they ask for."""
    executors = {"executor": {"instances": 1}}
    of_archive = {"tableRef": {"name": "archive"}}
    return [
        objects.warehouse("served", catalog={"type": "Rest", "uri": "https://catalog"}, planning={}),
        objects.warehouse("lost", storage={"pvc": {"claimName": "absent"}}),
        objects.warehouse("refused", storage={"pvc": {"claimName": "of-one-pod"}}, spark=executors),
        objects.table("twin"),
        objects.index("by-tail"),
        objects.index("by-hand", "id", maintenance="Manual"),
        objects.index("broken", **of_archive),
        *(objects.load(name) for name in ("jan", "feb", "bad")),
        *(objects.load(name, **of_archive) for name in ("old-1", "old-2")),
        *(objects.load(name, tableRef={"name": "kept"}) for name in ("new-1", "new-2")),
        objects.load("unlucky", tableRef={"name": "airports"}, backoffLimit=20),
        objects.load("paused", suspend=True),
        *(objects.merge(name) for name in ("feed", "bad-feed")),
        objects.schedule("minutely", cron="* * * * *"),
        objects.schedule("paused", suspend=True),
        objects.schedule("never", cron="0 0 30 2 *"),
    ]


@dataclass
class Drivers:
    """Drivers of this lake: those of what is named ``bad`` find bad records, those of ``unlucky`` are killed."""

    lake: Lake = field(default_factory=Lake)

    def __post_init__(self) -> None:
        """Nothing was driven yet."""
        self.lake.script = _script

    def __call__(self, text: str, _root: str) -> Driven:
        """Do the work of one driver."""
        request = JobRequest.from_json(text)
        code, report, _ = self.lake.run(request)
        if report is None:
            return Driven(code, "killed", "{}")
        told = _tell_more(report)
        return Driven(code, message_of(told), told.to_json())


def _script(request: JobRequest) -> Ends | None:
    if request.kind in (RunKind.LOAD, RunKind.MERGE) and request.owner_name.startswith("bad"):
        return Ends(65, Reason.BAD_RECORDS)
    if request.kind is RunKind.LOAD and request.owner_name == "unlucky":
        return Ends(1)
    if request.reindex is not None and request.reindex.index.name == "broken":
        return Ends(65, Reason.COLUMN_TYPE_UNSUPPORTED)
    return None


def _tell_more(report: JobReport) -> JobReport:
    """What the lake in memory leaves out: stages, changed rows, work; each table has a UUID of its own."""
    counts = dict(report.counts) | (CHANGED if report.kind is RunKind.MERGE else {})
    states = tuple(replace(state, table_uuid=f"uuid-{state.name}") for state in report.table_states)
    steps = tuple(_work(step) for step in report.steps)
    return replace(report, counts=counts, stages_ms=STAGES, table_states=states, steps=steps)


def _work(step: StepReport) -> StepReport:
    return replace(step, counts=WORK)


@contextmanager
def run_kubelet(plane: ControlPlane, namespace: str, drivers: Drivers) -> Iterator[None]:
    """A kubelet that runs ``drivers`` in the pods of a namespace, in a thread of its own, until the block ends."""
    stopping = threading.Event()

    async def work() -> None:
        with ThreadPoolExecutor(1) as pool:
            kubelet = SimulatedKubelet(plane.url, admin_access(plane), namespace, pool, drivers, "")
            kubelet.start()
            try:
                while not await asyncio.to_thread(stopping.wait, 1.0):
                    kubelet.check()
            finally:
                await kubelet.stop()
            assert kubelet.violations == []

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(asyncio.run, work())
        try:
            yield
        finally:
            stopping.set()
            running.result()
