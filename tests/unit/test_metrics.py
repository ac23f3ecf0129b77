"""Metrics: every bounded series is there from the start, and what is counted is found again."""

from __future__ import annotations

import urllib.request

import pytest
from prometheus_client import generate_latest
from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason
from skipstone_operator.metrics import Metrics

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


def test_the_lag_of_an_index_is_shown_until_it_is_deleted(metrics: Metrics) -> None:
    labels = {"namespace": "air", "index": "by-tail"}
    metrics.index_lag("air", "by-tail", 2)
    assert value(metrics, "skipstone_index_lag_segments", **labels) == 2
    metrics.index_gone("air", "by-tail")
    assert value(metrics, "skipstone_index_lag_segments", **labels) is None
    metrics.index_gone("air", "by-tail")


def test_the_health_of_a_table_is_shown_until_it_is_deleted(metrics: Metrics) -> None:
    labels = {"namespace": "air", "table": "flights"}
    metrics.table_health("air", "flights", {"smallFiles": 3, "metadataBytes": 4096})
    metrics.maintained("air", "flights", "Compaction", 1_767_000_000.0)
    assert value(metrics, "skipstone_table_small_files", **labels) == 3
    assert value(metrics, "skipstone_table_metadata_bytes", **labels) == 4096
    done = {**labels, "step": "Compaction"}
    assert value(metrics, "skipstone_table_maintained_timestamp_seconds", **done) == 1_767_000_000
    metrics.table_gone("air", "flights")
    assert value(metrics, "skipstone_table_small_files", **labels) is None
    assert value(metrics, "skipstone_table_maintained_timestamp_seconds", **done) is None


def test_the_work_of_maintenance_is_counted_from_zero(metrics: Metrics) -> None:
    assert value(metrics, "skipstone_maintenance_files_deleted_total", step="OrphanFiles") == 0
    metrics.maintenance_work("OrphanFiles", {"filesDeleted": 2, "filesFound": 9})
    assert value(metrics, "skipstone_maintenance_files_deleted_total", step="OrphanFiles") == 2


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
