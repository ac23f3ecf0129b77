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


def work_of(root: Path, changes: pa.Table, *clauses: MergeClause) -> MergeWork:
    """A merge into a file of several row groups, whose keys are in no order."""
    table = Lake(root).create(SCHEMA, properties={"write.parquet.row-group-limit": str(GROUP)})
    table.append(rows_of(np.random.default_rng(7).permutation(ROWS), "old"))
    task = MergeTask(
        source=SourceSpec(format=SourceFormat.PARQUET, paths=("feed",)),
        keys=(MergeKey(target="id", source="id"),),
        when_matched=clauses,
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
