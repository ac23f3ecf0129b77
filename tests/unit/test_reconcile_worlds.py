"""Several resources at once: they converge, take turns, and rest."""

from __future__ import annotations

from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason

from tests.unit.lake_double import Ends
from tests.unit.lives import hold_pods, job, refuse_all, started, synced
from tests.unit.objects import claim, index, load, merge, table, warehouse
from tests.unit.operator_double import World


def test_everything_applied_at_once_converges_whatever_the_order() -> None:
    world = World()
    for obj in (merge("feed"), index(), load("jan"), table(), warehouse(), claim()):
        world.kube.add(obj)
    world.run_until(lambda: world.holds("MergeJob", "feed", "Complete") and world.holds("LoadJob", "jan", "Complete"))
    world.run_until(lambda: world.holds("SecondaryIndex", "by-tail", "Synced"))
    assert world.kube.status("Table", "flights")["indexesInSync"] == "1/1"
    assert world.kube.status("MergeJob", "feed")["pruned"] == "3/4"
    assert world.kube.status("LoadJob", "jan")["segment"] in (1, 2)


def test_nothing_is_written_at_rest() -> None:
    world = started(load("jan"), index())
    world.run_until(lambda: synced(world) == "1/1" and world.holds("LoadJob", "jan", "Complete"))
    for _ in range(5):
        world.tick()
    before = list(world.kube.writes)
    for _ in range(40):
        world.tick()
    assert world.kube.writes == before


def test_one_writer_at_a_time_the_older_first() -> None:
    world = started()
    world.kube.add(load("b"))
    world.kube.clock.advance(1)
    world.kube.add(load("c"))
    world.kube.add(load("d"))
    hold_pods(world, "Load")
    for _ in range(3):
        world.tick()
    assert [
        pod["metadata"]["labels"]["skipstone.dev/owner-kind"] for pod in world.kube.find("Pod", operation="Load")
    ] == ["LoadJob"]
    assert world.kube.status("Table", "flights")["writer"]["name"] == "b"
    assert job(world, "c") == ("False", "WaitingForTable")
    assert job(world, "d") == ("False", "WaitingForTurn")
    world.kubelet.holds = lambda _pod: False
    world.run_until(lambda: all(world.holds("LoadJob", name, "Complete") for name in "bcd"))
    assert [world.kube.status("LoadJob", name)["segment"] for name in "bcd"] == [1, 2, 3]


def test_a_reindex_runs_beside_a_load() -> None:
    world = started(load("jan"))
    world.run_until(lambda: world.holds("LoadJob", "jan", "Complete"))
    hold_pods(world, "Load")
    world.kube.add(load("feb"))
    world.kube.add(index())
    world.run_until(lambda: world.holds("SecondaryIndex", "by-tail", "Synced"), ticks=20)
    assert not world.holds("LoadJob", "feb", "Complete")


def test_a_suspended_job_lets_younger_ones_pass() -> None:
    world = started(load("a", suspend=True), load("b"))
    world.run_until(lambda: world.holds("LoadJob", "b", "Complete"))
    assert job(world, "a") == ("False", "Suspended")


def test_no_more_runs_at_once_than_the_warehouse_allows() -> None:
    world = World()
    for obj in (claim(), warehouse(maxConcurrentRuns=1), table()):
        world.kube.add(obj)
    other = table("other", identifier={"namespace": "air", "name": "other"})
    world.kube.add(other)
    world.run_until(lambda: world.holds("Table", "flights", "Ready") and world.holds("Table", "other", "Ready"))
    hold_pods(world, "Load")
    world.kube.add(load("a"))
    world.kube.add(load("b", tableRef={"name": "other"}))
    for _ in range(5):
        world.tick()
    assert len(list(world.kube.find("Pod", operation="Load"))) == 1
    assert sorted(job(world, name)[1] for name in "ab") == ["DriverPending", "WaitingForQuota"]
    world.kubelet.holds = lambda _pod: False
    world.run_until(lambda: world.holds("LoadJob", "a", "Complete") and world.holds("LoadJob", "b", "Complete"))


def test_jobs_wait_for_a_table_and_a_warehouse_that_come_later() -> None:
    world = World()
    world.kube.add(load("jan"))
    world.tick()
    assert job(world) == ("False", "TableNotFound")
    world.kube.add(table())
    world.tick()
    assert job(world) == ("False", "TableNotReady")
    assert world.kube.condition("Table", "flights", "Ready") == ("False", "WarehouseNotFound")
    world.kube.add(warehouse())
    world.tick()
    assert world.kube.condition("Warehouse", "main", "Ready") == ("False", "ClaimNotFound")
    world.kube.add(claim())
    world.run_until(lambda: world.holds("LoadJob", "jan", "Complete"))


def test_a_running_load_survives_the_deletion_of_its_kept_table() -> None:
    world = started(load("jan"))
    world.run_until(lambda: job(world)[1] == "DriverRunning")
    world.kube.remove("Table", "lake", "flights")
    world.run_until(lambda: world.holds("LoadJob", "jan", "Complete"))


def test_conflicts_are_retried() -> None:
    world = started(merge("feed"))
    world.lake.script = lambda r: (
        Ends(75, Reason.CONFLICTED, outcome=RunOutcome.CONFLICTED)
        if r.kind is RunKind.MERGE and r.attempt == 1
        else None
    )
    world.run_until(lambda: world.holds("MergeJob", "feed", "Complete"))
    assert world.kube.status("MergeJob", "feed")["failedAttempts"] == 1


def test_a_namespace_that_goes_away_with_a_merge_and_two_indexes_ends_clean() -> None:
    world = started(load("jan"), index(), index("by-id", "id"))
    world.run_until(lambda: synced(world, "by-id") == "1/1" == synced(world))
    world.kube.add(merge("feed"))
    world.run_until(lambda: job(world, "feed", "MergeJob")[1] == "DriverRunning")
    refuse_all(world)
    for kind, namespace, name in list(world.kube.objects):
        if (kind, namespace, name) in world.kube.objects:
            world.kube.remove(kind, namespace, name)
    world.run_until(lambda: not world.kube.objects, ticks=24)
