"""Plain Spark reads through a planning server while something goes wrong: it gets rows that the table had, or an error.

A part of ``make soak-planning-faults`` (SKIPSTONE_SOAK_CASES of each catalog, SKIPSTONE_SOAK_SEED).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession
from skipstone.tables.decoding.decodes import FOLDER_VARIABLE

from tests.examples import cases
from tests.spark.planning_bed import served_settings
from tests.unit.planning_faults import TOKEN, Read, World, draw, run
from tests.unit.planning_filters import Condition
from tests.unit.planning_worlds import rest_world, sql_world

SEED = int(os.environ.get("SKIPSTONE_SOAK_SEED", "1")) + 1_000
NUMBERS = range(int(os.environ.get("SKIPSTONE_SOAK_CASES", "0")) or cases(3, 40))


class SparkReader:
    """Reads by Spark, which names the snapshot that was the newest when it loaded the table."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._settings: dict[str, str] = {}

    def __call__(self, address: str, name: str, condition: Condition, snapshot_id: int | None) -> Read:
        """Read the rows that pass, with the columns as the table had them that was loaded."""
        settings = served_settings(address, "faults")
        settings |= {"spark.sql.catalog.faults.token": TOKEN, "spark.sql.catalog.faults.rest.client.max-retries": "1"}
        if settings != self._settings:
            self._spark = self._spark.newSession()
            self._settings = settings
            for key, value in settings.items():
                self._spark.conf.set(key, value)
        version = "" if snapshot_id is None else f" version as of {snapshot_id}"
        frame = self._spark.sql(f"select * from faults.ns.{name}{version}")
        table = _loaded(frame)
        names = _names(table, snapshot_id)
        found = (frame.where(condition.sql) if condition.tests else frame).collect()
        row_names = {column: names[column] for column in frame.columns}
        return Read(str(table.uuid()), [tuple(row) for row in found], row_names, row_names)


def _loaded(frame: DataFrame) -> JavaObject:
    """The table of Iceberg that a query reads."""
    leaf = frame._jdf.queryExecution().analyzed().collectLeaves().head()  # type: ignore[operator]
    return leaf.table().table()


def _names(table: JavaObject, snapshot_id: int | None) -> dict[str, int]:
    schema = table.schema()
    if snapshot_id is not None:
        schema = table.schemas().get(table.snapshot(snapshot_id).schemaId())
    return {column.name(): column.fieldId() for column in schema.columns()}


@pytest.fixture(scope="module", params=["Sql", "Rest"])
def world(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """A catalog and two replicas before it, read by Spark."""
    root = tmp_path_factory.mktemp("faults")
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(root / "decodes"))
        yield (rest_world if request.param == "Rest" else sql_world)(stack, root, SparkReader(spark))


@pytest.mark.soak
def test_a_read_by_spark_gives_rows_that_the_table_had_or_an_error(world: World) -> None:
    outcomes, failures, met = Counter[str](), list[str](), 0
    for number in NUMBERS:
        drawn = draw(world, SEED, number)
        try:
            outcome = run(world, SEED, drawn)
            print(f"{drawn} => {outcome.result} {outcome.error} {outcome.begun}", flush=True)
            outcomes[outcome.result] += 1
            met += bool(outcome.begun)
        except (AssertionError, RuntimeError) as failure:
            print(f"{drawn} => WRONG {failure} {failure.__cause__ or ''}", flush=True)
            failures.append(str(failure))
    print(f"{sum(outcomes.values())} reads, {met} met a fault: {dict(outcomes)}")
    assert failures == []
