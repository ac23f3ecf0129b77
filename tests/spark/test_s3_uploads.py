"""Uploads by parts that killed attempts left in a bucket: the next attempt aborts them, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField
from skipstone.indexes.tables import index_identifier
from skipstone.runs.load import run_load
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reindex import run_reindex
from skipstone.runs.reporting.report import Reporter
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import LoadTask, ReindexTask, RunKind, SourceFormat, SourceSpec

from tests.s3client import S3Client, values
from tests.s3proxy import Proxy, Refusal, s3_proxy
from tests.spark.index_bed import index_on
from tests.spark.merge_bed import task_of
from tests.spark.postgres import Server, postgres
from tests.spark.s3_bed import S3Bed, pod, rows

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True))
ONE, OTHER = pa.table({"id": [1]}), pa.table({"id": [2]})
LOAD = SourceSpec(format=SourceFormat.PARQUET, paths=("in",))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres() as found, pod(found):
        yield found


@pytest.fixture
def bed(bucket: S3Client, server: Server) -> S3Bed:
    made = S3Bed(bucket, server)
    made.create(SCHEMA)
    return made


@pytest.fixture
def behind(bucket: S3Client, server: Server) -> Iterator[tuple[S3Bed, Proxy]]:
    """A table in a bucket behind a proxy."""
    with s3_proxy(bucket.endpoint) as proxy:
        bed = S3Bed(replace(bucket, endpoint=proxy.endpoint), server)
        bed.create(SCHEMA)
        yield bed, proxy
        bed.catalog.close()


@pytest.fixture
def uploads(bed: S3Bed) -> Uploads:
    return Uploads(bed)


@dataclass
class Uploads:
    """Uploads by parts below the table and its index that were begun and are not finished."""

    bed: S3Bed

    def begin(self, location: str, *names: str) -> None:
        """Begin to write data files of a table."""
        folder = location.removeprefix(f"s3://{self.bed.bucket.bucket}/")
        for name in names:
            assert self.bed.bucket.send("POST", f"{folder}/data/{name}", uploads="").ok

    @property
    def names(self) -> list[str]:
        """Of the files that they are for."""
        keys = values(self.bed.bucket.send("GET", uploads=""), "Key")
        return sorted(key.rpartition("/")[2] for key in keys)


#: Files of an attempt that is not the last one, and of everybody else: a later attempt, another job, another program.
OF_EARLIER = ("77777777-cafe-1-0-00000.parquet", "77777777-f00d-2-merge-7-00001.parquet")
OF_OTHERS = ("00000-1-other.parquet", "77777777-cafe-3-0-00000.parquet", "88888888-cafe-1-0-00000.parquet")


@pytest.mark.parametrize("kind", [RunKind.LOAD, RunKind.MERGE, RunKind.REINDEX])
def test_the_next_attempt_aborts_the_uploads_of_a_killed_one(bed: S3Bed, uploads: Uploads, kind: RunKind) -> None:
    bed.put("in/a.parquet", ONE)
    if kind is RunKind.REINDEX:
        run_of(bed, kind, attempt=1)
        bed.put("in/a.parquet", OTHER)
    uploads.begin(written_by(bed, kind).location(), *OF_EARLIER, *OF_OTHERS)
    run_of(bed, kind, attempt=3)
    assert uploads.names == sorted(OF_OTHERS)


@pytest.mark.parametrize("refused", ["?uploads", "uploadId="])
def test_uploads_that_cannot_be_aborted_end_no_run(
    behind: tuple[S3Bed, Proxy], refused: str, caplog: pytest.LogCaptureFixture
) -> None:
    bed, proxy = behind
    uploads = Uploads(bed)
    bed.put("in/a.parquet", ONE)
    uploads.begin(bed.table().location(), *OF_EARLIER)
    proxy.choose = lambda _, path: Refusal.DENIED if refused in path else None
    run_of(bed, RunKind.LOAD, attempt=3)
    proxy.forget()
    assert bed.rows() == rows(ONE)
    assert uploads.names == sorted(OF_EARLIER)
    assert "allow s3:ListBucketMultipartUploads and s3:AbortMultipartUpload (AccessDenied)" in caplog.text


@pytest.mark.soak
def test_more_uploads_are_aborted_than_a_page_of_the_list_has(bed: S3Bed, uploads: Uploads) -> None:
    bed.put("in/a.parquet", ONE)
    others = ["000-other", "77777777-cafe-1.txt", "zzz-other"]
    begun = [*others, *(f"77777777-cafe-1-0-{number:05}.parquet" for number in range(1003))]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: uploads.begin(bed.table().location(), name), begun))
    run_of(bed, RunKind.LOAD, attempt=2)
    assert uploads.names == others


def test_names_are_taken_as_they_are(bed: S3Bed, uploads: Uploads) -> None:
    bed.put("in/a.parquet", ONE)
    partitions = ("p=a+b%2Fc", "p=a b", "p=é&<x>'")
    uploads.begin(bed.table().location(), *(f"{one}/77777777-cafe-1-0-00000.parquet" for one in partitions))
    run_of(bed, RunKind.LOAD, attempt=2)
    assert uploads.names == []


def test_uploads_of_one_file_are_all_aborted(bed: S3Bed, uploads: Uploads) -> None:
    """A request whose answer is lost is sent again, and begins another one."""
    bed.put("in/a.parquet", ONE)
    uploads.begin(bed.table().location(), *["77777777-cafe-1-0-00000.parquet"] * 3)
    run_of(bed, RunKind.LOAD, attempt=2)
    assert uploads.names == []


def test_an_upload_that_is_gone_meanwhile_keeps_no_other_one(
    behind: tuple[S3Bed, Proxy], caplog: pytest.LogCaptureFixture
) -> None:
    """A lifecycle rule of the bucket aborts it just before."""
    bed, proxy = behind
    uploads = Uploads(bed)
    bed.put("in/a.parquet", ONE)
    uploads.begin(bed.table().location(), *(f"77777777-cafe-1-0-0000{number}.parquet" for number in range(3)))
    direct = replace(bed.bucket, endpoint=proxy.target)

    def choose(kind: str, path: str) -> None:
        upload = parse_qs(urlsplit(path).query).get("uploadId")
        if kind == "DELETE" and upload and path.partition("?")[0].endswith("00.parquet"):
            key = unquote(urlsplit(path).path).removeprefix(f"/{direct.bucket}/")
            assert direct.send("DELETE", key, uploadId=upload[0]).ok

    proxy.choose = choose
    run_of(bed, RunKind.LOAD, attempt=2)
    proxy.choose = None
    assert uploads.names == []
    assert "are not aborted" not in caplog.text


@pytest.mark.parametrize("folder", ["", "elsewhere", "a b+c/é"])
def test_data_files_may_have_a_place_of_their_own(bed: S3Bed, uploads: Uploads, folder: str) -> None:
    """The root of the bucket, too."""
    bed.put("in/a.parquet", ONE)
    with bed.table().transaction() as change:
        change.set_properties({"write.data.path": f"s3://{bed.bucket.bucket}/{folder}"})
    below = f"{folder}/" if folder else ""
    assert bed.bucket.send("POST", f"{below}{OF_EARLIER[0]}", uploads="").ok
    assert bed.bucket.send("POST", f"{below}{OF_OTHERS[0]}", uploads="").ok
    run_of(bed, RunKind.LOAD, attempt=3)
    assert uploads.names == [OF_OTHERS[0]]


def run_of(bed: S3Bed, kind: RunKind, attempt: int) -> None:
    """A whole run of an owner, over what is in ``in/``."""
    index = index_on("id")
    tasks = {
        RunKind.LOAD: {"load": LoadTask(source=LOAD)},
        RunKind.MERGE: {"merge": task_of("in")},
        RunKind.REINDEX: {"reindex": ReindexTask(index=index), "indexes": (index,)},
    }
    runs = {RunKind.LOAD: run_load, RunKind.MERGE: run_merge, RunKind.REINDEX: run_reindex}
    if kind is RunKind.REINDEX:
        bed.load(LOAD)
    request = bed.request(kind, "77777777-0000-0000-0000-000000000000", attempt, **tasks[kind])
    report = runs[kind](request, Reporter(request))
    assert report.outcome is RunOutcome.COMMITTED, report


def written_by(bed: S3Bed, kind: RunKind) -> Table:
    """The table that such runs write to."""
    if kind is not RunKind.REINDEX:
        return bed.table()
    return bed.catalog.load_table(index_identifier(bed.warehouse, bed.ref, index_on("id")))
