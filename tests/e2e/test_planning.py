"""A Warehouse with spec.planning: engines that know nothing of Skipstone read through its indexes."""

from __future__ import annotations

import base64
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from demo.kube import Kube, address, condition
from tests.cluster.controlplane import SERVICE_IP
from tests.docs.blocks import blocks_of
from tests.e2e.attempts import address_of, listening_pod, policy, until_attempts
from tests.e2e.lake import PATIENCE, Lake, index, table, warehouse

JsonObject = dict[str, Any]
SERVER, SECRET = "lake-planning", "readers"
PAGE = "docs/guide/planning.md"
PLANNING: JsonObject = {"tokensSecretRef": {"name": SECRET}, "resources": {"requests": {"cpu": "100m"}}}
READER = {"reads": "lake"}
SEGMENTS = 6


def rows_of(segment: int) -> list[JsonObject]:
    """Rows named from ``a<segment>`` to ``z<segment>``, so that min/max of every segment cover nearly all names."""
    names = [f"{letter}{segment}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    return [{"id": 1000 * segment + i, "name": name, "city": "Oslo", "born": None} for i, name in enumerate(names)]


@pytest.fixture(scope="module")
def planned(lakes: dict[str, Lake]) -> Iterator[Lake]:
    """A table of six segments whose index covers all, in a Warehouse with a planning server."""
    lake = lakes["e2e-planning"]
    follow(lake.kube, "kubectl create secret generic readers")
    lake.apply(warehouse(planning=PLANNING), table(refreshIntervalSeconds=30))
    lake.until_condition("tbl", "people", "Ready")
    lake.append(*map(rows_of, range(1, SEGMENTS + 1)))
    lake.apply(index("by-name", ["name"]))
    lake.until("si", "by-name", lambda found: found.get("status", {}).get("synced") == f"{SEGMENTS}/{SEGMENTS}")
    yield lake
    lake.apply(warehouse(), table(refreshIntervalSeconds=0))


def follow(kube: Kube, begins: str, **variables: str) -> str:
    """Run the one block of the page that begins so, as it is printed; returns what it prints."""
    (block,) = [block for block in blocks_of(PAGE) if block.text.startswith(begins)]
    commands = 'kubectl() { "$KUBECTL" --namespace "$NAMESPACE" "$@"; }\n' + block.text.replace("WAREHOUSE", "lake")
    names = {"KUBECTL": kube.kubectl, "NAMESPACE": kube.namespace}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands + 'echo "${new-}"'],
        env={**kube.environment, **names, **variables},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def token_of(lake: Lake) -> str:
    """What the Secret of the callers holds."""
    return base64.b64decode(lake.kube.run("get", "secret", SECRET, "-o", "jsonpath={.data.tokens}")).decode()


def is_let_in(lake: Lake, token: str) -> bool:
    """Whether the server takes a token."""
    asked = urllib.request.Request(f"{address(lake.kube, SERVER)}/v1/namespaces")
    asked.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(asked):
            return True
    except urllib.error.HTTPError as error:
        if error.code != 401:
            raise
        return False


@pytest.mark.parametrize("engine", ["pyiceberg", "spark", "connect"])
def test_stock_engines_open_the_one_file_that_matches(planned: Lake, engine: str) -> None:
    ready = planned.until("wh", "lake", lambda found: condition(found, "PlanningReady").get("status") == "True")
    assert ready["status"]["planning"]["url"] == f"http://{SERVER}.{planned.kube.namespace}.svc:8181"
    told = planned.ask(
        "planned", "planned.py", engine, address(planned.kube, SERVER), token_of(planned), "db.people", "name", "m4"
    )
    assert (told["rows"], told["files"], told["left"]) == ([[4012, "m4"]], SEGMENTS, 1)
    assert (told["namespaces"], told["tables"]) == (["db"], ["db.people"])
    assert told["drop"] != "dropped"
    assert told["stranger"] == "UnauthorizedError"
    assert not told["knows_skipstone"]


def test_only_those_whom_the_policy_names_connect_and_the_server_needs_no_way_out(planned: Lake) -> None:
    kube, anybody = planned.kube, planned.kube.within("default")
    planned.until("wh", "lake", lambda found: condition(found, "PlanningReady").get("status") == "True")
    (server,) = kube.items("pods", "app.kubernetes.io/component=planning")
    direct, beside = (f"{server['status']['podIP']}:{port}" for port in (8181, 8182))
    service = address(kube, SERVER).removeprefix("http://")
    kube.apply(listening_pod(kube, "reader", {}, READER), listening_pod(kube, "stranger", {}, {}))
    anybody.apply(listening_pod(kube, "stranger", {}, READER))
    for lake, pod in ((kube, "reader"), (kube, "stranger"), (anybody, "stranger")):
        address_of(lake, pod)
        until_attempts(lake, pod, (direct, "open"), (service, "open"), (beside, "dropped"))
    nowhere = {"podSelector": {"matchLabels": {"app.kubernetes.io/component": "planning"}}, "policyTypes": ["Egress"]}
    kube.apply(policy("nowhere", nowhere))
    planned.apply(warehouse(planning=PLANNING | {"allowFrom": [{"podSelector": {"matchLabels": READER}}]}))
    until_attempts(kube, "stranger", (direct, "dropped"), (service, "dropped"), (beside, "dropped"))
    until_attempts(anybody, "stranger", (direct, "dropped"), (service, "dropped"), (beside, "dropped"))
    until_attempts(kube, "reader", (direct, "open"), (service, "open"), (beside, "dropped"))
    until_attempts(kube, f"deploy/{SERVER}", (f"{SERVICE_IP}:443", "dropped"))
    arguments = ("pyiceberg", address(kube, SERVER), token_of(planned), "db.people", "name", "m4")
    told = planned.ask("planned", "planned.py", *arguments, labels=READER)
    assert (told["rows"], told["files"], told["left"]) == ([[4012, "m4"]], SEGMENTS, 1)
    (same,) = kube.items("pods", "app.kubernetes.io/component=planning")
    assert same["metadata"]["uid"] == server["metadata"]["uid"], "the server was rolled for its policy"
    assert condition(same, "Ready")["status"] == "True"
    anybody.run("delete", "pod", "stranger")
    kube.run("delete", "networkpolicy", "nowhere")


def test_the_server_has_no_rights_in_the_cluster(planned: Lake) -> None:
    planned.until("wh", "lake", lambda found: condition(found, "PlanningReady").get("status") == "True")
    account = f"system:serviceaccount:{planned.kube.namespace}:{SERVER}"
    for verb, kind in (("get", "secrets"), ("list", "pods"), ("get", "warehouses.skipstone.dev"), ("create", "pods")):
        assert planned.kube.run("auth", "can-i", verb, kind, f"--as={account}", check=False).strip() == "no"
    pods = planned.kube.items("pods", "app.kubernetes.io/component=planning")
    assert pods
    for pod in pods:
        assert pod["spec"]["automountServiceAccountToken"] is False


def test_a_token_is_replaced_as_the_page_says(planned: Lake) -> None:
    old = token_of(planned)
    new = follow(planned.kube, 'old="$(kubectl').splitlines()[-1]
    # A replica that ends may be asked a moment longer.
    planned.kube.wait_for(
        "both are taken", lambda: is_let_in(planned, old) and is_let_in(planned, new), seconds=PATIENCE
    )
    follow(planned.kube, "kubectl patch secret readers", new=new)
    planned.kube.wait_for("the old one is refused", lambda: not is_let_in(planned, old), seconds=PATIENCE)
    assert is_let_in(planned, new)
    assert token_of(planned) == new


def test_the_key_of_pages_is_replaced_as_the_page_says(planned: Lake) -> None:
    kube, token = planned.kube, token_of(planned)
    before = keys_of(planned)
    kube.run("delete", "secret", *before)
    follow(kube, "kubectl delete configmap")
    kube.wait_for("a new key", lambda: not keys_of(planned) & before, seconds=PATIENCE)
    kube.run("rollout", "status", f"deployment/{SERVER}", f"--timeout={PATIENCE:.0f}s")
    kube.run("get", "secret", *keys_of(planned))
    assert is_let_in(planned, token)


def keys_of(lake: Lake) -> set[str]:
    """Secrets of the server itself, as its Deployment names them."""
    (container,) = (lake.kube.get("deployment", SERVER) or {})["spec"]["template"]["spec"]["containers"]
    named = {variable["valueFrom"]["secretKeyRef"]["name"] for variable in container["env"] if "valueFrom" in variable}
    return named - {SECRET}


def test_without_the_field_the_server_goes(planned: Lake) -> None:
    planned.apply(warehouse())
    planned.kube.wait_for(
        "the end of the server", lambda: planned.kube.get("deployment", SERVER) is None, seconds=PATIENCE
    )
    planned.until("wh", "lake", lambda found: not condition(found, "PlanningReady"))
    assert planned.kube.get("service", SERVER) is None
    assert planned.kube.get("networkpolicy", SERVER) is None
