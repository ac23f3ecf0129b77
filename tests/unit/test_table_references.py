"""Jobs whose source is a Table: when they wait for it, and what their runs are asked to read."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from skipstone_core.contract.deltatables import SourceDeltaRef
from skipstone_core.contract.formats import SourceFormat
from skipstone_core.contract.requests import JobRequest, SourceSpec
from skipstone_operator.manifests import build_run
from skipstone_operator.reconcilers.jobs.facts import find_block, plan_run
from skipstone_operator.reconcilers.runs.requests import build_manifest
from skipstone_operator.reconcilers.runs.tables import consumer_of
from skipstone_operator.worlds.subjects import ClaimFacts, Subject
from skipstone_operator.worlds.worlds import JobWorld

from tests.unit import objects
from tests.unit.job_cases import waits
from tests.unit.world_cases import condition, good_warehouse, job_world, place, subject

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
    ],
)
def test_a_job_waits_for_the_table_that_it_reads(source: Subject[Any, Any] | None, reason: str, says: str) -> None:
    waiting = world(source)
    block = find_block(waiting)
    assert block is not None
    assert says in block.message
    assert waits(waiting) == ("False", reason)


OTHER_KEYS = {
    "storage": {"s3": {"bucket": "erp", "credentialsSecretRef": {"name": "erp-bucket"}}},
    "catalog": {"type": "Rest", "uri": "https://erp"},
    "credentialsSecretRef": {"name": "erp-catalog", "keys": ["SKIPSTONE_CATALOG_TOKEN"]},
}


def elsewhere(claim: ClaimFacts | None = None, ready: bool = True, **spec: Any) -> JobWorld:
    """A job that reads the Table ``raw`` of the Warehouse ``erp``; it has executors."""
    status = {"observedGeneration": 1, "conditions": [condition("Ready", "True", "Checked")] if ready else []}
    mine = good_warehouse(
        credentialsSecretRef={"name": "own", "keys": ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]},
        spark={"executor": {"instances": 2}},
    )
    theirs = subject(objects.warehouse("erp", **spec), status)
    there = place(source=raw_table(warehouse="erp"), warehouse=mine, source_warehouse=theirs, source_claim=claim)
    return job_world(objects.load("jan", source={"table": {"name": "raw"}}), place=there)


@pytest.mark.parametrize(
    ("made", "reason", "says"),
    [
        (world(raw_table(warehouse="erp")), "WaitingForWarehouse", "in Warehouse 'erp', which does not exist; create"),
        (elsewhere(ready=False), "WaitingForWarehouse", "in Warehouse 'erp', which is not ready: see its conditions"),
        (elsewhere(ClaimFacts("erp", ("ReadWriteOncePod",))), "InvalidSpec", "claim 'erp' is ReadWriteOncePod"),
        (elsewhere(**OTHER_KEYS, caBundleRef={"name": "own", "key": "a"}), "InvalidSpec", "both into one ConfigMap"),
    ],
)
def test_a_job_waits_for_the_other_warehouse_of_the_table(made: JobWorld, reason: str, says: str) -> None:
    block = find_block(made)
    assert block is not None
    assert says in block.message
    assert block.message.startswith("spec.source.table: Table 'raw' is in Warehouse 'erp', ")
    assert waits(made) == ("False", reason)


def pods_of(made: JobWorld) -> tuple[dict[str, Any], dict[str, Any]]:
    """The driver, and the template of executors."""
    plan = plan_run(made)
    assert plan is not None
    conf_map, driver = build_run(build_manifest(plan, plan.intent(1, "x")))
    return driver["spec"], yaml.safe_load(conf_map["data"]["executor-pod-template.yaml"])["spec"]


def secrets(pod: dict[str, Any]) -> dict[str, str]:
    """Variables of a pod by the Secret that they are from."""
    named = [env for env in pod["containers"][0]["env"] if "secretKeyRef" in env.get("valueFrom", {})]
    return {env["name"]: env["valueFrom"]["secretKeyRef"]["name"] for env in named}


def test_the_driver_alone_gets_the_credentials_of_the_other_warehouse() -> None:
    made = elsewhere(**OTHER_KEYS)
    assert find_block(made) is None
    asked = request_of(made).source_warehouse
    assert asked is not None
    assert asked.s3 is not None
    assert (asked.name, asked.credentials_prefix, asked.s3.credentials_prefix) == ("erp", *2 * ["SKIPSTONE_SOURCE_"])
    own = {"AWS_ACCESS_KEY_ID": "own", "AWS_SECRET_ACCESS_KEY": "own"}
    theirs = {"SKIPSTONE_CATALOG_TOKEN": "erp-catalog"}
    theirs |= dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"), "erp-bucket")
    driver, executors = pods_of(made)
    assert secrets(driver) == own | {f"SKIPSTONE_SOURCE_{name}": secret for name, secret in theirs.items()}
    assert secrets(executors) == own


def test_the_claim_of_the_other_warehouse_is_only_read_and_only_by_the_driver() -> None:
    made = elsewhere(ClaimFacts("erp-claim", ("ReadWriteMany",)), storage={"pvc": {"claimName": "erp-claim"}})
    asked = request_of(made).source_warehouse
    assert asked is not None
    assert (asked.root, asked.credentials_prefix) == ("/skipstone/erp", "SKIPSTONE_SOURCE_")
    driver, executors = pods_of(made)
    (volume,) = (volume for volume in driver["volumes"] if volume["name"] == "table-source")
    assert volume["persistentVolumeClaim"] == {"claimName": "erp-claim", "readOnly": True}
    (mount,) = (mount for mount in driver["containers"][0]["volumeMounts"] if mount["name"] == "table-source")
    assert mount == {"name": "table-source", "mountPath": "/skipstone/erp", "readOnly": True}
    assert "table-source" not in [volume["name"] for volume in executors["volumes"]]


def test_another_catalog_of_the_other_warehouse_is_another_run() -> None:
    specs: list[dict[str, Any]] = [{}, {"catalog": {"type": "Rest", "uri": "https://b"}}, {"maxConcurrentRuns": 7}]
    hashes = [plan.inputs_hash for spec in specs if (plan := plan_run(elsewhere(**spec))) is not None]
    assert [len(set(hashes)), hashes[0] == hashes[2]] == [2, True]


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


def test_a_run_is_asked_to_read_the_files_of_a_delta_table() -> None:
    delta = {"path": "lake/events", "startingVersion": "3", "where": "day is null"}
    made = job_world(objects.load("jan", source={"delta": delta, "consume": "New"}))
    asked = request_of(made).load
    assert asked is not None
    assert asked.source.delta == SourceDeltaRef(path="lake/events", starting_version="3", where="day is null")
    assert (asked.source.format, asked.source.paths) == (SourceFormat.PARQUET, ())
    assert asked.source.consumer.startswith("jobs on Delta table ")


def test_jobs_that_read_other_rows_are_other_consumers() -> None:
    fields: list[dict[str, str]] = [{}, {"where": "a = 1"}, {"ref": "audit"}, {"fromSnapshot": "5"}]
    names = [consumer_of(world(raw_table(), consume="New", **more).job) for more in fields]
    assert len(set(names)) == 3
    assert names[0] == names[3]  # where to begin is not which rows
    assert names[0].startswith("jobs on table raw ")
