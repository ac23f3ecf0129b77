"""Texts that a data file has in small dictionaries stay in them when it is merged; rows and statistics are as ever."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, LongType, NestedField, StringType
from skipstone.files.reader import describe_files
from skipstone.files.writer import WrittenFile, write_spec
from skipstone.kernels.changes import SlicePart, SortRule, sorted_slice
from skipstone.kernels.merging import FileWork, MergeWork, WorkResult, merge_files
from skipstone.runs.merging.source import target_schema
from skipstone.tables.filesets import read_file_set
from skipstone_core.contract.requests import MergeAction, MergeClause, MergeKey, MergeTask, SourceFormat, SourceSpec
from skipstone_core.keys import key_type
from skipstone_core.merging.merges import plan_merge

from tests.examples import cases
from tests.spark.index_bed import Lake

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "way", StringType()),
    NestedField(3, "code", BinaryType()),
    NestedField(4, "note", StringType()),
)
ARROW = pa.schema([
    pa.field("id", pa.int64(), nullable=False), pa.field("way", pa.string()),
    pa.field("code", pa.binary()), pa.field("note", pa.string()),
])  # fmt: skip
ROWS = 1_200
WAYS = (None, "AIR", "MAIL", "RAIL", "SHIP", "TRUCK", "", "é" * 20)
PROPERTIES: list[dict[str, str]] = [
    {},
    {"write.parquet.dict-size-bytes": "16"},
    {"write.parquet.row-group-limit": "100"},
    {"write.parquet.bloom-filter-enabled.column.way": "true"},
    {"write.metadata.metrics.default": "full"},
]


def rows_of(ids: np.ndarray, ways: list[str | None], numbers: np.ndarray) -> pa.Table:
    """Rows whose ways, and codes, are few; each note is another."""
    chosen = [ways[number % len(ways)] for number in numbers]
    codes = [None if way is None else way.encode()[:2] for way in chosen]
    columns = [pa.array(ids), pa.array(chosen, pa.string()), pa.array(codes, pa.binary())]
    notes = [f"{number}-{way}" for number, way in zip(ids, chosen, strict=True)]
    return pa.Table.from_arrays([*columns, pa.array(notes)], schema=ARROW)


@dataclass(frozen=True)
class Drawn:
    """A merge. ``ways``: of the rows before it; ``new``: of the changes, which ``share`` of the rows have."""

    ways: list[str | None]
    new: list[str | None]
    share: float
    seed: int
    group: int
    properties: dict[str, str]
    threads: int

    def rows(self) -> tuple[pa.Table, pa.Table]:
        """The rows before, and the changes."""
        chance = np.random.default_rng(self.seed)
        before = rows_of(np.arange(ROWS), self.ways, chance.integers(0, 99, ROWS))
        ids = np.sort(chance.choice(ROWS, int(ROWS * self.share), replace=False))
        return before, rows_of(ids, self.new, chance.integers(0, 99, len(ids)))


def merged(root: Path, before: pa.Table, changes: pa.Table, case: Drawn) -> WorkResult:
    """Rows with a matching change take it, or are gone if its way is RAIL."""
    table = Lake(root).create(SCHEMA, properties={"write.parquet.row-group-limit": str(case.group)})
    table.append(before)
    with table.transaction() as change:
        change.set_properties(case.properties)
    task = MergeTask(
        source=SourceSpec(format=SourceFormat.PARQUET, paths=("feed",)),
        keys=(MergeKey(target="id", source="id"),),
        when_matched=(
            MergeClause(action=MergeAction.DELETE, when="source.way = 'RAIL'"),
            MergeClause(action=MergeAction.UPDATE),
        ),
    )
    files = read_file_set(table)
    columns = target_schema(files.schema)
    plan = plan_merge(task, columns, columns)
    types = {column.name: kind for column in columns if (kind := key_type(column.type))}
    held = sorted_slice(changes, SortRule(plan.keys, None, types), str(root / "slice.parquet"))
    (file,) = describe_files(table, files, [0])
    work = FileWork(file, (SlicePart(0, 0, held.keyed),))
    write = write_spec(table, "run")
    return merge_files(MergeWork(plan=plan, write=write, slices=(held,), files=(work,), threads=case.threads), "task")


def expected(before: pa.Table, changes: pa.Table) -> list[dict[str, object]]:
    """The same by Python."""
    taken = {row["id"]: row for row in changes.to_pylist()}
    rows = [taken.get(row["id"], row) for row in before.to_pylist()]
    return [row for row in rows if not (row["id"] in taken and row["way"] == "RAIL")]


drawn = st.builds(
    Drawn,
    ways=st.lists(st.sampled_from(WAYS), min_size=1, max_size=5, unique=True),
    new=st.lists(st.sampled_from([*WAYS, "x" * 3_000, "ZEPPELIN"]), min_size=1, max_size=5, unique=True),
    share=st.sampled_from([0.01, 0.5, 1.0]),
    seed=st.integers(0, 1_000),
    group=st.sampled_from([250, 600, 5_000]),
    properties=st.sampled_from(PROPERTIES),
    threads=st.sampled_from([1, 3]),
)


@settings(deadline=None, max_examples=cases(6, 60))
@given(drawn)
def test_merges_of_few_texts_give_the_rows_and_the_bounds_of_their_values(
    tmp_path_factory: pytest.TempPathFactory, case: Drawn
) -> None:
    before, changes = case.rows()
    result = merged(tmp_path_factory.mktemp("lake"), before, changes, case)
    rows = expected(before, changes)
    if not rows:
        assert not result.written
        return
    (file,) = map(WrittenFile.from_row, result.written)
    path = file.path.removeprefix("file://")
    assert pq.read_table(path).to_pylist() == rows
    assert pq.read_schema(path).types == ARROW.types
    footer, start = pq.read_metadata(path), 0
    for number in range(footer.num_row_groups):
        chunk = footer.row_group(number).column(1)
        here = [row["way"] for row in rows[start : start + chunk.num_values]]
        texts = [way for way in here if way is not None]
        assert chunk.statistics.null_count == len(here) - len(texts)
        if texts and max(map(len, texts)) < 100:
            assert (chunk.statistics.min, chunk.statistics.max) == (min(texts), max(texts))
        start += chunk.num_values
    assert start == len(rows)


def test_a_row_group_that_is_parted_has_the_bounds_of_each_part(tmp_path: Path) -> None:
    """Of each of its parts, one of two texts is missing, and some are null."""
    ids, numbers = np.arange(ROWS), np.where(np.arange(ROWS) % 3, 1 + (np.arange(ROWS) >= ROWS // 2), 0)
    before, change = rows_of(ids, [None, "AIR", "TRUCK"], numbers), rows_of(ids[5:6], ["RAIL"], numbers[5:6])
    case = Drawn([], [], 0, 0, 5_000, {"write.parquet.row-group-limit": "300"}, 1)
    (file,) = map(WrittenFile.from_row, merged(tmp_path, before, change, case).written)
    footer = pq.read_metadata(file.path.removeprefix("file://"))
    chunks = [footer.row_group(number).column(1).statistics for number in range(footer.num_row_groups)]
    assert [(chunk.min, chunk.max) for chunk in chunks] == [("AIR", "AIR")] * 2 + [("TRUCK", "TRUCK")] * 2
