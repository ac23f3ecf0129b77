"""A lake that `up` serves: its manifests, its files, the processes that serve it, and what its tables hold."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import yaml
from pyiceberg.catalog import load_catalog
from skipstone_local.places import RootFolder
from skipstone_local.runner.api import ApiError, Client, ServerAccess

PATIENCE = 600.0
PAUSE = 0.01
NAMESPACE = "default"
GROUP = "skipstone.dev/v1alpha1"
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "lake"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
PLURALS = {
    "Warehouse": "warehouses",
    "Table": "tables",
    "SecondaryIndex": "secondaryindexes",
    "LoadJob": "loadjobs",
    "MergeJob": "mergejobs",
    "MergeSchedule": "mergeschedules",
}
#: The rows of the load, those of the merge, and the table after both: each amount is there once.
LOADED, CHANGED = "range(0, 1000)", "range(500, 1500)"
ROWS = {id: 1 + 10 * (id >= 500) if id < 1000 else 10 for id in range(1500)}


def resource(kind: str, name: str, spec: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": GROUP, "kind": kind, "metadata": {"name": name, **metadata}, "spec": dict(spec)}


def warehouse(**spec: Any) -> dict[str, Any]:
    return resource(
        "Warehouse", "lake", {"catalog": {"type": "Sql"}, "storage": {"pvc": {"claimName": "lake"}}, **spec}
    )


def table(**spec: Any) -> dict[str, Any]:
    columns = [{"name": "id", "type": "long", "required": True}, {"name": "price", "type": "long"}]
    own = {
        "warehouseRef": {"name": "lake"}, "identifier": {"namespace": "sales", "name": "orders"},
        "columns": columns, "primaryKey": ["id"],
    }  # fmt: skip
    return resource("Table", "orders", own | spec)


def load(name: str, *paths: str, **source: Any) -> dict[str, Any]:
    own = {"format": "Parquet", "paths": list(paths), **source}
    return resource("LoadJob", name, {"tableRef": {"name": "orders"}, "source": own, "backoffLimit": 20})


MERGE = {
    "tableRef": {"name": "orders"},
    "source": {"format": "Parquet", "paths": ["feed/changes.parquet"]},
    "keys": [{"target": "id", "source": "id"}],
    "whenMatched": [{"action": "Update", "set": {"price": "target.price + source.price"}}],
    "whenNotMatched": [{"action": "Insert"}],
    "backoffLimit": 20,
}


def merge(name: str) -> dict[str, Any]:
    return resource("MergeJob", name, MERGE)


def index(**spec: Any) -> dict[str, Any]:
    return resource("SecondaryIndex", "by-price", {"tableRef": {"name": "orders"}, "columns": ["price"], **spec})


@dataclass
class Lake:
    """A root folder. ``environment``: what the processes that serve it get besides this one's."""

    root: RootFolder
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def claim(self) -> Path:
        return self.root.claim(NAMESPACE, "lake")

    def write_parquet(self, path: str, query: str) -> None:
        """Write what DuckDB answers to ``query`` below the claim."""
        target = self.claim / path
        target.parent.mkdir(parents=True, exist_ok=True)
        duckdb.sql(query).write_parquet(str(target))

    def write_orders(self) -> None:
        """The files of the load and of the merge."""
        self.write_parquet("landing/orders.parquet", f"select range as id, 1::bigint as price from {LOADED}")
        self.write_parquet("feed/changes.parquet", f"select range as id, 10::bigint as price from {CHANGED}")

    def manifest(self, *objects: Mapping[str, Any]) -> str:
        """A file with these objects."""
        path = self.root.path.parent / "manifests.yaml"
        path.write_text(yaml.safe_dump_all(objects))
        return str(path)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a process that serves the folder."""
        command = [sys.executable, "-m", "skipstone_local.up", str(self.root.path), *arguments]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | self.environment
        )

    def run_once(self, *objects: Mapping[str, Any], code: int = 0) -> str:
        """Serve the folder until everything is settled; what was printed."""
        given = [self.manifest(*objects)] if objects else []
        process = self.start("--once", *given)
        try:
            printed, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
        assert process.returncode == code, f"{printed}\n{self.logs()}"
        return printed

    @contextmanager
    def serving(self, *objects: Mapping[str, Any]) -> Iterator[subprocess.Popen[str]]:
        """A process that serves the folder; it is killed at the end if nobody did before."""
        process = self.start(*([self.manifest(*objects)] if objects else []))
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """An object as it is now; empty as long as there is none, or nobody answers."""
        path = f"/apis/{GROUP}/namespaces/{NAMESPACE}/{PLURALS[kind]}/{name}"
        with suppress(ApiError), closing(Client(ServerAccess.load(self.root.kubeconfig))) as client:
            return client.get(path) or {}
        return {}

    def pods(self) -> list[dict[str, Any]]:
        """All pods; none as long as nobody answers."""
        with suppress(ApiError), closing(Client(ServerAccess.load(self.root.kubeconfig))) as client:
            return client.list("/api/v1/pods")[0]
        return []

    def rows(self, name: str = "orders") -> dict[int, int]:
        """The rows of a table, read by PyIceberg and counted by DuckDB: one for each id, or this fails."""
        catalog = load_catalog(
            "skipstone", type="sql", uri=f"sqlite:///{self.claim}/catalog.db", warehouse=f"file://{self.claim}"
        )
        found = catalog.load_table(("sales", name)).scan().to_arrow()
        doubled = duckdb.sql("select id from found group by id having count(*) > 1").fetchall()
        assert doubled == []
        return {row["id"]: row["price"] for row in found.to_pylist()}

    def metadata_files(self) -> set[str]:
        """The table's metadata files: one more for each commit."""
        return {path.name for path in self.claim.glob("**/orders/metadata/*.metadata.json")}

    def logs(self) -> str:
        """What may say why something failed."""
        texts = [self.root.log.read_text()[-4000:]] if self.root.log.exists() else []
        return "\n".join([*texts, *(path.read_text()[-2000:] for path in self.root.path.glob("pods/*/log"))])

    def strays(self) -> list[int]:
        """Processes of pods of this folder that live."""
        mark = f"SKIPSTONE_REPORT={self.root.path}/".encode()
        live: list[int] = []
        for entry in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if any(variable.startswith(mark) for variable in entry.read_bytes().split(b"\0")):
                    live.append(int(entry.parent.name))
        return live


def wait_for(condition: Callable[[], Any], what: str, process: subprocess.Popen[str] | None = None) -> Any:
    """What ``condition`` answers as soon as that is true of it."""
    end = time.monotonic() + PATIENCE
    while not (answer := condition()):
        assert time.monotonic() < end, f"{what} was not reached"
        assert process is None or process.poll() is None, process.stdout.read() if process.stdout else ""
        time.sleep(PAUSE)
    return answer


def kill(pids: Sequence[int]) -> None:
    """SIGKILL each of them that is still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
