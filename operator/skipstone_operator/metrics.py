"""Prometheus metrics: queue, reconciles, runs, index lag, launch latency, health of tables.

Implements the meters that runtime and reconcilers call; served on /metrics by ``__main__``.
Every series of a bounded label set exists from the start at zero, so rates are right from the first scrape.
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from skipstone_core.contract.requests import RunKind
from skipstone_core.maintenance.policies import MaintenanceStep
from skipstone_core.reasons import Reason

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
#: Gauges of a table's health by the fields of ``status.health``.
HEALTH_GAUGES = {
    "smallFiles": ("small_files", "Data files below three quarters of the target size."),
    "dueFiles": ("due_files", "Data files that compaction would rewrite now."),
    "deleteFiles": ("delete_files", "Delete files and deletion vectors."),
    "snapshots": ("snapshots", "Snapshots that the table retains."),
    "manifests": ("manifests", "Manifests of the current snapshot."),
    "metadataBytes": ("metadata_bytes", "Bytes of the metadata file, the manifest lists and the manifests."),
}
#: Counters of maintenance by the counts of its steps.
WORK_COUNTERS = {
    "filesRewritten": ("files_rewritten", "Files that maintain runs rewrote."),
    "bytesRewritten": ("bytes_rewritten", "Bytes of files that maintain runs rewrote."),
    "filesDeleted": ("files_deleted", "Files that maintain runs deleted."),
    "bytesDeleted": ("bytes_deleted", "Bytes of files that maintain runs deleted."),
}
SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
LONG = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)


class Metrics:
    """All meters of the operator on one registry. Methods neither fail nor block."""

    def __init__(self, kinds: tuple[str, ...], registry: CollectorRegistry | None = None) -> None:
        """``kinds`` are the kinds of reconcile keys, for series that exist from the start."""
        self.registry = registry or CollectorRegistry()
        self._queue_metrics()
        self._run_metrics()
        self._table_metrics()
        self._set_to_zero(kinds)

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
        self._lag = Gauge(
            f"{PREFIX}_index_lag_segments",
            "Segments that an index misses.",
            ("namespace", "index"),
            registry=self.registry,
        )

    def _table_metrics(self) -> None:
        self._health = {
            name: Gauge(f"{PREFIX}_table_{measure}", text, ("namespace", "table"), registry=self.registry)
            for name, (measure, text) in HEALTH_GAUGES.items()
        }
        self._maintained = Gauge(
            f"{PREFIX}_table_maintained_timestamp_seconds",
            "When a step of maintenance was last done, in seconds since 1970.",
            ("namespace", "table", "step"),
            registry=self.registry,
        )
        self._work = {
            name: Counter(f"{PREFIX}_maintenance_{measure}_total", text, ("step",), registry=self.registry)
            for name, (measure, text) in WORK_COUNTERS.items()
        }

    def _set_to_zero(self, kinds: tuple[str, ...]) -> None:
        for kind in RunKind:
            self._run_seconds.labels(kind.value)
            for reason in RUN_REASONS:
                self._runs.labels(kind.value, reason.value)
        for counter in self._work.values():
            for step in MaintenanceStep:
                counter.labels(step.value)
        for phase in LAUNCH_PHASES:
            self._launch.labels(phase)
        for name in kinds:
            for result in RECONCILE_RESULTS:
                self._reconcile.labels(name, result)

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

    def index_lag(self, namespace: str, name: str, segments: int) -> None:
        """How many segments the index misses now."""
        self._lag.labels(namespace, name).set(segments)

    def index_gone(self, namespace: str, name: str) -> None:
        """The index was deleted: its series ends."""
        self._lag.remove_by_labels({"namespace": namespace, "index": name})

    def table_health(self, namespace: str, name: str, health: Mapping[str, int]) -> None:
        """How the table is: counts by the fields of ``status.health``."""
        for measure, gauge in self._health.items():
            gauge.labels(namespace, name).set(health.get(measure, 0))

    def maintained(self, namespace: str, name: str, step: str, moment: float) -> None:
        """The step of maintenance was done at ``moment``, in seconds since 1970."""
        self._maintained.labels(namespace, name, step).set(moment)

    def maintenance_work(self, step: str, counts: Mapping[str, int]) -> None:
        """What a step of a maintain run that ended counted; names without a counter are not measured."""
        for name, counter in self._work.items():
            counter.labels(step).inc(counts.get(name, 0))

    def table_gone(self, namespace: str, name: str) -> None:
        """The table was deleted: its series end."""
        for gauge in (*self._health.values(), self._maintained):
            gauge.remove_by_labels({"namespace": namespace, "table": name})

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
