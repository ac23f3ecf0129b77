"""Which writers are run, in which versions, and how each is started.

A writer is a small program in ``programs`` that makes tables below the folder that it is given and prints a line of
JSON for each: its case and the metadata file, or why the writer refused. Every one runs in an environment of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.spark.jars import resolved_jars

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"
ENVIRONMENTS = ROOT / ".cache" / "writers"
PYICEBERG = "pyiceberg[sql-sqlite,pyarrow,pyiceberg-core]==0.12.0"


@dataclass(frozen=True, kw_only=True)
class Writer:
    """One engine or library that writes tables.

    ``requirements``: packages of its environment, the first names its version; empty: it runs in the project's own.
    ``needs_rest``: its program is told the address of a REST catalog.
    """

    name: str
    title: str
    requirements: Sequence[str] = ()
    needs_rest: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def program(self) -> Path:
        """What writes its tables."""
        return PROGRAMS / f"{self.name}_writer.py"

    def command(self, root: Path, rest: str) -> list[str]:
        """What is run to have the tables below ``root``."""
        return [str(self._python()), str(self.program), str(root), *([rest] if self.needs_rest else [])]

    def _python(self) -> Path:
        if not self.requirements:
            return Path(sys.executable)
        place = ENVIRONMENTS / self.name
        listed = place / "requirements"
        if not listed.exists() or listed.read_text().split("\n")[:-1] != list(self.requirements):
            _install(place, self.requirements)
            listed.write_text("".join(f"{line}\n" for line in self.requirements))
        return place / "bin" / "python"


@dataclass(frozen=True, kw_only=True)
class GoWriter(Writer):
    """A writer in Go, whose module pins its version."""

    def command(self, root: Path, rest: str) -> list[str]:
        """What is run to have the tables below ``root``."""
        program = ENVIRONMENTS / self.name / self.name
        program.parent.mkdir(parents=True, exist_ok=True)
        build = ["nice", "-n", "10", "go", "build", "-C", str(PROGRAMS / self.name), "-o", str(program), "."]
        subprocess.run(build, check=True)
        return [str(program), str(root)]


@dataclass(frozen=True, kw_only=True)
class JavaWriter(Writer):
    """A writer in Java, one source file. ``jars``: group, artifact and version of each."""

    jars: tuple[str, ...]
    source: str

    def command(self, root: Path, rest: str) -> list[str]:
        """What is run to have the tables below ``root``."""
        jars = ":".join(str(path) for path in resolved_jars(self.name, self.jars))
        program, classes = PROGRAMS / self.name / self.source, ENVIRONMENTS / self.name
        # tasks load the classes of the program by name, and do not find those of a program that is run from its source
        subprocess.run(["javac", "-proc:none", "-d", str(classes), "-cp", jars, str(program)], check=True)
        flags = ["-Xmx1g", "-XX:+UseSerialGC", *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED)]
        return ["java", *flags, "-cp", f"{classes}:{jars}", program.stem, str(root)]


#: Packages that Flink reaches into.
_OPENED = ("java.lang", "java.nio", "java.util", "java.util.concurrent", "java.net", "java.time")
FLINK, HADOOP = "2.1.1", "3.4.1"


def _install(place: Path, requirements: Sequence[str]) -> None:
    uv = ["nice", "-n", "10", str(ROOT / ".cache" / "uv" / "bin" / "uv")]
    python = str(place / "bin" / "python")
    subprocess.run([*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(place)], check=True)
    settings = {**os.environ, "UV_HTTP_TIMEOUT": "300"}
    subprocess.run([*uv, "pip", "install", "--quiet", "--python", python, *requirements], check=True, env=settings)


WRITERS = (
    Writer(
        name="duckdb",
        title="DuckDB 1.5.5",
        requirements=(
            "duckdb==1.5.5",
            "duckdb-extension-iceberg==1.5.5",
            "duckdb-extension-avro==1.5.5",
            "duckdb-extension-httpfs==1.5.5",
            "pyarrow==25.0.1",
        ),
        needs_rest=True,
    ),
    Writer(
        name="spark",
        title="Spark 4.1.4 with Iceberg 1.12.0",
        environment={"PYTHONPATH": str(ROOT)},
    ),
    Writer(name="polars", title="Polars 2.1.0", requirements=("polars==2.1.0", PYICEBERG)),
    Writer(
        name="daft",
        title="Daft 0.7.26",
        requirements=("daft[iceberg]==0.7.26", "pyiceberg[sql-sqlite,pyarrow,pyiceberg-core]==0.11.1"),
    ),
    Writer(name="dlt", title="dlt 1.31.0", requirements=("dlt[filesystem,parquet]==1.31.0", PYICEBERG)),
    Writer(name="chdb", title="ClickHouse 26.9.2 (chdb 4.4.0)", requirements=("chdb==4.4.0",)),
    Writer(name="sail", title="Sail 0.7.2", requirements=("pysail==0.7.2", "pyspark-client==4.2.0")),
    GoWriter(name="icebergo", title="iceberg-go 0.7.0"),
    JavaWriter(
        name="flink",
        title="Flink 2.1.1 with Iceberg 1.11.0",
        source="FlinkWriter.java",
        jars=(
            f"org.apache.flink:flink-clients:{FLINK}",
            f"org.apache.flink:flink-connector-base:{FLINK}",
            f"org.apache.flink:flink-connector-datagen:{FLINK}",
            f"org.apache.flink:flink-table-api-java-bridge:{FLINK}",
            f"org.apache.flink:flink-table-planner-loader:{FLINK}",
            f"org.apache.flink:flink-table-runtime:{FLINK}",
            "org.apache.iceberg:iceberg-flink-runtime-2.1:1.11.0",
            "org.xerial:sqlite-jdbc:3.50.3.0",
            f"org.apache.hadoop:hadoop-client-api:{HADOOP}",
            f"org.apache.hadoop:hadoop-client-runtime:{HADOOP}",
        ),
    ),
)
