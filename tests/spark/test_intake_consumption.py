"""Each file of a folder is taken once, whatever is killed, raced, rolled back, expired, late or changed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from skipstone.runs.intake import NOTHING, Intake
from skipstone.tables.committing.commits import CommitPorts
from skipstone_core.errors import BadData, DependencyUnavailable
from skipstone_core.history.commits import AlreadyCommitted, Committed, Conflicted
from skipstone_core.history.consumption import RADIX, consumed_property
from skipstone_core.reasons import Reason

from tests.spark.intake_bed import CONSUMER, IntakeBed, names_of, rewrite_unseen
from tests.spark.merge_bed import AtSwap


class Killed(BaseException):
    """Stands for a driver that dies: nothing catches it."""


def die() -> None:
    raise Killed


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[IntakeBed]:
    made = IntakeBed(tmp_path)
    yield made
    made.catalog.close()


def test_each_job_takes_what_came_since_the_last_commit_late_names_and_times_included(bed: IntakeBed) -> None:
    bed.drop("b.csv", "c.csv")
    assert bed.consume() == ["b.csv", "c.csv"]
    bed.drop("a.csv", "d.csv")
    os.utime(bed.root / "feed" / "a.csv", ns=(1, 1))
    assert bed.consume() == ["a.csv", "d.csv"]
    assert bed.consume() == []
    assert bed.table().properties[consumed_property(CONSUMER)].count('"files":4') == 1


@pytest.mark.parametrize("path", ["feed", "feed/", "feed/*.csv", "feed/2026-*/*.csv"])
def test_a_folder_that_waits_for_its_first_file_has_nothing_to_take(bed: IntakeBed, path: str) -> None:
    bed.paths = (path,)
    head = bed.head()
    assert bed.take()[1] is NOTHING
    assert bed.head() == head
    assert not (bed.root / ".skipstone").exists()


@pytest.mark.parametrize("path", ["fed", "fed/*.csv", "feed/a.csv"])
def test_a_folder_or_file_that_is_missing_is_named(bed: IntakeBed, path: str) -> None:
    bed.paths = (path,)
    with pytest.raises(BadData, match=r"names no file") as caught:
        bed.take()
    assert caught.value.reason is Reason.SOURCE_NOT_FOUND


def test_a_consumed_file_that_changed_is_named_and_nothing_is_taken(bed: IntakeBed) -> None:
    bed.drop("a.csv")
    bed.consume()
    bed.drop("b.csv")
    bed.drop("a.csv", content="changed")
    with pytest.raises(BadData, match=r"'feed/a\.csv' changed since MergeSchedule ns/feed consumed it") as caught:
        bed.take()
    assert caught.value.reason is Reason.SOURCE_CHANGED


def test_a_consumed_file_may_go_and_come_back_as_it_was(bed: IntakeBed) -> None:
    bed.drop("a.csv")
    bed.consume()
    shutil.move(bed.root / "feed" / "a.csv", bed.root / "kept.csv")
    assert bed.consume() == []
    shutil.move(bed.root / "kept.csv", bed.root / "feed" / "a.csv")
    assert bed.consume() == []


def test_a_consumed_file_that_was_rewritten_with_its_size_and_time_is_told_of(bed: IntakeBed) -> None:
    bed.drop("a.csv", "b.csv")
    assert bed.consume() == ["a.csv", "b.csv"]
    assert (bed.consume(), bed.notes) == ([], [])
    rewrite_unseen(bed.root / "feed" / "b.csv", "y")
    assert bed.consume() == []
    (note,) = bed.notes
    assert "1 consumed files have the same size and modification time as before" in note
    assert "they are not read again, the first is 'feed/b.csv'. If it was rewritten, put the new content" in note


def test_what_an_older_version_consumed_stays_consumed(bed: IntakeBed) -> None:
    bed.drop("a.csv", "b.csv")
    bed.consume()
    (record,) = bed.records()
    old = as_version_1(record.read_bytes())
    digest = hashlib.sha256(old).hexdigest()
    record.with_name(digest).write_bytes(old)
    name = consumed_property(CONSUMER)
    pointer = bed.table().properties[name].replace(record.name, digest)
    record.unlink()
    bed.table().transaction().set_properties({name: pointer}).commit_transaction()
    rewrite_unseen(bed.root / "feed" / "b.csv", "y")
    assert (bed.consume(), bed.notes) == ([], []), "it never knew when a file was touched last"
    bed.drop("c.csv")
    assert bed.consume() == ["c.csv"]
    assert bed.consume() == []
    bed.drop("a.csv", content="changed")
    with pytest.raises(BadData, match=r"'feed/a\.csv' changed since"):
        bed.take()


def as_version_1(content: bytes) -> bytes:
    """A record as it was written before entries told of the last change of status."""
    head, _, entries = content.partition(b"\n")
    kept = b"".join(entries[at : at + 24] for at in range(0, len(entries), 32))
    return head.replace(b'"version":2', b'"version":1') + b"\n" + kept


def test_files_that_may_still_be_written_are_left_to_the_next_job(
    bed: IntakeBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.settle_seconds = 3600
    bed.drop("a.csv", "b.csv")
    os.utime(bed.root / "feed" / "a.csv", ns=(1, 1))
    assert bed.consume() == [], "that its time was set does not make a file older"
    assert bed.notes == ["2 files changed less than 3600 seconds ago and are left to the next job."]
    later = time.time_ns() + 3_601_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: later)
    assert bed.consume() == ["a.csv", "b.csv"]


def test_another_consumer_has_a_memory_of_its_own(bed: IntakeBed) -> None:
    bed.drop("a.csv")
    assert bed.consume() == ["a.csv"]
    bed.consumer = "MergeSchedule ns/other"
    assert bed.consume() == ["a.csv"]
    assert bed.consume() == []


def test_all_attempts_of_a_job_take_the_same_files(bed: IntakeBed) -> None:
    bed.drop("a.csv")
    uid, first = bed.take()
    bed.drop("b.csv")
    assert names_of(bed.take(uid)[1]) == names_of(first) == ["a.csv"]


def test_a_job_that_died_before_its_commit_has_taken_nothing(bed: IntakeBed) -> None:
    bed.drop("a.csv")
    uid, intake = bed.take()
    assert isinstance(intake, Intake)
    with pytest.raises(Killed):
        bed.commit(uid, intake, CommitPorts(hooks=AtSwap(before=die)))
    assert bed.remembered(["a.csv"]) == set()
    assert bed.consume() == ["a.csv"]


def test_a_job_that_died_after_its_commit_has_taken_its_files(bed: IntakeBed) -> None:
    bed.drop("a.csv")
    uid, intake = bed.take()
    assert isinstance(intake, Intake)
    with pytest.raises(Killed):
        bed.commit(uid, intake, CommitPorts(hooks=AtSwap(after=die)))
    assert isinstance(bed.commit(uid, intake), AlreadyCommitted)
    assert bed.consume() == []


def test_of_two_jobs_that_took_one_file_the_second_to_commit_applies_nothing(bed: IntakeBed) -> None:
    bed.drop("a.csv")
    late, theirs = bed.take()
    bed.drop("b.csv")
    assert bed.consume() == ["a.csv", "b.csv"]
    assert isinstance(theirs, Intake)
    outcome = bed.commit(late, theirs)
    assert isinstance(outcome, Conflicted)
    assert outcome.reason is Reason.SOURCE_ALREADY_APPLIED
    assert "'feed/a.csv'" in outcome.message
    assert isinstance(bed.take(late)[1], Conflicted)


def test_a_job_that_is_overtaken_at_its_swap_applies_nothing(bed: IntakeBed) -> None:
    bed.drop("a.csv")
    uid, intake = bed.take()
    assert isinstance(intake, Intake)
    outcome = bed.commit(uid, intake, CommitPorts(hooks=AtSwap(before=lambda: bed.consume() and None)))
    assert isinstance(outcome, Conflicted)
    assert outcome.reason is Reason.SOURCE_ALREADY_APPLIED


def test_jobs_with_different_files_may_overtake_each_other(bed: IntakeBed) -> None:
    bed.drop("a.csv")
    uid, intake = bed.take()
    assert isinstance(intake, Intake)
    (bed.root / "feed" / "a.csv").rename(bed.root / "feed.a")
    bed.drop("b.csv")
    assert isinstance(
        bed.commit(uid, intake, CommitPorts(hooks=AtSwap(before=lambda: bed.consume() and None))), Committed
    )
    assert bed.remembered(["a.csv", "b.csv"]) == {"a.csv", "b.csv"}


def test_a_rollback_gives_files_back(bed: IntakeBed) -> None:
    before = bed.append()
    bed.drop("a.csv")
    bed.consume()
    bed.drop("b.csv")
    bed.consume()
    bed.table().manage_snapshots().rollback_to_snapshot(before).commit()
    assert bed.consume() == ["a.csv", "b.csv"]


def pick(bed: IntakeBed, picked: int) -> int:
    """What a cherry-pick does: the rows of a snapshot in a new one that names it. Its id."""
    table = bed.table()
    rows = table.scan(snapshot_id=picked).to_arrow().slice(0, 1)
    table.append(rows, snapshot_properties={"source-snapshot-id": str(picked)})
    return bed.head()


def test_files_of_a_commit_that_was_cherry_picked_after_a_rollback_stay_consumed(bed: IntakeBed) -> None:
    bed.drop("a.csv")
    bed.consume()
    before = bed.head()
    bed.drop("b.csv")
    bed.consume()
    taken = bed.head()
    bed.table().manage_snapshots().rollback_to_snapshot(before).commit()
    again = pick(bed, taken)
    bed.table().manage_snapshots().rollback_to_snapshot(before).commit()
    pick(bed, again)
    bed.drop("c.csv")
    assert bed.consume() == ["c.csv"]
    assert bed.consume() == []


def test_a_cherry_pick_without_the_commit_before_it_takes_no_file_twice_and_loses_none(bed: IntakeBed) -> None:
    bed.drop("a.csv")
    bed.consume()
    before = bed.head()
    for name in ("b.csv", "c.csv"):
        bed.drop(name)
        bed.consume()
    taken = bed.head()
    bed.table().manage_snapshots().rollback_to_snapshot(before).commit()
    pick(bed, taken)
    with pytest.raises(DependencyUnavailable, match=r"was cherry-picked without snapshot \d+, whose files"):
        bed.take()


def test_a_consumption_whose_snapshot_expired_is_remembered(bed: IntakeBed) -> None:
    bed.drop("a.csv")
    bed.consume()
    old = bed.head()
    bed.append()
    bed.append()
    bed.table().maintenance.expire_snapshots().by_id(old).commit()
    assert bed.consume() == []


def test_a_rollback_gives_files_back_although_its_snapshot_expired(bed: IntakeBed) -> None:
    before = bed.append()
    bed.drop("a.csv")
    bed.consume()
    lost = bed.head()
    bed.table().manage_snapshots().rollback_to_snapshot(before).commit()
    bed.append()
    bed.table().maintenance.expire_snapshots().by_id(lost).commit()
    assert bed.consume() == ["a.csv"]


@pytest.mark.parametrize("harm", ["gone", "cut", "empty"])
def test_a_lost_record_is_named_and_no_file_is_taken_twice(bed: IntakeBed, harm: str) -> None:
    bed.drop("a.csv")
    bed.consume()
    (record,) = bed.records()
    record.unlink() if harm == "gone" else record.write_bytes(b"" if harm == "empty" else record.read_bytes()[:-3])
    with pytest.raises(DependencyUnavailable, match=r"consumed by MergeSchedule ns/feed") as caught:
        bed.take()
    assert caught.value.reason is Reason.STORAGE_UNAVAILABLE
    assert str(record) in str(caught.value)


def test_a_pointer_that_somebody_overwrote_is_an_error(bed: IntakeBed) -> None:
    bed.table().transaction().set_properties({consumed_property(CONSUMER): "{}"}).commit_transaction()
    with pytest.raises(DependencyUnavailable, match=r"cannot be read"):
        bed.take()


def test_long_chains_are_read_through_few_records_and_rolled_back_one_by_one(bed: IntakeBed) -> None:
    names, heads = [f"{number:03}.csv" for number in range(2 * RADIX + 5)], []
    for name in names:
        bed.drop(name)
        bed.consume()
        heads.append(bed.head())
    table = bed.table()
    head, read = bed.memory.find_head(table), 0
    while head is not None:
        head, read = bed.memory.read(table, head).rest, read + 1
    assert read == 2 + 5
    assert bed.remembered(names) == set(names)
    bed.table().manage_snapshots().rollback_to_snapshot(heads[RADIX + 2]).commit()
    assert bed.remembered(names) == set(names[: RADIX + 3])
    assert bed.consume() == names[RADIX + 3 :]


def test_many_files_leave_small_metadata(bed: IntakeBed) -> None:
    names = [f"{number}" for number in range(2000)]
    bed.drop(*names)
    assert len(bed.consume()) == len(names)
    (record,) = bed.records()
    assert record.stat().st_size < len(names) * 32 + 1000
    properties = bed.table().properties
    assert sum(len(name) + len(value) for name, value in properties.items() if "skipstone" in name) < 1024


class Consumer(RuleBasedStateMachine):
    """Any order of drops, commits, deaths, foreign commits, rollbacks and expiries against a model of the history."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.bed = IntakeBed(self.root)
        self.names: list[str] = []
        self.held: dict[int, frozenset[str]] = {self.bed.append(): frozenset()}
        self.line = [self.bed.head()]

    def teardown(self) -> None:
        self.bed.catalog.close()
        shutil.rmtree(self.root)

    @property
    def consumed(self) -> frozenset[str]:
        return self.held[self.line[-1]]  # type: ignore[index]

    def moved(self, consumed: frozenset[str]) -> None:
        head = self.bed.head()
        assert head is not None
        self.held[head] = consumed
        self.line.append(head)

    @rule()
    def drop(self) -> None:
        self.names.append(f"{len(self.names):03}.csv")
        self.bed.drop(self.names[-1])

    @rule(death=st.sampled_from(["none", "before", "after"]))
    def consume(self, death: str) -> None:
        uid, intake = self.bed.take()
        new = [name for name in self.names if name not in self.consumed]
        if not new:
            assert intake is NOTHING
            return
        assert names_of(intake) == new
        assert isinstance(intake, Intake)
        hooks = AtSwap(before=die if death == "before" else None, after=die if death == "after" else None)
        with contextlib.suppress(Killed):
            self.bed.commit(uid, intake, CommitPorts(hooks=hooks))
        if death != "before":
            self.moved(self.consumed | set(new))

    @rule()
    def append(self) -> None:
        self.bed.append()
        self.moved(self.consumed)

    @precondition(lambda self: len(self.line) > 1)
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        to = data.draw(st.integers(0, len(self.line) - 2))
        self.bed.table().manage_snapshots().rollback_to_snapshot(self.line[to]).commit()
        del self.line[to + 1 :]

    @rule()
    def expire_what_was_rolled_back(self) -> None:
        lost = [s.snapshot_id for s in self.bed.table().metadata.snapshots if s.snapshot_id not in self.line]
        if lost:
            self.bed.table().maintenance.expire_snapshots().by_ids(lost).commit()

    @precondition(lambda self: len(self.line) > 2)
    @rule()
    def consume_and_expire_old(self) -> None:
        self.consume("none")
        self.bed.table().maintenance.expire_snapshots().by_ids(self.line[:-2]).commit()
        del self.line[:-2]

    @invariant()
    def files_of_the_history_are_remembered(self) -> None:
        assert self.bed.remembered(self.names) == self.consumed


Consumer.TestCase.settings = settings(max_examples=10, stateful_step_count=15, deadline=None)
TestConsumer = Consumer.TestCase
