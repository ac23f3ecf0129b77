"""What plans say and do: the code of every index not used, answers from an index alone, rows by position, caches."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from skipstone.caches import ByteCache, cache_counts
from skipstone.indexes.asking import probes
from skipstone.query import ReadOptions, explain, plan_read, read
from skipstone.query.planner import IndexUse
from skipstone_core.contract.requests import IndexRef
from skipstone_core.indexing import use as index_use
from skipstone_core.indexing.use import NotUsed

from tests.spark.index_bed import Lake, index_on, query, rows_of
from tests.spark.rawdeletes import add_equality_delete, add_position_delete

SCHEMA = pa.schema([("k", pa.int64()), ("name", pa.string()), ("f", pa.float64()), ("n", pa.int64())])
K = index_on("k", name="k")
ROWS = 400


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    opened = Lake(tmp_path)
    yield opened
    opened.catalog.close()


def rows(segment: int) -> pa.Table:
    """ROWS rows whose keys are spread over all segments."""
    n = np.arange(ROWS) + segment * ROWS
    keys = n * 37 % 1201
    names = [None if key % 11 == 0 else f"name{key % 50}" for key in keys]
    return pa.table({"k": keys, "name": names, "f": keys / 4, "n": n}, schema=SCHEMA)


def grow(lake: Lake, segments: int = 4, index: IndexRef = K, *, synced: int | None = None) -> None:
    """A table of some segments, the first ``synced`` of them indexed, each by a run of its own."""
    table = lake.create(SCHEMA, properties={"write.parquet.row-group-limit": "100"})
    for segment in range(segments):
        table.append(rows(segment))
    lake.reindex(index, max_segments=0)
    for _ in range(segments if synced is None else synced):
        lake.reindex(index, max_segments=1)


def only_use(lake: Lake, condition: str) -> IndexUse:
    (use,) = lake.plan(condition).indexes
    return use


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


# --- why an index is not used ---


def test_an_index_whose_first_column_is_free_is_not_used(lake: Lake) -> None:
    grow(lake)
    use = only_use(lake, "n = 5")
    assert (use.used, use.code) == (False, NotUsed.LEADING_COLUMN_NOT_BOUND)


def test_an_arm_that_no_index_serves_leaves_the_whole_or_to_min_max(lake: Lake) -> None:
    grow(lake)
    use = only_use(lake, "k = 5 or n = 5")
    assert use.code is NotUsed.LEADING_COLUMN_NOT_BOUND
    assert "in some arms of an OR" in use.reason


def test_an_index_that_covers_no_candidate_is_not_used(lake: Lake) -> None:
    grow(lake, synced=1)
    use = only_use(lake, f"n >= {2 * ROWS} and k = 37")
    assert use.code is NotUsed.NOT_COVERED
    assert "none of the 2 files" in use.reason


def test_an_index_is_not_opened_when_it_covers_nothing(lake: Lake) -> None:
    grow(lake, synced=0)
    before = {counts.name: counts.misses for counts in cache_counts()}
    assert only_use(lake, "k = 37").code is NotUsed.NOT_COVERED
    assert {counts.name: counts.misses for counts in cache_counts()}["footers"] == before["footers"]


def test_hits_nearly_everywhere_are_no_gain_and_say_so_with_numbers(lake: Lake) -> None:
    grow(lake)
    plan = lake.plan("k >= 0")
    (use,) = plan.indexes
    assert use.code is NotUsed.NO_GAIN
    assert "bytes in 4 files" in use.reason
    assert plan.row_groups == {}
    assert plan.funnel.read == plan.funnel.min_max


def test_reading_stops_when_one_arm_of_an_or_is_everywhere(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "FIRST_CHECK", 1)
    grow(lake, segments=8)
    lake.reindex(index_on("name", name="name"))
    plan = lake.plan("k = 37 or name like 'name%'")
    assert {use.code for use in plan.indexes} == {NotUsed.NO_GAIN}
    assert "another arm of the OR" in plan.text()
    assert plan.row_groups == {}
    lake.assert_exact("k = 37 or name like 'name%'")


def test_an_index_that_reads_as_much_as_the_scan_is_not_asked(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    grow(lake)
    monkeypatch.setattr(index_use, "SMALL_FILES", 0)
    use = only_use(lake, "k = 37")
    assert use.code is NotUsed.NO_GAIN
    assert "to save at most" in use.reason
    lake.assert_exact("k = 37")


def test_a_second_index_is_not_asked_when_the_first_leaves_nothing(lake: Lake) -> None:
    grow(lake)
    lake.reindex(index_on("name", name="name"))
    codes = {use.code for use in lake.plan("k = 999999999 and name = 'name1'").indexes}
    assert NotUsed.NO_GAIN in codes


def test_an_index_of_a_replaced_column_is_not_used_for_the_new_one(lake: Lake) -> None:
    grow(lake)
    with lake.table().update_schema() as update:
        update.rename_column("k", "old")
    with lake.table().update_schema() as update:
        update.add_column("k", lake.table().schema().find_field("n").field_type)
    assert only_use(lake, "k = 37").code is NotUsed.COLUMN_REPLACED
    assert only_use(lake, "old = 37").used
    lake.assert_exact("k is null and old = 37")


def test_an_index_of_another_definition_is_not_used(lake: Lake) -> None:
    grow(lake)
    with lake.index_table(K).table.transaction() as change:
        change.set_properties({"skipstone.index.definition": "00000000"})
    assert only_use(lake, "k = 37").code is NotUsed.DEFINITION_MISMATCH


def test_an_entry_file_that_is_not_the_committed_one_is_named(lake: Lake) -> None:
    grow(lake)
    file = lake.index_table(K).entries[0]
    pq.write_table(pq.read_table(local(file.path)).slice(1), local(file.path))
    use = only_use(lake, "k = 37")
    assert use.code is NotUsed.UNREADABLE
    assert f"index file {file.path}: it has {ROWS - 1} entries instead of {ROWS}" in use.reason
    lake.assert_exact("k = 37")


@pytest.mark.parametrize("kind", ["entries", "covers"])
def test_an_unreadable_index_is_not_used_and_a_warning_names_it(
    lake: Lake, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    grow(lake)
    for file in getattr(lake.index_table(K), kind):
        local(file.path).write_bytes(b"PAR1")
    with caplog.at_level(logging.WARNING):
        use = only_use(lake, "k = 37")
    assert use.code is NotUsed.UNREADABLE
    assert use.name in caplog.text
    lake.assert_exact("k = 37")


@pytest.mark.parametrize(
    ("condition", "options", "code"),
    [
        ("k = 37", ReadOptions(use_indexes=False), NotUsed.DISABLED),
        ("k != 37", ReadOptions(), NotUsed.NO_CONDITION),
        ("k = 37", ReadOptions(index_namespace="nowhere"), NotUsed.CATALOG_UNAVAILABLE),
    ],
)
def test_a_read_that_considers_no_index_says_why(
    lake: Lake, condition: str, options: ReadOptions, code: NotUsed
) -> None:
    grow(lake)
    plan = plan_read(lake.table(), condition, options)
    assert (plan.indexes, plan.no_index) == ((), code)
    assert f"no index: {code.value}, {code.sentence}" in explain(lake.table(), condition, options)


@pytest.mark.parametrize("code", NotUsed, ids=lambda code: code.value)
def test_a_code_is_documented(code: NotUsed) -> None:
    guide = Path(__file__).parents[2] / "docs" / "guide" / "indexes.md"
    assert code.sentence.endswith(".")
    assert f"`{code.value}`" in guide.read_text()


# --- from an index alone ---

KEY_NAME = index_on("k", "name", name="kn")


def assert_selected(lake: Lake, columns: list[str], condition: str) -> int:
    """The read equals DuckDB's answer; how many files the index alone answered."""
    found = read(lake.table(), columns, condition)
    expected = query(f"select {', '.join(columns)} from rows where {condition}", lake.table().scan().to_arrow())
    assert rows_of(found) == rows_of(expected)
    answer = plan_read(lake.table(), condition, columns=columns).answer
    return 0 if answer is None else len(answer.ordinals)


def test_indexed_columns_are_answered_without_any_data_file(lake: Lake) -> None:
    grow(lake, index=KEY_NAME)
    files = [local(task.file.file_path) for task in lake.table().scan().plan_files()]
    expected = read(lake.table(), ["name", "k"], "k < 300 and name is not null", ReadOptions(use_indexes=False))
    for file in files:
        file.rename(file.with_suffix(".gone"))
    found = read(lake.table(), ["name", "k"], "k < 300 and name is not null")
    assert rows_of(found) == rows_of(expected)
    assert found.num_rows > 0


def test_missing_segments_come_from_their_data_files(lake: Lake) -> None:
    grow(lake, index=KEY_NAME, synced=3)
    assert assert_selected(lake, ["k", "name"], "k < 300") == 3
    assert "from the index alone: 3 files" in explain(lake.table(), "k < 300", columns=["k"])


def test_position_deletes_apply_to_answers_and_equality_deletes_send_their_files_to_the_data(lake: Lake) -> None:
    grow(lake, index=KEY_NAME)
    first = next(iter(lake.table().scan().plan_files())).file
    add_position_delete(lake.table(), first, list(range(0, ROWS, 2)))
    assert assert_selected(lake, ["k", "name"], "k between 10 and 400") == 4
    victims = read(lake.table(), ["n"], "k between 10 and 400")["n"].to_pylist()[:5]
    before = read(lake.table(), ["n", "k"], "k between 10 and 400").to_pylist()
    add_equality_delete(lake.table(), {"n": victims})
    assert plan_read(lake.table(), "k between 10 and 400", columns=["k"]).answer is None
    found = read(lake.table(), ["k"], "k between 10 and 400")["k"].to_pylist()
    assert sorted(found) == sorted(row["k"] for row in before if row["n"] not in victims)


def test_floats_may_be_tested_in_answers_and_are_not_selected_from_them(lake: Lake) -> None:
    grow(lake, index=index_on("f", "k", name="fk"))
    assert assert_selected(lake, ["k"], "f < 20.5 and k > 3") == 4
    assert assert_selected(lake, ["f"], "f < 20.5 and k > 3") == 0


def test_a_column_outside_the_index_is_not_answered(lake: Lake) -> None:
    grow(lake)
    assert assert_selected(lake, ["k", "n"], "k < 300") == 0
    assert assert_selected(lake, ["k"], "k < 300 and n > 5") == 0


def test_an_index_that_breaks_after_planning_is_read_around(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    grow(lake)
    expected = read(lake.table(), ["k"], "k < 300")
    for file in lake.index_table(K).entries:
        local(file.path).write_bytes(b"PAR1 no more")
    assert plan_read(lake.table(), "k < 300", columns=["k"]).answer is not None
    with caplog.at_level(logging.WARNING):
        assert rows_of(read(lake.table(), ["k"], "k < 300")) == rows_of(expected)
    assert "its files are read instead" in caplog.text


# --- rows by position ---


def test_few_hits_are_read_by_position(lake: Lake) -> None:
    grow(lake)
    plan = lake.plan("k = 37")
    assert [len(positions) for positions in plan.positions.values()] == [1] * plan.funnel.read
    assert "by position: " in plan.text()
    lake.assert_exact("k = 37")


def test_few_hits_everywhere_are_no_gain_to_a_reader_of_whole_row_groups(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_use, "FEW_ROWS_PART", 0.2)
    grow(lake)
    condition = f"k in ({', '.join(str(key) for key in range(0, 1200, 10))})"
    assert lake.plan(condition).positions.keys() == {0, 1, 2, 3}
    plan = plan_read(lake.table(), condition, ReadOptions(by_position=False))
    assert [use.code for use in plan.indexes] == [NotUsed.NO_GAIN]
    assert plan.positions == {}


def test_two_indexes_meet_at_single_rows(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_use, "FEW_ROWS_PART", 1.0)
    grow(lake)
    lake.reindex(index_on("name", name="name"))
    alone = sum(map(len, lake.plan("k < 300").positions.values()))
    together = sum(map(len, lake.plan("k < 300 and name = 'name7'").positions.values()))
    assert 0 < together < alone
    assert lake.assert_exact("k < 300 and name = 'name7'").num_rows == together


def test_deleted_rows_stay_away_from_reads_by_position(lake: Lake) -> None:
    grow(lake)
    first = next(iter(lake.table().scan().plan_files())).file
    add_position_delete(lake.table(), first, list(range(0, ROWS, 2)))
    for key in range(0, 200, 7):
        lake.assert_exact(f"k = {key}")


# --- caches ---


def test_a_repeated_look_up_reads_neither_covers_nor_footers_again(lake: Lake) -> None:
    grow(lake)
    expected = read(lake.table(), None, "k = 37")
    before = {counts.name: counts.misses for counts in cache_counts()}
    for file in lake.index_table(K).covers:
        local(file.path).unlink()
    assert only_use(lake, "k = 37").used
    assert rows_of(read(lake.table(), None, "k = 37")) == rows_of(expected)
    assert {counts.name: counts.misses for counts in cache_counts()} == before
    assert "caches: coverage " in explain(lake.table(), "k = 37")


def test_a_point_look_up_opens_few_files_of_an_index_of_many_segments(lake: Lake) -> None:
    grow(lake, segments=19)
    plan = lake.plan("k = 37")
    (use,) = plan.indexes
    assert use.cost is not None
    assert use.cost.files <= 2 + 19 % 8
    assert f"used, reading {use.cost.bytes:,} bytes in {use.cost.files} files" in plan.text()


def test_an_older_snapshot_has_its_own_coverage(lake: Lake) -> None:
    grow(lake, synced=2)
    snapshots = [snapshot.snapshot_id for snapshot in lake.table().metadata.snapshots]
    missing = [plan_read(lake.table(), "k = 37", ReadOptions(snapshot_id=one)).indexes[0] for one in snapshots]
    assert [len(use.missing_segments) for use in missing] == [0, 0, 1, 2]


def test_a_cache_forgets_what_was_used_longest_ago_and_passes_on_what_is_too_large() -> None:
    cache: ByteCache[str, bytes] = ByteCache("test", 10, len)
    made: list[str] = []

    def value(key: str, size: int) -> bytes:
        return cache.get(key, lambda: made.append(key) or bytes(size))  # type: ignore[func-returns-value]

    for key, size in [("a", 4), ("b", 4), ("a", 4), ("c", 4), ("a", 4), ("b", 4), ("d", 11), ("d", 11)]:
        assert len(value(key, size)) == size
    assert made == ["a", "b", "c", "b", "d", "d"]
    assert (cache.counts().hits, cache.counts().misses) == (2, 6)


@pytest.mark.parametrize("condition", [None, "k < 100", "k = 37"])
def test_rows_without_columns_are_as_many_as_with_them(lake: Lake, condition: str | None) -> None:
    grow(lake, 3, synced=2)
    whole = read(lake.table(), None, condition)
    assert read(lake.table(), [], condition).num_rows == whole.num_rows > 0
