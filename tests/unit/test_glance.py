"""Passes on a cache: at rest nothing is read, many statuses are told at once, a stale cache starts and ends nothing."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from skipstone_operator.adapters.cached import CachedKube, slim
from skipstone_operator.ports import Conflict, Key
from skipstone_operator.reconcilers import reconcile

from tests.unit.cache_double import CachedWorld
from tests.unit.kube_double import is_running
from tests.unit.lives import settled
from tests.unit.objects import claim, index, load, merge, table, warehouse

TABLE = Key("Table", "lake", "flights")


def ready(*objects: dict[str, Any], **more: Any) -> CachedWorld:
    """A world whose Table is ready, then ``objects``."""
    return settled(CachedWorld(**more), *objects)


def worked() -> CachedWorld:
    world = ready(load("jan"), index("by-tail"), merge("feed"))
    world.run_until(lambda: world.holds("LoadJob", "jan", "Complete") and world.holds("MergeJob", "feed", "Complete"))
    world.run_until(lambda: world.holds("SecondaryIndex", "by-tail", "Synced"))
    for _ in range(5):
        world.tick()
    return world


def test_at_rest_nothing_is_read_and_nothing_written() -> None:
    world = worked()
    reads, writes = len(world.kube.reads), len(world.kube.writes)
    for _ in range(3):
        world.reconcile_all()
    assert (world.kube.reads[reads:], world.kube.writes[writes:]) == ([], [])


def test_a_load_asks_the_server_few_questions_in_all_its_life_however_many_namespaces_there_are() -> None:
    world = ready(namespaces=("lake", *(f"pond-{number}" for number in range(20))))
    world.tick()
    reads, writes, events = len(world.kube.reads), len(world.kube.writes), len(world.events.records)
    world.kube.add(load("jan"))
    world.run_until(lambda: world.holds("LoadJob", "jan", "Complete"))
    world.run_until(lambda: not world.kube.status("Table", "flights").get("writer"))
    asked = Counter((*world.kube.reads[reads:], *world.kube.writes[writes:]))
    asked["post Event"] = len(world.events.records) - events
    assert asked["create Pod"] == 1
    assert asked.total() <= 26, asked


def test_passes_leave_the_cache_as_the_server_is() -> None:
    world = worked()
    world.deliver()
    held = world.held()
    assert {("LoadJob", "jan"), ("SecondaryIndex", "by-tail"), ("Warehouse", "main")} <= held.keys()
    for (kind, name), obj in held.items():
        assert obj == slim(world.kube.objects[kind, "lake", name])


def test_one_pass_tells_all_jobs_of_a_table_and_the_invalid_one_among_them() -> None:
    suspended = [load(f"l{number:02}", suspend=True) for number in range(40)]
    world = ready(*suspended)
    broken = load("zz-broken")
    broken["spec"]["source"] = {"format": "FromTheFuture", "paths": ["x"]}
    world.kube.add(broken)
    world.deliver()
    world.reconcile(TABLE)
    assert {world.kube.condition("LoadJob", job["metadata"]["name"], "Progressing")[1] for job in suspended} == {
        "Suspended"
    }
    assert world.kube.condition("LoadJob", "zz-broken", "Progressing") == ("Unknown", "InvalidSpec")


def test_a_status_of_an_object_that_moved_on_is_judged_again_on_what_the_server_has() -> None:
    world = ready(load("jan", suspend=True), lag=lambda kind: 50 if kind == "LoadJob" else 0)
    world.restart()
    world.kube.edit("LoadJob", "jan", lambda job: job["spec"].update(suspend=False))
    world.reconcile(TABLE)
    assert world.kube.condition("LoadJob", "jan", "Progressing")[1] != "Suspended"


def test_the_version_that_refused_a_write_is_the_one_that_the_next_pass_judges() -> None:
    world = ready(load("jan", suspend=True), lag=lambda kind: 1000 if kind == "LoadJob" else 0)
    world.restart()
    kube = CachedKube(world.remembering, world.remembering.cache)
    job = asyncio.run(kube.get("LoadJob", "lake", "jan"))
    assert job is not None
    world.kube.edit("LoadJob", "jan", lambda job: job["spec"].update(suspend=False))
    assert asyncio.run(kube.get("LoadJob", "lake", "jan")) == job
    assert isinstance(asyncio.run(kube.replace_status({**job, "status": {}})), Conflict)
    found = asyncio.run(kube.get("LoadJob", "lake", "jan"))
    assert found is not None
    assert found["spec"]["suspend"] is False


def test_a_pod_that_the_cache_does_not_know_is_not_started_a_second_time() -> None:
    world = ready(load("jan"), lag=lambda kind: 1000 if kind == "Pod" else 0)
    world.restart()
    created: list[str] = []
    world.kube.created = lambda obj: created.append(obj["metadata"]["name"]) if obj["kind"] == "Pod" else None
    for _ in range(20):
        world.reconcile(TABLE)
    assert len(created) == 1
    # The answer to the create is forgotten too: the cache shows a job whose pod does not exist.
    shard = world.remembering.cache.shard("Pod", "lake")
    for pod in shard.select([]):
        shard.drop({"metadata": {**pod["metadata"], "resourceVersion": str(world.kube._version)}})
    for _ in range(20):
        world.reconcile(TABLE)
        world.kube.clock.advance(10)
    assert len(created) == 1
    assert world.kube.status("LoadJob", "jan")["attempts"] == 1


def test_a_driver_that_runs_is_not_shown_as_pending_on_the_word_of_the_cache() -> None:
    world = ready(load("jan"))
    world.run_until(lambda: any(world.kube.find("Pod", operation="Load")))
    world.deliver()
    world.lag = lambda kind: 1000 if kind == "Pod" else 0
    world.kubelet.tick()
    # A pass that reads the API server, as any other job of the Table may cause it.
    asyncio.run(reconcile(TABLE, replace(world._ports(), cached=None)))
    assert world.kube.condition("LoadJob", "jan", "Progressing")[1] == "DriverRunning"
    world.reconcile(TABLE)
    assert world.kube.condition("LoadJob", "jan", "Progressing")[1] == "DriverRunning"


def test_what_others_rely_on_is_not_taken_back_on_the_word_of_the_cache() -> None:
    world = ready()
    world.deliver()
    world.lag = lambda kind: 1000 if kind == "Warehouse" else 0
    shard = world.remembering.cache.shard("Warehouse", "lake")
    for lake in shard.select([]):
        shard.drop({"metadata": {**lake["metadata"], "resourceVersion": str(world.kube._version)}})
    writes = len(world.kube.writes)
    world.reconcile(TABLE)
    assert world.holds("Table", "flights", "Ready")
    assert world.kube.writes[writes:] == []
    world.kube.drop("Warehouse", "lake", "main")
    world.reconcile(TABLE)
    assert world.kube.condition("Table", "flights", "Ready") == ("False", "WarehouseNotFound")


def test_what_is_being_deleted_is_read_from_the_server() -> None:
    world = CachedWorld()
    for obj in (claim(), warehouse(), table(reclaimPolicy="Delete")):
        world.kube.add(obj)
    world.run_until(lambda: world.holds("Table", "flights", "Ready"))
    found = world.kube.objects["Table", "lake", "flights"]
    asyncio.run(world.kube.delete("Table", "lake", "flights", uid=found["metadata"]["uid"]))
    for _ in range(10):
        world.reconcile(TABLE)
    reads, writes = len(world.kube.reads), len(world.kube.writes)
    world.reconcile(TABLE)
    assert "get Table" in world.kube.reads[reads:]
    assert world.kube.writes[writes:] == []


@pytest.mark.parametrize("seed", range(2))
def test_a_cache_that_is_late_and_an_operator_that_dies_double_nothing(seed: int) -> None:
    draw = random.Random(seed)
    world = ready(load("jan"), load("feb"), merge("feed"), index("by-tail"))
    world.lag = lambda _kind: draw.choice((0, 0, 1, 2, 5))
    most: Counter[str] = Counter()

    def count(_created: Any) -> None:
        pods = [pod for pod in world.kube.find("Pod") if is_running(pod) or pod["status"]["phase"] == "Pending"]
        alive = Counter(pod["metadata"]["labels"]["skipstone.dev/owner-uid"] for pod in pods)
        for owner, number in alive.items():
            most[owner] = max(most[owner], number)

    world.kube.created = count
    world.kube.crash = lambda _number, moment: moment == "landed" and draw.random() < 0.05
    jobs = [("LoadJob", "jan"), ("LoadJob", "feb"), ("MergeJob", "feed")]
    world.run_until(lambda: all(world.holds(kind, name, "Complete") for kind, name in jobs))
    world.kube.crash = lambda _number, _moment: False
    world.run_until(lambda: world.holds("SecondaryIndex", "by-tail", "Synced"))
    assert set(most.values()) == {1}
    assert set(world.lake.tables["air", "flights"].commits.values()) == {1}
