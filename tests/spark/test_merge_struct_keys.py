"""Keys that are fields of structs of the table: pruned by their own bounds, matched as DuckDB's MERGE does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField, StringType, StructType
from skipstone_core.contract.reports import JobReport
from skipstone_core.contract.requests import MergeAction, MergeClause
from skipstone_core.errors import BadSpec
from skipstone_core.reasons import Reason

from tests.spark.merge_bed import DELETE_D, UPDATE, MergeBed, duckdb_merge, task_of

CUSTOMER = StructType(NestedField(3, "id", LongType()), NestedField(4, "name", StringType()))
SCHEMA = Schema(NestedField(1, "customer", CUSTOMER), NestedField(2, "total", LongType()))
SOURCE = pa.schema(
    [
        ("cid", pa.int64()),
        ("op", pa.string()),
        ("total", pa.int64()),
        ("customer", pa.struct([("id", pa.int64()), ("name", pa.string())])),
    ]
)
KEYS = [("customer.id", "cid")]
CHANGES = pa.Table.from_pylist(
    [
        {"cid": 3, "op": "U", "total": 30, "customer": {"id": 3, "name": "c"}},
        {"cid": 12, "op": "D", "total": 0, "customer": None},
        {"cid": 40, "op": "U", "total": 40, "customer": {"id": 40, "name": "new"}},
        {"cid": None, "op": "U", "total": 50, "customer": None},
    ],
    SOURCE,
)
STATEMENT = """MERGE INTO t USING s ON t.customer.id = s.cid
WHEN MATCHED AND s.op = 'D' THEN DELETE WHEN MATCHED THEN UPDATE SET total = s.total, customer = s.customer
WHEN NOT MATCHED THEN INSERT (customer, total) VALUES (s.customer, s.total)"""


def filled(root: Path, spec: PartitionSpec | None = None) -> MergeBed:
    """Three files of ten customers each, one of them null and one without an id."""
    bed = MergeBed(root)
    bed.create(SCHEMA, **({"spec": spec} if spec else {}))  # type: ignore[arg-type]
    rows: list[dict[str, Any]] = [{"customer": {"id": n, "name": f"n{n}"}, "total": n} for n in range(30)]
    rows[5]["customer"], rows[15]["customer"] = None, {"id": None, "name": "x"}
    bed.append(rows[:10], rows[10:20], rows[20:])
    return bed


def stage(report: JobReport, name: str) -> tuple[int, int]:
    return next((found.files_in, found.files_out) for found in report.funnel if found.name == name)


def test_the_rows_are_those_of_duckdb_and_files_without_a_key_are_not_read(tmp_path: Path) -> None:
    bed = filled(tmp_path)
    expected = duckdb_merge(bed.table().scan().to_arrow(), CHANGES, STATEMENT)
    report = bed.merge(task_of(bed.source(CHANGES), KEYS, when_matched=(DELETE_D, UPDATE)))
    assert bed.rows() == expected
    assert stage(report, "KeyRanges") == (3, 2)
    assert (report.counts["rowsUpdated"], report.counts["rowsDeleted"], report.counts["rowsInserted"]) == (1, 1, 2)


def test_partitions_by_a_field_leave_files_out(tmp_path: Path) -> None:
    spec = PartitionSpec(PartitionField(3, 1000, BucketTransform(16), "bucket"))
    bed = filled(tmp_path, spec)
    expected = duckdb_merge(bed.table().scan().to_arrow(), CHANGES, STATEMENT)
    report = bed.merge(task_of(bed.source(CHANGES), KEYS, when_matched=(DELETE_D, UPDATE)))
    assert bed.rows() == expected
    before, after = stage(report, "Partitions")
    assert after < before


def test_a_new_row_without_its_key_is_refused_with_a_way_out(tmp_path: Path) -> None:
    bed = filled(tmp_path)
    path = bed.source(CHANGES.drop_columns(["customer"]))
    with pytest.raises(
        BadSpec, match="nothing feeds 'customer', so new rows would not have their key: assign"
    ) as error:
        bed.merge(task_of(path, KEYS, when_matched=(DELETE_D,)))
    assert error.value.reason == Reason.SOURCE_COLUMN_MISSING
    insert = MergeClause(action=MergeAction.INSERT, values={"customer": "source.customer", "total": "source.total"})
    bed.merge(task_of(bed.source(CHANGES, "whole"), KEYS, when_matched=(DELETE_D,), when_not_matched=(insert,)))
    assert any("new" in row for row in bed.rows())


def test_where_changes_lack_columns_keys_are_columns(tmp_path: Path) -> None:
    bed = filled(tmp_path)
    present = MergeClause(action=MergeAction.UPDATE, present=True)
    with pytest.raises(BadSpec, match="with columns Present keys are columns: pair columns"):
        bed.merge(task_of(bed.source(CHANGES), KEYS, when_matched=(present,), sequence_by="total"))
