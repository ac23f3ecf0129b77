"""``skipstone merge --dry-run`` against a real API server, with the operator's reconcilers beside it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from kubernetes import client
from skipstone_core.contract.requests import JobRequest, RunKind

from tests.cluster.controlplane import ControlPlane
from tests.kube.reconcile_lab import Scenario, Site, run_scenario
from tests.kube.test_schedule_server import CLAIM
from tests.unit.lake_double import Ends
from tests.unit.objects import load, merge, schedule, table, warehouse

Play = Callable[[Scenario], None]
GROUP = "people"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


@pytest.fixture
def play(control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Runs a scenario in a fresh namespace."""
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig_admin))
    return lambda scenario: run_scenario(control_plane, namespace, scenario)


async def command(site: Site, *arguments: str) -> Process:
    """The command line in a process of its own; options that may stand before the command do."""
    program = (sys.executable, "-m", "skipstone_cli", "-n", site.namespace, *arguments)
    return await asyncio.create_subprocess_exec(*program, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=dict(os.environ))


async def ended(site: Site, process: Process, given: str = "") -> tuple[int | None, str, str]:
    """Exit code, output and notes, while the operator works on."""
    talk = asyncio.create_task(process.communicate(given.encode()))

    async def is_done() -> bool:
        return talk.done()

    await site.until(is_done, "the command ends")
    out, err = await talk
    return process.returncode, out.decode(), err.decode()


async def jobs(site: Site) -> list[str]:
    return [str(job["metadata"]["name"]) for job in await site.kube.list("MergeJob", site.namespace)]


@pytest.fixture
def rights(api_client: client.ApiClient, namespace: str) -> None:
    """The group has the rights that the page lists, and no others."""
    rights = client.RbacAuthorizationV1Api(api_client)
    rules = yaml.safe_load(PAGE.read_text().partition("```yaml\n")[2].partition("```")[0])
    rights.create_namespaced_role(namespace, {"metadata": {"name": GROUP}, **rules})
    subject = {"kind": "Group", "name": GROUP, "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"kind": "Role", "name": GROUP, "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": GROUP}, "roleRef": reference, "subjects": [subject]}
    rights.create_namespaced_role_binding(namespace, binding)


@pytest.mark.usefixtures("rights")
def test_a_dry_run_of_a_schedule_tells_the_numbers_and_leaves_nothing(play: Play) -> None:
    asked: list[JobRequest] = []

    async def scenario(site: Site) -> None:
        await site.apply(CLAIM, warehouse(), table(), schedule(suspend=True))
        await site.holds("Table", "flights", "Ready")
        site.lake.script = lambda request: asked.append(request)  # type: ignore[func-returns-value]
        jane = ("--as", "jane", "--as-group", GROUP)
        code, out, err = await ended(site, await command(site, *jane, "-o", "json", "merge", "--dry-run", "ms/hourly"))
        assert code == 0, err
        told = json.loads(out)
        assert (told["kind"], told["origin"], told["table"]) == ("MergeDryRun", "ms/hourly", "flights")
        assert (told["files"]["total"], told["files"]["candidate"], told["rows"]["updated"]) == (4, 1, 7)
        assert await jobs(site) == []
        status = await site.status("MergeSchedule", "hourly")
        assert (status["active"], status.get("lastScheduleTime"), status.get("lastSuccessfulTime")) == (0, None, None)
        assert site.lake.tables["air", "flights"].commits == {}
        assert site.meter.committed == {}

    play(scenario)
    (request,) = [one for one in asked if one.kind is RunKind.DRY_RUN]
    assert request.merge is not None
    assert request.merge.source.consumer.startswith("MergeSchedule ")
    assert request.merge.source.consumer.endswith("/hourly")


def test_an_interrupted_dry_run_is_gone_and_a_failed_one_says_why(play: Play, tmp_path: Path) -> None:
    gate = threading.Event()

    def script(request: JobRequest) -> Ends | None:
        if request.kind is RunKind.DRY_RUN:
            gate.wait(300)
            return Ends(64)
        return None

    async def scenario(site: Site) -> None:
        await site.apply(CLAIM, warehouse(), table(), load("jan", suspend=True))
        await site.holds("Table", "flights", "Ready")
        site.lake.script = script
        file = tmp_path / "merge.yaml"
        file.write_text(yaml.safe_dump(merge("feb", backoffLimit=0) | {"metadata": {"name": "feb"}}))
        process = await command(site, "merge", "--dry-run", "-f", str(file))

        async def is_running() -> bool:
            states = [await site.condition("MergeJob", name, "Progressing") for name in await jobs(site)]
            return ("True", "DriverRunning") in states

        await site.until(is_running, "the dry run's driver works")
        assert (await jobs(site))[0].startswith("feb-dry-run-")
        process.send_signal(signal.SIGINT)
        code, out, _ = await ended(site, process)
        assert (code, out) == (130, "")
        assert await jobs(site) == []
        gate.set()
        code, out, err = await ended(site, await command(site, "merge", "--dry-run", "-f", "-"), file.read_text())
        assert (code, out) == (1, "")
        assert "the dry run has failed: BackoffLimitExceeded" in err
        assert await jobs(site) == []

    play(scenario)
