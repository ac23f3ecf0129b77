"""The merge kernels against a merge of dictionaries: random tables, feeds and clause lists.

With all stages of pruning, with some, without any and by the reference, the table is the same row for row.
`make test` runs a few cases of fixed seeds, `make soak-random` more of them, `make soak-merge` SKIPSTONE_SOAK_CASES of
others. A failure names its seed.
"""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from skipstone.files.deletions import POSITION_CONTENT, DeleteDescription
from skipstone.files.reader import DataFileDescription, describe_files, read_data_file
from skipstone.kernels.changes import ChangeSlice, SortRule, in_file, sorted_slice
from skipstone.kernels.partial import pack_bits
from skipstone.runs.merging.prune import PruneSite, prune_files
from skipstone.runs.merging.rewrite import Rewrite, RewriteSite, rewrite_files
from skipstone.runs.merging.source import Changes, selective_first, target_schema
from skipstone.tables.committing.writing import WrittenFiles
from skipstone.tables.deletes import PATH_FIELD_ID
from skipstone.tables.filesets import FileSet, PinnedTable, read_file_set
from skipstone.tasks.runner import InProcess
from skipstone_core.contract.requests import MergeTask
from skipstone_core.errors import BadData
from skipstone_core.funnel import PruneStage
from skipstone_core.keys import KeyFamily, KeyType, key_type
from skipstone_core.merging.merges import KEPT_COLUMN, MergeCounts, MergePlan, RepeatedKeys, plan_merge
from skipstone_core.table_properties import MERGE_MODE, MergeMode

from tests.examples import cases
from tests.unit.bloom_beds import eager_filters
from tests.unit.merge_feeds import Feed, feed_columns, key_function, random_feed, random_merge, random_table
from tests.unit.merge_reference import Refused, Row
from tests.unit.query_lake import RandomLake

TABLES = cases(6, 30)
FEEDS_PER_TABLE = cases(8, 10)
MERGES_PER_FEED = cases(4, 10)
CASES_PER_TABLE = FEEDS_PER_TABLE * MERGES_PER_FEED
PARTS = cases(1, 2)
SOAK_CASES = int(os.environ.get("SKIPSTONE_SOAK_CASES", "100000"))
SOAK_SEED = int(os.environ.get("SKIPSTONE_SOAK_SEED", str(int(time.time()))))
BINARY = KeyType(KeyFamily.BINARY)
_TOKENS = itertools.count()


@dataclass(frozen=True)
class Bench:
    """A table whose files were read once. ``on_read``: the same one when it asks for merges on read."""

    lake: RandomLake
    table: Table
    on_read: Table
    files: FileSet
    live: dict[str, list[Row]]
    rows: list[Row]


def open_bench(root: Path, seed: int) -> Bench:
    """A random table and what is in each of its files."""
    lake = random_table(root, seed)
    table = lake.table
    files = read_file_set(table)
    names = table.schema().column_names
    described = describe_files(table, files, range(len(files)))
    live = {one.path: rows_of(one, names) for one in described}
    with table.transaction() as change:
        change.set_properties({MERGE_MODE: MergeMode.MERGE_ON_READ})
    return Bench(lake, table, lake.table, files, live, lake.rows().to_pylist())


def rows_of(file: DataFileDescription, names: Sequence[str]) -> list[Row]:
    """What is live in a file."""
    return [row for batch in read_data_file(file, names) for row in batch.to_pylist()]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(PARTS))
def test_any_merge_of_a_random_table_equals_the_reference(tmp_path: Path, part: int) -> None:
    """Each part draws tables of its own, so that the parts can run beside one another."""
    seen: Counter[str] = Counter()
    for seed in range(part, TABLES, PARTS):
        seen += check_table(tmp_path / str(seed), seed)
    wanted = {
        "updated",
        "deleted",
        "inserted",
        "matched",
        "ignored",
        "deletes without row",
        "refused",
        "pruned",
        "by source",
        "marked",
        "committed",
        RepeatedKeys.COMPOSED,
    }
    assert wanted <= seen.keys(), seen


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_many_random_merges(tmp_path: Path) -> None:
    print(f"\n{SOAK_CASES} cases from seed {SOAK_SEED}")
    started, done, seen = time.monotonic(), 0, Counter[str]()
    while done < SOAK_CASES:
        seen += check_table(tmp_path / "table", SOAK_SEED + done // CASES_PER_TABLE)
        shutil.rmtree(tmp_path / "table")
        done += CASES_PER_TABLE
        if done % 1000 < CASES_PER_TABLE or done >= SOAK_CASES:
            print(f"{done} cases, {time.monotonic() - started:.0f} s", flush=True)
    print(", ".join(f"{name} {count}" for name, count in sorted(seen.items())))


def check_table(root: Path, seed: int) -> Counter[str]:
    """CASES_PER_TABLE merges into one table, none of them committed. Returns how often things happened."""
    root.mkdir()
    bench, random, seen = open_bench(root, seed), Random(seed), Counter[str]()
    for number in range(FEEDS_PER_TABLE):
        feed = random_feed(bench.lake, random)
        with pytest.MonkeyPatch.context() as patch:
            if number % 2:  # all texts count as long, and are more than a task holds
                patch.setattr("skipstone.kernels.holding.packing.LONG_BYTES", -1)
                patch.setattr("skipstone.kernels.changes.HELD_BYTES", -1)
                patch.setattr("skipstone.kernels.changes.GROUP_BYTES", 500)
            for _ in range(MERGES_PER_FEED):
                seen += check_merge(bench, feed, random, f"seed {seed}, {bench.lake.log}, feed {number}")
    bench.lake.lake.catalog.close()
    return seen


def check_merge(bench: Bench, feed: Feed, random: Random, said: str) -> Counter[str]:
    """One merge with all stages of pruning, with some and with none."""
    task, meaning = random_merge(bench.lake, feed, random)
    said = f"{said}\n{task}\n{feed.rows}"
    try:
        expected = counted(meaning.apply(bench.rows, feed.rows), bench.lake)
    except Refused:
        with pytest.raises(BadData):
            merged(bench, read(bench, feed, task), on_read=random.random() < 0.5)
        return Counter(["refused"])
    changes = read(bench, feed, task)
    some = random.sample(list(PruneStage), random.randint(1, len(PruneStage) - 1))
    all_counts = []
    for off in ([], some, list(PruneStage)):
        rows, done = merged(bench, changes, off, on_read=random.random() < 0.5)
        assert counted(rows, bench.lake) == expected, f"without {off}: {said}"
        all_counts.append(done)
    counts = all_counts[0]
    for one in all_counts:
        found = {"matched": one.rows_matched, "updated": one.rows_updated, "deleted": one.rows_deleted}
        found |= {"inserted": one.rows_inserted, "ignored": one.rows_ignored}
        found |= {"deletes without row": one.rows_unmatched_deletes}
        assert +Counter(found) == meaning.counts, f"{said}\n{found}\n{meaning.counts}"
    assert len({one.files_touched for one in all_counts}) == 1, said
    pruned = ["pruned"] if counts.files_candidate < counts.files_total else []
    by_source = ["by source"] if meaning.by_source else []
    marked = ["marked"] if any(one.files_marked for one in all_counts) else []
    others = [changes.plan.repeated_keys] if any(one.others for one in changes.slices) else []
    return Counter([*meaning.counts, *pruned, *by_source, *marked, *others, "committed"])


def read(bench: Bench, feed: Feed, task: MergeTask) -> Changes:
    """The feed, read and written down as a merge run has it."""
    plan = selective_first(plan_merge(task, target_schema(bench.files.schema), feed_columns(feed)), bench.files)
    slices = write_feed(bench, feed, plan, f"s{next(_TOKENS)}")
    return Changes(plan=plan, slices=slices, schema_id=bench.files.schema.schema_id)


def merged(
    bench: Bench, changes: Changes, off: Sequence[PruneStage] = (), *, on_read: bool = False
) -> tuple[list[Row], MergeCounts]:
    """The rows of the table if the merge were committed, without the stages ``off``."""
    table = bench.on_read if on_read else bench.table
    with eager_filters():
        pruned = prune_files(PruneSite(off=dict.fromkeys(off, "the test")), changes, table, bench.files)
    site = RewriteSite(tasks=InProcess(3), cores=3, token=f"m{next(_TOKENS)}", written=WrittenFiles(table))
    rewrite = rewrite_files(site, changes, PinnedTable(table, bench.files), pruned)
    changed = {file.file_path for file in (*rewrite.removed, *rewrite.marked)}
    rows = [row for path, kept in bench.live.items() if path not in changed for row in kept]
    rows += marked_rows(bench, rewrite)
    for file in rewrite.added:
        rows += pq.ParquetFile(file.file_path.removeprefix("file://")).read().to_pylist()
    return rows, rewrite.counts


def marked_rows(bench: Bench, rewrite: Rewrite) -> list[Row]:
    """What the new position deletes leave in the files that they are for."""
    deletes = {(file.lower_bounds or {})[PATH_FIELD_ID].decode(): file.file_path for file in rewrite.deletes}
    assert deletes.keys() == {file.file_path for file in rewrite.marked}
    names, replaced = bench.table.schema().column_names, {file.file_path for file in rewrite.replaced}
    rows: list[Row] = []
    for file in describe_files(bench.table, bench.files, range(len(bench.files))):
        if file.path in deletes:
            added = DeleteDescription(deletes[file.path], POSITION_CONTENT, "PARQUET")
            kept = [delete for delete in file.deletes if delete.path not in replaced]
            rows += rows_of(replace(file, deletes=(*kept, added)), names)
    return rows


def write_feed(bench: Bench, feed: Feed, plan: MergePlan, token: str) -> tuple[ChangeSlice, ...]:
    """Up to three slices: all rows of one key in one of them, as Spark's partitions have it; some are in memory."""
    types = {one.name: kind for one in feed_columns(feed) if (kind := key_type(one.type))}
    rule = SortRule(plan.keys, plan.sequence_by, types | {KEPT_COLUMN: BINARY}, plan.repeated_keys, plan.marks_several)
    columns = [*feed.schema, pa.field(KEPT_COLUMN, pa.binary())]
    fields = pa.schema([one for one in columns if one.name in plan.source_columns])
    key = key_function(feed, bench.lake, "source")
    parts: dict[int, list[Row]] = {}
    for row in feed.rows:
        parts.setdefault(len(repr(key(row))) % 3, []).append(row)
    slices: list[ChangeSlice] = []
    for number, rows in parts.items():
        path = str(bench.lake.lake.root / f"slice-{token}-{number}.parquet")
        held = sorted_slice(pa.Table.from_pylist(with_bits(rows, plan), schema=fields), rule, path)
        one = held if len(rows) % 2 else in_file(held)
        slices.append(replace(one, base=sum(other.rows for other in slices)))
    return tuple(slices)


def with_bits(rows: list[Row], plan: MergePlan) -> list[Row]:
    """Rows that tell which columns they lack, if the merge asks."""
    if plan.partial is None or not rows:
        return rows
    bits = pack_bits(np.array([[name not in row for name in plan.partial.columns] for row in rows]))
    return [{**row, KEPT_COLUMN: value} for row, value in zip(rows, bits.to_pylist(), strict=True)]


def counted(rows: list[Row], lake: RandomLake) -> Counter[str]:
    """Rows in no order, exact to the sign of zero."""
    typed = pa.Table.from_pylist(rows, schema=lake.schema).to_pylist()
    return Counter(repr(row) for row in typed)
