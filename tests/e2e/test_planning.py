"""A Warehouse with spec.planning: engines that know nothing of Skipstone read through its indexes."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from demo.kube import address, condition
from tests.e2e.lake import PATIENCE, Lake, index, table, warehouse

JsonObject = dict[str, Any]
SERVER, SECRET = "lake-planning", "readers"
TOKEN = secrets.token_urlsafe(24)
SEGMENTS = 6


def rows_of(segment: int) -> list[JsonObject]:
    """Rows named from ``a<segment>`` to ``z<segment>``, so that min/max of every segment cover nearly all names."""
    names = [f"{letter}{segment}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    return [{"id": 1000 * segment + i, "name": name, "city": "Oslo", "born": None} for i, name in enumerate(names)]


@pytest.fixture(scope="module")
def planned(lakes: dict[str, Lake]) -> Iterator[Lake]:
    """A table of six segments whose index covers all, in a Warehouse with a planning server."""
    lake = lakes["e2e-planning"]
    text = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": {"tokens": TOKEN}}
    planning = {"tokensSecretRef": {"name": SECRET}, "resources": {"requests": {"cpu": "100m"}}}
    lake.apply(text, warehouse(planning=planning), table(refreshIntervalSeconds=30))
    lake.until_condition("tbl", "people", "Ready")
    lake.append(*map(rows_of, range(1, SEGMENTS + 1)))
    lake.apply(index("by-name", ["name"]))
    lake.until("si", "by-name", lambda found: found.get("status", {}).get("synced") == f"{SEGMENTS}/{SEGMENTS}")
    yield lake
    lake.apply(warehouse(), table(refreshIntervalSeconds=0))


@pytest.mark.parametrize("engine", ["pyiceberg", "spark", "connect"])
def test_stock_engines_open_the_one_file_that_matches(planned: Lake, engine: str) -> None:
    ready = planned.until("wh", "lake", lambda found: condition(found, "PlanningReady").get("status") == "True")
    assert ready["status"]["planning"]["url"] == f"http://{SERVER}.{planned.kube.namespace}.svc:8181"
    told = planned.ask("planned", "planned.py", engine, address(planned.kube, SERVER), TOKEN, "db.people", "name", "m4")
    assert (told["rows"], told["files"], told["left"]) == ([[4012, "m4"]], SEGMENTS, 1)
    assert (told["namespaces"], told["tables"]) == (["db"], ["db.people"])
    assert told["drop"] != "dropped"
    assert told["stranger"] == "UnauthorizedError"
    assert not told["knows_skipstone"]


def test_the_server_has_no_rights_in_the_cluster(planned: Lake) -> None:
    planned.until("wh", "lake", lambda found: condition(found, "PlanningReady").get("status") == "True")
    account = f"system:serviceaccount:{planned.kube.namespace}:{SERVER}"
    for verb, kind in (("get", "secrets"), ("list", "pods"), ("get", "warehouses.skipstone.dev"), ("create", "pods")):
        assert planned.kube.run("auth", "can-i", verb, kind, f"--as={account}", check=False).strip() == "no"
    pods = planned.kube.items("pods", "app.kubernetes.io/component=planning")
    assert pods
    for pod in pods:
        assert pod["spec"]["automountServiceAccountToken"] is False


def test_without_the_field_the_server_goes(planned: Lake) -> None:
    planned.apply(warehouse())
    planned.kube.wait_for(
        "the end of the server", lambda: planned.kube.get("deployment", SERVER) is None, seconds=PATIENCE
    )
    planned.until("wh", "lake", lambda found: not condition(found, "PlanningReady"))
    assert planned.kube.get("service", SERVER) is None
    assert planned.kube.get("networkpolicy", SERVER) is None
