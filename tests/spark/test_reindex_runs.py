"""Reindex runs: merging of index files, purging, crashes, damaged index files, the application itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from skipstone.indexes.building import waves
from skipstone.indexes.tables import sorted_runs
from skipstone.indexes.upkeep import compaction
from skipstone.runs import reindex as reindex_run
from skipstone.tasks.share import DriverShare
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import IndexRef
from skipstone_core.indexing.indexes import MERGE_FAN_IN
from skipstone_core.reasons import Reason

from tests.spark.index_bed import Lake, index_on, local

ROOT = Path(__file__).parents[2]
SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("name", pa.string())])
K = index_on("k")
NAME = index_on("name", "k", name="name")


def rows(start: int, count: int = 100) -> pa.Table:
    keys = np.arange(start, start + count)
    names = [None if key % 11 == 0 else f"n{key % 7}" for key in keys]
    return pa.table({"k": keys, "name": names}, schema=SCHEMA)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def grow(lake: Lake, count: int) -> Table:
    """A table with ``count`` segments whose key ranges overlap."""
    table = lake.create(SCHEMA)
    for segment in range(count):
        table.append(rows(segment * 30))
    return table


def levels(lake: Lake, index: IndexRef) -> list[tuple[str, int]]:
    found = lake.index_table(index)
    return sorted((file.kind, file.level) for file in (*found.entries, *found.covers))


def test_eight_runs_are_merged_into_one_and_nothing_is_lost(lake: Lake) -> None:
    grow(lake, 7)
    lake.follow(NAME)
    before = lake.entries(NAME).num_rows
    assert Counter(levels(lake, NAME)) == {("entry", 0): 7, ("cover", 0): 7}
    lake.table().append(rows(1000))
    lake.reindex(NAME)
    assert Counter(levels(lake, NAME)) == {("entry", 1): 1, ("cover", 1): 1}
    assert lake.entries(NAME).num_rows == before + 100
    assert lake.state(NAME).segments_synced == 8
    assert lake.assert_exact("name = 'n3' and k < 60").num_rows > 0
    assert lake.assert_exact("name is null").num_rows > 0


def test_small_segments_are_entered_in_one_commit_and_share_a_run(lake: Lake) -> None:
    grow(lake, 9)
    report = lake.reindex(NAME)
    assert report.counts["segments"] == 9
    assert Counter(levels(lake, NAME)) == {("entry", 0): 1, ("cover", 0): 1}
    (commit,) = lake.index_table(NAME).table.metadata.snapshots
    assert commit.summary is not None
    assert commit.summary["skipstone.segments"] == "9"
    lake.assert_every_row_once(NAME)
    assert lake.assert_exact("name = 'n3' and k < 60").num_rows > 0


def test_a_commit_holds_no_more_segments_than_fill_the_buffers(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reindex_run, "BUFFER_BYTES", 250 * 8)
    monkeypatch.setattr(waves, "ROWS_PER_FILE", 0)
    grow(lake, 5)
    lake.reindex(K)
    commits = lake.index_table(K).table.metadata.snapshots
    assert [commit.summary and commit.summary["skipstone.segments"] for commit in commits] == ["2", "2", "1"]
    lake.assert_every_row_once(K)


def test_a_merge_in_spark_cuts_the_keys_into_ranges(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "ROWS_PER_RANGE", 200)
    lake.share = DriverShare(indexed_rows=500)
    grow(lake, 8)
    lake.follow(K)
    lake.follow(NAME)
    found = lake.index_table(K)
    ((run, files),) = sorted_runs(found.entries).items()
    assert (run.level, run.rows) == (1, 800)
    assert len(files) > 1
    bounds = found.files.bounds(found.table.schema().find_field("k0").field_id)
    ranges = sorted(zip(bounds.lower.to_pylist(), bounds.upper.to_pylist(), strict=True), key=str)
    keyed = sorted(pair for pair in ranges if pair[0] is not None)
    assert all(left[1] < right[0] for left, right in pairwise(keyed))
    for condition in ("k = 100", "k between 55 and 65", "name = 'n1'", "name is null and k > 200", "name >= 'n5'"):
        lake.assert_exact(condition)


def test_a_bulk_build_commits_in_waves_and_writes_each_entry_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reindex_run, "BUFFER_BYTES", 50 * 8)
    monkeypatch.setattr(waves, "ROWS_PER_FILE", 0)
    grow(lake, 30)
    lake.reindex(K)
    found = lake.index_table(K)
    summaries = [one.summary for one in found.table.metadata.snapshots]
    assert 3 < len(summaries) == len(found.entries) < MERGE_FAN_IN
    assert not [one for one in summaries if one and "skipstone.merge" in one.additional_properties]
    assert sum(file.records for file in found.entries) == 3000
    lake.assert_every_row_once(K)
    lake.assert_exact("k in (100, 400) or k > 900")


def test_a_large_segment_is_entered_in_several_waves_and_counts_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reindex_run, "BUFFER_BYTES", 100 * 8)
    monkeypatch.setattr(waves, "ROWS_PER_FILE", 0)
    lake.create(SCHEMA, properties={"write.target-file-size-bytes": "1000"}).append(rows(0, 800))
    files = len(lake.table().inspect.data_files())
    report = lake.reindex(K)
    index = lake.index_table(K).table
    covered = [
        index.scan("kind = 'cover'", snapshot_id=snapshot.snapshot_id).count() for snapshot in index.metadata.snapshots
    ]
    assert report.counts == {"segments": 1, "files": files, "entries": 800}
    assert len(covered) > 3
    assert covered == sorted(set(covered))
    assert covered[-1] == files
    assert (lake.state(K).segments_synced, lake.state(K).segments_missing) == (1, 0)
    lake.assert_every_row_once(K)


def test_a_small_buffer_makes_the_same_index(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.create(SCHEMA)
    table.append(rows(0, 200_000))
    monkeypatch.setattr(reindex_run, "BUFFER_BYTES", 512 * 1024)
    lake.reindex(K)
    found = lake.index_table(K)
    assert sum(file.records for file in found.entries) == 200_000
    assert len(found.entries) == 1
    keys = pq.read_table(local(found.entries[0].path), columns=["k0"])["k0"].to_numpy()
    assert keys.tolist() == list(range(200_000))
    assert lake.assert_exact("k in (0, 77777, 199999)").num_rows == 3


def test_a_point_lookup_reads_one_row_group(lake: Lake) -> None:
    table = lake.create(SCHEMA, properties={"write.parquet.row-group-limit": "1000"})
    table.append(rows(0, 10_000))
    lake.reindex(K)
    plan = lake.plan("k = 4321")
    assert plan.row_groups == {0: (4,)}
    assert lake.assert_exact("k = 4321").num_rows == 1


def expire_old_snapshots(table: Table) -> None:
    head = table.metadata.current_snapshot_id
    old = [snapshot.snapshot_id for snapshot in table.metadata.snapshots if snapshot.snapshot_id != head]
    table.maintenance.expire_snapshots().by_ids(old).commit()


def test_entries_of_expired_files_are_purged_when_they_are_many(lake: Lake) -> None:
    table = grow(lake, 3)
    lake.reindex(K)
    table.overwrite(rows(5000))
    lake.reindex(K)
    assert lake.state(K).entries == 400
    expire_old_snapshots(lake.table())
    lake.reindex(K)
    state = lake.state(K)
    assert (state.entries, state.segments_synced, state.segments_missing) == (100, 1, 0)
    assert lake.assert_exact("k = 5010").num_rows == 1


def test_entries_of_files_that_an_older_snapshot_holds_are_kept_for_time_travel(lake: Lake) -> None:
    from skipstone.query import ReadOptions, plan_read, read

    table = grow(lake, 2)
    old = table.metadata.current_snapshot_id
    lake.reindex(K)
    table.overwrite(rows(5000))
    lake.reindex(K)
    options = ReadOptions(snapshot_id=old)
    plan = plan_read(lake.table(), "k = 40", options)
    assert plan.indexes[0].missing_segments == ()
    assert read(lake.table(), ["k"], "k = 40", options).num_rows == 2


def test_file_ids_are_never_given_twice(lake: Lake) -> None:
    table = grow(lake, 2)
    lake.reindex(K)
    first = set(lake.entries(K)["file_id"].to_pylist())
    table.overwrite(rows(5000))
    expire_old_snapshots(lake.table())
    lake.reindex(K)
    lake.table().append(rows(6000))
    lake.reindex(K)
    assert not first & set(lake.entries(K)["file_id"].to_pylist())


def test_a_damaged_entry_file_costs_time_and_never_an_answer(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    grow(lake, 3)
    lake.follow(K)
    victim = local(lake.index_table(K).entries[1].path)
    victim.write_bytes(b"PAR1" + bytes(victim.stat().st_size - 8) + b"PAR1")
    assert lake.assert_exact("k = 40").num_rows == 2
    assert lake.assert_exact("k in (5, 70) or k > 140").num_rows > 0
    plan = lake.plan("k = 40")
    assert not plan.indexes[0].used
    assert "cannot be read" in plan.text()
    assert "segments are read by min/max" in caplog.text


def test_a_missing_cover_file_makes_its_index_cover_nothing(lake: Lake) -> None:
    grow(lake, 3)
    lake.reindex(K)
    local(lake.index_table(K).covers[0].path).unlink()
    state = lake.state(K)
    assert (state.exists, state.segments_missing, state.degraded) == (True, 3, Reason.INDEX_DAMAGED)
    assert lake.assert_exact("k = 40").num_rows == 2


@pytest.mark.parametrize("part", ["cover", "metadata"])
def test_a_damaged_index_table_is_built_anew_by_the_next_run(lake: Lake, part: str) -> None:
    grow(lake, 2)
    lake.reindex(K)
    found = lake.index_table(K)
    paths = {"cover": found.covers[0].path, "metadata": found.table.metadata_location}
    local(paths[part]).unlink()
    assert lake.state(K).degraded is Reason.INDEX_DAMAGED
    assert lake.assert_exact("k = 40").num_rows == 2
    assert lake.reindex(K).counts["segments"] == 2
    assert (lake.state(K).segments_synced, lake.state(K).degraded) == (2, None)


def test_a_dropped_index_table_is_absent_and_the_next_run_builds_it_anew(lake: Lake) -> None:
    grow(lake, 2)
    lake.reindex(K)
    lake.catalog.drop_table(lake.index_table(K).identifier)
    assert (lake.state(K).exists, lake.state(K).segments_missing) == (False, 2)
    assert lake.assert_exact("k = 40").num_rows == 2
    assert lake.reindex(K).counts["segments"] == 2


def test_one_broken_index_leaves_the_other_in_use(lake: Lake) -> None:
    grow(lake, 3)
    lake.reindex(K)
    lake.reindex(NAME)
    for file in lake.index_table(NAME).entries:
        local(file.path).unlink()
    plan = lake.plan("name = 'n3' and k = 40")
    assert {use.name.split("__si_")[1].split("_")[0]: use.used for use in plan.indexes} == {"idx": True, "name": False}
    lake.assert_exact("name = 'n3' and k = 40")
    lake.assert_exact("name = 'n3' or k = 40")


def run_application(request: str, folder: Path) -> Iterator[JobReport]:
    (folder / "request.json").write_text(request)
    settings = {
        **os.environ,
        "SKIPSTONE_REQUEST": str(folder / "request.json"),
        "SKIPSTONE_REPORT": str(folder / "report.json"),
    }
    app = ROOT / "spark_apps" / "skipstone" / "apps" / "reindex.py"
    ended = subprocess.run([sys.executable, str(app)], env=settings, check=False, timeout=800, capture_output=True)
    assert ended.returncode == 0, ended.stderr.decode()
    yield JobReport.from_json((folder / "report.json").read_text())


def test_the_application_reads_its_request_and_reports_the_state_of_the_index(lake: Lake, tmp_path: Path) -> None:
    grow(lake, 2)
    folder = tmp_path / "pod"
    folder.mkdir()
    (report,) = run_application(lake.request(K).to_json(), folder)
    assert report.outcome is RunOutcome.COMMITTED
    assert report.counts == {"segments": 2, "files": 2, "entries": 200}
    (state,) = report.table_states
    (index,) = state.indexes
    assert (index.uid, index.segments_synced, index.missing_segments) == (K.uid, 2, ())
    built = lake.index_table(K).table.metadata
    assert (index.metadata.uuid, index.metadata.updated_ms) == (str(built.table_uuid), built.last_updated_ms)
    assert json.loads((folder / "report.json").read_text())["kind"] == "Reindex"
