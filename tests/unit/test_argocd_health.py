"""The health checks for Argo CD, run as Argo CD runs them: Lua 5.1, the object as the global ``obj``.

`make soak-operability` has Argo CD's own module run them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from lupa import lua51
from skipstone_core.contract.requests import JobRequest, RunKind
from skipstone_core.reasons import Reason
from skipstone_operator.resources.kinds import GROUP, KINDS

from tests.statetools import REAL, argocd_health
from tests.unit import kstatus, objects
from tests.unit.lake_double import Ends
from tests.unit.operator_double import World
from tests.unit.world_cases import condition

FILE = Path(__file__).resolve().parents[2] / "examples" / "gitops" / "argocd-health.yaml"
PREFIX = f"resource.customizations.health.{GROUP}_"
SCRIPTS: dict[str, str] = {
    name.removeprefix(PREFIX): text for name, text in yaml.safe_load(FILE.read_text())["data"].items()
}
#: The scripts by the names that Argo CD gives them when it has read the ConfigMap.
OVERRIDES = {f"{GROUP}/{kind}": text for kind, text in SCRIPTS.items()}
#: What Argo CD makes of an application must not contradict what kstatus makes of it.
ALIKE = {kstatus.CURRENT: "Healthy", kstatus.IN_PROGRESS: "Progressing", kstatus.FAILED: "Degraded"}


def health(obj: dict[str, Any]) -> tuple[str, str]:
    """Status and message of ``obj``."""
    if REAL:
        judged = json.loads(argocd_health(json.dumps(OVERRIDES)).ask(obj))
        return judged["status"], judged.get("message", "")
    lua = lua51.LuaRuntime(unpack_returned_tuples=True)
    lua.globals().obj = lua.table_from(obj, recursive=True)
    answer = lua.execute(SCRIPTS[obj["kind"]])
    return str(answer.status), str(answer.message)


def found(world: World, kind: str, name: str) -> tuple[str, str]:
    return health(world.kube.objects[kind, "lake", name])


def lake(*declared: dict[str, Any], **table: Any) -> World:
    world = World()
    for obj in (objects.claim(), objects.warehouse(), objects.table(**table), *declared):
        world.kube.add(obj)
    return world


def failing(kind: RunKind) -> Callable[[JobRequest], Ends | None]:
    return lambda request: Ends(65, Reason.BAD_RECORDS) if request.kind is kind else None


def test_every_kind_has_its_check() -> None:
    assert set(SCRIPTS) == set(KINDS)


def test_every_kind_is_healthy_in_the_end_and_as_kstatus_says_on_the_way() -> None:
    world = lake(objects.index(), objects.load("jan"), objects.merge("feed"), objects.schedule(cron="0 0 1 1 *"))
    ours = [key for key in world.kube.objects if key[0] in KINDS]
    assert {kind for kind, _, _ in ours} == set(KINDS)
    seen: set[str] = set()
    while not (world.holds("MergeJob", "feed", "Complete") and world.holds("SecondaryIndex", "by-tail", "Synced")):
        for kind, _, name in ours:
            obj = world.kube.objects[kind, "lake", name]
            if "status" in obj:
                assert found(world, kind, name)[0] == ALIKE[kstatus.compute(obj)]
            seen.add(found(world, kind, name)[0])
        world.tick()
    world.reconcile_all()
    assert seen == {"Progressing", "Healthy"}
    assert {found(world, kind, name)[0] for kind, _, name in ours} == {"Healthy"}


@pytest.mark.parametrize(
    ("declared", "run"), [(objects.load("jan"), RunKind.LOAD), (objects.merge("jan"), RunKind.MERGE)]
)
def test_a_failed_job_is_degraded_and_says_why(declared: dict[str, Any], run: RunKind) -> None:
    world = lake(declared)
    world.lake.script = failing(run)
    world.run_until(lambda: world.holds(declared["kind"], "jan", "Failed"))
    status, message = found(world, declared["kind"], "jan")
    assert status == "Degraded"
    assert message.startswith("BadRecords: ")


def test_a_schedule_whose_last_job_failed_is_degraded() -> None:
    world = lake(objects.schedule(cron="* * * * *"))
    world.lake.script = failing(RunKind.MERGE)
    world.run_until(lambda: world.holds("MergeSchedule", "hourly", "Degraded"))
    assert found(world, "MergeSchedule", "hourly")[0] == "Degraded"


@pytest.mark.parametrize("declared", [objects.load("one", suspend=True), objects.schedule("one", suspend=True)])
def test_what_is_suspended_is_suspended(declared: dict[str, Any]) -> None:
    world = lake(declared)
    world.reconcile_all()
    assert found(world, declared["kind"], "one") == ("Suspended", "spec.suspend is true")


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([condition("Ready", "True", "Created"), condition("Healthy", "False", "MaintenanceFailed")], "Degraded"),
        ([condition("Ready", "True", "Created"), condition("Healthy", "False", "SmallFiles")], "Healthy"),
        ([condition("Ready", "Unknown", "RunIntended")], "Progressing"),
        ([condition("Ready", "False", "SchemaDrift"), condition("Stalled", "True", "SchemaDrift")], "Degraded"),
    ],
)
def test_a_table_by_its_conditions(conditions: list[dict[str, Any]], expected: str) -> None:
    table = {**objects.table(), "status": {"observedGeneration": 1, "conditions": conditions}}
    table["metadata"] = {**table["metadata"], "generation": 1}
    assert health(table)[0] == expected
    assert health({**table, "metadata": {**table["metadata"], "generation": 2}})[0] == "Progressing"
