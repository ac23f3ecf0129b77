"""A driver starts on what the API server has at that moment: its owner always, the rest when a pass took long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from skipstone_operator.ports import Key
from skipstone_operator.reconcilers import reconcile

from tests.unit.cache_double import CachedWorld
from tests.unit.lives import settled
from tests.unit.objects import claim, load

TABLE = Key("Table", "lake", "flights")


@dataclass
class Loading(CachedWorld):
    """A Table that is ready, with a job; ``loads`` are the drivers of loads that were ever created."""

    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.kube.created = self._note

    def _note(self, obj: dict[str, Any]) -> None:
        if (obj["kind"], obj["metadata"]["labels"]["skipstone.dev/operation"]) == ("Pod", "Load"):
            self.loads.append(obj["metadata"]["name"])


def loading() -> Loading:
    world = settled(Loading(), load("jan"))
    world.deliver()
    return world


def running_elsewhere(world: CachedWorld) -> None:
    """A driver of another Table of the Warehouse."""
    labels = {
        "app.kubernetes.io/managed-by": "skipstone-operator",
        "spark-role": "driver",
        "skipstone.dev/operation": "Load",
        "skipstone.dev/warehouse-uid": world.kube.objects["Warehouse", "lake", "main"]["metadata"]["uid"],
    }
    metadata = {"name": "feedbeef-12345678-1-driver", "labels": labels}
    world.kube.add({"kind": "Pod", "metadata": metadata, "status": {"phase": "Running"}})


def pass_behind_another(world: CachedWorld, seconds: float, change: Callable[[], None]) -> None:
    """A pass that waits for the Warehouse's slots for so long, and what users do meanwhile; then those that follow."""

    async def play() -> None:
        ports = world._ports()
        lock = ports.slots[world.kube.objects["Warehouse", "lake", "main"]["metadata"]["uid"]]
        await lock.acquire()
        waiting = asyncio.create_task(reconcile(TABLE, ports))
        await asyncio.sleep(0)
        assert not waiting.done(), "the pass did not ask for a slot"
        world.kube.clock.advance(seconds)
        change()
        lock.release()
        await waiting

    asyncio.run(play())
    world.reconcile_all()


def lower_limit(world: CachedWorld) -> None:
    world.kube.edit("Warehouse", "main", lambda found: found["spec"].update(maxConcurrentRuns=1))


def suspend_job(world: CachedWorld) -> None:
    world.kube.edit("LoadJob", "jan", lambda found: found["spec"].update(suspend=True))


def delete_table(world: CachedWorld) -> None:
    world.kube.drop("Table", "lake", "flights")


def demand_one_pod(world: CachedWorld) -> None:
    world.kube.drop("PersistentVolumeClaim", "lake", "lake-data")
    world.kube.add(claim("ReadWriteOncePod"))


@pytest.mark.parametrize(
    ("seconds", "change"),
    [(0.0, suspend_job), (30.0, suspend_job), (30.0, lower_limit), (30.0, delete_table), (30.0, demand_one_pod)],
)
def test_what_changes_while_a_pass_waits_for_a_slot_keeps_its_driver_from_starting(
    seconds: float, change: Callable[[CachedWorld], None]
) -> None:
    world = loading()
    running_elsewhere(world)
    world.deliver()
    pass_behind_another(world, seconds, lambda: change(world))
    assert world.loads == []


def test_what_does_not_change_while_a_pass_waits_for_a_slot_starts_the_driver() -> None:
    world = loading()
    pass_behind_another(world, 30.0, lambda: None)
    assert len(world.loads) == 1


@pytest.mark.parametrize(
    ("verb", "kind", "change"),
    [("get", "LoadJob", lower_limit), ("get", "LoadJob", delete_table), ("list", "Pod", suspend_job)],
)
def test_what_changes_during_a_slow_answer_before_the_driver_starts_none(
    verb: str, kind: str, change: Callable[[CachedWorld], None]
) -> None:
    world = loading()
    running_elsewhere(world)
    world.deliver()
    asked, changes = getattr(world.kube, verb), [change]

    async def answer(of: str, *args: Any, **named: Any) -> Any:
        found = await asked(of, *args, **named)
        if changes and of == kind and list(world.kube.find("ConfigMap", operation="Load")):
            world.kube.clock.advance(30)
            changes.pop()(world)
        return found

    setattr(world.kube, verb, answer)
    world.reconcile(TABLE)
    assert changes == []
    assert world.loads == []


def test_a_claim_for_one_pod_bounds_runs_however_late_the_cache_hears_of_it() -> None:
    world = loading()
    running_elsewhere(world)
    world.lag = lambda kind: 1000 if kind == "PersistentVolumeClaim" else 0
    world.restart()
    demand_one_pod(world)
    world.reconcile_all()
    assert world.loads == []
    assert world.kube.condition("LoadJob", "jan", "Progressing")[1] == "WaitingForQuota"


def test_an_owner_that_is_written_to_again_and_again_gets_its_driver() -> None:
    world = loading()
    marks: list[Any] = []

    def touch() -> None:
        marks.append(len(marks))
        world.kube.edit("LoadJob", "jan", lambda job: job["metadata"].update(annotations={"mark": str(len(marks))}))

    pass_behind_another(world, 0.0, touch)
    assert len(world.loads) == 1
    assert world.kube.status("LoadJob", "jan")["attempts"] == 1
