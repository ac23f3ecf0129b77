"""The command line against a real API server: lists, fields, rights, requests by hand, and as a plugin of kubectl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client
from skipstone_cli.app import app
from skipstone_cli.cluster import api as cluster_api
from skipstone_cli.cluster.kubeconfig import Access, load_login
from skipstone_cli.cluster.transport import Ask, Transport
from skipstone_cli.errors import CliError
from skipstone_operator.resources.kinds import GROUP, KINDS, VERSION
from typer.testing import CliRunner, Result

from tests.cluster.controlplane import ControlPlane
from tests.cluster.shell import wait_until
from tests.cluster.toolchain import find_tool
from tests.kube.cases import INDEX, LOAD, TABLE, WAREHOUSE, Manifest, manifest

TIME = "2026-01-02T03:04:05Z"
MAINTAINED = {**TABLE, "maintenance": {"compaction": {}, "snapshots": {"maxAge": "5d"}}}
Run = Callable[..., Result]


def condition(kind: str, status: str, reason: str, message: str = "") -> Manifest:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": TIME}


READY = condition("Ready", "True", "Checked")


@pytest.fixture
def run(control_plane: ControlPlane, namespace: str) -> Run:
    """The command line as the administrator, in a fresh namespace."""

    def command(*arguments: str, **environment: str) -> Result:
        given = {"KUBECONFIG": str(control_plane.kubeconfig_admin), "NO_COLOR": "1", **environment}
        return CliRunner().invoke(app, [*arguments, "-n", namespace], env=given)

    return command


@pytest.fixture
def put(api: client.CustomObjectsApi, namespace: str) -> Callable[..., Manifest]:
    """Stores an object with a status; the object as it is then."""

    def store(kind: str, name: str, spec: Manifest, *conditions: Manifest, **status: Any) -> Manifest:
        plural = KINDS[kind].plural
        made = api.create_namespaced_custom_object(GROUP, VERSION, namespace, plural, manifest(kind, spec, name))
        told = {**made, "status": {"observedGeneration": 1, "conditions": list(conditions), **status}}
        found: Manifest = api.replace_namespaced_custom_object_status(GROUP, VERSION, namespace, plural, name, told)
        return found

    return store


def test_status_and_why_read_what_the_api_server_stores(
    run: Run,
    put: Callable[..., Manifest],
    api_client: client.ApiClient,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_api, "PAGE", 2)
    put("Warehouse", "lake", WAREHOUSE, READY)
    for name in ("orders", "b", "c", "d", "e"):
        identifier = {"namespace": "sales", "name": name}
        put("Table", name, {**TABLE, "identifier": identifier}, READY, rows=3)
    put("SecondaryIndex", "by-id", INDEX, READY, synced="1/2", missing="2", segments={"total": 2, "missing": 1})
    waiting = condition("Progressing", "False", "WaitingForTurn", "an older job goes first")
    put("LoadJob", "first", LOAD, condition("Progressing", "True", "DriverPending"), currentRun={
        "id": "x-y-1", "kind": "Load", "startTime": TIME})  # fmt: skip
    second = put("LoadJob", "second", LOAD, waiting)
    result = run("status")
    assert result.exit_code == 0
    assert [line.strip("│├└─ ").split()[0] for line in result.stdout.splitlines()] == [
        "wh/lake", "tbl/b", "tbl/c", "tbl/d", "tbl/e", "tbl/orders", "si/by-id", "lj/second", "lj/first",
    ]  # fmt: skip
    assert "SYNCED 1/2  missing 2 (lag 1 segments)" in result.stdout
    assert "no resource of Skipstone" not in run("status", "-A").stderr

    events = client.EventsV1Api(api_client)
    regarding = {"kind": "LoadJob", "name": "second", "namespace": namespace, "uid": second["metadata"]["uid"]}
    for name, reason in (("one", "WaitingForTurn"), ("two", "Suspended")):
        mine = regarding if name == "one" else {**regarding, "uid": "other"}
        events.create_namespaced_event(namespace, event(name, reason, mine))
    why = run("why", "lj/second")
    assert (why.exit_code, why.stderr) == (0, "")
    assert "lj/first is older and goes first" in why.stdout
    assert "Normal  WaitingForTurn" in why.stdout
    assert "Suspended" not in why.stdout


def event(name: str, reason: str, regarding: Manifest) -> Manifest:
    return {
        "metadata": {"name": name}, "eventTime": "2026-01-02T03:04:05.100000Z", "type": "Normal", "reason": reason,
        "action": "Decide", "note": "said", "reportingController": "skipstone.dev/operator", "reportingInstance": "o",
        "regarding": {"apiVersion": f"{GROUP}/{VERSION}", **regarding},
    }  # fmt: skip


def test_a_driver_that_has_not_started_is_found_by_its_labels(
    run: Run, put: Callable[..., Manifest], api_client: client.ApiClient, namespace: str
) -> None:
    owner = put("LoadJob", "l", LOAD, condition("Progressing", "True", "DriverPending"))
    for number, uid in ((1, owner["metadata"]["uid"]), (2, owner["metadata"]["uid"]), (3, "other")):
        labels = {
            "spark-role": "driver", "skipstone.dev/owner-uid": uid, "skipstone.dev/run-id": f"a-b-{number}",
            "skipstone.dev/operation": "Load",
        }  # fmt: skip
        containers = [{"name": "spark-kubernetes-driver", "image": "none"}]
        pod = {"metadata": {"name": f"a-b-{number}-driver", "labels": labels}, "spec": {"containers": containers}}
        client.CoreV1Api(api_client).create_namespaced_pod(namespace, pod)
    assert "driver pod a-b-2-driver (Load, attempt 2) has not started" in run("logs", "lj/l").stderr
    assert "driver pod a-b-1-driver (Load, attempt 1) has not started" in run("logs", "lj/l", "--attempt", "1").stderr
    assert "Waits for    tbl/orders does not exist" in run("why", "lj/l").stdout
    assert "there is no LoadJob other in namespace" in run("logs", "lj/other").stderr


@pytest.mark.cluster("it has no users and no roles")
def test_rights_are_those_that_the_page_lists(
    run: Run, put: Callable[..., Manifest], api_client: client.ApiClient, namespace: str
) -> None:
    put("SecondaryIndex", "by-id", INDEX, READY)
    nobody = run("status", "--as", "nobody")
    assert (nobody.exit_code, "you may not list warehouses" in nobody.stderr) == (2, True)
    rights = client.RbacAuthorizationV1Api(api_client)
    page = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()
    rules = page.partition("```yaml\n")[2].partition("```")[0]
    role = {"metadata": {"name": "people"}, **yaml.safe_load(rules)}
    rights.create_namespaced_role(namespace, role)
    subject = {"kind": "Group", "name": "people", "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"kind": "Role", "name": "people", "apiGroup": "rbac.authorization.k8s.io"}
    rights.create_namespaced_role_binding(
        namespace, {"metadata": {"name": "people"}, "roleRef": reference, "subjects": [subject]}
    )
    jane = ("--as", "jane", "--as-group", "others", "--as-group", "people")
    for command in (("status",), ("why", "si/by-id"), ("reindex", "si/by-id")):
        assert run(*command, *jane).exit_code == 0, command
    assert "you may not list warehouses in all namespaces" in run("status", "-A", *jane).stderr


def test_a_request_is_waited_for_until_the_operator_has_answered_it(
    run: Run,
    put: Callable[..., Manifest],
    api: client.CustomObjectsApi,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = {"id": "r1", "kind": "Reindex", "result": "Succeeded"}
    put("SecondaryIndex", "by-id", INDEX, READY, lastRun=ended, synced="1/2")
    put("Table", "orders", MAINTAINED, READY)

    def answer(plural: str, name: str, annotation: str, observed: str, **status: Any) -> Callable[[float], None]:
        """What the operator does while the command line sleeps."""

        def tick(_seconds: float) -> None:
            obj = api.get_namespaced_custom_object(GROUP, VERSION, namespace, plural, name)
            told = {**obj["status"], **status, observed: obj["metadata"]["annotations"][annotation]}
            api.replace_namespaced_custom_object_status(
                GROUP, VERSION, namespace, plural, name, {**obj, "status": told}
            )

        return tick

    reindexed = {"lastRun": {**ended, "id": "r2"}, "synced": "2/2"}
    monkeypatch.setattr(
        "time.sleep", answer("secondaryindexes", "by-id", "skipstone.dev/reindex", "observedReindex", **reindexed)
    )
    result = run("reindex", "si/by-id", "--wait")
    assert (result.exit_code, result.stdout) == (0, "si/by-id: the reindex ended; synced: 2/2\n")
    step = {"step": "Compaction", "run": "m1", "time": TIME, "done": False, "reason": "GivingWay"}
    maintained = {"lastMaintainRun": {"id": "m1", "kind": "Maintain", "result": "Succeeded"}, "lastMaintenance": [step]}
    monkeypatch.setattr(
        "time.sleep", answer("tables", "orders", "skipstone.dev/maintain", "observedMaintain", **maintained)
    )
    failed = run("maintain", "tbl/orders", "--step", "Compaction", "--wait")
    assert (failed.exit_code, "not all was done: Compaction: GivingWay" in failed.stderr) == (1, True)


def test_certificates_are_checked_unless_the_kubeconfig_says_not_to(
    control_plane: ControlPlane, run: Run, tmp_path: Path
) -> None:
    document = yaml.safe_load(control_plane.kubeconfig_admin.read_text())
    for (entry,) in [document["clusters"]]:
        for name in [name for name in entry["cluster"] if name.startswith("certificate-authority")]:
            del entry["cluster"][name]
        path = tmp_path / "config"
        path.write_text(yaml.safe_dump(document))
        refused = run("status", KUBECONFIG=str(path))
        assert (refused.exit_code, "certificate" in refused.stderr) == (3, True)
        entry["cluster"]["insecure-skip-tls-verify"] = True
        path.write_text(yaml.safe_dump(document))
        assert run("status", KUBECONFIG=str(path)).exit_code == 0


def test_a_group_that_is_not_served_is_told_from_an_object_that_is_missing(
    control_plane: ControlPlane, run: Run
) -> None:
    transport = Transport(load_login(Access(kubeconfig=str(control_plane.kubeconfig_admin))))
    with pytest.raises(CliError, match=r"does not serve apis/other\.dev/v1: install the CRDs"):
        transport.read(Ask(path=("apis", "other.dev", "v1", "tables"), right="list tables"), kind="TableList")
    assert "there is no Table a in namespace" in run("why", "tbl/a").stderr
    assert "there is no resource of Skipstone in namespace" in run("status").stderr


def test_kubectl_runs_it_as_a_plugin_and_completes_it(
    control_plane: ControlPlane, run: Run, put: Callable[..., Manifest], namespace: str, tmp_path: Path
) -> None:
    programs = {
        "kubectl-skipstone": "-m skipstone_cli",
        "kubectl_complete-skipstone": "-c 'from skipstone_cli.__main__ import complete; complete()'",
    }
    for name, program in programs.items():
        (tmp_path / name).write_text(f'#!/bin/sh\nexec {sys.executable} {program} "$@"\n')
        (tmp_path / name).chmod(0o755)
    environment = {
        **os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "KUBECONFIG": str(control_plane.kubeconfig_admin)
    }  # fmt: skip
    words = [find_tool("kubectl"), "skipstone", "status", "-n", namespace, "-o", "json"]
    said = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=300)
    assert json.loads(said.stdout)["items"] == json.loads(run("status", "-o", "json").stdout)["items"] == []
    put("Table", "orders", TABLE, READY)
    words = [find_tool("kubectl"), "__complete", "skipstone", "why", "-n", namespace, "tbl/"]

    def offers_names() -> bool:
        said = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=300)
        return said.stdout.splitlines() == ["tbl/orders", ":4"]

    # On a busy machine the three seconds that Tab may take are soon over.
    wait_until(offers_names, seconds=60, failure="kubectl does not complete names of Tables")
