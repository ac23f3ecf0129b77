"""Dead nodes on a real API server: a pod that was bound to a node stays Terminating until its kubelet confirms its end.

The ways out that messages print are run as they are printed, with the real kubectl.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from skipstone_core.contract.requests import JobRequest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.toolchain import find_tool
from tests.kube.faults.kubelet import DEAD_NODE
from tests.kube.reconcile_lab import Obj, Scenario, Site, run_scenario
from tests.kube.test_reconcile_server import prepare, synced
from tests.unit.objects import index, load

Play = Callable[[Scenario], None]


@pytest.fixture
def play(control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Runs a scenario in a fresh namespace; programs that it starts find kubectl and the API server."""
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig_admin))
    monkeypatch.setenv("PATH", f"{find_tool('kubectl').parent}{os.pathsep}{os.environ['PATH']}")
    return lambda scenario: run_scenario(control_plane, namespace, scenario)


def first_of(operation: str) -> Callable[[Obj], bool]:
    """Chooses the first attempt of an operation."""

    def is_first(pod: Obj) -> bool:
        mine = pod["metadata"]["labels"]["skipstone.dev/operation"] == operation
        return mine and pod["metadata"]["name"].endswith("-1-driver")

    return is_first


async def evicted(site: Site, kind: str, name: str, finalizers: tuple[str, ...] = ()) -> Obj:
    """The driver of this resource once it runs on the dead node and Kubernetes has evicted it."""
    await site.shows(kind, name, "Progressing", "DriverRunning")
    driver = (await site.status(kind, name))["currentRun"]["id"] + "-driver"
    if finalizers:
        await site.edit("Pod", driver, lambda pod: pod["metadata"].update(finalizers=list(finalizers)))
    await site.remove("Pod", driver)
    found = await site.get("Pod", driver)
    assert found is not None
    assert found["spec"]["nodeName"] == DEAD_NODE
    return found


async def stuck(site: Site, kind: str, name: str) -> str:
    """The message of Stalled, once the pod should have been gone for a while."""
    site.clock.ahead = timedelta(seconds=75)
    await site.holds(kind, name, "Stalled")
    assert await site.condition(kind, name, "Progressing") == ("False", "DriverStuck")
    conditions = (await site.status(kind, name))["conditions"]
    return str(next(found["message"] for found in conditions if found["type"] == "Stalled"))


def follow(message: str) -> None:
    """Run the command that ``message`` ends with, as a user does."""
    command = re.search(r"at once after: (.+)$", message)
    assert command is not None, message
    subprocess.run(["bash", "-ec", command[1]], check=True, timeout=120)


def attempts(status: dict[str, Any]) -> tuple[int, int, int]:
    return status["attempts"], status["failedAttempts"], status["lostAttempts"]


def test_a_run_on_a_dead_node_is_given_up_and_its_driver_commits_nothing_twice(play: Play) -> None:
    async def scenario(site: Site) -> None:
        site.kubelet.dies = first_of("Load")
        await prepare(site, load("jan", backoffLimit=0))
        zombie = await evicted(site, "LoadJob", "jan")
        assert DEAD_NODE in await stuck(site, "LoadJob", "jan")
        site.clock.ahead = timedelta(seconds=400)
        await site.holds("LoadJob", "jan", "Complete")
        assert attempts(await site.status("LoadJob", "jan")) == (2, 0, 1)
        assert await site.get("Pod", zombie["metadata"]["name"]) is not None, "nobody has confirmed its end"
        # The node comes back: the driver goes on where it was.
        conf = await site.get("ConfigMap", zombie["metadata"]["name"].removesuffix("-driver") + "-conf")
        assert conf is not None
        _, report, _ = site.lake.run(JobRequest.from_json(conf["data"]["request.json"]))
        assert report is not None
        assert report.outcome.value == "AlreadyCommitted"
        assert site.lake.tables["air", "flights"].segments == [1]

    play(scenario)


@pytest.mark.parametrize("finalizers", [(), ("example.com/audit",)], ids=["pod", "finalizer"])
def test_the_command_that_the_message_prints_ends_the_wait(play: Play, finalizers: tuple[str, ...]) -> None:
    async def scenario(site: Site) -> None:
        site.kubelet.dies = first_of("Load")
        await prepare(site, load("jan", backoffLimit=0))
        zombie = await evicted(site, "LoadJob", "jan", finalizers)
        follow(await stuck(site, "LoadJob", "jan"))
        assert await site.get("Pod", zombie["metadata"]["name"]) is None
        await site.holds("LoadJob", "jan", "Complete")
        assert attempts(await site.status("LoadJob", "jan")) == (2, 0, 1)

    play(scenario)


def test_a_deadline_fails_a_job_whose_driver_is_on_a_dead_node_and_the_table_goes_on(play: Play) -> None:
    async def scenario(site: Site) -> None:
        site.kubelet.dies = first_of("Load")
        await prepare(site, load("jan", activeDeadlineSeconds=60), index())
        await evicted(site, "LoadJob", "jan")
        await stuck(site, "LoadJob", "jan")
        site.clock.ahead = timedelta(seconds=400)
        await site.holds("LoadJob", "jan", "Failed")
        assert await site.condition("LoadJob", "jan", "Failed") == ("True", "DeadlineExceeded")
        assert len(site.lake.tables["air", "flights"].aborted) == 1, "a confirm run has fenced the job off"
        site.kubelet.dies = lambda _pod: False
        await site.apply(load("feb"))
        await site.holds("LoadJob", "feb", "Complete")
        await synced(site, "1/1")

    play(scenario)


def test_a_claim_on_the_dead_node_is_waited_for_until_the_pod_is_removed(play: Play) -> None:
    async def scenario(site: Site) -> None:
        site.kubelet.dies = first_of("Load")
        await prepare(site, load("jan", backoffLimit=0))
        zombie = await evicted(site, "LoadJob", "jan")
        await silence(site, zombie)
        await stuck(site, "LoadJob", "jan")
        site.clock.ahead = timedelta(seconds=400)

        async def blocked() -> bool:
            conditions = (await site.status("LoadJob", "jan")).get("conditions", ())
            return any("claim is held on a node" in found["message"] for found in conditions)

        await site.until(blocked, "the claim is waited for")
        follow(await stuck_message(site))
        await site.holds("LoadJob", "jan", "Complete")

    async def stuck_message(site: Site) -> str:
        conditions = (await site.status("LoadJob", "jan"))["conditions"]
        return str(next(found["message"] for found in conditions if found["type"] == "Stalled"))

    play(scenario)


async def silence(site: Site, pod: Obj) -> None:
    """What the node controller writes to a pod whose node it does not hear of."""
    since = pod["metadata"]["creationTimestamp"]
    conditions = [
        {"type": "ContainersReady", "status": "True", "lastTransitionTime": since},
        {"type": "Ready", "status": "False", "lastTransitionTime": since},
    ]
    await write(site, f"/api/v1/namespaces/{site.namespace}/pods/{pod['metadata']['name']}/status", conditions)


async def write(site: Site, path: str, conditions: list[Obj]) -> None:
    found = (await site.kube.connection.request("GET", path)).body
    found["status"]["conditions"] = conditions
    answer = await site.kube.connection.request("PUT", path, body=found)
    assert answer.ok, answer
