"""Dry runs of merges: nothing is different afterwards, and the merge that follows does what the dry run said."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import TruncateTransform
from pyiceberg.types import DecimalType, LongType, NestedField, StringType
from skipstone.runs.merging.merge import run_dry
from skipstone.runs.reporting.report import Reporter
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import ConsumePolicy, MergeTask, RunKind, SourceFormat, SourceSpec
from skipstone_core.errors import BadData
from skipstone_core.funnel import FunnelStage
from skipstone_core.reasons import Reason
from skipstone_core.table_properties import MERGE_MODE, MergeMode

from tests.spark.merge_bed import ALL_IN_SPARK, DELETE_D, INSERT, UPDATE, MergeBed, task_of

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=True),
)
PRICED = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "price", DecimalType(2, 0)), NestedField(3, "name", StringType())
)
TENS = PartitionField(2, 1000, TruncateTransform(10), "price_trunc")
#: The number of tens below it needs three digits, which its type does not have.
UNPLACED = Decimal(-95)
#: Bytes of files that only a merge makes.
WRITTEN = ("bytesRewritten", "bytesInserted", "bytesDeletes")


def people(start: int, stop: int) -> list[dict[str, Any]]:
    return [{"id": i, "name": f"name {i}"} for i in range(start, stop)]


def made(root: Path, mode: MergeMode = MergeMode.COPY_ON_WRITE, version: str = "2", **more: Any) -> MergeBed:
    """A table of five files."""
    bed = MergeBed(root, **more)
    bed.create(SCHEMA, **{MERGE_MODE: mode, "format-version": version})
    bed.append(*(people(100 * i, 100 * (i + 1)) for i in range(5)))
    return bed


def dry(bed: MergeBed, task: MergeTask) -> JobReport:
    request = replace(bed.request(task), kind=RunKind.DRY_RUN, txn="")
    return run_dry(request, Reporter(request), bed.limits)


def everything(bed: MergeBed) -> dict[str, str]:
    """All files below the root with what is in them, the catalog's among them."""
    files = (path for path in bed.root.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def judged(funnel: tuple[FunnelStage, ...]) -> list[FunnelStage]:
    return [replace(stage, ms=0) for stage in funnel]


def changing(bed: MergeBed) -> MergeTask:
    """Changes that update, delete and insert rows, leave one file with no row, and are nothing to others."""
    ids = [5, 7, 90_000, 90_001, *range(300, 400)]
    ops = ["U", "D", "I", "I", *("D" for _ in range(100))]
    feed = pa.table({"id": pa.array(ids, pa.int64()), "name": [f"new {i}" for i in ids], "op": ops})
    return task_of(bed.source(feed), when_matched=(DELETE_D, UPDATE), when_not_matched=(INSERT,))


@pytest.mark.parametrize(
    ("mode", "more"),
    [
        pytest.param(MergeMode.COPY_ON_WRITE, {}, id="copy on write"),
        pytest.param(MergeMode.MERGE_ON_READ, {}, id="merge on read"),
        pytest.param(MergeMode.MERGE_ON_READ, {"version": "3"}, id="format version 3"),
        pytest.param(MergeMode.COPY_ON_WRITE, {"limits": ALL_IN_SPARK}, id="all in Spark"),
    ],
)
def test_nothing_is_written_and_the_merge_that_follows_does_what_was_said(
    tmp_path: Path, mode: MergeMode, more: dict[str, Any]
) -> None:
    bed = made(tmp_path, mode, **more)
    task = changing(bed)
    before = everything(bed)
    planned = dry(bed, task)
    assert everything(bed) == before
    assert (planned.outcome, planned.reason, planned.snapshot_id) == (RunOutcome.PLANNED, Reason.DRY_RUN, "")
    assert planned.table_states == ()
    names = ("filesTotal", "filesCandidate", "filesTouched", "rowsUpdated", "rowsDeleted", "rowsInserted")
    assert [planned.counts[name] for name in names] == [5, 2, 2, 1, 101, 2]
    merged = bed.merge(task)
    assert merged.outcome is RunOutcome.COMMITTED
    assert judged(planned.funnel) == judged(merged.funnel)
    assert dict(planned.counts) == {**merged.counts, **dict.fromkeys(WRITTEN, 0)}


def test_a_dry_run_consumes_no_file(tmp_path: Path) -> None:
    bed = made(tmp_path)
    path = bed.source(people(3, 6))
    source = SourceSpec(
        format=SourceFormat.PARQUET, paths=(path,), consume=ConsumePolicy.NEW, consumer="MergeSchedule lake/hourly"
    )
    task = task_of(path, source=source)
    assert dry(bed, task).counts["rowsUpdated"] == 3
    assert bed.merge(task).counts["rowsUpdated"] == 3
    again = dry(bed, task)
    assert (again.outcome, again.counts["rowsSource"], again.funnel) == (RunOutcome.PLANNED, 0, ())
    assert again.message.startswith("There are no new files")


def test_what_the_merge_would_refuse_the_dry_run_refuses_in_the_same_words(tmp_path: Path) -> None:
    bed = made(tmp_path)
    applied = task_of(bed.source(people(3, 6)))
    bed.merge(applied)
    planned, merged = dry(bed, applied), bed.merge(applied)
    assert (merged.outcome, merged.reason) == (RunOutcome.FAILED, Reason.SOURCE_ALREADY_APPLIED)
    assert (planned.outcome, planned.reason, planned.message) == (merged.outcome, merged.reason, merged.message)


def refused_alike(bed: MergeBed, task: MergeTask) -> str:
    """Why both the dry run, which leaves nothing, and the merge refuse the source."""
    before = everything(bed)
    with pytest.raises(BadData) as planned:
        dry(bed, task)
    assert everything(bed) == before
    with pytest.raises(BadData) as merged:
        bed.merge(task)
    assert str(planned.value) == str(merged.value)
    return str(planned.value)


@pytest.mark.parametrize("key", [pytest.param(5, id="updated"), pytest.param(90_000, id="inserted")])
def test_a_row_that_does_not_fit_is_found(tmp_path: Path, key: int) -> None:
    bed = made(tmp_path)
    feed = pa.table({"id": pa.array([key], pa.int64()), "name": pa.array([None], pa.string())})
    refused_alike(bed, task_of(bed.source(feed)))


@pytest.mark.parametrize("key", [pytest.param(1, id="updated"), pytest.param(9, id="inserted")])
@pytest.mark.parametrize("mode", MergeMode)
def test_a_row_that_no_partition_can_hold_is_found(tmp_path: Path, mode: MergeMode, key: int) -> None:
    bed = MergeBed(tmp_path)
    bed.create(PRICED, PartitionSpec(TENS), **{MERGE_MODE: mode})
    bed.append([{"id": n, "price": Decimal(n), "name": "old"} for n in range(5)])
    feed = pa.table({"id": [key], "price": pa.array([UNPLACED], pa.decimal128(2, 0)), "name": ["new"]})
    assert "a row has no partition" in refused_alike(bed, task_of(bed.source(feed)))


def test_a_row_that_stays_and_has_no_partition_in_a_new_file_is_found(tmp_path: Path) -> None:
    bed = MergeBed(tmp_path)
    bed.create(PRICED, UNPARTITIONED_PARTITION_SPEC)
    bed.append([{"id": n, "price": price, "name": "old"} for n, price in enumerate((Decimal(1), UNPLACED))])
    with bed.table().update_spec() as update:
        update.add_field("price", TENS.transform, TENS.name)
    assert "a row has no partition" in refused_alike(bed, task_of(bed.source([{"id": 0, "name": "new"}])))
