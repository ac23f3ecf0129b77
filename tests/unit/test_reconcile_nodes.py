"""Nodes that die under a run: no kubelet is left to confirm the end of a pod, so the pod stays for ever."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from skipstone_core.contract.requests import RunKind
from skipstone_operator.conditions import format_time

from tests.unit.lake_double import Ends, end_pod, request_of
from tests.unit.lives import driver, hold_pods, job, started, synced
from tests.unit.objects import index, load, merge, table
from tests.unit.operator_double import World

NODE = "worker-7"
Obj = dict[str, Any]


def name_of(world: World, operation: str) -> str:
    return str(driver(world, operation)["metadata"]["name"])


def die_under(world: World, operation: str) -> str:
    """Let the next driver of ``operation`` start on the node, and the node die; the driver's name."""
    hold_pods(world, operation)
    world.run_until(lambda: bool(list(world.kube.find("Pod", operation=operation))))
    world.kubelet.holds = lambda _pod: False
    world.kubelet.tick()
    name = name_of(world, operation)
    world.kube.edit("Pod", name, lambda pod: pod["spec"].update(nodeName=NODE))
    world.kubelet.dead.add(NODE)
    return name


def fall_silent(world: World, name: str) -> None:
    """What the node controller writes to a pod whose node it does not hear of."""
    conditions = [
        {"type": "ContainersReady", "status": "True", "lastTransitionTime": format_time(world.kube.clock.now())},
        {"type": "Ready", "status": "False", "lastTransitionTime": format_time(world.kube.clock.now())},
    ]
    world.kube.edit("Pod", name, lambda pod: pod["status"].update(conditions=conditions))


def evict(world: World, name: str) -> None:
    """Kubernetes deletes the driver, and nobody confirms its end."""
    world.kube.remove("Pod", "lake", name)
    world.seconds = 15.0


def started_on_many_nodes(*objects: Obj) -> World:
    """A world whose Warehouse has a claim that many nodes mount."""
    world = started()
    modes = {"accessModes": ["ReadWriteMany"]}
    world.kube.edit("PersistentVolumeClaim", "lake-data", lambda found: found["spec"].update(modes))
    world.kube.edit(*WAREHOUSE, lambda found: found["spec"].update(catalog={"type": "Rest", "uri": "http://rest"}))
    world.run_until(lambda: bool(world.kube.status(*WAREHOUSE).get("checkedGeneration") == 2))
    for obj in objects:
        world.kube.add(obj)
    return world


def message_of(world: World, kind: str, name: str, type_: str = "Stalled") -> str:
    conditions = world.kube.status(kind, name)["conditions"]
    return str(next(found["message"] for found in conditions if found["type"] == type_))


def is_gone(world: World, kind: str, name: str) -> bool:
    return (kind, "lake", name) not in world.kube.objects


@dataclass(frozen=True)
class Scene:
    """One kind of run: ``objects`` bring it about, ``done`` says that the owner reached its end without the dead node.

    ``told``: the resource that says where its run is stuck; none for runs of which no condition speaks.
    """

    operation: str
    objects: tuple[Obj, ...]
    done: Callable[[World], bool]
    told: tuple[str, str] | None = None
    begin: Callable[[World], None] = lambda _world: None


def fail_first_load(world: World) -> None:
    world.lake.script = lambda request: Ends(1) if request.kind is RunKind.LOAD else None


def drop(kind: str, name: str) -> Callable[[World], None]:
    def begin(world: World) -> None:
        world.run_until(lambda: kind == "Table" or synced(world) == "1/1")
        world.kube.remove(kind, "lake", name)

    return begin


def complete(kind: str, name: str) -> Callable[[World], bool]:
    return lambda world: world.holds(kind, name, "Complete")


WAREHOUSE, TABLE, INDEX, JOB = (
    ("Warehouse", "main"),
    ("Table", "flights"),
    ("SecondaryIndex", "by-tail"),
    ("LoadJob", "jan"),
)
SCENES = {
    "load": Scene("Load", (load("jan"),), complete(*JOB), JOB),
    "merge": Scene("Merge", (load("jan"), merge("feed")), complete("MergeJob", "feed"), ("MergeJob", "feed")),
    "dry run": Scene("DryRun", (merge("feed", dryRun=True),), complete("MergeJob", "feed"), ("MergeJob", "feed")),
    "confirm run": Scene(
        "Confirm", (load("jan", backoffLimit=0),), lambda w: w.holds(*JOB, "Failed"), JOB, fail_first_load
    ),
    "reindex": Scene("Reindex", (load("jan"), index()), lambda w: synced(w) == "1/1", INDEX),
    "drop of an index": Scene(
        "Drop", (load("jan"), index(reclaimPolicy="Delete")), lambda w: is_gone(w, *INDEX), INDEX, drop(*INDEX)
    ),
}


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_a_run_on_a_dead_node_says_how_to_get_on_and_gets_on_by_itself(scene: Scene) -> None:
    world = started(*scene.objects)
    scene.begin(world)
    stuck = die_under(world, scene.operation)
    evict(world, stuck)
    assert scene.told is not None
    world.run_until(lambda: world.holds(*scene.told, "Stalled"), ticks=12)
    told = message_of(world, *scene.told)
    assert NODE in told
    assert f"kubectl delete pod {stuck} -n lake --force" in told
    assert world.kube.condition(*scene.told, "Progressing") == ("False", "DriverStuck")
    world.run_until(lambda: scene.done(world), ticks=200)
    assert is_gone(world, *scene.told) or not world.holds(*scene.told, "Stalled") or world.holds(*scene.told, "Failed")
    assert ("Pod", "lake", stuck) in world.kube.objects, "the stuck pod keeps its name and is in nobody's way"


@pytest.mark.parametrize("operation", ["Check", "Observe"])
def test_a_warehouse_gets_on_without_a_dead_node(operation: str) -> None:
    world = started()
    if operation == "Check":
        world.kube.edit("Warehouse", "main", lambda found: found["spec"].update(maxConcurrentRuns=3))
    else:
        world.kube.edit("Table", "flights", lambda found: found["spec"].update(refreshIntervalSeconds=60))
    evict(world, die_under(world, operation))

    def is_done() -> bool:
        status = world.kube.status(*WAREHOUSE)
        last = status.get("lastRun" if operation == "Check" else "lastObserveRun") or {}
        return bool(last.get("result") == "Succeeded" and last["attempt"] > 1 and world.holds(*WAREHOUSE, "Ready"))

    if operation == "Observe":
        world.run_until(lambda: world.kube.condition(*WAREHOUSE, "Progressing") == ("False", "DriverStuck"))
        told = message_of(world, *WAREHOUSE)
        assert told.startswith("the observe run: ")
        assert NODE in told
        assert "kubectl delete pod" in told
        assert world.holds(*WAREHOUSE, "Ready")
    world.run_until(is_done)
    world.run_until(lambda: world.kube.condition(*WAREHOUSE, "Progressing") == ("False", "Idle"))
    assert not world.holds(*WAREHOUSE, "Stalled")


def test_a_table_whose_maintenance_is_on_a_dead_node_lets_jobs_go_on() -> None:
    world = started(*(load(f"j{number}") for number in range(6)))
    world.run_until(lambda: all(world.holds("LoadJob", f"j{number}", "Complete") for number in range(6)))
    window = {"schedule": "* * * * *", "duration": "1h"}
    wanted = {"compaction": {"minInputFiles": 2}, "window": window}
    world.kube.edit("Table", "flights", lambda found: found["spec"].update(maintenance=wanted))
    evict(world, die_under(world, "Maintain"))
    world.kube.add(load("late"))
    world.run_until(lambda: world.holds(*TABLE, "Stalled"), ticks=20)
    assert NODE in message_of(world, *TABLE)
    assert world.holds(*TABLE, "Ready")
    world.run_until(lambda: world.holds("LoadJob", "late", "Complete"), ticks=200)


def test_a_change_of_a_table_on_a_dead_node_is_tried_again() -> None:
    world = started()
    more = [*table()["spec"]["columns"], {"name": "note", "type": "string"}]
    world.kube.edit("Table", "flights", lambda found: found["spec"].update(columns=more))
    evict(world, die_under(world, "Table"))
    world.run_until(lambda: world.holds(*TABLE, "Stalled"), ticks=20)
    world.run_until(lambda: world.kube.status(*TABLE)["appliedGeneration"] == 2, ticks=200)


def test_a_deadline_ends_a_job_on_a_dead_node_once_a_confirm_run_has_fenced_it_off() -> None:
    world = started(load("jan", activeDeadlineSeconds=120))
    evict(world, die_under(world, "Load"))
    world.run_until(lambda: world.holds(*JOB, "Failed"), ticks=200)
    assert world.kube.condition(*JOB, "Failed") == ("True", "DeadlineExceeded")
    assert len(world.lake.tables["air", "flights"].aborted) == 1


@pytest.mark.parametrize("when", ["before the next attempt", "after the job"])
def test_a_driver_whose_node_comes_back_commits_nothing_twice(when: str) -> None:
    world = started(load("jan"))
    stuck = die_under(world, "Load")
    evict(world, stuck)
    if when == "after the job":
        world.run_until(lambda: world.holds(*JOB, "Complete"))
        end_pod(world.kube, world.lake, world.kube.objects["Pod", "lake", stuck])
    else:
        world.run_until(lambda: bool(world.kube.status(*JOB).get("lostAttempts")))
        end_pod(world.kube, world.lake, world.kube.objects["Pod", "lake", stuck])
        world.run_until(lambda: world.holds(*JOB, "Complete"))
    assert world.lake.tables["air", "flights"].segments == [1]
    assert not world.holds(*JOB, "Failed")


def test_a_driver_that_comes_back_in_time_is_believed() -> None:
    world = started(load("jan"))
    stuck = die_under(world, "Load")
    evict(world, stuck)
    world.run_until(lambda: world.holds(*JOB, "Stalled"))
    end_pod(world.kube, world.lake, world.kube.objects["Pod", "lake", stuck])
    world.run_until(lambda: world.holds(*JOB, "Complete"), ticks=2)
    assert world.kube.status(*JOB).get("lostAttempts", 0) == 0


def test_a_driver_that_nobody_evicts_is_stopped_when_its_node_stays_silent() -> None:
    world = started_on_many_nodes(load("jan"))
    stuck = die_under(world, "Load")
    fall_silent(world, stuck)
    world.run_until(lambda: job(world) == ("True", "NodeNotReady"), ticks=3)
    assert NODE in message_of(world, *JOB, "Progressing")
    world.run_until(lambda: "deletionTimestamp" in world.kube.objects["Pod", "lake", stuck]["metadata"], ticks=130)
    world.run_until(lambda: world.holds(*JOB, "Complete"), ticks=100)
    status = world.kube.status(*JOB)
    assert (status["failedAttempts"], status["lostAttempts"]) == (0, 1)


def test_a_node_that_is_silent_for_a_moment_costs_nothing() -> None:
    world = started(load("jan"))
    back = die_under(world, "Load")
    fall_silent(world, back)
    world.run_until(lambda: job(world) == ("True", "NodeNotReady"), ticks=3)
    world.kube.edit("Pod", back, lambda pod: pod["status"].update(conditions=[]))
    world.kubelet.dead.clear()
    world.run_until(lambda: world.holds(*JOB, "Complete"), ticks=5)
    assert world.kube.status(*JOB)["attempts"] == 1


def test_a_driver_that_its_kubelet_should_have_ended_is_stopped() -> None:
    world = started(load("jan"), index())
    stuck = die_under(world, "Reindex")
    taken = format_time(world.kube.clock.now() - timedelta(days=1))
    world.kube.edit("Pod", stuck, lambda pod: pod["status"].update(startTime=taken))
    world.run_until(lambda: synced(world) == "1/1", ticks=200)
    assert ("Pod", "lake", stuck) in world.kube.objects


def test_a_finalizer_of_somebody_else_keeps_nobody_waiting() -> None:
    world = started(load("jan"))
    stuck = die_under(world, "Load")
    world.kube.edit("Pod", stuck, lambda pod: pod["metadata"].update(finalizers=["example.com/keep"]))
    evict(world, stuck)
    world.run_until(lambda: world.holds(*JOB, "Stalled"))
    assert f"kubectl patch pod {stuck} -n lake" in message_of(world, *JOB)
    world.run_until(lambda: world.holds(*JOB, "Complete"))


def test_a_dead_node_takes_no_slot_of_the_warehouse() -> None:
    world = started(load("jan"))
    world.kube.edit("Warehouse", "main", lambda found: found["spec"].update(maxConcurrentRuns=1))
    world.run_until(lambda: world.holds(*WAREHOUSE, "Ready"))
    evict(world, die_under(world, "Load"))
    world.run_until(lambda: world.holds(*JOB, "Complete"), ticks=200)


def test_each_attempt_has_a_name_and_a_config_map_of_its_own() -> None:
    world = started(load("jan"))
    stuck = die_under(world, "Load")
    evict(world, stuck)
    world.run_until(lambda: world.holds(*JOB, "Complete"))
    names = {pod["metadata"]["name"] for pod in world.kube.find("Pod", operation="Load")}
    assert len(names) == 2
    runs = [name.removesuffix("-driver") for name in sorted(names)]
    assert [request_of(world.kube, run).attempt for run in runs] == [1, 2]
    assert len({request_of(world.kube, run).txn for run in runs}) == 1, "one transaction, whichever attempt commits"


def test_a_claim_that_is_mounted_on_the_dead_node_is_waited_for_and_no_attempt_is_spent() -> None:
    world = started(load("jan", backoffLimit=0))
    stuck = die_under(world, "Load")
    fall_silent(world, stuck)
    evict(world, stuck)
    world.run_until(lambda: bool(world.kube.status(*JOB).get("lostAttempts")), ticks=40)
    for _ in range(60):
        world.tick()
    assert job(world) == ("False", "DriverStuck")
    told = message_of(world, *JOB)
    assert "claim" in told
    assert NODE in told
    assert f"kubectl delete pod {stuck} -n lake --force" in told
    assert "given up at" not in told, "that is past"
    assert [pod["metadata"]["name"] for pod in world.kube.find("Pod", operation="Load")] == [stuck]
    world.kube.drop("Pod", "lake", stuck)  # what the command does
    world.run_until(lambda: world.holds(*JOB, "Complete"), ticks=20)
    assert world.kube.status(*JOB)["failedAttempts"] == 0


def test_a_claim_that_many_nodes_mount_is_no_reason_to_wait() -> None:
    world = started_on_many_nodes(load("jan"))
    stuck = die_under(world, "Load")
    fall_silent(world, stuck)
    evict(world, stuck)
    world.run_until(lambda: world.holds(*JOB, "Complete"), ticks=60)
