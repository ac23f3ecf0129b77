"""How a driver gets its JVM and its Python workers: both begin before they are needed."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from skipstone.runs.workers import KERNELS, warm_workers
from skipstone.session import FORCED, LOCAL
from skipstone_core.contract.reports import JobReport
from skipstone_core.contract.requests import CatalogRef, CatalogType, JobRequest, RunKind, WarehouseRef

from tests.spark.conftest import wait_for_workers

#: A driver that starts the JVM first of all, as the applications do, and tells of the session that it gets.
DRIVER = """
import json, sys
from skipstone.jvm import start_jvm
start_jvm()
assert "pyspark" not in sys.modules and "pyarrow" not in sys.modules
from pyspark import SparkContext
from skipstone.session import FORCED, spark_session
from skipstone_core.contract.requests import JobRequest
spark = spark_session(JobRequest.from_json(sys.argv[1]))
zone = spark.sparkContext._jvm.java.util.TimeZone.getDefault().getID()
conf = {name: spark.conf.get(name, None) for name in FORCED}
env = spark.sparkContext._jvm.java.lang.System.getenv()
secrets = [name for name in env.keySet() if name.startswith("SKIPSTONE_CATALOG_")]
told = {"secrets": secrets, "rows": spark.range(5).count(), "zone": zone, "conf": conf}
told["app"] = spark.sparkContext.appName
print(json.dumps(told | {"launched by PySpark": SparkContext._gateway.proc is not None}))
"""
UNUSED = "from skipstone.jvm import start_jvm; start_jvm()"
ENDED = "from skipstone.jvm import start_jvm, use_jvm; start_jvm(); use_jvm()"
APPS = Path(__file__).parents[2] / "spark_apps" / "skipstone" / "apps"
REQUEST = JobRequest(
    kind=RunKind.CHECK,
    run_id="one",
    attempt=1,
    warehouse=WarehouseRef(name="wh", root="/nowhere", catalog=CatalogRef(type=CatalogType.SQL)),
    owner_kind="Warehouse",
    owner_name="wh",
    owner_uid="1",
)


def drive(program: str, *arguments: str, submit: str) -> subprocess.CompletedProcess[str]:
    """Run a program as the driver of a pod; returns when it and its JVM, which has the same output, have ended."""
    given = {"PYSPARK_SUBMIT_ARGS": submit, "SKIPSTONE_CATALOG_PASSWORD": "canary-password"}
    environment = {**os.environ, "SPARK_HOME": str(Path(pyspark.__file__).parent), **given}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=800, check=False)


def pod_arguments() -> str:
    """PYSPARK_SUBMIT_ARGS of a small driver."""
    return " ".join(f"--conf {name}={value}" for name, value in LOCAL.items()) + " pyspark-shell"


def test_a_driver_takes_the_jvm_that_was_started_before_pyspark_was_imported() -> None:
    done = drive(DRIVER, REQUEST.to_json(), submit=pod_arguments())
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["launched by PySpark"] is False
    assert (told["rows"], told["zone"], told["app"]) == (5, "UTC", "warehouse/wh")
    assert told["conf"] == dict(FORCED)
    assert (told["secrets"], "canary-password" in done.stdout + done.stderr) == ([], False)


def test_a_jvm_that_nobody_used_ends_with_its_driver() -> None:
    done = drive(UNUSED, submit=pod_arguments())
    assert done.returncode == 0, done.stderr


def test_a_jvm_that_cannot_start_is_told() -> None:
    done = drive(ENDED, submit="--no-such-option pyspark-shell")
    assert "JvmEnded: the JVM of Spark ended with 1 before it could be used" in done.stderr


def imported(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """How many of the kernels' modules a worker has before it was told to import any, and what it never collects."""
    for batch in batches:
        found, kept = sum(name in sys.modules for name in KERNELS), gc.get_freeze_count()
        columns = [pa.array([number] * len(batch), pa.int64()) for number in (found, kept)]
        yield pa.RecordBatch.from_arrays(columns, ["found", "kept"])


def test_workers_have_the_kernels_before_their_first_task(spark: SparkSession) -> None:
    rows = spark.range(2).mapInArrow(imported, "found long, kept long").collect()
    assert [row.found for row in rows] == [len(KERNELS)] * 2
    assert min(row.kept for row in rows) > 10_000, "each task ends with a look at all that was imported"


def test_workers_that_cannot_be_started_ahead_are_left_to_the_jobs_of_the_run(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as over, caplog.at_level("INFO", "skipstone.runs.workers"):
        over.setattr(SparkContext, "_active_spark_context", None)
        warm_workers(spark)
        wait_for_workers()
    assert "the Python workers were not started ahead" in caplog.text


def test_an_application_tells_how_long_it_took_to_begin(tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text(
        replace(REQUEST, warehouse=replace(REQUEST.warehouse, root=str(tmp_path))).to_json()
    )
    files = {"SKIPSTONE_REQUEST": str(tmp_path / "request.json"), "SKIPSTONE_REPORT": str(tmp_path / "report.json")}
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, APPS / "check.py"],
        env=os.environ | files,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    spent = time.monotonic() - begun
    assert done.returncode == 0, done.stderr
    report = JobReport.from_json((tmp_path / "report.json").read_text())
    assert 0 < report.stages_ms["start"] <= spent * 1000
    assert "run one begins, " in done.stderr
