"""How many files a driver rewrites at a time."""

from __future__ import annotations

import pytest
from skipstone.tasks.share import WAITING_BYTES, WAITING_WORKERS, rewriting_workers
from skipstone_core.contract.places import S3Ref
from skipstone_core.contract.requests import CatalogRef, CatalogType, JobRequest, RunKind, WarehouseRef
from skipstone_core.contract.spark import SparkRef

MIB = 1024 * 1024
BUCKET = S3Ref(bucket="lake", region="eu-central-1")


def request_with(cores: int, s3: S3Ref | None = BUCKET) -> JobRequest:
    """A merge whose driver has ``cores``."""
    return JobRequest(
        kind=RunKind.MERGE,
        run_id="r-1",
        attempt=1,
        warehouse=WarehouseRef(name="wh", root="" if s3 else "/w", catalog=CatalogRef(type=CatalogType.SQL), s3=s3),
        owner_kind="MergeJob",
        owner_name="m",
        owner_uid="u",
        txn="u",
        spark=SparkRef(driver_cores=cores),
    )


@pytest.mark.parametrize("held", [0, 1, MIB, WAITING_BYTES // WAITING_WORKERS])
def test_many_small_files_of_a_bucket_are_rewritten_at_a_time(held: int) -> None:
    assert rewriting_workers(request_with(1), on_read=False, held=held) == WAITING_WORKERS


@pytest.mark.parametrize(("held", "workers"), [(100 * MIB, 3), (200 * MIB, 1), (10_000 * MIB, 1)])
def test_large_files_are_rewritten_as_many_at_a_time_as_there_is_memory(held: int, workers: int) -> None:
    assert rewriting_workers(request_with(1), on_read=False, held=held) == workers


@pytest.mark.parametrize("held", [0, 10_000 * MIB])
def test_every_core_rewrites_a_file(held: int) -> None:
    assert rewriting_workers(request_with(16), on_read=False, held=held) == 16
    assert rewriting_workers(request_with(2), on_read=True, held=held) == 2
    assert rewriting_workers(request_with(2, s3=None), on_read=False, held=held) == 2
