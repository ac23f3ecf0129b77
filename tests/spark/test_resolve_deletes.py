"""ResolveEqualityDeletes: which files it opens, by which index, and what it makes of columns that changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from skipstone.files.reader import describe_files, read_data_file
from skipstone.runs.reindex import run_reindex
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.filesets import read_file_set
from skipstone_core.contract.requests import IndexRef, ReindexTask, RunKind
from skipstone_core.maintenance.policies import (
    EqualityDeletesPolicy,
    MaintenancePolicy,
    MaintenanceStep,
    SnapshotPolicy,
)
from skipstone_core.reasons import Reason

from tests.spark.maintain_bed import MaintainBed
from tests.spark.rawdeletes import add_equality_delete, add_raw_equality_delete, upgrade
from tests.spark.resolve_bed import POLICY, STEP, ResolveBed

INDEX = IndexRef(name="by-key", uid="33333333-0000-0000-0000-000000000000", columns=("id", "k"))


def made(root: Path, version: int = 2, *, is_parted: bool = False, files: int = 3) -> ResolveBed:
    """Files of ten ids each."""
    bed = ResolveBed(root, version=version, is_parted=is_parted)
    bed.make()
    for start in range(0, 10 * files, 10):
        bed.add(*({"id": number, "k": f"k{number}"} for number in range(start, start + 10)))
    return bed


def indexed(bed: ResolveBed, index: IndexRef = INDEX) -> int:
    """Build the index; how many files it covers."""
    request = replace(bed.maintenance((), POLICY), kind=RunKind.REINDEX, maintain=None, indexes=(index,))
    request = replace(request, owner_uid=index.uid, reindex=ReindexTask(index=index))
    assert run_reindex(request, Reporter(request)).outcome == "Committed"
    return len(bed.files())


def test_a_file_that_no_delete_can_touch_is_not_opened(tmp_path: Path) -> None:
    bed = made(tmp_path, is_parted=True)
    bed.add({"id": 13, "p": "b"})
    bed.delete_equal(["id"], [{"id": 13}, {"id": 99}])
    bed.add({"id": 13})
    paths = bed.files().files["path"].to_pylist()
    step = bed.resolve()
    assert (step.counts["filesScanned"], step.counts["filesMarked"], step.counts["rowsDeleted"]) == (1, 1, 1)
    assert bed.files().files["path"].to_pylist() == paths
    assert bed.numbers_held() == sorted(bed.live)


def test_the_deletes_of_many_partitions_are_read_twice_whatever_the_number_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the plan, and for the scan of all files of a partition."""
    bed = ResolveBed(tmp_path, is_parted=True)
    bed.make()
    parts = [f"p{number}" for number in range(20)]
    for start in range(4):
        bed.add(*({"id": number, "p": part} for part in parts for number in range(start, start + 3)))
    for part in parts:
        bed.delete_equal(["id"], [{"id": 2}, {"id": 3}], part)
    opened = Counter[str]()
    original = PyArrowFile.open

    def counted(self: PyArrowFile, *values: Any, **named: Any) -> Any:
        opened[self.location] += "/delete-" in self.location
        return original(self, *values, **named)

    monkeypatch.setattr(PyArrowFile, "open", counted)
    step = bed.resolve()
    assert (step.counts["filesScanned"], step.counts["rowsDeleted"]) == (80, 120), step
    assert sum(opened.values()) == 2 * len(parts)
    assert bed.numbers_held() == sorted(bed.live)


@pytest.mark.parametrize("version", [2, 3])
def test_a_tag_and_a_branch_keep_the_deletes_that_they_reach(tmp_path: Path, version: int) -> None:
    bed = made(tmp_path, version)
    bed.delete_equal(["id"], [{"id": 3}])
    head = bed.table().current_snapshot()
    assert head is not None
    bed.table().manage_snapshots().create_tag(head.snapshot_id, "kept").create_branch(
        head.snapshot_id, "audit"
    ).commit()
    expected, before = sorted(bed.live), read_file_set(bed.table(), head.snapshot_id)
    bed.delete_equal(["id"], [{"id": 14}])
    steps = (*STEP, MaintenanceStep.SNAPSHOTS)
    policy = replace(POLICY, snapshots=SnapshotPolicy(max_age_seconds=0, min_to_keep=1))
    report = bed.run(bed.maintenance(steps, policy))
    assert [step.is_done for step in report.steps] == [True, True], report
    assert (bed.numbers_held(), bed.equality_files()) == (sorted(bed.live), 0)
    files = read_file_set(bed.table(), head.snapshot_id)
    assert [one.file.file_path for one in files.delete_files] == [one.file.file_path for one in before.delete_files]
    described = describe_files(bed.table(), files, range(len(files)))
    held = [number for file in described for batch in read_data_file(file, ["n"]) for number in batch[0].to_pylist()]
    assert sorted(held) == expected


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_without_a_row_only_leave_the_table(tmp_path: Path, version: int) -> None:
    bed = made(tmp_path, version)
    bed.delete_equal(["id"], [{"id": 99}])
    step = bed.resolve()
    assert (step.counts["equalityDeletesResolved"], step.counts["filesMarked"], bed.equality_files()) == (1, 0, 0)
    head = bed.table().current_snapshot()
    assert head is not None and head.summary is not None
    assert head.summary.operation.value == "replace"
    assert bed.resolve().reason is Reason.IDLE


#: Columns by which rows are deleted, each with two values.
TYPED: dict[str, tuple[PrimitiveType, Any, Any]] = {
    "boolean": (BooleanType(), True, False),
    "long": (LongType(), -(2**63), 2**63 - 1),
    "float": (FloatType(), float("nan"), -0.0),
    "double": (DoubleType(), 0.0, -0.0),
    "decimal": (DecimalType(9, 2), Decimal("1.20"), Decimal("-1.20")),
    "wide": (DecimalType(38, 3), Decimal(10**34), Decimal(-(10**34))),
    "date": (DateType(), date(1969, 12, 31), date(9999, 12, 31)),
    "time": (TimeType(), time(0, 0), time(23, 59, 59, 999999)),
    "timestamp": (
        TimestampType(),
        datetime.fromisoformat("1969-12-31T23:59:59.999999"),
        datetime.fromisoformat("2026-01-01"),
    ),
    "timestamptz": (TimestamptzType(), datetime(1900, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)),
    "string": (StringType(), "", "é" * 40),
    "uuid": (UUIDType(), UUID(int=1).bytes, UUID(int=2**127).bytes),
    "fixed": (FixedType(3), b"abc", b"\0\0\0"),
    "binary": (BinaryType(), b"", b"\xff" * 40),
}


@pytest.mark.parametrize("version", [2, 3])
def test_values_of_every_type_are_found(tmp_path: Path, version: int) -> None:
    bed = MaintainBed(tmp_path)
    columns = [NestedField(number, name, kind) for number, (name, (kind, *_)) in enumerate(TYPED.items(), start=2)]
    bed.create(Schema(NestedField(1, "n", StringType()), *columns))
    bed.append([{"n": f"{name} {at}", name: values[at]} for name, (_, *values) in TYPED.items() for at in (0, 1)])
    bed.append([{"n": "nulls"}])
    if version > 2:
        upgrade(bed.table())
    for name, (_, first, _) in TYPED.items():
        add_equality_delete(bed.table(), {name: [first]})
    (step,) = bed.run(bed.maintenance(STEP, POLICY)).steps
    assert (step.is_done, step.counts["rowsDeleted"]) == (True, len(TYPED)), step
    assert sorted(bed.table().scan().to_arrow()["n"].to_pylist()) == sorted([*(f"{name} 1" for name in TYPED), "nulls"])


def test_a_policy_that_does_not_ask_for_it_does_nothing(tmp_path: Path) -> None:
    bed = made(tmp_path)
    bed.delete_equal(["id"], [{"id": 1}])
    (step,) = bed.run(bed.maintenance(STEP, MaintenancePolicy())).steps
    assert (step.is_done, step.reason, bed.equality_files()) == (True, Reason.IDLE, 1)


@pytest.mark.parametrize("names", [("id",), ("id", "k")])
def test_an_index_gives_the_rows_of_the_files_that_it_covers(tmp_path: Path, names: tuple[str, ...]) -> None:
    bed = made(tmp_path, 3, files=12)
    bed.add({"id": None, "k": "k1"}, {"id": 5, "k": None})
    bed.delete_rows(lambda place: place == 3)
    bed.delete_equal(names, [{"id": 5, "k": "k5"}, {"id": None, "k": "k1"}])
    covered = indexed(bed)
    bed.add({"id": 5, "k": "k5"}, {"id": 7, "k": "k7"})
    bed.delete_equal(names, [{"id": number, "k": f"k{number}"} for number in range(0, 120, 7)])
    step = bed.resolve()
    assert step.is_done and bed.equality_files() == 0
    assert (step.counts["filesByIndex"], step.counts["filesScanned"]) == (covered, 1), step
    assert bed.numbers_held() == sorted(bed.live)


@pytest.mark.parametrize("column", ["id", "f"])
def test_an_index_that_does_not_tell_rows_tells_files_without_any(tmp_path: Path, column: str) -> None:
    """Of fewer columns than the deletes have, or of floats, of which equal keys may be other values."""
    bed = ResolveBed(tmp_path)
    bed.make()
    for number in range(12):
        values = [-0.0 if number == 4 else 0.0, *range(number + 1, 4000, 100)]
        bed.add(*({"id": int(value), "k": f"k{place}", "f": value} for place, value in enumerate(values)))
    covered = indexed(bed, replace(INDEX, columns=(column,)))
    bed.add({"id": 206, "k": "k3", "f": 206.0})
    gone = [{"id": 206, "k": "k3", "f": 206.0}, {"id": 309, "k": "other", "f": -0.0}]
    bed.delete_equal(["id", "k"] if column == "id" else ["f"], gone)
    step = bed.resolve()
    assert step.is_done and bed.equality_files() == 0
    by_index = covered - 2 if column == "id" else 0  # the other zero is in all files
    assert (step.counts["filesByIndex"], step.counts["filesScanned"]) == (by_index, covered + 1 - by_index), step
    assert bed.numbers_held() == sorted(bed.live)


def test_an_index_is_not_searched_for_a_null(tmp_path: Path) -> None:
    bed = made(tmp_path, files=12)
    bed.add({"id": None, "k": "k5"}, {"id": 300, "k": "k5"})
    indexed(bed, replace(INDEX, columns=("id",)))
    bed.delete_equal(["id", "k"], [{"id": None, "k": "k5"}, {"id": 5, "k": "k5"}])
    step = bed.resolve()
    assert (step.is_done, step.counts["filesByIndex"]) == (True, 0), step
    assert bed.numbers_held() == sorted(bed.live)


def test_an_index_of_a_column_that_was_widened_and_renamed_still_serves(tmp_path: Path) -> None:
    bed = made(tmp_path, files=12)
    covered = indexed(bed)
    with bed.table().update_schema() as change:
        change.update_column("id", LongType())
        change.rename_column("id", "key")
    add_equality_delete(bed.table(), {"key": [11, 2**40]})
    bed.append([{"n": 999, "key": 2**40}])
    add_equality_delete(bed.table(), {"key": [*range(0, 120, 7), 2**40]})
    gone = {11, *range(0, 120, 7)}
    step = bed.resolve()
    assert (step.counts["filesByIndex"], step.counts["filesScanned"]) == (covered, 1), step
    assert bed.numbers_held() == sorted(number for number, row in bed.live.items() if row["id"] not in gone)


@pytest.mark.parametrize("harm", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-20])])
def test_an_index_that_is_gone_or_cut_off_costs_time_only(tmp_path: Path, harm: Callable[[Path], Any]) -> None:
    bed = made(tmp_path, files=12)
    covered = indexed(bed)
    bed.delete_equal(["id"], [{"id": number} for number in range(0, 120, 7)])
    for path in bed.root.rglob("*.parquet"):
        if bed.root / "ns" / "t" not in path.parents:
            harm(path)
    step = bed.resolve()
    assert (step.is_done, step.counts["filesByIndex"], step.counts["filesScanned"]) == (True, 0, covered), step
    assert (bed.numbers_held(), bed.equality_files()) == (sorted(bed.live), 0)


def test_an_index_of_a_column_that_was_made_again_is_not_asked(tmp_path: Path) -> None:
    bed = made(tmp_path, files=12)
    covered = indexed(bed)
    with bed.table().update_schema() as change:
        change.delete_column("id")
    with bed.table().update_schema() as change:
        change.add_column("id", LongType())
    add_equality_delete(bed.table(), {"id": [11]})
    add_equality_delete(bed.table(), {"id": [None], "k": ["k20"]})
    step = bed.resolve()
    assert (step.is_done, step.counts["filesByIndex"], step.counts["filesScanned"]) == (True, 0, covered), step
    assert bed.numbers_held() == sorted(number for number, row in bed.live.items() if row["k"] != "k20")


@pytest.mark.parametrize("version", [2, 3])
def test_columns_may_be_renamed_widened_and_dropped(tmp_path: Path, version: int) -> None:
    bed = made(tmp_path, version)
    bed.delete_equal(["id"], [{"id": 4}, {"id": None}])
    bed.delete_equal(["k"], [{"k": "k15"}])
    with bed.table().update_schema() as change:
        change.update_column("id", LongType())
        change.rename_column("id", "key")
        change.delete_column("k")
        change.add_column("later", LongType())
    with bed.table().update_schema() as change:
        change.add_column("id", StringType())
    add_equality_delete(bed.table(), {"key": [26]})
    expected = sorted(number for number, row in bed.live.items() if row["id"] != 26)
    assert bed.resolve().is_done
    assert (bed.numbers_held(), bed.equality_files()) == (expected, 0)


def test_older_files_have_a_null_in_a_column_that_was_added_later(tmp_path: Path) -> None:
    bed = made(tmp_path)
    with bed.table().update_schema() as change:
        change.add_column("later", LongType())
    add_equality_delete(bed.table(), {"later": [None], "id": [4]})
    assert bed.resolve().counts["rowsDeleted"] == 1
    assert bed.numbers_held() == sorted(number for number, row in bed.live.items() if row["id"] != 4)


def test_a_data_file_that_is_in_the_table_twice_is_not_marked(tmp_path: Path) -> None:
    """A delete by position would take its newer rows, too."""
    bed = made(tmp_path, files=1)
    bed.delete_equal(["id"], [{"id": 3}])
    with bed.table().transaction() as change, change.update_snapshot().fast_append() as append:
        append.append_data_file(bed.files().data_file(0))
    (step,) = bed.run(bed.maintenance(STEP, POLICY)).steps
    assert (step.is_done, step.reason, bed.equality_files()) == (False, Reason.DELETES_UNSUPPORTED, 1)
    assert "is in the table more than once" in step.message and "rewrite_data_files" in step.message


def test_a_delete_that_cannot_be_resolved_stays_and_is_named(tmp_path: Path) -> None:
    bed = MaintainBed(tmp_path)
    inner = StructType(NestedField(3, "a", LongType()))
    bed.create(Schema(NestedField(1, "n", LongType()), NestedField(2, "s", inner)))
    bed.append([{"n": n, "s": {"a": n}} for n in range(5)])
    add_raw_equality_delete(bed.table(), pa.table({"s": [{"a": 3}]}), [3])
    add_equality_delete(bed.table(), {"n": [1]})
    policy = MaintenancePolicy(equality_deletes=EqualityDeletesPolicy(min_files=1))
    (step,) = bed.run(bed.maintenance(STEP, policy)).steps
    assert (step.is_done, step.reason, step.counts["equalityDeletesResolved"]) == (
        False,
        Reason.DELETES_UNSUPPORTED,
        1,
    )
    assert "deletes by the field 3, which is inside another column" in step.message
    assert "rewrite_data_files" in step.message
    assert sum(one.kind == 2 for one in bed.files().delete_files) == 1


def test_a_delete_file_without_its_column_is_named(tmp_path: Path) -> None:
    bed = made(tmp_path, files=1)
    column = pa.field("id", pa.int32(), metadata={b"PARQUET:field_id": b"2"})
    add_raw_equality_delete(bed.table(), pa.table([[3]], schema=pa.schema([column])), [2, 3])
    step = bed.resolve()
    assert (step.is_done, step.reason, bed.equality_files()) == (False, Reason.SOURCE_UNREADABLE, 1)
    assert ".parquet is damaged: it lacks the column of the field 3. Restore it from a copy" in step.message
