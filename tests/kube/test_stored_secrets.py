"""Nothing that the API server stores, but the Secret itself, holds a credential.

Drivers do their real work; one dies, and its log becomes the termination message, as a kubelet has it.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from skipstone.scrubbing import MASK
from skipstone_core.contract.requests import JobRequest, RunKind
from skipstone_operator.adapters.events import KubeEvents

from tests.cluster.controlplane import ControlPlane
from tests.kube.faults.driver import drive
from tests.kube.faults.kubelet import Driven
from tests.kube.reconcile_lab import Site, run_scenario
from tests.kube.test_reconcile_server import data_claim
from tests.unit.objects import load, table, warehouse

PASSWORD = "canary password/5e1f"
FORMS = (PASSWORD, "canary%20password%2F5e1f", base64.b64encode(PASSWORD.encode()).decode())
#: A driver whose libraries quote what they were given, on every way to the log.
CARELESS = f"""
import logging, sys, warnings
from skipstone.runs.main import run_app
from skipstone_core.contract.requests import RunKind
def run(request, reporter):
    warnings.warn("cannot connect with {PASSWORD}", stacklevel=1)
    logging.getLogger("library").error("password=%s", "{PASSWORD}")
    raise RuntimeError("postgresql://me:{PASSWORD}@h")
sys.exit(run_app(RunKind.LOAD, run))
"""
KINDS = "pods,configmaps,events,serviceaccounts,persistentvolumeclaims,leases,warehouses,tables,loadjobs"
#: What a kubelet keeps of a log.
TAIL = 2048
#: No more than a bound: a machine with much to do takes as long as it takes.
SECONDS = 600.0


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The Warehouse's folder; the environment is that of its pods."""
    monkeypatch.setenv("SKIPSTONE_CATALOG_PASSWORD", PASSWORD)
    for name in ("SKIPSTONE_REQUEST", "SKIPSTONE_REPORT"):
        monkeypatch.setenv(name, "")  # the driver sets them: they go away with the test
    return tmp_path


def careless(request: str, root: Path) -> Driven:
    """A driver that ends before it can report."""
    asked = root / "request.json"
    asked.write_text(request)
    environment = {**os.environ, "SKIPSTONE_REQUEST": str(asked), "SKIPSTONE_REPORT": str(root / "lost.json")}
    command = [sys.executable, "-c", CARELESS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    return Driven(137, (done.stdout + done.stderr)[-TAIL:], "")


def stored(plane: ControlPlane, namespace: str) -> dict[str, Any]:
    """All that the API server has of a namespace, by kind and name."""
    found = json.loads(plane.kubectl("get", KINDS, "--namespace", namespace, "--output", "json"))["items"]
    return {f"{one['kind']} {one['metadata']['name']}": one for one in found}


def test_the_api_server_stores_no_credential(
    control_plane: ControlPlane, namespace: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig_admin))
    secret = f"--from-literal=SKIPSTONE_CATALOG_PASSWORD={PASSWORD}"
    control_plane.kubectl("create", "secret", "generic", "login", secret, "--namespace", namespace)

    async def scenario(site: Site) -> None:
        site.events = KubeEvents(site.kube.connection, site.clock, "operator-0")  # type: ignore[assignment]
        site.kubelet.root, site.kubelet.drive = str(root), driver(root)
        login = {"name": "login", "keys": ["SKIPSTONE_CATALOG_PASSWORD"]}
        await site.apply(data_claim(), warehouse(credentialsSecretRef=login), table())
        await site.apply(load("dies", backoffLimit=0))

        async def failed() -> bool:
            return (await site.condition("LoadJob", "dies", "Failed"))[0] == "True"

        await site.until(failed, "the load fails", SECONDS)

    run_scenario(control_plane, namespace, scenario)
    objects = stored(control_plane, namespace)
    kinds = {name.split()[0] for name in objects}
    assert kinds >= {"Pod", "ConfigMap", "Event", "Warehouse", "Table", "LoadJob"}
    texts = {name: json.dumps(one, ensure_ascii=False) for name, one in objects.items()}
    assert MASK in texts["LoadJob dies"]
    assert {name: found for name, text in texts.items() if (found := [one for one in FORMS if one in text])} == {}


def driver(root: Path) -> Callable[[str, str], Driven]:
    """Drives every run for real but the load, which dies."""

    def dispatch(request: str, folder: str) -> Driven:
        is_load = JobRequest.from_json(request).kind is RunKind.LOAD
        return careless(request, root) if is_load else drive(request, folder)

    return dispatch
