"""Manifests as users write them, for tests of reconcilers."""

from __future__ import annotations

from typing import Any

API_VERSION = "skipstone.dev/v1alpha1"
Obj = dict[str, Any]


def resource(kind: str, name: str, spec: Obj, **metadata: Any) -> Obj:
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": name, "namespace": "lake", **metadata},
        "spec": spec,
    }


def claim(*modes: str, name: str = "lake-data") -> Obj:
    spec = {"accessModes": list(modes or ("ReadWriteOnce",))}
    metadata = {"name": name, "namespace": "lake"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def warehouse(name: str = "main", **spec: Any) -> Obj:
    base: Obj = {"catalog": {"type": "Sql"}, "storage": {"pvc": {"claimName": "lake-data"}}}
    return resource("Warehouse", name, {**base, **spec})


def table(name: str = "flights", **spec: Any) -> Obj:
    base: Obj = {
        "warehouseRef": {"name": "main"},
        "identifier": {"namespace": "air", "name": "flights"},
        "columns": [{"name": "id", "type": "long"}, {"name": "tailnum", "type": "string"}],
    }
    return resource("Table", name, {**base, **spec})


def observed_table(name: str = "flights", **spec: Any) -> Obj:
    base: Obj = {
        "warehouseRef": {"name": "main"},
        "identifier": {"namespace": "air", "name": "flights"},
        "management": "Observed",
    }
    return resource("Table", name, {**base, **spec})


def load(name: str, **spec: Any) -> Obj:
    source = {"format": "Csv", "paths": [f"landing/{name}.csv"]}
    return resource("LoadJob", name, {"tableRef": {"name": "flights"}, "source": source, **spec})


def merge(name: str, **spec: Any) -> Obj:
    base: Obj = {
        "tableRef": {"name": "flights"},
        "source": {"format": "Csv", "paths": [f"feed/{name}.csv"]},
        "keys": [{"target": "id", "source": "id"}],
        "whenMatched": [{"action": "Update"}],
        "whenNotMatched": [{"action": "Insert"}],
    }
    return resource("MergeJob", name, {**base, **spec})


def schedule(name: str = "hourly", cron: str = "@hourly", template: Obj | None = None, **spec: Any) -> Obj:
    job = {key: value for key, value in merge("feed")["spec"].items() if key != "source"}
    source = {"format": "Csv", "paths": ["feed"], "consume": "New"}
    base: Obj = {"schedule": cron, "mergeTemplate": {"spec": {**job, "source": source, **(template or {})}}}
    return resource("MergeSchedule", name, {**base, **spec})


def index(name: str = "by-tail", *columns: str, **spec: Any) -> Obj:
    base: Obj = {"tableRef": {"name": "flights"}, "columns": list(columns or ("tailnum",))}
    return resource("SecondaryIndex", name, {**base, **spec})
