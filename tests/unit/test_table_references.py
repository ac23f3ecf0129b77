"""Jobs whose source is a Table: when they wait for it, and what their runs are asked to read."""

from __future__ import annotations

from typing import Any

import pytest
from skipstone_core.contract.formats import SourceFormat
from skipstone_core.contract.requests import JobRequest, SourceSpec
from skipstone_operator.manifests import build_run
from skipstone_operator.reconcilers.jobs.facts import find_block, plan_run
from skipstone_operator.reconcilers.runs.requests import build_manifest
from skipstone_operator.reconcilers.runs.tables import consumer_of
from skipstone_operator.worlds.subjects import Subject
from skipstone_operator.worlds.worlds import JobWorld

from tests.unit import objects
from tests.unit.job_cases import waits
from tests.unit.world_cases import condition, job_world, place, subject

READY = [condition("Ready", "True", "Created")]


def raw_table(ready: bool = True, warehouse: str = "main", **metadata: Any) -> Subject[Any, Any]:
    """The Table ``raw``."""
    spec = {"warehouseRef": {"name": warehouse}, "identifier": {"namespace": "air", "name": "raw"}}
    status = {"observedGeneration": 1, "tableUuid": "uuid-raw", "conditions": READY if ready else []}
    return subject(objects.table("raw", **spec), status, **metadata)


def world(source: Subject[Any, Any] | None, kind: str = "load", **fields: Any) -> JobWorld:
    """A job that reads the Table ``raw``."""
    consume = fields.pop("consume", "All")
    job = getattr(objects, kind)("jan", source={"table": {"name": "raw", **fields}, "consume": consume})
    return job_world(job, place=place(source=source))


@pytest.mark.parametrize(
    ("source", "reason", "says"),
    [
        (None, "TableNotFound", "spec.source.table: there is no Table 'raw' here; create it"),
        (raw_table(deletionTimestamp="2026-01-01T00:00:00Z"), "TableNotFound", "'raw' is being deleted"),
        (raw_table(ready=False), "TableNotReady", "Table 'raw' is not ready"),
        (raw_table(warehouse="other"), "InvalidSpec", "a job reads tables of its own Warehouse, 'main'"),
    ],
)
def test_a_job_waits_for_the_table_that_it_reads(source: Subject[Any, Any] | None, reason: str, says: str) -> None:
    waiting = world(source)
    block = find_block(waiting)
    assert block is not None
    assert says in block.message
    assert waits(waiting) == ("False", reason)


def request_of(made: JobWorld) -> JobRequest:
    """What the run is asked to do."""
    plan = plan_run(made)
    assert plan is not None
    return JobRequest.from_json(build_run(build_manifest(plan, plan.intent(1, "x")))[0]["data"]["request.json"])


@pytest.mark.parametrize("kind", ["load", "merge"])
def test_a_run_is_asked_to_read_the_table_as_the_catalog_has_it(kind: str) -> None:
    asked = request_of(world(raw_table(), kind, snapshot="17", where="day > 3"))
    task = asked.load or asked.merge
    assert task is not None
    source: SourceSpec = task.source
    assert source.table is not None
    assert (source.format, source.paths, source.table.name) == (SourceFormat.PARQUET, (), "air.raw")
    assert (source.table.table.table_uuid, source.table.snapshot, source.table.where) == ("uuid-raw", "17", "day > 3")


def test_another_table_of_the_name_is_another_run() -> None:
    plans = [plan_run(world(raw_table(uid=uid))) for uid in ("uid-a", "uid-b")]
    assert len({plan.inputs_hash for plan in plans if plan is not None}) == 2


def test_jobs_that_read_other_rows_are_other_consumers() -> None:
    fields: list[dict[str, str]] = [{}, {"where": "a = 1"}, {"ref": "audit"}, {"fromSnapshot": "5"}]
    names = [consumer_of(world(raw_table(), consume="New", **more).job) for more in fields]
    assert len(set(names)) == 3
    assert names[0] == names[3]  # where to begin is not which rows
    assert names[0].startswith("jobs on table raw ")
