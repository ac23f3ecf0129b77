"""The log of Spark's events of a run: kept beside the tables for a history server, and deleted when it is old."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
from skipstone.storage.port import Storage
from skipstone_core.contract.places import S3Ref
from skipstone_core.contract.requests import JobRequest
from skipstone_core.contract.spark import SmallWork, SparkRef
from skipstone_core.ids import EVENT_LOG_DIRECTORY, run_id, short_hash

from tests.ports import answering_port
from tests.s3client import S3Client
from tests.s3proxy import Proxy, Refusal, s3_proxy
from tests.s3server import OWNER, S3Server
from tests.spark.jars import s3a_jars
from tests.spark.load_bed import Bed, csv
from tests.storages import ROOM, credentials, little_room, s3_home, s3_ref

ROOT = Path(__file__).parents[2]
APPS = ROOT / "spark_apps" / "skipstone" / "apps"
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
    spark = SparkRef(small_work=SmallWork.SPARK, event_log_seconds=DAY)
    return replace(request, run_id=run_id(request.owner_uid, short_hash("inputs"), 1), spark=spark)


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


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the temporary files of this process are."""
    (tmp_path / "machine").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "machine"))
    return tmp_path / "machine"


def lay_logs(request: JobRequest, count: int) -> list[str]:
    """Logs of other runs that are as many days old, the oldest first; their names."""
    folder = Path(request.warehouse.root) / EVENT_LOG_DIRECTORY
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{run_id(request.owner_uid, short_hash('others'), count - days)}.zstd" for days in range(count)]
    for days, name in zip(range(count + 1, 1, -1), names, strict=True):
        (folder / name).write_bytes(b"events")
        # The time of the last change of status stays that of now, as after a chown
        os.utime(folder / name, (time.time() - days * DAY,) * 2)
    return names


def test_a_log_is_kept_and_old_ones_are_deleted_now_and_then(request_: JobRequest, machine: Path) -> None:
    folder = written(request_, "local-1.zstd.inprogress")
    names = lay_logs(request_, 3)
    keep_event_log(request_, chance=lambda: 0.9)
    assert not folder.exists()
    own = f"{request_.run_id}.zstd.inprogress"
    assert {path.name: path.read_bytes() for path in kept(request_)} == dict.fromkeys([own, *names], b"events")
    keep_event_log(request_, chance=lambda: 0.0)
    assert [path.name for path in kept(request_)] == [own]


def test_what_no_run_of_ours_wrote_stays(request_: JobRequest) -> None:
    (name, *_) = lay_logs(request_, 1)
    folder = kept(request_)[0].parent
    others = ["README.md", "app-20260101000000-0001.zstd", "local-1700000000000.zstd", name.partition(".")[0]]
    others += [f"mine/{name}", f"old-{name}", "eventlog_v2_local-1/events_1_local-1.zstd", f"{name} (copy)"]
    ours = [name, f".{name}", f".{name}.0123456789abcdef", f"{name}.inprogress"]
    for one in (*others, *ours):
        (folder / one).parent.mkdir(exist_ok=True)
        (folder / one).write_bytes(b"x")
        os.utime(folder / one, (1, 1))
    keep_event_log(request_, chance=lambda: 0.0)
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == set(others)


def test_the_oldest_of_many_old_logs_are_deleted_first(request_: JobRequest) -> None:
    names = lay_logs(request_, 130)
    keep_event_log(request_, chance=lambda: 0.0)
    assert {path.name for path in kept(request_)} == set(names[100:])
    keep_event_log(request_, chance=lambda: 0.0)
    assert kept(request_) == []


def test_old_logs_are_deleted_when_there_is_no_room_for_another(
    request_: JobRequest, machine: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lay_logs(request_, 3)
    written(request_, "local-1.zstd", bytes(3 * ROOM))
    with little_room():
        keep_event_log(request_, chance=lambda: 0.0)
    assert "the log of Spark's events is not kept" in caplog.text
    assert kept(request_) == []


@dataclass(frozen=True)
class Line:
    """A run whose Warehouse is a bucket behind ``proxy``."""

    request: JobRequest
    storage: Storage
    proxy: Proxy


@pytest.fixture
def line(request_: JobRequest, bucket: S3Client, s3: S3Server, machine: Path) -> Iterator[Line]:
    with credentials(OWNER), s3_proxy(s3.endpoint) as proxy:
        place = replace(request_.warehouse, root="", s3=replace(s3_ref(bucket), endpoint=proxy.endpoint))
        yield Line(replace(request_, warehouse=place), s3_home(bucket).storage, proxy)


def test_a_log_that_cannot_be_deleted_keeps_no_other_one(line: Line, caplog: pytest.LogCaptureFixture) -> None:
    names = [f"{run_id(line.request.owner_uid, short_hash('others'), number)}.zstd" for number in range(1, 6)]
    for name in names:
        line.storage.keep_content(f"{EVENT_LOG_DIRECTORY}/{name}", b"events")
    is_locked = lambda kind, path: kind == "DELETE" and path.endswith((names[0], names[3]))  # noqa: E731
    line.proxy.choose = lambda kind, path: Refusal.DENIED if is_locked(kind, path) else None
    time.sleep(1.1)  # of puts, a bucket tells the second
    written(line.request, "local-1.zstd")
    keep_event_log(replace(line.request, spark=SparkRef(event_log_seconds=1)), chance=lambda: 0.0)
    left = {entry.path.rpartition("/")[2] for entry in line.storage.list(EVENT_LOG_DIRECTORY)}
    assert left == {names[0], names[3], f"{line.request.run_id}.zstd"}
    (warning,) = caplog.messages
    assert warning.startswith("2 old logs of Spark's events cannot be deleted: ")
    assert "AccessDenied" in warning


def test_a_storage_that_hangs_holds_no_run(line: Line, caplog: pytest.LogCaptureFixture) -> None:
    line.proxy.delay_seconds = START_SECONDS
    written(line.request, "local-1.zstd")
    begin = time.monotonic()
    keep_event_log(line.request, chance=lambda: 0.0, most_seconds=0.5)
    assert time.monotonic() - begin < START_SECONDS / 2
    assert "the storage takes longer than 0.5 s" in caplog.text


def test_a_storage_that_hangs_keeps_no_process(line: Line, tmp_path: Path) -> None:
    line.proxy.delay_seconds = START_SECONDS
    written(line.request, "local-1.zstd")
    (tmp_path / "request.json").write_text(line.request.to_json())
    code = (
        "import sys\n"
        "from skipstone.runs.reporting.eventlogs import keep_event_log\n"
        "from skipstone_core.contract.requests import JobRequest\n"
        "keep_event_log(JobRequest.from_json(open(sys.argv[1]).read()), chance=lambda: 0.0, most_seconds=0.5)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "request.json")]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "machine"), "PYTHONPATH": os.pathsep.join(sys.path)}
    # Less than the three minutes for which a request is tried again
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    assert "the storage takes longer than 0.5 s" in done.stderr


def test_a_storage_that_is_away_fails_no_run(
    request_: JobRequest, machine: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written(request_, "local-1.zstd")
    nowhere = replace(request_.warehouse, root="", s3=S3Ref(bucket="none", endpoint="http://127.0.0.1:1"))
    keep_event_log(replace(request_, warehouse=nowhere), chance=lambda: 0.0)
    assert "the log of Spark's events is not kept" in caplog.text
    assert "old logs of Spark's events are not deleted" in caplog.text
