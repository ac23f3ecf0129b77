"""Whole merges, by the driver and by Spark: names in another case, conditions on both sides, fields of structs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType
from skipstone.tasks.share import USUAL_SHARE
from skipstone_core.contract.columns import MatchNames
from skipstone_core.contract.requests import MergeAction, MergeClause, SourceFormat, SourceSpec
from skipstone_core.errors import BadData, BadSpec

from tests.spark.merge_bed import ALL_IN_SPARK, INSERT, UPDATE, MergeBed, task_of

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "userCode", StringType()),
    NestedField(3, "version", LongType()),
    NestedField(
        4, "place", StructType(NestedField(5, "city", StringType()), NestedField(6, "zip", LongType())), required=False
    ),
)
ROWS: list[dict[str, Any]] = [
    {"id": 1, "userCode": "a", "version": 5, "place": None},
    {"id": 2, "userCode": "b", "version": 1, "place": {"city": "Lugo", "zip": 7}},
    {"id": 3, "userCode": None, "version": None, "place": {"city": None, "zip": 3}},
]


@pytest.fixture(params=["here", "spark"])
def bed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MergeBed]:
    made = MergeBed(tmp_path, ALL_IN_SPARK if request.param == "spark" else USUAL_SHARE)
    made.create(SCHEMA)
    made.append(ROWS[:1], ROWS[1:2], ROWS[2:])
    yield made
    made.catalog.close()


def found(bed: MergeBed) -> dict[int, tuple[Any, ...]]:
    rows = bed.table().scan().to_arrow().to_pylist()
    assert len(rows) == len({row["id"] for row in rows})
    return {row["id"]: (row["userCode"], row["version"], row["place"]) for row in rows}


@pytest.mark.parametrize("kind", [SourceFormat.PARQUET, SourceFormat.JSON])
def test_names_in_another_case_are_found_if_case_does_not_count(bed: MergeBed, kind: SourceFormat) -> None:
    if kind is SourceFormat.PARQUET:
        path = bed.source([{"ID": 1, "USERCODE": "x", "Version": 6}, {"ID": 9, "USERCODE": "y", "Version": 1}])
    else:
        path = bed.text(
            "n.json", '{"ID": 1, "USERCODE": "x", "Version": 6}\n{"ID": 9, "USERCODE": "y", "Version": 1}\n'
        )
    source = SourceSpec(format=kind, paths=(path,), match_names=MatchNames.IGNORE_CASE)
    when = MergeClause(action=MergeAction.UPDATE, when="source.version > target.VERSION")
    bed.merge(task_of("", source=source, when_matched=(when,)))
    assert found(bed)[1] == ("x", 6, None)
    assert found(bed)[9] == ("y", 1, None)


def test_names_in_another_case_are_told(bed: MergeBed) -> None:
    path = bed.source([{"id": 1, "usercode": "x"}])
    with pytest.raises(BadData, match=r"usercode.*userCode|userCode.*usercode"):
        bed.merge(task_of(path))
    path = bed.source([{"ID": 1, "userCode": "x"}], "other")
    with pytest.raises(BadSpec, match="the source has no column 'id': write 'ID', names are exact"):
        bed.merge(task_of(path))


def test_rows_of_equal_keys_match_if_the_condition_on_both_holds(bed: MergeBed) -> None:
    rows = [{"id": n, "userCode": code, "version": 4} for n, code in ((1, "n1"), (2, "b"), (3, None))]
    where = "target.version <=> source.version - 3 or target.userCode <=> source.userCode and target.version % 2 = 1"
    report = bed.merge(task_of(bed.source(rows), when_not_matched=(), target_where=where))
    assert found(bed) == {
        1: ("a", 5, None),
        2: ("b", 4, {"city": "Lugo", "zip": 7}),
        3: (None, None, {"city": None, "zip": 3}),
    }
    assert (report.counts["rowsMatching"], report.counts["rowsUnmatched"]) == (1, 2)
    (stage,) = [stage for stage in report.funnel if stage.name == "TargetWhere"]
    assert "are judged by all of it" in stage.message


def test_fields_of_structs_are_changed_where_their_condition_holds(bed: MergeBed) -> None:
    clauses = (
        MergeClause(
            action=MergeAction.UPDATE,
            when="coalesce(target.place.city, 'none') like '%n%'",
            values={"place.city": "source.userCode", "version": "target.place.zip"},
        ),
        MergeClause(action=MergeAction.UPDATE, values={"place.zip": "target.place.zip + 1", "userCode": "default"}),
    )
    path = bed.source([{"id": n, "userCode": f"c{n}"} for n in (1, 2, 3)])
    bed.merge(task_of(path, when_matched=clauses, when_not_matched=(INSERT,)))
    assert found(bed) == {
        1: ("a", None, {"city": "c1", "zip": None}),
        2: (None, 1, {"city": "Lugo", "zip": 8}),
        3: (None, 3, {"city": "c3", "zip": 3}),
    }


def test_a_condition_that_fails_in_a_row_fails_the_merge(bed: MergeBed) -> None:
    path = bed.source([{"id": 1, "userCode": "c", "version": 0}])
    when = MergeClause(action=MergeAction.UPDATE, when="target.version % source.version = 1")
    with pytest.raises(BadData, match=r"'target\.version % source\.version' divides by zero in some row"):
        bed.merge(task_of(path, when_matched=(when,)))
    guarded = MergeClause(action=MergeAction.UPDATE, when="source.version != 0 and target.version % source.version = 1")
    bed.merge(task_of(path, when_matched=(guarded, UPDATE)))
    assert found(bed)[1][1] == 0
