"""Tables whose metadata lacks what Iceberg requires, as DuckDB's COPY writes them: read, changed, and complete then."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession
from skipstone.query import ReadOptions, read
from skipstone.tables.shaping.formats import require_mergeable
from skipstone.tables.states import table_state
from skipstone_core.contract.requests import MergeAction, MergeClause
from skipstone_core.reasons import Reason

from tests.spark.maintain_bed import MaintainBed, numbers
from tests.spark.merge_bed import rows_of, task_of
from tests.spark.secondengine import spark_rows

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "v", StringType(), required=False))
#: What DuckDB 1.5.5 leaves out, and more that PyIceberg has defaults for.
DUCKDB = ("last-sequence-number", "sort-orders")
LACKING = {
    "duckdb": (DUCKDB, {"sort-orders": [], "last-partition-id": 0}),
    "all": ((*DUCKDB, "last-partition-id", "default-sort-order-id", "refs", "properties", "metadata-log"), {}),
    "order": (("sort-orders",), {}),
    "partition id": (("last-partition-id",), {}),
}


def change_metadata(bed: MaintainBed, change: Callable[[dict[str, Any]], object]) -> None:
    """Rewrite the metadata file of the table in its place."""
    path = Path(bed.table().metadata_location.removeprefix("file://"))
    told = json.loads(path.read_text())
    change(told)
    path.write_text(json.dumps(told))


@pytest.fixture(params=LACKING)
def bed(tmp_path: Path, request: pytest.FixtureRequest) -> MaintainBed:
    """A table of two files whose metadata lacks something."""
    lacking, replaced = LACKING[request.param]
    bed = MaintainBed(tmp_path)
    bed.create(SCHEMA)
    bed.append(numbers(0, 50), numbers(50, 50))

    def change(told: dict[str, Any]) -> None:
        for name in lacking:
            del told[name]
        told.update(replaced)
        for snapshot in told["snapshots"] if "last-sequence-number" in lacking else ():
            snapshot["sequence-number"] = 0

    change_metadata(bed, change)
    return bed


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_such_a_table_is_merged_and_compacted_and_other_engines_open_it_then(
    bed: MaintainBed, mode: str, spark: SparkSession
) -> None:
    caveats = table_state(bed.catalog, bed.ref).state.caveats
    assert len(caveats) == 1 and "Spark and other engines" in caveats[0], caveats
    require_mergeable(bed.table())
    with bed.table().transaction() as transaction:
        transaction.set_properties({"write.merge.mode": mode})
    path = bed.source(
        [{"id": 7, "v": "new", "op": "U"}, {"id": 8, "v": "", "op": "D"}, {"id": 200, "v": "x", "op": "U"}]
    )
    delete = MergeClause(action=MergeAction.DELETE, when="source.op = 'D'")
    report = bed.merge(task_of(path, when_matched=(delete, MergeClause(action=MergeAction.UPDATE))))
    assert report.reason is Reason.COMMITTED, report.message
    left = [{"id": 7, "v": "new"} if row["id"] == 7 else row for row in numbers(0, 100) if row["id"] != 8]
    expected = sorted(repr(tuple(row.values())) for row in [*left, {"id": 200, "v": "x"}])
    assert bed.held() == expected
    assert rows_of(spark_rows(spark, bed.warehouse, "ns.t")) == expected
    step = bed.compact()
    assert step.is_done and step.reason is Reason.COMMITTED, step
    assert bed.held() == expected
    assert rows_of(spark_rows(spark, bed.warehouse, "ns.t")) == expected
    assert table_state(bed.catalog, bed.ref).state.caveats == ()


def test_a_snapshot_of_an_unknown_schema_is_read_in_that_of_the_table(tmp_path: Path) -> None:
    bed = MaintainBed(tmp_path)
    bed.create(SCHEMA)
    bed.append(numbers(0, 5))
    change_metadata(bed, lambda told: told["snapshots"][0].update({"schema-id": 9}))
    snapshot = bed.table().metadata.current_snapshot_id
    assert len(read(bed.table(), None, "id < 3", ReadOptions(snapshot_id=snapshot))) == 3


def test_a_partition_added_to_such_a_table_has_an_id_of_its_own(tmp_path: Path) -> None:
    bed = MaintainBed(tmp_path)
    bed.create(SCHEMA)
    change_metadata(bed, lambda told: told.update({"last-partition-id": 0, "sort-orders": []}))
    with bed.table().update_spec() as change:
        change.add_field("v", IdentityTransform(), "v")
    assert [field.field_id for field in bed.table().spec().fields] == [1000]
