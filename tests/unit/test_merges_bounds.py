"""Statistics of other writers that made merges elsewhere miss rows: each costs a read here, never a row."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from skipstone.kernels.changes import SortRule, write_slice
from skipstone.runs.merging.prune import PruneSite, prune_files
from skipstone.runs.merging.rewrite import Rewrite, RewriteSite, rewrite_files
from skipstone.runs.merging.source import Changes, target_schema
from skipstone.tables.committing.commits import TableCommit, commit_table
from skipstone.tables.committing.writing import WrittenFiles
from skipstone.tables.filesets import PinnedTable, pin_table, read_file_set
from skipstone.tasks.runner import InProcess
from skipstone_core.contract.requests import MergeAction, MergeClause, MergeKey, MergeTask, SourceFormat, SourceSpec
from skipstone_core.keys import key_type
from skipstone_core.merging.merges import MergeColumn, MergeCounts, plan_merge

from tests.spark.index_bed import Lake
from tests.spark.lake import ref_of, write_files

KEY = 1
LONG_TEXT = "😀" * 1024


def drop(file: DataFile) -> None:
    """No statistics at all, as of long texts whose bounds were left out."""
    for name in ("lower_bounds", "upper_bounds", "null_value_counts", "value_counts", "nan_value_counts"):
        getattr(file, name).clear()


def invert(file: DataFile) -> None:
    """The lower bound above the upper one."""
    file.lower_bounds[KEY], file.upper_bounds[KEY] = file.upper_bounds[KEY], file.lower_bounds[KEY]


def forget_upper(file: DataFile) -> None:
    """An upper bound that could not be cut to length."""
    file.upper_bounds.pop(KEY, None)


def nan_bounds(file: DataFile) -> None:
    """NaN as both bounds, and nobody says whether there are NaNs."""
    file.lower_bounds[KEY] = file.upper_bounds[KEY] = struct.pack("<d", math.nan)
    file.nan_value_counts.clear()


def nonsense(file: DataFile) -> None:
    """Bounds of a length that no value of the type has."""
    file.lower_bounds[KEY] = file.upper_bounds[KEY] = b"\x01\x02\x03"


CASES: dict[str, tuple[pa.DataType, list[Any], Callable[[DataFile], None]]] = {
    "no statistics": (pa.int64(), [1, 5, 9], drop),
    "inverted": (pa.int64(), [1, 5, 9], invert),
    "nonsense": (pa.int64(), [1, 5, 9], nonsense),
    "NaN": (pa.float64(), [1.0, math.nan, 9.0], nan_bounds),
    "long text without bounds": (pa.string(), ["a", LONG_TEXT, LONG_TEXT + "\uffff"], drop),
    "long text without upper bound": (pa.string(), ["a", LONG_TEXT, LONG_TEXT + "\uffff"], forget_upper),
}


@pytest.fixture
def lake(tmp_path: Path) -> Any:
    made = Lake(tmp_path)
    yield made
    made.catalog.close()


def filled(lake: Lake, kind: pa.DataType, values: list[Any], spoil: Callable[[DataFile], None]) -> Table:
    """A table with one file of ``values``, whose statistics are spoilt."""
    table = lake.create(pa.schema([("k", kind), ("v", pa.string())]))
    files = write_files(table, pa.table({"k": pa.array(values, kind), "v": ["old"] * len(values)}))
    for file in files:
        spoil(file)
    commit_table(table.catalog, ref_of(table), TableCommit(pinned=pin_table(table), added=files))
    return lake.table()


def rewritten(lake: Lake, table: Table, keys: pa.Array, *by_source: MergeClause) -> Rewrite:
    """The merge that updates rows of ``keys`` and inserts others."""
    task = MergeTask(
        source=SourceSpec(format=SourceFormat.PARQUET, paths=("x",)),
        keys=(MergeKey(target="k", source="k"),),
        when_matched=(MergeClause(action=MergeAction.UPDATE),),
        when_not_matched=(MergeClause(action=MergeAction.INSERT),),
        when_not_matched_by_source=by_source,
    )
    files = read_file_set(table)
    target = target_schema(files.schema)
    plan = plan_merge(task, target, [target[0], MergeColumn(name="v", type="string")])
    kind = key_type(target[0].type)
    assert kind is not None
    feed = pa.table({"k": keys, "v": ["new"] * len(keys)})
    one = write_slice(feed, SortRule(plan.keys, None, {"k": kind}), str(lake.root / "slice.parquet"))
    changes = Changes(plan=plan, slices=(one,), schema_id=0)
    site = RewriteSite(tasks=InProcess(), cores=1, token="t", written=WrittenFiles(table))
    return rewrite_files(site, changes, PinnedTable(table, files), prune_files(PruneSite(), changes, table, files))


def counts(lake: Lake, table: Table, keys: pa.Array, *by_source: MergeClause) -> MergeCounts:
    """What the merge did."""
    return rewritten(lake, table, keys, *by_source).counts


@pytest.mark.parametrize("name", CASES)
def test_a_key_under_spoilt_bounds_is_found(lake: Lake, name: str) -> None:
    kind, values, spoil = CASES[name]
    done = counts(lake, filled(lake, kind, values, spoil), pa.array(values[1:], kind))
    assert (done.rows_updated, done.rows_inserted) == (2, 0)


@pytest.mark.parametrize("name", CASES)
def test_a_condition_under_spoilt_bounds_is_judged_by_rows(lake: Lake, name: str) -> None:
    kind, values, spoil = CASES[name]
    clause = MergeClause(action=MergeAction.DELETE, when="target.v = 'old' and target.k is not null")
    done = counts(lake, filled(lake, kind, values, spoil), pa.array(values[:1], kind), clause)
    assert (done.rows_updated, done.rows_deleted) == (1, 2)


def test_nulls_that_no_count_tells_of_are_found(lake: Lake) -> None:
    clause = MergeClause(action=MergeAction.DELETE, when="target.k is null")
    table = filled(lake, pa.int64(), [1, None], drop)
    assert counts(lake, table, pa.array([7], pa.int64()), clause).rows_deleted == 1


def test_a_file_that_no_clause_changes_is_not_copied(lake: Lake) -> None:
    clause = MergeClause(action=MergeAction.DELETE, when="target.v = 'other'")
    done = rewritten(lake, filled(lake, pa.int64(), [1, 5, 9], drop), pa.array([4], pa.int64()), clause)
    assert (done.counts.files_candidate, done.counts.files_touched, len(done.removed)) == (1, 0, 0)


def test_an_empty_set_of_keys_does_not_mean_every_file_nor_no_file(lake: Lake) -> None:
    table, none = filled(lake, pa.int64(), [1, 5, 9], drop), pa.array([], pa.int64())
    assert counts(lake, table, none).files_candidate == 0
    clause = MergeClause(action=MergeAction.DELETE)
    assert counts(lake, table, none, clause).rows_deleted == 3
