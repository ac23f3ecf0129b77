"""Ways out that conditions name: each is followed as it is printed, and the resource gets on.

A table of cases: what brings the message about, the words that name the way out, what a user then does, and what comes
of it. `tests/spark/test_ways_out.py` has the messages of runs; `tests/kube/test_dead_nodes.py` runs printed commands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from skipstone_core.contract.requests import RunKind

from tests.unit.lake_double import Ends
from tests.unit.lives import hold_pods, settled, started, synced
from tests.unit.objects import claim, index, load, merge, schedule, table, warehouse
from tests.unit.operator_double import World

Obj = dict[str, Any]
Act = Callable[[World], None]
Done = Callable[[World], bool]
JOB, TABLE, WAREHOUSE, INDEX = (
    ("LoadJob", "jan"),
    ("Table", "flights"),
    ("Warehouse", "main"),
    ("SecondaryIndex", "by-tail"),
)


def add(*objects: Obj) -> Act:
    """The user creates these."""

    def act(world: World) -> None:
        for obj in objects:
            world.kube.add(obj)

    return act


def edit(kind: str, name: str, **spec: Any) -> Act:
    """The user changes these fields of a spec."""
    return lambda world: world.kube.edit(kind, name, lambda found: found["spec"].update(spec))


def delete(kind: str, name: str) -> Act:
    """The user deletes a resource."""
    return lambda world: world.kube.remove(kind, "lake", name)


def both(first: Act, second: Act) -> Act:
    """One after the other."""

    def act(world: World) -> None:
        first(world)
        second(world)

    return act


def holds(kind: str, name: str, type_: str) -> Done:
    return lambda world: world.holds(kind, name, type_)


COMPLETE, READY = holds(*JOB, "Complete"), holds(*TABLE, "Ready")


@dataclass(frozen=True)
class Way:
    """``begin`` makes the world in which ``told`` says ``words``; after ``act``, ``done`` holds."""

    begin: Callable[[], World]
    told: tuple[str, str]
    words: str
    act: Act
    done: Done = COMPLETE


def bare(*objects: Obj) -> World:
    """A world with these and nothing else."""
    world = World()
    add(*objects)(world)
    return world


def named_twice() -> World:
    """The pod of the job's first run is there already, and belongs to somebody else."""
    world = started()
    world.kubelet.holds = lambda _pod: True
    world.kube.add(load("jan"))
    real = world.kube.create
    taken: list[str] = []

    async def create(obj: Obj) -> Any:
        if obj["kind"] == "Pod" and not taken:
            taken.append(obj["metadata"]["name"])
            world.kube.add({"kind": "Pod", "metadata": {"name": taken[0], "uid": "stranger"}, "spec": {}})
        return await real(obj)

    world.kube.create = create  # type: ignore[method-assign]
    world.run_until(lambda: bool(taken))
    world.kubelet.holds = lambda pod: pod["metadata"]["uid"] == "stranger"
    return world


def stranger_goes(world: World) -> None:
    name = next(p["metadata"]["name"] for p in world.kube.find("Pod") if p["metadata"]["uid"] == "stranger")
    world.kube.remove("Pod", "lake", name)


def begun_on_another_table() -> World:
    """The Table that a job began on was deleted and created again."""
    world = started(load("jan", backoffLimit=9))
    world.lake.script = lambda request: Ends(1) if request.kind is RunKind.LOAD else None
    world.run_until(lambda: bool(world.kube.status(*JOB).get("failedAttempts")))
    delete(*TABLE)(world)
    world.run_until(lambda: ("Table", "lake", "flights") not in world.kube.objects)
    world.lake.script = lambda _request: None
    world.kube.add(table())
    return world


def unconfirmed() -> World:
    """A job whose only attempt failed, and whose Warehouse is gone before a confirm run can look."""
    world = started(load("jan", backoffLimit=0))
    world.lake.script = lambda request: Ends(1) if request.kind is RunKind.LOAD else None
    hold_pods(world, "Confirm")
    world.run_until(lambda: bool(list(world.kube.find("Pod", operation="Confirm"))))
    for pod in list(world.kube.find("Pod", operation="Confirm")):
        world.kube.drop("Pod", "lake", pod["metadata"]["name"])
    delete(*WAREHOUSE)(world)
    world.kubelet.holds = lambda _pod: False
    return world


def out_of_time() -> World:
    """A job that its deadline ended."""
    world = started()
    hold_pods(world, "Load")
    world.kube.add(load("jan", activeDeadlineSeconds=30))
    world.run_until(lambda: world.holds(*JOB, "Failed"))
    world.kubelet.holds = lambda _pod: False
    return world


def shared(**spec: Any) -> World:
    """An SQLite catalog on a claim that many nodes mount, beside one that a single node mounts."""
    return bare(claim("ReadWriteMany"), claim(name="other"), warehouse(**spec), table())


LOCATION = {"name": "landing", "pvc": {"claimName": "landing"}}
LOCATED = load("jan", source={"format": "Csv", "paths": ["jan.csv"], "location": "landing"})
TEMPLATE = {"spark": {"podTemplate": {"spec": {"serviceAccountName": "root"}}}}
EXECUTORS = {"spark": {"executor": {"instances": 2}}}
REST = {"type": "Rest", "uri": "http://rest"}
WAYS = {
    "a suspended job": Way(
        lambda: started(load("jan", suspend=True)), JOB, "spec.suspend is true", edit(*JOB, suspend=False)
    ),
    "a suspended index": Way(
        lambda: started(load("jan"), index(suspend=True)),
        INDEX,
        "spec.suspend is true",
        edit(*INDEX, suspend=False),
        lambda world: synced(world) == "1/1",
    ),
    "no Table": Way(
        lambda: bare(claim(), warehouse(), load("jan")),
        JOB,
        "there is no Table 'flights' here; create it",
        add(table()),
    ),
    "no Warehouse": Way(
        lambda: bare(claim(), table()), TABLE, "there is no Warehouse 'main' here; create it", add(warehouse()), READY
    ),
    "no claim": Way(
        lambda: bare(warehouse(), table()),
        WAREHOUSE,
        "there is no PersistentVolumeClaim 'lake-data' here; create it",
        add(claim()),
        READY,
    ),
    "SQLite on many nodes: another claim": Way(
        shared,
        WAREHOUSE,
        "use a ReadWriteOnce claim",
        edit(*WAREHOUSE, storage={"pvc": {"claimName": "other"}}),
        READY,
    ),
    "SQLite on many nodes: another catalog": Way(
        shared, WAREHOUSE, "or another catalog", edit(*WAREHOUSE, catalog=REST), READY
    ),
    "executors beside a driver that has the claim alone": Way(
        lambda: bare(claim("ReadWriteOncePod"), warehouse(**EXECUTORS), table()),
        WAREHOUSE,
        "set 0 or use a ReadWriteOnce claim",
        edit(*WAREHOUSE, spark={"executor": {"instances": 0}}),
        READY,
    ),
    "a field of the pod template that is not allowed": Way(
        lambda: bare(claim(), warehouse(**TEMPLATE), table()),
        WAREHOUSE,
        "spec.spark.podTemplate.spec.serviceAccountName",
        edit(*WAREHOUSE, spark={}),
        READY,
    ),
    "no source location": Way(
        lambda: started(claim(name="landing"), LOCATED),
        JOB,
        "has no source location 'landing'; add it to its spec.sourceLocations",
        edit(*WAREHOUSE, sourceLocations=[LOCATION]),
    ),
    "no claim of a source location: create it": Way(
        lambda: bare(claim(), warehouse(sourceLocations=[LOCATION]), table()),
        WAREHOUSE,
        "there is no PersistentVolumeClaim 'landing' here; create it",
        add(claim(name="landing")),
        READY,
    ),
    "no claim of a source location: remove it": Way(
        lambda: bare(claim(), warehouse(sourceLocations=[LOCATION]), table()),
        WAREHOUSE,
        "or remove the location",
        edit(*WAREHOUSE, sourceLocations=[]),
        READY,
    ),
    "a pod of somebody else has the name": Way(
        named_twice, JOB, "is owned by something else; delete it", stranger_goes
    ),
    "an older index of the same definition: delete this one": Way(
        lambda: settled(World(), index("first"), load("jan"), index("second")),
        ("SecondaryIndex", "second"),
        "SecondaryIndex 'first' indexes the same columns already; delete one",
        delete("SecondaryIndex", "second"),
        lambda world: (
            ("SecondaryIndex", "lake", "second") not in world.kube.objects and synced(world, "first") == "1/1"
        ),
    ),
    "an older index of the same definition: delete that one": Way(
        lambda: settled(World(), index("first"), load("jan"), index("second")),
        ("SecondaryIndex", "second"),
        "indexes the same columns already; delete one",
        delete("SecondaryIndex", "first"),
        lambda world: synced(world, "second") == "1/1",
    ),
    "an older Table claims the same table: delete it": Way(
        lambda: settled(World(), table("again")),
        ("Table", "again"),
        "Table lake/flights is older and claims the same table; delete one of them",
        delete(*TABLE),
        holds("Table", "again", "Ready"),
    ),
    "an older Table claims the same table: another name": Way(
        lambda: settled(World(), table("again")),
        ("Table", "again"),
        "or create this one again with another identifier",
        both(delete("Table", "again"), add(table("again", identifier={"namespace": "air", "name": "other"}))),
        holds("Table", "again", "Ready"),
    ),
    "an index on a column that the table lacks: add it": Way(
        lambda: started(load("jan"), index("by-note", "note")),
        ("SecondaryIndex", "by-note"),
        "has no column 'note'; add it to the table",
        edit(*TABLE, columns=[*table()["spec"]["columns"], {"name": "note", "type": "string"}]),
        lambda world: synced(world, "by-note") == "1/1",
    ),
    "an index on a column that the table lacks: create it again": Way(
        lambda: started(load("jan"), index("by-note", "note")),
        ("SecondaryIndex", "by-note"),
        "or create the index again with another column",
        both(delete("SecondaryIndex", "by-note"), add(index("by-note", "id"))),
        lambda world: synced(world, "by-note") == "1/1",
    ),
    "an index that includes what cannot be included": Way(
        lambda: settled(World(), load("jan"), index("by-tail", "tailnum", include=["note"])),
        INDEX,
        "create the index again with another column",
        both(delete(*INDEX), add(index("by-tail", "tailnum", include=["id"]))),
        lambda world: synced(world) == "1/1",
    ),
    "the Table of a job is another one now": Way(
        begun_on_another_table,
        JOB,
        "delete this job and create it again",
        both(delete(*JOB), add(load("jan"))),
    ),
    "the Warehouse is gone before a confirm run: create it again": Way(
        unconfirmed,
        JOB,
        "the Warehouse is gone; create it again",
        add(warehouse()),
        holds(*JOB, "Failed"),
    ),
    "the Warehouse is gone before a confirm run: delete the job": Way(
        unconfirmed,
        JOB,
        "or delete the job",
        delete(*JOB),
        lambda world: ("LoadJob", "lake", "jan") not in world.kube.objects,
    ),
    "a deadline that passed": Way(
        out_of_time,
        JOB,
        "spec.activeDeadlineSeconds (30 s) passed",
        both(delete(*JOB), add(load("jan", activeDeadlineSeconds=3000))),
    ),
    "a MergeJob of somebody else has the name": Way(
        lambda: scheduled_beside_a_stranger(),
        ("MergeSchedule", "hourly"),
        "belongs to something else: delete it",
        lambda world: [world.kube.remove(*place) for place in strangers(world)] and None,
        lambda world: bool(world.kube.status("MergeSchedule", "hourly").get("lastSuccessfulTime")),
    ),
}


def strangers(world: World) -> list[tuple[str, str, str]]:
    return [place for place, obj in world.kube.objects.items() if obj["metadata"].get("uid") == "stranger"]


def scheduled_beside_a_stranger() -> World:
    """The name of the schedule's next MergeJob is taken."""
    world = started(load("jan"))
    world.run_until(lambda: COMPLETE(world))
    world.seconds = 60.0
    real = world.kube.create

    async def create(obj: Obj) -> Any:
        if obj["kind"] == "MergeJob" and not taken:
            taken.append(obj["metadata"]["name"])
            world.kube.add({**merge(taken[0], suspend=True), "metadata": {"name": taken[0], "uid": "stranger"}})
        return await real(obj)

    taken: list[str] = []
    world.kube.create = create  # type: ignore[method-assign]
    world.kube.add(schedule())
    return world


def said(world: World, kind: str, name: str) -> str:
    conditions = world.kube.status(kind, name).get("conditions", ())
    return " | ".join(str(found["message"]) for found in conditions)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_what_a_condition_tells_to_do_works(way: Way) -> None:
    world = way.begin()
    world.run_until(lambda: way.words in said(world, *way.told))
    for _ in range(5):
        world.tick()
    assert way.words in said(world, *way.told), "it does not end by itself"
    assert not way.done(world)
    way.act(world)
    world.run_until(lambda: way.done(world))
