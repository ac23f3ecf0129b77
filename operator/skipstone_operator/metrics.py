"""Prometheus metrics: the operator itself, its queue, reconciles, runs and their stages, and every resource.

Implements the meters that runtime, feed and reconcilers call; served on /metrics by ``__main__``.
Every series of a bounded label set exists from the start at zero, so rates are right from the first scrape. What is
measured of single resources is in ``measuring``, and ends with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from skipstone_core.contract.requests import RunKind
from skipstone_core.maintenance.policies import MaintenanceStep
from skipstone_core.reasons import Reason

from skipstone_operator.measuring.objects import ObjectMetrics
from skipstone_operator.ports import Key
from skipstone_operator.settings import BadSetting

PREFIX = "skipstone"
LAUNCH_PHASES = ("submit", "schedule", "run")
RECONCILE_RESULTS = ("done", "failed")
#: Why a run can end; runs by other reasons appear when they happen.
RUN_REASONS = (
    Reason.COMMITTED,
    Reason.ALREADY_COMMITTED,
    Reason.INVALID_SPEC,
    Reason.SOURCE_ALREADY_APPLIED,
    Reason.SOURCE_NOT_FOUND,
    Reason.SOURCE_UNREADABLE,
    Reason.BAD_RECORDS,
    Reason.CONFLICTED,
    Reason.DRIVER_FAILED,
    Reason.DRIVER_LOST,
    Reason.OUT_OF_MEMORY,
    Reason.DISK_FULL,
    Reason.JVM_LOST,
    Reason.OUTCOME_UNKNOWN,
    Reason.ABORTED,
)
#: Counters of maintenance by the counts of its steps.
WORK_COUNTERS = {
    "filesRewritten": ("files_rewritten", "Files that maintain runs rewrote."),
    "bytesRewritten": ("bytes_rewritten", "Bytes of files that maintain runs rewrote."),
    "filesDeleted": ("files_deleted", "Files that maintain runs deleted."),
    "bytesDeleted": ("bytes_deleted", "Bytes of files that maintain runs deleted."),
}
#: Stages of runs; what a driver names otherwise is counted as ``other``, so that no driver can make series at will.
STAGES = frozenset(
    {
        *("build", "catalog", "check", "commit", "confirm", "drop", "index", "merge", "open", "plan", "prune", "read"),
        *("report", "rewrite", "scan", "search", "session", "snapshot", "state", "storage", "table", "write"),
        *(step.value for step in MaintenanceStep),
    }
)
OTHER_STAGE = "other"
#: Reasons with which a run ends well.
GOOD_REASONS = frozenset({Reason.COMMITTED, Reason.ALREADY_COMMITTED})
SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
LONG = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)


class Metrics:
    """All meters of the operator on one registry. Methods neither fail nor block."""

    def __init__(
        self,
        kinds: tuple[str, ...],
        registry: CollectorRegistry | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``kinds`` are the kinds of reconcile keys, for series that exist from the start; ``now``: since 1970."""
        self.registry = registry or CollectorRegistry()
        self._objects = ObjectMetrics(PREFIX, self.registry, now)
        self._operator_metrics()
        self._queue_metrics()
        self._run_metrics()
        self._maintenance_metrics()
        self._set_to_zero()
        for name in kinds:
            for result in RECONCILE_RESULTS:
                self._reconcile.labels(name, result)

    def _operator_metrics(self) -> None:
        self._leader = Gauge(f"{PREFIX}_leader", "Whether this operator holds the Lease.", registry=self.registry)
        self._resync_age = Gauge(
            f"{PREFIX}_resync_age_seconds",
            "Seconds since everything was last listed; NaN before the first time.",
            registry=self.registry,
        )

    def _queue_metrics(self) -> None:
        self._depth = Gauge(
            f"{PREFIX}_queue_depth", "Keys that are ready and wait for a worker.", registry=self.registry
        )
        self._latency = Histogram(
            f"{PREFIX}_queue_latency_seconds",
            "Time a key was ready before a worker took it.",
            buckets=SHORT,
            registry=self.registry,
        )
        self._reconcile = Histogram(
            f"{PREFIX}_reconcile_seconds",
            "Duration of one reconcile.",
            ("kind", "result"),
            buckets=SHORT,
            registry=self.registry,
        )
        self._stale = Gauge(
            f"{PREFIX}_watch_stale_objects",
            "Objects whose last change the watch had not delivered in time, in the last resync.",
            registry=self.registry,
        )

    def _run_metrics(self) -> None:
        self._runs = Counter(
            f"{PREFIX}_runs_total", "Runs that ended, by kind and reason.", ("kind", "reason"), registry=self.registry
        )
        self._run_seconds = Histogram(
            f"{PREFIX}_run_seconds",
            "Time from a run's intent to its end.",
            ("kind",),
            buckets=LONG,
            registry=self.registry,
        )
        self._launch = Histogram(
            f"{PREFIX}_launch_latency_seconds",
            "Time of a run by phase: submit (intent to pod), schedule (pod to started), run (started to ended).",
            ("phase",),
            buckets=LONG,
            registry=self.registry,
        )
        self._failures = Counter(
            f"{PREFIX}_run_failures_total",
            "Runs that failed or whose end is not known, by kind and reason; not those lost to the cluster or stopped.",
            ("kind", "reason"),
            registry=self.registry,
        )
        self._stages = Histogram(
            f"{PREFIX}_run_stage_seconds",
            "Time that ended runs spent in each stage, as their drivers say.",
            ("kind", "stage"),
            buckets=LONG,
            registry=self.registry,
        )

    def _maintenance_metrics(self) -> None:
        self._work = {
            name: Counter(f"{PREFIX}_maintenance_{measure}_total", text, ("step",), registry=self.registry)
            for name, (measure, text) in WORK_COUNTERS.items()
        }

    def _set_to_zero(self) -> None:
        for kind in RunKind:
            self._run_seconds.labels(kind.value)
            for reason in RUN_REASONS:
                self._runs.labels(kind.value, reason.value)
            for reason in set(RUN_REASONS) - GOOD_REASONS:
                self._failures.labels(kind.value, reason.value)
        for counter in self._work.values():
            for step in MaintenanceStep:
                counter.labels(step.value)
        for phase in LAUNCH_PHASES:
            self._launch.labels(phase)

    def queue_depth(self, keys: int) -> None:
        """Keys that are ready and wait for a worker."""
        self._depth.set(keys)

    def queue_latency(self, seconds: float) -> None:
        """How long one key was ready before a worker took it."""
        self._latency.observe(seconds)

    def reconcile_time(self, kind: str, result: str, seconds: float) -> None:
        """One reconcile ended; ``result`` is ``done`` or ``failed``."""
        self._reconcile.labels(kind, result).observe(seconds)

    def watch_stale(self, objects: int) -> None:
        """Objects whose last change the watch had not delivered in time."""
        self._stale.set(objects)

    def run_finished(self, kind: RunKind, reason: Reason, *, seconds: float) -> None:
        """One run ended with ``reason``, ``seconds`` after its intent was written."""
        self._runs.labels(kind.value, reason.value).inc()
        self._run_seconds.labels(kind.value).observe(seconds)

    def launch_latency(self, phase: str, seconds: float) -> None:
        """``phase`` is ``submit``, ``schedule`` or ``run``."""
        self._launch.labels(phase).observe(seconds)

    def run_failed(self, kind: RunKind, reason: Reason) -> None:
        """One run that ended did not do what it was for, and was neither lost nor stopped."""
        self._failures.labels(kind.value, reason.value).inc()

    def run_stages(self, kind: RunKind, seconds: Mapping[str, float]) -> None:
        """How long a run that ended was in each of its stages, by their names."""
        for stage, spent in seconds.items():
            self._stages.labels(kind.value, stage if stage in STAGES else OTHER_STAGE).observe(spent)

    def job_committed(self, namespace: str, table: str, counts: Mapping[str, int]) -> None:
        """A job of ``table`` became Complete; ``counts`` of its rows and files by name."""
        self._objects.job_committed(namespace, table, counts)

    def seen(self, obj: Mapping[str, Any]) -> None:
        """An object of any kind is so now."""
        self._objects.seen(obj)

    def gone(self, identity: Key) -> None:
        """The object does not exist any more."""
        self._objects.gone(identity)

    def watch_operator(self, leads: Callable[[], bool], resync_age: Callable[[], float]) -> None:
        """Ask these at each scrape, from its thread: whether the Lease is held, and seconds since the last resync."""
        self._leader.set_function(lambda: float(leads()))
        self._resync_age.set_function(resync_age)

    def maintenance_work(self, step: str, counts: Mapping[str, int]) -> None:
        """What a step of a maintain run that ended counted; names without a counter are not measured."""
        for name, counter in self._work.items():
            counter.labels(step).inc(counts.get(name, 0))

    def serve(self, port: int, address: str = "0.0.0.0") -> int:
        """Serve /metrics from a thread of its own; answers the port, which 0 leaves open. Raises BadSetting."""
        try:
            self._server, self._thread = start_http_server(port, addr=address, registry=self.registry)
        except OSError as error:
            raise BadSetting(f"SKIPSTONE_METRICS_PORT: port {port} cannot be used: choose another ({error})") from error
        return int(self._server.server_port)

    def stop(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
