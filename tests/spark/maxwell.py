"""Maxwell on a MariaDB, which tells the changes of its tables a line each.

Used by the soak of Maxwell. It is fetched once and kept under ``.cache/jars``: the newest that Maven has, with those
libraries that it needs to read a log and to write text.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

from tests.spark.jars import jar_paths
from tests.spark.mariadb import PASSWORD, USER, MariaDb

VERSION = "1.22.6"
JARS = (
    f"com.zendesk:maxwell:{VERSION}",
    "com.github.shyiko:mysql-binlog-connector-java:0.20.0",
    "mysql:mysql-connector-java:8.0.17",
    "net.snaq:dbpool:7.0-jdk7",
    "org.antlr:antlr4-runtime:4.5",
    "net.sf.jopt-simple:jopt-simple:4.9",
    "com.vividsolutions:jts:1.13",
    "com.google.guava:guava:23.6-jre",
    "org.apache.commons:commons-lang3:3.4",
    "commons-codec:commons-codec:1.5",
    "commons-logging:commons-logging:1.2",
    "org.apache.httpcomponents:httpclient:4.5.13",
    "org.apache.httpcomponents:httpcore:4.4.15",
    "com.fasterxml.jackson.core:jackson-annotations:2.9.9",
    "com.fasterxml.jackson.core:jackson-core:2.9.9",
    "com.fasterxml.jackson.core:jackson-databind:2.9.9.2",
    "org.apache.logging.log4j:log4j-api:2.17.2",
    "org.apache.logging.log4j:log4j-core:2.17.2",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.17.2",
    "org.slf4j:slf4j-api:1.7.36",
    "org.slf4j:jul-to-slf4j:1.7.36",
    "com.djdch.log4j:log4j-staticshutdown:1.1.0",
    "io.dropwizard.metrics:metrics-core:3.1.0",
    "io.dropwizard.metrics:metrics-healthchecks:3.1.0",
    "io.dropwizard.metrics:metrics-servlets:3.1.0",
    "org.coursera:metrics-datadog:1.1.10",
    "io.prometheus:simpleclient:0.5.0",
    "io.prometheus:simpleclient_dropwizard:0.5.0",
    "io.prometheus:simpleclient_servlet:0.5.0",
    "com.amazonaws:aws-java-sdk-core:1.11.68",
)
STUB = Path(__file__).parent / "java" / "jdk" / "nashorn" / "api" / "scripting" / "ScriptObjectMirror.java"
SECONDS = 3600


class Maxwell:
    """A process that tells changes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """It is not yet connected."""
        self._process = process
        self._log: list[str] = []
        self._connected = Event()
        self._listener = Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._log.append(line)
            if "Binlog connected" in line:
                self._connected.set()
        self._connected.set()

    def wait_connected(self) -> None:
        """Return when it reads the log, or has ended."""
        assert self._connected.wait(SECONDS)

    def wait_until(self, is_last: Callable[[Mapping[str, Any]], bool]) -> list[str]:
        """The lines from here to the first whose message is the last. Raises RuntimeError when there is none."""
        assert self._process.stdout is not None
        lines = []
        for line in self._process.stdout:
            if not line.startswith("{"):
                continue
            lines.append(line)
            if is_last(json.loads(line)):
                return lines
        raise RuntimeError("".join(self._log[-20:]))

    def kill(self) -> list[str]:
        """End the process, wherever it is, and tell the lines that it has written: it may have noted them as such."""
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._listener.join()
        return [line for line in self._process.stdout if line.startswith("{") and line.endswith("\n")]


@contextmanager
def maxwell(folder: Path, server: MariaDb, *settings: str) -> Iterator[Maxwell]:
    """Read the log of ``server`` from where the last one noted, or from its end. ``settings``: further ones."""
    subprocess.run(["javac", "-d", folder / "stub", STUB], check=True, timeout=SECONDS)
    path = ":".join(map(str, [folder / "stub", *jar_paths("maxwell", JARS)]))
    command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-Duser.timezone=UTC", "-Dfile.encoding=UTF-8", "-cp", path]
    command += ["com.zendesk.maxwell.Maxwell", "--host=127.0.0.1", f"--port={server.port}", f"--user={USER}"]
    command += [f"--password={PASSWORD}", "--producer=stdout", *settings]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder) as process:
        running = Maxwell(process)
        try:
            yield running
        finally:
            running.kill()
