"""Reads through indexes give the full scan's answer: random tables, index states and conditions, against DuckDB.

`make test` runs RANDOM_CASES cases of fixed seeds, `make soak-query` SKIPSTONE_SOAK_CASES of others. A failure names
its seed, its steps and its condition.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa
import pytest
from skipstone.query import ReadOptions, read

from tests.unit.query_lake import random_lake
from tests.unit.query_values import Conditions

RANDOM_CASES = 2_000
CASES_PER_LAKE = 100
SOAK_CASES = int(os.environ.get("SKIPSTONE_SOAK_CASES", "50000"))
SOAK_SEED = int(os.environ.get("SKIPSTONE_SOAK_SEED", str(int(time.time()))))


@pytest.fixture(scope="module")
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        connection.execute("set threads = 1")
        yield connection


@pytest.mark.parametrize("seed", range(RANDOM_CASES // CASES_PER_LAKE))
def test_any_read_of_a_random_lake_gives_the_full_answer(
    tmp_path: Path, engine: duckdb.DuckDBPyConnection, seed: int
) -> None:
    check_lake(tmp_path, engine, seed)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_many_random_lakes(tmp_path: Path, engine: duckdb.DuckDBPyConnection) -> None:
    print(f"\n{SOAK_CASES} cases from seed {SOAK_SEED}")
    started, done = time.monotonic(), 0
    while done < SOAK_CASES:
        root = tmp_path / "lake"
        root.mkdir()
        check_lake(root, engine, SOAK_SEED + done // CASES_PER_LAKE)
        shutil.rmtree(root)
        done += CASES_PER_LAKE
        if done % 1000 == 0 or done >= SOAK_CASES:
            print(f"{done} cases, {time.monotonic() - started:.0f} s", flush=True)


def check_lake(root: Path, engine: duckdb.DuckDBPyConnection, seed: int) -> None:
    """CASES_PER_LAKE reads of one lake, half of them of the newest snapshot and half of an older one."""
    lake = random_lake(root, seed)
    table = lake.table
    random = Random(seed)
    for snapshot in (None, random.choice(lake.history) if lake.history else None):
        rows = lake.rows(snapshot[1] if snapshot else None)
        conditions = [Conditions(random, lake.columns).condition() for _ in range(CASES_PER_LAKE // 2)]
        for condition, expected in zip(conditions, matching(engine, rows, conditions), strict=True):
            columns = random.sample(rows.column_names, random.randint(1, rows.num_columns))
            options = ReadOptions(snapshot_id=snapshot[0] if snapshot else None)
            found = read(table, columns, condition, options)
            wanted = counted(expected.select(columns))
            assert counted(found) == wanted, f"seed {seed}, {lake.log}, {columns} where {condition}"


def matching(engine: duckdb.DuckDBPyConnection, rows: pa.Table, conditions: list[str]) -> list[pa.Table]:
    """The rows on which each condition is true."""
    engine.register("rows", rows.cast(pa.schema([_for_duckdb(field) for field in rows.schema])))
    masks = [engine.sql(f"select coalesce({_in_duckdb(one)}, false) from rows").to_arrow_table() for one in conditions]
    engine.unregister("rows")
    return [rows.filter(mask.column(0)) for mask in masks]


def _for_duckdb(field: pa.Field) -> pa.Field:
    """DuckDB compares a float with a decimal as floats, Spark as doubles."""
    return field.with_type(pa.float64()) if pa.types.is_float32(field.type) else field


def _in_duckdb(condition: str) -> str:
    """DuckDB drops the offset of a ``timestamp`` literal."""
    return re.sub(r"timestamp ('[^']*[+]\d\d:\d\d')", r"timestamptz \1", condition)


def counted(rows: pa.Table) -> Counter[tuple[str, ...]]:
    """Rows in no order, exact to the sign of zero."""
    return Counter(zip(*([repr(value) for value in column.to_pylist()] for column in rows.columns), strict=True))
