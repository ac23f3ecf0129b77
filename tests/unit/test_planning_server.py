"""The planning server of a Warehouse: what is made, written again and deleted, and what the Warehouse says of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from skipstone_core.contract.planning import PlanningMode, PlanningSettings
from skipstone_core.ids import short_hash
from skipstone_core.reasons import Reason
from skipstone_operator.manifests.planning import PLANNING_KINDS, server_name
from skipstone_operator.ports import JsonObject, Key, Refused
from skipstone_operator.reconcilers.runs.requests import effective_warehouse

from tests.unit import objects
from tests.unit.kstatus import CURRENT, FAILED, IN_PROGRESS, compute
from tests.unit.operator_double import DEFAULTS, World
from tests.unit.world_cases import ONE_NODE, subject

Obj = dict[str, Any]
NAME = "main-planning"
TOKENS: Obj = {"tokensSecretRef": {"name": "readers", "key": "tokens"}}
REST: Obj = {"catalog": {"type": "Rest", "uri": "https://catalog.example.org"}}
KEY = Key("Warehouse", "lake", "main")


def served(planning: Obj | None = None, *, modes: tuple[str, ...] = ("ReadWriteMany",), **spec: Any) -> World:
    """A Rest Warehouse whose planning server is asked for, before the first pass."""
    world = World()
    # The operator never reads a Secret.
    world.kube.unreadable = {"Secret"}
    world.kube.add(objects.claim(*modes))
    world.kube.add(objects.warehouse(**{**REST, "planning": planning or {}, **spec}))
    return world


def ready(world: World, replicas: int | None = None, **status: Any) -> World:
    """The controller of Deployments has made the replicas, and all or ``replicas`` of them are ready."""
    world.reconcile_all()
    wanted = deployment(world)["spec"]["replicas"]
    counts = {"replicas": wanted, "updatedReplicas": wanted, "readyReplicas": wanted if replicas is None else replicas}
    generation = deployment(world)["metadata"]["generation"]
    found = {"observedGeneration": generation, **counts, **status}
    world.kube.edit("Deployment", NAME, lambda obj: obj.update(status=found))
    world.reconcile_all()
    return world


def find(world: World, kind: str) -> Obj:
    return world.kube.objects[kind, "lake", NAME]


def deployment(world: World) -> Obj:
    return find(world, "Deployment")


def kinds(world: World) -> set[str]:
    return {kind for kind, _, name in world.kube.objects if name.startswith(NAME)}


def told(world: World) -> tuple[str, str]:
    return world.kube.condition("Warehouse", "main", "PlanningReady")


def message(world: World) -> str:
    (found,) = [c for c in world.kube.status("Warehouse", "main")["conditions"] if c["type"] == "PlanningReady"]
    return str(found["message"])


def planning(world: World) -> Obj:
    return dict(world.kube.status("Warehouse", "main").get("planning") or {})


def settings(world: World) -> PlanningSettings:
    return PlanningSettings.from_json(find(world, "ConfigMap")["data"]["planning.json"])


def ask(world: World, change: Callable[[Obj], None]) -> None:
    """Edit spec.planning as a user would."""
    world.kube.edit("Warehouse", "main", lambda obj: change(obj["spec"]["planning"]))
    world.reconcile_all()


def stop(world: World) -> None:
    world.kube.edit("Warehouse", "main", lambda obj: obj["spec"].pop("planning"))
    world.reconcile_all()


def test_everything_is_made_the_deployment_last() -> None:
    world = served()
    world.reconcile_all()
    made = [write.removeprefix("create ") for write in world.kube.writes if write.startswith("create ")]
    assert made[made.index("ServiceAccount") :][:7] == [*PLANNING_KINDS[:-1], "Secret", "Deployment"]
    assert planning(world) == {"url": "http://main-planning.lake.svc:8181", "replicas": 2, "readyReplicas": 0}
    assert told(world) == ("False", Reason.REPLICAS_PENDING)


def test_the_server_is_named_in_the_status_before_anything_is_made() -> None:
    world = served()
    world.kube.crash = lambda number, moment: (
        world.kube.writes[number] == "create ServiceAccount" and moment == "before"
    )
    with pytest.raises(BaseException, match="create ServiceAccount"):
        for _ in range(20):
            world.reconcile(KEY)
    assert planning(world)["url"]
    assert not kinds(world)


def test_ready_replicas_make_it_ready_and_the_warehouse_current() -> None:
    world = served()
    world.run_until(lambda: world.holds("Warehouse", "main", "Ready"))
    assert compute(world.kube.objects["Warehouse", "lake", "main"]) == IN_PROGRESS
    ready(world)
    assert told(world) == ("True", Reason.SERVING)
    assert message(world) == "2 of 2 replicas of the planning server are ready"
    assert planning(world)["readyReplicas"] == 2
    told_of = [(one.type.value, one.reason.value) for one in world.events.records if "planning" in one.note]
    assert told_of == [("Normal", Reason.REPLICAS_PENDING), ("Normal", Reason.SERVING)]
    assert compute(world.kube.objects["Warehouse", "lake", "main"]) == CURRENT


def test_a_warehouse_is_ready_whatever_becomes_of_its_server() -> None:
    world = served()
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}
    ready(world, 0, conditions=[late])
    world.run_until(lambda: world.holds("Warehouse", "main", "Ready"))
    assert told(world) == ("False", Reason.REPLICAS_FAILED)
    assert "timed out; see the pods of Deployment 'main-planning'" in message(world)
    assert compute(world.kube.objects["Warehouse", "lake", "main"]) == FAILED


def test_some_replicas_serve() -> None:
    world = ready(served(), 1)
    assert told(world) == ("True", Reason.REPLICAS_PENDING)
    assert message(world).startswith("1 of 2 replicas of the planning server are ready; see the pods of Deployment")


def test_pods_that_cannot_be_made_are_told_with_the_reason() -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota: pods"}
    world = ready(served(), 0, conditions=[failure])
    assert "exceeded quota: pods" in message(world)


def test_a_change_of_the_settings_rolls_the_pods_and_touches_nothing_else() -> None:
    world = ready(served())
    world.kube.edit("Deployment", NAME, lambda obj: obj["metadata"]["annotations"].update(theirs="kept"))
    before, annotations = len(world.kube.writes), deployment(world)["spec"]["template"]["metadata"]["annotations"]
    ask(world, lambda spec: spec.update(mode="Default"))
    written = [write for write in world.kube.writes[before:] if not write.startswith(("status", "create"))]
    assert written == ["metadata ConfigMap", "metadata Deployment"]
    assert settings(world).mode is PlanningMode.DEFAULT
    assert deployment(world)["spec"]["template"]["metadata"]["annotations"] != annotations
    assert deployment(world)["metadata"]["annotations"]["theirs"] == "kept"


def test_who_may_connect_is_a_matter_of_the_policy_alone() -> None:
    world, port = ready(served()), {"protocol": "TCP", "port": 8181}
    assert find(world, "NetworkPolicy")["spec"]["ingress"] == [{"ports": [port]}]
    before, peers = len(world.kube.writes), [{"podSelector": {"matchLabels": {"app": "notebook"}}}]
    ask(world, lambda spec: spec.update(allowFrom=peers))
    assert find(world, "NetworkPolicy")["spec"]["ingress"] == [{"ports": [port], "from": peers}]
    assert [write for write in world.kube.writes[before:] if "status" not in write] == ["metadata NetworkPolicy"]
    ask(world, lambda spec: spec.pop("allowFrom"))
    assert find(world, "NetworkPolicy")["spec"]["ingress"] == [{"ports": [port]}]


def test_a_server_that_is_as_declared_is_written_no_more() -> None:
    world = ready(served())
    world.run_until(lambda: world.holds("Warehouse", "main", "Ready"))
    before = len(world.kube.writes)
    for _ in range(5):
        world.tick()
    assert world.kube.writes[before:] == []


@pytest.mark.parametrize("kind", PLANNING_KINDS)
def test_an_object_that_somebody_deletes_is_made_again(kind: str) -> None:
    world = ready(served())
    world.kube.remove(kind, "lake", NAME)
    world.reconcile_all()
    assert {*PLANNING_KINDS, "Secret"} == kinds(world)


def test_a_new_conf_map_has_a_new_key_and_rolls_the_pods() -> None:
    world = ready(served())

    def key() -> str:
        (variable,) = [v for v in environment(world) if v["name"] == "SKIPSTONE_PLANNING_SEAL"]
        return str(variable["valueFrom"]["secretKeyRef"]["name"])

    before = key()
    world.kube.remove("ConfigMap", "lake", NAME)
    world.reconcile_all()
    assert key() != before
    secrets = [obj for (kind, _, _), obj in world.kube.objects.items() if kind == "Secret"]
    assert [secret["metadata"]["name"] for secret in secrets] == [key()]
    assert len(secrets[0]["stringData"]["seal"]) >= 43


def environment(world: World) -> list[Obj]:
    found: list[Obj] = deployment(world)["spec"]["template"]["spec"]["containers"][0]["env"]
    return found


def test_everything_goes_when_planning_goes() -> None:
    world = ready(served())
    stop(world)
    assert kinds(world) == set()
    assert told(world) == ("", "")
    assert not planning(world)
    deleted = [write for write in world.kube.writes if write.startswith("delete")]
    assert deleted[0] == "delete Deployment"


def test_everything_goes_with_the_warehouse() -> None:
    world = ready(served())
    world.kube.remove("Warehouse", "lake", "main")
    world.reconcile_all()
    assert kinds(world) == set()


def test_what_is_no_longer_wanted_goes() -> None:
    world = ready(served())
    ask(world, lambda spec: spec.update(replicas=1, serviceAccountName="reader"))
    assert {"PodDisruptionBudget", "ServiceAccount"} & kinds(world) == set()
    assert deployment(world)["spec"]["template"]["spec"]["serviceAccountName"] == "reader"
    ask(world, lambda spec: spec.pop("replicas"))
    assert "PodDisruptionBudget" in kinds(world)


def test_replicas_that_share_a_node_do_not_keep_it_from_being_drained() -> None:
    world = ready(served({"replicas": 2}, modes=("ReadWriteOnce",)))
    spec = deployment(world)["spec"]["template"]["spec"]
    (term,) = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    labels = deployment(world)["spec"]["template"]["metadata"]["labels"]
    assert term["labelSelector"]["matchLabels"].items() <= labels.items()
    assert kinds(world) == {*PLANNING_KINDS, "Secret"} - {"PodDisruptionBudget"}


@pytest.mark.parametrize("kind", PLANNING_KINDS)
def test_an_object_of_somebody_else_is_left_alone(kind: str) -> None:
    world = served()
    world.kube.add({"apiVersion": "v1", "kind": kind, "metadata": {"name": NAME}, "mine": True})
    world.run_until(lambda: world.holds("Warehouse", "main", "Ready"))
    assert told(world) == ("False", Reason.RESOURCE_CONFLICT)
    assert message(world).startswith(f"{kind} 'main-planning' exists and does not belong to this Warehouse: delete it")
    stop(world)
    assert kinds(world) == {kind}
    assert find(world, kind)["mine"]


def test_an_object_that_is_being_deleted_is_waited_for() -> None:
    world = served()
    leaving = {"name": NAME, "finalizers": ["example.org/slow"]}
    world.kube.add({"apiVersion": "v1", "kind": "Service", "metadata": leaving})
    world.kube.remove("Service", "lake", NAME)
    world.reconcile_all()
    assert message(world) == "waiting until Service 'main-planning' is deleted"
    world.kube.drop("Service", "lake", NAME)
    world.reconcile_all()
    assert "Deployment" in kinds(world)


def refuse(kind: str, text: str, status: int = 403) -> Callable[[JsonObject], Refused | None]:
    answer = Refused(status=status, reason="Forbidden", message=text)
    return lambda obj: answer if obj["kind"] == kind else None


@pytest.mark.parametrize(
    ("text", "reason", "summary"),
    [
        ("exceeded quota: services", Reason.WAITING_FOR_QUOTA, IN_PROGRESS),
        ("denied by a policy", Reason.SERVER_REFUSED, FAILED),
    ],
)
def test_a_refused_object_keeps_no_run_from_starting(text: str, reason: Reason, summary: str) -> None:
    world = served()
    world.kube.refuse = refuse("Service", text)
    world.run_until(lambda: world.holds("Warehouse", "main", "Ready"))
    assert told(world) == ("False", reason)
    assert message(world) == f"the API server refused Service 'main-planning': {text}"
    assert compute(world.kube.objects["Warehouse", "lake", "main"]) == summary
    world.kube.refuse = lambda _obj: None
    world.run_until(lambda: "Deployment" in kinds(world), ticks=20)
    ready(world)
    assert told(world) == ("True", Reason.SERVING)
    assert "retryTime" not in planning(world)


def test_a_refused_secret_keeps_the_deployment_from_being_made() -> None:
    world = served()
    world.kube.refuse = refuse("Secret", "secrets is forbidden")
    world.reconcile_all()
    assert told(world) == ("False", Reason.SERVER_REFUSED)
    assert "Deployment" not in kinds(world)


@pytest.mark.parametrize(
    ("world", "reason", "says"),
    [
        (served(modes=("ReadWriteOncePod",)), Reason.INVALID_SPEC, "claim 'lake-data' is ReadWriteOncePod"),
        (served(storage={"pvc": {"claimName": "none"}}), Reason.CLAIM_NOT_FOUND, "no PersistentVolumeClaim 'none'"),
        (served(catalog={"type": "Sql"}), Reason.INVALID_SPEC, "planning.tokensSecretRef is required"),
        (served(spark={"podTemplate": {"spec": {"hostNetwork": True}}}), Reason.INVALID_SPEC, "hostNetwork"),
    ],
    ids=["one pod", "no claim", "no tokens", "template"],
)
def test_what_stands_in_the_way_is_told_and_nothing_is_made(world: World, reason: Reason, says: str) -> None:
    world.reconcile_all()
    assert told(world) == ("False", reason)
    assert says in message(world)
    assert kinds(world) == set()
    stop(world)
    assert told(world) == ("", "")


def test_a_running_server_stays_while_its_warehouse_is_wrong() -> None:
    world = ready(served())
    ask(world, lambda spec: spec.update(TOKENS))
    assert told(world) == ("False", Reason.INVALID_SPEC)
    assert planning(world)["readyReplicas"] == 2
    assert "Deployment" in kinds(world)


def test_planning_changes_no_run() -> None:
    plain, serving = objects.warehouse(**REST), objects.warehouse(**REST, planning={"mode": "Default"})
    effective = [effective_warehouse(subject(obj), ONE_NODE, DEFAULTS) for obj in (plain, serving)]
    assert effective[0] == effective[1]


@pytest.mark.parametrize(
    ("warehouse", "name"),
    [
        ("main", "main-planning"),
        ("eu.sales", "eu-sales-021cbd1d-planning"),
        ("2026", "w-2026-3fb9c1f3-planning"),
        ("m" * 63, f"{'m' * 45}-{short_hash('m' * 63)}-planning"),
    ],
)
def test_the_name_is_one_of_a_service(warehouse: str, name: str) -> None:
    assert server_name(warehouse) == name
    assert len(name) <= 63


def test_no_secret_is_in_what_reconcilers_show() -> None:
    world = ready(served())
    (seal,) = [obj["stringData"]["seal"] for (kind, _, _), obj in world.kube.objects.items() if kind == "Secret"]
    rest = [obj for (kind, _, _), obj in world.kube.objects.items() if kind != "Secret"]
    assert seal not in json.dumps(rest)
    assert seal not in repr(world.events.records)


@pytest.mark.parametrize("moment", ["before", "landed"])
def test_dying_at_any_write_leaves_what_is_declared(moment: str) -> None:
    number = 0
    while True:
        world = served()
        world.kube.crash = lambda n, m, number=number: (n, m) == (number, moment)  # type: ignore[misc]
        ready(world)
        ask(world, lambda spec: spec.update(mode="Default", replicas=1))
        assert {*PLANNING_KINDS, "Secret"} - {"PodDisruptionBudget"} == kinds(world)
        assert settings(world).mode is PlanningMode.DEFAULT
        assert [kind for kind, _, _ in world.kube.objects].count("Secret") == 1
        ready(world)
        assert told(world) == ("True", Reason.SERVING)
        stop(world)
        assert kinds(world) == set()
        assert told(world) == ("", "")
        if not world.crashes:
            break
        number += 1
    assert number >= 20
