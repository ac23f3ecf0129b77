"""Starts the JVM of a driver before PySpark is imported, so that it comes up while Python still imports.

Called first of all by the scripts of runs that will need Spark, and by ``session`` for the connection. PySpark has no
call for it, but takes a JVM that somebody else started (PYSPARK_GATEWAY_PORT), as spark-submit itself starts Python
programs. Only the standard library may be imported here.
"""

from __future__ import annotations

import os
import shlex
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

#: ORC readers turn wall-clock times by the zone of the JVM; UTC turns them by nothing.
JVM_OPTIONS = "-Duser.timezone=UTC"
SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
PORT, SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
#: The JVM writes its port and its secret into the file that this variable names.
_CONNECTION = "_PYSPARK_DRIVER_CONN_INFO_PATH"
#: Neither the JVM nor its Python workers open the catalog, and what they write to the log nobody masks.
_CATALOG_VARIABLES = "SKIPSTONE_CATALOG_"
_POLL_SECONDS = 0.02
#: How long a JVM that does not answer may take to end, so that its exit code is known: it removes its files first.
_END_SECONDS = 30.0
_started: StartedJvm | None = None


class JvmEnded(RuntimeError):
    """The JVM ended before it could be used."""

    def __init__(self, code: int) -> None:
        """``code``: of its exit, negative for a signal."""
        super().__init__(f"the JVM of Spark ended with {code} before it could be used")
        self.code = code


@dataclass(frozen=True)
class StartedJvm:
    """A JVM on its way; it ends when the pipe to it is closed, which this process's end does."""

    process: subprocess.Popen[bytes]
    connection: Path

    def connect(self) -> Mapping[str, str]:
        """Wait for the JVM; the variables by which PySpark finds it. Raises JvmEnded."""
        while not self.connection.exists():
            if self.process.poll() is not None:
                raise JvmEnded(self.process.returncode)
            time.sleep(_POLL_SECONDS)
        told = self.connection.read_bytes()
        port, length = struct.unpack_from("!ii", told)
        self.connection.unlink()
        self.connection.parent.rmdir()
        return {PORT: str(port), SECRET: told[8 : 8 + length].decode()}


def event_log_folder(run_id: str) -> Path:
    """Where a session writes the log of its events, on this machine; it is there when a session was to keep one."""
    return Path(tempfile.gettempdir()) / f"skipstone-events-{run_id}"


def start_jvm() -> None:
    """Start the JVM of this pod's session. Does nothing outside of pods: there nobody said what it should be like."""
    global _started
    arguments, home = os.environ.get(SUBMIT_ARGUMENTS), os.environ.get("SPARK_HOME")
    if _started is not None or PORT in os.environ or not arguments or not home:
        return
    connection = Path(tempfile.mkdtemp(prefix="jvm-")) / "connection"
    options = ["--conf", f"spark.driver.extraJavaOptions={JVM_OPTIONS}"]
    command = [f"{home}/bin/spark-submit", *options, *shlex.split(arguments)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_CATALOG_VARIABLES)}
    environment = {**kept, _CONNECTION: str(connection), "SPARK_CONNECT_MODE": "0"}
    _started = StartedJvm(subprocess.Popen(command, stdin=subprocess.PIPE, env=environment), connection)


def use_jvm() -> None:
    """Let PySpark take the JVM that was started, if one was; waits for it. Raises JvmEnded."""
    if _started is not None and PORT not in os.environ:
        os.environ.update(_started.connect())


def jvm_exit_code(launched: subprocess.Popen[bytes] | None, seconds: float = _END_SECONDS) -> int | None:
    """How the JVM of this process ended; None while it runs or when nobody here started it.

    ``launched``: the one that PySpark started, if it did. ``seconds``: how long to wait for its end.
    """
    process = _started.process if _started is not None else launched
    try:
        return None if process is None else int(process.wait(seconds))
    except subprocess.TimeoutExpired:
        return None
