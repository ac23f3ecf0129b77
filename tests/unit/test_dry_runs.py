"""Dry runs: MergeJobs that write nothing, and that nobody takes for merges."""

from __future__ import annotations

from dataclasses import replace

import pytest
from skipstone_core.codec import encode
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason
from skipstone_operator.measuring.measurements import read
from skipstone_operator.reconcilers.jobs.deciding import decide_job
from skipstone_operator.reconcilers.runs.tables import consumer_of
from skipstone_operator.reconcilers.tablestatus import choose_writer, find_turn
from skipstone_operator.resources.checks import validate_spec
from skipstone_operator.worlds.runs import RunWorld
from skipstone_operator.worlds.steps import PutStatus

from tests.unit.job_cases import plan_of
from tests.unit.lake_double import Ends
from tests.unit.lives import hold_pods, started
from tests.unit.objects import load, merge, schedule
from tests.unit.operator_double import World
from tests.unit.world_cases import (
    EARLIER,
    ended,
    good_table,
    job_world,
    report,
    subject,
    table_world,
    written_condition,
)


def dry(name: str = "try", **spec: object) -> dict[str, object]:
    return merge(name, dryRun=True, **spec)


def test_a_dry_run_asks_for_no_commit() -> None:
    plan = plan_of(job_world(dry()))
    assert (plan.kind, plan.txn) == (RunKind.DRY_RUN, "")
    asked = plan_of(job_world(merge("try"))).task["merge"]
    assert plan.task["merge"] == asked


def test_it_takes_no_turn_and_nobody_waits_for_it() -> None:
    table = good_table()
    older, younger = job_world(dry("a")), job_world(merge("b"))
    world = table_world(table, jobs=(older, younger))
    writer = choose_writer(world, table, table.status, change_due=False)
    assert writer is not None and writer.name == "b"
    writing = table_world(good_table(writer=encode(writer)), jobs=(older, younger))
    assert [find_turn(writing, job) for job in writing.jobs] == [None, None]


@pytest.mark.parametrize(
    ("declared", "outcome", "reason", "expected"),
    [
        (dry(), RunOutcome.PLANNED, Reason.DRY_RUN, ("Complete", ("True", "DryRun"))),
        (dry(), RunOutcome.COMMITTED, Reason.COMMITTED, ("Progressing", ("True", "Retrying"))),
        (merge("try"), RunOutcome.PLANNED, Reason.DRY_RUN, ("Progressing", ("True", "Retrying"))),
    ],
)
def test_only_what_a_dry_run_can_say_of_itself_is_believed(
    declared: dict[str, object], outcome: RunOutcome, reason: Reason, expected: tuple[str, tuple[str, str]]
) -> None:
    current = replace(plan_of(job_world(declared)).intent(1, EARLIER), launch_time=EARLIER)
    world = job_world(declared, {"attempts": 1, "currentRun": encode(current)})
    pod = ended(current, world.job.meta.uid, 0, report(current, outcome, reason))
    step = decide_job(replace(world, run=RunWorld(current=current, owner_uid=world.job.meta.uid, pod=pod)))
    assert isinstance(step, PutStatus)
    assert written_condition(step, expected[0]) == expected[1]
    assert "snapshotId" not in step.status or not step.status["snapshotId"]


def test_only_a_dry_run_uses_the_memory_of_a_schedule_that_does_not_control_it() -> None:
    owners = [{"apiVersion": "skipstone.dev/v1alpha1", "kind": "MergeSchedule", "name": "hourly", "uid": "u"}]
    source = {"format": "Csv", "paths": ["feed"], "consume": "New"}
    tried, merged = (subject(one, ownerReferences=owners) for one in (dry(source=source), merge("m", source=source)))
    assert consumer_of(tried) == "MergeSchedule lake/hourly"
    assert consumer_of(merged).startswith("jobs on paths ")


def test_a_schedule_creates_no_dry_run() -> None:
    bad = validate_spec("MergeSchedule", subject(schedule(template={"dryRun": True})).spec)
    assert bad is not None and "skipstone merge --dry-run" in bad.message


def whole(world: World, name: str = "try") -> dict[str, object]:
    return world.kube.objects["MergeJob", "lake", name]


def test_the_life_of_a_dry_run_beside_a_writer() -> None:
    world = started(load("jan"))
    hold_pods(world, "Load")
    world.run_until(lambda: world.kube.status("Table", "flights").get("writer", {}).get("name") == "jan")
    world.kube.add(dry(ttlSecondsAfterFinished=3600))
    world.run_until(lambda: world.holds("MergeJob", "try", "Complete"))
    status = world.kube.status("MergeJob", "try")
    assert world.kube.condition("MergeJob", "try", "Complete") == ("True", "DryRun")
    assert (status["dryRun"], status["pruned"], status["rows"]["updated"], status.get("snapshotId", "")) == (
        True, "3/4", 7, "",
    )  # fmt: skip
    assert world.kube.status("Table", "flights")["writer"]["name"] == "jan"
    lake = world.lake.tables["air", "flights"]
    assert (lake.segments, lake.commits, lake.aborted) == ([], {}, set())
    assert ("DryRun", "DryRun") in world.meter.finished
    assert world.meter.committed == {}
    measured = read(whole(world), world.kube.clock.now())
    assert (measured.numbers, measured.job) == ((), None)


def test_it_waits_for_whoever_asks_first_whether_it_is_understood() -> None:
    world = started(dry(suspend=True))
    world.run_until(lambda: world.kube.status("MergeJob", "try").get("dryRun") is True)
    for _ in range(3):
        world.tick()
    assert not list(world.kube.find("Pod", operation="DryRun"))
    world.kube.edit("MergeJob", "try", lambda job: job["spec"].update(suspend=False))
    world.run_until(lambda: world.holds("MergeJob", "try", "Complete"))


def test_a_dry_run_that_fails_is_not_confirmed() -> None:
    world = started(dry(backoffLimit=1))
    world.lake.script = lambda r: Ends(1) if r.kind is RunKind.DRY_RUN else None
    world.run_until(lambda: world.holds("MergeJob", "try", "Failed"))
    assert world.kube.condition("MergeJob", "try", "Failed") == ("True", "BackoffLimitExceeded")
    assert world.lake.tables["air", "flights"].aborted == set()
    assert "Confirm" not in {kind for kind, _ in world.meter.finished}
