"""Maintenance of a table in a bucket goes as in a directory, and who may not write there is told what to give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from skipstone.causes import find_cause
from skipstone.compat.avro.whole import NotWholeError
from skipstone.runs.maintaining.maintain import run_maintain
from skipstone.runs.reporting.report import Reporter
from skipstone.storage.opening import open_storage
from skipstone.tables.filesets import read_file_set
from skipstone.tables.sharing.reach import read_reach
from skipstone.tables.storage import forget_content, plain_location
from skipstone_core.contract.reports import JobReport
from skipstone_core.contract.requests import MaintainTask, Management, RunKind, SourceFormat, SourceSpec
from skipstone_core.maintenance.policies import (
    CompactionPolicy,
    MaintenancePolicy,
    MaintenanceStep,
    OrphanFilesAction,
    OrphanFilesPolicy,
    SnapshotPolicy,
)
from skipstone_core.reasons import Reason

from tests.s3client import S3Client
from tests.s3proxy import Refusal, s3_proxy
from tests.spark.postgres import Server, postgres
from tests.spark.s3_bed import S3Bed, pod, rows
from tests.spark.upkeep_bed import later

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
POLICY = MaintenancePolicy(
    compaction=CompactionPolicy(min_input_files=2),
    snapshots=SnapshotPolicy(max_age_seconds=60, min_to_keep=1),
    orphan_files=OrphanFilesPolicy(action=OrphanFilesAction.DELETE, older_than_seconds=3600),
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres() as found, pod(found):
        yield found


def filled(bucket: S3Client, server: Server) -> S3Bed:
    """A table of three small files, each loaded by a job."""
    bed = S3Bed(bucket, server)
    bed.create(SCHEMA)
    for number in range(3):
        bed.put(f"in/{number}.parquet", pa.table({"id": [number], "name": [f"n{number}"]}))
        bed.load(SourceSpec(format=SourceFormat.PARQUET, paths=(f"in/{number}.parquet",)))
    return bed


def maintain(bed: S3Bed, number: int, *steps: MaintenanceStep) -> JobReport:
    """Run ``number``, a day later."""
    request = bed.request(
        RunKind.MAINTAIN, bed.ref.uid, number, maintain=MaintainTask(policy=POLICY, steps=steps or (*MaintenanceStep,))
    )
    return run_maintain(replace(request, txn=""), Reporter(request), later())


def test_all_steps_leave_what_the_table_reaches_and_nothing_else(bucket: S3Client, server: Server) -> None:
    bed = filled(bucket, server)
    base = bed.table().location().partition(f"{bucket.bucket}/")[2].removeprefix("prod/lake/")
    planted = [bed.put(f"{base}/{path}", b"left") for path in ("data/left.parquet", "metadata/left.avro", "elsewhere")]
    first = {step.step: step for step in maintain(bed, 1).steps}
    assert all(step.is_done for step in first.values()), first
    assert first[MaintenanceStep.COMPACTION].counts["filesRewritten"] == 3
    # The third was replaced by the compaction a moment ago.
    assert first[MaintenanceStep.SNAPSHOTS].counts["snapshotsExpired"] == 2
    assert first[MaintenanceStep.ORPHAN_FILES].counts["filesFound"] == len(planted), first
    assert set(planted) <= set(bed.objects())
    second = {step.step: step for step in maintain(bed, 2).steps}
    assert second[MaintenanceStep.ORPHAN_FILES].counts["filesDeleted"] == len(planted)
    assert bed.rows() == rows([{"id": number, "name": f"n{number}"} for number in range(3)])
    storage = open_storage(bed.warehouse)
    there = [entry.path for entry in storage.entries(bed.objects()) if entry]  # but for what marks a folder
    below = {path for path in there if path.startswith(f"{base}/")}
    reached = {plain_location(path).partition("prod/lake/")[2] for path in read_reach(bed.table()).paths()}
    assert below == reached
    assert {path for path in bed.objects() if path.startswith("in/")} == {f"in/{number}.parquet" for number in range(3)}


def test_a_list_that_was_damaged_is_read_again_once_it_is_restored(bucket: S3Client, server: Server) -> None:
    table = filled(bucket, server).table()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    key = snapshot.manifest_list.removeprefix(f"s3://{bucket.bucket}/")
    whole = bucket.send("GET", key).content
    forget_content(snapshot.manifest_list)  # as a process that did not write it
    bucket.send("PUT", key, whole[:-1])
    for _ in range(2):
        with pytest.raises(NotWholeError, match="restore the file"):
            read_file_set(table)
    bucket.send("PUT", key, whole)
    assert len(read_file_set(table)) == 3


def test_who_may_not_write_an_observed_table_is_told_what_to_give(bucket: S3Client, server: Server) -> None:
    with s3_proxy(bucket.endpoint) as proxy:
        bed = filled(replace(bucket, endpoint=proxy.endpoint), server)
        request = bed.request(
            RunKind.MAINTAIN, maintain=MaintainTask(policy=POLICY, steps=(MaintenanceStep.COMPACTION,))
        )
        assert request.table is not None
        observed = replace(request, txn="", table=replace(request.table, management=Management.OBSERVED))
        before = bed.table().metadata_location
        proxy.choose = lambda kind, path: Refusal.DENIED if kind == "PUT" and "/data/" in path else None
        with pytest.raises(OSError, match="ACCESS_DENIED") as raised:
            run_maintain(observed, Reporter(observed), later())
        told = find_cause(raised.value)
        assert told is not None
        assert told.reason is Reason.STORAGE_UNAVAILABLE
        assert "ACCESS_DENIED to PutObject: give the credentials" in told.message
        proxy.choose = lambda kind, path: None
        assert bed.table().metadata_location == before
        assert len(bed.rows()) == 3
        bed.catalog.close()
