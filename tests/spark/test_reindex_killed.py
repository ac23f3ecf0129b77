"""A reindex driver killed by SIGKILL at any step: what it finished stays, the rest is built once by the next run."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pyarrow as pa
import pytest
from skipstone.runs import reindex as reindex_run
from skipstone_core.reasons import Reason

from tests.spark.index_bed import Lake, index_on, local, query
from tests.spark.kept import Kept
from tests.spark.killed_app import Bounds, reindex_until

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("name", pa.string())])
K = index_on("k")
SEGMENTS = 8
KILLS = 10
#: What the keys of one segment take: a run with such a buffer commits segment by segment.
ONE_SEGMENT = 40 * 8


def rows(start: int, count: int = 40) -> pa.Table:
    keys = range(start, start + count)
    return pa.table({"k": keys, "name": [f"n{key % 7}" for key in keys]}, schema=SCHEMA)


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """A table whose first two segments are indexed, one of them damaged; a run has to quarantine, build and merge."""
    lake = Lake(tmp_path_factory.mktemp("lake"))
    table = lake.create(SCHEMA)
    for segment in range(2):
        table.append(rows(segment * 25))
    lake.follow(K)
    oldest = min(lake.index_table(K).entries, key=lambda file: file.sequence)
    local(oldest.path).write_bytes(b"")
    for segment in range(2, SEGMENTS):
        lake.table().append(rows(segment * 25))
    lake.catalog.close()
    return Kept(lake.root, tmp_path_factory.mktemp("kept"))


def kill_at(lake: Lake, step: int) -> tuple[int, list[str]]:
    """Exit code and steps of the application, which dies before ``step``."""
    return reindex_until(lake.request(K), lake.root / "pod", step, Bounds(buffer=ONE_SEGMENT))


@pytest.fixture(scope="module")
def steps(grown: Kept) -> list[str]:
    """The steps of a run that nobody kills."""
    lake = Lake(grown.restored())
    code, steps = kill_at(lake, 0)
    assert code == 0
    assert lake.state(K).segments_synced == SEGMENTS
    return steps


def assert_nothing_twice_nothing_lost(lake: Lake) -> None:
    """Entries = rows of the table, by key, file and position; DuckDB reads both."""
    lake.assert_every_row_once(K)
    entries = query("select k0 as k, count(*) as n from rows group by 1", lake.entries(K))
    table = query("select k, count(*) as n from rows group by 1", lake.table().scan().to_arrow())
    assert entries.sort_by("k") == table.sort_by("k")


def assert_files_are_there(lake: Lake) -> None:
    """Every file that the index table names is whole (but for the one that ``grown`` emptied)."""
    index = lake.index_table(K)
    sizes = {(file.size, local(file.path).stat().st_size) for file in (*index.entries, *index.covers)}
    assert all(found in (wanted, 0) for wanted, found in sizes)


def test_the_run_under_test_takes_every_kind_of_step(steps: list[str]) -> None:
    assert len(steps) > 2 * KILLS
    assert {step.split()[1] for step in steps} == {"PyArrowFile.create", "ParquetFile.close", "SqlCatalog.commit_table"}


@pytest.mark.parametrize("kill", range(KILLS))
def test_a_driver_killed_anywhere_keeps_what_it_finished_and_the_next_run_builds_the_rest_once(
    kill: int, steps: list[str], grown: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(grown.restored())
    step = 1 + kill * (len(steps) - 1) // (KILLS - 1)
    code, taken = kill_at(lake, step)
    assert (code, len(taken)) == (-signal.SIGKILL, step)
    state = lake.state(K)
    commits = taken.count("after SqlCatalog.commit_table")
    assert state.segments_synced >= min(1, commits) + max(0, min(commits - 1, SEGMENTS - 2))
    assert_files_are_there(lake)
    lake.assert_exact("k in (10, 95) or k > 200")

    monkeypatch.setattr(reindex_run, "BUFFER_BYTES", ONE_SEGMENT)
    report = lake.reindex(K)
    assert report.reason is Reason.COMMITTED
    assert report.counts["segments"] == SEGMENTS - state.segments_synced
    after = lake.state(K)
    assert (after.segments_synced, after.degraded, after.entries) == (SEGMENTS, None, SEGMENTS * 40)
    assert_nothing_twice_nothing_lost(lake)
    assert 1 in {file.level for file in lake.index_table(K).entries}
    lake.assert_exact("k in (10, 95) or k > 200")


def test_a_driver_killed_before_it_made_the_index_table_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    lake = Lake(tmp_path / "lake")
    lake.create(SCHEMA).append(rows(0))
    code, taken = kill_at(lake, 1)
    assert (code, taken) == (-signal.SIGKILL, ["before SqlCatalog.create_table"])
    assert not lake.state(K).exists
    shutil.rmtree(lake.root / "pod")
    assert lake.reindex(K).counts["segments"] == 1
    assert_nothing_twice_nothing_lost(lake)
