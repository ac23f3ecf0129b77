"""A MergeSchedule against a real API server: its times, its history, its owner references, its refusals."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from skipstone_core.reasons import Reason
from skipstone_operator.adapters.kube import KubeClient
from skipstone_operator.ports import Created

from tests.cluster.controlplane import ControlPlane
from tests.kube.reconcile_lab import Obj, Scenario, Site, run_scenario
from tests.unit.objects import merge, schedule, table, warehouse

Play = Callable[[Scenario], None]
EACH_HOUR, HOUR = "0 * * * *", timedelta(hours=1)
CLAIM: Obj = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "lake-data"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "none",
    },
}


@pytest.fixture
def play(control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Runs a scenario in a fresh namespace.

    It begins just after a whole hour, so that no hour comes by itself, however long the scenario takes.
    """

    def run(scenario: Scenario) -> None:
        async def patient(site: Site) -> None:
            now = site.clock.now()
            site.clock.ahead += now.replace(minute=0, second=1, microsecond=0) + HOUR - now
            await scenario(site)

        run_scenario(control_plane, namespace, patient)

    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig_admin))
    return run


async def jobs(site: Site) -> list[Obj]:
    return sorted(await site.kube.list("MergeJob", site.namespace), key=lambda job: str(job["metadata"]["name"]))


async def complete(site: Site, count: int) -> None:
    """Wait until so many MergeJobs are Complete."""

    async def reached() -> bool:
        names = [job["metadata"]["name"] for job in await jobs(site)]
        done = [(await site.condition("MergeJob", name, "Complete"))[0] for name in names]
        return done.count("True") == len(names) == count

    await site.until(reached, f"{count} complete merges")


def test_three_times_make_three_merge_jobs_and_then_nothing_is_written(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await site.apply(CLAIM, warehouse(), table(), schedule(cron=EACH_HOUR))
        for count in (1, 2, 3):
            site.clock.ahead += HOUR
            await complete(site, count)
        found = await jobs(site)
        minutes = [int(job["metadata"]["name"].removeprefix("hourly-")) for job in found]
        assert len(set(minutes)) == 3
        assert {job["metadata"]["ownerReferences"][0]["kind"] for job in found} == {"MergeSchedule"}
        before = len(site.kube.writes)
        ahead = site.clock.ahead
        for _ in range(4):
            await site.round()
            assert site.clock.ahead == ahead
        assert [write for write in site.kube.writes[before:] if "MergeSchedule" in write][1:] == []
        assert (await site.status("MergeSchedule", "hourly"))["active"] == 0

    play(scenario)


def test_history_goes_and_the_rest_goes_with_the_schedule(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await site.apply(CLAIM, warehouse(), table(), schedule(cron=EACH_HOUR, successfulJobsHistoryLimit=1))
        site.clock.ahead += HOUR
        await complete(site, 1)
        (first,) = await jobs(site)
        site.clock.ahead += HOUR

        async def replaced() -> bool:
            names = [job["metadata"]["name"] for job in await jobs(site)]
            return len(names) == 1 and names != [first["metadata"]["name"]]

        await site.until(replaced, "the first merge is trimmed")
        (second,) = await jobs(site)
        await site.remove("MergeSchedule", "hourly")
        await site.gone("MergeJob", second["metadata"]["name"])

    play(scenario)


def test_a_name_that_is_taken_is_left_alone(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await site.apply(schedule(cron=EACH_HOUR))
        site.clock.ahead += HOUR
        taken = int(site.clock.now().timestamp()) // 3600 * 60
        await site.apply(merge("x") | {"metadata": {"name": f"hourly-{taken}"}})
        await site.shows("MergeSchedule", "hourly", "Ready", Reason.RESOURCE_CONFLICT.value)
        assert all("ownerReferences" not in job["metadata"] for job in await jobs(site))

    play(scenario)


def test_a_quota_is_waited_for(play: Play) -> None:
    async def scenario(site: Site) -> None:
        hard = {"count/mergejobs.skipstone.dev": "0"}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": hard}}
        path = f"/api/v1/namespaces/{site.namespace}/resourcequotas"
        assert (await site.kube.connection.request("POST", path, body=quota)).ok
        await site.apply(schedule(cron=EACH_HOUR))
        site.clock.ahead += HOUR
        await site.shows("MergeSchedule", "hourly", "Ready", Reason.WAITING_FOR_QUOTA.value)
        assert (await site.kube.connection.request("DELETE", f"{path}/none")).ok
        await site.shows("MergeSchedule", "hourly", "Ready", Reason.SCHEDULED.value)
        assert len(await jobs(site)) == 1

    play(scenario)


def test_a_template_of_an_older_schema_is_refused_with_the_servers_sentence(play: Play) -> None:
    async def scenario(site: Site) -> None:
        bad = schedule(cron=EACH_HOUR)
        bad["spec"]["mergeTemplate"]["metadata"] = {"labels": {"not a label": "x"}}
        placed = {**bad, "metadata": {**bad["metadata"], "namespace": site.namespace}}
        assert isinstance(await KubeClient.create(site.kube, placed), Created)
        site.clock.ahead += HOUR
        await site.shows("MergeSchedule", "hourly", "Ready", Reason.JOB_REJECTED.value)
        conditions = (await site.status("MergeSchedule", "hourly"))["conditions"]
        assert "not a label" in next(c["message"] for c in conditions if c["type"] == "Ready")

    play(scenario)
