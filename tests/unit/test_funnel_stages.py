"""Each stage of the funnel on real tables: what it drops, what it must not drop, and why it is left out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from skipstone.kernels.changes import SortRule, write_slice
from skipstone.runs.merging.prune import Pruned, PruneSite, prune_files, run_in
from skipstone.runs.merging.source import Changes, target_schema
from skipstone.tables.filesets import read_file_set
from skipstone.tasks.runner import InProcess
from skipstone_core.contract.requests import MergeAction, MergeClause, MergeKey, MergeTask, SourceFormat, SourceSpec
from skipstone_core.funnel import FunnelStage, LeftOut, PruneStage
from skipstone_core.indexing import use as index_use
from skipstone_core.keys import key_type
from skipstone_core.merging.merges import MergeColumn, plan_merge

from tests.spark.index_bed import Lake, index_on, local
from tests.spark.lake import append

ONLY = {stage: {other: "the test" for other in PruneStage if other is not stage} for stage in PruneStage}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def made(lake: Lake, kind: pa.DataType, *transforms: Transform[Any, Any], **columns: pa.DataType) -> Table:
    """A table with a key column ``k``, partitioned by ``transforms`` of it."""
    schema = pa.schema([pa.field("k", kind), *(pa.field(name, other) for name, other in columns.items())])
    lake.create(schema)
    for number, transform in enumerate(transforms):
        with lake.table().update_spec() as update:
            update.add_field("k", transform, f"p{number}")
    return lake.table()


def add(lake: Lake, *files: Sequence[Any] | dict[str, Sequence[Any]]) -> None:
    """Append one segment for each list of keys."""
    for one in files:
        table = lake.table()
        values = one if isinstance(one, dict) else {"k": one}
        append(table, pa.table(values, schema=table.schema().as_arrow()).cast(table.schema().as_arrow()))


def source(
    lake: Lake, keys: dict[str, Sequence[Any]], *, where: str | None = None, count: int = 1, **types: str
) -> Changes:
    """A source with the given key columns, as the table types them or as ``types`` say, in ``count`` slices."""
    files = read_file_set(lake.table())
    target = target_schema(files.schema)
    named = {column.name: column.type for column in target} | types
    columns = [MergeColumn(name=name, type=named[name]) for name in keys]
    task = MergeTask(
        source=SourceSpec(format=SourceFormat.PARQUET, paths=("x",)),
        keys=tuple(MergeKey(target=name, source=name) for name in keys),
        when_matched=(MergeClause(action=MergeAction.DELETE),),
        target_where=where,
    )
    plan = plan_merge(task, target, columns)
    rule = SortRule(plan.keys, None, {one.name: kind for one in columns if (kind := key_type(one.type))})
    arrow = {"int": pa.int32(), "decimal(12, 4)": pa.decimal128(12, 4), "double": pa.float64()}
    schema = lake.table().schema().as_arrow()
    fields = [pa.field(n, arrow[types[n]] if n in types else plain(schema.field(n).type)) for n in keys]
    table = pa.table(dict(keys), schema=pa.schema(fields))
    folder = lake.root / "slices"
    folder.mkdir(exist_ok=True)
    number = len(list(folder.iterdir()))
    parts = [table.take(pa.array(range(i, table.num_rows, count), pa.int64())) for i in range(count)]
    slices = [write_slice(part, rule, f"{folder}/{number}-{i}.parquet") for i, part in enumerate(parts)]
    return Changes(plan=plan, slices=tuple(slices), schema_id=files.schema.schema_id)


def plain(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_large_string(kind) else kind


def pruned(lake: Lake, changes: Changes, only: PruneStage | None = None, **site: Any) -> Pruned:
    table = lake.table()
    site = {"off": ONLY[only] if only else {}, **site}
    return prune_files(PruneSite(**site), changes, table, read_file_set(table))


def stage(found: Pruned, name: PruneStage) -> FunnelStage:
    return next(one for one in found.funnel if one.name == name)


def keys_kept(lake: Lake, found: Pruned) -> list[Any]:
    """The least key of each candidate file."""
    files = read_file_set(lake.table())
    paths = [files.files["path"][i].as_py() for i in found.candidates.files.tolist()]
    tables = [pq.read_table(local(path)) for path in paths]
    return sorted((table["k"][0].as_py() for table in tables), key=repr)


DAYS = [date(1969, 12, 30), date(1970, 1, 1), date(1970, 1, 2), date(2024, 2, 29), date(2025, 1, 1)]
MOMENTS = [datetime(2024, 2, 29, 10, 59, 59, 999999), datetime(2024, 2, 29, 11), datetime(2023, 1, 1)]  # noqa: DTZ001


@dataclass(frozen=True)
class Partitioned:
    """A key column partitioned by ``transform``: one file per stored key, source keys, and which files are kept."""

    kind: pa.DataType
    transform: Transform[Any, Any]
    stored: list[Any]
    keys: list[Any]
    kept: list[Any]


PARTITIONED = [
    Partitioned(pa.int64(), IdentityTransform(), [1, 2, 3], [2], [2]),
    Partitioned(pa.int64(), TruncateTransform(10), [-11, -1, 5, 15], [-2, 19], [-1, 15]),
    Partitioned(pa.string(), TruncateTransform(2), ["aa1", "ab1", "😀😀x", "a"],
                ["ab9", "😀😀", "b"], ["ab1", "😀😀x"]),
    Partitioned(pa.decimal128(9, 2), TruncateTransform(100), [Decimal("-0.50"), Decimal("1.99"), Decimal("2.00")],
                [Decimal("1.00")], [Decimal("1.99")]),
    Partitioned(pa.date32(), YearTransform(), DAYS, [date(2024, 12, 31)], [date(2024, 2, 29)]),
    Partitioned(pa.date32(), MonthTransform(), DAYS, [date(2025, 1, 31)], [date(2025, 1, 1)]),
    Partitioned(pa.date32(), DayTransform(), DAYS, [date(1970, 1, 2)], [date(1970, 1, 2)]),
    Partitioned(pa.timestamp("us"), HourTransform(), MOMENTS, [MOMENTS[1].replace(minute=30)], [MOMENTS[1]]),
    Partitioned(pa.timestamp("us", tz="UTC"), DayTransform(), [one.replace(tzinfo=UTC) for one in MOMENTS[1:]],
                [datetime(2024, 2, 29, 23, 59, tzinfo=UTC)], [MOMENTS[1].replace(tzinfo=UTC)]),
    Partitioned(pa.float64(), IdentityTransform(), [math.nan, 0.0, 1.5], [-0.0], [0.0]),
    Partitioned(pa.float64(), IdentityTransform(), [0.1, 0.2, 1e300], [0.1, 1e300], [0.1, 1e300]),
]  # fmt: skip


@pytest.mark.parametrize("case", PARTITIONED, ids=lambda case: f"{case.transform}-{case.kind}")
def test_partitions_of_transformed_keys(lake: Lake, case: Partitioned) -> None:
    made(lake, case.kind, case.transform)
    add(lake, *([value] for value in case.stored))
    found = pruned(lake, source(lake, {"k": case.keys}), PruneStage.PARTITIONS)
    assert keys_kept(lake, found) == sorted(case.kept, key=repr)


def test_nan_is_a_partition_of_its_own(lake: Lake) -> None:
    made(lake, pa.float64(), IdentityTransform())
    add(lake, [math.nan], [1.0])
    (kept,) = keys_kept(lake, pruned(lake, source(lake, {"k": [math.nan]}), PruneStage.PARTITIONS))
    assert math.isnan(kept)


def test_buckets_drop_files_and_are_left_out_when_every_bucket_is_hit(lake: Lake) -> None:
    made(lake, pa.int64(), BucketTransform(8))
    add(lake, range(200))
    few = pruned(lake, source(lake, {"k": [7]}), PruneStage.PARTITIONS)
    assert stage(few, PruneStage.PARTITIONS).files_out == 1
    changes = source(lake, {"k": [7]})
    many = Changes(plan=changes.plan, slices=changes.slices * 128, schema_id=changes.schema_id)
    said = stage(pruned(lake, many, PruneStage.PARTITIONS), PruneStage.PARTITIONS)
    assert (said.left_out, said.files_out) == (LeftOut.EVERY_PARTITION, 8)


def test_before_1970_the_period_after_counts_too(lake: Lake) -> None:
    """Old writers put 1969-12-31 23:00 into the first hour of 1970; Iceberg's own readers look there as well."""
    made(lake, pa.date32(), MonthTransform())
    add(lake, [date(1969, 11, 30)], [date(1969, 12, 30)], [date(1970, 1, 2)])
    found = pruned(lake, source(lake, {"k": [date(1969, 11, 1)]}), PruneStage.PARTITIONS)
    assert keys_kept(lake, found) == [date(1969, 11, 30), date(1969, 12, 30)]


def test_a_key_that_the_column_cannot_hold_is_in_no_partition(lake: Lake) -> None:
    made(lake, pa.decimal128(9, 2), BucketTransform(4))
    add(lake, [Decimal("1.50")], [Decimal("2.25")])
    exact = source(lake, {"k": [Decimal("1.5000")]}, k="decimal(12, 4)")
    assert keys_kept(lake, pruned(lake, exact, PruneStage.PARTITIONS))[:1] == [Decimal("1.50")]
    finer = source(lake, {"k": [Decimal("1.5001")]}, k="decimal(12, 4)")
    assert keys_kept(lake, pruned(lake, finer, PruneStage.PARTITIONS)) == []


def test_null_partitions_hold_no_key_and_void_ones_say_nothing(lake: Lake) -> None:
    made(lake, pa.int64(), IdentityTransform())
    add(lake, [None], [1])
    assert keys_kept(lake, pruned(lake, source(lake, {"k": [1]}), PruneStage.PARTITIONS)) == [1]
    with lake.table().update_spec() as update:
        update.remove_field("p0")
    with lake.table().update_spec() as update:
        update.add_field("k", VoidTransform(), "v")
    add(lake, [5], [None])
    found = pruned(lake, source(lake, {"k": [1]}), PruneStage.PARTITIONS)
    assert keys_kept(lake, found) == [1, 5, None]


def test_each_file_is_judged_by_its_own_spec(lake: Lake) -> None:
    made(lake, pa.int64())
    add(lake, [1], [2])
    with lake.table().update_spec() as update:
        update.add_field("k", TruncateTransform(10), "tens")
    add(lake, [13], [23])
    with lake.table().update_spec() as update:
        update.remove_field("tens")
    with lake.table().update_spec() as update:
        update.add_identity("k")
    add(lake, [13], [14])
    found = pruned(lake, source(lake, {"k": [13]}), PruneStage.PARTITIONS)
    assert keys_kept(lake, found) == [1, 13, 13, 2]


def test_fields_of_a_spec_are_compared_together(lake: Lake) -> None:
    made(lake, pa.int64(), IdentityTransform(), day=pa.date32())
    with lake.table().update_spec() as update:
        update.add_field("day", MonthTransform(), "month")
    first, second = date(2024, 1, 1), date(2024, 2, 1)
    add(lake, {"k": [1], "day": [first]}, {"k": [1], "day": [second]}, {"k": [2], "day": [first]})
    found = pruned(lake, source(lake, {"k": [1, 2], "day": [first, second]}), PruneStage.PARTITIONS)
    assert keys_kept(lake, found) == [1]
    only_day = pruned(lake, source(lake, {"day": [second]}), PruneStage.PARTITIONS)
    assert stage(only_day, PruneStage.PARTITIONS).files_out == 1


def test_target_where_drops_files_that_cannot_satisfy_it(lake: Lake) -> None:
    made(lake, pa.int64(), n=pa.int64())
    add(lake, {"k": [1], "n": [1]}, {"k": [2], "n": [9]}, {"k": [3], "n": [None]})
    found = pruned(lake, source(lake, {"k": [1, 2, 3]}, where="target.n > 5"), PruneStage.TARGET_WHERE)
    assert keys_kept(lake, found) == [2]
    silent = pruned(lake, source(lake, {"k": [1]}, where="target.n = target.k"), PruneStage.TARGET_WHERE)
    assert stage(silent, PruneStage.TARGET_WHERE).left_out is LeftOut.BOUNDS_UNKNOWN
    assert len(silent.candidates.files) == 3


def test_the_whole_funnel_says_what_each_stage_did(lake: Lake) -> None:
    made(lake, pa.int64(), TruncateTransform(100), n=pa.int64())
    add(lake, {"k": [1], "n": [1]}, {"k": [2], "n": [9]}, {"k": [50], "n": [9]}, {"k": [150], "n": [9]})
    found = pruned(lake, source(lake, {"k": [2]}, where="target.n > 5"))
    assert [(one.name, one.files_in, one.files_out) for one in found.funnel] == [
        ("NullKeys", 4, 4),
        ("Partitions", 4, 3),
        ("TargetWhere", 3, 2),
        ("KeyRanges", 2, 1),
        ("Bloom", 1, 1),
        ("KeyIndex", 1, 1),
    ]
    assert found.funnel[-1].left_out is LeftOut.NO_INDEX


def test_stages_that_are_off_or_have_nothing_to_do_say_so(lake: Lake) -> None:
    made(lake, pa.int64())
    add(lake, [1], [2])
    off = pruned(lake, source(lake, {"k": [1]}), off={PruneStage.KEY_RANGES: "the user says so"})
    said = stage(off, PruneStage.KEY_RANGES)
    assert (said.left_out, said.message, said.files_out) == (LeftOut.SWITCHED_OFF, "the user says so", 2)
    assert stage(off, PruneStage.PARTITIONS).left_out is LeftOut.NOT_PARTITIONED_BY_KEY
    assert stage(off, PruneStage.TARGET_WHERE).left_out is LeftOut.NO_TARGET_WHERE
    nothing = pruned(lake, source(lake, {"k": [None]}))
    assert {one.left_out for one in nothing.funnel[1:]} == {LeftOut.NOTHING_LEFT}
    assert len(nothing.candidates.files) == 0


def test_key_ranges_without_bounds_are_left_out(lake: Lake) -> None:
    lake.create(pa.schema([("k", pa.int64())]), properties={"write.metadata.metrics.default": "none"})
    add(lake, [1], [2])
    said = stage(pruned(lake, source(lake, {"k": [1]})), PruneStage.KEY_RANGES)
    assert (said.left_out, said.files_out) == (LeftOut.BOUNDS_UNKNOWN, 2)


# --- the key index ---


def scattered(lake: Lake, files: int = 6) -> None:
    """Files with keys that bounds cannot tell apart: key ``i`` is in file ``i % files``, written as segment + 1."""
    made(lake, pa.string(), n=pa.int64())
    for file in range(files):
        keys = [f"a{file}", *(f"key-{i:05}" for i in range(file, 600, files)), f"z{file}"]
        add(lake, {"k": keys, "n": [file] * len(keys)})


def files_kept(lake: Lake, found: Pruned) -> list[int]:
    """The numbers of the candidate files, as ``scattered`` counts them."""
    segments = read_file_set(lake.table()).files["segment"].to_pylist()
    return sorted(segments[i] - 1 for i in found.candidates.files.tolist())


def test_an_index_finds_the_files_of_keys_in_whatever_process(lake: Lake) -> None:
    scattered(lake)
    lake.reindex(index_on("k"))
    changes = source(lake, {"k": ["key-00007", "key-00013", "key-00300", "b"]}, count=2)
    for run in ({}, {"run": run_in(InProcess())}):
        found = pruned(lake, changes, **run)
        assert stage(found, PruneStage.KEY_RANGES).files_out == 6
        assert stage(found, PruneStage.KEY_INDEX).left_out is None
        assert files_kept(lake, found) == [0, 1]


def test_files_of_missing_segments_stay_candidates(lake: Lake) -> None:
    scattered(lake)
    lake.reindex(index_on("k"), max_segments=4)
    found = pruned(lake, source(lake, {"k": ["key-00001"]}))
    assert files_kept(lake, found) == [1, 4, 5]


def test_an_index_that_covers_too_little_is_left_alone(lake: Lake) -> None:
    """Four of six files of as many rows are 66 percent."""
    scattered(lake)
    index, changes = index_on("k"), source(lake, {"k": ["key-00001"]})
    lake.reindex(replace(index, unused_below_percent=66), max_segments=4)
    assert files_kept(lake, pruned(lake, changes, PruneStage.KEY_INDEX)) == [1, 4, 5]
    lake.reindex(replace(index, unused_below_percent=67), max_segments=0)
    found = pruned(lake, changes, PruneStage.KEY_INDEX)
    assert files_kept(lake, found) == [*range(6)]
    said = stage(found, PruneStage.KEY_INDEX)
    assert (said.left_out, "spec.unusedBelowPercent is 67" in said.message) == (LeftOut.NO_INDEX, True)


def test_the_leading_columns_of_an_index_are_enough(lake: Lake) -> None:
    scattered(lake)
    lake.reindex(index_on("k", "n"))
    assert files_kept(lake, pruned(lake, source(lake, {"k": ["key-00002"]}))) == [2]
    composite = source(lake, {"n": [2, 3], "k": ["key-00002", "key-00002"]})
    assert files_kept(lake, pruned(lake, composite, PruneStage.KEY_INDEX)) == [2]
    said = stage(pruned(lake, source(lake, {"n": [2]}), PruneStage.KEY_INDEX), PruneStage.KEY_INDEX)
    assert said.left_out is LeftOut.NO_INDEX


@pytest.mark.parametrize(("by_k", "by_n", "by_both"), [(6, 2, 1), (2, 6, 4), (3, 0, 4), (0, 1, 0)])
def test_every_index_that_pays_is_asked_and_none_costs_candidates(
    lake: Lake, by_k: int, by_n: int, by_both: int
) -> None:
    """Each index covers so many of the first files; each alone would leave the file of the key and what it misses."""
    scattered(lake)
    indexes = (index_on("k", name="a"), index_on("n", name="b"), index_on("k", "n", name="both"))
    for index, covered in zip(indexes, (by_k, by_n, by_both), strict=True):
        if covered:
            lake.reindex(index, max_segments=covered)
    found = pruned(lake, source(lake, {"k": ["key-00000"], "n": [0]}), PruneStage.KEY_INDEX)
    assert files_kept(lake, found) == [0, *range(max(by_k, by_n, by_both), 6)]
    nowhere = pruned(lake, source(lake, {"k": ["key-00000"], "n": [1]}), PruneStage.KEY_INDEX)
    left = {number for number in range(6) if (number == 0 or number >= by_k) and (number == 1 or number >= by_n)}
    assert files_kept(lake, nowhere) == sorted(left - set(range(by_both)))


def test_an_index_that_covers_no_candidate_is_left_out(lake: Lake) -> None:
    scattered(lake, 2)
    lake.reindex(index_on("k"), max_segments=1)
    changes = source(lake, {"k": ["key-00001"], "n": [1]})
    said = stage(pruned(lake, changes), PruneStage.KEY_INDEX)
    assert (said.files_in, said.left_out) == (1, LeftOut.NOT_COVERED)


@pytest.mark.parametrize("damage", ["entries", "covers", "catalog"])
def test_an_unreadable_index_costs_no_rows(lake: Lake, damage: str) -> None:
    scattered(lake)
    index = index_on("k")
    lake.reindex(index)
    changes = source(lake, {"k": ["key-00001"]})
    if damage == "catalog":
        with mock.patch("skipstone.runs.merging.prune.find_indexes", side_effect=OSError("no catalog")):
            found = pruned(lake, changes)
    else:
        for file in getattr(lake.index_table(index), damage):
            local(file.path).unlink()
        found = pruned(lake, changes)
    assert len(found.candidates.files) == 6
    said = stage(found, PruneStage.KEY_INDEX)
    assert said.left_out in (LeftOut.UNREADABLE, LeftOut.NO_INDEX)
    assert said.message


def test_an_index_that_costs_more_than_it_saves_is_not_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    scattered(lake)
    lake.reindex(index_on("k"))
    monkeypatch.setattr(index_use, "SMALL_FILES", 0)
    monkeypatch.setattr(index_use, "OPEN_BYTES", 0)
    monkeypatch.setattr(index_use, "WORTHWHILE_PART", 0.01)
    said = stage(pruned(lake, source(lake, {"k": ["key-00001"]})), PruneStage.KEY_INDEX)
    assert said.left_out is LeftOut.NO_GAIN
    assert "to save at most" in said.message
    assert said.files_out == 6
