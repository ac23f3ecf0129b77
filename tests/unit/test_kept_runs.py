"""Warehouses with kept drivers: which runs go to one, what becomes of a run whose driver goes, how many are kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from skipstone.apps.keep import SCRATCH
from skipstone_core.contract.keeping import IDLE_VARIABLE, kept_driver_uid
from skipstone_core.contract.requests import JobRequest, RunKind
from skipstone_operator.labels import COLD_START_ANNOTATION, KEPT_DRIVER_LABEL
from skipstone_operator.manifests import keeping
from skipstone_operator.ports import Key, Refused, RunDefaults

from tests.unit import operator_double
from tests.unit.kube_double import copied
from tests.unit.lake_double import Ends, is_kept_driver
from tests.unit.objects import claim, load, merge, table, warehouse
from tests.unit.operator_double import World

Pod = dict[str, Any]
Change = Callable[[Pod], None]


def lake(warm: dict[str, Any] | None = None, **spec: Any) -> World:
    """A Warehouse whose kept drivers take runs, and a Table that is ready."""
    world = World()
    for obj in (claim(), warehouse(warmDrivers=warm or {}, **spec), table()):
        world.kube.add(obj)
    world.run_until(lambda: world.holds("Table", "flights", "Ready"))
    return world


def warmed(warm: dict[str, Any] | None = None, **spec: Any) -> World:
    world = lake(warm, **spec)
    world.run_until(lambda: world.holds("Warehouse", "main", "WarmDriversReady"))
    return world


def drivers(world: World) -> list[Pod]:
    return [pod for pod in world.kube.find("Pod") if is_kept_driver(pod)]


def runs(world: World, operation: str = "Merge") -> list[Pod]:
    return list(world.kube.find("Pod", operation=operation))


def cold_start(pod: Pod) -> str:
    return str(pod["metadata"].get("annotations", {}).get(COLD_START_ANNOTATION, ""))


def complete(world: World, name: str = "feed") -> None:
    world.run_until(lambda: world.holds("MergeJob", name, "Complete"), ticks=40)


def until_running(world: World) -> Pod:
    """The merge's pod once its kept driver runs it, and holds it there."""
    world.kube.add(merge("feed"))
    world.kubelet.holds = lambda pod: pod["status"]["phase"] == "Running" and bool(kept_driver_uid(pod))
    world.run_until(lambda: any(pod["status"]["phase"] == "Running" for pod in runs(world)), ticks=10)
    (pod,) = runs(world)
    assert kept_driver_uid(pod)
    return pod


def settle(world: World) -> None:
    """The Warehouse ends what was left, then the job hears of it: no time passes."""
    world.reconcile_all()
    world.reconcile_all()


def attempts(world: World, name: str = "feed") -> tuple[int, int, int]:
    status = world.kube.status("MergeJob", name)
    return status["attempts"], status.get("failedAttempts", 0), status.get("lostAttempts", 0)


def test_runs_go_to_the_kept_driver_one_after_the_other() -> None:
    world = warmed()
    (driver,) = drivers(world)
    for name in ("feed", "more"):
        world.kube.add(merge(name))
        complete(world, name)
    assigned = runs(world)
    assert [kept_driver_uid(pod) for pod in assigned] == [driver["metadata"]["uid"]] * 2
    assert {pod["metadata"]["labels"][KEPT_DRIVER_LABEL] for pod in assigned} == {driver["metadata"]["name"]}
    for pod in assigned:
        assert "volumes" not in pod["spec"] and "volumeMounts" not in pod["spec"]["containers"][0]
        assert pod["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "0", "memory": "0"}}
    assert drivers(world) == [driver]
    assert world.kube.status("Warehouse", "main")["warmDrivers"] == {"wanted": 1, "ready": 1, "summary": "1/1"}


def test_a_kept_driver_has_the_credentials_of_the_warehouse_as_files_and_none_in_its_environment() -> None:
    secret = {"name": "db", "keys": ["SKIPSTONE_CATALOG_PASSWORD"]}
    (driver,) = drivers(warmed(credentialsSecretRef=secret))
    (container,) = driver["spec"]["containers"]
    assert not [entry for entry in container["env"] if "secretKeyRef" in entry.get("valueFrom", {})]
    (source,) = next(v for v in driver["spec"]["volumes"] if v["name"] == "credentials")["projected"]["sources"]
    items = [{"key": "SKIPSTONE_CATALOG_PASSWORD", "path": "SKIPSTONE_CATALOG_PASSWORD"}]
    assert source == {"secret": {"name": "db", "items": items}}
    assert driver["spec"]["serviceAccountName"] == "skipstone-spark-kept"


def test_other_kinds_of_runs_start_in_pods_of_their_own() -> None:
    world = warmed()
    operations = {pod["metadata"]["labels"]["skipstone.dev/operation"]: pod for pod in world.kube.find("Pod")}
    assert {"Check", "Table"} <= operations.keys()
    assert not any(kept_driver_uid(pod) or cold_start(pod) for pod in operations.values())


def test_a_failed_attempt_counts_and_the_next_one_has_a_pod_of_its_own() -> None:
    world = warmed()
    world.lake.script = lambda request: Ends(137) if request.kind is RunKind.MERGE and request.attempt == 1 else None
    world.kube.add(merge("feed"))
    complete(world)
    first, second = sorted(runs(world), key=lambda pod: str(pod["metadata"]["name"]))
    assert kept_driver_uid(first) and not kept_driver_uid(second)
    assert cold_start(second) == "attempt 2 does not share a pod with other runs"
    assert attempts(world) == (2, 1, 0)


COLD = {
    "no kept driver is ready": ({}, {}),
    "source location 'landing'": (
        {"sourceLocations": [{"name": "landing", "pvc": {"claimName": "lake-data"}}]},
        {"source": {"format": "Csv", "paths": ["x.csv"], "location": "landing"}},
    ),
    "too large for the spec of a pod": ({}, {}),
}


@pytest.mark.parametrize("why", COLD)
def test_a_run_that_starts_in_a_pod_of_its_own_says_why(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse_spec, job = COLD[why]
    if "large" in why:
        monkeypatch.setattr(keeping, "MAX_FILES_BYTES", 100)
    world = warmed(**warehouse_spec)
    if "ready" in why:
        world.kube.drop("Pod", "lake", drivers(world)[0]["metadata"]["name"])
    world.kube.add(merge("feed", **job))
    complete(world)
    (pod,) = runs(world)
    assert not kept_driver_uid(pod)
    assert why in cold_start(pod)


def test_a_warehouse_without_kept_drivers_says_nothing_of_them() -> None:
    world = World()
    for obj in (claim(), warehouse(), table(), merge("feed")):
        world.kube.add(obj)
    complete(world)
    assert not cold_start(runs(world)[0])
    assert world.kube.condition("Warehouse", "main", "WarmDriversReady") == ("", "")


def end_driver(world: World, state: Pod, **status: Any) -> None:
    """Let the container of the kept driver end, as a node tells it."""
    (driver,) = drivers(world)
    ended = {"startedAt": world.kube.clock.text(), "finishedAt": world.kube.clock.text(), **state}
    container = {"name": "spark-kubernetes-driver", "state": {"terminated": ended}}
    told = {"phase": "Failed", "containerStatuses": [container], **status}
    world.kube.edit("Pod", driver["metadata"]["name"], lambda pod: pod.update(status=told))


@pytest.mark.parametrize(
    ("state", "status", "reason", "counts"),
    [
        ({"exitCode": 137, "reason": "OOMKilled"}, {}, "OutOfMemory", (1, 0)),
        ({"exitCode": 139, "reason": "Error"}, {}, "DriverFailed", (1, 0)),
        ({"exitCode": 137, "reason": "Error"}, {"reason": "Evicted"}, "DriverLost", (0, 1)),
        ({"exitCode": 0, "reason": "Completed"}, {"phase": "Succeeded"}, "DriverLost", (0, 1)),
    ],
)
def test_a_run_ends_as_the_container_of_its_driver_did(
    state: Pod, status: Pod, reason: str, counts: tuple[int, int]
) -> None:
    world = warmed()
    until_running(world)
    end_driver(world, state, **status)
    settle(world)
    assert world.kube.status("MergeJob", "feed")["lastRun"]["reason"] == reason
    assert attempts(world)[1:] == counts
    world.kubelet.holds = lambda _pod: False
    complete(world)
    assert attempts(world)[0] == 2


@pytest.mark.parametrize("begun", [True, False])
def test_a_run_whose_driver_is_gone_is_lost_and_does_not_count(begun: bool) -> None:
    world = warmed()
    if begun:
        until_running(world)
    else:
        world.kubelet.holds = lambda pod: bool(kept_driver_uid(pod))
        world.kube.add(merge("feed"))
        world.reconcile_all()
    world.kube.drop("Pod", "lake", drivers(world)[0]["metadata"]["name"])
    settle(world)
    last = world.kube.status("MergeJob", "feed")["lastRun"]
    assert (last["result"], last["reason"]) == ("Lost", "DriverLost")
    assert "is gone" in last["message"]
    world.kubelet.holds = lambda _pod: False
    complete(world)
    assert attempts(world) == (2, 0, 1)
    # Another driver is kept meanwhile.
    world.run_until(lambda: world.holds("Warehouse", "main", "WarmDriversReady"), ticks=10)


def test_a_run_on_a_node_that_does_not_answer_is_ended_after_the_silence() -> None:
    world = warmed()
    until_running(world)
    (driver,) = drivers(world)
    silent = [
        {"type": "Ready", "status": "False", "lastTransitionTime": world.kube.clock.text()},
        {"type": "ContainersReady", "status": "True"},
    ]
    world.kubelet.holds = lambda _pod: True
    world.kube.edit("Pod", driver["metadata"]["name"], lambda pod: pod["status"].update(conditions=silent))
    world.run_until(lambda: "lastRun" in world.kube.status("MergeJob", "feed"), ticks=200)
    assert world.kube.status("MergeJob", "feed")["lastRun"]["reason"] == "DriverLost"


def test_a_run_that_its_driver_does_not_begin_is_taken_back_and_does_not_count() -> None:
    world = warmed()
    world.kubelet.holds = lambda pod: bool(kept_driver_uid(pod))
    world.kube.add(merge("feed"))
    world.run_until(lambda: "lastRun" in world.kube.status("MergeJob", "feed"), ticks=10)
    last = world.kube.status("MergeJob", "feed")["lastRun"]
    assert (last["result"], last["reason"]) == ("Lost", "KeptDriverBusy")
    complete(world)
    assert attempts(world) == (2, 0, 1)


@pytest.mark.parametrize("is_deleting", [False, True])
def test_a_run_ends_whose_driver_went_with_its_warehouse(is_deleting: bool) -> None:
    world = warmed()
    until_running(world)
    world.kubelet.holds = lambda _pod: True
    for driver in drivers(world):
        world.kube.drop("Pod", "lake", driver["metadata"]["name"])
    if is_deleting:
        marks = {"deletionTimestamp": world.kube.clock.text(), "finalizers": ["example.org/other"]}
        world.kube.edit("Warehouse", "main", lambda warehouse: warehouse["metadata"].update(marks))
    else:
        world.kube.drop("Warehouse", "lake", "main")
    world.run_until(lambda: "lastRun" in world.kube.status("MergeJob", "feed"), ticks=200)
    assert world.kube.status("MergeJob", "feed")["lastRun"]["result"] == "Lost"


def test_a_run_whose_assigned_pod_a_quota_refuses_starts_in_a_pod_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    world = warmed()
    create = world.kube.create

    async def refuse(obj: Pod) -> Refused | None:
        if obj["kind"] == "Pod" and kept_driver_uid(obj):
            return Refused(status=403, reason="Forbidden", message="failed quota: small: must specify limits.memory")
        return await create(obj)

    monkeypatch.setattr(world.kube, "create", refuse)
    world.kube.add(merge("feed", backoffLimit=0))
    complete(world)
    assert attempts(world) == (1, 0, 0)
    assert cold_start(runs(world)[0]) == "the API server refused a pod of the run"


def test_a_job_that_is_suspended_takes_its_run_from_the_driver() -> None:
    world = warmed()
    until_running(world)
    world.kube.edit("MergeJob", "feed", lambda job: job["spec"].update(suspend=True))
    world.reconcile_all()
    assert runs(world) == []
    assert world.kube.condition("MergeJob", "feed", "Progressing")[1] == "Suspended"
    assert len(drivers(world)) == 1


def test_a_driver_is_replaced_once_it_has_no_run() -> None:
    world = warmed()
    until_running(world)
    (old,) = drivers(world)
    world.kube.edit("Warehouse", "main", lambda obj: obj["spec"].update(spark={"image": "new"}))
    for _ in range(3):
        world.tick()
    assert [pod["metadata"]["uid"] for pod in drivers(world)] == [old["metadata"]["uid"]]
    world.kubelet.holds = lambda _pod: False
    complete(world)
    world.run_until(lambda: [p["spec"]["containers"][0]["image"] for p in drivers(world)] == ["new"], ticks=10)
    world.run_until(lambda: world.holds("Warehouse", "main", "WarmDriversReady"), ticks=10)
    world.kube.add(merge("more"))
    complete(world, "more")
    assert kept_driver_uid(runs(world)[-1]) == drivers(world)[0]["metadata"]["uid"]


def test_what_changes_no_run_replaces_no_driver() -> None:
    world = warmed()
    before = drivers(world)
    world.kube.edit("Warehouse", "main", lambda obj: obj["spec"].update(maxConcurrentRuns=9))
    for _ in range(6):
        world.tick()
    assert drivers(world) == before


def test_more_drivers_are_kept_while_several_jobs_run_and_those_beyond_the_minimum_end_idle() -> None:
    world = lake({"min": 0, "max": 2, "idleSeconds": 60})
    assert drivers(world) == []
    for name in ("a", "b", "c"):
        world.kube.add(table(name, identifier={"namespace": "air", "name": name}))
        world.kube.add(load(name, tableRef={"name": name}))
    world.kubelet.holds = lambda pod: pod["metadata"]["labels"]["skipstone.dev/operation"] == "Load"
    world.run_until(lambda: len(drivers(world)) == 2, ticks=40)
    idle = [
        {e["name"]: e.get("value") for e in p["spec"]["containers"][0]["env"]}[IDLE_VARIABLE] for p in drivers(world)
    ]
    assert idle == ["60", "60"]
    world.kubelet.holds = lambda _pod: False
    world.run_until(lambda: all(world.holds("LoadJob", name, "Complete") for name in "abc"), ticks=40)
    end_all_idle(world)
    # One stays wanted for as long as a job has ended lately, then none.
    for _ in range(3):
        world.tick()
    assert len(drivers(world)) <= 1
    world.kube.clock.advance(100)
    end_all_idle(world)
    for _ in range(3):
        world.tick()
    assert drivers(world) == []


def end_all_idle(world: World) -> None:
    """Drivers that have been idle for their time end by themselves."""
    for driver in drivers(world):
        ended = {"exitCode": 0, "startedAt": world.kube.clock.text(), "finishedAt": world.kube.clock.text()}
        container = {"name": "spark-kubernetes-driver", "state": {"terminated": ended}}
        status = {"phase": "Succeeded", "containerStatuses": [container]}
        world.kube.edit("Pod", driver["metadata"]["name"], lambda pod, status=status: pod.update(status=status))


def test_runs_wait_in_line_behind_small_ones_and_not_behind_long_ones() -> None:
    world = warmed(maxConcurrentRuns=20)
    names = ["a", "b"]
    for name in names:
        world.kube.add(table(name, identifier={"namespace": "air", "name": name}))
    world.run_until(lambda: all(world.holds("Table", name, "Ready") for name in names), ticks=20)
    world.kubelet.holds = lambda pod: pod["metadata"]["labels"]["skipstone.dev/operation"] == "Load"
    world.kube.add(load("a", tableRef={"name": "a"}))
    world.reconcile_all()
    world.kubelet.holds = lambda pod: pod["status"]["phase"] == "Running" and bool(kept_driver_uid(pod))
    world.tick()
    world.kube.clock.advance(30)
    world.kube.add(load("b", tableRef={"name": "b"}))
    world.reconcile_all()
    by_name = {pod["metadata"]["ownerReferences"][0]["name"]: pod for pod in runs(world, "Load")}
    assert kept_driver_uid(by_name["a"])
    assert cold_start(by_name["b"]) == "all kept drivers are busy"


def test_a_driver_that_fails_is_named_and_started_again_after_a_while() -> None:
    world = warmed()
    end_driver(world, {"exitCode": 1, "reason": "Error", "message": "no module named keep"})
    world.reconcile_all()
    assert world.kube.condition("Warehouse", "main", "WarmDriversReady") == ("False", "KeptDriversFailed")
    (condition,) = [c for c in world.kube.status("Warehouse", "main")["conditions"] if c["type"] == "WarmDriversReady"]
    assert "no module named keep" in condition["message"]
    world.run_until(lambda: world.holds("Warehouse", "main", "WarmDriversReady"), ticks=20)


def test_until_a_driver_takes_runs_they_start_in_pods_of_their_own() -> None:
    world = World()
    for obj in (claim(), warehouse(warmDrivers={}), table(), merge("feed")):
        world.kube.add(obj)
    world.kubelet.holds = is_kept_driver
    complete(world)
    assert world.kube.condition("Warehouse", "main", "WarmDriversReady") == ("False", "KeptDriversPending")
    assert cold_start(runs(world)[0]) == "no kept driver is ready"
    assert world.holds("Warehouse", "main", "Ready")


def test_a_driver_that_the_api_server_refuses_keeps_no_job_waiting() -> None:
    world = World()
    for obj in (claim(), warehouse(warmDrivers={}), table(), merge("feed")):
        world.kube.add(obj)
    full = Refused(status=403, reason="Forbidden", message="exceeded quota: pods")
    world.kube.refuse = lambda obj: full if obj["kind"] == "Pod" and is_kept_driver(obj) else None
    complete(world)
    assert world.kube.condition("Warehouse", "main", "WarmDriversReady") == ("False", "WaitingForQuota")
    assert world.holds("Warehouse", "main", "Ready")


def test_drivers_go_when_the_warehouse_asks_for_none() -> None:
    world = warmed()
    until_running(world)
    world.kube.edit("Warehouse", "main", lambda obj: obj["spec"].pop("warmDrivers"))
    for _ in range(3):
        world.tick()
    assert len(drivers(world)) == 1
    world.kubelet.holds = lambda _pod: False
    complete(world)
    world.run_until(lambda: not drivers(world), ticks=20)
    world.run_until(lambda: "warmDrivers" not in world.kube.status("Warehouse", "main"), ticks=10)
    assert world.kube.condition("Warehouse", "main", "WarmDriversReady") == ("", "")


def test_a_claim_for_one_pod_keeps_no_driver() -> None:
    world = World()
    for obj in (claim("ReadWriteOncePod"), warehouse(warmDrivers={}), table(), merge("feed")):
        world.kube.add(obj)
    complete(world)
    assert drivers(world) == []
    assert world.kube.condition("Warehouse", "main", "WarmDriversReady") == ("False", "InvalidSpec")


def test_skipstone_local_says_that_it_keeps_no_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = RunDefaults(image="skipstone-spark:test", service_account="skipstone-spark", keeps_drivers=False)
    monkeypatch.setattr(operator_double, "DEFAULTS", defaults)
    world = World()
    for obj in (claim(), warehouse(warmDrivers={}), table(), merge("feed")):
        world.kube.add(obj)
    complete(world)
    assert drivers(world) == []
    (condition,) = [c for c in world.kube.status("Warehouse", "main")["conditions"] if c["type"] == "WarmDriversReady"]
    assert condition["message"].endswith("remove warmDrivers")
    assert not cold_start(runs(world)[0]).startswith("attempt")


def test_the_request_of_a_run_is_that_of_its_config_map() -> None:
    world = warmed()
    world.kube.add(merge("feed"))
    complete(world)
    (pod,) = runs(world)
    variables = {entry["name"]: entry.get("value") for entry in pod["spec"]["containers"][0]["env"]}
    request = JobRequest.from_json(json.loads(str(variables["SKIPSTONE_FILES"]))["request.json"])
    assert request.run_id + "-driver" == pod["metadata"]["name"]


def test_a_run_of_a_warehouse_that_was_created_again_is_taken_from_the_driver_of_the_earlier_one() -> None:
    world = warmed()
    until_running(world)
    (old,) = drivers(world)
    world.kubelet.holds = lambda pod: pod["metadata"]["uid"] == old["metadata"]["uid"] or bool(kept_driver_uid(pod))
    world.kube.drop("Warehouse", "lake", "main")
    world.kube.add(warehouse(warmDrivers={}))
    world.run_until(lambda: "lastRun" in world.kube.status("MergeJob", "feed"), ticks=20)
    last = world.kube.status("MergeJob", "feed")["lastRun"]
    assert (last["result"], last["reason"]) == ("Lost", "KeptDriverBusy")
    assert "the Warehouse of the run is gone" in last["message"]
    world.kubelet.holds = lambda _pod: False
    complete(world)
    assert attempts(world) == (2, 0, 1)
    world.kube.add(merge("more"))
    complete(world, "more")
    (driver,) = drivers(world)
    assert kept_driver_uid(runs(world)[-1]) == driver["metadata"]["uid"] != old["metadata"]["uid"]


def test_a_driver_of_another_warehouse_takes_no_run_whatever_its_labels_say() -> None:
    world = warmed()
    (old,) = copied(drivers(world))
    world.kube.drop("Warehouse", "lake", "main")
    made = world.kube.add(warehouse(warmDrivers={}))
    label = {"skipstone.dev/warehouse-uid": made["metadata"]["uid"]}
    forged = {**old, "metadata": {**old["metadata"], "labels": {**old["metadata"]["labels"], **label}}}
    world.kube.objects["Pod", "lake", old["metadata"]["name"]] = forged
    world.kube.add(merge("feed"))
    complete(world)
    assert kept_driver_uid(runs(world)[0]) != old["metadata"]["uid"]
    assert old["metadata"]["uid"] not in {driver["metadata"]["uid"] for driver in drivers(world)}


def once_read(world: World, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let ``happens`` come right after the next pass has read the kept drivers: it decides on what it has read."""
    listing, left = world.kube.list, [happens]

    async def listed(kind: str, namespace: str, **selection: Any) -> Any:
        objects = await listing(kind, namespace, **selection)
        is_of_kept = set(selection.get("labels") or {}) >= {"skipstone.dev/warehouse-uid"}
        if kind == "Pod" and is_of_kept and not selection.get("fields") and left:
            left.pop()()
        return objects

    monkeypatch.setattr(world.kube, "list", listed)


def be_unwanted(pod: Pod) -> None:
    """Make of a kept driver one that takes the same runs, but ends when it is idle, which nobody asks for."""
    pod["spec"]["containers"][0]["env"].append({"name": IDLE_VARIABLE, "value": "60"})


MAIN, FLIGHTS = Key("Warehouse", "lake", "main"), Key("Table", "lake", "flights")


def test_a_driver_that_gets_a_run_while_its_deletion_is_decided_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    world = warmed()
    (driver,) = drivers(world)
    world.kube.edit("Pod", driver["metadata"]["name"], be_unwanted)
    world.kube.add(merge("feed"))
    once_read(world, monkeypatch, lambda: [world.reconcile(FLIGHTS) for _ in range(3)])
    world.reconcile(MAIN)
    assert "deletionTimestamp" not in driver["metadata"]
    (pod,) = runs(world)
    assert kept_driver_uid(pod) == driver["metadata"]["uid"]
    complete(world)
    assert attempts(world) == (1, 0, 0)
    world.run_until(lambda: driver["metadata"]["uid"] not in {d["metadata"]["uid"] for d in drivers(world)}, ticks=10)


@pytest.mark.parametrize("how", ["deleted", "filled"])
def test_a_run_is_not_assigned_to_a_driver_that_goes_or_fills_meanwhile(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = warmed(maxConcurrentRuns=20)
    if how == "filled":
        names = ["a", "b", "c", "d"]
        for name in names:
            world.kube.add(table(name, identifier={"namespace": "air", "name": name}))
        world.run_until(lambda: all(world.holds("Table", name, "Ready") for name in names), ticks=20)
        for name in names:
            world.kube.add(load(name, tableRef={"name": name}))

        def happens() -> None:
            for name in names * 3:
                world.reconcile(Key("Table", "lake", name))
    else:
        world.kube.edit("Pod", drivers(world)[0]["metadata"]["name"], be_unwanted)

        def happens() -> None:
            world.reconcile(MAIN)

    world.kube.add(merge("feed"))
    once_read(world, monkeypatch, happens)
    world.reconcile(FLIGHTS)
    assert runs(world) == []
    world.reconcile_all()
    (pod,) = runs(world)
    assert not kept_driver_uid(pod)
    assert cold_start(pod) == ("all kept drivers are busy" if how == "filled" else "no kept driver is ready")
    complete(world)
    assert attempts(world) == (1, 0, 0)


def test_a_run_writes_to_claims_and_to_what_is_cleared_after_it_and_nowhere_else() -> None:
    (driver,) = drivers(warmed())
    (container,) = driver["spec"]["containers"]
    claims = {volume["name"] for volume in driver["spec"]["volumes"] if "persistentVolumeClaim" in volume}
    written = {
        mount["mountPath"]
        for mount in container["volumeMounts"]
        if not mount.get("readOnly") and mount["name"] not in claims
    }
    assert container["securityContext"]["readOnlyRootFilesystem"]
    # Every container has these two besides its mounts.
    assert {str(folder) for folder in SCRATCH} == written | {"/dev/shm", "/dev/mqueue"}
