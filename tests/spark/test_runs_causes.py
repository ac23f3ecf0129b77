"""What a run lacked is told by its own reason: memory, room on a disk, its JVM; every cause is a real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession
from skipstone.runs.main import run_app
from skipstone.runs.reporting.report import Reporter
from skipstone.session import LOCAL
from skipstone.sources.failures import readable
from skipstone.sources.listing import SourceListing
from skipstone.storage.volume import Volume
from skipstone_core.contract.reports import EXIT_UNAVAILABLE, JobReport, RunOutcome
from skipstone_core.contract.requests import CatalogRef, CatalogType, JobRequest, RunKind, WarehouseRef
from skipstone_core.reasons import Reason

REQUEST = JobRequest(
    kind=RunKind.CHECK,
    run_id="one",
    attempt=1,
    warehouse=WarehouseRef(name="wh", root="/nowhere", catalog=CatalogRef(type=CatalogType.SQL)),
    owner_kind="Warehouse",
    owner_name="wh",
    owner_uid="1",
)
#: A driver as a pod starts it. Its run then takes more memory than its JVM has, or loses its JVM: while it asks it
#: for rows, before it can ask for an error that it was told of, or where the error says nothing of a JVM.
DRIVER = """
import os, signal, sys
from skipstone import jvm
jvm.start_jvm()
from py4j.protocol import Py4JJavaError
from skipstone.runs.main import run_app
from skipstone.session import spark_session
from skipstone_core.contract.requests import RunKind

errors = [AttributeError("'NoneType' object has no attribute '_jvm'")]

def run(request, reporter):
    spark = spark_session(request)
    if sys.argv[1] == "killed":
        try:
            spark._jvm.java.lang.Class.forName("x")
        except Py4JJavaError as error:
            errors.append(error)
        os.kill(jvm._started.process.pid, signal.SIGKILL)
    return spark.range(1).selectExpr("length(repeat(cast(id as string), 1500000000))").collect()

def fail(request, reporter):
    raise errors.pop()

codes = {run_app(RunKind.CHECK, run)}
for name in sys.argv[2:]:
    codes.add(run_app(RunKind.CHECK, fail, os.environ | {"SKIPSTONE_REPORT": name}))
sys.exit(max(codes))
"""
FULL = Path("/dev/full")


def files_of(folder: Path) -> dict[str, str]:
    """The environment by which an application finds its request and leaves its report."""
    (folder / "request.json").write_text(REQUEST.to_json())
    return {"SKIPSTONE_REQUEST": str(folder / "request.json"), "SKIPSTONE_REPORT": str(folder / "report.json")}


def told_by(report_file: Path, code: int) -> JobReport:
    """The report of an application that may be tried again."""
    report = JobReport.from_json(report_file.read_text())
    assert (code, report.outcome) == (EXIT_UNAVAILABLE, RunOutcome.UNKNOWN), report
    assert "\n" not in report.message
    return report


def run_driver(folder: Path, *arguments: str) -> int:
    """The exit code of a driver with a small JVM."""
    settings = " ".join(f"--conf {name}={value}" for name, value in LOCAL.items())
    submit = f"--driver-memory 512m {settings} pyspark-shell"
    environment = {**os.environ, **files_of(folder), "PYSPARK_SUBMIT_ARGS": submit}
    environment["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    with (folder / "log").open("wb") as log:
        command = [sys.executable, "-c", DRIVER, *arguments]
        return subprocess.run(command, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False).returncode


def test_a_jvm_whose_memory_was_too_small_for_a_task_is_out_of_memory(tmp_path: Path) -> None:
    report = told_by(tmp_path / "report.json", run_driver(tmp_path, "full"))
    assert report.reason is Reason.OUT_OF_MEMORY
    assert "the driver ran out of memory" in report.message
    assert report.message.endswith("raise spec.spark.driver.memory of the Warehouse")


def test_a_jvm_that_was_killed_is_lost_whatever_error_tells_it(tmp_path: Path) -> None:
    later = [str(tmp_path / name) for name in ("asked-too-late.json", "other-words.json")]
    code = run_driver(tmp_path, "killed", *later)
    for name in ("report.json", *later):
        report = told_by(tmp_path / name, code)
        assert report.reason is Reason.JVM_LOST, report
        assert "the driver's JVM was killed" in report.message


def write_to_full_disk(_: SparkSession) -> None:
    FULL.write_bytes(b"x")


def write_to_full_disk_in_a_task(spark: SparkSession) -> None:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        FULL.write_bytes(b"x")
        yield from batches

    spark.range(1).mapInArrow(write, "id long").collect()


def write_to_full_disk_in_the_jvm(spark: SparkSession) -> None:
    assert spark._jvm is not None
    spark._jvm.java.io.FileOutputStream(str(FULL)).write(1)


def take_memory_in_a_task(spark: SparkSession) -> None:
    def take(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pa.allocate_buffer(1 << 60)
        yield from batches

    spark.range(1).mapInArrow(take, "id long").collect()


def take_memory(_: SparkSession) -> None:
    pa.allocate_buffer(1 << 60)


def take_memory_in_the_jvm(spark: SparkSession) -> None:
    assert spark._jvm is not None
    spark._jvm.java.nio.ByteBuffer.allocateDirect(2_147_483_647)


FAULTS = [
    (write_to_full_disk, Reason.DISK_FULL, "(No space left on device): free some or enlarge the volume"),
    (write_to_full_disk_in_a_task, Reason.DISK_FULL, "there is no room left"),
    (write_to_full_disk_in_the_jvm, Reason.DISK_FULL, "there is no room left"),
    (take_memory, Reason.OUT_OF_MEMORY, "raise spark.driver.memoryOverhead in spec.spark.conf"),
    (take_memory_in_a_task, Reason.OUT_OF_MEMORY, "raise spark.driver.memoryOverhead in spec.spark.conf"),
    (take_memory_in_the_jvm, Reason.OUT_OF_MEMORY, "the driver ran out of memory"),
]


@pytest.mark.parametrize(("fault", "reason", "said"), FAULTS, ids=[fault[0].__name__ for fault in FAULTS])
def test_what_ran_out_is_told_wherever_it_ran_out(
    spark: SparkSession, tmp_path: Path, fault: Callable[[SparkSession], None], reason: Reason, said: str
) -> None:
    def run(request: JobRequest, reporter: Reporter) -> JobReport:
        with readable(SourceListing(storage=Volume("/nowhere"), files=())):
            fault(spark)
        raise AssertionError("the fault did not happen")

    report = told_by(tmp_path / "report.json", run_app(RunKind.CHECK, run, files_of(tmp_path)))
    assert report.reason is reason
    assert said in report.message
    assert json.loads((tmp_path / "report.json").read_text())["reason"] == reason.value
