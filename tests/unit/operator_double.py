"""An operator on an API server in memory: reconciles every key until nothing is left to do, tick by tick.

Crashes are answered by starting again: nothing is remembered between passes but what the API server holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason
from skipstone_operator.ports import EventRecord, Key, Ports, RunDefaults, Timing
from skipstone_operator.reconcilers import reconcile

from tests.unit.kube_double import Crash, MemoryKube
from tests.unit.lake_double import Kubelet, Lake, dump

T = TypeVar("T")
DEFAULTS = RunDefaults(image="skipstone-spark:test", service_account="skipstone-spark")


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never has to wait; starting an event loop for each would be most of the time."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise AssertionError("a reconcile against memory waited for something")


@dataclass
class RecordingEvents:
    """Keeps Events."""

    records: list[EventRecord] = field(default_factory=list)

    async def publish(self, record: EventRecord) -> None:
        self.records.append(record)

    def reasons(self, kind: str | None = None) -> list[str]:
        return [r.reason.value for r in self.records if kind is None or r.regarding["kind"] == kind]


@dataclass
class RecordingRuns:
    """Keeps what reconcilers measure."""

    finished: list[tuple[str, str]] = field(default_factory=list)
    phases: list[str] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    stages: Counter[str] = field(default_factory=Counter)
    committed: Counter[str] = field(default_factory=Counter)
    work: Counter[str] = field(default_factory=Counter)

    def run_finished(self, kind: RunKind, reason: Reason, *, seconds: float) -> None:
        assert seconds >= 0
        self.finished.append((kind.value, reason.value))

    def launch_latency(self, phase: str, seconds: float) -> None:
        assert seconds >= 0
        self.phases.append(phase)

    def run_failed(self, kind: RunKind, reason: Reason) -> None:
        self.failed.append((kind.value, reason.value))

    def run_stages(self, kind: RunKind, seconds: Mapping[str, float]) -> None:
        self.stages.update(seconds.keys())

    def job_committed(self, namespace: str, table: str, counts: Mapping[str, int]) -> None:
        self.committed.update({f"{namespace}/{table}": 1, **counts})

    def maintenance_work(self, step: str, counts: Mapping[str, int]) -> None:
        self.work.update(counts)


@dataclass
class World:
    """Everything together. ``seconds`` pass with every tick."""

    kube: MemoryKube = field(default_factory=MemoryKube)
    lake: Lake = field(default_factory=Lake)
    events: RecordingEvents = field(default_factory=RecordingEvents)
    meter: RecordingRuns = field(default_factory=RecordingRuns)
    timing: Timing = field(default_factory=Timing)
    seconds: float = 5.0
    namespaces: tuple[str, ...] = ("lake",)
    crashes: int = 0

    def __post_init__(self) -> None:
        self.kubelet = Kubelet(self.kube, self.lake)

    def keys(self) -> list[Key]:
        own = ("Warehouse", "SecondaryIndex", "MergeSchedule")
        found = {Key(kind, ns, name) for kind, ns, name in self.kube.objects if kind in own}
        for (kind, namespace, name), obj in self.kube.objects.items():
            if kind == "Table":
                found.add(Key(kind, namespace, name))
            elif kind in ("LoadJob", "MergeJob"):
                found.add(Key("Table", namespace, obj["spec"]["tableRef"]["name"]))
        return sorted(found)

    def reconcile(self, key: Key) -> None:
        """One pass over one key."""
        run_now(reconcile(key, self._ports()))

    def reconcile_all(self) -> None:
        """Every key until it rests; a crash starts the operator again at once."""
        for key in self.keys():
            for _ in range(200):
                try:
                    answer = run_now(reconcile(key, self._ports()))
                except Crash:
                    self.crashes += 1
                    continue
                if answer.after is None or answer.after > 0:
                    break
            else:
                raise AssertionError(f"{key} never rests; last writes: {self.kube.writes[-8:]}")

    def _ports(self) -> Ports:
        return Ports(
            kube=self.kube,
            clock=self.kube.clock,
            events=self.events,
            meter=self.meter,
            defaults=DEFAULTS,
            namespaces=self.namespaces,
            timing=self.timing,
        )

    def tick(self) -> None:
        self.reconcile_all()
        self.kubelet.tick()
        self.kube.clock.advance(self.seconds)

    def run_until(self, done: Callable[[], bool], ticks: int = 400) -> None:
        for _ in range(ticks):
            self.reconcile_all()
            if done():
                return
            self.kubelet.tick()
            self.kube.clock.advance(self.seconds)
        raise AssertionError(f"not reached in {ticks} ticks; " + dump(self.statuses()))

    def statuses(self) -> dict[str, Any]:
        return {
            f"{kind}/{name}": obj.get("status")
            for (kind, _, name), obj in self.kube.objects.items()
            if kind not in ("Pod", "ConfigMap", "PersistentVolumeClaim")
        }

    def holds(self, kind: str, name: str, type_: str) -> bool:
        return self.kube.condition(kind, name, type_)[0] == "True"
