"""Merges of sources that repeat long texts: in the driver and in Spark, they give what merges of short ones give."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from skipstone.tasks.share import USUAL_SHARE, DriverShare
from skipstone_core.contract.reports import RunOutcome

from tests.spark.merge_bed import ALL_IN_SPARK, MergeBed, task_of

SCHEMA = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "v", StringType()), NestedField(3, "note", StringType())
)
TEXTS = ("a" * 3_000, "b" * 2_000, "", None)


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize(
    ("limits", "held"),
    [(USUAL_SHARE, None), (ALL_IN_SPARK, None), (ALL_IN_SPARK, 2_000)],
    ids=["in the driver", "in Spark", "in Spark, again in more ranges"],
)
def test_rows_get_the_long_texts_of_their_last_changes(
    tmp_path: Path, limits: DriverShare, held: int | None, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if held is not None:
        monkeypatch.setattr("skipstone.runs.merging.slices.slicing.MOST_HELD_BYTES", held)
        monkeypatch.setattr("skipstone.runs.merging.slices.slicing.RANGE_BYTES", held)
    bed = MergeBed(tmp_path, limits)
    bed.create(SCHEMA, **{"write.merge.mode": mode})
    bed.append([{"id": number, "v": "before", "note": TEXTS[number % 4]} for number in range(200)])
    # every second row twice: the later change counts
    changes = [{"id": at, "v": TEXTS[at % 4], "seq": 1} for at in range(100, 400)]
    changes += [{"id": at, "v": TEXTS[(at + 1) % 4], "seq": 2} for at in range(100, 400, 2)]
    path = bed.source(pa.Table.from_pylist(changes[::-1]))
    report = bed.merge(task_of(path, sequence_by="seq"))
    assert report.outcome is RunOutcome.COMMITTED, report.message
    expected = {at: ("before", TEXTS[at % 4]) for at in range(100)}
    for at in range(100, 400):
        expected[at] = (TEXTS[(at + 1) % 4 if at % 2 == 0 else at % 4], TEXTS[at % 4] if at < 200 else None)
    found = bed.table().scan().to_arrow().to_pylist()
    assert {row["id"]: (row["v"], row["note"]) for row in found} == expected
    assert len(found) == 400
