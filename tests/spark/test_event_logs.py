"""The log of Spark's events of a run: kept beside the tables for a history server, and deleted when it is old."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
import requests
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from skipstone.jvm import event_log_folder
from skipstone.runs.reporting.eventlogs import keep_event_log
from skipstone_core.contract.requests import JobRequest, S3Ref
from skipstone_core.contract.spark import SmallWork, SparkRef
from skipstone_core.ids import EVENT_LOG_DIRECTORY

from tests.ports import answering_port
from tests.s3client import S3Client
from tests.s3server import OWNER
from tests.spark.jars import s3a_jars
from tests.spark.load_bed import Bed, csv
from tests.storages import credentials, s3_home

ROOT = Path(__file__).parents[2]
APPS = ROOT / "spark_apps"
EXAMPLE = ROOT / "examples" / "history-server.yaml"
SPARK = Path(pyspark.__file__).parent
START_SECONDS = 300
DAY = 86_400


@pytest.fixture
def request_(tmp_path: Path) -> JobRequest:
    """A load that Spark does and whose log is kept for a day."""
    bed = Bed(tmp_path)
    bed.create(Schema(NestedField(1, "id", LongType())))
    request = bed.request(csv(bed.put("in/1.csv", "id\n1\n2\n")))
    return replace(request, spark=SparkRef(small_work=SmallWork.SPARK, event_log_seconds=DAY))


def kept(request: JobRequest) -> list[Path]:
    return sorted((Path(request.warehouse.root) / EVENT_LOG_DIRECTORY).iterdir())


def drive(request: JobRequest, folder: Path) -> None:
    """The load as the driver of a pod runs it, by the application itself."""
    path, submit = folder / "request.json", "--master local[1] --conf spark.ui.enabled=false pyspark-shell"
    path.write_text(request.to_json())
    environment = {**os.environ, "SPARK_HOME": str(SPARK), "PYSPARK_SUBMIT_ARGS": submit, "TMPDIR": str(folder)}
    secrets = {"SKIPSTONE_CATALOG_PASSWORD": "canary-password", "AWS_SECRET_ACCESS_KEY": "canary-secret"}
    command = [sys.executable, str(APPS / "load.py")]
    done = subprocess.run(
        command,
        env={**environment, **secrets, "SKIPSTONE_REQUEST": str(path)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@contextmanager
def history_server(logs: str, folder: Path, *options: str) -> Iterator[str]:
    """The address of Spark's own, over the logs at the address ``logs``; its files are in ``folder``."""
    settings = {"history.fs.logDirectory": logs, "history.ui.port": "0", "local.dir": str(folder)}
    flags = [*(f"-Dspark.{name}={value}" for name, value in settings.items()), *options]
    command = [
        "java",
        "-Xmx256m",
        "-Djava.net.preferIPv4Stack=true",
        *flags,
        "-cp",
        ":".join([f"{SPARK}/jars/*", *map(str, s3a_jars())]),
        "org.apache.spark.deploy.history.HistoryServer",
    ]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    with (folder / "history.log").open("wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            port = answering_port(
                server,
                lambda port: bool(_applications(f"http://127.0.0.1:{port}")),
                folder / "history.log",
                seconds=START_SECONDS,
            )
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(START_SECONDS)


def _applications(address: str) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = requests.get(f"{address}/api/v1/applications", timeout=30).json()
    except (requests.RequestException, ValueError):
        return []
    return found


def test_a_history_server_shows_the_run_under_the_name_of_its_resource(request_: JobRequest, tmp_path: Path) -> None:
    drive(request_, tmp_path)
    (log,) = kept(request_)
    assert log.name == f"{request_.run_id}.zstd"
    assert list(tmp_path.glob(event_log_folder(request_.run_id).name)) == []
    with history_server(log.parent.as_uri(), tmp_path) as address:
        (application,) = _applications(address)
        jobs = requests.get(f"{address}/api/v1/applications/{application['id']}/jobs", timeout=30).json()
        environment = requests.get(f"{address}/api/v1/applications/{application['id']}/environment", timeout=30).text
    assert application["name"] == "loadjob/job"
    assert [attempt["completed"] for attempt in application["attempts"]] == [True]
    assert {job["status"] for job in jobs} == {"SUCCEEDED"}
    assert "canary" not in environment


def options_for_a_bucket(bucket: S3Client) -> list[str]:
    """What the example's comments add for a server other than Amazon's, with the values of ``bucket``."""
    comments = " ".join(line for line in EXAMPLE.read_text().splitlines() if line.startswith("#"))
    named = dict(re.findall(r"(-Dspark\.hadoop\.[a-z0-9.]+)=([a-z0-9.:/-]+[a-z0-9])", comments))
    own = {"https://s3.example.org": bucket.endpoint, "us-east-1": bucket.region}
    return [f"{name}={own.get(value, value)}" for name, value in named.items()]


def test_a_history_server_reads_a_bucket_with_the_options_that_the_example_names(
    bucket: S3Client, tmp_path: Path
) -> None:
    log, begin = tmp_path / "log.zstd", 1_700_000_000_000
    events = [
        {"Event": "SparkListenerLogStart", "Spark Version": pyspark.__version__},
        {"Event": "SparkListenerApplicationStart", "App Name": "loadjob/job", "App ID": "local-1", "Timestamp": begin}
        | {"User": "skipstone"},
        {"Event": "SparkListenerApplicationEnd", "Timestamp": begin + 1000},
    ]
    with pa.output_stream(str(log), compression="zstd") as file:
        # Spark looks for the beginnings of lines as it writes them, without blanks
        file.write("".join(f"{json.dumps(event, separators=(',', ':'))}\n" for event in events).encode())
    with credentials(OWNER):
        storage = s3_home(bucket).storage
        storage.keep_copy(f"{EVENT_LOG_DIRECTORY}/0a1b2c3d-4e5f6071-1.zstd", log)
        address = storage.address(EVENT_LOG_DIRECTORY)
        with history_server(address, tmp_path, *options_for_a_bucket(bucket)) as server:
            assert [one["name"] for one in _applications(server)] == ["loadjob/job"]


def written(request: JobRequest, name: str, content: bytes = b"events") -> Path:
    """What Spark leaves on the machine of a run."""
    folder = event_log_folder(request.run_id)
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    (folder / f".{name}.crc").write_bytes(b"checksum")
    return folder


def test_old_logs_are_deleted_now_and_then_and_others_stay(
    request_: JobRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "machine"))
    (tmp_path / "machine").mkdir()
    folder = written(request_, "local-1.zstd.inprogress")
    keep_event_log(request_, chance=lambda: 0.9)
    assert not folder.exists()
    (first,) = kept(request_)
    assert (first.name, first.read_bytes()) == (f"{request_.run_id}.zstd.inprogress", b"events")

    later = replace(request_, run_id="later-cafe-1", spark=SparkRef(event_log_seconds=0))
    written(later, "local-1.zstd")
    keep_event_log(later, chance=lambda: 0.9)
    assert len(kept(request_)) == 2
    keep_event_log(request_, chance=lambda: 0.0)  # of a day: nothing is so old
    assert len(kept(request_)) == 2
    keep_event_log(later, chance=lambda: 0.0)
    assert kept(request_) == []


def test_a_storage_that_is_away_fails_no_run(request_: JobRequest, caplog: pytest.LogCaptureFixture) -> None:
    nowhere = replace(request_.warehouse, root="", s3=S3Ref(bucket="none", endpoint="http://127.0.0.1:1"))
    keep_event_log(replace(request_, warehouse=nowhere), chance=lambda: 0.0)
    assert "the log of Spark's events is not kept" in caplog.text
