"""Who may talk to a driver: two real JVMs, one with the run's secret and one without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyspark
import pytest
from skipstone.session import FORCED, LOCAL

#: A driver as a pod has it, except that executors would come by themselves: it tells where it listens, then waits.
DRIVER = """
import json, sys
from skipstone.session import spark_session
from skipstone_core.contract.requests import CatalogRef, CatalogType, JobRequest, RunKind, WarehouseRef
request = JobRequest(
    kind=RunKind.CHECK, run_id="one", attempt=1, owner_kind="Warehouse", owner_name="wh", owner_uid="1",
    warehouse=WarehouseRef(name="wh", root="/nowhere", catalog=CatalogRef(type=CatalogType.SQL)),
)
spark = spark_session(request)
jvm = spark.sparkContext._jvm
environment = jvm.org.apache.spark.SparkEnv.get()
address = environment.rpcEnv().address()
secret = environment.securityManager().getSecretKey()
told = {"host": address.host(), "port": address.port(), "secret": secret, "rows": spark.range(7).count()}
print(json.dumps(told), flush=True)
sys.stdin.readline()
"""
FETCHER = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
SPARK = Path(pyspark.__file__).parent
LOCAL_ADDRESS = "0100007F"


@pytest.fixture(scope="module")
def driver() -> Iterator[dict[str, str]]:
    """A running driver: its address and its secret."""
    options = " ".join(f"--conf {name}={value}" for name, value in LOCAL.items())
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": f"{options} pyspark-shell", "SPARK_HOME": str(SPARK)}
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield {**json.loads(process.stdout.readline()), "pid": str(process.pid)}
        process.stdin.write("\n")


def ask_for_work(driver: dict[str, str], settings: dict[str, str], secret: str | None) -> str:
    """Start a second JVM that asks the driver for its settings, as every executor does first; what it said."""
    environment = {name: value for name, value in os.environ.items() if name != "_SPARK_AUTH_SECRET"}
    if secret is not None:
        environment["_SPARK_AUTH_SECRET"] = secret
    options = [f"-D{name}={value}" for name, value in settings.items()]
    url = f"spark://CoarseGrainedScheduler@{driver['host']}:{driver['port']}"
    arguments = ["--driver-url", url, "--executor-id", "9", "--hostname", "127.0.0.1", "--bind-address", "127.0.0.1"]
    opens = [
        f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.nio", "sun.nio.ch", "java.lang", "java.util")
    ]
    command = ["java", "-Xmx256m", *opens, *options, "-cp", f"{SPARK}/jars/*", FETCHER, *arguments]
    more = ["--cores", "1", "--app-id", "one", "--resourceProfileId", "0"]
    done = subprocess.run([*command, *more], env=environment, capture_output=True, text=True, timeout=800, check=False)
    return done.stdout + done.stderr


def test_a_stranger_without_the_secret_is_refused(driver: dict[str, str]) -> None:
    quick = {"spark.network.timeout": "20s", "spark.rpc.askTimeout": "20s"}
    said = ask_for_work(driver, quick, None)
    assert "Exception" in said
    assert "Cannot find endpoint" not in said, "the driver has looked for the endpoint: it let the stranger in"


def test_who_has_the_secret_is_let_in(driver: dict[str, str]) -> None:
    known = {name: value for name, value in FORCED.items() if name.startswith(("spark.auth", "spark.network"))}
    said = ask_for_work(driver, known, driver["secret"])
    # In local mode nobody gives tasks to executors, so that there is nothing to ask once one is let in.
    assert "Cannot find endpoint" in said


def test_who_has_another_secret_is_refused(driver: dict[str, str]) -> None:
    known = {name: value for name, value in FORCED.items() if name.startswith(("spark.auth", "spark.network"))}
    said = ask_for_work(driver, known, "c2VjcmV0")
    assert "Exception" in said
    assert "Cannot find endpoint" not in said


def test_a_driver_listens_on_the_loopback_address_only(driver: dict[str, str]) -> None:
    inodes = {inode for process in [driver["pid"], *children(driver["pid"])] for inode in sockets_of(process)}
    listening = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()
    ]
    own = [entry[1] for entry in listening if entry[3] == "0A" and entry[9] in inodes]
    assert own
    assert [
        address for address in own if not address.startswith((LOCAL_ADDRESS, "0" * 16 + "FFFF0000" + LOCAL_ADDRESS))
    ] == []


def sockets_of(pid: str) -> Iterator[str]:
    """The inodes of a process's sockets. Its files may be closed, and it may end, while somebody looks."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                if (link := str(path.readlink())).startswith("socket:["):
                    yield link[8:-1]


def children(pid: str) -> list[str]:
    """All processes below ``pid``. Threads and processes that end while somebody looks count for nothing."""
    found = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                for child in (task / "children").read_text().split():
                    found += [child, *children(child)]
    return found
