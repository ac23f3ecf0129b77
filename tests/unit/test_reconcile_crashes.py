"""The operator dies at every write of a load, a merge and a reindex: nothing ever runs twice at once, all ends well."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from tests.unit.kube_double import is_running
from tests.unit.objects import claim, index, load, merge, table, warehouse
from tests.unit.operator_double import World

MOMENTS = ("before", "landed", "after")
WORKS: dict[str, tuple[dict[str, Any], str]] = {
    "load": (load("work"), "Complete"),
    "merge": (merge("work"), "Complete"),
    "reindex": (index("work"), "Synced"),
}


@dataclass
class Watched:
    """A world with a table that holds one segment, and the highest number of live drivers per owner ever seen."""

    world: World
    most_alive: Counter[str]


def ready_world() -> Watched:
    world, most_alive = World(), Counter[str]()
    for obj in (claim(), warehouse(), table(), load("before")):
        world.kube.add(obj)
    world.run_until(lambda: world.holds("LoadJob", "before", "Complete"))
    world.run_until(lambda: not world.kube.status("Table", "flights").get("writer"))

    def count(_created: Any) -> None:
        alive = Counter(
            pod["metadata"]["labels"]["skipstone.dev/owner-uid"]
            for pod in world.kube.find("Pod")
            if is_running(pod) or pod["status"]["phase"] == "Pending"
        )
        for owner, number in alive.items():
            most_alive[owner] = max(most_alive[owner], number)

    world.kube.created = count
    return Watched(world, most_alive)


def finish(watched: Watched, work: str) -> None:
    obj, condition = WORKS[work]
    watched.world.kube.add(obj)
    watched.world.run_until(lambda: watched.world.holds(obj["kind"], "work", condition), ticks=80)
    watched.world.run_until(lambda: not watched.world.kube.status("Table", "flights").get("writer"), ticks=20)


def number_of_writes(work: str) -> int:
    watched = ready_world()
    before = len(watched.world.kube.writes)
    finish(watched, work)
    return len(watched.world.kube.writes) - before


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("work", WORKS)
def test_dying_at_any_write_neither_doubles_a_driver_nor_a_commit(work: str, moment: str) -> None:
    writes = number_of_writes(work)
    assert writes >= 6, "a workload that writes so little proves nothing"
    for fatal in range(writes):
        watched = ready_world()
        world, first = watched.world, len(watched.world.kube.writes)
        # Dying after the answer came is dying before the next write: nothing is remembered between passes.
        number, when = (first + fatal + 1, "before") if moment == "after" else (first + fatal, moment)
        world.kube.crash = lambda n, m, number=number, when=when: (n, m) == (number, when)  # type: ignore[misc]
        finish(watched, work)
        happened = world.crashes == 1 or (moment == "after" and fatal == writes - 1)
        assert happened, f"write {fatal} was never reached"
        lake_table = world.lake.tables["air", "flights"]
        assert set(lake_table.commits.values()) == {1}
        assert lake_table.segments == ([1, 2] if work != "reindex" else [1])
        assert set(watched.most_alive.values()) == {1}


@pytest.mark.parametrize("work", WORKS)
def test_dying_at_every_write_still_converges(work: str) -> None:
    watched = ready_world()
    world, seen = watched.world, set[int]()

    def once(number: int, moment: str) -> bool:
        if moment != "landed" or number in seen or number % 2:
            return False
        seen.add(number)
        return True

    world.kube.crash = once
    finish(watched, work)
    assert world.crashes >= 4
    assert set(watched.most_alive.values()) == {1}
    assert set(world.lake.tables["air", "flights"].commits.values()) == {1}
