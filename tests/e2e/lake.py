"""A small lake on the embedded cluster: manifests, source files and rows read back, as the end-to-end tests need them.

Rows are read by a pod with plain PyIceberg or plain Spark: paths in Iceberg metadata are those of the pods.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from demo.install import SYSTEM, install_arguments, lift_finalizers, make_folder
from demo.kube import EMBEDDED, Kube, KubeError, condition
from demo.manifests import claim, namespace, task_pod, volume

JsonObject = dict[str, Any]
API = "skipstone.dev/v1alpha1"
CLAIM = "lake"
#: Lakes that have no volume.
IN_BUCKETS = ("e2e-bucket",)
#: Lakes whose claim pods on several nodes may mount.
SHARED = ("e2e-shared",)
#: Seconds to wait for something: a bound against hangs. Several modules share two cores.
PATIENCE = 900.0
#: Programs for pods: what other people's jobs and readers do.
PODS = Path(__file__).parent / "pods"
PEOPLE_COLUMNS = (
    {"name": "id", "type": "long", "required": True},
    {"name": "name", "type": "string"},
    {"name": "city", "type": "string"},
    {"name": "born", "type": "date"},
)


def resource(kind: str, name: str, spec: Mapping[str, Any]) -> JsonObject:
    """One custom resource."""
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}


def spark(request: str = "500m") -> JsonObject:
    """Small drivers in local mode. They ask for little of the node, so that lakes do not wait for each other."""
    conf = {"spark.kubernetes.driver.request.cores": request}
    return {"driver": {"cores": 1, "memory": "768Mi"}, "executor": {"instances": 0}, "conf": conf}


def warehouse(name: str = "lake", **changes: Any) -> JsonObject:
    """A Warehouse on the claim, in local mode."""
    spec = {
        "catalog": {"type": "Sql"},
        "storage": {"pvc": {"claimName": CLAIM}},
        "spark": spark(),
        "maxConcurrentRuns": 3,
    }
    return resource("Warehouse", name, spec | changes)


def table(name: str = "people", **changes: Any) -> JsonObject:
    """A managed Table `db.<name>` of people."""
    spec = {
        "warehouseRef": {"name": "lake"},
        "identifier": {"namespace": "db", "name": name.replace("-", "_")},
        "columns": list(PEOPLE_COLUMNS),
        "primaryKey": ["id"],
    }
    return resource("Table", name, spec | changes)


def index(name: str, columns: Iterable[str], table_name: str = "people", **changes: Any) -> JsonObject:
    """A Lookup index."""
    spec = {"tableRef": {"name": table_name}, "columns": list(columns), "type": "Lookup"}
    return resource("SecondaryIndex", name, spec | changes)


def source(*paths: str) -> JsonObject:
    """Files of one format, which the first path tells. Csv files have a header.

    Csv is read by Spark, because of a pattern that the driver leaves to it. Small Parquet files are not: their drivers
    start no JVM and end much sooner, so tests that are not about Spark use them.
    """
    kind = paths[0].rpartition(".")[2].capitalize()
    for_spark = {"timestampFormat": "yyyy-MM-dd HH:mm:ss VV"}
    options = {"options": {"header": "true", **for_spark}} if kind == "Csv" else {}
    return {"format": kind, "paths": list(paths), **options}


def load(name: str, *paths: str, table_name: str = "people", **changes: Any) -> JsonObject:
    """A LoadJob of files."""
    return resource("LoadJob", name, {"tableRef": {"name": table_name}, "source": source(*paths)} | changes)


def merge(name: str, *paths: str, table_name: str = "people", **changes: Any) -> JsonObject:
    """A MergeJob of a feed with columns op and seq: delete, else update, else insert."""
    feed = source(*paths)
    if feed["format"] == "Csv":
        feed["columns"] = [{"name": "op", "type": "string"}, {"name": "seq", "type": "long"}]
    spec = {
        "tableRef": {"name": table_name},
        "source": feed,
        "keys": [{"target": "id", "source": "id"}],
        "sequenceBy": "seq",
        "whenMatched": [{"when": "source.op = 'D'", "action": "Delete"}, {"action": "Update"}],
        "whenNotMatched": [{"when": "source.op != 'D'", "action": "Insert"}],
    }
    return resource("MergeJob", name, spec | changes)


def people(first: int, last: int) -> list[JsonObject]:
    """The people ``first`` to ``last``, as rows of a source file."""
    cities = ("Oslo", "Lima", "Pune", "Graz", "Kyiv")
    return [
        {"id": i, "name": f"person {i}", "city": cities[i % 5], "born": f"19{i % 90 + 10}-0{i % 9 + 1}-1{i % 9}"}
        for i in range(first, last + 1)
    ]


def change(op: str, number: int, name: str | None = None, city: str | None = None, *, seq: int = 1) -> JsonObject:
    """A row of a feed: what to do with the person ``number``."""
    return {"op": op, "seq": seq, "id": number, "name": name, "city": city, "born": None}


def content(rows: Sequence[JsonObject], kind: str) -> bytes:
    """Rows as a file of that kind: csv with a header, json, or parquet."""
    sink = io.BytesIO()
    if kind == "parquet":
        texts = {
            name: pa.array([str(row[name]) if row[name] is not None else None for row in rows]) for name in rows[0]
        }
        types = {"id": pa.int64(), "seq": pa.int64(), "born": pa.date32()}
        pq.write_table(pa.table({name: text.cast(types.get(name, pa.string())) for name, text in texts.items()}), sink)
        return sink.getvalue()
    if kind == "json":
        return "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    lines = [rows[0].keys(), *(row.values() for row in rows)]
    return "".join(",".join("" if value is None else str(value) for value in line) + "\n" for line in lines).encode()


@dataclass(frozen=True)
class Lake:
    """One namespace with storage, seen by a test."""

    kube: Kube
    folder: Path

    @property
    def mount(self) -> str:
        """Where pods see the folder."""
        return "/skipstone/lake"

    def write(self, path: str, rows: Sequence[JsonObject] | str | bytes) -> None:
        """Put a source file into the Warehouse's root, readable by all: rows in the format that its name tells."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.parent.chmod(0o777)
        text = rows.encode() if isinstance(rows, str) else rows
        target.write_bytes(text if isinstance(text, bytes) else content(text, target.suffix[1:]))
        target.chmod(0o644)

    def apply(self, *objects: JsonObject) -> None:
        """kubectl apply."""
        self.kube.apply(*objects)

    def create(self, item: JsonObject) -> None:
        """kubectl create, which keeps no copy of the object in an annotation."""
        self.kube.run("create", "-f", "-", text=json.dumps(item))

    def until(
        self, kind: str, name: str, done: Callable[[JsonObject], bool], *, seconds: float = PATIENCE
    ) -> JsonObject:
        """The resource as soon as ``done`` holds; raises KubeError with its status when it does not in time."""
        seen: list[JsonObject] = [{}]

        def look() -> bool:
            seen[0] = self.kube.get(kind, name) or {}
            return bool(seen[0]) and done(seen[0])

        try:
            self.kube.wait_for(f"{kind}/{name}", look, seconds=seconds)
        except KubeError as error:
            raise KubeError(f"{error}; status is {json.dumps(seen[0].get('status'))}") from error
        return seen[0]

    def until_condition(
        self, kind: str, name: str, type_: str, *, status: str = "True", reason: str = "", seconds: float = PATIENCE
    ) -> JsonObject:
        """Wait for a condition; returns it."""

        def done(found: JsonObject) -> bool:
            now = condition(found, type_)
            return now.get("status") == status and (not reason or now.get("reason") == reason)

        return condition(self.until(kind, name, done, seconds=seconds), type_)

    def until_failed(self, kind: str, name: str, *, seconds: float = PATIENCE) -> JsonObject:
        """Wait until the job is Failed; returns the condition. Raises KubeError when it is Complete instead."""
        found = self.until(kind, name, has_ended, seconds=seconds)
        if condition(found, "Complete").get("status") == "True":
            raise KubeError(f"{kind}/{name} completed: {json.dumps(found['status'])}")
        return condition(found, "Failed")

    def until_complete(self, kind: str, name: str, *, seconds: float = PATIENCE) -> JsonObject:
        """Wait until the job is Complete; returns the resource. Raises KubeError when it failed."""
        found = self.until(kind, name, has_ended, seconds=seconds)
        if condition(found, "Failed").get("status") == "True":
            raise KubeError(f"{kind}/{name} failed: {json.dumps(found['status'])}")
        return found

    def until_synced(self, name: str, *, with_job: tuple[str, str], table_name: str = "people") -> None:
        """Wait until the index covers the table as it is after the commit of a finished job (kind and name).

        The condition alone may still speak of the table before.
        """
        snapshot = (self.kube.get(*with_job) or {})["status"]["snapshotId"]
        told = self.until("tbl", table_name, lambda found: found.get("status", {}).get("snapshotId") == snapshot)
        number = told["status"]["sequenceNumber"]

        def covers(found: JsonObject) -> bool:
            seen = found.get("status", {}).get("tableSequenceNumber")
            return seen == number and condition(found, "Synced").get("status") == "True"

        self.until("si", name, covers)

    def run_pod(
        self, name: str, *command: str, seconds: float = PATIENCE, labels: Mapping[str, str] | None = None
    ) -> str:
        """Run a pod of the demonstration's image to its end; returns its log. Raises KubeError when it fails."""
        images = self.kube.images
        options = {"claim": CLAIM, "mount": self.mount, "pull_policy": images.pull_policy, "cpu": "200m"}
        self.kube.run("delete", "pod", name, "--ignore-not-found", "--wait=true")
        task = task_pod(name, images.demo, command, **options)
        task["metadata"]["labels"] = dict(labels or {})
        self.kube.apply(task)
        pod = self.until(
            "pod", name, lambda p: p.get("status", {}).get("phase") in {"Succeeded", "Failed"}, seconds=seconds
        )
        log = self.kube.run("logs", name)
        if pod["status"]["phase"] != "Succeeded":
            raise KubeError(f"pod {name} failed: {log[-2000:]}")
        return log

    def ask(self, name: str, program: str, *arguments: str, **options: Any) -> Any:
        """Run a program of PODS in a pod, given the Warehouse's root and ``arguments``; returns what it answers.

        ``options`` are those of ``run_pod``.
        """
        log = self.run_pod(name, "python", "-c", (PODS / program).read_text(), self.mount, *arguments, **options)
        line = next(line for line in log.splitlines() if line.startswith("ANSWER "))
        return json.loads(line.removeprefix("ANSWER "))

    def rows(self, name: str = "people") -> list[JsonObject]:
        """All rows of `db.<name>` as plain PyIceberg reads them, by id."""
        return self.all_rows([name])[name]

    def all_rows(self, names: Iterable[str]) -> dict[str, list[JsonObject]]:
        """The rows of several Tables."""
        paths = {name: f"db.{name.replace('-', '_')}" for name in names}
        found = self.ask("read-rows", "rows.py", *paths.values())
        return {name: sorted(found[path], key=lambda row: row["id"]) for name, path in paths.items()}

    def append(self, *segments: Sequence[JsonObject], engine: str = "pyiceberg") -> JsonObject:
        """Append to the table of people, once for each list of rows, as a foreign writer (pyiceberg or spark) does.

        Returns ``segment`` and ``time`` of the last one.
        """
        made: JsonObject = self.ask("append", "append.py", "db.people", engine, *map(json.dumps, segments))
        return made

    def query(self, text: str, name: str = "people") -> JsonObject:
        """Query `db.<name>` (written ``{table}``) through its indexes in a Spark session of a pod.

        Returns ``rows``, DuckDB's ``reference`` and the text of ``explain``.
        """
        told: JsonObject = self.ask("query", "query.py", f"db.{name}", text)
        return told


def has_ended(job: JsonObject) -> bool:
    """Whether a job is Complete or Failed."""
    return "True" in {condition(job, "Complete").get("status"), condition(job, "Failed").get("status")}


def lake_objects(name: str) -> list[JsonObject]:
    """The namespace ``name`` (restricted) and a volume for its claim, if it has one."""
    if name in IN_BUCKETS:
        return [namespace(name)]
    return [namespace(name), volume(f"e2e-{name}", make_folder(f"e2e-{name}"), name, CLAIM, access=access_of(name))]


def access_of(name: str) -> str:
    """How the claim of the lake ``name`` may be mounted."""
    return "ReadWriteMany" if name in SHARED else "ReadWriteOnce"


def lakes_of(kube: Kube, names: tuple[str, ...]) -> dict[str, Lake]:
    """Lakes that ``install`` made, by name."""
    return {name: Lake(kube.within(name), EMBEDDED / "volumes" / f"e2e-{name}") for name in names}


def install(kube: Kube, names: tuple[str, ...]) -> None:
    """Lakes of these names with the operator watching them.

    All are made before the chart is installed, because its roles go into the watched namespaces.
    """
    remove_all(kube, names)
    kube.apply(namespace(SYSTEM), *(item for name in names for item in lake_objects(name)))
    for name in names:
        if name not in IN_BUCKETS:
            kube.within(name).apply(claim(CLAIM, volume_name=f"e2e-{name}", access=access_of(name)))
    install_operator(kube, names)


def install_operator(kube: Kube, names: tuple[str, ...]) -> None:
    """The chart alone. Drivers leave the operator a share of the processors by which it renews its Lease in time."""
    system = kube.within(SYSTEM)
    system.run_helm(*install_arguments(system, names), "--set", "operator.resources.requests.cpu=300m")


@contextmanager
def installed(kube: Kube, names: tuple[str, ...]) -> Iterator[dict[str, Lake]]:
    """Lakes with the operator watching them; everything is removed at the end."""
    install(kube, names)
    yield lakes_of(kube, names)
    remove_all(kube, names)


def remove_all(kube: Kube, names: tuple[str, ...], system: str = SYSTEM) -> None:
    """Remove lakes and operator, also what a run that was cut off left: then nobody else lifts the finalizers."""
    kube.run("delete", "namespace", *names, "--ignore-not-found", "--wait=false")
    kube.run("delete", "namespace", system, "--ignore-not-found", "--timeout=300s")
    left = [name for name in names if kube.get("namespace", name)]
    for name in left:
        lift_finalizers(kube.within(name))
    if left:
        gone = (f"namespace/{name}" for name in left)
        kube.run("wait", *gone, "--for=delete", "--timeout=300s", check=False)
    kube.run("delete", "pv", *(f"e2e-{name}" for name in names), "--ignore-not-found")
    for name in names:
        shutil.rmtree(EMBEDDED / "volumes" / f"e2e-{name}", ignore_errors=True)
