"""Bloom filters in merges and in queries: which files go, which must stay, and when filters are not asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import LongType
from skipstone.pruning import bloom
from skipstone.query import ReadOptions, ReadPlan, plan_read
from skipstone.runs.merging.prune import Pruned, run_in
from skipstone.tables.filesets import read_file_set
from skipstone.tasks.runner import InProcess
from skipstone_core.funnel import LeftOut, PruneStage
from skipstone_core.indexing import filters
from skipstone_core.indexing.filters import FilterCost, errs_too_often, may_pay, pass_rate
from skipstone_core.indexing.use import ReadCost
from skipstone_core.table_properties import BLOOM_BYTES, BLOOM_FILTER_OF, BLOOM_RATE_OF

from tests.spark.index_bed import Lake, index_on, local
from tests.unit.bloom_beds import eager_filters
from tests.unit.test_funnel_stages import add, files_kept, pruned, source, stage

BLOOM = PruneStage.BLOOM
RARELY = "0.00001"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def eager() -> Any:
    with eager_filters():
        yield


def made(lake: Lake, columns: dict[str, pa.DataType], **properties: str) -> None:
    """A table with filters that hardly ever err on all its columns."""
    named = {f"{BLOOM_FILTER_OF}{name}": "true" for name in columns}
    named |= {f"{BLOOM_RATE_OF}{name}": RARELY for name in columns}
    lake.create(pa.schema(list(columns.items())), properties=named | properties)


def scattered(lake: Lake, files: int = 6, **properties: str) -> None:
    """Key ``i`` is in file ``i % files``; bounds cannot tell the files apart."""
    made(lake, {"k": pa.string(), "n": pa.int64()}, **properties)
    for file in range(files):
        keys = [f"a{file}", *(f"key-{i:05}" for i in range(file, 600, files)), f"z{file}"]
        add(lake, {"k": keys, "n": [file] * len(keys)})


def kept(lake: Lake, keys: dict[str, Sequence[Any]], **source_types: str) -> list[int]:
    return files_kept(lake, pruned(lake, source(lake, keys, **source_types), BLOOM))


def test_files_whose_filter_holds_no_key_go(lake: Lake) -> None:
    scattered(lake)
    changes = source(lake, {"k": ["key-00007", "key-00013", "key-00300", "b"]}, count=2)
    for run in ({}, {"run": run_in(InProcess())}):
        found = pruned(lake, changes, **run)
        said = stage(found, BLOOM)
        assert (said.files_in, said.files_out, said.left_out) == (6, 2, None)
        assert said.message.startswith("filters of 6 of 6 files: 4 left out, reading ")
        assert files_kept(lake, found) == [0, 1]


@pytest.mark.usefixtures("eager")
def test_a_file_keeps_only_the_part_of_the_source_that_it_may_hold(lake: Lake) -> None:
    scattered(lake, 3)
    found = pruned(lake, source(lake, {"k": [f"key-{i:05}" for i in (3, 4, 5, 6, 7, 9)]}))
    parts = found.candidates.parts(())
    rows = {file: [(part.start, part.stop) for part in of_file] for file, of_file in parts.items()}
    by_number = {
        segment - 1: rows[i] for i, segment in enumerate(read_file_set(lake.table()).files["segment"].to_pylist())
    }
    assert by_number == {0: [(0, 6)], 1: [(1, 5)], 2: [(2, 3)]}


@pytest.mark.usefixtures("eager")
def test_a_row_of_a_composite_key_may_be_in_a_file_if_all_its_columns_may(lake: Lake) -> None:
    made(lake, {"a": pa.int64(), "b": pa.string()})
    add(lake, {"a": [1, 2], "b": ["x", "y"]}, {"a": [1, 3], "b": ["y", "x"]}, {"a": [4], "b": ["x"]})
    assert kept(lake, {"a": [1], "b": ["x"]}) == [0, 1]  # both columns may, not that one row does
    assert kept(lake, {"a": [2, 3, 4], "b": ["x", "x", "y"]}) == [0, 1]
    assert kept(lake, {"a": [4, 5], "b": ["y", "x"]}) == []


@pytest.mark.usefixtures("eager")
def test_row_groups_are_judged_one_by_one(lake: Lake) -> None:
    made(lake, {"a": pa.int64(), "b": pa.int64()}, **{"write.parquet.row-group-limit": "2"})
    add(lake, {"a": [1, 1, 2, 2], "b": [5, 6, 7, 8]}, {"a": [1, 1, 2, 2], "b": [7, 8, 5, 6]})
    assert kept(lake, {"a": [1], "b": [5]}) == [0]
    assert kept(lake, {"a": [2], "b": [5]}) == [1]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("kind", "stored", "keys", "files"),
    [
        (pa.float64(), [[0.0], [-0.0], [1.0]], [-0.0], [0, 1]),
        (pa.float32(), [[0.5], [0.1], [2.0]], [0.5], [0]),
        (pa.float64(), [[math.nan], [1.0], [math.inf]], [math.nan], [0, 1, 2]),
        (pa.float64(), [[math.nan], [1.0], [math.inf]], [math.inf], [2]),
        (pa.int64(), [[1], [None], [2]], [None, 2], [2]),
        (pa.decimal128(9, 2), [[Decimal("1.50")], [Decimal("-1.50")]], [Decimal("-1.50")], [1]),
        (pa.binary(16), [[b"a" * 16], [b"b" * 16]], [b"b" * 16], [1]),
    ],
    ids=str,
)
def test_keys_are_equal_as_everywhere(
    lake: Lake, kind: pa.DataType, stored: list[list[Any]], keys: list[Any], files: list[int]
) -> None:
    made(lake, {"k": kind})
    add(lake, *stored)
    assert kept(lake, {"k": keys}) == files


@pytest.mark.usefixtures("eager")
def test_keys_of_other_types_are_compared_exactly(lake: Lake) -> None:
    made(lake, {"k": pa.decimal128(9, 2), "f": pa.float32()})
    add(lake, {"k": [Decimal("1.50")], "f": [0.5]}, {"k": [Decimal("2.50")], "f": [0.1]})
    assert kept(lake, {"k": [Decimal("1.5000"), Decimal("2.5001")]}, k="decimal(12, 4)") == [0]
    assert kept(lake, {"f": [0.5, 0.1]}, f="double") == [0]


@pytest.mark.usefixtures("eager")
def test_columns_are_found_after_they_were_widened_and_renamed(lake: Lake) -> None:
    made(lake, {"k": pa.int32()})
    add(lake, [1, 2], [3])
    with lake.table().update_schema() as update:
        update.update_column("k", LongType())
        update.rename_column("k", "key")
    assert kept(lake, {"key": [2, 2**40]}) == [0]
    with lake.table().update_schema() as update:
        update.delete_column("key")
    with lake.table().update_schema() as update:
        update.add_column("key", LongType())
    assert kept(lake, {"key": [7]}) == [0, 1]  # files that do not hold the column have no filter of it


# --- files that stay ---


@pytest.mark.usefixtures("eager")
def test_files_without_filters_stay(lake: Lake) -> None:
    lake.create(pa.schema([("k", pa.int64())]))
    add(lake, [1], [2])
    with lake.table().transaction() as change:
        change.set_properties({f"{BLOOM_FILTER_OF}k": "true", f"{BLOOM_RATE_OF}k": RARELY})
    add(lake, [3], [4])
    assert kept(lake, {"k": [4]}) == [0, 1, 3]


@pytest.mark.usefixtures("eager")
def test_a_file_that_cannot_be_read_stays(lake: Lake) -> None:
    scattered(lake, 3)
    files = read_file_set(lake.table()).files
    first = files["path"][files["segment"].to_pylist().index(1)].as_py()
    local(first).unlink()
    assert kept(lake, {"k": ["key-00001"]}) == [0, 1]


@pytest.mark.usefixtures("eager")
def test_a_filter_that_is_damaged_loses_no_file(lake: Lake) -> None:
    scattered(lake, 2)
    for path in read_file_set(lake.table()).files["path"].to_pylist():
        file = local(path)
        content = file.read_bytes()
        found = pq.read_metadata(file).row_group(0).column(0)
        middle = found.bloom_filter_offset + found.bloom_filter_length // 2
        file.write_bytes(content[:middle] + bytes(16) + content[middle + 16 :])
    assert kept(lake, {"k": ["key-00001"]}) == [0, 1]


# --- beside indexes ---


@pytest.mark.usefixtures("eager")
def test_files_that_an_index_on_all_keys_covers_are_left_to_it(lake: Lake) -> None:
    scattered(lake)
    lake.reindex(index_on("k"), max_segments=4)
    found = pruned(lake, source(lake, {"k": ["key-00001", "key-00005"]}))
    said = {one.name: (one.files_in, one.files_out) for one in found.funnel}
    assert (said["Bloom"], said["KeyIndex"]) == ((6, 5), (5, 2))
    assert files_kept(lake, found) == [1, 5]
    lake.reindex(index_on("k"))
    assert stage(pruned(lake, source(lake, {"k": ["key-00001"]})), BLOOM).left_out is LeftOut.LEFT_TO_INDEX


@pytest.mark.usefixtures("eager")
def test_an_index_on_a_part_of_the_key_is_no_reason_not_to_ask(lake: Lake) -> None:
    scattered(lake)
    lake.reindex(index_on("n"))
    found = pruned(lake, source(lake, {"k": ["key-00001"], "n": [1]}))
    assert stage(found, BLOOM).files_out == 1


def test_a_catalog_that_lists_no_indexes_does_not_keep_filters_from_being_asked(lake: Lake) -> None:
    scattered(lake)
    with mock.patch("skipstone.runs.merging.prune.find_indexes", side_effect=OSError("no catalog")):
        found = pruned(lake, source(lake, {"k": ["key-00001"]}))
    assert files_kept(lake, found) == [1]
    assert stage(found, PruneStage.KEY_INDEX).left_out is LeftOut.UNREADABLE


# --- what it costs ---


def refusal_of(found: Pruned) -> tuple[LeftOut | None, str]:
    one = stage(found, BLOOM)
    assert one.files_in == one.files_out
    return one.left_out, one.message


def test_few_files_are_read_rather_than_asked(lake: Lake) -> None:
    scattered(lake, 2)
    code, message = refusal_of(pruned(lake, source(lake, {"k": ["key-00001"]}), BLOOM))
    assert (code, message) == (LeftOut.NO_GAIN, message)
    assert "takes no longer" in message


def test_tables_without_filters_are_told_by_a_few_footers(lake: Lake) -> None:
    lake.create(pa.schema([("k", pa.int64())]))
    add(lake, *([i, 1000 + i] for i in range(20)))
    with mock.patch.object(bloom, "open_data_file", side_effect=bloom.open_data_file) as opened:
        code, message = refusal_of(pruned(lake, source(lake, {"k": [500]}), BLOOM))
    assert (code, message) == (LeftOut.NO_FILTERS, "none of 16 candidate files that were looked at has one")
    assert opened.call_count == 16


def test_keys_of_which_every_filter_holds_some_by_chance_are_found_out_by_two_files(lake: Lake) -> None:
    scattered(lake, 8, **{BLOOM_BYTES: "32"})
    keys = [f"none-{i}" for i in range(3000)]
    with mock.patch.object(bloom, "open_data_file", side_effect=bloom.open_data_file) as opened:
        code, message = refusal_of(pruned(lake, source(lake, {"k": keys}), BLOOM))
    assert (code, message) == (LeftOut.NO_GAIN, "100 % of the files without any key would pass")
    assert opened.call_count == 2


def test_when_the_first_files_all_hold_keys_the_others_are_not_asked(lake: Lake) -> None:
    scattered(lake, 30)
    keys = [f"key-{i:05}" for i in range(30)]
    with mock.patch.object(bloom, "open_data_file", side_effect=bloom.open_data_file) as opened:
        code, message = refusal_of(pruned(lake, source(lake, {"k": keys}), BLOOM))
    assert code is LeftOut.NO_GAIN
    assert message.startswith("0 of 16 files were left out, the others would take")
    assert opened.call_count == 16


def test_keys_that_are_too_many_to_be_looked_up_are_not(lake: Lake) -> None:
    scattered(lake, 6)
    with mock.patch.object(filters, "ASK_BYTES", 10**6):
        code, message = refusal_of(pruned(lake, source(lake, {"k": ["b", "c"]}), BLOOM))
    assert code is LeftOut.NO_GAIN
    assert "to save at most" in message


def test_the_rule_of_cost() -> None:
    file = ReadCost(1, 3_000_000)
    assert may_pay(FilterCost(1, 1_000_000, 1000), file)
    assert not may_pay(FilterCost(1, 1_000_000, 1_000_000), file)
    assert not may_pay(FilterCost(1, 1_000_000, 1000), file, dropped=0.1)
    assert pass_rate(0.01, 100) == pytest.approx(0.634, abs=0.001)
    assert pass_rate(0.0, 10**9) == 0
    assert pass_rate(1.0, 1) == 1
    assert errs_too_often([0.95, 0.99])
    assert not errs_too_often([0.95, 0.5])
    assert not errs_too_often([])
    assert np.isclose(pass_rate(1e-12, 10), 1e-11)


# --- in queries ---


def planned(lake: Lake, condition: str, columns: Sequence[str] | None = None) -> ReadPlan:
    return plan_read(lake.table(), condition, columns=columns)


def numbers(lake: Lake, plan: ReadPlan) -> list[int]:
    segments = plan.files.files["segment"].to_pylist()
    return sorted(segments[i] - 1 for i in plan.ordinals)


@pytest.mark.parametrize(
    ("condition", "files"),
    [
        ("k = 'key-00007'", [1]),
        ("k in ('key-00007', 'key-00013', 'key-00300', 'b')", [0, 1]),
        ("k = 'key-00007' and n = 1", [1]),
        ("k = 'key-00007' or k = 'key-00008'", [1, 2]),
        ("k = 'key-00007' or n = 2", [1, 2]),
        ("k = 'key-00007' or n > 4", [0, 1, 2, 3, 4, 5]),  # an arm that no filter judges
        ("k = 'key-00007' and k like 'key%'", [1]),
        ("k = 'nowhere'", []),
        ("not (k != 'key-00007')", [1]),
    ],
)
def test_reads_leave_out_files_that_filters_refuse(lake: Lake, condition: str, files: list[int]) -> None:
    scattered(lake)
    plan = planned(lake, condition)
    assert numbers(lake, plan) == files
    lake.assert_exact(condition)
    if len(files) < 6:
        assert plan.filters is not None
        assert plan.filters.dropped == plan.funnel.min_max - len(files)
        assert "bloom filters: " in plan.text()


def test_reads_ask_filters_of_files_that_no_index_covers(lake: Lake) -> None:
    scattered(lake, 8)
    lake.reindex(index_on("k"), max_segments=3)
    plan = planned(lake, "k in ('key-00001', 'key-00005')")
    assert numbers(lake, plan) == [1, 5]
    assert plan.filters is not None
    assert (plan.filters.asked, plan.filters.dropped) == (5, 4)
    assert [use.used for use in plan.indexes] == [True]
    lake.assert_exact("k in ('key-00001', 'key-00005')")


@pytest.mark.usefixtures("eager")
def test_reads_take_only_row_groups_that_filters_leave(lake: Lake) -> None:
    made(lake, {"k": pa.int64(), "n": pa.int64()}, **{"write.parquet.row-group-limit": "2"})
    add(lake, {"k": [5, 900, 1, 800, 7, 850], "n": [0] * 6})
    plan = planned(lake, "k = 800")
    assert (plan.ordinals, plan.row_groups, plan.filtered) == ((0,), {0: (1,)}, {0})
    assert lake.assert_exact("k = 800")["k"].to_pylist() == [800]


def test_reads_do_not_look_for_filters_that_the_table_does_not_ask_for(lake: Lake) -> None:
    scattered(lake)
    with lake.table().transaction() as change:
        change.remove_properties(f"{BLOOM_FILTER_OF}k", f"{BLOOM_FILTER_OF}n")
    with mock.patch("skipstone.query.filtering.open_data_file") as opened:
        plan = planned(lake, "k = 'key-00007'")
    assert (len(plan.ordinals), plan.filters, opened.call_count) == (6, None, 0)


@pytest.mark.parametrize("condition", ["k > 'key'", "k is null", "k like 'key-00007%'", None])
def test_conditions_without_values_ask_no_filter(lake: Lake, condition: str | None) -> None:
    scattered(lake, 2)
    assert plan_read(lake.table(), condition).filters is None


def test_a_reader_that_asks_for_no_index_gets_no_filters_either(lake: Lake) -> None:
    scattered(lake)
    assert len(plan_read(lake.table(), "k = 'key-00007'", ReadOptions(use_indexes=False)).ordinals) == 6


def test_explain_says_why_filters_are_not_used(lake: Lake) -> None:
    scattered(lake, 2)
    assert "bloom filters: not used: NoGain, reading " in planned(lake, "k = 'key-00001'").text()


@pytest.mark.usefixtures("eager")
def test_a_table_whose_files_have_none_says_so(lake: Lake) -> None:
    lake.create(pa.schema([("k", pa.int64())]))
    add(lake, *([i, 100] for i in range(20)))
    with lake.table().transaction() as change:
        change.set_properties({f"{BLOOM_FILTER_OF}k": "true"})
    assert "bloom filters: not used: NoFilters, none of 16 files has one" in planned(lake, "k = 50").text()


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("kind", "stored", "condition", "files"),
    [
        (pa.float64(), [[0.0], [-0.0], [1.0]], "k = 0", [0, 1]),
        (pa.float32(), [[0.1], [0.5], [7.0]], "k = 0.5", [1]),
        (pa.float32(), [[0.1], [0.5], [7.0]], "k in (0.1, 7)", [2]),
        (pa.decimal128(9, 2), [[Decimal("1.50")], [Decimal("9.99")]], "k in (1.5, 10000000)", [0]),
        (pa.int32(), [[1, 90], [2, 90]], "k in (2, 5000000000)", [1]),
    ],
    ids=str,
)
def test_values_in_conditions_are_equal_as_everywhere(
    lake: Lake, kind: pa.DataType, stored: list[list[Any]], condition: str, files: list[int]
) -> None:
    made(lake, {"k": kind})
    add(lake, *stored)
    assert numbers(lake, planned(lake, condition)) == files
