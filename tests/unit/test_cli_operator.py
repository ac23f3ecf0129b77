"""The command line judges statuses as the operator really writes them, at each step of a life."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from skipstone_cli.kinds import KINDS, Target, parse_target
from skipstone_cli.reading import text_of
from skipstone_cli.views.causes import Surroundings, explain
from skipstone_cli.views.outcomes import Outcome, find_maintain_end, find_reindex_end
from skipstone_cli.views.pods import choose_driver, guess_driver
from skipstone_cli.views.standings import State, judge
from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason

from tests.unit.lake_double import Ends
from tests.unit.lives import hold_pods, started, synced
from tests.unit.objects import index, load, warehouse
from tests.unit.operator_double import World

MAINTAINED = {"compaction": {"minInputFiles": 2}, "snapshots": {"maxAge": "5d"}}


def stored(world: World, target: Target) -> dict[str, Any]:
    found = next(
        obj for (kind, _, name), obj in world.kube.objects.items() if (kind, name) == (target.kind.name, target.name)
    )
    return dict(found)


def stands(world: World, text: str) -> State:
    target = parse_target(text)
    return judge(target.kind, stored(world, target)).state


def follow(
    world: World, text: str, annotation: str, find: Callable[[dict[str, Any], str], Outcome | None], value: str = "7"
) -> Outcome:
    """Ask by hand, and look at each step until the end."""
    target = parse_target(text)
    before = text_of(
        stored(world, target), "status", "lastRun" if target.kind.short == "si" else "lastMaintainRun", "id"
    )
    world.kube.edit(target.kind.name, target.name, lambda obj: obj["metadata"].update(annotations={annotation: value}))
    ends: list[Outcome] = []

    def is_over() -> bool:
        end = find(stored(world, target), before)
        ends.extend([end] if end is not None else [])
        return end is not None

    assert not is_over()
    world.run_until(is_over)
    return ends[0]


def test_states_of_a_life() -> None:
    world = started(load("jan"), load("feb"), index())
    world.lake.script = lambda r: Ends(65, Reason.BAD_RECORDS) if r.owner_name == "feb" else None
    world.run_until(lambda: synced(world) == "1/1" and world.holds("LoadJob", "feb", "Failed"))
    states = [stands(world, text) for text in ("wh/main", "tbl/flights", "si/by-tail", "lj/jan", "lj/feb")]
    assert states == [State.READY, State.READY, State.READY, State.COMPLETE, State.FAILED]
    world.kube.edit("SecondaryIndex", "by-tail", lambda obj: obj["spec"].update(suspend=True, maxLagSegments=0))
    world.kube.add(load("mar"))
    world.run_until(lambda: stands(world, "lj/mar") is State.COMPLETE)
    world.run_until(lambda: stands(world, "si/by-tail") is State.FAILED)


def test_what_a_job_waits_for_and_its_driver() -> None:
    world = started()
    hold_pods(world, "Load")
    world.kube.add(load("jan"))
    world.run_until(lambda: any(world.kube.find("Pod", operation="Load")))
    world.kube.add(load("mar"))
    for _ in range(3):
        world.tick()
    jan, mar = (parse_target(f"lj/{name}") for name in ("jan", "mar"))
    pods = list(world.kube.find("Pod", operation="Load"))
    assert stands(world, "lj/jan") is State.RUNNING
    assert stands(world, "lj/mar") is State.WAITING
    guessed, chosen = guess_driver(stored(world, jan)), choose_driver(jan.kind, pods)
    assert guessed is not None and chosen is not None
    assert guessed["metadata"]["name"] == chosen["metadata"]["name"]
    said = explain(mar, stored(world, mar), Surroundings())
    assert said.standing.reason in (Reason.WAITING_FOR_TABLE, Reason.WAITING_FOR_TURN)
    assert said.remedy.startswith("Wait for")


def test_new_and_broken_objects() -> None:
    world = World()
    world.kube.add(warehouse())
    assert stands(world, "wh/main") is State.UNKNOWN
    for _ in range(3):
        world.tick()
    assert stands(world, "wh/main") is State.FAILED
    assert explain(parse_target("wh/main"), stored(world, parse_target("wh/main")), Surroundings()).remedy.startswith(
        "Create the PersistentVolumeClaim"
    )


class TestByHand:
    REINDEX = ("si/by-tail", "skipstone.dev/reindex", find_reindex_end)
    MAINTAIN = ("tbl/flights", "skipstone.dev/maintain", find_maintain_end)

    def test_a_reindex_of_an_index_that_lacks_nothing(self) -> None:
        world = started(load("jan"), index())
        world.run_until(lambda: synced(world) == "1/1")
        end = follow(world, *self.REINDEX)
        assert (end.succeeded, end.message) == (True, "the reindex ended; synced: 1/1")
        assert follow(world, *self.REINDEX, value="8").succeeded

    def test_a_reindex_that_is_refused(self) -> None:
        world = started(load("jan"), index(maintenance="Manual"))
        world.run_until(lambda: synced(world) == "0/1")
        world.lake.script = lambda r: Ends(64, Reason.DELETES_UNSUPPORTED) if r.kind is RunKind.REINDEX else None
        end = follow(world, *self.REINDEX)
        assert (end.succeeded, "DeletesUnsupported" in end.message) == (False, True)

    def test_a_reindex_that_is_taken_back_before_it_starts(self) -> None:
        world = started(load("jan"), index())
        world.run_until(lambda: synced(world) == "1/1")
        hold_pods(world, "Reindex")
        suspends = iter([True, False])

        def find(obj: dict[str, Any], before: str) -> Outcome | None:
            if text_of(obj, "status", "currentRun", "id") and (wanted := next(suspends, None)) is not None:
                world.kube.edit("SecondaryIndex", "by-tail", lambda o: o["spec"].update(suspend=wanted))
            elif text_of(obj, "status", "observedReindex"):
                world.kube.edit("SecondaryIndex", "by-tail", lambda o: o["spec"].update(suspend=False))
                world.kubelet.holds = lambda _pod: False
            return find_reindex_end(obj, before)

        assert follow(world, "si/by-tail", "skipstone.dev/reindex", find).succeeded

    def test_maintenance_of_all_steps_and_of_one(self) -> None:
        world = started(load("jan"), load("feb"))
        world.run_until(lambda: world.holds("LoadJob", "feb", "Complete"))
        world.kube.edit("Table", "flights", lambda obj: obj["spec"].update(maintenance=MAINTAINED))
        world.run_until(lambda: world.holds("Table", "flights", "Healthy"))
        assert follow(world, *self.MAINTAIN).succeeded
        one = follow(world, *self.MAINTAIN, value="Snapshots/8")
        assert (one.succeeded, one.message) == (True, "the maintain run ended; Snapshots: nothing to do")

    def test_maintenance_that_fails(self) -> None:
        world = started()
        world.kube.edit("Table", "flights", lambda obj: obj["spec"].update(maintenance=MAINTAINED))
        world.lake.script = lambda r: Ends(1) if r.kind is RunKind.MAINTAIN else None
        end = follow(world, *self.MAINTAIN)
        assert (end.succeeded, "not all was done: Compaction" in end.message) == (False, True)
        assert stands(world, "tbl/flights") is State.FAILED


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_an_object_that_nobody_has_looked_at_is_unknown(kind: Any) -> None:
    assert judge(kind, {"metadata": {"name": "a"}, "spec": {}}).state is State.UNKNOWN
