"""The numbers of all objects that are there, put together for one scrape.

A collector of prometheus_client: numbers are read when an object changes, on the event loop, and put together when the
server of /metrics asks, on its thread. What one scrape costs grows with the number of objects and with nothing else.
Nothing outlives its object.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from skipstone_operator.measuring.families import FAMILIES, WORK, Family
from skipstone_operator.measuring.measurements import JobMeasurement, Measurements, read
from skipstone_operator.ports import Key
from skipstone_operator.resources.kinds import KINDS, TABLE

STATES = ("Waiting", "Running", "Complete", "Failed")
#: The counts of a job that committed, by where they go: the family and its labels beside those of the table.
COUNTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "rowsLoaded": ("load_rows", ()),
    "rowsUpdated": ("merge_rows", ("Updated",)),
    "rowsDeleted": ("merge_rows", ("Deleted",)),
    "rowsInserted": ("merge_rows", ("Inserted",)),
    "rowsRejected": ("rejected_rows", ("Rejected",)),
    "rowsWaiting": ("rejected_rows", ("Waiting",)),
    "rowsUnmatchedDeletes": ("merge_unmatched_rows", ("Deleted",)),
    "rowsUnmatchedUpdates": ("merge_unmatched_rows", ("Updated",)),
    "valuesIgnored": ("ignored_values", ()),
    "filesTotal": ("merge_files", ()),
    "filesPruned": ("merge_pruned_files", ()),
}
Labels = tuple[str, ...]


class ObjectMetrics(Collector):
    """Gauges of every object that was seen and is not gone. ``now``: seconds since 1970."""

    def __init__(self, prefix: str, registry: CollectorRegistry, now: Callable[[], float] = time.time) -> None:
        """Registers itself."""
        self._prefix, self._now = prefix, now
        self._seen: dict[Key, Measurements] = {}
        self._work: dict[Key, Counter[tuple[str, Labels]]] = {}
        registry.register(self)

    def seen(self, obj: Mapping[str, Any]) -> None:
        """``obj`` is so now; objects of other kinds than ours are nothing to measure."""
        metadata = obj["metadata"]
        key = Key(str(obj.get("kind")), str(metadata.get("namespace", "")), str(metadata["name"]))
        known = self._seen.get(key)
        version = str(metadata.get("resourceVersion", ""))
        if key.kind not in KINDS or (known is not None and version and known.version == version):
            return
        self._seen[key] = read(obj, datetime.fromtimestamp(self._now(), UTC))
        if key.kind == TABLE.name and key not in self._work:
            # At zero from the start, so that the first job counts in rates.
            self._work[key] = Counter(dict.fromkeys(COUNTS.values(), 0))

    def gone(self, identity: Key) -> None:
        """The object does not exist any more: its series end."""
        self._seen.pop(identity, None)
        self._work.pop(identity, None)

    def job_committed(self, namespace: str, table: str, counts: Mapping[str, int]) -> None:
        """A job of ``table`` became Complete; ``counts`` by the names of COUNTS."""
        work = self._work.get(Key(TABLE.name, namespace, table), Counter())
        for name, place in COUNTS.items():
            work[place] += counts.get(name, 0)

    def describe(self) -> Iterable[Metric]:
        """All families, without their series."""
        yield from self._gauges().values()
        yield from self._counters().values()

    def collect(self) -> Iterator[Metric]:
        """All families with their series."""
        # Copied at once: the event loop goes on changing it.
        seen, now = self._seen.copy(), self._now()
        gauges = self._gauges()
        for measured in seen.values():
            for number in measured.numbers:
                value = max(0.0, now - number.value) if number.since else number.value
                gauges[number.family].add_metric(number.labels, value)
        _add_jobs(gauges, (each.job for each in seen.values() if each.job is not None))
        yield from gauges.values()
        yield from self._collect_work()

    def _collect_work(self) -> Iterator[Metric]:
        counters = self._counters()
        for key, work in self._work.copy().items():
            for (family, more), value in work.copy().items():
                counters[family].add_metric((key.namespace, key.name, *more), value)
        yield from counters.values()

    def _gauges(self) -> dict[str, GaugeMetricFamily]:
        return {name: GaugeMetricFamily(*self._described(name, family)) for name, family in FAMILIES.items()}

    def _counters(self) -> dict[str, CounterMetricFamily]:
        return {name: CounterMetricFamily(*self._described(name, family)) for name, family in WORK.items()}

    def _described(self, name: str, family: Family) -> tuple[str, str, None, tuple[str, ...]]:
        return f"{self._prefix}_{name}", family.text, None, family.labels


def _add_jobs(gauges: Mapping[str, GaugeMetricFamily], jobs: Iterable[JobMeasurement]) -> None:
    """How many jobs of each table are in which state, and when one was Complete last."""
    states: Counter[tuple[Labels, str]] = Counter()
    successes: dict[Labels, float] = {}
    for job in jobs:
        labels: Labels = (job.kind, job.namespace, job.table)
        states[labels, job.state] += 1
        if job.state == "Complete" and job.ended is not None:
            successes[labels] = max(job.ended, successes.get(labels, 0.0))
    for labels in dict.fromkeys(labels for labels, _ in states):
        for state in STATES:
            gauges["jobs"].add_metric((*labels, state), states[labels, state])
    for labels, moment in successes.items():
        gauges["job_last_success_timestamp_seconds"].add_metric(labels, moment)
