"""Loads end to end: what is in the table afterwards, what the report says, and that it happens once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField, StringType
from pyspark.sql import SparkSession
from skipstone_core.jobs import RunOutcome
from skipstone_core.reasons import Reason

from tests.spark.load_bed import Bed, csv

PEOPLE = Schema(NestedField(1, "id", IntegerType(), required=True), NestedField(2, "name", StringType()))


@pytest.fixture
def bed(tmp_path: Path, spark: SparkSession) -> Bed:
    bed = Bed(tmp_path)
    bed.create(PEOPLE)
    return bed


def test_a_csv_file_becomes_one_segment(bed: Bed) -> None:
    report = bed.load(csv(bed.put("in/a.csv", "id,name\n1,Ann\n2,\n")))
    assert (report.outcome, report.reason) == (RunOutcome.COMMITTED, Reason.COMMITTED)
    assert report.counts == {"rowsLoaded": 2, "rowsRejected": 0, "segment": 1}
    assert bed.rows() == [{"id": 1, "name": "Ann"}, {"id": 2, "name": None}]
    assert report.table_states[0].segments.total == 1
    assert set(report.stages_ms) == {"session", "write", "commit"}
