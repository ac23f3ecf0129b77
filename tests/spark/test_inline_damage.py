"""Inline entries with a damaged index or a damaged file: the job stands, others follow, a reindex fixes the rest."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import LoadMode
from skipstone_core.reasons import Reason

from tests.spark.index_bed import index_on, local
from tests.spark.inline_bed import BY_NAME, InlineBed, change, rows, synced

BY_CITY = replace(index_on("city", name="city"), is_inline=True)


@pytest.fixture
def bed(tmp_path: Path) -> InlineBed:
    made = InlineBed(tmp_path / "lake", indexes=(BY_NAME,))
    made.create()
    made.load(rows(0, 20))
    return made


def spoil_cover(bed: InlineBed) -> None:
    local(bed.lake.index_table(BY_NAME).covers[0].path).unlink()


def spoil_metadata(bed: InlineBed) -> None:
    local(bed.lake.index_table(BY_NAME).table.metadata_location).write_bytes(b"{")


def spoil_storage(bed: InlineBed) -> None:
    """No directory can be made where the index table writes."""
    folder = local(bed.lake.index_table(BY_NAME).table.location()) / "data"
    shutil.rmtree(folder)
    folder.write_text("")


@pytest.mark.parametrize("spoil", [spoil_cover, spoil_metadata, spoil_storage])
def test_a_damaged_index_never_fails_a_job_and_the_others_follow(
    bed: InlineBed, spoil: Callable[[InlineBed], None]
) -> None:
    bed.indexes = (BY_NAME, BY_CITY)
    bed.lake.reindex(BY_CITY)
    spoil(bed)
    reports: list[JobReport] = [bed.load(rows(20, 20)), bed.merge([change(3), change(900)])]
    for report in reports:
        assert (report.outcome, report.reason) == (RunOutcome.COMMITTED, Reason.COMMITTED)
        assert "Not entered into the index idx, which is left to its next reindex" in report.message
        damaged, sound = report.table_states[0].indexes
        assert damaged.segments_missing > 0
        assert synced(sound)
    if spoil is spoil_storage:
        local(bed.lake.index_table(BY_NAME).table.location()).joinpath("data").unlink()
    bed.lake.reindex(BY_NAME)
    for index in (BY_NAME, BY_CITY):
        assert synced(bed.lake.state(index))
        bed.lake.assert_every_row_once(index)
    bed.assert_exact()


def test_a_damaged_entry_file_costs_its_own_segments_only(bed: InlineBed) -> None:
    local(bed.lake.index_table(BY_NAME).entries[0].path).write_bytes(b"")
    report = bed.load(rows(20, 20))
    (state,) = report.table_states[0].indexes
    assert (state.segments_missing, state.segments_synced, state.degraded) == (1, 1, Reason.INDEX_DAMAGED)
    bed.assert_exact()
    bed.lake.reindex(BY_NAME)
    assert synced(bed.lake.state(BY_NAME))


def test_a_file_that_cannot_be_read_is_told_and_left_to_the_reindex(tmp_path: Path) -> None:
    bed = InlineBed(tmp_path / "lake", indexes=(BY_NAME,))
    bed.create()
    request = bed.load_request(rows(0, 50), mode=LoadMode.REGISTER)
    source = bed.root / "feeds" / request.load.source.paths[0].rpartition("/")[2] if request.load else bed.root
    (path,) = source.rglob("*.parquet")
    content = bytearray(path.read_bytes())
    first_page = pq.read_metadata(path).row_group(0).column(1).data_page_offset
    content[first_page : first_page + 8] = bytes(8)
    path.write_bytes(bytes(content))
    report = bed.run(request)
    assert report.outcome is RunOutcome.COMMITTED
    assert "cannot be indexed" in report.message
    (state,) = report.table_states[0].indexes
    assert (state.segments_missing, state.segments_failed) == (1, 0)
