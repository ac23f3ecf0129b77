"""What pods and the API server do to a run: pods that cannot start, are refused, or belong to somebody else."""

from __future__ import annotations

from typing import Any

import pytest
from skipstone_core.contract.requests import RunKind
from skipstone_operator.ports import Refused

from tests.unit.lake_double import Ends, LakeTable, end_pod
from tests.unit.lives import driver, hold_pods, is_operation, job, started
from tests.unit.objects import claim, index, load, observed_table, warehouse
from tests.unit.operator_double import World


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


def test_a_pod_that_claims_an_owner_by_its_labels_alone_is_neither_taken_up_nor_deleted() -> None:
    world = started(load("jan"), index(suspend=True))
    world.run_until(lambda: world.holds("LoadJob", "jan", "Complete"))
    uid = world.kube.objects["SecondaryIndex", "lake", "by-tail"]["metadata"]["uid"]
    labels = driver(world)["metadata"]["labels"] | {"skipstone.dev/owner-uid": uid}
    metadata = {"name": "stranger-driver", "labels": labels | {"skipstone.dev/operation": "Reindex"}}
    world.kubelet.holds = lambda pod: pod["metadata"]["name"] == "stranger-driver"
    world.kube.add({"kind": "Pod", "metadata": metadata, "status": {"phase": "Running"}})
    world.kube.edit("SecondaryIndex", "by-tail", lambda o: o["spec"].update(suspend=False))
    world.run_until(lambda: world.holds("SecondaryIndex", "by-tail", "Synced"))
    assert ("Pod", "lake", "stranger-driver") in world.kube.objects
