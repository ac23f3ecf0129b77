"""What nobody foresaw: errors inside a pass, statuses of other releases, statuses that lie."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

import pytest
from skipstone_core.codec import salvage
from skipstone_core.errors import ContractViolation
from skipstone_operator.ports import AccessDenied, JsonObject, Key, Refused, UpdateAnswer
from skipstone_operator.reconcilers import reconcile
from skipstone_operator.reconcilers.passes.failures import WriteRefused
from skipstone_operator.resources.table import TableStatus

from tests.unit import objects
from tests.unit.kube_double import MemoryKube
from tests.unit.operator_double import World, run_now
from tests.unit.world_cases import condition

FUTURE = "2099-01-01T00:00:00Z"
RUN = {"id": "x", "kind": "Table", "result": "Failed", "attempt": 1, "generation": 1, "message": "so it went"}


@dataclass
class BrokenKube(MemoryKube):
    """Raises ``error`` for reads of one kind."""

    broken: str = ""
    error: Exception = RuntimeError("the moon is full")  # noqa: RUF009 - only raised

    async def get(self, kind: str, namespace: str, name: str) -> JsonObject | None:
        if kind == self.broken:
            raise self.error
        return await super().get(kind, namespace, name)

    async def list(self, kind: str, namespace: str, **selectors: Any) -> tuple[JsonObject, ...]:
        if kind == self.broken:
            raise self.error
        return await super().list(kind, namespace, **selectors)


def everything(kube: MemoryKube | None = None) -> World:
    """All kinds, in a world that came to rest."""
    world = World(kube=kube or MemoryKube())
    for obj in (objects.claim(), objects.warehouse(), objects.table(), objects.index(), objects.schedule()):
        world.kube.add(obj)
    world.run_until(lambda: world.holds("SecondaryIndex", "by-tail", "Ready"))
    return world


SUBJECTS = {
    "Warehouse": ("main", "PersistentVolumeClaim"),
    "Table": ("flights", "PersistentVolumeClaim"),
    "SecondaryIndex": ("by-tail", "PersistentVolumeClaim"),
    "MergeSchedule": ("hourly", "MergeJob"),
}


def conditions(world: World, kind: str, name: str) -> dict[str, tuple[str, str]]:
    found = world.kube.status(kind, name).get("conditions", ())
    return {c["type"]: (c["status"], c["reason"]) for c in found}


@pytest.mark.parametrize("error", [RuntimeError("the moon is full"), AccessDenied("LIST claims: 403")])
@pytest.mark.parametrize("kind", SUBJECTS)
def test_an_error_inside_a_pass_is_a_condition_and_goes_when_the_error_goes(kind: str, error: Exception) -> None:
    kube = BrokenKube(error=error)
    world = everything(kube)
    name, kube.broken = SUBJECTS[kind]
    before = conditions(world, kind, name)
    for _ in range(3):
        with pytest.raises(type(error)):
            world.reconcile(Key(kind, "lake", name))
    broken = conditions(world, kind, name)
    assert broken["Ready"] == broken["Progressing"] == ("Unknown", "InternalError")
    message = next(c["message"] for c in kube.status(kind, name)["conditions"] if c["type"] == "Ready")
    assert str(error) in message
    assert world.events.reasons(kind).count("InternalError") == 1
    kube.broken = ""
    world.reconcile_all()
    assert conditions(world, kind, name) == before


def test_jobs_of_a_table_that_cannot_be_judged_are_told_and_a_finished_one_stays_finished() -> None:
    kube = BrokenKube()
    world = everything(kube)
    world.kube.add(objects.load("jan"))
    world.run_until(lambda: world.holds("LoadJob", "jan", "Complete"))
    world.kube.add(objects.merge("feb"))
    done = world.kube.status("LoadJob", "jan")
    kube.broken = "PersistentVolumeClaim"
    with pytest.raises(RuntimeError):
        world.reconcile(Key("Table", "lake", "flights"))
    assert conditions(world, "MergeJob", "feb")["Progressing"] == ("Unknown", "InternalError")
    assert world.kube.status("LoadJob", "jan") == done
    kube.broken = ""
    world.run_until(lambda: world.holds("MergeJob", "feb", "Complete"))


def test_a_job_whose_spec_cannot_be_read_says_so_and_keeps_no_other_from_going_on() -> None:
    world = everything()
    world.kube.add(objects.load("odd", source={"format": "FromTheFuture", "paths": ["x"]}))
    world.kube.add(objects.load("jan"))
    world.run_until(lambda: world.holds("LoadJob", "jan", "Complete"))
    assert conditions(world, "LoadJob", "odd") == {
        "Progressing": ("Unknown", "InvalidSpec"),
        "Stalled": ("True", "InvalidSpec"),
    }


@pytest.mark.parametrize("kind", SUBJECTS)
def test_a_spec_that_this_release_cannot_read_is_a_condition(kind: str) -> None:
    world = everything()
    name = SUBJECTS[kind][0]
    field = {"Warehouse": "catalog", "Table": "management", "SecondaryIndex": "type", "MergeSchedule": "schedule"}[kind]
    world.kube.edit(kind, name, lambda o: o["spec"].update({field: ["FromTheFuture"]}))
    with pytest.raises(ContractViolation):
        world.reconcile(Key(kind, "lake", name))
    assert conditions(world, kind, name)["Ready"] == ("Unknown", "InvalidSpec")
    assert conditions(world, kind, name)["Progressing"] == ("Unknown", "InvalidSpec")


def test_what_refers_to_something_unreadable_says_which() -> None:
    world = everything()
    world.kube.edit("Warehouse", "main", lambda o: o["spec"].update(catalog=["FromTheFuture"]))
    with pytest.raises(ContractViolation, match=r"Warehouse main: spec\.catalog: expected an object, got list"):
        world.reconcile(Key("Table", "lake", "flights"))


def lie(world: World, kind: str, name: str, **status: Any) -> None:
    world.kube.edit(kind, name, lambda o: o["status"].update(status))


@pytest.mark.parametrize("kind", SUBJECTS)
@pytest.mark.parametrize(
    "status",
    [
        {"lastRun": {**RUN, "reason": "FromTheFuture"}, "lastObserveRun": {**RUN, "reason": "FromTheFuture"}},
        {"lastRun": {**RUN, "result": "FromTheFuture"}, "currentRun": {"id": "x", "kind": "Dance"}},
        {"problem": "FromTheFuture", "degraded": "FromTheFuture"},
        {"conditions": [condition("Ready", "Maybe", "FromTheFuture"), condition("Synced", "True", "FromTheFuture")]},
        {"conditions": None, "missingSegments": None, "fieldIds": None, "activeJobs": None, "segments": None},
        {"conditions": "none", "writer": [], "retryTime": 7, "currentRun": "me"},
    ],
    ids=["reason", "kind", "problem", "condition", "null", "garbage"],
)  # fmt: skip
def test_a_status_of_another_release_is_read_as_far_as_it_goes(kind: str, status: dict[str, Any]) -> None:
    world = everything()
    name = SUBJECTS[kind][0]
    lie(world, kind, name, **status, checkedGeneration=0, appliedGeneration=0)
    world.run_until(lambda: world.holds(kind, name, "Ready"))


def test_a_reason_of_another_release_is_shown_as_such_until_the_next_look() -> None:
    world = everything()
    lie(world, "Table", "flights", problem="FromTheFuture", observedTime=world.kube.clock.text())
    for pod in list(world.kube.find("Pod")):
        world.kube.drop("Pod", "lake", pod["metadata"]["name"])
    world.reconcile_all()
    assert conditions(world, "Table", "flights")["Ready"] == ("False", "Unrecognized")


def test_what_can_be_read_of_a_status_is_kept() -> None:
    raw = {"appliedGeneration": 3, "lastRun": {"id": 7}, "fieldIds": {"a": 1, "b": "x"}, "unknown": 1}
    status = salvage(TableStatus, raw)
    assert (status.applied_generation, status.last_run, status.field_ids) == (3, None, {"a": 1})


def test_a_finished_job_is_never_started_again_for_what_another_release_wrote() -> None:
    world = everything()
    world.kube.add(objects.load("jan"))
    world.run_until(lambda: world.holds("LoadJob", "jan", "Complete"))
    lie(world, "LoadJob", "jan", lastRun={**RUN, "kind": "Dance", "reason": "FromTheFuture"}, attempts="many")
    for _ in range(5):
        world.tick()
    assert world.holds("LoadJob", "jan", "Complete")
    assert world.lake.tables["air", "flights"].sequence == 1


class TestStatusesThatLie:
    def test_a_retry_in_the_far_future_is_due_now(self) -> None:
        world = World()
        for obj in (objects.claim(), objects.warehouse(), objects.table(), objects.load("jan")):
            world.kube.add(obj)
        world.reconcile_all()
        for kind, name in (("Warehouse", "main"), ("Table", "flights"), ("LoadJob", "jan")):
            lie(world, kind, name, retryTime=FUTURE, observeRetryTime=FUTURE)
        world.run_until(lambda: world.holds("LoadJob", "jan", "Complete"), ticks=40)

    @pytest.mark.parametrize("time", [FUTURE, None])
    def test_a_job_with_a_time_to_live_goes_although_its_end_is_in_the_future(self, time: str | None) -> None:
        world = everything()
        world.kube.add(objects.load("jan", ttlSecondsAfterFinished=60))
        world.run_until(lambda: world.holds("LoadJob", "jan", "Complete"))
        lie(world, "LoadJob", "jan", completionTime=time)
        world.run_until(lambda: ("LoadJob", "lake", "jan") not in world.kube.objects, ticks=40)

    def test_an_observed_table_is_looked_at_although_its_status_is_from_the_future(self) -> None:
        world = everything()
        world.kube.add(objects.observed_table("seen", identifier={"namespace": "air", "name": "seen"}))
        world.run_until(lambda: bool(world.kube.status("Table", "seen").get("observedTime")))
        lie(world, "Table", "seen", observedTime=FUTURE)
        last = {**RUN, "kind": "Observe", "startTime": FUTURE, "completionTime": FUTURE, "reason": "Observed"}
        lie(world, "Warehouse", "main", lastObserveRun=last, observeRetryTime=FUTURE)
        world.run_until(lambda: world.kube.status("Table", "seen")["observedTime"] != FUTURE, ticks=40)

    def test_a_schedule_goes_on_although_its_status_is_from_the_future(self) -> None:
        world = everything()
        lie(world, "MergeSchedule", "hourly", lastScheduleTime=FUTURE, lastMissedTime=FUTURE)
        world.kube.clock.advance(3600)
        world.run_until(lambda: any(kind == "MergeJob" for kind, _, _ in world.kube.objects), ticks=40)
        assert world.kube.status("MergeSchedule", "hourly")["lastScheduleTime"] < FUTURE


@dataclass
class RefusingKube(MemoryKube):
    """Refuses the statuses of one kind, unless they tell of a failure."""

    refused: str = ""

    async def replace_status(self, obj: JsonObject) -> UpdateAnswer:
        told = any(c["reason"] == "InternalError" for c in obj["status"]["conditions"])
        if obj["kind"] == self.refused and not told:
            return Refused(status=422, reason="Invalid", message="it does not fit")
        return await super().replace_status(obj)


def test_a_status_that_is_refused_is_told_on_its_own_object_and_never_back_and_forth() -> None:
    kube = RefusingKube()
    world = everything(kube)
    kube.refused = "LoadJob"
    world.kube.add(objects.load("jan"))
    for _ in range(6):
        with suppress(WriteRefused):
            world.reconcile(Key("Table", "lake", "flights"))
    settled = len(kube.writes)
    assert conditions(world, "LoadJob", "jan")["Progressing"] == ("Unknown", "InternalError")
    assert conditions(world, "Table", "flights")["Ready"] == ("True", "Created")
    for _ in range(6):
        with pytest.raises(WriteRefused):
            world.reconcile(Key("Table", "lake", "flights"))
    assert len(kube.writes) == settled


@pytest.mark.parametrize("kind", ["Table", "Warehouse"])
def test_one_part_that_fails_is_not_told_and_undone_again_and_again(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = everything()
    world.kube.add(objects.load("jan"))
    world.run_until(lambda: bool(list(world.kube.find("Pod", operation="Load"))))
    world.kubelet.tick()

    def fail(*_: object) -> NoReturn:
        raise RuntimeError("the moon is full")

    part = {"Table": "table.decide_table", "Warehouse": "warehouse.observe_policy"}[kind]
    monkeypatch.setattr(f"skipstone_operator.reconcilers.{part}", fail)

    def look() -> None:
        for _ in range(6):
            with suppress(RuntimeError):
                world.reconcile(Key(kind, "lake", SUBJECTS[kind][0]))

    look()
    settled = len(world.kube.writes)
    look()
    assert len(world.kube.writes) == settled
    assert conditions(world, kind, SUBJECTS[kind][0])["Ready"] == ("Unknown", "InternalError")
    if kind == "Table":
        assert conditions(world, "LoadJob", "jan")["Progressing"] == ("True", "DriverRunning")


def test_crashing_while_a_failure_is_told_loses_nothing() -> None:
    kube = BrokenKube(broken="PersistentVolumeClaim")
    kube.add(objects.warehouse())
    world = World(kube=kube)
    kube.crash = lambda number, moment: moment == "before"
    with pytest.raises(BaseException, match="status Warehouse"):
        run_now(reconcile(Key("Warehouse", "lake", "main"), world._ports()))
    kube.crash = lambda number, moment: False
    with pytest.raises(RuntimeError):
        world.reconcile(Key("Warehouse", "lake", "main"))
    assert conditions(world, "Warehouse", "main")["Ready"] == ("Unknown", "InternalError")
