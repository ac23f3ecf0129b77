"""Merges into tables that list a data file twice, as writers leave them that add files without looking for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.errors import BadData
from skipstone_core.reasons import Reason
from skipstone_core.table_properties import MERGE_MODE

from tests.spark.index_bed import Lake, index_on
from tests.spark.merge_bed import MergeBed, task_of
from tests.spark.rawdeletes import add_position_delete

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", StringType()))
MODES = pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])


def filled(root: Path, mode: str) -> MergeBed:
    """Four files of ten rows; ids of one hundred begin with the number of their file."""
    bed = MergeBed(root)
    bed.create(SCHEMA, **{MERGE_MODE: mode})
    bed.append(*([{"id": 100 * file + row, "v": "old"} for row in range(10)] for file in range(4)))
    return bed


def first_file(bed: MergeBed) -> str:
    """The file with the ids below 100."""
    (found,) = bed.table().scan("id < 100").plan_files()
    return found.file.file_path


def add_again(bed: MergeBed, path: str) -> None:
    bed.table().add_files([path], check_duplicate_files=False)


def index_again(bed: MergeBed) -> None:
    lake = Lake(bed.root)
    lake.reindex(index_on("id"))
    lake.catalog.close()


@MODES
@pytest.mark.parametrize("prepare", [lambda _: None, index_again], ids=["plain", "indexed"])
def test_rows_of_a_file_that_is_listed_twice_change_twice(
    tmp_path: Path, mode: str, prepare: Callable[[MergeBed], None]
) -> None:
    bed = filled(tmp_path, mode)
    add_again(bed, first_file(bed))
    prepare(bed)
    before = bed.rows()
    report = bed.merge(task_of(bed.source([{"id": 3, "v": "new"}])))
    assert (report.outcome, report.counts["rowsUpdated"]) == (RunOutcome.COMMITTED, 2)
    assert bed.rows() == sorted(row.replace("(3, 'old')", "(3, 'new')") for row in before)


@pytest.mark.parametrize(("mode", "key"), [("copy-on-write", 3), ("merge-on-read", 3), ("merge-on-read", 4)])
def test_a_file_whose_places_in_the_table_have_other_deletes_is_refused(tmp_path: Path, mode: str, key: int) -> None:
    """Commits name files by their paths, so what one place loses the other would lose, too."""
    bed = filled(tmp_path, mode)
    path = first_file(bed)
    (target,) = (task.file for task in bed.table().scan("id < 100").plan_files())
    add_position_delete(bed.table(), target, [3])
    add_again(bed, path)
    before, on_disk = bed.rows(), bed.on_disk()
    with pytest.raises(BadData, match=r"the table lists .* 2 times") as caught:
        bed.merge(task_of(bed.source([{"id": key, "v": "new"}])))
    assert caught.value.reason is Reason.SOURCE_UNREADABLE
    assert (bed.rows(), bed.on_disk()) == (before, on_disk)
    assert bed.merge(task_of(bed.source([{"id": 103, "v": "new"}], "others"))).outcome is RunOutcome.COMMITTED
