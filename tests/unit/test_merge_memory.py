"""Memory of a merge is that of its buffers, not of the file: measured as peak RSS of a child process.

The two cases take turns in `make test`; `make soak-merge` has the other one.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from skipstone.files.reader import describe_files
from skipstone.files.writer import write_spec
from skipstone.kernels.changes import SlicePart, SortRule, write_slice
from skipstone.kernels.merging import FileWork, MergeWork
from skipstone.runs.merging.source import target_schema
from skipstone.tables.filesets import read_file_set
from skipstone_core.contract.requests import MergeAction, MergeClause, MergeKey, MergeTask, SourceFormat, SourceSpec
from skipstone_core.keys import key_type
from skipstone_core.merging.merges import plan_merge

from tests.examples import turn
from tests.spark.index_bed import Lake

MIB = 1024 * 1024
SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string()), pa.field("w", pa.string())])
VALUE_BYTES = 60
ROWS = 150_000
#: Seven times the rows are some 110 MiB more of values, and 10 MiB more of what matches.
GROWTH, ALLOWANCE = 7, 64 * MIB
#: What a task holds of long texts: pieces that are read and put together, and a row group that is written.
LONG_ALLOWANCE = 320 * MIB
ROW_GROUP_BYTES = 4 * MIB
#: What is freed goes back to the system at once, so that the peak is what the run held and not what allocators keep.
ALLOCATORS = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
}
CHILD = """
import json, pickle, sys
from pathlib import Path
from skipstone.kernels.merging import merge_files

result = merge_files(pickle.loads(Path(sys.argv[1]).read_bytes()), "task")
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(json.dumps({"peak": int(status["VmHWM"].split()[0]) * 1024, "updated": result.files[0].rows_updated}))
"""


def rows_of(start: int, count: int) -> pa.Table:
    letters = np.random.default_rng(start).integers(97, 123, (2 * count, VALUE_BYTES), dtype=np.uint8)
    texts = pa.array(letters.view(f"S{VALUE_BYTES}").ravel()).cast(pa.string())
    numbers = np.arange(start, start + count)
    return pa.table({"k": numbers, "v": texts.slice(0, count), "w": texts.slice(count)}, schema=SCHEMA)


def work_of(root: Path, rows: int, group_rows: int, changed: int) -> MergeWork:
    """A merge that changes every ``changed``-th row of a file of ``rows`` rows."""
    root.mkdir()
    lake = Lake(root)
    table = lake.create(SCHEMA, properties={"write.parquet.row-group-limit": str(group_rows)})
    table.append(rows_of(0, rows))
    with table.transaction() as change:
        change.set_properties({"write.parquet.row-group-size-bytes": str(ROW_GROUP_BYTES)})
    task = MergeTask(
        source=SourceSpec(format=SourceFormat.PARQUET, paths=("feed",)),
        keys=(MergeKey(target="k", source="k"),),
        when_matched=(MergeClause(action=MergeAction.UPDATE),),
    )
    files = read_file_set(table)
    columns = target_schema(files.schema)
    plan = plan_merge(task, columns, columns)
    feed = pa.table({"k": np.arange(0, rows, changed), "v": pa.repeat("new", len(range(0, rows, changed)))})
    feed = feed.append_column("w", pa.nulls(feed.num_rows, pa.string()))
    rule = SortRule(plan.keys, None, {one.name: kind for one in columns if (kind := key_type(one.type))})
    one = write_slice(feed, rule, str(root / "slice.parquet"))
    (file,) = describe_files(table, files, [0])
    part = FileWork(file, (SlicePart(0, 0, one.keyed),))
    return MergeWork(plan=plan, write=write_spec(table, "run"), slices=(one,), files=(part,))


def peak_of(root: Path, rows: int, group_rows: int, changed: int) -> int:
    """Peak RSS in bytes of a merge into one file."""
    return measured(root, work_of(root, rows, group_rows, changed), rows, len(range(0, rows, changed)))


def measured(root: Path, work: MergeWork, rows: int, updated: int) -> int:
    """Peak RSS in bytes of ``work``, which updates rows of one file of so many ``rows``."""
    (root / "work").write_bytes(pickle.dumps(work))
    command = [sys.executable, "-c", CHILD, str(root / "work")]
    environment = {**os.environ, **ALLOCATORS}
    ended = subprocess.run(command, check=True, timeout=800, capture_output=True, text=True, env=environment)
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["updated"] == updated
    written = [path for path in root.rglob("*run-task*.parquet") if pq.read_metadata(path).num_rows == rows]
    assert len(written) == 1
    return int(found["peak"])


def work_with_long_texts(root: Path, rows: int, length: int) -> MergeWork:
    """A merge that gives each of some rows a text of its own, of so many bytes, in slices of 4,096 rows."""
    root.mkdir()
    table = Lake(root).create(SCHEMA)
    table.append(rows_of(0, rows))
    task = MergeTask(
        source=SourceSpec(format=SourceFormat.PARQUET, paths=("feed",)),
        keys=(MergeKey(target="k", source="k"),),
        when_matched=(MergeClause(action=MergeAction.UPDATE),),
    )
    files = read_file_set(table)
    columns = target_schema(files.schema)
    plan = plan_merge(task, columns, columns)
    rule = SortRule(plan.keys, None, {one.name: kind for one in columns if (kind := key_type(one.type))})
    slices = []
    for start in range(0, rows, 4_096):
        numbers = range(start, min(start + 4_096, rows))
        texts = [f"{number:08}".ljust(length, "x") for number in numbers]
        feed = pa.table({"k": pa.array(numbers, pa.int64()), "v": texts, "w": pa.repeat("w", len(numbers))})
        slices.append(replace(write_slice(feed, rule, str(root / f"slice-{start}.parquet")), base=start))
    (file,) = describe_files(table, files, [0])
    parts = tuple(SlicePart(number, 0, one.keyed) for number, one in enumerate(slices))
    return MergeWork(plan=plan, write=write_spec(table, "run"), slices=tuple(slices), files=(FileWork(file, parts),))


def test_the_memory_of_a_merge_does_not_grow_with_the_long_texts_of_its_source(tmp_path: Path) -> None:
    """256 MiB of texts, each of one row."""
    rows = 16_384
    short, long = (work_with_long_texts(tmp_path / str(length), rows, length) for length in (100, 16_384))
    base, found = measured(tmp_path / "100", short, rows, rows), measured(tmp_path / "16384", long, rows, rows)
    print(f"peak RSS with short texts: {base // MIB} MiB, with long ones: {found // MIB} MiB")
    assert found - base < LONG_ALLOWANCE
    (written,) = (tmp_path / "16384").rglob("*run-task*.parquet")
    for batch in pq.ParquetFile(written).iter_batches(1_024, columns=["k", "v"]):
        assert batch["v"].to_pylist() == [f"{number:08}".ljust(16_384, "x") for number in batch["k"].to_pylist()]


def row_groups() -> list[Any]:
    """How many rows a row group has; what only a soak takes is marked."""
    found = {10**9: "one row group", 20_000: "many row groups"}
    now = list(found)[turn(len(found))]
    return [
        pytest.param(count, marks=[] if count == now else [pytest.mark.soak], id=said) for count, said in found.items()
    ]


@pytest.mark.parametrize("group_rows", row_groups())
def test_the_memory_of_a_merge_does_not_grow_with_the_file(tmp_path: Path, group_rows: int) -> None:
    small = peak_of(tmp_path / "small", ROWS, group_rows, 1_000)
    large = peak_of(tmp_path / "large", GROWTH * ROWS, group_rows, 7_000)
    print(f"peak RSS of {ROWS} rows: {small // MIB} MiB, of {GROWTH * ROWS} rows: {large // MIB} MiB")
    assert large - small < ALLOWANCE
