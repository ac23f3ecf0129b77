"""Partitions by doubles are read to the last bit, and stay so when a commit rewrites a manifest."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from skipstone.tables.committing.swaps import Parts, stage, wall_clock_ms
from skipstone.tables.filesets import read_file_set

from tests.spark.index_bed import Lake

VALUES = [0.1, 1e300, 5e-324, 2.0]


def partitions(table: Table) -> list[float]:
    files = read_file_set(table)
    return sorted(files.data_file(number).partition[0] for number in range(len(files)))


def test_partitions_by_doubles_are_exact(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    table = lake.create(pa.schema([("c", pa.float64())]))
    with table.update_spec() as update:
        update.add_field("c", IdentityTransform(), "p")
    lake.table().append(pa.table({"c": VALUES}))
    assert partitions(lake.table()) == sorted(VALUES)
    table = lake.table()
    (gone,) = (task.file for task in table.scan(EqualTo("c", 2.0)).plan_files())
    # the manifest that names the others too is written again
    stage(table, Parts(removed=(gone,)), wall_clock_ms()).swap(table.catalog)
    assert partitions(lake.table()) == sorted(VALUES[:-1])
