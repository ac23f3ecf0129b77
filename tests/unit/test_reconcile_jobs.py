"""The life of a job: attempts that work, fail, hang and vanish, and the confirm run before it is Failed."""

from __future__ import annotations

import pytest
from skipstone_core.contract.requests import JobRequest, RunKind
from skipstone_core.reasons import Reason
from skipstone_operator.ports import Key

from tests.unit.kube_double import Crash
from tests.unit.lake_double import Ends, request_of
from tests.unit.lives import driver, hold_pods, job, started, until
from tests.unit.objects import load, merge


@pytest.mark.parametrize(("code", "reason"), [(64, Reason.SOURCE_ALREADY_APPLIED), (65, Reason.BAD_RECORDS)])
def test_a_refused_job_fails_at_once(code: int, reason: Reason) -> None:
    world = started(load("jan"))
    world.lake.script = lambda request: Ends(code, reason) if request.kind is RunKind.LOAD else None
    world.run_until(lambda: world.holds("LoadJob", "jan", "Failed"))
    assert world.kube.condition("LoadJob", "jan", "Failed") == ("True", reason.value)
    assert world.kube.status("LoadJob", "jan")["attempts"] == 1
    assert ("Load", reason.value) in world.meter.finished
    assert reason.value in world.events.reasons("LoadJob")


@pytest.mark.parametrize("seconds", [300, -60, -600], ids=["later", "clock set back", "clock set back far"])
def test_a_driver_that_nobody_saw_does_not_commit_after_the_job_failed(seconds: float) -> None:
    world = started(load("jan"))
    world.kube.crash = lambda number, moment: moment == "landed" and world.kube.writes[number] == "create Pod"
    with pytest.raises(Crash):
        while True:
            world.reconcile(Key("Table", "lake", "flights"))
    # Operator and driver were cut off together; the pod was forgotten with its node, and the driver works on.
    name = driver(world)["metadata"]["name"]
    unseen = request_of(world.kube, name.removesuffix("-driver"))
    world.kube.crash = lambda _number, _moment: False
    world.kube.drop("Pod", "lake", name)
    world.kube.clock.advance(seconds)
    world.lake.script = lambda r: Ends(65, Reason.BAD_RECORDS) if r.kind is RunKind.LOAD else None
    world.run_until(lambda: world.holds("LoadJob", "jan", "Failed"))
    assert world.lake.work(unseen).reason is Reason.ABORTED
    assert world.lake.tables["air", "flights"].segments == []


def test_a_driver_that_dies_after_its_commit_is_complete_and_not_repeated() -> None:
    world = started(load("jan"))
    world.lake.script = lambda r: Ends(137, commits=True) if r.kind is RunKind.LOAD and r.attempt == 1 else None
    world.run_until(lambda: world.holds("LoadJob", "jan", "Complete"))
    assert world.kube.condition("LoadJob", "jan", "Complete") == ("True", "AlreadyCommitted")
    assert world.lake.tables["air", "flights"].segments == [1]
    assert world.kube.status("LoadJob", "jan")["failedAttempts"] == 1


def test_retries_back_off_and_end_in_a_confirm_run_that_fences() -> None:
    world = started(load("jan", backoffLimit=2))
    world.lake.script = lambda r: Ends(1, end_reason="OOMKilled") if r.kind is RunKind.LOAD else None
    seen = until(world, "LoadJob", "jan", "Failed")
    assert world.kube.condition("LoadJob", "jan", "Failed") == ("True", "BackoffLimitExceeded")
    assert {("True", "Retrying"), ("True", "Confirming")} <= set(seen)
    status = world.kube.status("LoadJob", "jan")
    assert status["failedAttempts"] == 3
    assert status["lastRun"]["reason"] == "OutOfMemory"
    assert status["lastRun"]["kind"] == "Load"
    uid = world.kube.objects["LoadJob", "lake", "jan"]["metadata"]["uid"]
    assert world.lake.tables["air", "flights"].aborted == {uid}


def test_a_confirm_run_is_repeated_until_it_answers() -> None:
    world = started(load("jan", backoffLimit=0))

    def script(request: JobRequest) -> Ends | None:
        if request.kind is RunKind.LOAD:
            return Ends(137, commits=True)
        silent = request.kind is RunKind.CONFIRM and request.attempt < 4
        return Ends(69, Reason.CATALOG_UNAVAILABLE) if silent else None

    world.lake.script = script
    seen = until(world, "LoadJob", "jan", "Complete")
    assert ("True", "OutcomeUnknown") in seen
    assert world.kube.status("LoadJob", "jan")["failedAttempts"] == 1


def test_a_refusal_after_a_lost_attempt_is_confirmed_first() -> None:
    world = started(load("jan"))
    world.lake.script = lambda r: (
        (Ends(137, commits=True) if r.attempt == 1 else Ends(65, Reason.SOURCE_NOT_FOUND))
        if r.kind is RunKind.LOAD
        else None
    )
    world.run_until(lambda: world.holds("LoadJob", "jan", "Complete"))
    assert world.kube.condition("LoadJob", "jan", "Failed")[0] == "False"


def test_a_deleted_driver_does_not_count() -> None:
    world = started(load("jan", backoffLimit=0))
    world.run_until(lambda: job(world)[1] == "DriverRunning")
    world.kube.drop("Pod", "lake", driver(world)["metadata"]["name"])
    world.run_until(lambda: world.holds("LoadJob", "jan", "Complete"))
    status = world.kube.status("LoadJob", "jan")
    assert (status["lostAttempts"], status["failedAttempts"], status["attempts"]) == (1, 0, 2)
    assert ("Load", "DriverLost") in world.meter.finished


def test_suspend_stops_the_driver_and_resume_goes_on() -> None:
    world = started(load("jan"))
    world.run_until(lambda: job(world)[1] == "DriverRunning")
    world.kube.edit("LoadJob", "jan", lambda o: o["spec"].update(suspend=True))
    world.run_until(lambda: job(world) == ("False", "Suspended") and not list(world.kube.find("Pod", operation="Load")))
    world.run_until(lambda: world.kube.status("Table", "flights").get("writer") is None)
    for _ in range(5):
        world.tick()
    assert not list(world.kube.find("Pod", operation="Load"))
    world.kube.edit("LoadJob", "jan", lambda o: o["spec"].update(suspend=False))
    world.run_until(lambda: world.holds("LoadJob", "jan", "Complete"))
    assert world.kube.status("LoadJob", "jan")["failedAttempts"] == 0


def test_the_deadline_stops_the_driver_and_asks_before_failing() -> None:
    world = started(load("jan", activeDeadlineSeconds=60))
    hold_pods(world, "Load")
    world.run_until(lambda: world.holds("LoadJob", "jan", "Failed"))
    assert world.kube.condition("LoadJob", "jan", "Failed") == ("True", "DeadlineExceeded")
    assert world.lake.tables["air", "flights"].aborted


def test_edits_of_a_finished_job_start_nothing() -> None:
    world = started(load("jan"))
    world.run_until(lambda: world.holds("LoadJob", "jan", "Complete"))
    world.tick()
    pods = {pod["metadata"]["uid"] for pod in world.kube.find("Pod")}
    world.kube.edit("LoadJob", "jan", lambda o: o["spec"].update(backoffLimit=9, suspend=True))
    for _ in range(5):
        world.tick()
    assert {pod["metadata"]["uid"] for pod in world.kube.find("Pod")} == pods
    assert world.holds("LoadJob", "jan", "Complete")


def test_a_finished_job_goes_when_its_time_is_over() -> None:
    world = started(load("jan", ttlSecondsAfterFinished=60), load("feb"))
    world.run_until(lambda: ("LoadJob", "lake", "jan") not in world.kube.objects)
    world.run_until(lambda: world.holds("LoadJob", "feb", "Complete"))
    for _ in range(60):
        world.tick()
    assert ("LoadJob", "lake", "feb") in world.kube.objects


def test_an_invalid_job_fails_before_any_pod() -> None:
    world = started(merge("feed", whenMatched=[{"action": "Update", "when": "source.a ="}]))
    world.run_until(lambda: world.holds("MergeJob", "feed", "Failed"))
    assert world.kube.condition("MergeJob", "feed", "Failed") == ("True", "InvalidSpec")
    assert not list(world.kube.find("Pod", operation="Merge"))


def test_an_outcome_that_nobody_can_tell_any_more_is_said_to_be_unknown() -> None:
    world = started(load("jan", backoffLimit=0))
    world.run_until(lambda: job(world)[1] == "DriverRunning")
    world.kube.remove("Table", "lake", "flights")
    world.lake.script = lambda r: Ends(1) if r.kind is RunKind.LOAD else None
    world.run_until(lambda: job(world) == ("True", "OutcomeUnknown"))
    assert "is gone" in str(world.kube.status("LoadJob", "jan")["conditions"])
