"""Pods, claims and Secrets at our API server, with a runner and without an operator: what kubelet does."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from skipstone_local.places import RootFolder
from skipstone_local.runner.api import Client, ServerAccess
from skipstone_local.runner.kubelet import Runner
from skipstone_local.runner.plane.dataplane import DataPlane
from skipstone_local.server import serving

from tests.local.lake import CLAIM, wait_for

CORE = "/api/v1/namespaces/default"
#: Stands for an interpreter: what a run does, by the name of its application.
SCRIPT = """#!/bin/sh
case "$3" in
  skipstone.apps.tell) printf '%s' "$SECRET $HOME" > "$SKIPSTONE_REPORT"; printf told > "$SKIPSTONE_TERMINATION_LOG" ;;
  skipstone.apps.read) cat "$CONF/a.txt"; exit 3 ;;
  skipstone.apps.stay) trap 'echo asked; exit 5' TERM; echo ready; while :; do sleep 0.05; done ;;
  skipstone.apps.die) kill -9 $$ ;;
esac
"""


@dataclass
class Site:
    """A server with a runner."""

    root: RootFolder
    client: Client
    runner: Runner
    started: bool = field(default=False)

    def create(self, plural: str, obj: dict[str, Any]) -> None:
        answer = self.client.request("POST", f"{CORE}/{plural}", obj)
        assert answer.ok, answer

    def get(self, plural: str, name: str) -> dict[str, Any]:
        return self.client.get(f"{CORE}/{plural}/{name}") or {}

    def delete(self, name: str, **options: Any) -> None:
        assert self.client.request("DELETE", f"{CORE}/pods/{name}", options or None).ok

    def state(self, name: str) -> dict[str, Any]:
        """The state of the pod's container."""
        statuses = (self.get("pods", name).get("status") or {}).get("containerStatuses") or [{}]
        return dict(statuses[0].get("state") or {})

    def reach(self, name: str, state: str) -> dict[str, Any]:
        return dict(wait_for(lambda: self.state(name).get(state), f"{name} {state}"))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    root, python = RootFolder(tmp_path / "a lake"), tmp_path / "python"
    python.write_text(SCRIPT)
    python.chmod(0o755)
    with serving(root.path) as kubeconfig:
        login = ServerAccess.load(kubeconfig)
        with closing(Client(login)) as client:
            runner = Runner(root, login, DataPlane(str(python), {"PATH": "/usr/bin:/bin"}))
            runner.start()
            yield Site(root, client, runner)
            runner.stop()


def pod(
    name: str, app: str, *, env: tuple[Any, ...] = (), volumes: tuple[Any, ...] = (), **spec: Any
) -> dict[str, Any]:
    container = {
        "name": "driver", "image": "i", "args": ["app", app], "env": list(env), "workingDir": "/tmp",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": volume["name"], "mountPath": f"/mnt/{volume['name']}"} for volume in volumes],
    }  # fmt: skip
    own = {"restartPolicy": "Never", "containers": [container], "volumes": list(volumes), **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": own}


SECRET = {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "k"}}}
HOME = {"name": "HOME", "value": "/tmp"}


def secret(**values: str) -> dict[str, Any]:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "data": data}


def test_a_pod_waits_for_its_secret_then_tells_and_ends(site: Site) -> None:
    site.create("pods", pod("p", "tell", env=(SECRET, HOME)))
    waiting = site.reach("p", "waiting")
    assert waiting == {"reason": "CreateContainerConfigError", "message": 'secret "keys" not found'}
    site.create("secrets", secret(k="/tmp/of a secret stays"))
    ended = site.reach("p", "terminated")
    found = site.get("pods", "p")
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (0, "Completed", "told")
    assert (found["status"]["phase"], found["spec"]["nodeName"]) == ("Succeeded", "local")
    folder = site.root.pod(found["metadata"]["uid"])
    scratch = folder / "scratch" / "tmp"
    assert found["metadata"]["annotations"]["skipstone.dev/report"] == f"/tmp/of a secret stays {scratch}"
    wait_for(lambda: not scratch.exists(), "the scratch folder is removed")
    site.delete("p")
    wait_for(lambda: not folder.exists(), "the folder is removed")


def test_files_of_config_maps_and_the_end_of_the_log(site: Site) -> None:
    site.create("configmaps", {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "text /tmp\n", "b": ""}})
    volume = {"name": "conf", "configMap": {"name": "c", "items": [{"key": "a", "path": "a.txt"}]}}
    site.create("pods", pod("p", "read", env=({"name": "CONF", "value": "/mnt/conf"},), volumes=(volume,)))
    ended = site.reach("p", "terminated")
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (3, "Error", "text /tmp\n")
    assert site.get("pods", "p")["status"]["phase"] == "Failed"


def test_a_claim_is_a_folder_and_a_pod_waits_for_one(site: Site) -> None:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "lake"}}
    site.create("pods", pod("p", "tell", volumes=(volume,)))

    def scheduled() -> str:
        conditions = (site.get("pods", "p").get("status") or {}).get("conditions") or ()
        return next((one.get("message", "") for one in conditions if one["type"] == "PodScheduled"), "")

    assert wait_for(scheduled, "the pod waits") == 'persistentvolumeclaim "lake" not found'
    site.create("persistentvolumeclaims", CLAIM)
    site.reach("p", "terminated")
    assert site.get("persistentvolumeclaims", "lake")["status"]["phase"] == "Bound"
    assert site.root.claim("default", "lake").is_dir()


def test_a_pod_that_is_deleted_goes_when_its_process_has_ended(site: Site) -> None:
    site.create("pods", pod("p", "stay"))
    site.reach("p", "running")
    uid = site.get("pods", "p")["metadata"]["uid"]
    log = site.root.pod(uid) / "log"
    wait_for(lambda: log.exists() and log.read_text(), "the process is ready")
    kept = log.open()
    site.delete("p")
    wait_for(lambda: not site.get("pods", "p"), "the pod is gone")
    with kept:
        assert kept.read() == "ready\nasked\n"


def test_what_is_not_a_run_of_skipstone_is_not_run_and_can_be_deleted(site: Site) -> None:
    other = pod("p", "tell")
    other["spec"]["containers"][0] |= {"image": "busybox", "command": ["sleep", "9"]}
    site.create("pods", other)
    assert site.reach("p", "waiting")["message"].startswith("the image busybox is not run here")
    site.delete("p")
    wait_for(lambda: not site.get("pods", "p"), "the pod is gone")


def test_a_process_that_is_killed_and_one_that_is_late(site: Site) -> None:
    site.create("pods", pod("killed", "die"))
    site.create("pods", pod("late", "stay", activeDeadlineSeconds=1))
    assert site.reach("killed", "terminated")["exitCode"] == 137
    assert site.reach("late", "terminated")["exitCode"] == 5
    assert site.get("pods", "late")["status"]["reason"] == "DeadlineExceeded"


def test_what_runs_when_the_runner_stops_is_stopped_and_told(site: Site) -> None:
    site.create("pods", pod("p", "stay"))
    site.reach("p", "running")
    site.runner.stop()
    status = site.get("pods", "p")["status"]
    assert (status["phase"], status["reason"], status["message"]) == (
        "Failed",
        "Terminated",
        "skipstone local was stopped",
    )
