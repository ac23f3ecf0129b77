"""Compactions of random tables: partition specs that changed, deletes of all kinds, evolved schemas; the rows stay.

Each table is compacted several times, with other rows and deletes in between. The rows are those that the test itself
holds, and for some tables those that Spark reads. `make soak-maintain` takes more tables.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from skipstone.runs.maintaining.maintain import run_maintain
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.filesets import read_file_set
from skipstone_core.contract.reports import StepReport
from skipstone_core.contract.requests import JobRequest, MaintainTask, RunKind
from skipstone_core.maintenance.policies import CompactionPolicy, MaintenancePolicy, MaintenanceStep

from tests.spark.lake import read_all
from tests.spark.merge_bed import rows_of
from tests.spark.secondengine import second_spark
from tests.unit.merge_feeds import POOL, random_table
from tests.unit.query_lake import RandomLake
from tests.unit.test_merges_random import counted

TABLES, SOAK_TABLES = 8, 120
CHANGES = ("add_rows", "add_rows", "delete_positions", "delete_equal", "add_column", "rename_column", "widen_column")
#: Types that Spark and this test write alike.
PLAIN = {"long", "string", "int", "date", "boolean"}


def seeds() -> list[Any]:
    """SOAK_TABLES tables, the first of which are no soak."""
    marks: list[list[Any]] = [[], [pytest.mark.soak]]
    return [pytest.param(7000 + at, marks=marks[at >= TABLES]) for at in range(SOAK_TABLES)]


@pytest.mark.parametrize("seed", seeds())
def test_a_chain_of_compactions_keeps_the_rows(
    tmp_path: Path, spark: SparkSession, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, random = random_table(tmp_path, seed, POOL), Random(seed)
    monkeypatch.setattr("skipstone.kernels.ordering.SortedRows.run_bytes", random.choice([500, 1 << 20]))
    monkeypatch.setattr("skipstone.kernels.compacting.COPIED_ROWS", random.choice([1, 8, 1 << 20]))
    for number in range(4):
        policy = random_policy(lake, random)
        said = f"seed {seed}, {lake.log}, compaction {number}\n{policy}"
        session = (
            second_spark(spark, lake.lake.warehouse) if number == 0 and set(lake.kinds.values()) <= PLAIN else None
        )
        before = spark_rows(lake, session)
        step = compact(lake, policy, random)
        assert step.is_done, (step, said)
        assert counted(read_all(lake.table).to_pylist(), lake) == counted(lake.rows().to_pylist(), lake), said
        assert spark_rows(lake, session) == before, said
        assert strays(lake) == set(), said
        for _ in range(random.randint(1, 3)):
            lake.step(random.choice(CHANGES))
        evolve_partitions(lake, random)
    lake.lake.catalog.close()


def spark_rows(lake: RandomLake, session: SparkSession | None) -> list[str] | None:
    """As Spark reads them without a filter."""
    if session is None:
        return None
    name = ".".join(lake.table.name())
    session.sql(f"refresh table skipstone.{name}")
    return rows_of(session.table(f"skipstone.{name}").toArrow())


def random_policy(lake: RandomLake, random: Random) -> CompactionPolicy:
    """Any, mostly an eager one."""
    sorting = random.random() < 0.4
    names = [field.name for field in lake.table.schema().fields if field.field_type.is_primitive]
    return CompactionPolicy(
        target_file_size=random.choice([500, 3000, 10_000, 1 << 20]),
        min_input_files=random.choice([2, 2, 3, 5]),
        delete_permille=random.choice([0, 1, 100, 500]),
        sort_by=tuple(random.sample(names, random.randint(1, min(3, len(names))))) if sorting else (),
    )


def evolve_partitions(lake: RandomLake, random: Random) -> None:
    """Sometimes the table is partitioned in another way from now on."""
    if random.random() < 0.3:
        with lake.table.update_spec() as update:
            for field in lake.table.spec().fields:
                if str(field.transform) != "void":
                    update.remove_field(field.name)
            if random.random() < 0.7:
                update.add_field("id", random.choice(["bucket[3]", "identity", "truncate[5]"]), f"p{random.random()}")
        lake.partitioned_by = "id" if lake.table.spec().fields else None
        lake.log.append(f"evolve_partitions {lake.table.spec()}")


def compact(lake: RandomLake, policy: CompactionPolicy, random: Random) -> StepReport:
    """A run of the step alone."""
    asked = MaintenancePolicy(compaction=policy)
    most = random.choice([1, 2000, 1 << 30])
    request = JobRequest(
        kind=RunKind.MAINTAIN,
        run_id=f"maintain-{random.getrandbits(32):08x}-1",
        attempt=1,
        warehouse=lake.lake.warehouse,
        owner_kind="Table",
        owner_name="t",
        owner_uid=lake.lake.ref().uid,
        table=replace(lake.lake.ref(), maintenance=asked),
        maintain=MaintainTask(policy=asked, steps=(MaintenanceStep.COMPACTION,), max_commit_bytes=most),
    )
    (step,) = run_maintain(request, Reporter(request)).steps
    return step


def strays(lake: RandomLake) -> set[str]:
    """Data files on disk that no retained snapshot names."""
    named: set[str] = set()
    for snapshot in lake.table.metadata.snapshots:
        files = read_file_set(lake.table, snapshot.snapshot_id)
        named |= set(files.files["path"].to_pylist()) | {one.file.file_path for one in files.delete_files}
    plain = {path.removeprefix("file://") for path in named}
    folder = Path(lake.table.location().removeprefix("file://"))
    return {str(path) for path in folder.rglob("*compact*.parquet")} - plain
