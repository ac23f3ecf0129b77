"""Clauses through whole runs: rows without a source row, late changes, literals, new columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.committing.commits import CommitPorts
from skipstone.tables.shaping.evolution import evolved_columns
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import Management, MergeAction, MergeClause, SchemaEvolution
from skipstone_core.errors import BadData, BadSpec

from tests.spark.merge_bed import DELETE, DELETE_D, INSERT, UPDATE, AtSwap, MergeBed, duckdb_merge, rows_of, task_of
from tests.spark.secondengine import spark_rows

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", StringType()), NestedField(3, "n", LongType()))
FEED = pa.table({"id": [5, 15, 100], "v": ["five", "fifteen", "hundred"], "n": [1, 2, 3]})
UPSERT = (
    "merge into t using s on t.id = s.id when matched then update set v = s.v, n = s.n "
    "when not matched then insert (id, v, n) values (s.id, s.v, s.n) "
)
EVOLVE = {"schema_evolution": SchemaEvolution.ADD_COLUMNS}
UID = "eeeeeeee-0000-0000-0000-000000000000"


class Killed(BaseException):
    """Stands for a driver that dies: nothing catches it."""


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[MergeBed]:
    """Forty rows in four files; n is the number of the file."""
    made = MergeBed(tmp_path)
    made.create(SCHEMA)
    made.append(*([row(i) for i in range(start, start + 10)] for start in (0, 10, 20, 30)))
    yield made
    made.catalog.close()


def row(number: int) -> dict[str, Any]:
    return {"id": None if number == 33 else number, "v": f"row {number}", "n": number // 10}


def by_source(action: MergeAction, when: str | None = None, **values: str) -> MergeClause:
    return MergeClause(action=action, when=when, values=values or None)


@pytest.mark.parametrize(
    ("clauses", "sql", "candidates"),
    [
        ((by_source(MergeAction.DELETE),), "when not matched by source then delete", 4),
        (
            (by_source(MergeAction.DELETE, "target.n = 3"),),
            "when not matched by source and t.n = 3 then delete",
            3,
        ),
        (
            (by_source(MergeAction.UPDATE, "target.n > 2 and target.v != 'row 31'", v="'gone'", n="null"),),
            "when not matched by source and t.n > 2 and t.v != 'row 31' then update set v = 'gone', n = null",
            3,
        ),
        (
            (by_source(MergeAction.UPDATE, "target.id < 3", n="-1"), by_source(MergeAction.DELETE, "target.id < 7")),
            "when not matched by source and t.id < 3 then update set n = -1 "
            "when not matched by source and t.id < 7 then delete",
            2,
        ),
        (
            (by_source(MergeAction.DELETE, "target.id is null"),),
            "when not matched by source and t.id is null then delete",
            3,
        ),
        ((by_source(MergeAction.DELETE, "target.n = 99"),), "when not matched by source and t.n = 99 then delete", 2),
    ],
)  # fmt: skip
def test_rows_without_a_source_row(bed: MergeBed, clauses: tuple[MergeClause, ...], sql: str, candidates: int) -> None:
    before = bed.table().scan().to_arrow()
    report = bed.merge(task_of(bed.source(FEED), when_not_matched_by_source=clauses))
    assert bed.rows() == duckdb_merge(before, FEED, UPSERT + sql)
    assert report.counts["filesCandidate"] == candidates
    counts = report.counts
    assert before.num_rows - counts["rowsDeleted"] + counts["rowsInserted"] == len(bed.rows())
    summary = bed.table().current_snapshot().summary  # type: ignore[union-attr]
    assert f"KeyRanges 2 > NotMatchedBySource {candidates}" in str(summary["skipstone.merge.funnel"])  # type: ignore[index]


def test_an_empty_source_and_no_condition_take_the_whole_table(bed: MergeBed) -> None:
    task = task_of(bed.source(FEED.slice(0, 0)), when_not_matched_by_source=(by_source(MergeAction.DELETE),))
    assert bed.merge(task).counts["rowsDeleted"] == 40
    assert bed.rows() == []


def test_a_row_appended_meanwhile_is_tidied_up_too(bed: MergeBed) -> None:
    hooks = AtSwap(before=lambda: bed.append([{"id": 200, "v": "theirs", "n": 3}]))
    clause = by_source(MergeAction.DELETE, "target.n = 3")
    report = bed.merge(task_of(bed.source(FEED), when_not_matched_by_source=(clause,)), UID, CommitPorts(hooks=hooks))
    assert report.outcome is RunOutcome.COMMITTED
    assert report.counts["filesTotal"] == 5
    assert {one["id"] for one in bed.table().scan().to_arrow().to_pylist()} == {*range(30), 100}


def test_a_row_appended_meanwhile_that_no_condition_takes_does_not_disturb(bed: MergeBed) -> None:
    hooks = AtSwap(before=lambda: bed.append([{"id": 200, "v": "theirs", "n": 7}]))
    clause = by_source(MergeAction.DELETE, "target.n = 3")
    report = bed.merge(task_of(bed.source(FEED), when_not_matched_by_source=(clause,)), UID, CommitPorts(hooks=hooks))
    assert report.counts["filesTotal"] == 4
    assert {one["id"] for one in bed.table().scan().to_arrow().to_pylist()} == {*range(30), 100, 200}


# --- late changes ---


def test_changes_older_than_their_row_are_ignored(bed: MergeBed) -> None:
    newer = pa.table({"id": [1, 2, 50], "v": ["new", "new", "new"], "seq": [10, 10, 10], "op": ["U", "U", "U"]})
    older = pa.table(
        {"id": [1, 2, 3, 50], "v": ["old", "old", "old", "old"], "seq": [9, 10, 9, 9], "op": ["U", "U", "U", "D"]}
    )
    fields: dict[str, Any] = {
        "sequence_by": "seq",
        "target_sequence": "n",
        "when_matched": (DELETE_D, replace(UPDATE, values={"v": "v"})),
    }
    with bed.table().transaction() as change:
        change.delete("id >= 3")
    assert bed.merge(task_of(bed.source(newer, "newer"), **fields)).counts["rowsIgnored"] == 0
    report = bed.merge(task_of(bed.source(older, "older"), **fields))
    assert (report.counts["rowsIgnored"], report.counts["rowsUpdated"], report.counts["rowsInserted"]) == (2, 1, 1)
    found = {one["id"]: (one["v"], one["n"]) for one in bed.table().scan().to_arrow().to_pylist()}
    assert found == {
        None: ("row 33", 3),
        0: ("row 0", 0),
        1: ("new", 10),
        2: ("old", 10),
        3: ("old", 9),
        50: ("new", 10),
    }


# --- new columns ---

WIDER = FEED.append_column("extra", pa.array(["x", None, "y"])).append_column("op", pa.array(["U", "U", "U"]))


def test_new_columns_come_with_their_rows(bed: MergeBed, spark: SparkSession) -> None:
    snapshots = len(bed.table().snapshots())
    report = bed.merge(task_of(bed.source(WIDER), when_matched=(DELETE_D, UPDATE), **EVOLVE))
    assert report.outcome is RunOutcome.COMMITTED
    table = bed.table()
    assert table.schema().column_names == ["id", "v", "n", "extra"]
    assert len(table.snapshots()) == snapshots + 1
    assert table.current_snapshot().schema_id == table.schema().schema_id  # type: ignore[union-attr]
    assert evolved_columns(table) == report.table_states[0].evolved_columns == ("extra",)
    found = {one["id"]: one["extra"] for one in table.scan().to_arrow().to_pylist()}
    assert {found[5], found[15], found[100], found[0]} == {"x", None, "y"}
    assert rows_of(spark_rows(spark, bed.warehouse, "ns.t")) == bed.rows()


def test_without_the_field_new_columns_are_ignored(bed: MergeBed) -> None:
    bed.merge(task_of(bed.source(WIDER)))
    assert bed.table().schema().column_names == ["id", "v", "n"]


def test_a_driver_that_dies_before_its_commit_adds_neither_columns_nor_rows(bed: MergeBed) -> None:
    def die() -> None:
        raise Killed

    before, task = bed.rows(), task_of(bed.source(WIDER), when_matched=(DELETE_D, UPDATE), **EVOLVE)
    with pytest.raises(Killed):
        bed.merge(task, UID, CommitPorts(hooks=AtSwap(before=die)))
    assert (bed.table().schema().column_names, bed.rows()) == (["id", "v", "n"], before)
    assert bed.merge(task, UID).outcome is RunOutcome.COMMITTED
    assert bed.table().schema().column_names == ["id", "v", "n", "extra"]


@pytest.mark.parametrize("names", [["extra"], ["other"], ["other", "extra"]])
def test_columns_that_others_add_meanwhile_are_planned_with(bed: MergeBed, names: list[str]) -> None:
    def add_columns() -> None:
        with bed.table().update_schema() as change:
            for name in names:
                change.add_column(name, StringType())

    task = task_of(bed.source(WIDER), when_matched=(DELETE_D, UPDATE), **EVOLVE)
    report = bed.merge(task, UID, CommitPorts(hooks=AtSwap(before=add_columns)))
    assert report.outcome is RunOutcome.COMMITTED
    assert set(bed.table().schema().column_names) == {"id", "v", "n", "extra", *names}
    assert {one["extra"] for one in bed.table().scan().to_arrow().to_pylist()} == {"x", "y", None}


def test_a_field_id_that_was_used_up_meanwhile_is_not_used_twice(bed: MergeBed) -> None:
    def add_and_drop() -> None:
        with bed.table().update_schema() as change:
            change.add_column("brief", StringType())
        with bed.table().update_schema() as change:
            change.delete_column("brief")

    task = task_of(bed.source(WIDER), when_matched=(DELETE_D, UPDATE), **EVOLVE)
    assert bed.merge(task, UID, CommitPorts(hooks=AtSwap(before=add_and_drop))).outcome is RunOutcome.COMMITTED
    assert bed.table().schema().find_field("extra").field_id == 5
    assert {one["extra"] for one in bed.table().scan().to_arrow().to_pylist()} == {"x", "y", None}


def test_an_observed_table_keeps_its_schema(bed: MergeBed) -> None:
    request = bed.request(task_of(bed.source(WIDER), **EVOLVE))
    assert request.table is not None
    observed = replace(request, table=replace(request.table, management=Management.OBSERVED))
    with pytest.raises(BadSpec, match=r"spec\.schemaEvolution: the Table is Observed"):
        run_merge(observed, Reporter(observed))


def test_a_new_column_is_seen_by_conditions_and_rolled_back_with_bad_rows(bed: MergeBed) -> None:
    head = bed.table().metadata_location
    twice = pa.concat_tables([WIDER, WIDER.slice(1)])
    with pytest.raises(BadData, match="several source rows have the same key in id"):
        bed.merge(task_of(bed.source(twice, "twice"), **EVOLVE))
    assert bed.table().metadata_location == head
    clauses = {
        "when_matched": (replace(DELETE, when="target.extra is not null"), UPDATE),
        "when_not_matched": (INSERT,),
    }
    report = bed.merge(task_of(bed.source(WIDER), **clauses, **EVOLVE))
    assert (report.counts["rowsDeleted"], report.counts["rowsUpdated"], report.counts["rowsInserted"]) == (0, 2, 1)
