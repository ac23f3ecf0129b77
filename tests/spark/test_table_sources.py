"""A table as a source: which of its rows reach the target, once, whatever happens to both tables in between."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pyiceberg.types import StringType, TimestamptzType, UUIDType
from skipstone.compat.pyiceberg import summary_of
from skipstone.runs.intake import NO_NEW_SNAPSHOTS
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reindex import run_reindex
from skipstone.runs.reporting.report import Reporter
from skipstone.runs.tablesources.choosing import choose_rows
from skipstone.runs.tablesources.staging import plan_rows
from skipstone.tables.committing.commits import CommitPorts
from skipstone.tables.filesets import read_file_set
from skipstone_core.contract.columns import UnknownColumns
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import (
    ConsumePolicy,
    DuplicatesPolicy,
    IndexRef,
    JobRequest,
    ReindexTask,
    RunKind,
    TableRef,
)
from skipstone_core.errors import BadData, BadSpec, UserError
from skipstone_core.history.tablereads import read_property
from skipstone_core.reasons import Reason
from skipstone_core.table_properties import MERGE_MODE

from tests.examples import cases
from tests.spark.duck import connection
from tests.spark.lake import append, read_all, write_files
from tests.spark.merge_bed import ALL_IN_SPARK, DELETE, INSERT, AtSwap, task_of
from tests.spark.rawdeletes import add_equality_delete, upgrade
from tests.spark.table_bed import CONSUMER, SOURCE, TableBed, rows_of

NEW = ConsumePolicy.NEW
UID = "eeeeeeee-0000-0000-0000-000000000000"


class Killed(BaseException):
    """Stands for a driver that dies: nothing catches it."""


def die() -> None:
    raise Killed


def before_swap() -> CommitPorts:
    return CommitPorts(hooks=AtSwap(before=die))


def after_swap() -> CommitPorts:
    return CommitPorts(hooks=AtSwap(after=die))


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[TableBed]:
    made = TableBed(tmp_path)
    yield made
    made.catalog.close()


def delete_by_position(bed: TableBed, ids: list[int]) -> None:
    """Delete rows of the source by a merge on read."""
    bed.src().transaction().set_properties({MERGE_MODE: "merge-on-read"}).commit_transaction()
    path = bed.source([{"id": number} for number in ids], f"deleted-{ids[0]}")
    request = bed.request(task_of(path, when_matched=(DELETE,), when_not_matched=()))
    request = replace(request, table=TableRef(namespace="ns", name="src", uid="src"))
    assert run_merge(request, Reporter(request)).counts["rowsDeleted"] == len(ids)
    assert read_file_set(bed.src()).delete_files


# --- which rows ---


def test_head_snapshot_branch_and_condition_are_read_as_duckdb_does(bed: TableBed) -> None:
    first = bed.add({1: "mon", 2: "tue", 3: "tue"})
    bed.src().manage_snapshots().create_branch(first, "audit").create_tag(first, "begin").commit()
    bed.add({4: "wed", 5: "tue"})
    everything = bed.src().scan().to_arrow()
    where = "day = 'tue' and id > 2"
    with connection() as duckdb:
        duckdb.register("src", everything)
        filtered = sorted(row[0] for row in duckdb.sql(f"select id from src where {where}").fetchall())
    read: list[list[int]] = []
    for fields in ({}, {"snapshot": str(first)}, {"ref": "audit"}, {"ref": "begin"}, {"where": where}):
        before = bed.ids()
        report = bed.load(bed.spec(duplicates=DuplicatesPolicy.ALLOW, **fields))
        assert report.outcome is RunOutcome.COMMITTED
        added = bed.ids()
        for known in before:
            added.remove(known)
        read.append(added)
    assert read == [[1, 2, 3, 4, 5], [1, 2, 3], [1, 2, 3], [1, 2, 3], filtered]
    assert bed.left() == []


def test_times_of_a_condition_are_those_of_the_job(bed: TableBed) -> None:
    with bed.src().update_schema() as update:
        update.add_column("at", TimestamptzType()).add_column("written", StringType())
    times = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in (14, 15, 16)]
    texts = [f"2026-01-01 {hour}:00:00" for hour in (14, 15, 16)]
    rows = rows_of({1: "mon", 2: "tue", 3: "tue"})
    rows = rows.append_column("at", pa.array(times, pa.timestamp("us", "UTC"))).append_column("written", [texts])
    bed._commit(added=write_files(bed.src(), rows))
    midnight, computed = "at >= timestamp '2026-01-02 00:00:00'", "cast(written as timestamptz) < at"
    for zone, where, expected in (
        ("UTC", midnight, []),
        ("Asia/Tokyo", midnight, [2, 3]),
        ("UTC", computed, []),
        ("Asia/Tokyo", computed, [1, 2, 3]),
    ):
        bed.append([{"id": 0, "v": "other", "day": "mon"}])
        spec = bed.spec(where=where, duplicates=DuplicatesPolicy.ALLOW)
        task = replace(task_of("", source=spec, when_matched=(), when_not_matched=(INSERT,)), time_zone=zone)
        report = bed.merge(task)
        assert bed.ids() == [0, *expected], (zone, where, report)
        bed.table().delete("id is not null")


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_of_the_source_are_applied(tmp_path: Path, version: int) -> None:
    bed = TableBed(tmp_path, version=version)
    bed.add(dict.fromkeys(range(10), "mon"))
    delete_by_position(bed, [7, 8])
    add_equality_delete(bed.src(), {"id": [3, 4]}, "mon")
    bed.load(bed.spec())
    assert bed.ids() == [0, 1, 2, 5, 6, 9]
    bed.catalog.close()


def test_a_merge_reads_a_table_in_spark_and_in_the_driver_alike(tmp_path: Path) -> None:
    results = []
    for folder, limits in (("spark", ALL_IN_SPARK), ("driver", None)):
        (tmp_path / folder).mkdir()
        bed = TableBed(tmp_path / folder, *([limits] if limits else []))
        bed.append([{"id": 1, "v": "old", "day": "mon"}, {"id": 9, "v": "old", "day": "mon"}])
        bed.add({1: "mon", 2: "tue", 3: "wed"})
        report = bed.merge(task_of("", source=bed.spec(where="id < 3")))
        results.append((report.counts["rowsUpdated"], report.counts["rowsInserted"], bed.rows(), bed.left()))
        bed.catalog.close()
    assert results[0] == results[1]
    assert results[0][:2] == (1, 1)


def test_only_files_that_can_hold_matching_rows_are_opened(bed: TableBed) -> None:
    for number in range(6):
        bed.add({number * 10 + at: "mon" if number % 2 else "tue" for at in range(10)}, value=f"v{number}")
    index = IndexRef(name="by-v", uid="33333333-0000-0000-0000-000000000000", columns=("v",))

    def opened(where: str | None) -> int:
        rows = choose_rows(bed.catalog, bed.load_request(bed.spec(where=where)), bed.table(), bed.spec(where=where))
        assert rows is not None
        return plan_rows(rows).files

    assert [opened(where) for where in (None, "day = 'mon'", "id = 57", "day = 'mon' and id < 20")] == [6, 3, 1, 1]
    request = JobRequest(
        kind=RunKind.REINDEX, run_id="33333333-cafe-1", attempt=1, warehouse=bed.warehouse,
        owner_kind="SecondaryIndex", owner_name="by-v", owner_uid=index.uid,
        table=TableRef(namespace="ns", name="src", uid="src"), indexes=(index,), reindex=ReindexTask(index=index),
    )  # fmt: skip
    run_reindex(request, Reporter(request))
    assert opened("v = 'v3' or v = 'none'") == 1


def test_the_commit_names_the_snapshot_that_it_holds(bed: TableBed) -> None:
    head = bed.add({1: "mon"})
    bed.load(bed.spec())
    found = bed.table().current_snapshot()
    assert found is not None
    summary = summary_of(found)
    assert summary["skipstone.source.snapshot-id"] == str(head)
    assert summary["skipstone.source.table-uuid"] == str(bed.src().metadata.table_uuid)


def test_a_table_without_rows_loads_nothing(bed: TableBed) -> None:
    assert bed.load(bed.spec()).counts["rowsRead"] == 0
    bed.add({1: "mon"})
    assert bed.load(bed.spec(where="id > 5")).counts["rowsRead"] == 0
    assert bed.ids() == []


# --- once ---


def test_the_same_rows_are_not_loaded_twice(bed: TableBed) -> None:
    bed.add({1: "mon"})
    bed.load(bed.spec())
    assert bed.load(bed.spec()).reason is Reason.SOURCE_ALREADY_APPLIED
    assert bed.ids() == [1]
    bed.add({2: "mon"})
    bed.load(bed.spec())  # another snapshot is another set of rows
    assert bed.ids() == [1, 1, 2]


def test_attempts_of_one_job_read_one_snapshot(bed: TableBed) -> None:
    bed.add({1: "mon"})
    with pytest.raises(Killed):
        bed.load(bed.spec(), UID, before_swap())
    bed.add({2: "mon"})
    bed.load(bed.spec(), UID, attempt=2)
    assert bed.ids() == [1]
    assert bed.left() == []


def test_new_reads_what_was_appended_since_and_says_when_that_is_nothing(bed: TableBed) -> None:
    bed.add({1: "mon", 2: "tue"})
    bed.load(bed.spec(NEW))
    bed.add({3: "mon"})
    bed.compact()
    bed.add({4: "tue"})
    bed.load(bed.spec(NEW))
    before = bed.table().metadata_location
    report = bed.load(bed.spec(NEW))
    assert (report.outcome, report.snapshot_id, report.message) == (RunOutcome.COMMITTED, "0", NO_NEW_SNAPSHOTS)
    assert bed.table().metadata_location == before
    assert bed.ids() == [1, 2, 3, 4]


@pytest.mark.parametrize("version", [2, 3])
def test_new_passes_over_equality_deletes_that_are_resolved(tmp_path: Path, version: int) -> None:
    bed = TableBed(tmp_path)
    bed.add({1: "mon", 2: "mon", 3: "mon"})
    if version > 2:
        upgrade(bed.src())
    add_equality_delete(bed.src(), {"id": [2]}, "mon")
    bed.load(bed.spec(NEW))
    bed.add({4: "mon"})
    bed.resolve()
    bed.add({5: "mon"})
    bed.load(bed.spec(NEW))
    assert bed.ids() == [1, 3, 4, 5]
    add_equality_delete(bed.src(), {"id": [4]}, "mon")
    bed.resolve()
    with pytest.raises(BadData, match="is not an append"):
        bed.load(bed.spec(NEW))
    bed.close()


def test_a_column_that_was_renamed_between_two_appends_is_one_column(bed: TableBed) -> None:
    first = bed.add({1: "mon"})
    bed.add({2: "mon"})
    with bed.src().update_schema() as update:
        update.rename_column("v", "w")
    bed.compact()
    report = bed.load(bed.spec(from_snapshot=str(first), where="w = 'new'"))
    assert report.counts["rowsLoaded"] == 1
    assert bed.ids() == [2]


def test_two_jobs_of_one_consumer_at_once_apply_the_rows_once(bed: TableBed) -> None:
    bed.add({1: "mon"})
    late = CommitPorts(hooks=AtSwap(before=lambda: bed.load(bed.spec(NEW)) and None))
    report = bed.load(bed.spec(NEW), UID, late)
    assert report.reason is Reason.SOURCE_ALREADY_APPLIED
    assert bed.ids() == [1]


# --- what cannot be told ---


def refused(bed: TableBed, consume: ConsumePolicy = NEW, **fields: str) -> str:
    with pytest.raises(UserError) as caught:
        bed.load(bed.spec(consume, **fields))
    assert caught.value.reason in (Reason.SOURCE_CHANGED, Reason.SOURCE_NOT_FOUND, Reason.INVALID_SPEC)
    return str(caught.value)


def test_rows_that_were_changed_since_are_refused_and_the_way_out_works(bed: TableBed) -> None:
    bed.add({1: "mon", 2: "tue"})
    bed.load(bed.spec(NEW))
    gone = bed.delete("id = 1")
    bed.add({3: "mon"})
    message = refused(bed)
    assert f"snapshot {gone} of {SOURCE} is not an append" in message
    bed.table().delete("id > 0")
    bed.load(bed.spec())  # all rows, into a table where they are not
    assert bed.ids() == [2, 3]
    start = str(bed.head())
    bed.add({4: "mon"})
    bed.load(bed.spec(NEW, from_snapshot=start))
    bed.add({5: "mon"})
    bed.load(bed.spec(NEW, from_snapshot=start))
    assert bed.ids() == [2, 3, 4, 5]


def test_a_snapshot_that_expired_is_a_refusal(bed: TableBed) -> None:
    first = bed.add({1: "mon"})
    bed.load(bed.spec(NEW))
    bed.add({2: "mon"})
    bed.src().maintenance.expire_snapshots().by_id(first).commit()
    assert f"snapshot {first} of {SOURCE}, up to which it was read, has expired" in refused(bed)
    assert bed.ids() == [1]


def test_a_source_that_was_rolled_back_is_a_refusal(bed: TableBed) -> None:
    first = bed.add({1: "mon"})
    second = bed.add({2: "mon"})
    bed.load(bed.spec(NEW))
    bed.src().manage_snapshots().rollback_to_snapshot(first).commit()
    bed.add({3: "mon"})
    message = refused(bed)
    assert f"snapshot {second}" in message
    assert "rolled back" in message
    assert bed.ids() == [1, 2]


def test_another_table_of_the_same_name_is_a_refusal(bed: TableBed) -> None:
    bed.add({1: "mon"})
    bed.load(bed.spec(NEW))
    bed.catalog.drop_table(SOURCE)
    bed.make_source()
    bed.add({2: "mon"})
    assert "is another table" in refused(bed)
    bed.load(bed.spec(NEW, from_snapshot="0"))
    assert bed.ids() == [1, 2]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"snapshot": "17"}, "has no snapshot 17"),
        ({"ref": "nightly"}, "has no branch or tag 'nightly', it has main"),
        ({"where": "price > 3"}, "price"),
        ({"where": "id >"}, "spec.source.table.where"),
        ({"from_snapshot": "17"}, "snapshot 17"),
    ],
)
def test_what_a_source_lacks_is_told(bed: TableBed, fields: dict[str, str], says: str) -> None:
    bed.add({1: "mon"})
    assert says in refused(bed, ConsumePolicy.ALL, **fields)
    assert bed.left() in ([], ["source.json"])


def test_a_job_does_not_consume_the_table_that_it_writes(bed: TableBed) -> None:
    spec = bed.spec(NEW)
    assert spec.table is not None
    with pytest.raises(BadSpec, match="never end"):
        choose_rows(bed.catalog, bed.load_request(spec), bed.src(), spec)


def test_from_snapshot_begins_once(bed: TableBed) -> None:
    bed.add({1: "mon"})
    for number, start in enumerate(({"from_snapshot": "0"}, {}, {"from_snapshot": "0"}, {}), 2):
        bed.load(bed.spec(NEW, **start))
        bed.add({number: "mon"})
    assert bed.ids() == [1, 2, 3, 4]


def test_a_source_that_lost_all_its_snapshots_is_a_refusal(bed: TableBed) -> None:
    bed.add({1: "mon"})
    bed.load(bed.spec(NEW))
    bed.lose_snapshots()
    assert "is not in the history" in refused(bed)
    assert bed.ids() == [1]


def test_a_column_that_a_load_adds_has_the_type_of_the_source(bed: TableBed) -> None:
    with bed.src().update_schema() as update:
        update.add_column("u", UUIDType())
    values = pa.array([b"0123456789abcdef"], pa.binary(16))
    append(bed.src(), rows_of({1: "mon"}).append_column("u", values))
    bed.load(replace(bed.spec(), unknown_columns=UnknownColumns.ADD))
    assert bed.table().schema().find_type("u") == UUIDType()
    assert read_all(bed.table(), ["u"])["u"].combine_chunks().equals(values)


def test_what_was_pinned_and_expired_meanwhile_is_told(bed: TableBed) -> None:
    first = bed.add({1: "mon"})
    with pytest.raises(Killed):
        bed.load(bed.spec(), UID, before_swap())
    bed.add({2: "mon"})
    bed.src().maintenance.expire_snapshots().by_id(first).commit()
    with pytest.raises(BadData, match="expired meanwhile"):
        bed.load(bed.spec(), UID, attempt=2)


# --- random histories ---


class Consuming(RuleBasedStateMachine):
    """Appends and compactions of the source, jobs that die at their commit, and rollbacks of the target."""

    def __init__(self) -> None:
        """Two empty tables."""
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.given: list[int] = []
        self.heads: list[tuple[int, list[int]]] = []

    @initialize(elsewhere=st.booleans())
    def begin(self, elsewhere: bool) -> None:
        """In one Warehouse, or in two."""
        self.bed = TableBed(self.folder, elsewhere=elsewhere)

    def teardown(self) -> None:
        """Remove both."""
        self.bed.close()
        shutil.rmtree(self.folder)

    @rule(count=st.integers(1, 3), day=st.sampled_from(["mon", "tue"]))
    def append(self, count: int, day: str) -> None:
        """More rows in the source."""
        new = range(len(self.given), len(self.given) + count)
        self.bed.add(dict.fromkeys(new, day))
        self.given += new

    @precondition(lambda self: self.given)
    @rule()
    def compact(self) -> None:
        """The same rows in other files."""
        self.bed.compact()

    @precondition(lambda self: self.given)
    @rule(death=st.sampled_from([None, None, before_swap, after_swap]))
    def consume(self, death: object) -> None:
        """A job, which may die and is tried again."""
        uid = f"{len(self.heads) + 1000 * len(self.given):08d}-{self._step():04d}-0000-0000-000000000000"
        if callable(death):
            with suppress(Killed):
                self.bed.load(self.bed.spec(NEW), uid, death())
        self.bed.load(self.bed.spec(NEW), uid, attempt=2 if death else 1)
        assert self.bed.ids() == self.given
        snapshot = self.bed.table().current_snapshot()
        assert snapshot is not None
        self.heads.append((snapshot.snapshot_id, list(self.given)))

    @precondition(lambda self: len(self.heads) > 1)
    @rule(back=st.integers(1, 3))
    def roll_back(self, back: int) -> None:
        """The target as it was."""
        self.heads = self.heads[: max(1, len(self.heads) - back)]
        self.bed.table().manage_snapshots().rollback_to_snapshot(self.heads[-1][0]).commit()
        assert self.bed.ids() == self.heads[-1][1]

    def _step(self) -> int:
        self.steps = getattr(self, "steps", 0) + 1
        return self.steps

    @invariant()
    def no_file_is_left(self) -> None:
        """What jobs wrote for themselves is gone."""
        assert [name for name in self.bed.left() if name != "source.json"] == []


Consuming.TestCase.settings = settings(max_examples=cases(4, 150), stateful_step_count=12, deadline=None)
TestConsuming = Consuming.TestCase


def test_the_memory_of_reads_stays_small(bed: TableBed) -> None:
    for number in range(3):
        bed.add({number: "mon"})
        bed.load(bed.spec(NEW))
    assert len(bed.table().properties[read_property(CONSUMER)]) < 3 * 300
