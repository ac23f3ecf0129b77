"""A full rebuild in place: older entries serve until newer ones do, wherever a run dies; and the least coverage of use.

A run dies by an exception that nothing catches, before and after each of its writes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFile
from skipstone.files.parquet import ParquetFile
from skipstone.indexes.coverage import read_covers
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import IndexRef
from skipstone_core.indexing.use import NotUsed
from skipstone_core.reasons import Reason

from tests.examples import ALL_CASES, turn
from tests.spark.index_bed import Lake, index_on, local
from tests.spark.kept import Kept

INDEX = index_on("k")
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
SEGMENTS, ROWS = 3, 40
WRITES = [(PyArrowFile, "create"), (ParquetFile, "close"), (SqlCatalog, "create_table"), (SqlCatalog, "commit_table")]
#: One of so many writes is tried in `make test`.
PART = 5


class Killed(BaseException):
    """Ends a run as a signal does: nothing that it wrote is taken back."""


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


@contextmanager
def dying_at(fatal: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The writes so far; before the one of this number, 0: none, the run dies."""
    steps: list[str] = []
    lock = threading.Lock()

    def step(what: str) -> None:
        with lock:
            steps.append(what)
            if len(steps) == fatal:
                raise Killed(what)

    def watched(owner: Any, name: str) -> Callable[..., Any]:
        done = getattr(owner, name)

        def stepped(*args: Any, **kwargs: Any) -> Any:
            step(f"before {owner.__name__}.{name}")
            result = done(*args, **kwargs)
            step(f"after {owner.__name__}.{name}")
            return result

        return stepped

    with monkeypatch.context() as patched:
        for owner, name in WRITES:
            patched.setattr(owner, name, watched(owner, name))
        yield steps


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
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Lake(kept.restored())
    with dying_at(0, monkeypatch) as steps:
        whole.reindex(INDEX, rebuild="full/1")
    whole.catalog.close()
    every = range(1, len(steps) + 1)
    assert len(every) > 3 * PART
    for fatal in every if ALL_CASES else every[turn(PART) :: PART]:
        lake = Lake(kept.restored())
        older = file_ids(lake)
        with pytest.raises(Killed) as killed, dying_at(fatal, monkeypatch):
            lake.reindex(INDEX, rebuild="full/1")
        said = f"killed at step {fatal}, {killed.value}"
        assert_serves(lake, said)
        # whoever comes next goes on, whether it is asked for or not: a reindex of its own accord is due
        if not set(file_ids(lake)) & set(older) and lake.state(INDEX).entries == SEGMENTS * ROWS:
            assert_rebuilt(lake, older, said)
        report = lake.reindex(INDEX, rebuild="full/1")
        assert report.outcome is RunOutcome.COMMITTED
        assert_rebuilt(lake, older, said)
        lake.catalog.close()


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
