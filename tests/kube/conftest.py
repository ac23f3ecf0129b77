"""A real API server for the tests of this folder: etcd, kube-apiserver and controllers, one per pytest session.

`control_plane` runs with our CRDs; `api` talks to it as the administrator; `namespace` is fresh for each test. It is
not deleted: the API server goes away with the session, and to empty a namespace takes a hundred requests.
`SKIPSTONE_KUBERNETES=1.31` chooses another pinned release of Kubernetes than that of the cluster.
`SKIPSTONE_API=local` runs the tests against the server of `skipstone local` instead; those that are marked as `cluster`
need users, roles or controllers, and are skipped.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kubernetes import client, config

from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane import control_plane as run_control_plane
from tests.cluster.shell import wait_until
from tests.kube.localplane import LocalPlane, local_plane

REPOSITORY = Path(__file__).resolve().parents[2]
CRD_FOLDER = REPOSITORY / "crds"
RELEASE = os.environ.get("SKIPSTONE_KUBERNETES", "")
LOCAL = os.environ.get("SKIPSTONE_API", "") == "local"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a cluster when there is none."""
    for item in items if LOCAL else ():
        if marked := item.get_closest_marker("cluster"):
            item.add_marker(pytest.mark.skip(reason=marked.args[0]))


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane | LocalPlane]:
    """A control plane with our CRDs established, or the server of `skipstone local`."""
    if LOCAL:
        with local_plane(tmp_path_factory.mktemp("kube")) as plane:
            yield plane
        return
    with run_control_plane(tmp_path_factory.mktemp("kube"), release=RELEASE) as plane:
        plane.kubectl("apply", "--server-side", "--filename", str(CRD_FOLDER))
        names = [yaml.safe_load(path.read_text())["metadata"]["name"] for path in sorted(CRD_FOLDER.glob("*.yaml"))]
        plane.kubectl("wait", "--for=condition=Established", "--timeout=300s", *(f"crd/{name}" for name in names))
        wait_until(lambda: _discovers(plane, len(names)), seconds=300, failure="kubectl does not discover our kinds")
        yield plane


def _discovers(plane: ControlPlane, kinds: int) -> bool:
    # kubectl keeps what it discovered on disk; what it kept from before the CRDs knows neither kinds nor category.
    found = plane.kubectl("api-resources", "--api-group", "skipstone.dev", "--cached=false", "--output", "name")
    return len(found.split()) == kinds


@pytest.fixture(scope="session")
def api_client(control_plane: ControlPlane) -> Iterator[client.ApiClient]:
    """A client as the administrator."""
    with config.new_client_from_config(str(control_plane.kubeconfig_admin)) as opened:
        yield opened


@pytest.fixture(scope="session")
def api(api_client: client.ApiClient) -> client.CustomObjectsApi:
    """Our kinds, as the administrator."""
    return client.CustomObjectsApi(api_client)


@pytest.fixture
def namespace(api_client: client.ApiClient) -> str:
    """A fresh namespace."""
    return _make_namespace(api_client)


@pytest.fixture
def second_namespace(api_client: client.ApiClient) -> str:
    """Another fresh namespace."""
    return _make_namespace(api_client)


def _make_namespace(api_client: client.ApiClient) -> str:
    core = client.CoreV1Api(api_client)
    name = f"t-{uuid.uuid4().hex[:8]}"
    core.create_namespace({"metadata": {"name": name}})
    wait_until(lambda: _has_account(core, name), seconds=300, failure=f"namespace {name} got no service account")
    return name


def _has_account(core: client.CoreV1Api, namespace: str) -> bool:
    found = core.list_namespaced_service_account(namespace)
    return any(account.metadata.name == "default" for account in found.items)
