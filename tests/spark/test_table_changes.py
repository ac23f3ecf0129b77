"""Changes of a table between any two of its snapshots, and merges of them, against a model of dictionaries."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)
from skipstone import query
from skipstone.query.changing import lineage, reading
from skipstone.query.changing.diffs import diff_rows
from skipstone.query.planner import ReadOptions
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.committing.commits import CommitPorts, TableCommit, commit_table
from skipstone.tables.filesets import pin_table, read_file_set
from skipstone_core.contract.requests import ConsumePolicy, MergeTask, TableRef
from skipstone_core.errors import UserError
from skipstone_core.history.points import Point
from skipstone_core.history.tablereads import CHANGE_COLUMN
from skipstone_core.table_properties import MERGE_MODE
from skipstone_operator.reconcilers.runs.tables import with_changes

from tests.examples import cases
from tests.spark.lake import append, read_all, ref_of, write_files
from tests.spark.merge_bed import DELETE, DELETE_D, UPDATE, AtSwap, task_of
from tests.spark.rawdeletes import add_equality_delete
from tests.spark.table_bed import SCHEMA, SOURCE, TableBed, rows_of
from tests.spark.test_table_sources import Killed, die

NEW = ConsumePolicy.NEW
State = dict[int, str]
_NUMBERS = itertools.count()
#: The first of the seeds of histories.
SEED = int(os.environ.get("SKIPSTONE_SOAK_SEED", "0"))


class History:
    """A source table that random commits change, with its rows after each of them."""

    def __init__(self, bed: TableBed, seed: int) -> None:
        """Nothing has happened yet."""
        self.bed = bed
        self.chance = random.Random(seed)
        self.now: State = {}
        self.states: list[tuple[int | None, State]] = [(None, {})]

    def step(self) -> None:
        """One commit."""
        doing = self.chance.choice([self._append, self._merge, self._merge, self._compact, self._delete])
        doing()
        self.states.append((self.bed.head() if self.bed.src().current_snapshot() else None, dict(self.now)))

    def _append(self) -> None:
        first = max(self.now, default=-1) + 1
        new = {first + at: self.chance.choice(["mon", "tue"]) for at in range(self.chance.randint(1, 4))}
        value = f"a{next(_NUMBERS)}"
        self.bed.add(new, value)
        self.now |= {key: f"{value} {day}" for key, day in new.items()}

    def _merge(self) -> None:
        """Updates, deletes and inserts, on read or by copies."""
        mode = self.chance.choice(["merge-on-read", "copy-on-write"])
        self.bed.src().transaction().set_properties({MERGE_MODE: mode}).commit_transaction()
        keys = [key for key in range(max(self.now, default=0) + 3) if self.chance.random() < 0.3] or [0]
        value = f"m{next(_NUMBERS)}"
        rows = [{"id": key, "v": value, "day": "wed", "op": self.chance.choice("DUU")} for key in keys]
        task = task_of(self.bed.source(rows, value), when_matched=(DELETE_D, UPDATE))
        self._run(task)
        for row in rows:
            key = int(row["id"])
            if row["op"] == "D" and key in self.now:
                del self.now[key]
            else:
                self.now[key] = f"{value} wed"

    def _delete(self) -> None:
        """A foreign writer's equality delete."""
        if not self.now:
            return self._append()
        key = self.chance.choice(sorted(self.now))
        day = self.now.pop(key).split()[1]
        add_equality_delete(self.bed.src(), {"id": [key]}, day)
        return None

    def _compact(self) -> None:
        table = self.bed.src()
        files = read_file_set(table)
        removed = tuple(files.data_file(ordinal) for ordinal in range(len(files)))
        added = write_files(table, read_all(table)) if self.now else ()
        change = TableCommit(pinned=pin_table(table), added=added, removed=removed, is_rewrite=True)
        commit_table(self.bed.catalog, ref_of(table), change)

    def _run(self, task: MergeTask) -> None:
        request = replace(self.bed.request(task), table=TableRef(namespace="ns", name="src", uid="src"))
        run_merge(request, Reporter(request))


def changes(bed: TableBed, since: int | None, until: int | None) -> list[tuple[str, int, str]]:
    rows = query.changes(bed.src(), since, until, ["id"]).to_pylist()
    return sorted((row[CHANGE_COLUMN], row["id"], f"{row['v']} {row['day']}") for row in rows)


def model(before: State, after: State) -> list[tuple[str, int, str]]:
    found = [("DELETE", key, before[key]) for key in before.keys() - after.keys()]
    found += [("INSERT", key, after[key]) for key in after.keys() - before.keys()]
    for key in before.keys() & after.keys():
        if before[key] != after[key]:
            found += [("UPDATE_BEFORE", key, before[key]), ("UPDATE_AFTER", key, after[key])]
    return sorted(found)


@pytest.mark.parametrize("seed", range(SEED, SEED + cases(2, 60)))
def test_changes_between_any_two_snapshots_are_those_of_full_scans(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = TableBed(tmp_path, version=2 + seed % 2)
    history = History(bed, seed)
    for _ in range(9):
        history.step()
    monkeypatch.setattr(lineage, "PART_ROWS", 3 if seed % 3 else lineage.PART_ROWS)
    for place, part_bytes, lineage_bytes in ((0, 64, 1 << 60), (1, reading.PART_BYTES, 0)):
        monkeypatch.setattr(reading, "PART_BYTES", part_bytes)
        monkeypatch.setattr(reading, "LINEAGE_BYTES", lineage_bytes)
        for older, newer in itertools.combinations_with_replacement(history.states, 2):
            if newer[0] is not None and (place or older[0] is None or seed % 4 == 0):
                assert changes(bed, older[0], newer[0]) == model(older[1], newer[1])
    bed.catalog.close()


@pytest.mark.parametrize("seed", range(SEED, SEED + cases(2, 40)))
def test_merges_of_changes_keep_a_copy_equal_whoever_dies(tmp_path: Path, seed: int) -> None:
    bed = TableBed(tmp_path, version=2 + seed % 2)
    history = History(bed, seed)
    task = copying(bed)
    for number in range(6):
        for _ in range(history.chance.randint(1, 2)):
            history.step()
        uid = f"{number:08d}-0000-0000-0000-000000000000"
        hook = history.chance.choice([None, AtSwap(before=die), AtSwap(after=die)])
        if hook is not None:
            with suppress(Killed):
                bed.merge(task, uid, CommitPorts(hooks=hook))
        bed.merge(task, uid)
        copied = bed.table().scan().to_arrow().to_pylist()
        assert sorted((row["id"], f"{row['v']} {row['day']}") for row in copied) == sorted(history.now.items())
    bed.catalog.close()


def copying(bed: TableBed, where: str | None = None, start: str | None = None) -> MergeTask:
    """A merge of what changed in the source."""
    source = bed.spec(NEW, where=where, from_snapshot=start)
    return with_changes(task_of("", source=source, when_matched=(), when_not_matched=()))


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[TableBed]:
    made = TableBed(tmp_path)
    yield made
    made.catalog.close()


def test_rows_that_enter_and_leave_a_condition_are_inserts_and_deletes(bed: TableBed) -> None:
    first = bed.add({1: "mon", 2: "tue", 3: "tue"})
    path = bed.source([{"id": 1, "v": "x", "day": "tue"}, {"id": 2, "v": "x", "day": "mon"}])
    request = replace(bed.request(task_of(path)), table=TableRef(namespace="ns", name="src", uid="src"))
    run_merge(request, Reporter(request))
    plan = reading.plan_changes(bed.src(), first, ReadOptions(), ["id"], "day = 'tue'")
    found = [row for table in reading.read_changes(plan) for row in table.to_pylist()]
    assert sorted((row["id"], row[CHANGE_COLUMN]) for row in found) == [(1, "INSERT"), (2, "DELETE")]


def test_another_condition_than_before_brings_rows_and_takes_rows(bed: TableBed) -> None:
    """Also rows of files that stay, and of files with position deletes, which are read in part otherwise."""
    bed.src().transaction().set_properties({MERGE_MODE: "merge-on-read"}).commit_transaction()
    bed.add({1: "mon", 2: "tue", 3: "tue"} | dict.fromkeys(range(4, 10), "wed"))
    bed.merge(copying(bed, "day in ('mon', 'tue')"))
    for where, ids in (("day = 'tue' or id = 4", [2, 3, 4]), (None, [*range(1, 10)]), ("id = 4", [4])):
        bed.merge(copying(bed, where))
        assert bed.ids() == ids
    gone = bed.source([{"id": 5, "v": "x", "day": "wed", "op": "D"}])
    request = replace(bed.request(task_of(gone, when_matched=(DELETE_D,))), table=bed.spec().table.table)
    run_merge(request, Reporter(request))
    assert read_file_set(bed.src()).delete_files
    bed.merge(copying(bed, "day = 'wed'"))
    assert bed.ids() == [4, 6, 7, 8, 9]
    bed.merge(copying(bed, "day = 'wed' or id < 3"))
    assert bed.ids() == [1, 2, 4, 6, 7, 8, 9]
    with bed.src().update_schema() as update:
        update.rename_column("day", "weekday")
    with pytest.raises(UserError, match=r"day = 'wed' or id < 3.*cannot be tested any more"):
        bed.merge(copying(bed, "id < 3"))


def test_a_source_that_lost_all_its_snapshots_has_no_rows(bed: TableBed) -> None:
    bed.add({1: "mon", 2: "tue"})
    bed.merge(copying(bed))
    bed.lose_snapshots()
    bed.merge(copying(bed))
    assert bed.ids() == []
    bed.add({3: "mon"})
    bed.merge(copying(bed))
    assert bed.ids() == [3]


def test_files_that_both_snapshots_have_are_not_opened(bed: TableBed) -> None:
    bed.add({1: "mon"})
    first = bed.add({2: "tue"})
    bed.add({3: "tue"})
    assert reading.plan_changes(bed.src(), first, ReadOptions(), ["id"]).files == 1


@pytest.mark.parametrize(
    ("keys", "says"), [(["nr"], "has no column 'nr'"), (["day"], "choose keys that name one row each")]
)
def test_keys_that_cannot_tell_changes_are_refused(bed: TableBed, keys: list[str], says: str) -> None:
    first = bed.add({1: "mon"})
    bed.add({2: "tue", 3: "tue"})
    with pytest.raises(UserError, match=says):
        list(reading.read_changes(reading.plan_changes(bed.src(), first, ReadOptions(), keys)))


def test_changes_since_a_snapshot_that_expired_are_refused(bed: TableBed) -> None:
    first = bed.add({1: "mon"})
    task = copying(bed)
    bed.merge(task)
    bed.add({2: "mon"})
    bed.src().maintenance.expire_snapshots().by_id(first).commit()
    with pytest.raises(UserError, match=f"snapshot {first} of ns.src, up to which it was read, has expired"):
        bed.merge(task)
    assert rows_of({1: "mon"})["id"].to_pylist() == bed.ids()


def test_rows_that_became_one_again_stay(bed: TableBed) -> None:
    """What repairs a table to which a writer appended a file twice."""
    bed.add({1: "mon", 2: "tue"})
    bed.merge(copying(bed))
    bed.add({1: "mon"})
    bed.merge(copying(bed))
    bed.src().overwrite(rows_of({1: "mon", 2: "tue"}))
    bed.merge(copying(bed))
    assert bed.ids() == [1, 2]


@pytest.mark.parametrize("is_new", [False, True])
def test_columns_that_became_others_are_refused_and_the_way_out_works(bed: TableBed, is_new: bool) -> None:
    bed.add({1: "mon", 2: "tue"})
    bed.merge(copying(bed))
    bed.replace_column("v", DoubleType(), is_new=is_new)
    bed.src().overwrite(pa.table({"id": [2, 3], "v": [0.5, 0.1], "day": ["tue", "mon"]}))
    with pytest.raises(UserError, match=r"column 'v' of ns.src is another one.*whenNotMatchedBySource"):
        bed.merge(copying(bed))
    with bed.table().update_schema() as update:
        update.delete_column("v")
    with bed.table().update_schema() as update:
        update.add_column("v", DoubleType())
    bed.merge(task_of("", source=bed.spec(), when_not_matched_by_source=(DELETE,)))
    task = copying(bed, start=str(bed.head()))
    bed.src().delete("id = 2")
    bed.merge(task)
    assert bed.table().scan().to_arrow().select(["id", "v"]).to_pylist() == [{"id": 3, "v": 0.1}]


def test_rows_that_take_much_more_memory_than_files_are_compared_in_parts(
    bed: TableBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow's columns of texts hold two gigabytes, which a small file can have."""
    compared: list[int] = []

    def measured(before: pa.Table, after: pa.Table, keys: Sequence[str], name: str) -> pa.Table:
        compared.append(before.nbytes + after.nbytes)
        return diff_rows(before, after, keys, name)

    monkeypatch.setattr(reading, "PART_MEMORY", 200_000)
    monkeypatch.setattr(reading, "diff_rows", measured)
    first = bed.add(dict.fromkeys(range(400), "mon"), "old" * 1000)
    bed.src().delete("id < 100")
    bed.add(dict.fromkeys(range(500, 700), "mon"), "new" * 1000)
    found = query.changes(bed.src(), first, None, ["id"])
    assert max(compared) < 200_000
    assert sorted(found.column("id").to_pylist()) == [*range(100), *range(500, 700)]
    assert found.column(CHANGE_COLUMN).to_pylist().count("DELETE") == 100


def test_branches_tags_and_times_are_points_of_the_history(bed: TableBed) -> None:
    first = bed.add({1: "mon"})
    bed.src().manage_snapshots().create_branch(first, "audit").create_tag(first, "begin").commit()
    bed.src().append(rows_of({9: "tue"}), branch="audit")
    second = bed.add({2: "tue"})
    times = {entry.snapshot_id: datetime.fromtimestamp(entry.timestamp_ms / 1000, UTC) for entry in bed.src().history()}

    def ids(since: Point | None, until: Point | None = None) -> list[tuple[str, int]]:
        rows = query.changes(bed.src(), since, until, ["id"]).to_pylist()
        return sorted((row[CHANGE_COLUMN], row["id"]) for row in rows)

    for until in (None, second, str(second), "main", times[second], times[second].isoformat()):
        for since in (first, "begin", times[first]):
            assert ids(since, until) == [("INSERT", 2)]
        for since in (None, 0, "0", times[first] - timedelta(days=1)):
            assert ids(since, until) == [("INSERT", 1), ("INSERT", 2)]
    assert ids("main", "audit") == [("DELETE", 2), ("INSERT", 9)]
    assert ids("audit") == [("DELETE", 9), ("INSERT", 2)]
    with pytest.raises(UserError, match="had no rows at '0': name a point after its first snapshot"):
        ids(0, "0")


# --- schemas, partitions and files that differ between the snapshots ---


def rows_changed(bed: TableBed, since: int, until: int | None = None, keys: Sequence[str] = ("id",)) -> list[Any]:
    rows = query.changes(bed.src(), since, until, keys).to_pylist()
    return sorted((row[CHANGE_COLUMN], *(row[name] for name in row if name != CHANGE_COLUMN)) for row in rows)


def test_a_renamed_column_has_not_changed(bed: TableBed) -> None:
    first = bed.add({1: "mon"})
    bed.src().update_schema().rename_column("v", "w").commit()
    bed.compact()
    append(bed.src(), pa.table({"id": [2], "w": ["b"], "day": ["mon"]}))
    assert rows_changed(bed, first) == [("INSERT", 2, "b", "mon")]
    assert rows_changed(bed, bed.head(), first) == [("DELETE", 2, "b", "mon")]


def test_promoted_columns_are_compared_in_the_wider_type(bed: TableBed) -> None:
    fields = NestedField(1, "id", IntegerType()), NestedField(2, "v", FloatType()), NestedField(3, "day", StringType())
    inner = StructType(NestedField(6, "a", IntegerType()))
    bed.catalog.drop_table(SOURCE)
    bed.catalog.create_table(SOURCE, Schema(*fields, NestedField(4, "l", ListType(5, inner, element_required=False))))
    append(
        bed.src(),
        pa.table(
            {"id": pa.array([1], pa.int32()), "v": pa.array([0.1], pa.float32()), "day": ["mon"], "l": [[{"a": 1}]]}
        ),
    )
    first = bed.head()
    with bed.src().update_schema() as change:
        change.update_column("id", LongType())
        change.update_column("v", DoubleType())
        change.update_column(("l", "element", "a"), LongType())
    bed.compact()
    assert rows_changed(bed, first) == []
    append(bed.src(), pa.table({"id": [1 << 40], "v": [0.1], "day": ["mon"], "l": [[{"a": 1 << 40}]]}))
    row = (1 << 40, 0.1, "mon", [{"a": 1 << 40}])
    assert rows_changed(bed, first) == [("INSERT", *row)]
    with pytest.raises(UserError, match="is another one than before, or of another type"):
        rows_changed(bed, bed.head(), first)


def test_rows_are_the_same_through_another_partitioning(bed: TableBed) -> None:
    first = bed.add({1: "mon", 2: "tue", 3: "tue"})
    with bed.src().update_spec() as change:
        change.remove_field("day")
        change.add_field("id", BucketTransform(2), "bucket")
    bed.compact()
    bed.delete("id = 2")
    assert rows_changed(bed, first) == [("DELETE", 2, "new", "tue")]


def test_a_file_that_moved_to_another_partition_has_other_rows(bed: TableBed) -> None:
    path = bed.root / "moved.parquet"
    stored = schema_to_pyarrow(SCHEMA).remove(2)
    pq.write_table(pa.table({"id": [1, 2], "v": ["a", "b"]}).cast(stored), path)
    heads: list[int] = []
    for day in ("mon", "tue"):
        table = bed.src()
        files = read_file_set(table)
        removed = tuple(files.data_file(ordinal) for ordinal in range(len(files)))
        if removed:
            commit_table(bed.catalog, ref_of(table), TableCommit(pinned=pin_table(table), removed=removed))
            table = bed.src()
        file = DataFile.from_args(
            _table_format_version=2,
            content=DataFileContent.DATA,
            file_path=f"file://{path}",
            file_format=FileFormat.PARQUET,
            partition=Record(day),
            record_count=2,
            file_size_in_bytes=path.stat().st_size,
        )
        file.spec_id = 0
        commit_table(bed.catalog, ref_of(table), TableCommit(pinned=pin_table(table), added=(file,)))
        heads.append(bed.head())
    assert rows_changed(bed, heads[0]) == [
        ("UPDATE_AFTER", 1, "a", "tue"), ("UPDATE_AFTER", 2, "b", "tue"),
        ("UPDATE_BEFORE", 1, "a", "mon"), ("UPDATE_BEFORE", 2, "b", "mon"),
    ]  # fmt: skip


def test_a_file_that_is_in_a_table_twice_has_its_rows_twice(bed: TableBed) -> None:
    path = bed.root / "twice.parquet"
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int64()), "v": ["a", "b"], "day": ["mon", "mon"]}), path)
    bed.src().add_files([f"file://{path}"])
    first = bed.head()
    bed.src().add_files([f"file://{path}"], check_duplicate_files=False)
    assert rows_changed(bed, first, keys=()) == [("INSERT", 1, "a", "mon"), ("INSERT", 2, "b", "mon")]
    assert rows_changed(bed, bed.head(), first, keys=()) == [("DELETE", 1, "a", "mon"), ("DELETE", 2, "b", "mon")]


def test_without_keys_rows_that_no_key_names_are_inserts_and_deletes(
    bed: TableBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PART_BYTES", 64)
    rows = {"id": pa.array([None, 1, 1, 1], pa.int64()), "v": ["a", "b", "b", "c"], "day": ["mon"] * 4}
    append(bed.src(), pa.table(rows))
    first = bed.head()
    bed.src().overwrite(pa.table({"id": pa.array([None, 1], pa.int64()), "v": ["a", "b"], "day": ["mon", "tue"]}))
    assert rows_changed(bed, first, keys=()) == [
        ("DELETE", 1, "b", "mon"), ("DELETE", 1, "b", "mon"), ("DELETE", 1, "c", "mon"), ("INSERT", 1, "b", "tue"),
    ]  # fmt: skip
    with pytest.raises(UserError, match="have the key id = 1"):
        rows_changed(bed, first)
