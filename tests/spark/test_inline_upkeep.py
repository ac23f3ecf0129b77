"""Tables of indexes that are kept inline do not grow without bound: their old snapshots expire with their files."""

from __future__ import annotations

from pathlib import Path

from skipstone.tables.sharing.reach import read_reach
from skipstone.tables.storage import plain_location
from skipstone_core.maintenance.health import EXPIRE_AT_ONCE

from tests.spark.inline_bed import BY_NAME, InlineBed, rows
from tests.spark.upkeep_bed import later


def test_old_snapshots_of_an_index_expire_with_their_files(tmp_path: Path) -> None:
    bed = InlineBed(tmp_path / "lake", indexes=(BY_NAME,))
    bed.create()
    for number in range(EXPIRE_AT_ONCE + 1):
        bed.load(rows(number, 1))
    assert len(bed.lake.index_table(BY_NAME).table.metadata.snapshots) > EXPIRE_AT_ONCE  # readers have an hour
    bed.assert_in_sync(bed.load(rows(100, 1), ports=later()))
    index = bed.lake.index_table(BY_NAME).table
    assert len(index.metadata.snapshots) == 2  # what the last commit has just replaced has readers as well
    folder = Path(plain_location(index.location()))
    there = {str(path) for path in folder.rglob("*") if path.is_file()}
    assert there == {plain_location(path) for path in read_reach(index).paths()}
