"""One pass tells all jobs of a Table what is seen; what does something is still one write."""

from __future__ import annotations

from typing import Any

import pytest
from skipstone_operator.ports import JsonObject, Key, Refused, UpdateAnswer
from skipstone_operator.reconcilers.passes.cachesafe import is_cache_safe
from skipstone_operator.reconcilers.passes.showing import only_shows, takes_back
from skipstone_operator.worlds.steps import PutStatus

from tests.unit.kube_double import MemoryKube
from tests.unit.objects import claim, load, table, warehouse
from tests.unit.operator_double import World

TABLE = Key("Table", "lake", "flights")


def ready(kube: MemoryKube | None = None) -> World:
    """A world whose Table is ready."""
    world = World(kube=kube or MemoryKube())
    for obj in (claim(), warehouse(), table()):
        world.kube.add(obj)
    world.run_until(lambda: world.holds("Table", "flights", "Ready"))
    world.run_until(lambda: not world.kube.status("Table", "flights").get("writer"))
    return world


def suspend(world: World, number: int) -> list[str]:
    names = [f"l{index:03}" for index in range(number)]
    for name in names:
        world.kube.add(load(name, suspend=True))
    return names


def told(world: World, name: str) -> str:
    return world.kube.condition("LoadJob", name, "Progressing")[1]


def test_one_pass_tells_all_jobs_of_a_table_and_what_is_wrong_with_the_youngest() -> None:
    world = ready()
    names = suspend(world, 40)
    broken = load("zz-broken")
    broken["spec"]["source"] = {"format": "FromTheFuture", "paths": ["x"]}
    world.kube.add(broken)
    world.reconcile(TABLE)
    assert {told(world, name) for name in names} == {"Suspended"}
    assert world.kube.condition("LoadJob", "zz-broken", "Progressing") == ("Unknown", "InvalidSpec")


def test_one_pass_starts_one_job_and_tells_the_others() -> None:
    world = ready()
    names = suspend(world, 5)
    world.kube.add(load("go"))
    before = len(world.kube.writes)
    world.reconcile(TABLE)
    assert {told(world, name) for name in names} == {"Suspended"}
    assert told(world, "go") == "DriverPending"
    doing = [what for what in world.kube.writes[before:] if what.startswith("create")]
    assert doing == ["create ConfigMap", "create Pod"]


def test_a_pass_shows_no_more_than_its_bound() -> None:
    world = ready()
    names = suspend(world, 130)
    before = len(world.kube.writes)
    world.reconcile(TABLE)
    # The hundred that are shown, and one as the write that a pass makes anyway.
    assert len(world.kube.writes) - before == 101
    world.reconcile(TABLE)
    assert {told(world, name) for name in names} == {"Suspended"}


class Stubborn(MemoryKube):
    """Refuses every status of one job."""

    async def replace_status(self, obj: JsonObject) -> UpdateAnswer:
        if obj["metadata"]["name"] == "l001":
            return Refused(status=422, reason="Invalid", message="no")
        return await super().replace_status(obj)


def test_a_status_that_is_refused_keeps_no_other_from_being_shown() -> None:
    world = ready(Stubborn())
    names = suspend(world, 4)
    with pytest.raises(Exception, match="the API server refused PutStatus: 422 no"):
        world.reconcile(TABLE)
    assert [told(world, name) for name in names] == ["Suspended", "", "Suspended", "Suspended"]


def put(old: dict[str, Any], new: dict[str, Any]) -> PutStatus:
    return PutStatus(object={"status": old}, status=new)


def waiting(reason: str) -> dict[str, str]:
    return {"type": "Progressing", "status": "True", "reason": reason}


def condition(type_: str, status: str) -> dict[str, str]:
    return {"type": type_, "status": status}


@pytest.mark.parametrize(
    ("old", "new", "shows"),
    [
        ({}, {"conditions": [condition("Progressing", "True")], "reason": "Retrying", "attempts": 0}, True),
        ({}, {"conditions": [condition("Complete", "True")]}, False),
        ({}, {"conditions": [condition("Ready", "True")]}, False),
        ({"conditions": [condition("Ready", "True")]}, {"conditions": [condition("Ready", "False")]}, True),
        (
            {"conditions": [condition("Ready", "True")], "observedGeneration": 1},
            {"conditions": [condition("Ready", "True")], "observedGeneration": 2},
            False,
        ),
        ({"currentRun": {"id": "a"}}, {}, False),
        ({}, {"currentRun": {"id": "a"}}, False),
        ({"attempts": 1}, {"attempts": 2}, False),
        ({}, {"conditions": [condition("Reconciling", "True")], "observedGeneration": 2}, True),
        ({"conditions": [condition("Reconciling", "True")]}, {"conditions": [condition("Stalled", "True")]}, True),
    ],
    ids=[
        *("waits", "ends", "is ready", "is not ready", "is ready again", "run over", "run intended", "attempt counted"),
        *("reconciles", "stalls"),
    ],
)
def test_only_what_nothing_is_built_on_is_shown(old: dict[str, Any], new: dict[str, Any], shows: bool) -> None:
    assert only_shows(put(old, new)) is shows


@pytest.mark.parametrize("summary", ["Reconciling", "Stalled"])
def test_a_summary_that_ends_takes_back_nothing(summary: str) -> None:
    assert not takes_back(put({"conditions": [condition(summary, "True")]}, {"conditions": []}))


RUN = {"id": "a", "kind": "Load", "attempt": 1, "inputsHash": "h"}
SEEN = {**RUN, "launchTime": "t"}
BUSY = {**SEEN, "runningTime": "t", "progress": "merging"}
DONE = {"conditions": [condition("Complete", "True")], "lastRun": {"id": "a", "kind": "Load", "result": "Succeeded"}}
WRITER = {"uid": "u", "run": ""}


@pytest.mark.parametrize(
    ("kind", "old", "new", "seen"),
    [
        ("LoadJob", {"currentRun": RUN}, {"currentRun": SEEN, "launched": True, "startTime": "t"}, True),
        ("LoadJob", {"currentRun": SEEN}, {"currentRun": {**SEEN, "runningTime": "t"}}, True),
        ("LoadJob", {"currentRun": SEEN}, {"currentRun": {**SEEN, "stopReason": "Suspended"}}, False),
        ("LoadJob", {"currentRun": SEEN}, {"currentRun": {**SEEN, "id": "b"}}, False),
        ("LoadJob", {"currentRun": BUSY}, {"currentRun": {**BUSY, "progress": "committing"}}, True),
        ("LoadJob", {"currentRun": BUSY}, {"currentRun": {**BUSY, "progress": ""}}, False),
        ("LoadJob", {"currentRun": BUSY}, {"currentRun": BUSY, "conditions": [waiting("DriverRunning")]}, True),
        ("LoadJob", {"currentRun": BUSY}, {"currentRun": BUSY, "conditions": [waiting("DriverPending")]}, False),
        ("LoadJob", {"currentRun": BUSY}, {"currentRun": BUSY, "conditions": [waiting("Unschedulable")]}, False),
        ("LoadJob", {"currentRun": SEEN}, {"currentRun": SEEN, "conditions": [waiting("DriverPending")]}, True),
        ("LoadJob", {"currentRun": SEEN}, DONE, True),
        ("LoadJob", {"currentRun": {**SEEN, "kind": "Confirm"}}, DONE, False),
        ("LoadJob", {"currentRun": SEEN}, {**DONE, "lastRun": {"id": "a", "kind": "Load", "result": "Lost"}}, False),
        ("LoadJob", {"currentRun": SEEN}, {**DONE, "conditions": [condition("Failed", "True")]}, False),
        ("LoadJob", {}, {"currentRun": RUN}, False),
        ("Table", {"writer": WRITER}, {"rows": 10, "sequenceNumber": 2}, True),
        ("Table", {"writer": WRITER}, {"writer": {**WRITER, "run": "a"}}, True),
        ("Table", {"writer": WRITER}, {"writer": {"uid": "another"}}, False),
        ("Table", {}, {"writer": WRITER}, False),
        ("Table", {}, {"tableUuid": "t", "owned": True}, False),
        ("Table", {}, {"conditions": [condition("Ready", "True")], "rows": 1}, False),
    ],
    ids=[
        *("pod seen", "pod started", "stopped", "another run", "got on", "silent", "runs", "pending"),
        *("unschedulable", "still pending", "committed", "confirmed", "lost", "failed", "intended"),
        *("told of the table", "run named", "handed over", "taken", "owned", "is ready"),
    ],
)
def test_a_late_cache_is_enough_for_what_was_seen_of_a_pod(
    kind: str, old: dict[str, Any], new: dict[str, Any], seen: bool
) -> None:
    assert is_cache_safe(PutStatus(object={"kind": kind, "status": old}, status=new)) is seen
