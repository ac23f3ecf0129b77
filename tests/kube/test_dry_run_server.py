"""``skipstone merge --dry-run`` against a real API server, with the operator's reconcilers beside it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from kubernetes import client
from skipstone_cli.app import app
from skipstone_core.contract.requests import JobRequest, RunKind
from skipstone_core.reasons import Reason
from typer.testing import CliRunner, Result

from tests.cluster.controlplane import ControlPlane
from tests.kube.reconcile_lab import Scenario, Site, run_scenario
from tests.kube.test_schedule_server import CLAIM
from tests.unit.lake_double import Ends
from tests.unit.objects import merge, schedule, table, warehouse

Play = Callable[[Scenario], None]
GROUP = "people"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


@pytest.fixture
def play(control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Runs a scenario in a fresh namespace."""
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig_admin))
    return lambda scenario: run_scenario(control_plane, namespace, scenario)


async def command(site: Site, *arguments: str, given: str = "") -> Result:
    """The command line with ``given`` on its standard input, while the operator works on."""
    words = ["-n", site.namespace, *arguments]
    ended = asyncio.create_task(asyncio.to_thread(CliRunner().invoke, app, words, input=given))

    async def is_done() -> bool:
        return ended.done()

    await site.until(is_done, "the command ends")
    return await ended


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
        result = await command(site, *jane, "-o", "json", "merge", "--dry-run", "ms/hourly")
        assert result.exit_code == 0, result.stderr
        told = json.loads(result.stdout)
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


def test_a_dry_run_that_fails_says_why_and_is_gone(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await site.apply(CLAIM, warehouse(), table())
        await site.holds("Table", "flights", "Ready")
        site.lake.script = lambda request: Ends(65, Reason.BAD_RECORDS) if request.kind is RunKind.DRY_RUN else None
        document = yaml.safe_dump(merge("feb") | {"metadata": {"name": "feb"}})
        result = await command(site, "merge", "--dry-run", "-f", "-", given=document)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "the dry run has failed: BadRecords: as scripted" in result.stderr
        assert await jobs(site) == []
        assert site.lake.tables["air", "flights"].aborted == set()

    play(scenario)
