"""Starts the JVM of a driver before PySpark is imported, so that it comes up while Python still imports.

Called first of all by the scripts of runs that will need Spark, and by ``session`` for the connection. PySpark has no
call for it, but takes a JVM that somebody else started (PYSPARK_GATEWAY_PORT), as spark-submit itself starts Python
programs. Only the standard library may be imported here.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
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
#: The oldest Java that Spark runs on.
_OLDEST_JAVA = 17
_WAY_OUT = (
    f"install Java {_OLDEST_JAVA} or newer (Debian and Ubuntu: apt install default-jre-headless, macOS: brew "
    "install openjdk@17), or set JAVA_HOME to one"
)
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
        answer = self.connection.read_bytes()
        port, length = struct.unpack_from("!ii", answer)
        self.connection.unlink()
        self.connection.parent.rmdir()
        return {PORT: str(port), SECRET: answer[8 : 8 + length].decode()}


def event_log_folder(run_id: str) -> Path:
    """Where a session writes the log of its events, on this machine; it is there when a session was to keep one."""
    return Path(tempfile.gettempdir()) / f"skipstone-events-{run_id}"


def find_java_problem(environment: Mapping[str, str]) -> str | None:
    """Why Spark cannot start its JVM here, in one sentence with a way out; None when nothing speaks against it.

    Looks where Spark looks: in JAVA_HOME, else in PATH. Starts nothing.
    """
    home = environment.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else environment.get("PATH", os.defpath))
    if java is None:
        return f"this run needs Spark, and there is no Java in {home or 'PATH'}: {_WAY_OUT}"
    version = _java_version(Path(java).resolve())
    if version is not None and version < _OLDEST_JAVA:
        return f"this run needs Spark, which does not run on Java {version} ({java}): {_WAY_OUT}"
    return None


def _java_version(java: Path) -> int | None:
    """The number of a release as the file beside ``bin`` tells it: 17 for "17.0.15", 8 for "1.8.0_402"."""
    try:
        text = (java.parents[1] / "release").read_text()
    except (OSError, IndexError):
        return None
    match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    return int(match[1]) if match else None


def start_jvm() -> None:
    """Start the JVM of this pod's session. Does nothing outside of pods: there nobody said what it should be like.

    Nor without Java: the session that needs it says so.
    """
    global _started
    arguments, home = os.environ.get(SUBMIT_ARGUMENTS), os.environ.get("SPARK_HOME")
    if _started is not None or PORT in os.environ or not arguments or not home or find_java_problem(os.environ):
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
