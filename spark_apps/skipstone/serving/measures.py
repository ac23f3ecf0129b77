"""Metrics of the server. Every series of a bounded label exists from the start at zero, so that rates are right.

Must not know requests: whoever does something says so here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from skipstone.caches import cache_counts

PREFIX: Final = "skipstone_planning"
#: How plans and pages end: ``refused`` by what the caller sent, ``denied`` or ``absent`` by the catalog.
OUTCOMES: Final = ("completed", "refused", "denied", "absent", "overloaded", "late", "unavailable", "failed")
#: What an index did for a plan: ``used``, ``unused`` (it says nothing of the filter), ``broken``.
USES: Final = ("used", "unused", "broken")
#: Parts of a plan: the table at the catalog, its metadata, the choice of files, the answer.
PARTS: Final = ("upstream", "metadata", "plan", "describe")
#: What was found in files that plans left out, where the Warehouse asks for it.
FOUND: Final = ("right", "wrong", "unfinished")
UPSTREAM_ERRORS: Final = ("status", "timeout", "connection")
SHORT: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class PlanningMeasures:
    """All meters on one registry. ``pending``: how many plans are running or waiting now; ``is_ready``: to plan."""

    def __init__(self, pending: Callable[[], int] = lambda: 0, is_ready: Callable[[], bool] = lambda: False) -> None:
        self.registry = CollectorRegistry()
        self._plans = self._counter("plans_total", "Plans by how they ended.", "outcome", OUTCOMES)
        self._pages = self._counter("pages_total", "Pages of tasks by how they ended.", "outcome", OUTCOMES)
        self._uses = self._counter("index_uses_total", "Indexes of planned tables by what they did.", "use", USES)
        self._verified = self._counter(
            "verified_total", "Plans whose left out files were read, by what was found.", "found", FOUND
        )
        self._errors = self._counter(
            "upstream_errors_total", "Requests to the catalog that failed.", "kind", UPSTREAM_ERRORS
        )
        self._total = Counter(f"{PREFIX}_files_total", "Live files of planned snapshots.", registry=self.registry)
        self._left = Counter(f"{PREFIX}_files_left_total", "Files that plans left to be read.", registry=self.registry)
        self._seconds = Histogram(
            f"{PREFIX}_seconds", "Seconds of the parts of plans.", ["part"], buckets=SHORT, registry=self.registry
        )
        for part in PARTS:
            self._seconds.labels(part)
        self._upstream = Histogram(
            f"{PREFIX}_upstream_seconds", "Seconds until the catalog answered.", buckets=SHORT, registry=self.registry
        )
        running = Gauge(f"{PREFIX}_pending", "Plans that are running or waiting.", registry=self.registry)
        running.set_function(pending)
        ready = Gauge(f"{PREFIX}_ready", "1 while the catalog answers.", registry=self.registry)
        ready.set_function(lambda: float(is_ready()))
        self.registry.register(_Caches())

    def _counter(self, name: str, what: str, label: str, values: tuple[str, ...]) -> Counter:
        counter = Counter(f"{PREFIX}_{name}", what, [label], registry=self.registry)
        for value in values:
            counter.labels(value)
        return counter

    def plan_ended(self, outcome: str) -> None:
        """Count a plan."""
        self._plans.labels(outcome).inc()

    def page_ended(self, outcome: str) -> None:
        """Count a page."""
        self._pages.labels(outcome).inc()

    def files_planned(self, total: int, left: int) -> None:
        """Count the files of a plan."""
        self._total.inc(total)
        self._left.inc(left)

    def index_used(self, use: str) -> None:
        """Count what an index did."""
        self._uses.labels(use).inc()

    def verified(self, verdict: str) -> None:
        """Count a plan whose left out files were read."""
        self._verified.labels(verdict).inc()

    def upstream_failed(self, kind: str) -> None:
        """Count a request to the catalog that failed."""
        self._errors.labels(kind).inc()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time a part of a plan."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds.labels(name).observe(time.perf_counter() - start)

    @contextmanager
    def upstream(self) -> Iterator[None]:
        """Time a request to the catalog until its answer begins."""
        with self._upstream.time():
            yield

    def text(self) -> bytes:
        """For a scrape."""
        return generate_latest(self.registry)


class _Caches(Collector):
    """Bytes that the caches of this process hold."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One series for each cache."""
        family = GaugeMetricFamily(f"{PREFIX}_cache_bytes", "Bytes that caches hold.", labels=["cache"])
        for counts in cache_counts():
            family.add_metric([counts.name], counts.bytes)
        yield family
