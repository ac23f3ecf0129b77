"""Reconcilers against a real API server: its schemas, its conflicts, its quotas, its garbage collection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from kubernetes import client
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import JobRequest, RunKind
from skipstone_core.contract.spark import SmallWork
from skipstone_core.ids import REPORT_ANNOTATION
from skipstone_core.reasons import Reason
from skipstone_operator.adapters.cached import CACHED_KINDS, CachedKube, new_cache, selector_of, slim
from skipstone_operator.adapters.kube import KubeClient
from skipstone_operator.runtime.cache import version_of

from tests.cluster.controlplane import ControlPlane
from tests.cluster.shell import wait_until
from tests.kube.faults.kubelet import Driven
from tests.kube.reconcile_lab import DEADLINE, Obj, Scenario, Site, run_scenario
from tests.unit.lake_double import Ends, LakeTable
from tests.unit.objects import claim, index, load, merge, observed_table, table, warehouse

Play = Callable[[Scenario], None]


@pytest.fixture
def play(control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Runs a scenario in a fresh namespace."""
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig_admin))
    return lambda scenario: run_scenario(control_plane, namespace, scenario)


def data_claim(*modes: str) -> Obj:
    found = claim(*modes)
    found["spec"]["resources"] = {"requests": {"storage": "1Gi"}}
    found["spec"]["storageClassName"] = "none"
    return found


async def prepare(site: Site, *objects: Obj) -> None:
    """A Warehouse and a Table that are ready, then ``objects``."""
    await site.apply(data_claim(), warehouse(), table())
    await site.holds("Table", "flights", "Ready")
    await site.apply(*objects)


async def synced(site: Site, text: str, name: str = "by-tail") -> None:
    async def reached() -> bool:
        return bool((await site.status("SecondaryIndex", name)).get("synced") == text)

    await site.until(reached, f"{name} {text}")


def test_a_load_an_index_and_a_merge_reach_their_ends_and_then_nothing_is_written(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await site.apply(index(), merge("feed"), load("jan"), table(), warehouse(), data_claim())
        await site.holds("LoadJob", "jan", "Complete")
        await site.holds("MergeJob", "feed", "Complete")
        await synced(site, "2/2")
        for _ in range(4):
            await site.round()
        before = len(site.kube.writes)
        for _ in range(10):
            await site.round()
        assert site.kube.writes[before:] == []
        assert (await site.status("Table", "flights"))["indexesInSync"] == "1/1"

    play(scenario)


def test_a_table_is_compacted_between_jobs_and_its_inline_index_never_lags(play: Play) -> None:
    async def scenario(site: Site) -> None:
        asked = {"compaction": {"minInputFiles": 2}, "window": {"schedule": "* * * * *", "duration": "1h"}}
        await site.apply(data_claim(), warehouse(), table(maintenance=asked), index(maintenance="Inline"))
        for name in ("jan", "feb"):
            await site.apply(load(name))
            await site.holds("LoadJob", name, "Complete")

        async def compacted() -> bool:
            return site.lake.tables["air", "flights"].segments == [3]

        await site.until(compacted, "the table is compacted")
        await site.holds("Table", "flights", "Healthy")
        await synced(site, "1/1")
        status = await site.status("Table", "flights")
        assert [(one["step"], one["done"]) for one in status["lastMaintenance"]] == [("Compaction", True)]
        assert (status["health"]["smallFiles"], status["lastMaintainRun"]["result"]) == (0, "Succeeded")
        assert "writer" not in status
        assert {kind for kind, _ in site.meter.finished} == {"Check", "Table", "Load", "Maintain"}
        for _ in range(3):
            await site.round()
        before = len(site.kube.writes)
        for _ in range(5):
            await site.round()
        assert site.kube.writes[before:] == []

    play(scenario)


def test_a_cache_that_hears_nothing_starts_no_second_driver_and_ends_no_first(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await prepare(site, load("jan"))
        cache = new_cache()
        for kind in CACHED_KINDS:
            found = await site.kube.snapshot(kind, site.namespace, labels=selector_of(kind))
            cache.shard(kind, site.namespace).replace([slim(obj) for obj in found.objects], version_of(found.head))
        site.cached = CachedKube(site.kube, cache)
        await site.holds("LoadJob", "jan", "Complete")
        for _ in range(3):
            await site.round()
        assert (await site.status("LoadJob", "jan"))["attempts"] == 1
        assert site.kubelet.violations == []
        assert site.lake.tables["air", "flights"].segments == [1]

    play(scenario)


def test_a_status_edited_by_others_heals(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await prepare(site, load("jan"), index())
        await synced(site, "1/1")
        await site.holds("LoadJob", "jan", "Complete")
        found = await site.get("SecondaryIndex", "by-tail")
        assert found is not None
        await KubeClient.replace_status(site.kube, {**found, "status": {"synced": "9/9"}})
        await synced(site, "1/1")
        await site.holds("SecondaryIndex", "by-tail", "Synced")

    play(scenario)


def test_a_merge_at_work_shows_what_it_prunes_and_then_the_index_that_it_leaves_behind(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await prepare(site, index())
        entered, leave = threading.Event(), threading.Event()

        def script(request: JobRequest) -> Ends | None:
            if request.kind is RunKind.MERGE:
                entered.set()
                leave.wait(DEADLINE)
            return None

        site.lake.script = script
        await site.apply(merge("feed"))
        await site.shows("MergeJob", "feed", "Progressing", "DriverRunning")
        assert await asyncio.to_thread(entered.wait, DEADLINE)
        run = (await site.status("MergeJob", "feed"))["currentRun"]["id"]
        counts = {"filesTotal": 400, "filesCandidate": 12}
        said = running_report(run, progress="merging", counts=counts)
        await site.edit("Pod", f"{run}-driver", lambda pod: annotate(pod, said))

        async def shown() -> bool:
            return bool((await site.status("MergeJob", "feed")).get("pruned"))

        await site.until(shown, "what it prunes")
        status = await site.status("MergeJob", "feed")
        assert (status["pruned"], status["currentRun"]["progress"]) == ("388/400", "merging")
        leave.set()
        await site.holds("MergeJob", "feed", "Complete")
        status = await site.status("MergeJob", "feed")
        assert status["pruned"] == "3/4"
        assert status["indexesBehind"] == [{"name": "by-tail", "missingSegments": 1, "catchesUp": True}]

    play(scenario)


def running_report(run: str, **told: Any) -> str:
    """What a running driver puts into its pod's annotation."""
    base = JobReport(
        run_id=run, attempt=1, kind=RunKind.MERGE, outcome=RunOutcome.RUNNING, reason=Reason.DRIVER_RUNNING
    )
    return replace(base, **told).to_json()


def annotate(pod: Obj, report: str) -> None:
    """Put a report where drivers put theirs."""
    pod["metadata"].setdefault("annotations", {})[REPORT_ANNOTATION] = report


def test_a_deleted_driver_is_replaced_and_does_not_count(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await prepare(site)
        entered, leave = threading.Event(), threading.Event()

        def script(request: JobRequest) -> Ends | None:
            if request.kind is RunKind.LOAD and request.attempt == 1:
                entered.set()
                leave.wait(DEADLINE)
                return Ends(137)
            return None

        site.lake.script = script
        await site.apply(load("jan", backoffLimit=0))
        await site.shows("LoadJob", "jan", "Progressing", "DriverRunning")
        assert await asyncio.to_thread(entered.wait, DEADLINE)
        run = (await site.status("LoadJob", "jan"))["currentRun"]["id"]
        await site.remove("Pod", f"{run}-driver")
        leave.set()
        await site.holds("LoadJob", "jan", "Complete")
        status = await site.status("LoadJob", "jan")
        assert (status["failedAttempts"], status["lostAttempts"], status["segment"]) == (0, 1, 1)

    play(scenario)


def test_failing_attempts_end_in_a_confirmed_failure(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await prepare(site)
        site.lake.script = lambda r: Ends(1) if r.kind is RunKind.LOAD else None
        await site.apply(load("jan", backoffLimit=1))
        await site.holds("LoadJob", "jan", "Failed")
        assert await site.condition("LoadJob", "jan", "Failed") == ("True", "BackoffLimitExceeded")
        assert len(site.lake.tables["air", "flights"].aborted) == 1
        assert "BackoffLimitExceeded" in site.events.reasons("LoadJob")

    play(scenario)


def test_a_driver_that_dies_after_its_commit_is_complete(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await prepare(site)
        site.lake.script = lambda r: Ends(137, commits=True) if r.kind is RunKind.LOAD and r.attempt == 1 else None
        await site.apply(load("jan"))
        await site.holds("LoadJob", "jan", "Complete")
        assert site.lake.tables["air", "flights"].segments == [1]

    play(scenario)


def is_counted(core: client.CoreV1Api, namespace: str) -> bool:
    status = core.read_namespaced_resource_quota("none", namespace).status
    return status is not None and bool(status.hard)


def test_a_quota_makes_runs_wait(play: Play, api_client: client.ApiClient, namespace: str) -> None:
    core = client.CoreV1Api(api_client)

    async def scenario(site: Site) -> None:
        await prepare(site)
        quota: Any = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
        await asyncio.to_thread(core.create_namespaced_resource_quota, namespace, quota)
        await asyncio.to_thread(
            wait_until,
            lambda: is_counted(core, namespace),
            seconds=300,
            failure="the quota was never counted",
        )
        await site.apply(load("jan"))
        await site.shows("LoadJob", "jan", "Progressing", "WaitingForQuota")
        await asyncio.to_thread(core.delete_namespaced_resource_quota, "none", namespace)
        await site.holds("LoadJob", "jan", "Complete")

    play(scenario)


def test_a_namespace_that_goes_away_takes_everything_with_it(
    play: Play, api_client: client.ApiClient, namespace: str
) -> None:
    core = client.CoreV1Api(api_client)

    async def scenario(site: Site) -> None:
        await prepare(site, load("jan"), index(), index("by-id", "id"))
        await synced(site, "1/1")
        await synced(site, "1/1", "by-id")
        await site.apply(merge("feed"))
        await asyncio.to_thread(core.delete_namespace, namespace)

        async def empty() -> bool:
            found = await asyncio.gather(*(site.kube.list(kind, namespace) for kind in ("SecondaryIndex", "Warehouse")))
            return not any(found)

        await site.until(empty, "an empty namespace")

    play(scenario)


def test_a_dropped_index_takes_its_data_with_it_even_after_its_table(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await prepare(site, load("jan"), index())
        await synced(site, "1/1")
        await site.remove("Table", "flights")
        await site.gone("Table", "flights")
        await site.shows("SecondaryIndex", "by-tail", "Ready", "TableNotFound")
        await site.remove("SecondaryIndex", "by-tail")
        await site.gone("SecondaryIndex", "by-tail")
        assert site.lake.tables["air", "flights"].covered == {}
        assert "DataDeleted" in site.events.reasons("SecondaryIndex")

    play(scenario)


def test_a_purged_table_waits_for_its_writer_to_stop(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await site.apply(data_claim(), warehouse(), table(reclaimPolicy="Delete"))
        await site.holds("Table", "flights", "Ready")
        await site.apply(load("jan"))
        await site.remove("Table", "flights")
        await site.gone("Table", "flights")
        assert ("air", "flights") not in site.lake.tables
        await site.shows("LoadJob", "jan", "Progressing", "TableNotFound")

    play(scenario)


def test_data_is_kept_with_an_event_when_the_claim_is_gone(
    play: Play, api_client: client.ApiClient, namespace: str
) -> None:
    core = client.CoreV1Api(api_client)

    async def scenario(site: Site) -> None:
        await site.apply(data_claim(), warehouse(), table(reclaimPolicy="Delete"))
        await site.holds("Table", "flights", "Ready")
        body = {"metadata": {"finalizers": None}}
        await asyncio.to_thread(core.patch_namespaced_persistent_volume_claim, "lake-data", namespace, body)
        await asyncio.to_thread(core.delete_namespaced_persistent_volume_claim, "lake-data", namespace)
        await site.remove("Table", "flights")
        await site.gone("Table", "flights")
        assert ("air", "flights") in site.lake.tables
        assert [r for r in site.events.records if r.reason is Reason.DATA_RETAINED]

    play(scenario)


def test_a_warehouse_says_where_small_work_is_done(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await site.apply(data_claim(), warehouse(spark={"smallWork": "Spark"}), table(), load("jan"))
        found: list[Obj] = []

        async def told() -> bool:
            # while the run is there: what is kept of it afterwards is not this test's question
            found.extend(await site.kube.list("ConfigMap", site.namespace, labels={"skipstone.dev/operation": "Load"}))
            return bool(found)

        await site.until(told, "a request of the load")
        assert JobRequest.from_json(found[0]["data"]["request.json"]).spark.small_work is SmallWork.SPARK
        await site.holds("LoadJob", "jan", "Complete")

    play(scenario)


def test_children_go_with_their_job(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await prepare(site, load("jan", ttlSecondsAfterFinished=1))
        await site.gone("LoadJob", "jan")

        async def empty() -> bool:
            labels = {"skipstone.dev/operation": "Load"}
            found = [await site.kube.list(kind, site.namespace, labels=labels) for kind in ("Pod", "ConfigMap")]
            return not any(found)

        await site.until(empty, "no children")

    play(scenario)


def test_two_tables_of_one_name_in_the_catalog_never_both_own_it(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await prepare(site)
        await site.apply(table("twin"))
        await site.shows("Table", "twin", "Ready", "ResourceConflict")
        await site.remove("Table", "flights")
        await site.holds("Table", "twin", "Ready")

    play(scenario)


def test_an_observed_table_is_looked_at_and_never_touched(play: Play) -> None:
    async def scenario(site: Site) -> None:
        site.lake.tables["air", "flights"] = LakeTable("somebody", {"tailnum": "string"}, segments=[1], sequence=1)
        await site.apply(data_claim(), warehouse(), observed_table())
        await site.holds("Table", "flights", "Ready")
        assert (await site.status("Table", "flights"))["segments"]["total"] == 1
        assert not [name for name in site.kubelet.driven if "table" in name]

    play(scenario)


def test_names_of_63_characters_and_a_large_annotation_are_no_obstacle(play: Play) -> None:
    name = "n" * 63

    async def scenario(site: Site) -> None:
        job = load(name)
        job["metadata"]["annotations"] = {"garbage": "x" * 200_000}
        await prepare(site, job, index(name))
        await site.holds("LoadJob", name, "Complete")
        await synced(site, "1/1", name)

    play(scenario)


def relabel(number: int, obj: Obj) -> None:
    obj["metadata"]["labels"] = {"n": str(number)}


def test_a_write_conflict_is_decided_anew(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await prepare(site)
        site.lake.script = lambda r: Ends(1) if r.kind is RunKind.LOAD and r.attempt == 1 else None
        await site.apply(load("jan"))
        for number in range(10):
            await site.edit("LoadJob", "jan", partial(relabel, number))
            await site.round()
        await site.holds("LoadJob", "jan", "Complete")
        assert site.lake.tables["air", "flights"].segments == [1]

    play(scenario)


def test_an_sqlite_catalog_on_a_shared_claim_is_refused(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await site.apply(data_claim("ReadWriteMany"), warehouse())
        await site.shows("Warehouse", "main", "Ready", "CatalogNeedsOneNode")
        assert not await site.kube.list("Pod", site.namespace)

    play(scenario)


def test_a_driver_that_cannot_start_ends_the_scenario_at_once(play: Play) -> None:
    def fails(_request: str, _root: str) -> Driven:
        raise ModuleNotFoundError("the module of this run")

    async def scenario(site: Site) -> None:
        site.kubelet.drive = fails
        await prepare(site)

    with pytest.RaisesGroup(ModuleNotFoundError):
        play(scenario)
