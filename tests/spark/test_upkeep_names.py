"""Files whose names have characters that end the path of an address: they are read and deleted by their whole names."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession
from skipstone.tables.storage import plain_location
from skipstone_core.maintenance.policies import (
    MaintenancePolicy,
    MaintenanceStep,
    OrphanFilesAction,
    OrphanFilesPolicy,
    SnapshotPolicy,
)

from tests.spark.maintain_bed import EAGER, MaintainBed
from tests.spark.secondengine import second_spark
from tests.spark.upkeep_bed import later

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", StringType()))
POLICY = MaintenancePolicy(
    compaction=EAGER,
    snapshots=SnapshotPolicy(max_age_seconds=0),
    orphan_files=OrphanFilesPolicy(action=OrphanFilesAction.DELETE, older_than_seconds=60),
)


@dataclass
class Scene:
    """A table to which Spark adds files by any names."""

    bed: MaintainBed
    session: SparkSession
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def data(self) -> Path:
        """Where its files are."""
        return Path(plain_location(self.bed.table().location()), "data")

    def plant(self, folder: str, *names: str) -> None:
        """Files with a row each."""
        (self.data / folder).mkdir(parents=True, exist_ok=True)
        for name in names:
            pq.write_table(pa.table({"id": [next(self.numbers)], "v": [name]}), self.data / folder / name)

    def add(self, folder: str, *names: str) -> None:
        """Such files, which Spark makes the table's."""
        self.plant(folder, *names)
        source = f"`parquet`.`{self.data / folder}`"
        self.session.sql(f"call skipstone.system.add_files(table => 'ns.t', source_table => '{source}')")

    def maintain(self, *steps: MaintenanceStep) -> None:
        """Do all of some steps, a day later."""
        report = self.bed.run(self.bed.maintenance(steps, POLICY), later())
        assert all(step.is_done for step in report.steps), report.steps

    def check(self, *values: str) -> None:
        """Every engine reads these rows."""
        spark = self.session.table("skipstone.ns.t").toArrow()
        assert sorted(spark["v"].to_pylist()) == sorted(values)
        assert len(self.bed.held()) == len(values)
        assert sorted(self.bed.table().scan().to_arrow()["v"].to_pylist()) == sorted(values)

    def there(self) -> set[str]:
        """Names of the files that are there."""
        return {path.name for path in self.data.rglob("*") if path.is_file() and not path.name.startswith(".")}


@pytest.fixture
def scene(tmp_path: Path, spark: SparkSession) -> Iterator[Scene]:
    bed = MaintainBed(tmp_path)
    bed.create(SCHEMA)
    yield Scene(bed, second_spark(spark, bed.warehouse))
    bed.catalog.close()


def test_files_with_any_name_are_read_compacted_and_deleted_and_no_others(scene: Scene) -> None:
    scene.add("first", "a", "a#b.parquet", "a?b.parquet")
    scene.check("a", "a#b.parquet", "a?b.parquet")
    scene.session.sql("delete from skipstone.ns.t where v <> 'a'")
    scene.maintain(MaintenanceStep.SNAPSHOTS)
    assert scene.there() == {"a"}
    scene.check("a")
    scene.add("second", "b#1.parquet", "b?1.parquet")
    scene.plant("second", "b", "left#1.parquet", "left?1.parquet")
    for _ in range(2):
        scene.maintain(MaintenanceStep.ORPHAN_FILES)
    # What an engine that ends a name there means by it may be the file without the rest.
    assert scene.there() == {"a", "b", "b#1.parquet", "b?1.parquet"}
    scene.maintain(*MaintenanceStep)
    scene.check("a", "b#1.parquet", "b?1.parquet")
    scene.maintain(MaintenanceStep.ORPHAN_FILES)
    (path,) = scene.bed.paths()
    assert scene.there() == {Path(path).name}
    scene.check("a", "b#1.parquet", "b?1.parquet")
