"""The pieces of work during which the operator is killed: loads, merges, reindexes and maintenance of real tables, and
planning servers.

Each work applies manifests through kubectl (not through the proxy), knows when it has ended, and can tell from the
table itself whether its rows are there exactly once.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from skipstone_core.contract.keeping import IDLE_VARIABLE

from tests.cluster.controlplane import ControlPlane
from tests.kube.access import Access

JsonObject = dict[str, Any]
API = "skipstone.dev/v1alpha1"
PLURALS = {"wh": "warehouses", "tbl": "tables", "si": "secondaryindexes", "lj": "loadjobs", "mj": "mergejobs"}
ROWS_PER_LOAD = 3


@dataclass
class Site:
    """One namespace and the folder that stands for its Warehouse's claim."""

    plane: ControlPlane
    namespace: str
    folder: Path
    access: Access
    expected: dict[int, str] = field(default_factory=dict)

    def apply(self, *objects: JsonObject) -> None:
        """kubectl apply."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.plane.kubectl("apply", "--namespace", self.namespace, "--filename", "-", text_input=text)

    def get(self, kind: str, name: str) -> JsonObject:
        """The object, or an empty one."""
        return self._read(f"/apis/{API}/namespaces/{self.namespace}/{PLURALS[kind]}/{name}")

    def kept_drivers(self) -> list[JsonObject]:
        """The pods of kept drivers."""
        found = self._read(f"/api/v1/namespaces/{self.namespace}/pods?labelSelector=skipstone.dev%2Foperation%3DKeep")
        return list(found["items"])

    def _read(self, path: str) -> JsonObject:
        try:
            request = urllib.request.Request(f"{self.plane.url}{path}", headers=dict(self.access.headers))
            with urllib.request.urlopen(request, context=self.access.tls, timeout=300) as answer:
                found: JsonObject = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                if error.code != HTTPStatus.NOT_FOUND:
                    raise
            return {}
        return found

    def condition(self, kind: str, name: str, type_: str) -> str:
        """The status of a condition, empty when it is not there."""
        found = self.get(kind, name).get("status", {}).get("conditions", [])
        return next((str(c["status"]) for c in found if c["type"] == type_), "")

    def write(self, path: str, text: str) -> None:
        """Put a source file below the Warehouse's root."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def prepare(self) -> None:
        """A claim, a Warehouse and an empty table."""
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        accounts = [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
            for name in ("skipstone-spark", "skipstone-spark-local", "skipstone-spark-kept")
        ]
        self.apply(
            *accounts,
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "lake"}, "spec": claim},
            resource("Warehouse", "lake", {"catalog": {"type": "Sql"}, "storage": {"pvc": {"claimName": "lake"}}}),
            resource(
                "Table",
                "people",
                {
                    "warehouseRef": {"name": "lake"},
                    "identifier": {"namespace": "db", "name": "people"},
                    "columns": [{"name": "id", "type": "long", "required": True}, {"name": "name", "type": "string"}],
                },
            ),
        )

    def table(self) -> Table:
        """The table, opened by plain PyIceberg."""
        uri = f"sqlite:///{self.folder}/catalog.db"
        return SqlCatalog("skipstone", uri=uri, warehouse=str(self.folder)).load_table("db.people")

    def rows(self) -> list[tuple[int, str]]:
        """All rows, sorted."""
        found = self.table().scan().to_arrow().to_pylist()
        return sorted((row["id"], row["name"]) for row in found)

    def append(self, ids: Sequence[int]) -> None:
        """What another writer does: append rows without telling anybody."""
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
        self.table().append(pa.table({"id": list(ids), "name": [f"n{i}" for i in ids]}, schema=schema))
        self.expected |= {i: f"n{i}" for i in ids}


def resource(kind: str, name: str, spec: JsonObject) -> JsonObject:
    """One custom resource."""
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}


@dataclass
class Loads:
    """Each work is one LoadJob of three new rows."""

    site: Site

    def prepare(self) -> None:
        """Nothing more than the table."""

    def ready(self) -> bool:
        """Whether the plans may begin."""
        return self.site.condition("tbl", "people", "Ready") == "True"

    def begin(self, number: int) -> None:
        """Apply load ``number``."""
        ids = range(number * ROWS_PER_LOAD, (number + 1) * ROWS_PER_LOAD)
        self.site.write(f"in/{number}.csv", "id,name\n" + "".join(f"{i},n{i}\n" for i in ids))
        source = {"format": "Csv", "paths": [f"in/{number}.csv"], "options": {"header": "true"}}
        self.site.expected |= {i: f"n{i}" for i in ids}
        self.site.apply(resource("LoadJob", f"load-{number}", {"tableRef": {"name": "people"}, "source": source}))

    def ended(self, number: int) -> bool:
        """Whether it is Complete."""
        return self.site.condition("lj", f"load-{number}", "Complete") == "True"


@dataclass
class Merges:
    """Each work is one MergeJob that updates row 1, deletes one row and inserts another."""

    site: Site

    def prepare(self) -> None:
        """Nothing before the table is there."""

    def ready(self) -> bool:
        """Whether the plans may begin; puts a first segment into the table."""
        if self.site.condition("tbl", "people", "Ready") != "True":
            return False
        if not self.site.expected:
            self.site.append([1, 1000])
        return True

    def begin(self, number: int) -> None:
        """Apply merge ``number``."""
        feed = f"op,seq,id,name\nU,1,1,v{number}\nD,2,{1000 + number},\nI,3,{1001 + number},new\n"
        self.site.write(f"feeds/{number}.csv", feed)
        self.site.expected |= {1: f"v{number}", 1001 + number: "new"}
        del self.site.expected[1000 + number]
        columns = [{"name": "op", "type": "string"}, {"name": "seq", "type": "long"}]
        paths = [f"feeds/{number}.csv"]
        source = {"format": "Csv", "paths": paths, "options": {"header": "true"}, "columns": columns}
        spec = {
            "tableRef": {"name": "people"},
            "source": source,
            "keys": [{"target": "id", "source": "id"}],
            "sequenceBy": "seq",
            "whenMatched": [{"when": "source.op = 'D'", "action": "Delete"}, {"action": "Update"}],
            "whenNotMatched": [{"when": "source.op != 'D'", "action": "Insert"}],
        }
        self.site.apply(resource("MergeJob", f"merge-{number}", spec))

    def ended(self, number: int) -> bool:
        """Whether it is Complete."""
        return self.site.condition("mj", f"merge-{number}", "Complete") == "True"


@dataclass
class KeptMerges(Merges):
    """Each work is one MergeJob whose run a kept driver takes."""

    def prepare(self) -> None:
        """The Warehouse keeps a driver."""
        change = json.dumps({"spec": {"warmDrivers": {}}})
        self.site.plane.kubectl("patch", "wh", "lake", "-n", self.site.namespace, "--type=merge", "-p", change)

    def ready(self) -> bool:
        """Whether the plans may begin."""
        return self.site.condition("wh", "lake", "WarmDriversReady") == "True" and super().ready()


@dataclass
class KeptChanges(KeptMerges):
    """Each work is one MergeJob, and a change of the Warehouse by which its kept driver is replaced meanwhile."""

    def begin(self, number: int) -> None:
        """Apply merge ``number``, and let drivers end after another time without a run."""
        super().begin(number)
        spec = {"warmDrivers": {"min": 0, "max": 1, "idleSeconds": self._idle_of(number)}}
        change = json.dumps({"spec": spec})
        self.site.plane.kubectl("patch", "wh", "lake", "-n", self.site.namespace, "--type=merge", "-p", change)

    def ended(self, number: int) -> bool:
        """Whether it is Complete, and the one driver is as the Warehouse wants it."""
        if not super().ended(number) or self.site.condition("wh", "lake", "WarmDriversReady") != "True":
            return False
        variables = [
            {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
            for pod in self.site.kept_drivers()
        ]
        return [each.get(IDLE_VARIABLE) for each in variables] == [str(self._idle_of(number))]

    @staticmethod
    def _idle_of(number: int) -> int:
        return 3600 + number


@dataclass
class Reindexes:
    """Each work is a segment of another writer and a reindex asked for by hand."""

    site: Site

    def prepare(self) -> None:
        """An index on the table."""
        spec = {"tableRef": {"name": "people"}, "columns": ["id"], "type": "Lookup"}
        self.site.apply(resource("SecondaryIndex", "by-id", spec))

    def ready(self) -> bool:
        """Whether the plans may begin; puts a first segment into the table."""
        return self.site.condition("si", "by-id", "Synced") == "True"

    def begin(self, number: int) -> None:
        """Append a segment and ask for a reindex."""
        self.site.append([number * 10 + i for i in range(ROWS_PER_LOAD)])
        mark = f"skipstone.dev/reindex=r{number}"
        self.site.plane.kubectl("annotate", "si", "by-id", "-n", self.site.namespace, "--overwrite", mark)

    def ended(self, number: int) -> bool:
        """Whether the request was seen and every row is covered."""
        status = self.site.get("si", "by-id").get("status", {})
        covered = status.get("rows", {}).get("covered")
        synced = self.site.condition("si", "by-id", "Synced") == "True"
        return status.get("observedReindex") == f"r{number}" and synced and covered == len(self.site.expected)


@dataclass
class Maintains:
    """Each work is two small files of another writer and maintenance asked for by hand."""

    site: Site

    def prepare(self) -> None:
        """The Table asks for maintenance."""
        change = json.dumps({"spec": {"maintenance": {"compaction": {"minInputFiles": 2}}}})
        self.site.plane.kubectl("patch", "tbl", "people", "-n", self.site.namespace, "--type=merge", "-p", change)

    def ready(self) -> bool:
        """Whether the plans may begin."""
        return self.site.condition("tbl", "people", "Healthy") == "True"

    def begin(self, number: int) -> None:
        """Append two files and ask for maintenance."""
        for at in range(2):
            self.site.append([number * 10 + at])
        mark = f"skipstone.dev/maintain=m{number}"
        self.site.plane.kubectl("annotate", "tbl", "people", "-n", self.site.namespace, "--overwrite", mark)

    def ended(self, number: int) -> bool:
        """Whether the request was answered, nothing is due any more, and the status tells what is in the table."""
        status = self.site.get("tbl", "people").get("status", {})
        answered = status.get("observedMaintain") == f"m{number}" and "maintainRun" not in status
        files = len(list(self.site.table().scan().plan_files()))
        return answered and status["health"]["dueFiles"] == 0 and status["files"] == files


@dataclass
class Servers:
    """Each work is a Warehouse with a planning server, of which nothing is there twice and nothing is missing."""

    site: Site

    def prepare(self) -> None:
        """Nothing more than the table."""

    def ready(self) -> bool:
        """Whether the plans may begin."""
        return self.site.condition("tbl", "people", "Ready") == "True"

    def begin(self, number: int) -> None:
        """Apply Warehouse ``number``, which shares the claim and the catalog."""
        spec = {
            "catalog": {"type": "Sql"},
            "storage": {"pvc": {"claimName": "lake"}},
            "planning": {"tokensSecretRef": {"name": "readers"}},
        }
        self.site.apply(resource("Warehouse", f"server-{number}", spec))

    def ended(self, number: int) -> bool:
        """Whether the Warehouse is Ready, and its server's Deployment uses the one Secret that was made for it."""
        name = f"server-{number}"
        if self.site.condition("wh", name, "Ready") != "True" or not self._list("deployments", name):
            return False
        (deployment,) = self._list("deployments", name)
        env = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
        references = [each["valueFrom"]["secretKeyRef"]["name"] for each in env if each["name"].endswith("_SEAL")]
        made = [each["metadata"]["name"] for each in self._list("secrets", name)]
        others = ("serviceaccounts", "configmaps", "services", "networkpolicies")
        return references == made and all(len(self._list(kind, name)) == 1 for kind in others)

    def _list(self, kind: str, warehouse: str) -> list[JsonObject]:
        selector = f"app.kubernetes.io/component=planning,skipstone.dev/warehouse={warehouse}"
        text = self.site.plane.kubectl(
            "get", kind, "--namespace", self.site.namespace, "--selector", selector, "--output", "json"
        )
        found: list[JsonObject] = json.loads(text)["items"]
        return found
