"""Memory of builds and merges is that of the buffers, not of the segment: measured as peak RSS of a child process.

The two cases take turns in `make test`; `make soak-query` has the other one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.examples import turn
from tests.spark.index_bed import Lake, index_on

SCHEMA = pa.schema([pa.field("k", pa.string()), pa.field("v", pa.int64())])
K = index_on("k")
KEY_BYTES = 60
MIB = 1024 * 1024
#: Enough for a small run to fill its buffers and to merge what it wrote.
ROWS = 480_000
#: Four times the rows are some 120 MiB more of entries.
GROWTH, ALLOWANCE = 4, 32 * MIB
#: What is freed goes back to the system at once, so that the peak is what the run held and not what allocators keep.
ALLOCATORS = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
}

CHILD = """
import json, sys
from pathlib import Path
from skipstone.runs import reindex
from skipstone.runs.reporting.report import Reporter
from skipstone.tasks.share import DriverShare
from skipstone_core.contract.requests import JobRequest

reindex.BUFFER_BYTES = 4 * 1024 * 1024
request = JobRequest.from_json(Path(sys.argv[1]).read_text())
report = reindex.run_reindex(request, Reporter(request), share=DriverShare(indexed_rows=10**9))
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(json.dumps({"peak": int(status["VmHWM"].split()[0]) * 1024, "entries": report.counts["entries"]}))
"""


def keys(rng: np.random.Generator, count: int) -> pa.Table:
    letters = rng.integers(97, 123, (count, KEY_BYTES), dtype=np.uint8)
    column = pa.array(letters.view(f"S{KEY_BYTES}").ravel()).cast(pa.string())
    return pa.table({"k": column, "v": np.arange(count)}, schema=SCHEMA)


def peak_of_a_run(root: Path, segments: int, rows: int) -> int:
    """Peak RSS in bytes of a reindex of a table with ``segments`` of one file of one row group each."""
    root.mkdir()
    lake = Lake(root)
    table = lake.create(SCHEMA, properties={"write.parquet.row-group-limit": str(10 * rows)})
    rng = np.random.default_rng(7)
    for _ in range(segments):
        table.append(keys(rng, rows))
    (root / "request.json").write_text(lake.request(K).to_json())
    command = [sys.executable, "-c", CHILD, str(root / "request.json")]
    environment = {**os.environ, **ALLOCATORS}
    ended = subprocess.run(command, check=True, timeout=800, capture_output=True, text=True, env=environment)
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["entries"] == segments * rows
    assert lake.state(K).segments_missing == 0
    return int(found["peak"])


def sizes() -> list[Any]:
    """How many segments a table has; what only a soak takes is marked."""
    found = {1: "one large segment", 8: "eight segments that are merged"}
    now = list(found)[turn(len(found))]
    return [
        pytest.param(count, marks=[] if count == now else [pytest.mark.soak], id=said) for count, said in found.items()
    ]


@pytest.mark.parametrize("segments", sizes())
def test_the_memory_of_a_run_does_not_grow_with_the_segment(tmp_path: Path, segments: int) -> None:
    small = peak_of_a_run(tmp_path / "small", segments, ROWS // segments)
    large = peak_of_a_run(tmp_path / "large", segments, GROWTH * ROWS // segments)
    print(f"peak RSS of {ROWS} rows: {small // MIB} MiB, of {GROWTH * ROWS} rows: {large // MIB} MiB")
    assert large - small < ALLOWANCE
