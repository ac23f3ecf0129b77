"""What the operator launches for a Warehouse in a bucket: the pod's own variables and request, run on a real server."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from skipstone.runs.check import run_check
from skipstone.runs.load import run_load
from skipstone.runs.main import Run, run_app
from skipstone.runs.table import run_table
from skipstone.tables.catalogs import open_catalog
from skipstone_core.codec import decode, encode
from skipstone_core.contract.reports import JobReport
from skipstone_core.contract.requests import JobRequest
from skipstone_core.reasons import Reason
from skipstone_operator.manifests import build_run
from skipstone_operator.reconcilers.runs.requests import (
    RunPlan,
    build_manifest,
    plan_check_run,
    plan_job_run,
    plan_table_run,
)
from skipstone_operator.reconcilers.warehouse import decide
from skipstone_operator.worlds.runs import RunWorld
from skipstone_operator.worlds.steps import PutStatus

from tests.s3client import Keys, S3Client
from tests.s3server import OWNER, STRANGER
from tests.spark.load_bed import ListSink
from tests.spark.postgres import PASSWORD, USER, Server, postgres
from tests.unit import objects
from tests.unit.world_cases import SETTING, ended, good_warehouse, place, subject, warehouse_world

Obj = dict[str, Any]
CATALOG = {"SKIPSTONE_CATALOG_USER": USER, "SKIPSTONE_CATALOG_PASSWORD": PASSWORD}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A PostgreSQL for this module."""
    with postgres() as found:
        yield found


@dataclass(frozen=True)
class Launched:
    """A Warehouse in ``bucket`` with the location ``landing`` beside it, and the Secrets of its namespace."""

    bucket: S3Client
    spec: Obj
    secrets: Mapping[str, Mapping[str, str]]
    folder: Path
    patch: pytest.MonkeyPatch

    def run(self, plan: RunPlan, run: Run) -> tuple[JobReport, int]:
        """What the driver says whose ConfigMap and pod the operator makes of ``plan``, and its exit code."""
        conf, pod = build_run(build_manifest(plan, plan.intent(1, "2026-01-01T11:00:00Z")))
        request = self.folder / "request.json"
        request.write_text(conf["data"]["request.json"])
        sink = ListSink()
        with self.patch.context() as patch:
            for name in [
                name for name in os.environ if name.startswith(("AWS_", "SKIPSTONE_CATALOG_", "SKIPSTONE_LOCATION_"))
            ]:
                patch.delenv(name)
            for name, value in self.variables(pod).items():
                patch.setenv(name, value)
            code = run_app(plan.kind, run, {"SKIPSTONE_REQUEST": str(request)}, sink)
        return decode(JobReport, json.loads(sink.last), strict=False), code

    def variables(self, pod: Obj) -> dict[str, str]:
        """Those that the kubelet takes from Secrets."""
        found = {}
        for entry in pod["spec"]["containers"][0]["env"]:
            reference = entry.get("valueFrom", {}).get("secretKeyRef")
            if reference and not (
                reference.get("optional") and reference["key"] not in self.secrets[reference["name"]]
            ):
                found[entry["name"]] = self.secrets[reference["name"]][reference["key"]]
        return found

    def check(self) -> tuple[JobReport, Obj]:
        """What a check run says, and the condition Ready that follows."""
        plan = plan_check_run(good_warehouse(**self.spec), None, SETTING)
        report, code = self.run(plan, run_check)
        current = replace(plan.intent(1, "2026-01-01T11:00:00Z"), launch_time="2026-01-01T11:00:00Z")
        world = warehouse_world(self.spec, {"currentRun": encode(current)}, claim=None)
        found = RunWorld(current=current, owner_uid="uid-main", pod=ended(current, "uid-main", code, report))
        step = decide(replace(world, check=found))
        assert isinstance(step, PutStatus)
        (ready,) = (one for one in step.status["conditions"] if one["type"] == "Ready")
        return report, ready


def bucket_keys(keys: Keys) -> dict[str, str]:
    return {"AWS_ACCESS_KEY_ID": keys.access, "AWS_SECRET_ACCESS_KEY": keys.secret}


@pytest.fixture
def launched(bucket: S3Client, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launched:
    """Tables below prod/lake, feeds below landing; each has a Secret."""
    here: Obj = {
        "bucket": bucket.bucket,
        "endpoint": bucket.endpoint,
        "region": bucket.region,
        "pathStyleAccess": True,
    }
    spec = {
        "catalog": {"type": "Sql", "uri": f"postgresql://127.0.0.1:{server.port}/postgres", "name": "launched"},
        "storage": {"s3": {**here, "prefix": "prod/lake", "credentialsSecretRef": {"name": "lake"}}},
        "sourceLocations": [
            {"name": "erp-landing", "s3": {**here, "prefix": "landing/", "credentialsSecretRef": {"name": "landing"}}}
        ],
        "credentialsSecretRef": {"name": "catalog", "keys": list(CATALOG)},
    }
    secrets = {"lake": bucket_keys(OWNER), "landing": bucket_keys(OWNER), "catalog": CATALOG}
    return Launched(bucket, spec, secrets, tmp_path, monkeypatch)


def test_a_check_of_a_good_warehouse_makes_it_ready(launched: Launched) -> None:
    launched.bucket.send("PUT", "landing/a.csv", b"id\n")
    report, ready = launched.check()
    assert report.reason is Reason.CHECKED, report.message
    assert (ready["status"], ready["reason"]) == ("True", "Checked")


@pytest.mark.parametrize(
    ("secret", "keys", "says"),
    [
        ("lake", STRANGER, "403 AccessDenied): give the credentials s3:"),
        (
            "lake",
            Keys(OWNER.access, "wrong/secret"),
            "SignatureDoesNotMatch): the secret is not that of the access key",
        ),
        ("landing", STRANGER, "the source location 'erp-landing': cannot list"),
    ],
    ids=["a stranger", "a wrong secret", "a stranger to the location"],
)
def test_bad_keys_make_a_warehouse_not_ready_and_name_bucket_and_action(
    launched: Launched, secret: str, keys: Keys, says: str
) -> None:
    bad = replace(launched, secrets={**launched.secrets, secret: bucket_keys(keys)})
    report, ready = bad.check()
    assert (ready["status"], ready["reason"]) == ("False", "StorageUnavailable")
    assert ready["message"] == report.message
    assert says in ready["message"]
    assert f"in bucket '{launched.bucket.bucket}' at {launched.bucket.endpoint}" in ready["message"]
    assert keys.secret not in ready["message"]


def test_a_load_reads_from_its_location_and_writes_to_the_warehouse(launched: Launched) -> None:
    # Small Parquet files need no JVM: that of the tests was started with other variables.
    feed = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [1, 2], "tailnum": ["N1", "N2"]}), feed)
    launched.bucket.send("PUT", "landing/in/a.parquet", feed.getvalue().to_pybytes())
    there = good_warehouse(**launched.spec)
    spaces = {"identifier": {"namespace": f"air.{launched.bucket.bucket.replace('-', '_')}", "name": "flights"}}
    table = subject(objects.table(**spaces))
    created, _ = launched.run(
        plan_table_run(table, place(table=table, warehouse=there, claim=None), there, SETTING), run_table
    )
    assert created.reason is Reason.CREATED, created.message
    source = {"format": "Parquet", "paths": ["in"], "location": "erp-landing"}
    job = subject(objects.load("jan", source=source))
    plan = plan_job_run(job, place(table=table, warehouse=there, claim=None), table, there, SETTING)
    loaded, code = launched.run(plan, run_load)
    assert code == 0, loaded.message
    assert loaded.counts["rowsLoaded"] == 2
    request = build_manifest(plan, plan.intent(1, "x")).request
    assert isinstance(request, JobRequest)
    assert request.table is not None
    with launched.patch.context() as patch:
        for name, value in {**bucket_keys(OWNER), **CATALOG}.items():
            patch.setenv(name, value)
        rows = open_catalog(request.warehouse).load_table(request.table.identifier).scan().to_arrow()
    assert sorted(rows["tailnum"].to_pylist()) == ["N1", "N2"]
