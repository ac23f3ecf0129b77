"""A full rebuild in place: older entries serve until newer ones do, wherever a run dies; and the least coverage of use.

A run dies by SIGKILL, before and after each of its writes. What it leaves in the storage goes after some days.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from skipstone.indexes.coverage import read_covers
from skipstone.indexes.upkeep.remains import AGE_SECONDS
from skipstone.runs.reindex import run_reindex
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.committing.commits import CommitPorts
from skipstone.tables.committing.swaps import wall_clock_ms
from skipstone.tables.sharing.reach import read_reach
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import IndexRef
from skipstone_core.indexing.use import NotUsed
from skipstone_core.reasons import Reason

from tests.examples import ALL_CASES, turn
from tests.spark.index_bed import Lake, index_on, local
from tests.spark.kept import Kept
from tests.spark.killed_app import Bounds, reindex_until

INDEX = index_on("k")
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
SEGMENTS, ROWS = 3, 40
#: One of so many writes is tried in `make test`.
PART = 16
#: A buffer by which a run commits segment by segment.
BOUNDS = Bounds(buffer=ROWS * 8)


def rows_of_segment(segment: int) -> pa.Table:
    numbers = range(segment * ROWS, segment * ROWS + ROWS)
    return pa.table({"k": [n * 7 % (SEGMENTS * ROWS) for n in numbers], "v": [f"v{n}" for n in numbers]}, schema=SCHEMA)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """A table of three segments in an index."""
    lake = Lake(tmp_path_factory.mktemp("lake"))
    table = lake.create(SCHEMA)
    for segment in range(SEGMENTS):
        table.append(rows_of_segment(segment))
    lake.reindex(INDEX)
    lake.catalog.close()
    return Kept(lake.root, tmp_path_factory.mktemp("kept"))


@pytest.fixture
def lake(kept: Kept) -> Iterator[Lake]:
    made = Lake(kept.restored())
    yield made
    made.catalog.close()


def rebuild_until(lake: Lake, step: int) -> tuple[int, list[str]]:
    """Exit code and steps of a full rebuild that dies before ``step``; 0: that ends."""
    return reindex_until(lake.request(INDEX, rebuild="full/1"), lake.root / "pod", step, BOUNDS)


@pytest.fixture(scope="module")
def steps(kept: Kept) -> list[str]:
    """The steps of a full rebuild that nobody kills."""
    lake = Lake(kept.restored())
    code, steps = rebuild_until(lake, 0)
    lake.catalog.close()
    assert code == 0
    assert {step.split()[1] for step in steps} == {"PyArrowFile.create", "ParquetFile.close", "SqlCatalog.commit_table"}
    assert len(steps) > 2 * PART
    return steps


def unnamed_files(lake: Lake) -> set[Path]:
    """The data files in the folder of the index table that none of its snapshots holds."""
    table = lake.index_table(INDEX).table
    named = {local(path).resolve() for path in read_reach(table).files}
    return {path for path in local(table.location()).rglob("*.parquet") if path.resolve() not in named}


def file_ids(lake: Lake) -> list[int]:
    """The numbers of the files that the index covers."""
    ids: list[int] = read_covers(lake.index_table(INDEX))["file_id"].to_pylist()
    return sorted(ids)


def assert_serves(lake: Lake, said: str = "") -> None:
    """The index covers all segments and is used, and every read is right."""
    assert lake.state(INDEX).segments_missing == 0, said
    assert lake.plan("k = 7").funnel.read < SEGMENTS, said
    for condition in ("k = 7", "k between 10 and 12", "k = 1000"):
        lake.assert_exact(condition)


def assert_rebuilt(lake: Lake, older: list[int], said: str = "") -> None:
    """All entries are new, each is there once, and nothing is due."""
    assert_serves(lake, said)
    lake.assert_every_row_once(INDEX)
    assert not set(file_ids(lake)) & set(older), said
    state = lake.state(INDEX)
    assert (state.entries, state.rows_to_merge) == (SEGMENTS * ROWS, 0), said


def test_a_loaded_index_reads_each_cover_file_once(lake: Lake, tmp_path: Path) -> None:
    index = lake.index_table(INDEX)
    rows = read_covers(index)
    assert rows.num_rows == SEGMENTS
    moved = {local(file.path): tmp_path / f"{number}" for number, file in enumerate(index.covers)}
    for path, aside in moved.items():
        shutil.move(path, aside)
    assert read_covers(index).equals(rows)
    with pytest.raises(FileNotFoundError):
        read_covers(lake.index_table(INDEX))
    for path, aside in moved.items():
        shutil.move(aside, path)


def test_a_full_reindex_builds_all_entries_again_once(lake: Lake) -> None:
    older = file_ids(lake)
    paths = {file.path for file in lake.index_table(INDEX).entries}
    report = lake.reindex(INDEX, rebuild="full/1")
    assert (report.outcome, report.counts["segments"], report.counts["entries"]) == (
        RunOutcome.COMMITTED,
        SEGMENTS,
        SEGMENTS * ROWS,
    )
    assert_rebuilt(lake, older)
    newer = {file.path for file in lake.index_table(INDEX).entries}
    assert not paths & newer
    again = lake.reindex(INDEX, rebuild="full/1")
    assert (again.counts["segments"], {file.path for file in lake.index_table(INDEX).entries}) == (0, newer)
    assert lake.reindex(INDEX, rebuild="full/2").counts["segments"] == SEGMENTS
    lake.table().append(rows_of_segment(0))
    assert lake.reindex(INDEX, rebuild="full/2").counts["segments"] == 1


def test_a_rebuild_that_is_killed_at_a_write_leaves_the_older_or_the_newer_entries(
    kept: Kept, steps: list[str]
) -> None:
    every = range(1, len(steps) + 1)
    for fatal in every if ALL_CASES else every[turn(PART) :: PART]:
        lake = Lake(kept.restored())
        older = file_ids(lake)
        code, taken = rebuild_until(lake, fatal)
        assert (code, len(taken)) == (-signal.SIGKILL, fatal)
        said = f"killed at step {fatal}, {taken[-1]}"
        assert_serves(lake, said)
        # whoever comes next goes on, whether it is asked for or not: a reindex of its own accord is due
        if not set(file_ids(lake)) & set(older) and lake.state(INDEX).entries == SEGMENTS * ROWS:
            assert_rebuilt(lake, older, said)
        report = lake.reindex(INDEX, rebuild="full/1")
        assert report.outcome is RunOutcome.COMMITTED
        assert_rebuilt(lake, older, said)
        lake.catalog.close()


def test_files_of_a_killed_rebuild_are_deleted_after_some_days_and_no_others(lake: Lake, steps: list[str]) -> None:
    fatal = 1 + steps.index("before SqlCatalog.commit_table", steps.index("after ParquetFile.close"))
    code, _ = rebuild_until(lake, fatal)
    assert code == -signal.SIGKILL
    left = unnamed_files(lake)
    assert left, "entries and coverage of a wave that was not committed"
    taken, written_by_hand = sorted(left)[0], sorted(left)[0].with_name("by-hand.parquet")
    shutil.copy(taken, written_by_hand)
    rows, other = rows_of_segment(0), lake.create(SCHEMA, "other")
    pq.write_table(rows, local(other.location()) / taken.name)
    other.add_files([str(local(other.location()) / taken.name)])  # the same name: it may be the same file
    lake.reindex(INDEX, rebuild="full/1")
    assert unnamed_files(lake) >= left, "a run that is running may have written them"

    def later() -> int:
        return wall_clock_ms() + AGE_SECONDS * 1000 + 60_000

    request = lake.request(INDEX)
    run_reindex(request, Reporter(request), CommitPorts(now_ms=later))
    assert unnamed_files(lake) == {taken, written_by_hand}
    assert_serves(lake)
    lake.assert_every_row_once(INDEX)
    again = len(lake.index_table(INDEX).table.metadata.metadata_log)
    run_reindex(request, Reporter(request), CommitPorts(now_ms=later))
    assert len(lake.index_table(INDEX).table.metadata.metadata_log) == again, "files are listed once a day"


def test_a_rebuild_goes_on_in_the_next_run_and_takes_what_came_meanwhile(lake: Lake) -> None:
    older = file_ids(lake)
    report = lake.reindex(INDEX, rebuild="full/1", max_segments=1)
    assert report.table_states[0].indexes[0].rows_to_merge > 0, "a reindex is due"
    assert 0 < len(set(file_ids(lake)) & set(older)) < SEGMENTS
    assert_serves(lake)
    lake.table().append(rows_of_segment(0))
    report = lake.reindex(INDEX)
    assert report.counts["segments"] == SEGMENTS
    assert report.table_states[0].indexes[0].rows_to_merge == 0
    assert not set(file_ids(lake)) & set(older)
    lake.assert_every_row_once(INDEX)
    assert lake.state(INDEX).entries == (SEGMENTS + 1) * ROWS


def test_files_that_cannot_be_built_again_keep_their_older_entries(lake: Lake) -> None:
    older = file_ids(lake)
    gone = lake.table().inspect.data_files()["file_path"][0].as_py()
    local(gone).rename(local(gone).with_suffix(".kept"))
    report = lake.reindex(INDEX, rebuild="full/1")
    assert report.reason is Reason.SEGMENTS_FAILED
    assert len(set(file_ids(lake)) & set(older)) == 1
    local(gone).with_suffix(".kept").rename(local(gone))
    assert_serves(lake)
    lake.assert_every_row_once(INDEX)
    assert lake.state(INDEX).entries == SEGMENTS * ROWS
    assert lake.reindex(INDEX, rebuild="full/2").outcome is RunOutcome.COMMITTED
    assert_rebuilt(lake, older)


def used(lake: Lake) -> NotUsed | None:
    """Why the index is not used; None when it is."""
    (use,) = lake.plan("k = 7").indexes
    assert use.used == (use.code is None)
    lake.assert_exact("k = 7")
    return use.code


def test_an_index_that_covers_too_little_is_left_alone(lake: Lake) -> None:
    lake.table().append(rows_of_segment(0))

    def least(percent: int) -> IndexRef:
        return replace(INDEX, unused_below_percent=percent)

    for percent, expected in (
        (75, None),
        (76, NotUsed.TOO_LITTLE_COVERED),
        (0, None),
        (100, NotUsed.TOO_LITTLE_COVERED),
    ):
        report = lake.reindex(least(percent), max_segments=0)
        assert report.table_states[0].indexes[0].unused_below_percent == percent
        assert used(lake) is expected
    lake.reindex(least(100))
    assert used(lake) is None
