"""Tables of format version 3 with any history: whoever writes and maintains them, rows keep their ids.

Plain Spark reads them after each step, and writes in between. The changes between their snapshots are those of their
rows. `make soak-maintain` takes more tables and longer lives.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.lineage_bed import LineageLife
from tests.spark.maintain_bed import MaintainBed
from tests.spark.secondengine import second_spark

TABLES, SOAK_TABLES = 1, 60
OURS = ("load", "merge", "merge")
THEIRS = ("their_merge", "their_update", "their_delete", "their_rewrite")
UPKEEP = ("compact", "compact", "compact", "manifests", "expire", "clean")


def seeds() -> list[Any]:
    """SOAK_TABLES lives, the first of which are no soak."""
    marks: list[list[Any]] = [[], [pytest.mark.soak]]
    return [pytest.param(at, marks=marks[at >= TABLES]) for at in range(SOAK_TABLES)]


@pytest.mark.parametrize("seed", seeds())
def test_rows_keep_their_ids_whatever_becomes_of_the_table(
    tmp_path: Path, spark: SparkSession, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = Random(seed)
    monkeypatch.setattr("skipstone.kernels.compacting.COPIED_ROWS", draw.choice([1, 1 << 20]))
    monkeypatch.setattr("skipstone_core.maintenance.manifests.RADIX", draw.choice([2, 3]))
    monkeypatch.setattr("skipstone.kernels.ordering.SortedRows.run_bytes", draw.choice([500, 1 << 20]))
    bed = MaintainBed(tmp_path)
    life = LineageLife.begun(bed, second_spark(spark, bed.warehouse), draw, version=2 + seed % 2)
    steps = [draw.choice((*OURS, *THEIRS, *UPKEEP, "tag", "repartition")) for _ in range(5 if seed < TABLES else 16)]
    steps.insert(draw.randint(0, len(steps) // 2), "upgrade")
    for step in (*steps, "their_delete", "merge", "compact", "manifests"):
        getattr(life, step)()
    assert life.check_changes(monkeypatch) > 0
    life.expire()
    life.check_changes(monkeypatch)
    life.bed.catalog.close()
