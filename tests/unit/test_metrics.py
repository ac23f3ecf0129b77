"""Metrics: every bounded series is there from the start, and what is counted is found again."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason
from skipstone_operator.metrics import STAGES, Metrics

KINDS = ("Warehouse", "Table", "SecondaryIndex")


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(KINDS)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


@pytest.mark.parametrize("kind", RunKind)
def test_runs_are_at_zero_from_the_start(metrics: Metrics, kind: RunKind) -> None:
    assert value(metrics, "skipstone_runs_total", kind=kind.value, reason="Committed") == 0
    assert value(metrics, "skipstone_runs_total", kind=kind.value, reason="DriverFailed") == 0
    assert value(metrics, "skipstone_run_seconds_count", kind=kind.value) == 0


@pytest.mark.parametrize("phase", ["submit", "schedule", "run"])
def test_launch_latency_is_split_and_at_zero_from_the_start(metrics: Metrics, phase: str) -> None:
    assert value(metrics, "skipstone_launch_latency_seconds_count", phase=phase) == 0
    metrics.launch_latency(phase, 2.5)
    assert value(metrics, "skipstone_launch_latency_seconds_sum", phase=phase) == 2.5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("result", ["done", "failed"])
def test_reconciles_are_at_zero_from_the_start(metrics: Metrics, kind: str, result: str) -> None:
    assert value(metrics, "skipstone_reconcile_seconds_count", kind=kind, result=result) == 0
    metrics.reconcile_time(kind, result, 0.25)
    assert value(metrics, "skipstone_reconcile_seconds_sum", kind=kind, result=result) == 0.25


def test_an_ended_run_is_counted_by_kind_and_reason(metrics: Metrics) -> None:
    metrics.run_finished(RunKind.MERGE, Reason.BAD_RECORDS, seconds=12)
    assert value(metrics, "skipstone_runs_total", kind="Merge", reason="BadRecords") == 1
    assert value(metrics, "skipstone_run_seconds_sum", kind="Merge") == 12


def test_a_reason_that_was_not_foreseen_is_counted_too(metrics: Metrics) -> None:
    metrics.run_finished(RunKind.LOAD, Reason.TABLE_REPLACED, seconds=1)
    assert value(metrics, "skipstone_runs_total", kind="Load", reason="TableReplaced") == 1


def test_queue_depth_and_latency_are_kept(metrics: Metrics) -> None:
    metrics.queue_depth(7)
    metrics.queue_latency(0.5)
    assert value(metrics, "skipstone_queue_depth") == 7
    assert value(metrics, "skipstone_queue_latency_seconds_sum") == 0.5


def test_the_work_of_maintenance_is_counted_from_zero(metrics: Metrics) -> None:
    assert value(metrics, "skipstone_maintenance_files_deleted_total", step="OrphanFiles") == 0
    metrics.maintenance_work("OrphanFiles", {"filesDeleted": 2, "filesFound": 9})
    assert value(metrics, "skipstone_maintenance_files_deleted_total", step="OrphanFiles") == 2


def test_failed_runs_are_counted_by_reason_from_zero(metrics: Metrics) -> None:
    assert value(metrics, "skipstone_run_failures_total", kind="Merge", reason="OutOfMemory") == 0
    assert value(metrics, "skipstone_run_failures_total", kind="Merge", reason="Committed") is None
    metrics.run_failed(RunKind.MERGE, Reason.OUT_OF_MEMORY)
    assert value(metrics, "skipstone_run_failures_total", kind="Merge", reason="OutOfMemory") == 1


def test_stages_of_runs_are_timed_and_none_but_ours_make_series(metrics: Metrics) -> None:
    metrics.run_stages(RunKind.MERGE, {"prune": 2.0, "rewrite": 3.5, "made-up-1": 1.0, "made-up-2": 1.0})
    assert value(metrics, "skipstone_run_stage_seconds_sum", kind="Merge", stage="rewrite") == 3.5
    assert value(metrics, "skipstone_run_stage_seconds_count", kind="Merge", stage="other") == 2
    assert value(metrics, "skipstone_run_stage_seconds_count", kind="Merge", stage="made-up-1") is None


def test_every_stage_of_a_run_is_known() -> None:
    sources = (Path(__file__).resolve().parents[2] / "spark_apps" / "skipstone").rglob("*.py")
    named = {name for path in sources for name in re.findall(r"\.stage\(\"([^\"]+)\"\)", path.read_text())}
    assert len(named) > 15
    assert named <= STAGES


def test_who_leads_and_how_old_the_resync_is_are_asked_at_each_scrape(metrics: Metrics) -> None:
    assert value(metrics, "skipstone_leader") == 0
    facts = [(True, 3.0), (False, 700.0)]
    metrics.watch_operator(lambda: facts[0][0], lambda: facts[0][1])
    assert (value(metrics, "skipstone_leader"), value(metrics, "skipstone_resync_age_seconds")) == (1, 3)
    facts.pop(0)
    assert (value(metrics, "skipstone_leader"), value(metrics, "skipstone_resync_age_seconds")) == (0, 700)


def test_a_deaf_watch_is_shown(metrics: Metrics) -> None:
    metrics.watch_stale(3)
    assert value(metrics, "skipstone_watch_stale_objects") == 3


def test_every_metric_carries_the_prefix_and_a_help_text(metrics: Metrics) -> None:
    for family in metrics.registry.collect():
        assert family.name.startswith("skipstone_")
        assert family.documentation.endswith(".")


def test_metrics_are_served_over_http(metrics: Metrics) -> None:
    port = metrics.serve(0, "127.0.0.1")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        served = answer.read()
    metrics.stop()
    assert served == generate_latest(metrics.registry)
