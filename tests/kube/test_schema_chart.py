"""The chart on a real API server: who can install it, what its accounts may do, what stays when it goes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.toolchain import build_tools

pytestmark = pytest.mark.cluster("it has no chart: nothing is installed")
CHART = Path(__file__).resolve().parents[2] / "charts" / "skipstone"


def run_helm(kubeconfig: Path, namespace: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [build_tools(["helm"])["helm"], "--kubeconfig", kubeconfig, "--namespace", namespace, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture
def installer(control_plane: ControlPlane, namespace: str) -> Path:
    """A kubeconfig of somebody who may do everything in ``namespace`` and nothing elsewhere."""
    binding = ("create", "rolebinding", "installer", "--clusterrole=cluster-admin", "--user=installer")
    control_plane.kubectl(*binding, "--namespace", namespace)
    return control_plane.user_kubeconfig("installer")


@pytest.fixture
def installed(installer: Path, namespace: str) -> str:
    """A namespace with the chart, installed by its owner."""
    done = run_helm(installer, namespace, "install", "skipstone", str(CHART), "--set", "crds.enabled=false")
    assert done.returncode == 0, done.stderr
    return namespace


def allowed(plane: ControlPlane, account: Path, namespace: str, verb: str, resource: str) -> bool:
    question = ("auth", "can-i", verb, resource, "--namespace", namespace)
    command = [build_tools(["kubectl"])["kubectl"], "--kubeconfig", account, *question]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300).stdout.strip() == "yes"


def test_owner_of_a_namespace_installs_without_cluster_rights(installed: str, control_plane: ControlPlane) -> None:
    assert "1" in control_plane.kubectl("get", "deployment", "skipstone", "--namespace", installed)


def test_accounts_may_do_what_they_need_and_no_more(installed: str, control_plane: ControlPlane) -> None:
    operator = control_plane.service_account_kubeconfig(installed, "skipstone")
    driver = control_plane.service_account_kubeconfig(installed, "skipstone-spark-local")
    for verb, resource in (
        ("create", "pods"),
        ("create", "secrets"),
        ("update", "tables.skipstone.dev/status"),
        ("delete", "loadjobs"),
    ):
        assert allowed(control_plane, operator, installed, verb, resource)
    for verb, resource in (
        ("get", "secrets"),
        ("list", "secrets"),
        ("delete", "tables"),
        ("patch", "pods"),
        ("create", "roles"),
    ):
        assert not allowed(control_plane, operator, installed, verb, resource)
    assert not allowed(control_plane, operator, "default", "list", "tables")
    assert allowed(control_plane, driver, installed, "patch", "pods")
    assert not allowed(control_plane, driver, installed, "create", "pods")


def test_uninstalling_keeps_crds_and_resources(control_plane: ControlPlane, namespace: str) -> None:
    admin = control_plane.kubeconfig_admin
    done = run_helm(admin, namespace, "install", "skipstone", str(CHART), "--take-ownership")
    assert done.returncode == 0, done.stderr
    manifest = (
        "{apiVersion: skipstone.dev/v1alpha1, kind: SecondaryIndex, metadata: {name: kept},"
        " spec: {tableRef: {name: t}, columns: [a]}}"
    )
    control_plane.kubectl("apply", "--namespace", namespace, "--filename", "-", text_input=manifest)
    done = run_helm(admin, namespace, "uninstall", "skipstone")
    assert done.returncode == 0, done.stderr
    assert "kept" in control_plane.kubectl("get", "si", "--namespace", namespace)


def test_notes_tell_the_namespaces_and_how_to_come_back(installer: Path, namespace: str) -> None:
    done = run_helm(installer, namespace, "install", "skipstone", str(CHART), "--dry-run=client")
    assert f"serves the namespaces: {namespace}." in done.stdout
    assert "--take-ownership" in done.stdout
