"""The operator as a process with the chart's own Roles against a real API server: start, rest, hand-over, end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import yaml
from kubernetes import client

from tests.cluster.controlplane import ControlPlane
from tests.cluster.shell import wait_until
from tests.cluster.toolchain import build_tools
from tests.kube.forked import ForkedOperator
from tests.ports import free_port
from tests.unit import objects

CHART = Path(__file__).resolve().parents[2] / "charts" / "skipstone"
LEASE = "skipstone-operator"
#: An operator whose resync comes round every few seconds instead of every few minutes. Neither a late watch nor a late
#: Lease ends it: the machine may have more to do than it can.
RESYNCING = """
import functools, os, sys
import skipstone_operator.__main__ as program
from skipstone_operator.runtime.lease import LeaseTiming
from skipstone_operator.runtime.resync import ResyncTiming
program.Lease = functools.partial(program.Lease, timing=LeaseTiming(give_up=600.0))
sys.exit(program.main(os.environ, ResyncTiming(interval=6.0, patience=3.0, tolerated_rounds=1000)))
"""
OFTEN = ("-c", RESYNCING)
PROGRAM = ("-m", "skipstone_operator")
WRITES = {"create", "update", "patch", "delete", "deletecollection"}


@dataclass
class Operator:
    """One operator process. Its log is JSON, one object a line. Without ``command`` it is forked."""

    environment: dict[str, str]
    log: Path
    command: tuple[str, ...] = ()
    probe: int = field(default_factory=free_port)
    metrics: int = field(default_factory=free_port)
    dashboard: int = field(default_factory=free_port)

    def start(self) -> None:
        ports = {"SKIPSTONE_PROBE_PORT": str(self.probe), "SKIPSTONE_METRICS_PORT": str(self.metrics)}
        ports["SKIPSTONE_DASHBOARD_PORT"] = str(self.dashboard)
        environment = {**self.environment, **ports}
        if not self.command:
            self.process: subprocess.Popen[bytes] | ForkedOperator = ForkedOperator(environment, self.log)
            return
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([sys.executable, *self.command], env=environment, stdout=log, stderr=log)

    def messages(self) -> list[str]:
        return [json.loads(line)["message"] for line in self.log.read_text().splitlines()]

    def get(self, port: int, path: str) -> tuple[int, str]:
        """Status and text; (0, "") when nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""
        except (URLError, OSError):
            return 0, ""

    def wait_healthy(self) -> None:
        wait_until(
            lambda: self.process.poll() is not None or self.get(self.probe, "/healthz")[0] == 200,
            seconds=300,
            failure="the operator did not become healthy",
        )
        assert self.process.poll() is None, self.log.read_text()

    def wait_end(self) -> int:
        return self.process.wait(timeout=300)

    def kill(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture(scope="module")
def helm() -> Path:
    return build_tools(["helm"])["helm"]


@pytest.fixture
def environment(control_plane: ControlPlane, namespace: str, helm: Path) -> dict[str, str]:
    """The variables of an operator in ``namespace`` that has the rights which the chart gives."""
    return prepare_namespace(control_plane, namespace, render_chart(helm, namespace))


def render_chart(helm: Path, namespace: str, *values: str) -> str:
    """The manifests of a release in ``namespace``, but for the CRDs."""
    command = [helm, "template", "skipstone", CHART, "--namespace", namespace, "--set", "crds.enabled=false", *values]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout


def prepare_namespace(plane: ControlPlane, namespace: str, rendered: str) -> dict[str, str]:
    """Apply what the operator needs of the chart; the variables of an operator with its rights."""
    plane.kubectl(
        "apply", "--namespace", namespace, "--selector", "app.kubernetes.io/component in (operator,spark)",
        "--prune=false", "--filename", "-",
        text_input=without_workloads(rendered),
    )  # fmt: skip
    config = plane.service_account_kubeconfig(namespace, "skipstone")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SKIPSTONE_", "POD_"))}
    return kept | {
        "KUBECONFIG": str(config),
        "SKIPSTONE_NAMESPACES": namespace,
        "SKIPSTONE_OPERATOR_NAMESPACE": namespace,
        "SKIPSTONE_SPARK_IMAGE": "skipstone/spark:test",
        "SKIPSTONE_LEASE_NAME": LEASE,
    }


def without_workloads(rendered: str) -> str:
    """No node runs here, so what would need one is left out, and what the API server has no kind for."""
    left_out = ("kind: Deployment", "apiVersion: monitoring.coreos.com/")
    return "\n---\n".join(part for part in rendered.split("\n---\n") if not any(name in part for name in left_out))


@pytest.fixture
def operators(environment: dict[str, str], tmp_path: Path) -> Iterator[list[Operator]]:
    """Two operators that are not started yet; killed at the end."""
    found = [Operator(environment | {"POD_NAME": f"operator-{n}"}, tmp_path / f"{n}.log") for n in range(2)]
    yield found
    for operator in found:
        if hasattr(operator, "process"):
            operator.kill()


@pytest.fixture
def leases(api_client: client.ApiClient) -> client.CoordinationV1Api:
    return client.CoordinationV1Api(api_client)


def holder(leases: client.CoordinationV1Api, namespace: str) -> str:
    try:
        return leases.read_namespaced_lease(LEASE, namespace).spec.holder_identity or ""
    except client.ApiException:
        return ""


def writes_by(plane: ControlPlane, namespace: str) -> list[dict[str, Any]]:
    """The operator's own writes so far, from the audit log."""
    user = f"system:serviceaccount:{namespace}:skipstone"
    events: list[dict[str, Any]] = plane.read_audit()  # type: ignore[assignment]
    return [event for event in events if event["user"].get("username") == user and event["verb"] in WRITES]


def warehouse(name: str, catalog: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "skipstone.dev/v1alpha1",
        "kind": "Warehouse",
        "metadata": {"name": name},
        "spec": {"catalog": catalog or {"type": "Sql"}, "storage": {"pvc": {"claimName": "missing"}}},
    }


def table(name: str) -> dict[str, Any]:
    return {**objects.table(name, warehouseRef={"name": "lake"}), "metadata": {"name": name}}


def create(api: client.CustomObjectsApi, namespace: str, body: dict[str, Any], plural: str = "warehouses") -> None:
    api.create_namespaced_custom_object("skipstone.dev", "v1alpha1", namespace, plural, body)


def ready_reason(api: client.CustomObjectsApi, namespace: str, name: str, plural: str = "warehouses") -> str:
    found: Any = api.get_namespaced_custom_object("skipstone.dev", "v1alpha1", namespace, plural, name)
    conditions = found.get("status", {}).get("conditions", [])
    return next((c["reason"] for c in conditions if c["type"] == "Ready"), "")


def test_at_rest_the_lease_is_all_that_is_written(
    operators: list[Operator], control_plane: ControlPlane, api: client.CustomObjectsApi, namespace: str
) -> None:
    create(api, namespace, warehouse("lake"))
    operators[0].command = OFTEN
    operators[0].start()
    operators[0].wait_healthy()
    wait_until(
        lambda: ready_reason(api, namespace, "lake") == "ClaimNotFound", seconds=300, failure="no verdict on the claim"
    )
    wait_until(lambda: is_settled(control_plane, namespace), seconds=300, failure="the operator did not settle")
    before, listed = len(writes_by(control_plane, namespace)), lists_by(control_plane, namespace)
    wait_until(
        lambda: len(writes_by(control_plane, namespace)) >= before + 3, seconds=300, failure="the lease rested too"
    )
    wait_until(lambda: lists_by(control_plane, namespace) >= listed + 2, seconds=300, failure="no resync came round")
    rest = writes_by(control_plane, namespace)[before:]
    assert {(event["verb"], event["objectRef"]["resource"]) for event in rest} == {("update", "leases")}
    assert operators[0].process.poll() is None
    wait_until(
        lambda: "skipstone_watch_stale_objects 0.0" in operators[0].get(operators[0].metrics, "/metrics")[1],
        seconds=300,
        failure="the watch stayed late",
    )


def lists_by(plane: ControlPlane, namespace: str) -> int:
    """How often the operator listed the Warehouses so far."""
    user = f"system:serviceaccount:{namespace}:skipstone"
    events: list[dict[str, Any]] = plane.read_audit()  # type: ignore[assignment]
    asked = [event for event in events if event["user"].get("username") == user and event["verb"] == "list"]
    return sum(event["objectRef"]["resource"] == "warehouses" for event in asked)


def is_settled(plane: ControlPlane, namespace: str) -> bool:
    """Whether the last three writes were the lease's."""
    return [event["objectRef"]["resource"] for event in writes_by(plane, namespace)[-3:]] == ["leases"] * 3


def test_a_new_object_is_seen_at_once_and_an_edited_status_is_mended(
    operators: list[Operator], api: client.CustomObjectsApi, namespace: str
) -> None:
    operators[0].start()
    operators[0].wait_healthy()
    create(api, namespace, warehouse("late"))
    wait_until(lambda: ready_reason(api, namespace, "late") == "ClaimNotFound", seconds=300, failure="not reconciled")
    api.patch_namespaced_custom_object_status(
        "skipstone.dev", "v1alpha1", namespace, "warehouses", "late", {"status": {"conditions": []}}
    )
    wait_until(lambda: ready_reason(api, namespace, "late") == "ClaimNotFound", seconds=300, failure="not fixed")
    series = f'skipstone_resource_ready{{kind="Warehouse",name="late",namespace="{namespace}"}} 0.0'

    def measured() -> bool:
        return series in operators[0].get(operators[0].metrics, "/metrics")[1]

    wait_until(measured, seconds=300, failure="not measured")
    api.delete_namespaced_custom_object("skipstone.dev", "v1alpha1", namespace, "warehouses", "late")
    wait_until(lambda: not measured(), seconds=300, failure="still measured")


def test_a_status_of_another_release_keeps_nothing_from_going_on(
    operators: list[Operator], api: client.CustomObjectsApi, namespace: str
) -> None:
    operators[0].start()
    operators[0].wait_healthy()
    create(api, namespace, warehouse("downgraded"))
    wait_until(lambda: ready_reason(api, namespace, "downgraded") != "", seconds=300, failure="not reconciled")
    last = {"id": "x", "kind": "Check", "result": "Failed", "reason": "FromTheFuture", "generation": 1}
    api.patch_namespaced_custom_object_status(
        "skipstone.dev", "v1alpha1", namespace, "warehouses", "downgraded",
        {"status": {"lastRun": last, "retryTime": "2099-01-01T00:00:00Z", "conditions": []}},
    )  # fmt: skip
    wait_until(
        lambda: ready_reason(api, namespace, "downgraded") == "ClaimNotFound", seconds=300, failure="not read any more"
    )


def test_probe_metrics_and_dashboard_answer(
    operators: list[Operator], api: client.CustomObjectsApi, namespace: str
) -> None:
    create(api, namespace, warehouse("shown"))
    operators[0].start()
    operators[0].wait_healthy()
    status, text = operators[0].get(operators[0].metrics, "/metrics")
    assert status == 200
    assert 'skipstone_runs_total{kind="Load",reason="Committed"} 0.0' in text
    assert "skipstone_leader 1.0" in text
    assert "skipstone_resync_age_seconds" in text
    page = f"/namespaces/{namespace}"
    wait_until(
        lambda: f"{namespace}/shown" in operators[0].get(operators[0].dashboard, page)[1],
        seconds=300,
        failure="the dashboard did not show the Warehouse",
    )
    assert operators[0].get(operators[0].dashboard, "/namespaces/elsewhere")[0] == 404


def test_sigterm_ends_the_operator_and_frees_the_lease(
    operators: list[Operator], leases: client.CoordinationV1Api, namespace: str
) -> None:
    operators[0].command = PROGRAM
    operators[0].start()
    operators[0].wait_healthy()
    assert holder(leases, namespace) == "operator-0"
    operators[0].process.terminate()
    assert operators[0].wait_end() == 0
    assert holder(leases, namespace) == ""


def test_a_second_operator_waits_for_the_lease_and_takes_over_when_the_first_is_killed(
    operators: list[Operator], leases: client.CoordinationV1Api, namespace: str
) -> None:
    first, second = operators
    first.start()
    first.wait_healthy()
    second.start()
    wait_until(lambda: "waiting for the lease" in second.messages(), seconds=300, failure="the second did not wait")
    assert second.get(second.probe, "/healthz")[0] == 0
    assert (first.get(first.dashboard, "/")[0], second.get(second.dashboard, "/")[0]) == (200, 503)
    first.kill()
    second.wait_healthy()
    assert holder(leases, namespace) == "operator-1"


def test_an_operator_that_loses_the_lease_ends(
    operators: list[Operator], leases: client.CoordinationV1Api, namespace: str
) -> None:
    operators[0].start()
    operators[0].wait_healthy()
    leases.patch_namespaced_lease(LEASE, namespace, {"spec": {"holderIdentity": "usurper"}})
    assert operators[0].wait_end() == 1
    assert operators[0].messages()[-1] == "ending: the lease is lost: held by usurper"
    assert holder(leases, namespace) == "usurper"


@pytest.mark.cluster("it has no users and no roles")
def test_without_rights_in_any_namespace_the_start_ends_with_one_sentence(operators: list[Operator]) -> None:
    operators[0].environment["SKIPSTONE_NAMESPACES"] = "default"
    operators[0].start()
    assert operators[0].wait_end() == 1
    assert operators[0].messages()[-1].startswith("ending: namespace default: the operator may not list warehouses")


@pytest.mark.cluster("it has no users and no roles")
def test_a_namespace_without_rights_keeps_nobody_from_the_others_and_is_taken_in_when_it_gets_them(
    operators: list[Operator], control_plane: ControlPlane, api: client.CustomObjectsApi, namespace: str
) -> None:
    operator = operators[0]
    operator.environment["SKIPSTONE_NAMESPACES"] = f"default,{namespace}"
    operator.start()
    operator.wait_healthy()
    assert any(text.startswith("left out: namespace default") for text in operator.messages())
    create(api, namespace, warehouse("lake"))
    wait_until(lambda: ready_reason(api, namespace, "lake") == "ClaimNotFound", seconds=300, failure="not reconciled")
    subject = f"{namespace}:skipstone"
    control_plane.kubectl(
        "create", "rolebinding", namespace, "--namespace", "default", "--clusterrole", "cluster-admin",
        "--serviceaccount", subject,
    )  # fmt: skip
    try:
        assert operator.wait_end() == 1
        assert operator.messages()[-1] == "ending: namespace default can be watched now: starting again"
    finally:
        control_plane.kubectl("delete", "rolebinding", namespace, "--namespace", "default")


@pytest.mark.cluster("it has no users and no roles")
def test_a_namespace_that_loses_the_rights_keeps_the_resync_from_no_other(
    operators: list[Operator], control_plane: ControlPlane, namespace: str
) -> None:
    operator = operators[0]
    operator.environment["SKIPSTONE_NAMESPACES"] = f"default,{namespace}"
    binding = ("rolebinding", namespace, "--namespace", "default")
    subject = f"{namespace}:skipstone"
    control_plane.kubectl("create", *binding, "--clusterrole", "cluster-admin", "--serviceaccount", subject)
    operator.command = OFTEN
    try:
        operator.start()
        operator.wait_healthy()
    finally:
        control_plane.kubectl("delete", *binding)
    wait_until(
        lambda: any("resync" in text for text in operator.messages()), seconds=300, failure="no resync said anything"
    )
    said = [text for text in operator.messages() if "resync" in text]
    assert said[0].startswith("resync goes on without namespace default: LIST ")
    assert not [text for text in said if text.startswith("resync could not list")]


def test_two_tables_of_one_catalog_table_in_two_namespaces_have_one_owner(
    operators: list[Operator],
    control_plane: ControlPlane,
    api: client.CustomObjectsApi,
    second_namespace: str,
    namespace: str,
) -> None:
    operator = operators[0]
    operator.environment["SKIPSTONE_NAMESPACES"] = f"{namespace},{second_namespace}"
    control_plane.kubectl(
        "create", "rolebinding", "lake", "--namespace", second_namespace, "--clusterrole", "cluster-admin",
        "--serviceaccount", f"{namespace}:skipstone",
    )  # fmt: skip
    for place, uri in ((namespace, "http://catalog.example.com/"), (second_namespace, "http://CATALOG.example.com:80")):
        create(api, place, warehouse("lake", {"type": "Rest", "uri": uri}))
        create(api, place, table(f"flights-{place}"), "tables")
    operator.start()
    operator.wait_healthy()
    names = {place: f"flights-{place}" for place in (namespace, second_namespace)}

    def reasons() -> list[str]:
        return sorted(ready_reason(api, place, name, "tables") for place, name in names.items())

    wait_until(lambda: "" not in reasons(), seconds=300, failure="not reconciled")
    assert reasons() == ["ResourceConflict", "WarehouseNotReady"]


def test_an_api_server_that_is_late_is_waited_for(operators: list[Operator], tmp_path: Path) -> None:
    config = yaml.safe_load(Path(operators[0].environment["KUBECONFIG"]).read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    late = tmp_path / "late.kubeconfig"
    late.write_text(yaml.safe_dump(config))
    operators[0].environment["KUBECONFIG"] = str(late)
    operators[0].start()
    wait_until(
        lambda: any(text.startswith("waiting for the API server") for text in operators[0].messages()),
        seconds=300,
        failure="the operator did not wait",
    )
    assert operators[0].process.poll() is None


def test_a_bad_setting_ends_the_start_with_one_sentence(operators: list[Operator]) -> None:
    operators[0].environment["SKIPSTONE_WORKERS"] = "many"
    operators[0].command = PROGRAM
    operators[0].start()
    assert operators[0].wait_end() == 1
    (message,) = operators[0].messages()
    assert message == "ending: SKIPSTONE_WORKERS: 'many' is not a whole number from 1 to 256: correct it"
