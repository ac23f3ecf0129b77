"""What runs tell of a table, in whatever order they end: newer metadata is never overwritten by older."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest
from skipstone_core.contract.reports import MetadataMark, PropertyFindings, RunOutcome
from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason
from skipstone_operator.ports import JsonObject
from skipstone_operator.reconcilers.index import decide as decide_index
from skipstone_operator.reconcilers.observes import has_unreported_commits
from skipstone_operator.reconcilers.table import decide
from skipstone_operator.reconcilers.tablestatus import find_unreported
from skipstone_operator.worlds.pods import PodFacts
from skipstone_operator.worlds.steps import PutStatus, Rest
from skipstone_operator.worlds.worlds import JobWorld

from tests.unit import objects
from tests.unit.kube_double import START, MemoryKube
from tests.unit.operator_double import World
from tests.unit.world_cases import (
    EARLIER,
    condition,
    current_run,
    ended,
    good_table,
    index_state,
    index_world,
    job_world,
    report,
    subject,
    synced_index_status,
    table_state,
    table_world,
)

OLD = {"columns": {"id": "long", "tailnum": "string"}, "field_ids": {"id": 1, "tailnum": 2}}
NEW = {"columns": {**OLD["columns"], "x": "int"}, "field_ids": {**OLD["field_ids"], "x": 3}}
FUTURE = "2099-01-01T00:00:00Z"
HOUR = timedelta(hours=1)


def mark(version: int, uuid: str = "uuid-1", updated_ms: int = 0) -> MetadataMark:
    return MetadataMark(uuid=uuid, version=version, updated_ms=updated_ms)


def told(kind: RunKind, at: timedelta = timedelta(), begun: timedelta = -HOUR, **state: Any) -> PodFacts:
    """The pod of a run that ended at ``at`` and told ``state``."""
    current = current_run(kind)
    said = report(current, RunOutcome.COMMITTED, Reason.COMMITTED, table_states=(table_state(**state),))
    return ended(current, f"uid-{kind}", 0, said, ended=START + at, created=START + begun)


def status_after(*pods: PodFacts, table: Any = None, jobs: tuple[JobWorld, ...] = (), **setting: Any) -> dict[str, Any]:
    """The status of an observed table on which these pods tell, and which these jobs wrote."""
    found = table or subject(objects.observed_table(), {"tableUuid": "uuid-1"})
    world = table_world(found, pods=pods, jobs=jobs)
    step = decide(replace(world, setting=replace(world.setting, **setting)))
    if isinstance(step, Rest):
        return dict(found.raw["status"])
    assert isinstance(step, PutStatus)
    return dict(step.status)


SECOND = timedelta(seconds=1)


@pytest.mark.parametrize("late", [timedelta(), SECOND], ids=["the same second", "later"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (mark(4), mark(5)),
        (mark(4, updated_ms=9), mark(5, updated_ms=2)),
        (mark(0, updated_ms=8), mark(0, updated_ms=9)),
    ],
    ids=["version", "skewed clock", "catalog without versions"],
)
def test_a_run_that_read_the_table_before_a_change_never_hides_the_change(
    old: MetadataMark, new: MetadataMark, late: timedelta
) -> None:
    change = told(RunKind.TABLE, **NEW, metadata=new)
    reindex = told(RunKind.REINDEX, late, **OLD, metadata=old)
    for pods in permutations((change, reindex)):
        status = status_after(*pods)
        assert status["fieldIds"] == NEW["field_ids"]
        assert status["observedTime"] == (START + late).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_status_that_holds_newer_metadata_is_not_overwritten_when_only_the_older_pod_is_left() -> None:
    change = told(RunKind.TABLE, **NEW, metadata=mark(5))
    known = subject(objects.observed_table(), status_after(change))
    late = told(RunKind.REINDEX, SECOND, **OLD, metadata=mark(4))
    status = status_after(late, table=known)
    assert (status["fieldIds"], status["observedTime"]) == (NEW["field_ids"], "2026-01-01T12:00:01Z")
    again = subject(objects.observed_table(), status)
    assert status_after(late, table=again) == status


def test_of_equal_metadata_and_of_unknown_metadata_the_later_run_counts() -> None:
    for known in (mark(5), MetadataMark()):
        first = told(RunKind.LOAD, rows=1, metadata=known)
        last = told(RunKind.OBSERVE, SECOND, rows=2, metadata=known)
        for pods in permutations((first, last)):
            assert status_after(*pods)["rows"] == 2


def test_another_table_under_the_name_is_judged_by_time() -> None:
    before = told(RunKind.LOAD, rows=1, table_uuid="uuid-1", metadata=mark(50))
    after = told(RunKind.OBSERVE, SECOND, rows=2, table_uuid="uuid-2", metadata=mark(1, "uuid-2"))
    assert status_after(before, after)["rows"] == 2


def test_a_table_that_is_missing_stays_missing_when_the_pod_that_told_is_gone() -> None:
    there = told(RunKind.LOAD, metadata=mark(5))
    gone = told(RunKind.OBSERVE, SECOND, table_uuid="", problem=Reason.TABLE_MISSING, message="gone")
    known = subject(objects.observed_table(), status_after(there, gone))
    assert status_after(there, table=known)["problem"] == "TableMissing"


def test_a_table_that_went_back_is_believed_to_a_run_that_began_well_after() -> None:
    before = told(RunKind.LOAD, rows=50, metadata=mark(50))
    hasty = told(RunKind.OBSERVE, 2 * SECOND, begun=SECOND, rows=45, metadata=mark(45))
    later = told(RunKind.OBSERVE, HOUR + SECOND, begun=HOUR, rows=45, metadata=mark(45))
    now = START + 2 * HOUR
    known = subject(objects.observed_table(), status_after(before, hasty, now=now))
    assert known.status.rows == 50
    healed = subject(objects.observed_table(), status_after(before, hasty, later, table=known, now=now))
    assert healed.status.rows == 45
    assert status_after(before, hasty, later, table=healed, now=now) == healed.raw["status"]


def test_a_table_that_went_back_does_not_return_when_the_pod_that_told_is_gone() -> None:
    before = told(RunKind.REINDEX, rows=50, metadata=mark(50))
    later = told(RunKind.OBSERVE, HOUR, begun=HOUR, rows=45, metadata=mark(45))
    now = START + 2 * HOUR
    known = subject(objects.observed_table(), status_after(before, now=now))
    back = subject(objects.observed_table(), status_after(before, later, table=known, now=now))
    assert (back.status.rows, back.status.observed_time) == (45, "2026-01-01T13:00:00Z")
    assert status_after(before, table=back, now=now) == back.raw["status"]


def test_the_last_look_never_goes_back() -> None:
    known = subject(objects.observed_table(), status_after(told(RunKind.OBSERVE, 9 * SECOND, metadata=mark(5))))
    status = status_after(told(RunKind.LOAD, SECOND, rows=7, metadata=mark(6)), table=known)
    assert (status["rows"], status["observedTime"]) == (7, "2026-01-01T12:00:09Z")


def test_a_run_that_began_before_a_commit_may_have_looked_before_it() -> None:
    ended_at = "2026-01-01T11:30:00Z"
    done = {"tableUid": "uid-flights", "snapshotId": "77", "segment": 9, "completionTime": ended_at}
    jobs = (job_world(status={**done, "conditions": [condition("Complete", "True", "Committed")]}),)
    early = told(RunKind.OBSERVE, metadata=mark(5))
    late = told(RunKind.OBSERVE, begun=-HOUR / 4, metadata=mark(5))
    known = subject(objects.observed_table(), status_after(early, jobs=jobs))
    assert has_unreported_commits(known)
    assert find_unreported(table_world(known, jobs=jobs), known.status) == ended_at  # its pod is gone
    on_branch = tuple(job_world(objects.load("jan", branch={"name": "audit"}), job.job.raw["status"]) for job in jobs)
    assert find_unreported(table_world(known, jobs=on_branch), known.status) is None  # main is as it was
    told_of = subject(objects.observed_table(), status_after(early, late, table=known, jobs=jobs))
    assert not has_unreported_commits(told_of)
    assert find_unreported(table_world(told_of, jobs=jobs), told_of.status) is None


@pytest.mark.parametrize(
    "lie",
    [
        {"observedTime": FUTURE},
        {"observedTime": EARLIER, "metadata": {"uuid": "uuid-1", "version": 10**9, "time": FUTURE}},
        {"observedTime": EARLIER, "metadata": {"uuid": "uuid-1", "version": 10**9}},
    ],
    ids=["time", "metadata", "metadata without time"],
)  # fmt: skip
def test_a_status_from_the_future_heals_on_the_next_look(lie: dict[str, Any]) -> None:
    table = subject(objects.observed_table(), {"tableUuid": "uuid-1", **lie})
    status = status_after(told(RunKind.OBSERVE, begun=timedelta(), rows=7, metadata=mark(3)), table=table)
    assert (status["rows"], status["observedTime"]) == (7, "2026-01-01T12:00:00Z")


class TestAClockThatWentBack:
    """A run told at an hour that has not been yet: whoever reads the same or newer metadata now is believed."""

    ahead = told(RunKind.LOAD, HOUR, rows=5, metadata=mark(5))

    def test_what_a_run_told_before_is_still_the_newest(self) -> None:
        before = told(RunKind.OBSERVE, rows=4, metadata=mark(4))
        for pods in permutations((self.ahead, before)):
            status = status_after(*pods)
            assert (status["rows"], status["observedTime"]) == (5, "2026-01-01T12:00:00Z")

    @pytest.mark.parametrize("version", [5, 6])
    def test_a_run_that_reads_no_older_metadata_now_replaces_it(self, version: int) -> None:
        known = subject(objects.observed_table(), status_after(self.ahead, now=START + HOUR))
        after = told(RunKind.OBSERVE, rows=6, metadata=mark(version))
        for pods in permutations((self.ahead, after)):
            status = status_after(*pods, table=known)
            assert (status["rows"], status["observedTime"]) == (6, "2026-01-01T12:00:00Z")

    def test_it_does_not_answer_for_a_commit_of_now(self) -> None:
        done = {"tableUid": "uid-flights", "snapshotId": "77", "segment": 9, "completionTime": "2026-01-01T11:59:00Z"}
        jobs = (job_world(status={**done, "conditions": [condition("Complete", "True", "Committed")]}),)
        early = told(RunKind.OBSERVE, metadata=mark(5))
        status = status_after(early, self.ahead, jobs=jobs)
        assert has_unreported_commits(subject(objects.observed_table(), status))


class TestIndexes:
    def test_a_run_that_read_the_index_before_its_reindex_does_not_count(self) -> None:
        index = index_world(objects.index(suspend=True)).index
        reindex = self.told(RunKind.REINDEX, mark(5), mark(8, "idx"), synced=3)
        observe = self.told(RunKind.OBSERVE, mark(5), mark(7, "idx"), synced=2)
        for pods in permutations((reindex, observe)):
            step = decide_index(index_world(index.raw, index.raw.get("status"), pods=pods))
            assert isinstance(step, PutStatus)
            assert step.status["synced"] == "3/3"

    def test_an_index_that_was_built_again_is_judged_by_time(self) -> None:
        known = synced_index_status(3, 3, metadata={"uuid": "uuid-1", "version": 5, "time": "2026-01-01T11:00:00Z"})
        known["indexMetadata"] = {"uuid": "first", "version": 30, "time": "2026-01-01T11:00:00Z"}
        pod = self.told(RunKind.REINDEX, mark(5), mark(1, "second"), synced=1)
        step = decide_index(index_world(objects.index(suspend=True), known, pods=(pod,)))
        assert isinstance(step, PutStatus)
        assert (step.status["synced"], step.status["indexMetadata"]["uuid"]) == ("1/3", "second")

    def told(self, kind: RunKind, table: MetadataMark, index: MetadataMark, synced: int) -> PodFacts:
        return told(kind, metadata=table, indexes=(index_state(3, synced, metadata=index),))


def test_the_managed_table_keeps_its_new_column() -> None:
    change = told(RunKind.TABLE, **NEW, metadata=mark(5))
    reindex = told(RunKind.REINDEX, **OLD, metadata=mark(4))
    known = good_table(fieldIds=NEW["field_ids"], columnTypes=NEW["columns"])
    status = status_after(reindex, change, table=known)
    assert (status["fieldIds"], status.get("problem")) == (NEW["field_ids"], "")


@dataclass
class HastyKube(MemoryKube):
    """Pods move on right after they were listed: a direct read finds them further than the list."""

    after_list: Callable[[], None] = lambda: None

    async def list(self, kind: str, namespace: str, **selectors: Any) -> tuple[JsonObject, ...]:
        found = await super().list(kind, namespace, **selectors)
        if kind == "Pod":
            self.after_list()
        return found


def test_a_created_table_is_never_called_adopted() -> None:
    kube = HastyKube()
    world = World(kube=kube)
    kube.after_list = lambda: world.kubelet.tick()
    for obj in (objects.claim(), objects.warehouse(), objects.table()):
        kube.add(obj)
    world.run_until(lambda: world.holds("Table", "flights", "Ready"))
    world.tick()
    assert kube.condition("Table", "flights", "Ready") == ("True", "Created")
    assert {"Created", "Adopted", "Applied"} & set(world.events.reasons("Table")) == {"Created"}


@pytest.mark.parametrize("owned", [True, False], ids=["created", "adopted"])
def test_properties_that_nobody_follows_are_named_with_the_way_out(owned: bool) -> None:
    names = tuple(f"write.p{number}" for number in range(10))
    found = PropertyFindings(ignored=names, ignored_total=12, refused="'x' is not known: write copy-on-write.")
    owner = "uid-flights" if owned else ""
    pod = told(RunKind.OBSERVE, metadata=mark(5), owner=owner, properties=found)
    status = status_after(pod, table=good_table(observedTime=EARLIER))
    (ready,) = [one for one in status["conditions"] if one["type"] == "Ready"]
    assert (ready["status"], ready["reason"]) == ("True", Reason.CREATED if owned else Reason.ADOPTED)
    assert "; loads or merges are refused: 'x' is not known: write copy-on-write; loads" in ready["message"]
    assert "ignore the properties write.p0, write.p1, write.p2, write.p3, write.p4 and 7 more of" in ready["message"]
    assert "remove them there" in ready["message"]
    cleared = told(RunKind.OBSERVE, SECOND, metadata=mark(6), owner=owner)
    after = status_after(cleared, table=subject(objects.table(), status))
    assert [one["message"] for one in after["conditions"] if "ignore" in one["message"]] == []


def test_what_other_engines_cannot_do_with_a_table_is_said_until_it_is_over() -> None:
    caveat = "Spark cannot open the table, because its metadata lacks sort-orders: load into it"
    pod = told(RunKind.OBSERVE, metadata=mark(5), owner="", caveats=(caveat,))
    status = status_after(pod, table=good_table(observedTime=EARLIER))
    (ready,) = [one for one in status["conditions"] if one["type"] == "Ready"]
    assert (ready["status"], status["caveats"]) == ("True", [caveat])
    assert ready["message"].endswith(f"never purged; {caveat}")
    cleared = told(RunKind.OBSERVE, SECOND, metadata=mark(6), owner="")
    after = status_after(cleared, table=subject(objects.table(), status))
    assert not after.get("caveats") and caveat not in str(after["conditions"])
