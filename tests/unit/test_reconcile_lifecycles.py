"""Whole lives of resources: what users see from apply to the end, with drivers that work, fail, hang and vanish."""

from __future__ import annotations

from typing import Any

import pytest
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import JobRequest, RunKind
from skipstone_core.reasons import Reason
from skipstone_operator.ports import Key, Refused

from tests.unit.kube_double import Crash
from tests.unit.lake_double import Ends, LakeTable, end_pod, request_of
from tests.unit.objects import claim, index, load, merge, observed_table, table, warehouse
from tests.unit.operator_double import World


def started(*objects: dict[str, Any], **timing: Any) -> World:
    """A world with a ready Warehouse and Table, and then these objects."""
    world = World(**timing)
    for obj in (claim(), warehouse(), table()):
        world.kube.add(obj)
    world.run_until(lambda: world.holds("Table", "flights", "Ready"))
    for obj in objects:
        world.kube.add(obj)
    return world


def job(world: World, name: str = "jan", kind: str = "LoadJob") -> tuple[str, str]:
    return world.kube.condition(kind, name, "Progressing")


def synced(world: World, name: str = "by-tail") -> str:
    return str(world.kube.status("SecondaryIndex", name).get("synced", ""))


def until(world: World, kind: str, name: str, condition: str) -> list[tuple[str, str]]:
    """Every Progressing condition that was seen on the way."""
    seen: list[tuple[str, str]] = []

    def done() -> bool:
        seen.append(world.kube.condition(kind, name, "Progressing"))
        return world.holds(kind, name, condition)

    world.run_until(done)
    return seen


def driver(world: World, operation: str = "Load") -> dict[str, Any]:
    return next(world.kube.find("Pod", operation=operation))


def hold_pods(world: World, operation: str) -> None:
    world.kubelet.holds = lambda pod: pod["metadata"]["labels"]["skipstone.dev/operation"] == operation


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


@pytest.mark.parametrize(("code", "reason"), [(64, Reason.SOURCE_ALREADY_APPLIED), (65, Reason.BAD_RECORDS)])
def test_a_refused_job_fails_at_once(code: int, reason: Reason) -> None:
    world = started(load("jan"))
    world.lake.script = lambda request: Ends(code, reason) if request.kind is RunKind.LOAD else None
    world.run_until(lambda: world.holds("LoadJob", "jan", "Failed"))
    assert world.kube.condition("LoadJob", "jan", "Failed") == ("True", reason.value)
    assert world.kube.status("LoadJob", "jan")["attempts"] == 1
    assert ("Load", reason.value) in world.meter.finished
    assert reason.value in world.events.reasons("LoadJob")


def test_a_driver_that_nobody_saw_does_not_commit_after_the_job_failed() -> None:
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
    world.kube.clock.advance(300)
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


def test_a_suspended_job_lets_younger_ones_pass() -> None:
    world = started(load("a", suspend=True), load("b"))
    world.run_until(lambda: world.holds("LoadJob", "b", "Complete"))
    assert job(world, "a") == ("False", "Suspended")


def test_the_deadline_stops_the_driver_and_asks_before_failing() -> None:
    world = started(load("jan", activeDeadlineSeconds=60))
    hold_pods(world, "Load")
    world.run_until(lambda: world.holds("LoadJob", "jan", "Failed"))
    assert world.kube.condition("LoadJob", "jan", "Failed") == ("True", "DeadlineExceeded")
    assert world.lake.tables["air", "flights"].aborted


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (
            {
                "containerStatuses": [
                    {
                        "name": "spark-kubernetes-driver",
                        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
                    }
                ]
            },
            "ImagePullFailed",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "name": "spark-kubernetes-driver",
                        "state": {"waiting": {"reason": "CreateContainerConfigError", "message": "secret not found"}},
                    }
                ]
            },
            "ContainerConfigError",
        ),
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
                ]
            },
            "Unschedulable",
        ),
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "message": 'persistentvolumeclaim "x" not found'}
                ]
            },
            "VolumeUnavailable",
        ),
    ],
    ids=["image", "config", "unschedulable", "volume"],
)
def test_a_pod_that_cannot_start_says_why_and_counts_after_its_deadline(status: dict[str, Any], reason: str) -> None:
    world = started(load("jan", backoffLimit=0))
    hold_pods(world, "Load")
    world.run_until(lambda: bool(list(world.kube.find("Pod", operation="Load"))))
    world.kube.edit("Pod", driver(world)["metadata"]["name"], lambda p: p["status"].update(status))
    world.run_until(lambda: job(world) == ("True", reason))
    world.run_until(lambda: world.holds("LoadJob", "jan", "Failed"))
    assert world.kube.status("LoadJob", "jan")["lastRun"]["reason"] == reason


def test_a_large_image_may_take_its_time() -> None:
    world = started(load("jan", backoffLimit=0))
    hold_pods(world, "Load")
    world.run_until(lambda: bool(list(world.kube.find("Pod", operation="Load"))))
    mounted = [{"type": "PodScheduled", "status": "True"}, {"type": "PodReadyToStartContainers", "status": "True"}]
    world.kube.edit("Pod", driver(world)["metadata"]["name"], lambda p: p["status"].update(conditions=mounted))
    for _ in range(100):
        world.tick()
    assert job(world) == ("True", "DriverPending")


def test_quota_makes_a_job_wait_without_a_clock() -> None:
    world = started(load("jan", activeDeadlineSeconds=30))
    refusal = Refused(status=403, reason="Forbidden", message="exceeded quota: pods, used: 2, limited: 2")
    world.kube.refuse = lambda obj: refusal if obj["kind"] == "Pod" else None
    for _ in range(40):
        world.tick()
    assert job(world) == ("False", "WaitingForQuota")
    world.kube.refuse = lambda _obj: None
    world.run_until(lambda: world.holds("LoadJob", "jan", "Complete"))
    assert world.events.reasons("LoadJob").count("WaitingForQuota") == 1


def test_a_job_whose_pods_admission_refuses_fails_once_a_confirm_run_has_looked() -> None:
    world = started(load("jan", backoffLimit=1))
    refusal = Refused(status=403, reason="Forbidden", message="violates PodSecurity")
    world.kube.refuse = lambda obj: refusal if obj["kind"] == "Pod" else None
    world.run_until(lambda: job(world) == ("True", "PodRejected"))
    for _ in range(200):
        world.tick()
    assert job(world) == ("True", "PodRejected")
    assert not world.holds("LoadJob", "jan", "Failed"), "no confirm run could look"
    world.kube.refuse = lambda _obj: None
    world.run_until(lambda: world.holds("LoadJob", "jan", "Failed"), ticks=600)
    assert world.kube.condition("LoadJob", "jan", "Failed") == ("True", "BackoffLimitExceeded")
    assert len(world.lake.tables["air", "flights"].aborted) == 1


def test_a_commit_whose_operator_and_pod_both_went_away_is_never_called_failed() -> None:
    world = started(load("jan", backoffLimit=0))
    refusal = Refused(status=403, reason="Forbidden", message="violates PodSecurity")
    lost: list[str] = []

    def crash(_number: int, moment: str) -> bool:
        pods = [p for p in world.kube.find("Pod", operation="Load") if p["metadata"]["name"] not in lost]
        if moment != "landed" or not pods:
            return False
        end_pod(world.kube, world.lake, pods[0])
        world.kube.drop("Pod", "lake", pods[0]["metadata"]["name"])
        lost.append(pods[0]["metadata"]["name"])
        world.kube.refuse = lambda obj: refusal if obj["kind"] == "Pod" else None
        return True

    world.kube.crash = crash
    world.run_until(lambda: bool(lost))
    assert len(world.lake.tables["air", "flights"].segments) == 1
    for _ in range(600):
        world.tick()
        assert not world.holds("LoadJob", "jan", "Failed")
    world.kube.refuse = lambda _obj: None
    world.run_until(lambda: world.holds("LoadJob", "jan", "Complete"), ticks=600)


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


def test_a_lost_status_is_rebuilt_from_the_pod_that_is_still_there() -> None:
    world = started(load("jan"))
    world.run_until(lambda: job(world)[1] == "DriverRunning")
    hold_pods(world, "Load")
    world.kube.edit("LoadJob", "jan", lambda o: o.pop("status"))
    world.kube.edit("Table", "flights", lambda o: o["status"].pop("writer"))
    for _ in range(3):
        world.tick()
    assert len(list(world.kube.find("Pod", operation="Load"))) == 1
    world.kubelet.holds = lambda _pod: False
    world.run_until(lambda: world.holds("LoadJob", "jan", "Complete"))
    assert world.lake.tables["air", "flights"].segments == [1]


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


def test_history_keeps_one_good_and_three_bad_runs() -> None:
    world = started(load("jan", backoffLimit=6))
    world.lake.script = lambda r: Ends(1) if r.kind is RunKind.LOAD and r.attempt < 6 else None
    world.run_until(lambda: world.holds("LoadJob", "jan", "Complete"), ticks=600)
    for _ in range(12):
        world.tick()
    pods = [pod["status"]["phase"] for pod in world.kube.find("Pod", operation="Load")]
    assert sorted(pods) == ["Failed"] * 3 + ["Succeeded"]
    assert len(list(world.kube.find("ConfigMap", operation="Load"))) == 4


def test_executors_that_outlive_their_driver_are_deleted() -> None:
    world = started(load("jan"))
    world.run_until(lambda: job(world)[1] == "DriverRunning")
    run_id = driver(world)["metadata"]["labels"]["skipstone.dev/run-id"]
    labels = {"spark-role": "executor", "spark-app-selector": run_id, "skipstone.dev/operation": "Load"}
    for number in (1, 2):
        metadata = {"name": f"{run_id}-exec-{number}", "labels": labels}
        world.kube.add({"kind": "Pod", "metadata": metadata, "status": {"phase": "Running"}})
    pod = driver(world)
    world.kubelet.holds = lambda p: p["metadata"]["name"] == pod["metadata"]["name"] or "exec" in p["metadata"]["name"]
    end_pod(world.kube, world.lake, pod)
    world.run_until(lambda: world.holds("LoadJob", "jan", "Complete"))
    world.tick()
    assert not [p for p in world.kube.find("Pod") if "-exec-" in p["metadata"]["name"]]


def test_a_foreign_pod_of_our_name_is_never_taken_over() -> None:
    world = started(load("jan"))
    hold_pods(world, "Load")
    world.run_until(lambda: world.kube.status("LoadJob", "jan").get("currentRun") is not None)
    run_id = world.kube.status("LoadJob", "jan")["currentRun"]["id"]
    pod = world.kube.objects["Pod", "lake", f"{run_id}-driver"]
    pod["metadata"]["labels"]["skipstone.dev/owner-uid"] = "somebody-else"
    world.tick()
    assert job(world) == ("False", "ResourceConflict")
    assert ("Pod", "lake", f"{run_id}-driver") in world.kube.objects


def test_a_changed_warehouse_before_the_pod_makes_a_new_intent() -> None:
    world = started(load("jan"))
    world.kube.refuse = lambda obj: (
        Refused(status=403, reason="Forbidden", message="exceeded quota") if obj["kind"] == "Pod" else None
    )
    world.run_until(lambda: bool(list(world.kube.find("ConfigMap", operation="Load"))))
    before = world.kube.status("LoadJob", "jan")["currentRun"]["id"]
    world.kube.edit("Warehouse", "main", lambda o: o["spec"].update(spark={"image": "other:1"}))
    world.kube.refuse = lambda _obj: None
    world.run_until(lambda: world.holds("LoadJob", "jan", "Complete"))
    assert world.kube.status("LoadJob", "jan")["lastRun"]["id"] != before
    world.tick()
    assert ("ConfigMap", "lake", f"{before}-conf") not in world.kube.objects


def test_an_invalid_job_fails_before_any_pod() -> None:
    world = started(merge("feed", whenMatched=[{"action": "Update", "when": "source.a ="}]))
    world.run_until(lambda: world.holds("MergeJob", "feed", "Failed"))
    assert world.kube.condition("MergeJob", "feed", "Failed") == ("True", "InvalidSpec")
    assert not list(world.kube.find("Pod", operation="Merge"))


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


def test_an_outcome_that_nobody_can_tell_any_more_is_said_to_be_unknown() -> None:
    world = started(load("jan", backoffLimit=0))
    world.run_until(lambda: job(world)[1] == "DriverRunning")
    world.kube.remove("Table", "lake", "flights")
    world.lake.script = lambda r: Ends(1) if r.kind is RunKind.LOAD else None
    world.run_until(lambda: job(world) == ("True", "OutcomeUnknown"))
    assert "is gone" in str(world.kube.status("LoadJob", "jan")["conditions"])


def test_conflicts_are_retried() -> None:
    world = started(merge("feed"))
    world.lake.script = lambda r: (
        Ends(75, Reason.CONFLICTED, outcome=RunOutcome.CONFLICTED)
        if r.kind is RunKind.MERGE and r.attempt == 1
        else None
    )
    world.run_until(lambda: world.holds("MergeJob", "feed", "Complete"))
    assert world.kube.status("MergeJob", "feed")["failedAttempts"] == 1


class TestIndex:
    def test_suspended_shows_the_missing_segments_and_catches_up(self) -> None:
        world = started(load("jan"), index())
        world.run_until(lambda: synced(world) == "1/1")
        world.kube.edit("SecondaryIndex", "by-tail", lambda o: o["spec"].update(suspend=True))
        world.kube.add(load("feb"))
        world.kube.add(load("mar"))
        world.run_until(lambda: world.kube.status("SecondaryIndex", "by-tail")["synced"] == "1/3")
        assert world.kube.status("SecondaryIndex", "by-tail")["missing"] == "2,3"
        assert world.kube.condition("SecondaryIndex", "by-tail", "Progressing") == ("False", "Suspended")
        assert world.kube.condition("SecondaryIndex", "by-tail", "Ready") == ("True", "Healthy")
        assert world.meter.lag["lake/by-tail"] == 2
        world.kube.edit("SecondaryIndex", "by-tail", lambda o: o["spec"].update(suspend=False))
        world.run_until(lambda: world.kube.status("SecondaryIndex", "by-tail")["synced"] == "3/3")

    def test_by_hand_only_when_asked(self) -> None:
        world = started(load("jan"), index(maintenance="Manual"))
        world.run_until(lambda: world.kube.status("SecondaryIndex", "by-tail").get("synced") == "0/1")
        for _ in range(10):
            world.tick()
        assert not list(world.kube.find("Pod", operation="Reindex"))
        world.kube.edit(
            "SecondaryIndex", "by-tail", lambda o: o["metadata"].update(annotations={"skipstone.dev/reindex": "1"})
        )
        world.run_until(lambda: world.holds("SecondaryIndex", "by-tail", "Synced"))
        assert world.kube.status("SecondaryIndex", "by-tail")["observedReindex"] == "1"

    def test_a_refused_reindex_is_remembered_until_its_inputs_change(self) -> None:
        world = started(load("jan"), index())
        refuse = {"now": True}
        world.lake.script = lambda r: (
            Ends(64, Reason.DELETES_UNSUPPORTED) if r.kind is RunKind.REINDEX and refuse["now"] else None
        )
        world.run_until(lambda: world.holds("SecondaryIndex", "by-tail", "Degraded"))
        runs = len([run for run in world.meter.finished if run[0] == "Reindex"])
        for _ in range(20):
            world.tick()
        assert len([run for run in world.meter.finished if run[0] == "Reindex"]) == runs == 1
        refuse["now"] = False
        columns = [{"name": "id", "type": "long"}, {"name": "tailnum", "type": "string"}, {"name": "x", "type": "int"}]
        world.kube.edit("Table", "flights", lambda o: o["spec"].update(columns=columns))
        world.run_until(lambda: world.holds("SecondaryIndex", "by-tail", "Synced"))
        assert world.kube.condition("SecondaryIndex", "by-tail", "Degraded") == ("False", "Healthy")

    def test_a_run_that_builds_nothing_is_not_repeated_at_once(self) -> None:
        world = started(load("jan"), index())
        world.lake.script = lambda r: (
            Ends(0, Reason.COMMITTED, outcome=RunOutcome.COMMITTED, end_reason="Completed")
            if r.kind is RunKind.REINDEX
            else None
        )
        for _ in range(60):
            world.tick()
        assert 2 <= len([run for run in world.meter.finished if run[0] == "Reindex"]) <= 7

    def test_lag_and_coverage_limits_turn_ready_off(self) -> None:
        lag, cover = (
            index("lag", suspend=True, maxLagSegments=0),
            index("cover", "id", suspend=True, minCoveredPercent=50),
        )
        world = started(load("jan"), lag, cover)
        world.run_until(lambda: world.kube.status("SecondaryIndex", "cover").get("synced") == "0/1")
        assert world.kube.condition("SecondaryIndex", "lag", "Ready") == ("False", "NotBuilt")
        for name in ("lag", "cover"):
            world.kube.edit("SecondaryIndex", name, lambda o: o["spec"].update(suspend=False))
        world.run_until(
            lambda: world.holds("SecondaryIndex", "lag", "Ready") and world.holds("SecondaryIndex", "cover", "Ready")
        )
        for name in ("lag", "cover"):
            world.kube.edit("SecondaryIndex", name, lambda o: o["spec"].update(suspend=True))
        world.kube.add(load("feb"))
        world.kube.add(load("mar"))
        world.run_until(lambda: world.kube.condition("SecondaryIndex", "lag", "Ready") == ("False", "LagExceeded"))
        world.run_until(
            lambda: world.kube.condition("SecondaryIndex", "cover", "Ready") == ("False", "CoverageBelowMinimum")
        )

    def test_deletion_drops_the_index_table_even_when_the_table_went_first(self) -> None:
        world = started(load("jan"), index())
        world.run_until(lambda: synced(world) == "1/1")
        uid = world.kube.objects["SecondaryIndex", "lake", "by-tail"]["metadata"]["uid"]
        world.kube.remove("Table", "lake", "flights")
        world.run_until(
            lambda: world.kube.condition("SecondaryIndex", "by-tail", "Ready") == ("False", "TableNotFound")
        )
        world.kube.remove("SecondaryIndex", "lake", "by-tail")
        world.run_until(lambda: ("SecondaryIndex", "lake", "by-tail") not in world.kube.objects)
        assert uid not in world.lake.tables["air", "flights"].covered
        assert "DataDeleted" in world.events.reasons("SecondaryIndex")


@pytest.mark.parametrize("text", ['{"a":' * 40_000, '{"a":' + "[" * 200_000], ids=["objects", "lists"])
def test_an_annotation_that_anybody_wrote_stops_no_job(text: str) -> None:
    world = started(load("jan"), load("feb"))
    hold_pods(world, "Load")
    world.run_until(lambda: any(world.kube.find("Pod", operation="Load")))
    annotations = {"skipstone.dev/report": text}
    world.kube.edit("Pod", driver(world)["metadata"]["name"], lambda p: p["metadata"].update(annotations=annotations))
    world.tick()
    world.kubelet.holds = lambda _pod: False
    world.run_until(lambda: all(world.holds("LoadJob", name, "Complete") for name in ("jan", "feb")))
    assert "InternalError" not in world.events.reasons()


class TestTable:
    def test_an_evolved_spec_is_applied_once(self) -> None:
        world = started()
        columns = [{"name": "id", "type": "long"}, {"name": "tailnum", "type": "string"}, {"name": "x", "type": "int"}]
        world.kube.edit("Table", "flights", lambda o: o["spec"].update(columns=columns))
        world.run_until(lambda: world.kube.status("Table", "flights")["columnTypes"].get("x") == "int")
        assert world.meter.finished.count(("Table", "Created")) == 2

    def test_a_refused_change_is_remembered_until_the_spec_changes(self) -> None:
        world = started()
        world.lake.script = lambda r: Ends(64, Reason.SCHEMA_MISMATCH) if r.kind is RunKind.TABLE else None
        world.kube.edit("Table", "flights", lambda o: o["spec"]["columns"][0].update(type="int"))
        world.run_until(lambda: world.kube.condition("Table", "flights", "Ready") == ("False", "SchemaMismatch"))
        for _ in range(20):
            world.tick()
        assert world.meter.finished.count(("Table", "SchemaMismatch")) == 1
        world.lake.script = lambda _request: None
        world.kube.edit("Table", "flights", lambda o: o["spec"]["columns"][0].update(type="long"))
        world.run_until(lambda: world.holds("Table", "flights", "Ready"))

    def test_what_was_wrong_with_a_spec_is_forgotten_with_that_spec(self) -> None:
        world = started()
        misspelt = {"write.parquet.row-group-limit": "banana"}
        world.kube.edit("Table", "flights", lambda o: o["spec"].update(properties=misspelt))
        world.run_until(lambda: world.kube.condition("Table", "flights", "Ready") == ("False", "InvalidSpec"))
        hold_pods(world, "Table")
        world.kube.edit("Table", "flights", lambda o: o["spec"].update(properties={"comment": "good"}))
        world.tick()
        assert world.kube.condition("Table", "flights", "Ready") == ("Unknown", "RunIntended")
        world.kubelet.holds = lambda _pod: False
        world.run_until(lambda: world.holds("Table", "flights", "Ready"))

    def test_the_older_of_two_claimants_wins(self) -> None:
        world = started()
        world.kube.clock.advance(10)
        world.kube.add(table("twin"))
        world.run_until(lambda: world.kube.condition("Table", "twin", "Ready") == ("False", "ResourceConflict"))
        assert world.holds("Table", "flights", "Ready")
        world.kube.remove("Table", "lake", "flights")
        world.run_until(lambda: world.holds("Table", "twin", "Ready"))
        assert world.kube.condition("Table", "twin", "Ready")[1] == "Adopted"

    def test_the_data_of_the_older_claimant_does_not_go_with_the_younger_that_created_it(self) -> None:
        world = World()
        for obj in (claim(), warehouse(), table("older", warehouseRef={"name": "late"})):
            world.kube.add(obj)
        world.kube.clock.advance(10)
        world.kube.add(table("younger", reclaimPolicy="Delete"))
        world.run_until(lambda: world.holds("Table", "younger", "Ready"))
        for obj in (warehouse("late"), load("jan", tableRef={"name": "older"})):
            world.kube.add(obj)
        world.run_until(lambda: world.holds("LoadJob", "jan", "Complete"))
        world.kube.remove("Table", "lake", "younger")
        world.run_until(lambda: ("Table", "lake", "younger") not in world.kube.objects)
        assert world.lake.tables["air", "flights"].segments == [1]
        (note,) = [record.note for record in world.events.records if record.reason is Reason.DATA_RETAINED]
        assert note.endswith("was kept: Table lake/older is older and claims the same table")

    def test_a_claimant_that_goes_as_well_keeps_no_data(self) -> None:
        world = World()
        older = table("older", warehouseRef={"name": "late"}, reclaimPolicy="Delete")
        for obj in (claim(), warehouse(), older):
            world.kube.add(obj)
        world.kube.clock.advance(10)
        world.kube.add(table("younger", reclaimPolicy="Delete"))
        world.run_until(lambda: world.holds("Table", "younger", "Ready"))
        world.kube.add(warehouse("late"))
        world.run_until(lambda: world.holds("Table", "older", "Ready"))
        for name in ("older", "younger"):
            world.kube.remove("Table", "lake", name)
        world.run_until(lambda: not any(kind == "Table" for kind, _, _ in world.kube.objects))
        assert not world.lake.tables

    def test_observed_tables_are_looked_at_again_and_again(self) -> None:
        world = World(seconds=20)
        world.lake.tables["air", "flights"] = LakeTable("somebody", {"tailnum": "string"}, segments=[1], sequence=1)
        for obj in (claim(), warehouse(), observed_table(refreshIntervalSeconds=60)):
            world.kube.add(obj)
        world.run_until(lambda: world.holds("Table", "flights", "Ready"))
        assert world.kube.condition("Table", "flights", "Ready") == ("True", "Observed")
        world.lake.tables["air", "flights"].segments.append(2)
        world.run_until(lambda: world.kube.status("Table", "flights")["segments"]["total"] == 2)
        del world.lake.tables["air", "flights"]
        world.run_until(lambda: world.kube.condition("Table", "flights", "Ready") == ("False", "TableMissing"))
        assert ("Observe", "Observed") in world.meter.finished
        assert not list(world.kube.find("Pod", operation="Table"))

    def test_one_observe_pod_serves_all_due_tables(self) -> None:
        world = World()
        for obj in (claim(), warehouse()):
            world.kube.add(obj)
        for name in ("a", "b", "c"):
            world.lake.tables["air", name] = LakeTable("somebody", {})
            world.kube.add(
                observed_table(name, identifier={"namespace": "air", "name": name}, refreshIntervalSeconds=0)
            )
        world.run_until(lambda: all(world.holds("Table", name, "Ready") for name in "abc"))
        assert world.meter.finished.count(("Observe", "Observed")) == 1

    def test_purged_with_the_resource_when_asked(self) -> None:
        world = started()
        world.kube.edit("Table", "flights", lambda o: o["spec"].update(reclaimPolicy="Delete"))
        world.kube.add(load("jan"))
        world.run_until(lambda: job(world)[1] == "DriverRunning")
        world.kube.remove("Table", "lake", "flights")
        world.run_until(lambda: ("Table", "lake", "flights") not in world.kube.objects)
        assert ("air", "flights") not in world.lake.tables
        assert "DataDeleted" in world.events.reasons("Table")
        assert job(world) == ("False", "TableNotFound")

    @pytest.mark.parametrize("words", ["Warehouse is gone", "PersistentVolumeClaim", "namespace is being deleted"])
    def test_kept_with_an_event_when_the_drop_cannot_start(self, words: str) -> None:
        world = started()
        world.kube.edit("Table", "flights", lambda o: o["spec"].update(reclaimPolicy="Delete"))
        for _ in range(5):
            world.tick()
        if words == "Warehouse is gone":
            world.kube.drop("Warehouse", "lake", "main")
        elif words == "PersistentVolumeClaim":
            world.kube.drop("PersistentVolumeClaim", "lake", "lake-data")
        else:
            refuse_all(world)
        world.kube.remove("Table", "lake", "flights")
        world.run_until(lambda: ("Table", "lake", "flights") not in world.kube.objects, ticks=10)
        notes = [record.note for record in world.events.records if record.reason is Reason.DATA_RETAINED]
        assert words in notes[0]
        assert "/skipstone/main/air/flights" in notes[0]

    def test_kept_after_ten_minutes_of_trying(self) -> None:
        world = started()
        world.kube.edit("Table", "flights", lambda o: o["spec"].update(reclaimPolicy="Delete"))
        world.tick()
        world.lake.script = lambda r: Ends(69, Reason.CATALOG_UNAVAILABLE) if r.kind is RunKind.DROP else None
        world.kube.remove("Table", "lake", "flights")
        begun = world.kube.clock.time
        world.run_until(lambda: ("Table", "lake", "flights") not in world.kube.objects)
        assert 600 <= (world.kube.clock.time - begun).total_seconds() <= 620
        assert ("air", "flights") in world.lake.tables
        assert "DataRetained" in world.events.reasons("Table")

    def test_a_table_that_is_not_ours_is_kept(self) -> None:
        world = World()
        world.lake.tables["air", "flights"] = LakeTable("somebody", {"id": "long"})
        for obj in (claim(), warehouse(), table(reclaimPolicy="Delete")):
            world.kube.add(obj)
        world.run_until(lambda: world.holds("Table", "flights", "Ready"))
        assert world.kube.condition("Table", "flights", "Ready") == ("True", "Adopted")
        world.kube.remove("Table", "lake", "flights")
        world.run_until(lambda: ("Table", "lake", "flights") not in world.kube.objects)
        assert ("air", "flights") in world.lake.tables
        assert "DataRetained" in world.events.reasons("Table")


def refuse_all(world: World) -> None:
    refusal = Refused(status=403, reason="Forbidden", message="being terminated", causes=("NamespaceTerminating",))
    world.kube.refuse = lambda _obj: refusal


class TestWarehouse:
    def test_a_failing_check_is_tried_again_until_it_works(self) -> None:
        world = World()
        world.lake.script = lambda r: Ends(69, Reason.CATALOG_UNAVAILABLE) if r.attempt < 3 else None
        for obj in (claim(), warehouse()):
            world.kube.add(obj)
        world.run_until(lambda: world.kube.condition("Warehouse", "main", "Ready") == ("False", "CatalogUnavailable"))
        world.run_until(lambda: world.holds("Warehouse", "main", "Ready"))
        assert world.meter.finished.count(("Check", "CatalogUnavailable")) == 2

    def test_checked_once_per_generation(self) -> None:
        world = started()
        assert world.meter.finished.count(("Check", "Checked")) == 1
        world.kube.edit("Warehouse", "main", lambda o: o["spec"].update(maxConcurrentRuns=5))
        world.run_until(lambda: world.meter.finished.count(("Check", "Checked")) == 2)

    def test_an_image_that_cannot_be_pulled_is_named(self) -> None:
        world = World()
        world.kubelet.holds = lambda _pod: True
        for obj in (claim(), warehouse()):
            world.kube.add(obj)
        world.run_until(lambda: bool(list(world.kube.find("Pod"))))
        waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
        status = {"containerStatuses": [{"name": "spark-kubernetes-driver", "state": waiting}]}
        world.kube.edit("Pod", driver(world, "Check")["metadata"]["name"], lambda p: p["status"].update(status))
        world.run_until(lambda: world.kube.condition("Warehouse", "main", "Ready") == ("False", "ImagePullFailed"))

    def test_stays_until_what_needs_it_is_gone(self) -> None:
        world = started(load("jan"), index())
        world.run_until(lambda: synced(world) == "1/1")
        for kind, name in (("Warehouse", "main"), ("Table", "flights")):
            world.kube.remove(kind, "lake", name)
        for _ in range(5):
            world.tick()
        assert world.kube.condition("Warehouse", "main", "Progressing") == ("True", "Deleting")
        world.kube.remove("SecondaryIndex", "lake", "by-tail")
        world.run_until(lambda: not any(kind == "Warehouse" for kind, _, _ in world.kube.objects))
        assert not world.lake.tables["air", "flights"].covered

    def test_goes_after_ten_minutes_in_any_case(self) -> None:
        world = started(load("jan"), index())
        world.run_until(lambda: synced(world) == "1/1")
        world.kube.remove("Warehouse", "lake", "main")
        world.run_until(lambda: ("Warehouse", "lake", "main") not in world.kube.objects)
        assert "DataRetained" in world.events.reasons("Warehouse")


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


def test_observe_pods_that_are_rejected_are_told_by_the_table() -> None:
    world = World()
    world.lake.tables["air", "flights"] = LakeTable("somebody", {"tailnum": "string"}, segments=[1], sequence=1)
    said = Refused(status=403, reason="Forbidden", message="violates PodSecurity")
    world.kube.refuse = lambda o: said if o["kind"] == "Pod" and is_operation(o, "Observe") else None
    for obj in (claim(), warehouse(), observed_table()):
        world.kube.add(obj)
    world.run_until(lambda: world.kube.condition("Table", "flights", "Ready") == ("Unknown", "PodRejected"), ticks=40)
    world.kube.refuse = lambda _obj: None
    world.run_until(lambda: world.holds("Table", "flights", "Ready"))


def is_operation(obj: dict[str, Any], operation: str) -> bool:
    return bool(obj["metadata"]["labels"]["skipstone.dev/operation"] == operation)
