"""Several threads that merge one file make the file that one thread makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType
from skipstone.files.reader import describe_files
from skipstone.files.writer import WrittenFile, write_spec
from skipstone.kernels.changes import SlicePart, SortRule, write_slice
from skipstone.kernels.merging import FileWork, MergeWork, WorkResult, merge_files
from skipstone.runs.merging.source import target_schema
from skipstone.tables.filesets import read_file_set
from skipstone_core.contract.requests import MergeAction, MergeClause, MergeKey, MergeTask, SourceFormat, SourceSpec
from skipstone_core.errors import BadData
from skipstone_core.keys import key_type
from skipstone_core.merging.merges import plan_merge

from tests.spark.index_bed import Lake

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=True),
    NestedField(3, "ratio", DoubleType()),
    NestedField(4, "note", StringType()),
)
ROWS, GROUP = 6_000, 500
DELETE = MergeClause(action=MergeAction.DELETE, when="source.note = 'gone'")
UPDATE = MergeClause(action=MergeAction.UPDATE)


def rows_of(numbers: np.ndarray, mark: str) -> pa.Table:
    """Rows with these keys, some of them with NaN."""
    ratios = np.where(numbers % 9 == 0, np.nan, numbers / 3)
    names, notes = ([f"{mark}{kind}{number}" for number in numbers] for kind in ("name", "note"))
    columns = {"id": numbers, "name": names, "ratio": ratios, "note": notes}
    return pa.table(columns, schema=pa.schema([
        pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string(), nullable=False),
        pa.field("ratio", pa.float64()), pa.field("note", pa.string()),
    ]))  # fmt: skip


def work_of(root: Path, changes: pa.Table, *clauses: MergeClause, **task_fields: Any) -> MergeWork:
    """A merge into a file of several row groups, whose keys are in no order."""
    table = Lake(root).create(SCHEMA, properties={"write.parquet.row-group-limit": str(GROUP)})
    table.append(rows_of(np.random.default_rng(7).permutation(ROWS), "old"))
    task = MergeTask(
        source=SourceSpec(format=SourceFormat.PARQUET, paths=("feed",)),
        keys=(MergeKey(target="id", source="id"),),
        when_matched=clauses,
        **task_fields,
    )
    files = read_file_set(table)
    columns = target_schema(files.schema)
    plan = plan_merge(task, columns, columns)
    types = {column.name: kind for column in columns if (kind := key_type(column.type))}
    change_slice = write_slice(changes, SortRule(plan.keys, None, types), str(root / "slice.parquet"))
    (file,) = describe_files(table, files, [0])
    work = FileWork(file, (SlicePart(0, 0, change_slice.keyed),))
    return MergeWork(plan=plan, write=write_spec(table, "run"), slices=(change_slice,), files=(work,))


def written(result: WorkResult) -> tuple[bytes, Mapping[str, Any]]:
    """The bytes of the only file that was written, and its statistics."""
    (file,) = map(WrittenFile.from_row, result.written)
    return Path(file.path.removeprefix("file://")).read_bytes(), file.statistics


@pytest.mark.parametrize("clauses", [(UPDATE,), (DELETE, UPDATE)], ids=["updates", "updates and deletes"])
@pytest.mark.parametrize("on_read", [False, True], ids=["copy-on-write", "merge-on-read"])
def test_threads_make_the_file_of_one(tmp_path: Path, clauses: tuple[MergeClause, ...], on_read: bool) -> None:
    changes = rows_of(np.arange(0, ROWS, 7), "new")
    gone = pa.array(["gone" if number % 5 == 0 else "new" for number in range(changes.num_rows)])
    work = replace(work_of(tmp_path, changes.set_column(3, "note", gone), *clauses), on_read=on_read)
    one, many = merge_files(work, "one"), merge_files(replace(work, threads=3), "many")
    assert one.files == many.files
    assert written(one) == written(many)
    assert one.files[0].rows_matched == changes.num_rows


def test_an_error_in_a_thread_ends_the_merge_and_leaves_no_file(tmp_path: Path) -> None:
    changes = rows_of(np.arange(0, ROWS, 3), "new")
    lacking = pa.array([None if row == 1_000 else "x" for row in range(changes.num_rows)])
    changes = changes.set_column(1, pa.field("name", pa.string()), lacking)
    work = replace(work_of(tmp_path, changes, UPDATE), threads=3)
    before = set(tmp_path.rglob("*"))
    with pytest.raises(BadData, match="column 'name' is required and is null in 1 rows"):
        merge_files(work, "task")
    assert set(tmp_path.rglob("*")) == before


#: Rows of each row group take other clauses: which row is in which group is known by its place in the permutation.
PLACES = np.argsort(np.random.default_rng(7).permutation(ROWS))
IN_ORDER = (
    MergeClause(action=MergeAction.DELETE, when="target.id % 4 = 0 AND 10 / (target.id % 4 + 1) > 1"),
    MergeClause(action=MergeAction.UPDATE, when="12 / (target.id % 4) > 5", values={"note": "source.note || '1'"}),
    MergeClause(action=MergeAction.UPDATE, when="target.id % 4 = 3", values={"ratio": "0.5"}),
)


def in_groups(*groups: int) -> np.ndarray:
    """The keys of the rows in these row groups."""
    return np.flatnonzero(np.isin(PLACES // GROUP, groups))


@pytest.mark.parametrize("on_read", [False, True], ids=["copy-on-write", "merge-on-read"])
def test_clauses_whose_order_counts_choose_as_in_one_thread(tmp_path: Path, on_read: bool) -> None:
    """The second condition divides by zero in rows that the first clause takes."""
    keys = in_groups(0, 3, 4, 11)
    work = replace(work_of(tmp_path, rows_of(keys, "new"), *IN_ORDER), on_read=on_read)
    one, many = merge_files(work, "one"), merge_files(replace(work, threads=3), "many")
    assert one.files == many.files
    assert written(one) == written(many)
    (result,) = many.files
    by_rest = np.bincount(keys % 4, minlength=4)
    expected = (len(keys), by_rest[0], by_rest[1] + by_rest[2] + by_rest[3])
    assert (result.rows_matched, result.rows_deleted, result.rows_updated) == expected


#: A condition of ``targetWhere``, which threads judge, that fails in the row of one key, and what is said of it.
FAILING = {
    "division": ("1 / (target.id - {key}) < 5", "divides by zero"),
    "overflow": ("cast(target.id - {key} + 2147483648 as int) is not null", "int"),
}


@pytest.mark.parametrize("name", FAILING)
@pytest.mark.parametrize("group", [0, 7, 11])
def test_a_condition_that_fails_in_one_row_group_fails_as_in_one_thread(tmp_path: Path, name: str, group: int) -> None:
    (key, *_), (condition, says) = in_groups(group), FAILING[name]
    work = work_of(tmp_path, rows_of(np.arange(ROWS), "new"), UPDATE, target_where=condition.format(key=key))
    before, messages = set(tmp_path.rglob("*")), []
    for threads in (1, 3):
        with pytest.raises(BadData, match=says) as error:
            merge_files(replace(work, threads=threads), f"task{threads}")
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    assert set(tmp_path.rglob("*")) == before


def test_a_text_that_is_cast_fails_in_the_row_group_that_has_another(tmp_path: Path) -> None:
    keys = in_groups(2, 5)
    condition = "cast(source.note as long) >= 0"
    numbers = pa.array([str(key) for key in keys.tolist()])
    changes = rows_of(keys, "new").set_column(3, "note", numbers)
    work = work_of(tmp_path, changes, UPDATE, target_where=condition)
    assert merge_files(replace(work, threads=3), "good").files[0].rows_updated == len(keys)
    bad = pa.array(["x" if row == 3 else text for row, text in enumerate(numbers.to_pylist())])
    (tmp_path / "bad").mkdir()
    work = work_of(tmp_path / "bad", changes.set_column(3, "note", bad), UPDATE, target_where=condition)
    with pytest.raises(BadData, match=r"spec\.targetWhere"):
        merge_files(replace(work, threads=3), "task")


def test_a_condition_is_judged_only_in_rows_whose_keys_match(tmp_path: Path) -> None:
    (key, *_), others = in_groups(7), in_groups(0, 1, 2)
    where = f"1 / (target.id - {key}) < 5 AND target.id % 2 = 0"
    work = work_of(tmp_path, rows_of(others, "new"), DELETE, UPDATE, target_where=where)
    one, many = merge_files(work, "one"), merge_files(replace(work, threads=3), "many")
    assert one.files == many.files
    assert written(one) == written(many)
    assert many.files[0].rows_updated == np.count_nonzero(others % 2 == 0)
