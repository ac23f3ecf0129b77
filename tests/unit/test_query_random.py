"""Reads through indexes give the full scan's answer: random tables, index states and conditions, against DuckDB.

`make test` runs a few cases of fixed seeds, `make soak-random` more of them, `make soak-query` SKIPSTONE_SOAK_CASES of
others. A failure names its seed, its steps and its condition.
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
from unittest import mock

import duckdb
import pyarrow as pa
import pytest
from skipstone.query import ReadOptions, ReadPlan, plan_read
from skipstone.query.reading import read_plan
from skipstone_core.indexing import use as index_use
from skipstone_core.indexing.use import NotUsed

from tests.examples import ALL_CASES, cases
from tests.unit.bloom_beds import eager_filters
from tests.unit.query_lake import ID, RandomLake, random_lake
from tests.unit.query_values import Conditions

CASES_PER_LAKE = cases(16, 125)
#: Seeds of lakes, in two parts. The few were chosen so that each way of reading is taken in several lakes of a part.
FEW_LAKES = ((0, 1, 5, 15, 17, 23), (6, 9, 10, 26, 29, 35))
LAKES = (tuple(range(8)), tuple(range(8, 16))) if ALL_CASES else FEW_LAKES
SOAK_CASES = int(os.environ.get("SKIPSTONE_SOAK_CASES", "50000"))
SOAK_SEED = int(os.environ.get("SKIPSTONE_SOAK_SEED", str(int(time.time()))))


@pytest.fixture(scope="module")
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        connection.execute("set threads = 1")
        yield connection


#: Settings of the cost rule: as they are; whatever can be weighed is; whatever can be used is.
WEIGHTS: tuple[dict[str, float], ...] = (
    {"SMALL_FILES": index_use.SMALL_FILES},
    {"SMALL_FILES": 0, "SMALL_BYTES": 0, "OPEN_BYTES": 64},
    {"FEW_ROWS_PART": 1.0, "NARROW_PART": 2.0, "SMALL_FILES": 1000},
)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(len(LAKES)))
def test_any_read_of_a_random_lake_gives_the_full_answer(
    tmp_path: Path, engine: duckdb.DuckDBPyConnection, part: int
) -> None:
    seen: Counter[str] = Counter()
    for seed in LAKES[part]:
        seen += check_lake(tmp_path / str(seed), engine, seed)
    assert {
        "answer",
        "filters",
        "included",
        "positions",
        "row groups",
        NotUsed.NO_GAIN,
        NotUsed.LEADING_COLUMN_NOT_BOUND,
    } <= seen.keys()


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_many_random_lakes(tmp_path: Path, engine: duckdb.DuckDBPyConnection) -> None:
    print(f"\n{SOAK_CASES} cases from seed {SOAK_SEED}")
    started, done, seen = time.monotonic(), 0, Counter[str]()
    while done < SOAK_CASES:
        seen += check_lake(tmp_path / "lake", engine, SOAK_SEED + done // CASES_PER_LAKE)
        shutil.rmtree(tmp_path / "lake")
        done += CASES_PER_LAKE
        if done % 1000 == 0 or done >= SOAK_CASES:
            print(f"{done} cases, {time.monotonic() - started:.0f} s", flush=True)
    print(", ".join(f"{name} {count}" for name, count in sorted(seen.items())))


def check_lake(root: Path, engine: duckdb.DuckDBPyConnection, seed: int) -> Counter[str]:
    """CASES_PER_LAKE reads of one lake, half of them of the newest snapshot and half of an older one.

    Returns how often each way of reading was taken and each code was given.
    """
    root.mkdir()
    lake = random_lake(root, seed)
    table, random, seen = lake.table, Random(seed), Counter[str]()
    for snapshot in (None, random.choice(lake.history) if lake.history else None):
        rows = lake.rows(snapshot[1] if snapshot else None)
        conditions = [Conditions(random, lake.columns).condition() for _ in range(CASES_PER_LAKE // 2)]
        options = ReadOptions(snapshot_id=snapshot[0] if snapshot else None)
        for condition, expected in zip(conditions, matching(engine, rows, conditions), strict=True):
            columns = random_columns(random, lake)
            with mock.patch.multiple(index_use, **WEIGHTS[seed % len(WEIGHTS)]), eager_filters():
                plan = plan_read(table, condition, options, columns)
                found = read_plan(table, plan, columns)
            said = f"seed {seed}, {lake.log}, {columns} where {condition}\n{plan.text()}"
            assert counted(found) == counted(expected.select(columns)), said
            seen += tally(plan)
    return seen


def random_columns(random: Random, lake: RandomLake) -> list[str]:
    """Columns to select: any, or such as one index holds."""
    names = sorted(lake.columns)
    index = random.choice(lake.indexes) if lake.indexes else None
    held = [name for name in (*index.columns, *index.include) if name in names] if index else []
    pool = held if held and random.random() < 0.5 else [ID, *names]
    return random.sample(pool, random.randint(1, len(pool)))


def tally(plan: ReadPlan) -> Counter[str]:
    """What a plan does."""
    held = plan.answer.columns.values() if plan.answer else ()
    included = any(not one.column.is_key for one in held)
    ways = {
        "answer": plan.answer is not None,
        "included": included,
        "filters": plan.filters is not None and plan.filters.dropped > 0,
        "positions": bool(plan.positions),
        "row groups": bool(plan.row_groups),
    }
    codes = [use.code for use in plan.indexes if use.code] + ([plan.no_index] if plan.no_index else [])
    return Counter([*(way for way, taken in ways.items() if taken), *codes])


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
