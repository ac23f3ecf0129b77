"""Random conditions in Spark SQL, of every type, in every state of the indexes: the answer is always that of Spark.

Iceberg's own filters lose rows of NaN and of signed zeros, which Spark's comparisons keep: where it differs from an
unfiltered scan, rows that it loses may be found through an index, or not.

Twenty queries at a time run as one union, with a relation each, so that hundreds take seconds.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
import skipstone
from pyspark.sql import SparkSession
from skipstone_core import index_use

from tests.spark.index_bed import index_on
from tests.spark.plans_bed import TABLE, Bed, answer, open_bed
from tests.spark.rawdeletes import add_equality_delete

QUERIES = 20
NAN, INF = float("nan"), float("inf")
#: Values by column; conditions compare with the same ones, written as Spark SQL.
VALUES: dict[str, tuple[pa.DataType, tuple[object, ...]]] = {
    "k": (pa.int64(), (-3, 0, 1, 2, 5, 2**40, -(2**63), 2**63 - 1)),
    "i": (pa.int32(), (-1, 0, 7, 100, 2**31 - 1)),
    "s": (pa.string(), ("", "a", "ab", "abc", "é", "😀", "x" * 40, "a'b", "a%b")),
    "f": (pa.float64(), (NAN, 0.0, -0.0, 1.5, -1.5, INF, -INF, 1e-300)),
    "r": (pa.float32(), (NAN, 0.0, -0.0, 0.10000000149011612, -2.5, INF)),
    "c": (pa.decimal128(9, 2), tuple(map(Decimal, ("0.00", "1.50", "-1.50", "9999999.99")))),
    "d": (pa.date32(), (dt.date(1, 1, 1), dt.date(1899, 12, 31), dt.date(2024, 2, 29), dt.date(9999, 12, 31))),
    "w": (pa.timestamp("us"), (dt.datetime(1899, 1, 1, 1, 2, 3, 4), dt.datetime(2024, 3, 31, 2, 30))),  # noqa: DTZ001
    "z": (
        pa.timestamp("us", "UTC"),
        (dt.datetime(1883, 11, 18, 17, tzinfo=dt.UTC), dt.datetime(2024, 10, 27, 0, 30, 0, 1, tzinfo=dt.UTC)),
    ),
    "b": (pa.bool_(), (True, False)),
}
SCHEMA = pa.schema([*(pa.field(name, kind) for name, (kind, _) in VALUES.items()), pa.field("n", pa.int32())])
INDEXES = tuple(index_on(column, name=f"by_{column}") for column in VALUES if column != "b")
COMPOSITE = index_on("b", "s", name="by_b_s")
STATES = ("none", "some", "all", "stale", "deletes", "dropped", "corrupt")


def rows(seed: int, count: int) -> pa.Table:
    """Random rows; a file holds few of the values, so that there is something to skip."""
    random = np.random.default_rng(seed)
    columns: dict[str, list[object]] = {"n": [seed * 1000 + number for number in range(count)]}
    for name, (_, values) in VALUES.items():
        few = [None, *(values[int(at)] for at in random.integers(0, len(values), 3))]
        columns[name] = [few[int(at)] for at in random.integers(0, len(few), count)]
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture(scope="module")
def beds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Bed]]:
    """A lake per state; daylight saving time matters in its sessions."""
    made = {state: prepared(spark, tmp_path_factory.mktemp(state), state) for state in STATES}
    yield made
    for bed in made.values():
        bed.lake.catalog.close()


def prepared(spark: SparkSession, root: Path, state: str) -> Bed:
    """A lake whose indexes are in ``state``."""
    bed = open_bed(spark, root)
    bed.spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    table = bed.lake.create(SCHEMA)
    for seed in range(5):
        table.append(rows(seed, 12))
    indexes = (*INDEXES[::3], COMPOSITE) if state in ("dropped", "corrupt", "stale") else (*INDEXES, COMPOSITE)
    if state != "none":
        bed.reindex(*indexes, max_segments=3 if state == "some" else None)
    if state == "stale":
        table.overwrite(rows(7, 12), overwrite_filter="n >= 1000 and n < 2000")
        table.append(rows(8, 12))
    if state == "deletes":
        add_equality_delete(bed.lake.table(), {"k": [5, 0]})
        bed.spark.sql(f"alter table {TABLE} set tblproperties ('write.delete.mode' = 'merge-on-read')")
        bed.spark.sql(f"delete from {TABLE} where n % 5 = 0")
    if state == "dropped":
        bed.lake.catalog.drop_table(bed.lake.index_table(COMPOSITE).identifier)
    if state == "corrupt":
        spoil(bed)
    return bed


def spoil(bed: Bed) -> None:
    """Cut every second file of two indexes in half."""
    for index in (INDEXES[0], COMPOSITE):
        root = Path(bed.lake.index_table(index).table.location().removeprefix("file://"))
        for file in sorted((root / "data").rglob("*.parquet"))[::2]:
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def literal(name: str, value: object) -> str:
    """A value as Spark SQL."""
    match value:
        case str():
            return "'" + value.replace("'", "\\'") + "'"
        case float():
            return f"{'float' if name == 'r' else 'double'}('{value}')"
        case dt.datetime() if value.tzinfo:
            return f"timestamp '{value.isoformat()}'"
        case dt.datetime():
            return f"timestamp_ntz '{value.isoformat()}'"
        case dt.date():
            return f"date '{value.isoformat()}'"
        case int() if not isinstance(value, bool) and value == -(2**63):
            return "(-9223372036854775807 - 1)"
        case _:
            return str(value)


def leaf(random: Random) -> str:
    """A condition on one column."""
    name = random.choice(sorted(VALUES))
    value, other = (literal(name, random.choice(VALUES[name][1])) for _ in range(2))
    forms = [f"{name} {op} {value}" for op in ("=", "<", "<=", ">", ">=", "<>", "<=>")]
    forms += [f"{value} >= {name}", f"{name} in ({value}, {other})", f"{name} not in ({value}, {other})"]
    forms += [f"{name} between {value} and {other}", f"{name} is null", f"{name} is not null", f"{name} <=> null"]
    forms += [
        f"{name} in ({value}, null)",
        f"coalesce({name}, {value}) = {other}",
        f"nullif({name}, {value}) = {other}",
    ]
    return random.choice(forms + special_forms(name, value))


def special_forms(name: str, value: str) -> list[str]:
    """Conditions that columns of one type have."""
    match name:
        case "s":
            return [f"s like {value[:-1]}%'", f"s like {value}", f"not s like {value[:-1]}%'", "s like '%b'"]
        case "b":
            return ["b", "not b"]
        case "d" | "w" | "z":
            days = (f"{name} >= '2024-03-31'", f"cast({name} as date) = date '2024-10-27'")
            return [*days, f"{name} < date '2024-03-01'"]
        case _:
            return [f"{name} = 1.5", f"{name} > 0.1", f"{name} <= 2147483648", f"{name} = '0'"]


def condition(random: Random, depth: int = 2) -> str:
    """A condition of up to four leaves."""
    if depth == 0 or random.random() < 0.3:
        return leaf(random)
    inner = [condition(random, depth - 1) for _ in range(2)]
    return random.choice([f"({inner[0]} and {inner[1]})", f"({inner[0]} or {inner[1]})", f"not ({inner[0]})"])


def select(random: Random, number: int) -> str:
    """A query for some columns; one of an indexed column alone may be answered by its index."""
    columns = ", ".join(random.choice([["n"], [random.choice(sorted(VALUES))], random.sample(sorted(VALUES), 3)]))
    return f"select {number} as q, to_json(struct({columns})) as found from {TABLE} where {condition(random)}"


@pytest.mark.parametrize("driver_rows", [0, 3, 100_000])
@pytest.mark.parametrize("state", STATES)
def test_any_condition_gives_what_an_unfiltered_scan_gives(
    beds: dict[str, Bed], state: str, driver_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_use, "FEW_ROWS_PART", 0.4)  # files of few rows have rows to be read by position, too
    random, bed = Random(f"{state} {driver_rows}"), beds[state]
    bed.spark.conf.set("skipstone.driverRows", str(driver_rows))
    text = " union all ".join(select(random, number) for number in range(QUERIES))
    rewritten = skipstone.sql(bed.spark, text)
    explanation = str(skipstone.explain(rewritten))
    found, plain = (Counter(answer(df)) for df in (rewritten, skipstone.no_index(rewritten)))
    bed.spark.table(TABLE).localCheckpoint().createOrReplaceTempView("unfiltered")
    right = Counter(answer(bed.spark.sql(text.replace(TABLE, "unfiltered"))))
    assert plain <= found <= right, explanation
    assert "Failed" not in explanation


def test_indexes_are_used_in_every_state_that_has_them(beds: dict[str, Bed]) -> None:
    text = " union all ".join(
        f"select n from {TABLE} where {name} = {literal(name, value)}"
        for name, (_, values) in VALUES.items()
        for value in values[:2]
    )
    used = {
        state: sum(one.is_rewritten for one in skipstone.explain(bed.spark.sql(text)).relations)
        for state, bed in beds.items()
    }
    assert used["none"] == 0
    assert min(used[state] for state in STATES if state != "none") > 0, used
    assert used["some"] <= used["all"]
