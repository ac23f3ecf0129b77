"""A kept driver on a real API server, with the rights that the chart gives it and a token that is bound to its pod."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from skipstone_core.contract.keeping import FILES_VARIABLE, READY_REPORT, WAREHOUSE_VARIABLE, scheduler_name
from skipstone_core.ids import REPORT_ANNOTATION, WAREHOUSE_UID_LABEL

from tests.cluster.controlplane import ControlPlane
from tests.cluster.shell import wait_until
from tests.kube.test_admission import MANAGED, acting, installed, pod, refused

pytestmark = pytest.mark.cluster("it has no users, no roles and no policies")
__all__ = ["installed"]
Obj = dict[str, Any]
ACCOUNT = "skipstone-spark-kept"
ROOT = Path(__file__).parents[2]
DRIVER = {**MANAGED, "spark-role": "driver"}


@dataclass
class Kept:
    """A kept driver's pod and its process."""

    core: client.CoreV1Api
    operator: client.CoreV1Api
    namespace: str
    own: Obj
    warehouse_uid: str
    folder: Path
    process: subprocess.Popen[bytes]

    def read(self, name: str) -> Any:
        return self.core.read_namespaced_pod(name, self.namespace)

    def until(self, name: str, phase: str) -> Any:
        """The pod once it has this phase."""
        wait_until(lambda: self.read(name).status.phase == phase, seconds=300, failure=f"{name} is not {phase}")
        return self.read(name)

    def assign(self, name: str, app: str, **variables: str) -> Obj:
        """A pod that this driver is to run."""
        made = assigned_pod(
            name, self.own["uid"], app, {"TELL": str(self.folder / name), "SHARED": str(self.folder), **variables}
        )
        made["metadata"]["labels"] |= {WAREHOUSE_UID_LABEL: self.warehouse_uid}
        created = self.operator.create_namespaced_pod(self.namespace, made)
        return {"name": name, "uid": created.metadata.uid}


def assigned_pod(name: str, uid: str, app: str, variables: dict[str, str]) -> Obj:
    """A pod of which the kept driver with this uid is the scheduler."""
    made = pod(name, "skipstone-spark-local", dict(DRIVER))
    env = [{"name": key, "value": value} for key, value in variables.items()]
    files = {"name": FILES_VARIABLE, "value": json.dumps({"request.json": "{}"})}
    container = {"name": "spark-kubernetes-driver", "image": "none", "args": ["app", app], "env": [*env, files]}
    spec = {"schedulerName": scheduler_name(uid), "restartPolicy": "Never", "automountServiceAccountToken": False}
    return {**made, "spec": {**made["spec"], **spec, "containers": [container]}}


@pytest.fixture
def kept(control_plane: ControlPlane, installed: str, api_client: client.ApiClient, tmp_path: Path) -> Iterator[Kept]:
    core = client.CoreV1Api(api_client)
    as_operator = acting(control_plane, installed, "skipstone")
    operator = as_operator.__enter__()
    # It stands for the Warehouse that owns the driver.
    warehouse = core.create_namespaced_config_map(installed, {"metadata": {"name": "kept-lake"}}).metadata
    driver = pod("kept-0", ACCOUNT, DRIVER)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": warehouse.name, "uid": warehouse.uid}
    driver["metadata"]["ownerReferences"] = [owner]
    created = operator.create_namespaced_pod(installed, driver)
    own = {"name": "kept-0", "uid": created.metadata.uid}
    for name in ("keys", "scratch", "account"):
        (tmp_path / name).mkdir()
    (tmp_path / "account" / "ca.crt").write_bytes(control_plane.ca.read_bytes())
    bound = {"kind": "Pod", "apiVersion": "v1", "name": own["name"], "uid": own["uid"]}
    asked = {"spec": {"audiences": None, "expirationSeconds": 3600, "boundObjectRef": bound}}
    token = core.create_namespaced_service_account_token(ACCOUNT, installed, asked).status.token
    (tmp_path / "account" / "token").write_text(token)
    address = urlsplit(control_plane.url)
    environment = {
        **os.environ,
        "KUBERNETES_SERVICE_HOST": str(address.hostname),
        "KUBERNETES_SERVICE_PORT": str(address.port),
        "ACCOUNT": str(tmp_path / "account"),
        "POD_NAMESPACE": installed,
        "POD_NAME": own["name"],
        "POD_UID": own["uid"],
        WAREHOUSE_VARIABLE: warehouse.uid,
        "OPENBLAS_NUM_THREADS": "1",
    }
    arguments = [sys.executable, "-m", "tests.unit.kept.driver", str(tmp_path), str(tmp_path / "keys")]
    process = subprocess.Popen(arguments, cwd=ROOT, env=environment)
    made = Kept(core, operator, installed, own, warehouse.uid, tmp_path, process)

    def is_ready() -> bool:
        return (made.read("kept-0").metadata.annotations or {}).get(REPORT_ANNOTATION) == READY_REPORT

    wait_until(is_ready, seconds=300, failure="the driver does not say that it takes runs")
    yield made
    process.terminate()
    assert process.wait(300) == 0


def test_runs_are_ended_as_a_node_ends_them_and_taken_when_their_pods_are_deleted(kept: Kept) -> None:
    kept.assign("good-driver", "show")
    found = kept.until("good-driver", "Succeeded")
    (status,) = found.status.container_statuses
    assert (status.state.terminated.exit_code, status.state.terminated.message) == (0, '{"short": "report"}')
    assert found.metadata.annotations == {REPORT_ANNOTATION: '{"whole": "report"}'}
    assert found.spec.node_name is None
    kept.assign("bad-driver", "show", CODE="3")
    assert kept.until("bad-driver", "Failed").status.container_statuses[0].state.terminated.exit_code == 3
    kept.assign("long-driver", "misbehave", DO="sleep")
    kept.until("long-driver", "Running")
    kept.assign("next-driver", "show")
    # No node has it, so it goes at once, and its process after it.
    kept.core.delete_namespaced_pod("long-driver", kept.namespace)
    kept.until("next-driver", "Succeeded")


def test_a_kept_driver_writes_pods_that_are_assigned_to_it_and_no_others(
    control_plane: ControlPlane, kept: Kept
) -> None:
    other = assigned_pod("other-driver", "00000000-0000-4000-8000-000000000000", "show", {})
    kept.operator.create_namespaced_pod(kept.namespace, other)
    failed = {"status": {"phase": "Failed"}}
    with acting(control_plane, kept.namespace, ACCOUNT, kept.own) as core:
        for name in ("other-driver", "kept-0"):
            said = refused(lambda name=name: core.patch_namespaced_pod_status(name, kept.namespace, failed))
            assert "assigned to it" in said or "its own pod only" in said
        kept.process.terminate()
        kept.process.wait(300)
        kept.assign("mine-driver", "show")
        assert "nothing else" in refused(
            lambda: core.patch_namespaced_pod_status(
                "mine-driver", kept.namespace, {"metadata": {"labels": {"skipstone.dev/owner-uid": "x"}}, **failed}
            )
        )
        with pytest.raises(ApiException) as stale:
            change = {"metadata": {"resourceVersion": "1"}, **failed}
            core.patch_namespaced_pod_status("mine-driver", kept.namespace, change)
        assert stale.value.status == 409
        core.patch_namespaced_pod_status("mine-driver", kept.namespace, failed)
    with acting(control_plane, kept.namespace, "skipstone-spark-local") as core:
        refused(lambda: core.patch_namespaced_pod_status("mine-driver", kept.namespace, failed))
