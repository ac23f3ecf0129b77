"""What the accounts of runs may do to pods, with tokens that are bound to pods, on a real API server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from tests.cluster.controlplane import ControlPlane
from tests.cluster.shell import wait_until
from tests.kube.test_schema_chart import CHART, run_helm

pytestmark = pytest.mark.cluster("it has no users, no roles and no policies")
Obj = dict[str, Any]
MANAGED = {"app.kubernetes.io/managed-by": "skipstone-operator"}
REPORT = {"metadata": {"annotations": {"skipstone.dev/report": "{}"}}}


@pytest.fixture
def installed(control_plane: ControlPlane, namespace: str) -> Iterator[str]:
    """A namespace with the chart and its policies."""
    values = ("--set", "crds.enabled=false", "--set", "admissionPolicy.install=Always")
    admin = control_plane.kubeconfig_admin
    done = run_helm(admin, namespace, "install", "skipstone", str(CHART), *values)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: is_enforced(control_plane, namespace), seconds=300, failure="the policies are not in force")
    yield namespace
    assert run_helm(admin, namespace, "uninstall", "skipstone").returncode == 0


def is_enforced(plane: ControlPlane, namespace: str) -> bool:
    """Whether a pod with the label of runs is refused to others."""
    with config.new_client_from_config(str(plane.kubeconfig_admin)) as opened:
        try:
            client.CoreV1Api(opened).create_namespaced_pod(namespace, pod("probe", "default", MANAGED), dry_run="All")
        except ApiException as refused:
            return refused.status in (403, 422)
    return False


def pod(name: str, account: str, labels: dict[str, str], owner: Obj | None = None) -> Obj:
    metadata: Obj = {"name": name, "labels": labels}
    if owner is not None:
        reference = {"apiVersion": "v1", "kind": "Pod", "name": owner["name"], "uid": owner["uid"]}
        metadata["ownerReferences"] = [reference]
    spec = {"serviceAccountName": account, "containers": [{"name": "main", "image": "none"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@contextmanager
def acting(plane: ControlPlane, namespace: str, account: str, bound: Obj | None = None) -> Iterator[client.CoreV1Api]:
    """The API as an account sees it, with a token bound to a pod or to none."""
    spec: Obj = {"audiences": None, "expirationSeconds": 600}
    if bound is not None:
        spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": bound["name"], "uid": bound["uid"]}
    with config.new_client_from_config(str(plane.kubeconfig_admin)) as admin:
        core = client.CoreV1Api(admin)
        made = core.create_namespaced_service_account_token(account, namespace, {"spec": spec})
    settings = client.Configuration()
    settings.host, settings.ssl_ca_cert = plane.url, str(plane.ca)
    settings.api_key = {"authorization": f"Bearer {made.status.token}"}
    with client.ApiClient(settings) as opened:
        yield client.CoreV1Api(opened)


def refused(call: Callable[[], object]) -> str:
    """What the API server says against a call."""
    with pytest.raises(ApiException) as caught:
        call()
    assert caught.value.status in (403, 422)
    return str(caught.value.body)


def test_a_driver_changes_the_report_of_its_own_pod_and_nothing_else(
    control_plane: ControlPlane, installed: str
) -> None:
    own, other = drivers(control_plane, installed, "skipstone-spark-local")
    name = own["name"]
    with acting(control_plane, installed, "skipstone-spark-local", own) as core:
        core.patch_namespaced_pod(name, installed, REPORT)
        assert "its own pod only" in refused(lambda: core.patch_namespaced_pod(other["name"], installed, REPORT))
        for change in (
            {"metadata": {"labels": {"skipstone.dev/owner-uid": "other"}}},
            {"metadata": {"annotations": {"example.org/note": "x"}}},
            {"metadata": {"finalizers": ["example.org/stay"]}},
        ):
            assert "nothing else" in refused(lambda body=change: core.patch_namespaced_pod(name, installed, body))
        # Two policies refuse this, and either may answer.
        image = {"spec": {"containers": [{"name": "main", "image": "evil"}]}}
        assert "change" in refused(lambda: core.patch_namespaced_pod(name, installed, image))
    with acting(control_plane, installed, "skipstone-spark-local") as core:
        assert "its own pod only" in refused(lambda: core.patch_namespaced_pod(name, installed, REPORT))


def test_a_driver_creates_its_own_executors_only(control_plane: ControlPlane, installed: str) -> None:
    own, other = drivers(control_plane, installed, "skipstone-spark")
    executor = {**MANAGED, "spark-role": "executor"}
    with acting(control_plane, installed, "skipstone-spark", own) as core:
        core.create_namespaced_pod(installed, pod("exec-1", "skipstone-spark", executor, own))
        for wrong in (
            pod("exec-2", "skipstone-spark", executor, other),
            pod("exec-2", "skipstone-spark", executor),
            pod("exec-2", "skipstone", executor, own),
            pod("exec-2", "skipstone-spark", {**MANAGED, "spark-role": "driver"}, own),
        ):
            said = refused(lambda body=wrong: core.create_namespaced_pod(installed, body))
            assert "executors only" in said


def test_nobody_else_makes_pods_of_skipstone(
    control_plane: ControlPlane, installed: str, api_client: client.ApiClient
) -> None:
    own, _ = drivers(control_plane, installed, "skipstone-spark")
    core = client.CoreV1Api(api_client)
    core.create_namespaced_pod(installed, pod("plain", "default", {"app": "x"}))
    core.patch_namespaced_pod("plain", installed, {"metadata": {"labels": {"app": "y"}}})
    add, take = {"metadata": {"labels": MANAGED}}, {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}}
    assert "created by Skipstone only" in refused(
        lambda: core.create_namespaced_pod(installed, pod("x", "default", MANAGED))
    )
    assert "neither added nor removed" in refused(lambda: core.patch_namespaced_pod("plain", installed, add))
    assert "neither added nor removed" in refused(lambda: core.patch_namespaced_pod(own["name"], installed, take))
    image = {"spec": {"containers": [{"name": "main", "image": "evil"}]}}
    assert "image of a run" in refused(lambda: core.patch_namespaced_pod(own["name"], installed, image))
    core.delete_namespaced_pod(own["name"], installed, grace_period_seconds=0)


def drivers(plane: ControlPlane, namespace: str, account: str) -> tuple[Obj, Obj]:
    """Two driver pods, as the operator creates them."""
    made = []
    with acting(plane, namespace, "skipstone") as core:
        for name in ("one-driver", "two-driver"):
            created = core.create_namespaced_pod(namespace, pod(name, account, {**MANAGED, "spark-role": "driver"}))
            made.append({"name": name, "uid": created.metadata.uid})
    return made[0], made[1]
