"""Where peers run and lie: an environment for each, its process, and the first state of its tables.

A peer's folder is laid out once and kept; a run begins with a copy of that state, in which data files are links.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from tests.bench.lineitem import DELTA, ROOT
from tests.bench.processes import cpu_seconds
from tests.spark.jars import jar_paths, resolved_jars

PROGRAMS = Path(__file__).parent / "peer_programs"
ENVIRONMENTS = ROOT / ".cache" / "peers"
#: Files that engines never change once they are written.
IMMUTABLE = (".parquet", ".lance", ".hfile", ".puffin", ".avro", ".orc")
COPY_ON_WRITE, MERGE_ON_READ = "copy-on-write", "merge-on-read"


@dataclass(frozen=True, kw_only=True)
class Jars:
    """Java libraries of an environment. ``whole``: with all that they need at run time."""

    name: str
    coordinates: tuple[str, ...]
    whole: bool = False

    def paths(self) -> str:
        """The files, separated by commas."""
        return ",".join(map(str, (resolved_jars if self.whole else jar_paths)(self.name, self.coordinates)))


@dataclass(frozen=True, kw_only=True)
class Mode:
    """One way of an engine to keep a table. ``like``: Skipstone's way that it is compared with."""

    name: str
    title: str
    like: str = MERGE_ON_READ


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One engine. ``requirements``: packages of its environment; none: the project's own.

    ``indexes``: parts of paths of files that hold entries of indexes and no rows; ``services``: what `catch_up` does.
    """

    name: str
    modes: tuple[Mode, ...]
    requirements: Sequence[str] = ()
    jars: Jars | None = None
    indexes: tuple[str, ...] = ()
    services: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)

    def python(self) -> Path:
        """The interpreter of its environment, which is made if it is not there."""
        if not self.requirements:
            return Path(sys.executable)
        place = ENVIRONMENTS / self.name
        listed = place / "requirements"
        if not listed.exists() or listed.read_text().split("\n")[:-1] != list(self.requirements):
            uv = ["nice", "-n", "10", str(ROOT / ".cache" / "uv" / "bin" / "uv")]
            subprocess.run([*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(place)], check=True)
            install = [*uv, "pip", "install", "--quiet", "--python", str(place / "bin" / "python")]
            subprocess.run([*install, *self.requirements], check=True, env={**os.environ, "UV_HTTP_TIMEOUT": "300"})
            listed.write_text("".join(f"{line}\n" for line in self.requirements))
        return place / "bin" / "python"


SKIPSTONE = Engine(
    name="skipstone",
    modes=(
        Mode(name="skipstone_cow", title="Skipstone", like=COPY_ON_WRITE),
        Mode(name="skipstone_mor", title="Skipstone, merge-on-read"),
    ),
    indexes=("__si_",),
    services="indexes the segments that are missing",
)
PEERS = (
    Engine(
        name="delta",
        modes=(
            Mode(name="delta_cow", title="Delta, clustered", like=COPY_ON_WRITE),
            Mode(name="delta_dv", title="Delta, clustered, deletion vectors"),
        ),
        jars=Jars(name="delta", coordinates=DELTA, whole=True),
        services="`OPTIMIZE`",
    ),
    Engine(
        name="hudi",
        modes=(
            Mode(name="hudi_cow", title="Hudi, copy-on-write", like=COPY_ON_WRITE),
            Mode(name="hudi_mor", title="Hudi, merge-on-read"),
            Mode(name="hudi_bloom", title="Hudi, copy-on-write, bloom", like=COPY_ON_WRITE),
        ),
        requirements=("pyspark==3.5.8", "pyarrow==26.0.1", "numpy==2.4.6"),
        jars=Jars(name="hudi", coordinates=("org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0",)),
        indexes=("/.hoodie/metadata/",),
        services="compacts",
    ),
    Engine(
        name="paimon",
        modes=(
            Mode(name="paimon_pk", title="Paimon, primary-key table"),
            Mode(name="paimon_index", title="Paimon, global index"),
        ),
        requirements=("pypaimon==2.1.0", "pypaimon-rust==0.4.0"),
        indexes=("/index/",),
        services="indexes new rows",
    ),
    Engine(
        name="lance",
        modes=(Mode(name="lance", title="Lance"),),
        requirements=("pylance==14.0.2",),
        indexes=("/_indices/",),
        services="compacts, then indexes new fragments",
    ),
    Engine(
        name="ducklake",
        modes=(Mode(name="ducklake", title="DuckLake, sorted"),),
        requirements=("duckdb==1.5.5", "duckdb-extension-ducklake==1.5.5", "pyarrow==26.0.1", "numpy==2.4.6"),
        services="flushes, rewrites and merges files",
    ),
)


class Failed(Exception):
    """A call ended with an error of its engine."""


@dataclass(frozen=True)
class Answer:
    """What a call took and returned. ``cpu``: processor seconds of the engine's processes."""

    seconds: float
    cpu: float
    reply: dict[str, Any]


class Program:
    """The running program of an engine."""

    def __init__(self, engine: Engine, root: Path) -> None:
        """Start it on the tables below ``root``; its messages go to a file beside them."""
        self.engine, self.root = engine, root
        given = {"PYTHONPATH": str(ROOT), "PEER_JARS": engine.jars.paths() if engine.jars else "", **engine.settings}
        command = [str(engine.python()), str(PROGRAMS / f"{engine.name}_peer.py"), str(root)]
        self.messages = root.parent / f"{engine.name}.log"
        root.parent.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **given},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.messages.open("w"),
            text=True,
        )

    def call(self, do: str, **arguments: Any) -> Answer:
        """Call a method of the program. Raises Failed with the engine's error."""
        before = cpu_seconds(self._process.pid)
        into, out = self._pipes()
        into.write(json.dumps({"do": do, "with": arguments}) + "\n")
        into.flush()
        line = out.readline()
        if not line:
            raise Failed(f"{self.engine.name} ended with {self._process.wait()} during {do}; see {self.messages}")
        reply = json.loads(line)
        if "error" in reply:
            raise Failed(f"{self.engine.name}, {do} {arguments.get('mode', '')}: {reply['error']}")
        # Of children too, but in hundredths of a second; the program's own are finer
        return Answer(reply["seconds"], max(cpu_seconds(self._process.pid) - before, reply["cpu"]), reply)

    def close(self) -> None:
        """End it, and wait for that."""
        into, out = self._pipes()
        into.close()
        self._process.wait()
        out.close()

    def _pipes(self) -> tuple[TextIO, TextIO]:
        assert self._process.stdin and self._process.stdout
        return self._process.stdin, self._process.stdout  # type: ignore[return-value]


def copy_state(source: Path, target: Path) -> None:
    """Make ``target`` the same as ``source``: files that never change are links, all others copies."""
    shutil.rmtree(target, ignore_errors=True)
    for parent, _, names in os.walk(source):
        place = target / Path(parent).relative_to(source)
        place.mkdir(parents=True)
        for name in names:
            if name.endswith(IMMUTABLE):
                os.link(Path(parent) / name, place / name)
            else:
                shutil.copy2(Path(parent) / name, place / name)


@dataclass(frozen=True)
class Listing:
    """The files below a folder: size and time of change by path."""

    files: dict[str, tuple[int, int]]

    @staticmethod
    def of(root: Path) -> Listing:
        """What is there now."""
        found = {}
        for parent, _, names in os.walk(root):
            for name in names:
                status = (Path(parent) / name).stat()
                found[str((Path(parent) / name).relative_to(root))] = (status.st_size, status.st_mtime_ns)
        return Listing(found)

    def bytes_since(self, before: Listing) -> int:
        """Bytes of files that are new or were written since ``before``."""
        return sum(entry[0] for path, entry in self.files.items() if before.files.get(path) != entry)

    def bytes_of(self, parts: Sequence[str]) -> int:
        """Bytes of files whose path holds one of these parts."""
        return sum(size for path, (size, _) in self.files.items() if any(part in f"/{path}" for part in parts))

    def bytes(self) -> int:
        """Of all files."""
        return sum(size for size, _ in self.files.values())
