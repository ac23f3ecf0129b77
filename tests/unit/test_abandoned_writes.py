"""Files that a failed attempt began in a bucket: nothing of them appears later, and no upload is left."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import BinaryType, NestedField
from skipstone.files.writer import DataFileWriter, WriteSpec
from skipstone.tables.storage import FileAccess

from tests.s3client import S3Client, values
from tests.s3proxy import Proxy, Refusal, s3_proxy
from tests.s3server import OWNER
from tests.storages import credentials

SCHEMA = Schema(NestedField(1, "content", BinaryType()))
#: Of values that nothing compresses: a file that is sent by one request, and one that is sent in parts.
SMALL, LARGE = 1_000, 12_000_000


@pytest.fixture
def proxy(bucket: S3Client) -> Iterator[Proxy]:
    with s3_proxy(bucket.endpoint) as running:
        yield running


@pytest.fixture
def writer(bucket: S3Client, proxy: Proxy) -> Iterator[DataFileWriter]:
    """A writer into ``bucket`` through ``proxy``, which writes down at once what it takes."""
    spec = WriteSpec(
        schema_json=SCHEMA.model_dump_json(),
        spec_json=PartitionSpec().model_dump_json(),
        sort_json=SortOrder().model_dump_json(),
        location=f"s3://{bucket.bucket}/data",
        run_id="run",
        target_file_bytes=1 << 29,
        row_group_bytes=1,
        row_group_rows=1 << 20,
        codec="zstd",
        access=FileAccess((("s3.endpoint", proxy.endpoint), ("s3.region", bucket.region))),
    )
    with credentials(OWNER):
        yield DataFileWriter(spec, "0")


def left(bucket: S3Client) -> tuple[list[str], list[str]]:
    """Objects, and uploads that did not end, once nobody holds an open file any more."""
    gc.collect()
    objects = values(bucket.send("GET", list_type="2"), "Key")
    # Arrow keeps the folder of what it deletes
    return [key for key in objects if not key.endswith("/")], values(bucket.send("GET", uploads=""), "UploadId")


def rows(size: int) -> pa.Table:
    return pa.table({"content": [os.urandom(size)]})


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("is_spliced", [False, True])
def test_nothing_is_left_of_a_file_that_was_not_finished(
    bucket: S3Client, writer: DataFileWriter, size: int, is_spliced: bool
) -> None:
    if is_spliced:
        file = writer.splice(())
        file.append(file.encode(writer.conform(rows(size))))
    else:
        writer.write(rows(size))
    writer.abort()
    del writer
    assert left(bucket) == ([], [])


def test_nothing_appears_later_when_the_bucket_refuses_what_ends_a_file(
    bucket: S3Client, proxy: Proxy, writer: DataFileWriter
) -> None:
    writer.write(rows(SMALL))
    proxy.choose = lambda *_: Refusal.EXPIRED
    writer.abort()
    proxy.forget()
    del writer
    assert left(bucket) == ([], [])
