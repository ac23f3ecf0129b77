"""The operator dies at every write of each kind of work: nothing ever runs twice at once, all ends well.

`make test` takes every second write; which ones changes with the commit. `make soak-kill` takes all of them.
"""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from skipstone_core.contract.keeping import kept_driver_uid
from skipstone_core.contract.requests import JobRequest, RunKind

from tests.examples import cases, turn
from tests.unit.kube_double import is_running
from tests.unit.lake_double import Ends, Script, is_kept_driver
from tests.unit.objects import claim, index, load, merge, table, warehouse
from tests.unit.operator_double import World

MOMENTS = ("before", "landed", "after")
#: One of so many writes is taken.
EVERY = cases(2, 1)


@dataclass(frozen=True)
class Work:
    """One resource, the condition that ends it, how its drivers end, and how many segments it leaves more.

    ``maintained``: the work ends once the table is compacted into one segment. ``kept``: a kept driver takes the run.
    """

    obj: dict[str, Any]
    condition: str
    script: Script = lambda _request: None
    commits: int = 1
    maintained: bool = False
    kept: bool = False


def _silent_after_commit(request: JobRequest) -> Ends | None:
    return Ends(137, commits=True) if request.kind is RunKind.LOAD else None


def _silent(request: JobRequest) -> Ends | None:
    return Ends(137) if request.kind is RunKind.LOAD else None


COMPACTED = {"compaction": {"minInputFiles": 2}}
WORKS = {
    "load": Work(load("work"), "Complete"),
    "merge": Work(merge("work"), "Complete"),
    "reindex": Work(index("work"), "Synced", commits=0),
    "kept merge": Work(merge("work"), "Complete", kept=True),
    "confirmed load": Work(load("work", backoffLimit=0), "Complete", _silent_after_commit),
    "aborted load": Work(load("work", backoffLimit=1), "Failed", _silent, commits=0),
    "maintain": Work(load("work"), "Complete", commits=0, maintained=True),
}


@dataclass
class Watched:
    """A world with a table that holds one segment, and the highest number of live drivers per owner ever seen."""

    world: World
    most_alive: Counter[str]


@cache
def prepared_world(*, maintained: bool, kept: bool) -> World:
    world, asked = World(), {"warmDrivers": {}} if kept else {}
    for obj in (
        claim(),
        warehouse(**asked),
        table(**({"maintenance": COMPACTED} if maintained else {})),
        load("before"),
    ):
        world.kube.add(obj)
    world.run_until(lambda: world.holds("LoadJob", "before", "Complete"))
    world.run_until(lambda: not world.kube.status("Table", "flights").get("writer"))
    if kept:
        world.run_until(lambda: world.holds("Warehouse", "main", "WarmDriversReady"))
    return world


def ready_world(work: str) -> Watched:
    world, most_alive = (
        copy.deepcopy(prepared_world(maintained=WORKS[work].maintained, kept=WORKS[work].kept)),
        Counter[str](),
    )

    def count(_created: Any) -> None:
        alive = Counter(
            pod["metadata"]["labels"]["skipstone.dev/owner-uid"]
            for pod in world.kube.find("Pod")
            if (is_running(pod) or pod["status"]["phase"] == "Pending") and not is_kept_driver(pod)
        )
        for owner, number in alive.items():
            most_alive[owner] = max(most_alive[owner], number)

    world.kube.created = count
    return Watched(world, most_alive)


def finish(watched: Watched, work: str) -> None:
    case = WORKS[work]
    watched.world.kube.add(case.obj)
    watched.world.lake.script = case.script
    watched.world.run_until(lambda: watched.world.holds(case.obj["kind"], "work", case.condition), ticks=80)
    if case.maintained:
        watched.world.run_until(lambda: not watched.world.lake.tables["air", "flights"].small, ticks=40)
        watched.world.run_until(lambda: watched.world.holds("Table", "flights", "Healthy"), ticks=20)
    watched.world.run_until(lambda: not watched.world.kube.status("Table", "flights").get("writer"), ticks=20)


def number_of_writes(work: str) -> int:
    watched = ready_world(work)
    before = len(watched.world.kube.writes)
    finish(watched, work)
    assert any(map(kept_driver_uid, watched.world.kube.find("Pod"))) is WORKS[work].kept
    return len(watched.world.kube.writes) - before


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("work", WORKS)
def test_dying_at_any_write_neither_doubles_a_driver_nor_a_commit(work: str, moment: str) -> None:
    writes = number_of_writes(work)
    assert writes >= 6, "a workload that writes so little proves nothing"
    for fatal in range(turn(EVERY), writes, EVERY):
        watched = ready_world(work)
        world, first = watched.world, len(watched.world.kube.writes)
        # Dying after the answer came is dying before the next write: nothing is remembered between passes.
        number, when = (first + fatal + 1, "before") if moment == "after" else (first + fatal, moment)
        world.kube.crash = lambda n, m, number=number, when=when: (n, m) == (number, when)  # type: ignore[misc]
        finish(watched, work)
        happened = world.crashes == 1 or (moment == "after" and fatal == writes - 1)
        assert happened, f"write {fatal} was never reached"
        lake_table = world.lake.tables["air", "flights"]
        assert set(lake_table.commits.values()) == {1}
        assert len(lake_table.segments) == 1 + WORKS[work].commits
        assert set(watched.most_alive.values()) == {1}


@pytest.mark.parametrize("work", WORKS)
def test_dying_at_every_write_still_converges(work: str) -> None:
    watched = ready_world(work)
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
