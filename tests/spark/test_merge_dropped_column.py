"""Merges into tables with files under an old partition spec whose source column was dropped."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from skipstone_core.contract.reports import RunOutcome

from tests.spark.merge_bed import MergeBed, task_of

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", LongType()), NestedField(3, "p", StringType()))
BY_P = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "p"))


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_merge_changes_rows_of_old_and_new_files(tmp_path: Path, mode: str) -> None:
    bed = MergeBed(tmp_path)
    bed.create(SCHEMA, BY_P, **{"write.merge.mode": mode})
    bed.append([{"id": key, "v": 0, "p": f"p{key % 2}"} for key in range(10)])
    with bed.table().update_spec() as change:
        change.remove_field("p")
    with bed.table().update_schema(allow_incompatible_changes=True) as schema:
        schema.delete_column("p")
    bed.append([{"id": key, "v": 0} for key in range(10, 14)])
    for value in (1, 2):
        report = bed.merge(task_of(bed.source([{"id": key, "v": value} for key in (1, 11, 20 + value)])))
        assert report.outcome is RunOutcome.COMMITTED
    found = {row["id"]: row["v"] for row in bed.table().scan().to_arrow().to_pylist()}
    changed = {1: 2, 11: 2, 21: 1, 22: 2}
    assert found == dict.fromkeys(range(14), 0) | changed
    bed.catalog.close()
