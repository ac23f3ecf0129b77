"""Debezium's embedded engine on a PostgreSQL, which writes the changes of its tables into files.

Used by the soak of Debezium. The engine is fetched once and kept under ``.cache/jars``.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

from tests.spark.jars import jar_paths, resolved_jars
from tests.spark.postgres import PASSWORD, USER

VERSION = "3.6.1.Final"
JARS = (
    f"io.debezium:debezium-embedded:{VERSION}",
    f"io.debezium:debezium-connector-postgres:{VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",
)
#: What turns messages into Avro: the classes of Apicurio's converter, which Debezium's images have.
AVRO_JARS = (
    "io.apicurio:apicurio-registry-utils-converter:2.6.13.Final",
    "org.apache.avro:avro:1.12.0",
    "org.apache.commons:commons-compress:1.26.2",
    "commons-io:commons-io:2.16.1",
)
PROGRAM = Path(__file__).parent / "java" / "DebeziumFiles.java"
SECONDS = 3600
#: As docs/guide/feeds.md says for PostgreSQL.
FLAT_FIELDS = (
    "op,source.connector,source.name,source.db,source.table,source.snapshot,source.ts_ms,"
    "source.schema,source.lsn,source.sequence"
)


@dataclass(frozen=True)
class Engine:
    """One connector of some tables with its own slot. ``settings``: besides what all have; ``lines``: of its files.

    ``format``: Json or Avro. ``beside``: the table whose folder has heartbeats and boundaries of transactions too.
    """

    name: str
    tables: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    lines: int = 100
    format: str = "Json"
    beside: str = ""

    def topic(self, table: str) -> str:
        """The topic, and folder, of ``table``."""
        return f"{self.name}.public.{table}"

    def files(self, folder: Path, mark: int) -> list[str]:
        """The files between the mark before ``mark`` and it, as paths in ``folder``, in the order they were closed."""
        names = (folder / f"{self.name}.closed").read_text().splitlines()
        end = names.index(f"#{mark}")
        begin = max((at for at, name in enumerate(names[:end]) if name.startswith("#")), default=-1)
        return names[begin + 1 : end]

    def has_reached(self, folder: Path, mark: int) -> bool:
        """Whether all files before ``mark`` are there."""
        closed = folder / f"{self.name}.closed"
        return closed.exists() and f"#{mark}" in closed.read_text().splitlines()


class Running:
    """A process with engines."""

    def __init__(self, process: subprocess.Popen[str], engines: int, log: Path) -> None:
        """``log``: what it says that is wrong."""
        self._process = process
        self._log = log
        self._started = Thread(target=self._listen, args=(engines,))
        self._started.start()

    def _listen(self, engines: int) -> None:
        assert self._process.stdout is not None
        for _ in range(engines):
            self._process.stdout.readline()

    @property
    def ended(self) -> bool:
        """Whether the process is over."""
        return self._process.poll() is not None

    @property
    def started(self) -> bool:
        """Whether each has made its slot, and takes its snapshot; also when the process has ended."""
        return not self._started.is_alive()

    def wait_done(self) -> None:
        """Return when each has seen the end of the history and has written its files."""
        assert self._process.wait(SECONDS) == 0, self._log.read_text()

    def kill(self) -> None:
        """End the process, wherever it is."""
        self._process.kill()
        self._started.join()


@contextmanager
def engines(folder: Path, port: int, until: str, all_of: Sequence[Engine], last: int = 1) -> Iterator[Running]:
    """Run ``all_of`` until the table ``until`` has a row with the id ``last``; files go below ``folder``, by topic.

    Rows with smaller ids are marks: see ``Engine.files``.
    """
    jars = [*resolved_jars("debezium", JARS), *jar_paths("debezium-avro", AVRO_JARS)]
    paths = []
    for engine in all_of:
        paths.append(folder / f"{engine.name}.properties")
        settings = _settings(engine, folder, port, until) | {"files.last": str(last)}
        paths[-1].write_text("".join(f"{name}={value}\n" for name, value in {**settings, **engine.settings}.items()))
    log = folder / "engines.log"
    command = ["java", "-Xmx1g", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    command += ["-cp", ":".join(map(str, jars)), str(PROGRAM), *map(str, paths)]
    with log.open("a") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder
        )
    with process:
        running = Running(process, len(all_of), log)
        try:
            yield running
        finally:
            running.kill()


def _settings(engine: Engine, folder: Path, port: int, until: str) -> dict[str, str]:
    return {
        "name": engine.name,
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "topic.prefix": engine.name,
        "database.hostname": "127.0.0.1",
        "database.port": str(port),
        "database.user": USER,
        "database.password": PASSWORD,
        "database.dbname": "postgres",
        "plugin.name": "pgoutput",
        "slot.name": f"slot_{engine.name}",
        "publication.name": f"publication_{engine.name}",
        "publication.autocreate.mode": "filtered",
        "table.include.list": ",".join(f"public.{table}" for table in (*engine.tables, until)),
        "snapshot.mode": "initial",
        "skipped.operations": "none",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": str(folder / f"{engine.name}.offsets"),
        "offset.flush.interval.ms": "1000",
        "files.folder": str(folder),
        "files.lines": str(engine.lines),
        "files.until": engine.topic(until),
        "files.format": engine.format,
        "files.beside": engine.topic(engine.beside) if engine.beside else "",
    }
