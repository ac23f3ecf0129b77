"""Memory of a driver that rewrites files of a bucket at the same time, measured as peak RSS of a child process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from skipstone_core.contract.requests import RunKind

from tests.s3client import S3Client
from tests.spark.lake import append
from tests.spark.merge_bed import task_of
from tests.spark.postgres import Server, postgres
from tests.spark.s3_bed import S3Bed, pod
from tests.spark.test_reindex_memory import ALLOCATORS, MIB

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "text", StringType()))
CHILD = """
import sys
from pathlib import Path
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reporting.report import Reporter
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import JobRequest

request = JobRequest.from_json(Path(sys.argv[1]).read_text())
assert run_merge(request, Reporter(request)).outcome is RunOutcome.COMMITTED
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(int(status["VmHWM"].split()[0]) * 1024)
"""
#: What eight threads hold of this source is some 600 MiB more than what one does.
ROWS, TEXT_BYTES = 50_000, 1_100
ALLOWANCE = 200 * MIB


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres() as found, pod(found):
        yield found


@pytest.fixture
def source() -> pa.Table:
    """A change of every row."""
    letters = np.random.default_rng(7).integers(97, 123, (ROWS, TEXT_BYTES), dtype=np.uint8)
    text = pa.array(letters.view(f"S{TEXT_BYTES}").ravel()).cast(pa.string())
    return pa.table({"id": np.arange(ROWS), "text": text})


def peak_of_a_merge(bed: S3Bed, files: int, source: pa.Table, path: Path) -> int:
    """Peak RSS in bytes of a merge that rewrites all ``files``; every one needs the whole source."""
    table = bed.create(SCHEMA)
    for first in range(files):
        ids = np.arange(first, ROWS, files)
        rows = pa.table({"id": ids, "text": np.full(len(ids), "old")}, schema=SCHEMA.as_arrow())
        table = append(table, rows)
    bed.put("changes/c.parquet", source)
    path.write_text(bed.request(RunKind.MERGE, merge=task_of("changes")).to_json())
    command, environment = [sys.executable, "-c", CHILD, str(path)], {**os.environ, **ALLOCATORS}
    ended = subprocess.run(command, check=True, timeout=600, capture_output=True, text=True, env=environment)
    found = bed.table().scan().to_arrow()
    assert (found.num_rows, len(found["text"].unique())) == (ROWS, ROWS)
    bed.catalog.drop_table(bed.ref.identifier)
    return int(ended.stdout)


@pytest.mark.soak
def test_the_memory_of_a_merge_does_not_grow_with_the_files_that_it_rewrites(
    bucket: S3Client, server: Server, source: pa.Table, tmp_path: Path
) -> None:
    bed = S3Bed(bucket, server)
    one, many = (peak_of_a_merge(bed, files, source, tmp_path / "request.json") for files in (1, 8))
    assert many - one < ALLOWANCE, (one // MIB, many // MIB)
