"""Damaged entry files: what status says, that reads stay exact, and that a reindex builds exactly what was lost."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFile
from skipstone.indexes.tables import IndexFile
from skipstone.indexes.upkeep import compaction
from skipstone.indexes.upkeep.quarantine import QUARANTINE_SUMMARY
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.reasons import Reason

from tests.pages import lose_page
from tests.spark.index_bed import Lake, index_on, local

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("name", pa.string())])
K = index_on("k")
CONDITIONS = ("k = 40", "k in (5, 70, 130) or k > 300", "k is null", "k between 20 and 90 and name = 'n3'")


def rows(start: int, count: int = 100) -> pa.Table:
    keys = [None if key % 13 == 0 else key for key in range(start, start + count)]
    return pa.table({"k": keys, "name": [f"n{n % 7}" for n in range(count)]}, schema=SCHEMA)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def grow(lake: Lake, count: int) -> None:
    """A table with ``count`` segments whose key ranges overlap, and its index."""
    table = lake.create(SCHEMA)
    for segment in range(count):
        table.append(rows(segment * 30))
    lake.follow(K)


def entry_files(lake: Lake) -> list[IndexFile]:
    """Entry files, oldest first."""
    return sorted(lake.index_table(K).entries, key=lambda file: (file.sequence, file.ordinal))


def assert_exact(lake: Lake) -> None:
    for condition in CONDITIONS:
        lake.assert_exact(condition)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def remove(path: Path) -> None:
    path.unlink()


def garble_footer(path: Path) -> None:
    content = bytearray(path.read_bytes())
    length = int.from_bytes(content[-8:-4], "little")
    content[-8 - length : -8] = bytes(length)
    path.write_bytes(content)


def garble_length(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8] + b"\xff\xff\xff\xffPAR1")


def replace_by_another_schema(path: Path) -> None:
    """Another file in Parquet with as many rows and bytes, as a restore of the wrong file leaves it."""
    wanted, count = path.stat().st_size, pq.read_metadata(path).num_rows
    padding = 0
    while (written := write_padded(path, count, padding)) != wanted:
        padding += wanted - written
        assert padding > 0


def write_padded(path: Path, count: int, padding: int) -> int:
    table = pa.table({"x": np.zeros(count)})
    with pq.ParquetWriter(path, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"padding": "x" * padding})
    return path.stat().st_size


def lose_a_row(path: Path) -> None:
    """The same schema and as many bytes, but not the entries that were committed."""
    table = pq.read_table(path)
    schema = table.schema.remove_metadata()
    wanted, padding = path.stat().st_size, 0
    while True:
        with pq.ParquetWriter(path, schema, store_schema=False, compression="zstd") as writer:
            writer.write_table(table.slice(1).cast(schema))
            writer.add_key_value_metadata({"padding": "x" * padding})
        if path.stat().st_size == wanted:
            return
        padding += wanted - path.stat().st_size
        assert padding > 0


def change_a_bound(path: Path) -> None:
    """The greatest key of a row group by one bit: a look-up that believes it passes by entries."""
    content = bytearray(path.read_bytes())
    greatest = greatest_key(path)
    content[bytes(content).rindex(greatest.to_bytes(8, "little"))] ^= 0x40
    path.write_bytes(content)
    assert greatest_key(path) != greatest


def greatest_key(path: Path) -> int:
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    return int(next(one for one in columns if one.path_in_schema == "k0").statistics.max)


def garble_page(path: Path) -> None:
    """One bit within the keys: size and footer stay as they are."""
    metadata = pq.read_metadata(path)
    columns = [metadata.row_group(0).column(n) for n in range(metadata.num_columns)]
    keys = next(column for column in columns if column.path_in_schema == "k0")
    content = bytearray(path.read_bytes())
    start = keys.dictionary_page_offset or keys.data_page_offset
    content[start + keys.total_compressed_size // 2] ^= 0x10
    path.write_bytes(content)


SEEN_IN_FOOTERS = {
    "truncated": (truncate, "bytes instead of"),
    "empty": (empty, "has 0 bytes"),
    "gone": (remove, "is gone"),
    "footer": (garble_footer, "is damaged"),
    "length": (garble_length, "is damaged"),
    "bound": (change_a_bound, "is damaged: the footer is not the one that was written"),
    "schema": (replace_by_another_schema, "has no column k0"),
    "rows": (lose_a_row, "has 99 entries instead of 100"),
}


@pytest.mark.parametrize(("damage", "text"), SEEN_IN_FOOTERS.values(), ids=SEEN_IN_FOOTERS)
def test_the_segment_of_a_damaged_file_is_missing_and_alone_built_again(
    lake: Lake, damage: Callable[[Path], None], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    grow(lake, 3)
    before = entry_files(lake)
    damage(local(before[1].path))
    state = lake.state(K)
    assert (state.missing_segments, state.segments_synced, state.degraded) == ((2,), 2, Reason.INDEX_DAMAGED)
    assert before[1].path in state.message
    assert text in state.message
    assert_exact(lake)
    if "entries instead" not in text:
        assert f"index file {before[1].path}" in caplog.text
    report = lake.reindex(K)
    assert (report.outcome, report.reason, report.counts["segments"]) == (RunOutcome.COMMITTED, Reason.COMMITTED, 1)
    assert before[1].path in report.message
    assert {before[0].path, before[2].path} < {file.path for file in entry_files(lake)}
    after = lake.state(K)
    assert (after.segments_synced, after.degraded, after.entries) == (3, None, 300)
    lake.assert_every_row_once(K)
    assert_exact(lake)


def test_a_lookup_that_meets_a_damaged_page_is_exact_and_names_the_file(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    grow(lake, 3)
    victim = entry_files(lake)[1].path
    garble_page(local(victim))
    assert_exact(lake)
    assert f"index file {victim}" in caplog.text
    assert "not used" in lake.plan("k = 40").text()


@pytest.mark.parametrize("column", ["k0", "pos"])
def test_a_lookup_that_meets_a_page_that_arrow_passes_by_is_exact_and_the_file_is_built_again(
    lake: Lake, caplog: pytest.LogCaptureFixture, column: str
) -> None:
    grow(lake, 7)
    victim = entry_files(lake)[1].path
    lose_page(local(victim), column)
    assert_exact(lake)
    assert f"index file {victim}" in caplog.text
    lake.table().append(rows(900))
    assert victim in lake.reindex(K).message
    lake.assert_every_row_once(K)
    assert_exact(lake)


def test_the_damage_is_in_the_history_of_the_index(lake: Lake) -> None:
    grow(lake, 3)
    victim = entry_files(lake)[1].path
    remove(local(victim))
    lake.reindex(K)
    summaries = [snapshot.summary for snapshot in lake.index_table(K).table.metadata.snapshots]
    assert [
        one[QUARANTINE_SUMMARY] for one in summaries if one and QUARANTINE_SUMMARY in one.additional_properties
    ] == [f"index file {victim} is gone"]


def test_a_damaged_part_of_a_merged_run_costs_the_segments_of_that_run_only(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "ROWS_PER_RANGE", 200)
    grow(lake, 8)
    for start in (500, 600):
        lake.table().append(rows(start))
        lake.reindex(K)
    merged = [file for file in entry_files(lake) if file.level == 1]
    assert len(merged) > 2
    remove(local(merged[1].path))
    state = lake.state(K)
    assert state.missing_segments == (1, 2, 3, 4, 5, 6, 7, 8)
    assert state.segments_synced == 2
    report = lake.reindex(K)
    assert report.counts["segments"] == 8
    assert (lake.state(K).segments_synced, lake.state(K).entries) == (10, 1000)
    lake.assert_every_row_once(K)
    assert_exact(lake)


def test_damage_within_a_page_is_found_by_the_merge_and_built_again_in_the_same_run(lake: Lake) -> None:
    grow(lake, 7)
    victim = entry_files(lake)[3].path
    garble_page(local(victim))
    assert lake.state(K).segments_missing == 0
    lake.table().append(rows(900))
    report = lake.reindex(K)
    assert report.counts["segments"] == 2
    assert victim in report.message
    assert {file.level for file in entry_files(lake)} == {1}
    assert (lake.state(K).segments_synced, lake.state(K).entries) == (8, 800)
    lake.assert_every_row_once(K)
    assert_exact(lake)


def test_without_bounds_of_file_ids_the_whole_index_is_built_again(lake: Lake) -> None:
    lake.create(SCHEMA)
    lake.reindex(K)
    with lake.index_table(K).table.transaction() as change:
        change.remove_properties("write.metadata.metrics.column.file_id")
    for start in (0, 50, 100):
        lake.table().append(rows(start))
    lake.reindex(K)
    remove(local(entry_files(lake)[0].path))
    assert lake.state(K).segments_synced == 0
    assert lake.reindex(K).counts["segments"] == 3
    lake.assert_every_row_once(K)


def test_files_of_several_segments_can_be_damaged_at_once(lake: Lake) -> None:
    grow(lake, 5)
    for file in (entry_files(lake)[0], entry_files(lake)[3]):
        empty(local(file.path))
    state = lake.state(K)
    assert state.missing_segments == (1, 4)
    assert "(and 1 other files)" in state.message
    assert lake.reindex(K).counts["segments"] == 2
    lake.assert_every_row_once(K)


def test_a_storage_that_does_not_answer_is_not_taken_for_damage(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    grow(lake, 3)
    head = lake.index_table(K).table.metadata.current_snapshot_id
    victim = entry_files(lake)[1].path
    opened = PyArrowFile.open

    def failing(file: PyArrowFile, seekable: bool = True) -> object:
        if file.location == victim:
            raise OSError(errno.EIO, "Input/output error")
        return opened(file, seekable)

    monkeypatch.setattr(PyArrowFile, "open", failing)
    state = lake.state(K)
    assert (state.degraded, state.segments_synced) == (Reason.STORAGE_UNAVAILABLE, 0)
    assert_exact(lake)
    with pytest.raises(OSError, match="Input/output error"):
        lake.reindex(K)
    monkeypatch.undo()
    assert (lake.state(K).segments_synced, lake.state(K).degraded) == (3, None)
    assert lake.index_table(K).table.metadata.current_snapshot_id == head


def test_a_segment_whose_data_file_is_damaged_too_fails_with_the_reason_until_that_is_mended(lake: Lake) -> None:
    grow(lake, 2)
    remove(local(entry_files(lake)[0].path))
    covers = lake.index_table(K).table.scan("kind = 'cover' and segment = 1").to_arrow()
    path = covers["path"][0].as_py()
    sound = local(path).read_bytes()
    truncate(local(path))
    assert lake.reindex(K).reason is Reason.SEGMENTS_FAILED
    state = lake.state(K)
    assert (state.missing_segments, state.segments_failed, state.segments_synced) == ((1,), 1, 1)
    assert path in state.message
    local(path).write_bytes(sound)
    assert lake.reindex(K).counts["segments"] == 1
    assert (lake.state(K).segments_synced, lake.state(K).degraded) == (2, None)
    lake.assert_every_row_once(K)


def test_small_segments_merged_from_both_sides_of_a_large_one_take_it_along_when_they_are_damaged(lake: Lake) -> None:
    """Its entries are of files that are built again, under new numbers: they must not stay beside the new ones."""
    grow(lake, 4)
    lake.table().append(rows(0, 5_000))
    lake.reindex(K)
    for start in (500, 600, 700, 800):
        lake.table().append(rows(start))
        lake.reindex(K)
    small, large = sorted(entry_files(lake), key=lambda file: file.records)
    assert (small.records, large.records, large.level) == (800, 5_000, 0)
    remove(local(small.path))
    assert lake.state(K).segments_synced == 0
    assert_exact(lake)
    assert lake.reindex(K).counts["segments"] == 9
    assert (lake.state(K).segments_synced, lake.state(K).entries) == (9, 5_800)
    lake.assert_every_row_once(K)
    assert_exact(lake)
