"""Rows that the driver reads itself are those that Spark reads, of every type, beside what tasks still read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest
import skipstone
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from pyspark.errors import ArithmeticException
from pyspark.sql import SparkSession
from skipstone.query.plans import cost, session
from skipstone.query.plans.refusals import Refusal
from skipstone.tables.arrow import arrow_schema
from skipstone_core.indexing import use as index_use

from tests.spark.index_bed import index_on, local
from tests.spark.kept import Kept
from tests.spark.plans_bed import Bed, Checked, open_bed, staged
from tests.spark.rawdeletes import add_equality_delete, add_position_delete

BY_K, BY_TEXT = index_on("k"), index_on("text", name="by_text")
TABLE = "skipstone.ns.t"
FILES, ROWS = 3, 1_000
SCHEMA = Schema(
    NestedField(1, "k", LongType(), required=True),
    NestedField(2, "must_day", DateType(), required=True),
    NestedField(3, "must_cost", DecimalType(2, 2), required=True),
    NestedField(4, "must_text", StringType(), required=True),
    NestedField(5, "text", StringType()),
    NestedField(6, "flag", BooleanType()),
    NestedField(7, "small", IntegerType()),
    NestedField(8, "single", FloatType()),
    NestedField(9, "double", DoubleType()),
    NestedField(10, "money", DecimalType(9, 2)),
    NestedField(11, "wide", DecimalType(38, 10)),
    NestedField(12, "day", DateType()),
    NestedField(13, "at", TimestampType()),
    NestedField(14, "moment", TimestamptzType()),
    NestedField(15, "bytes", BinaryType()),
    NestedField(16, "fixed", FixedType(3)),
    NestedField(17, "id", UUIDType()),
    NestedField(18, "items", ListType(20, IntegerType(), element_required=False)),
    NestedField(19, "inner", StructType(NestedField(21, "a", IntegerType()))),
)
PLAIN = ", ".join(field.name for field in SCHEMA.fields if field.name not in ("items", "inner"))
wall = datetime.fromisoformat
#: Key k of a row is its number; these rows hold values that are easily changed on the way.
ODD: dict[int, dict[str, object]] = {
    1: dict.fromkeys(field.name for field in SCHEMA.fields if not field.required),
    2: {"single": math.nan, "double": -0.0, "text": "", "bytes": b"", "items": []},
    3: {"single": math.inf, "double": -math.inf, "text": "\U0001f600\uffff", "wide": Decimal("-0.0000000001")},
    4: {"day": date(1, 1, 1), "at": wall("0001-01-01 00:00:00.000001"), "moment": datetime(1, 1, 2, tzinfo=UTC)},
    5: {"day": date(1582, 10, 10), "at": wall("1883-11-18 12:03:58.999999")},
    6: {"day": date(9999, 12, 31), "at": wall("9999-12-31 23:59:59.999999"), "text": "x" * 5_000},
}


def row(number: int) -> dict[str, object]:
    usual = {
        "k": number,
        "must_day": date(2000, 1, 2),
        "must_cost": Decimal("0.17"),
        "must_text": f"m{number}",
        "text": f"text{number % 500}",
        "flag": number % 2 == 0,
        "small": -number,
        "single": number / 4,
        "double": number / 3,
        "money": Decimal(number).scaleb(-2),
        "wide": Decimal(10**20 + number).scaleb(-10),
        "day": date(2020, 1, 1 + number % 28),
        "at": wall(f"2020-01-01 {number % 24:02}:00:00.{number:06}"),
        "moment": datetime(1950, 1, 1, number % 24, 0, 0, number, tzinfo=UTC),
        "bytes": bytes([number % 256]),
        "fixed": number.to_bytes(3, "big"),
        "id": UUID(int=number).bytes,
        "items": [number, None],
        "inner": {"a": number},
    }
    return usual | ODD.get(number, {})


def filled(bed: Bed) -> Bed:
    table = bed.lake.catalog.create_table("ns.t", SCHEMA, properties={"format-version": "2"})
    for file in range(FILES):
        rows = [row(number) for number in range(file * ROWS, file * ROWS + ROWS)]
        table.append(pa.Table.from_pylist(rows, schema=arrow_schema(SCHEMA)))
    return bed


@pytest.fixture(scope="module")
def kept(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """Three files."""
    made = filled(open_bed(spark, tmp_path_factory.mktemp("lake")))
    made.lake.catalog.close()
    return Kept(made.lake.root, tmp_path_factory.mktemp("kept"))


@pytest.fixture(scope="module")
def typed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """Three files; the index on k misses the last."""
    bed = filled(open_bed(spark, tmp_path_factory.mktemp("lake"), driver_rows=None))
    bed.reindex(BY_K, max_segments=FILES - 1)
    bed.reindex(BY_TEXT)
    yield bed
    bed.lake.catalog.close()


@pytest.fixture
def bed(spark: SparkSession, kept: Kept) -> Iterator[Bed]:
    """Three files, to be changed."""
    made = open_bed(spark, kept.restored(), driver_rows=None)
    yield made
    made.lake.catalog.close()


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
# Few at a time: more than one row in a hundred is not read by position.
@pytest.mark.parametrize("keys", [[*ODD][:4], [*ODD, 7][4:], [1_500]], ids=["odd", "odder", "usual"])
def test_values_of_every_type_are_those_that_spark_reads(typed: Bed, keys: list[int], zone: str) -> None:
    typed.spark.conf.set("spark.sql.session.timeZone", zone)
    wanted = ", ".join(str(near) for key in keys for near in (key, key + 10))
    found = typed.query(f"select {PLAIN} from {TABLE} where k in ({wanted}) and k <> 0")
    assert found.only.driver is not None
    assert len(found.only.driver.ordinals) == 1
    assert len(found.answer) == 2 * len(keys)


@pytest.mark.parametrize("at_once", [0, 1 << 30], ids=["by a file", "in one call"])
def test_rows_go_to_spark_by_either_way(typed: Bed, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(cost, "SENT_AT_ONCE_BYTES", at_once)
    for condition in (f"k in ({', '.join(map(str, [*ODD][:4]))})", "text = 'text7' and k % 3 = 5"):
        assert typed.query(f"select {PLAIN} from {TABLE} where {condition}").only.is_rewritten


@pytest.mark.parametrize(
    ("text", "here", "scanned", "there"),
    [
        (f"select {PLAIN} from {TABLE} where text = 'text7'", 3, 0, 0),
        (f"select * from {TABLE} where text = 'text7'", 0, 0, 3),
        (f"select text, inner.a from {TABLE} where text = 'text7'", 0, 0, 3),
        (f"select text, _pos from {TABLE} where text = 'text7'", 0, 0, 3),
        (f"select small from {TABLE} where text = 'text7' and k % 3 = 1", 3, 0, 0),
        (f"select max(single), min(moment), count(id) from {TABLE} where text in ('text7', 'text8')", 3, 0, 0),
        (f"select small from {TABLE} where k = 5", 1, 0, 0),
        (f"select small from {TABLE} where k in (5, 2005)", 1, 1, 0),
        (f"select a.small, b.wide from {TABLE} a join {TABLE} b on a.k = b.k + 1 where a.text = 'text7'", 3, 0, 0),
        (f"select small from (select * from {TABLE} where k < 8 order by day limit 3) where k > 1", 1, 0, 0),
    ],
)
def test_the_driver_reads_what_it_can_and_tasks_the_rest(
    typed: Bed, text: str, here: int, scanned: int, there: int
) -> None:
    found = typed.query(text)
    first = found.explanation.relations[0]
    read = (len(first.driver.ordinals), len(first.driver.scanned)) if first.driver else (0, 0)
    assert (*read, staged(first)) == (here, scanned, there), found.explanation


def test_files_with_too_much_to_decode_are_left_to_tasks(typed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    in_memory = ROWS * (8 + 9)
    for most, scanned in ((in_memory - 1, 0), (in_memory, 1)):
        monkeypatch.setattr(index_use, "MOST_DECODED_BYTES", most)
        found = typed.query(f"select small from {TABLE} where k in (5, 2005)")
        assert found.only.driver is not None
        assert (len(found.only.driver.scanned), staged(found.only)) == (scanned, 1 - scanned)


def test_rows_of_more_bytes_than_the_driver_holds_are_left_to_tasks(
    typed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few rows may be of any length."""
    for most, here in ((1, 0), (1_000_000, 3)):
        monkeypatch.setattr(index_use, "DRIVER_BYTES", most)
        first = typed.query(f"select {PLAIN} from {TABLE} where text = 'text7'").only
        assert (len(first.driver.ordinals) if first.driver else 0, staged(first)) == (here, 3 - here)


_FEW = f"(select * from {TABLE} where k > 0) t where text = 'text7'"


_AGGREGATES = (
    f"select count(*) as n, max(single), min(moment) from {TABLE} where text = 'text7'",
    f"select flag, sum(small) as total from {_FEW} group by flag having count(*) > 0",
    f"select count(distinct day) as days from {_FEW}",
    f"select sum(single), avg(double), max(wide), min(text), sort_array(collect_list(bytes)) from {_FEW}",
    f"select single, double, count(*) from {TABLE} where k in (1, 2, 3, 4) group by single, double",
    f"select text, count(*) from {TABLE} where text = 'text7' and k % 3 = 5 group by text",
    f"select upper(text), money * 2, k % 3 = 1 from {TABLE} where k = 5 order by text",
)


@pytest.mark.parametrize("text", _AGGREGATES)
def test_what_is_made_of_few_rows_is_made_in_the_driver(typed: Bed, text: str) -> None:
    found = typed.query(text)
    assert found.plan.startswith("LocalTableScan"), found.plan
    memory = typed.spark._jvm.org.apache.spark.SparkEnv.get().memoryManager()
    assert memory.executionMemoryUsed() == 0


@pytest.mark.parametrize("text", _AGGREGATES[:3], ids=["all", "groups", "distinct"])
def test_few_rows_of_the_driver_are_aggregated_without_a_shuffle(
    typed: Bed, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(session, "few_rows", lambda *_: None)
    found = typed.query(text)
    assert "LocalTableScan" in found.plan
    assert "Aggregate" in found.plan
    assert "Exchange" not in found.plan


def test_what_fails_on_few_rows_fails_when_the_query_runs(typed: Bed) -> None:
    rewritten = skipstone.rewrite(typed.spark.sql(f"select sum(small div (k - 5)) from {TABLE} where k = 5"))
    with pytest.raises(ArithmeticException, match="DIVIDE_BY_ZERO"):
        rewritten.collect()


def test_a_query_is_built_upon_what_was_made_in_the_driver(typed: Bed) -> None:
    text = f"select text, sum(small) as total, 1 as one from {_FEW} group by text"
    for columns in ("text, total", "*"):
        rewritten = skipstone.rewrite(typed.spark.sql(text).selectExpr(*columns.split(", ")))
        assert rewritten.where("total is not null").select("text").collect() == [("text7",)]
        assert rewritten.cache().count() == 1
        assert rewritten.unpersist().count() == 1


def test_rows_go_into_as_many_partitions_as_users_choose(typed: Bed) -> None:
    """Where they go into one, a writer writes one file."""
    for query in (
        f"select text from {TABLE} where text = 'text7'",
        f"select text, sum(small) from {_FEW} group by all",
    ):
        df = skipstone.rewrite(typed.spark.sql(query).coalesce(1))
        assert "LocalTableScan" in Checked(df, skipstone.explain(df)).plan
        assert df.rdd.getNumPartitions() == 1


def test_rows_on_which_functions_of_users_run_stay_in_several_tasks(typed: Bed) -> None:
    typed.spark.udf.register("half", lambda value: value // 2, "int")
    found = typed.query(f"select sum(half(small)) as total from {TABLE} where text = 'text7'")
    assert "Coalesce" not in found.plan


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (f"select text from {TABLE} where text like 'text47%'", 11 * 6),
        (f"select k from {TABLE} where k between 3 and 20", 18),
        (f"select k from {TABLE} where k in (3, 2003)", 2),
        (f"select count(*) from {TABLE} where k < 10", 1),
    ],
)
def test_indexed_columns_alone_are_taken_from_the_index(typed: Bed, text: str, rows: int) -> None:
    found = typed.query(text)
    assert found.only.driver is not None
    assert found.only.driver.takes_answer
    assert len(found.answer) == rows


def test_deleted_rows_stay_deleted(bed: Bed) -> None:
    bed.reindex(BY_K, BY_TEXT)
    table = bed.lake.table()
    first = next(task.file for task in table.scan(row_filter="k = 7").plan_files() if task.file.record_count)
    add_position_delete(table, first, [7, 8])
    for text in ("select k from", "select small from", f"select {PLAIN} from"):
        assert len(bed.query(f"{text} {TABLE} where k between 5 and 9").answer) == 3
    add_equality_delete(bed.lake.table(), {"k": [9]})
    for text in ("select k from", "select small from", f"select {PLAIN} from"):
        assert len(bed.query(f"{text} {TABLE} where k between 5 and 9").answer) == 2


def test_a_session_may_leave_all_rows_or_large_answers_to_tasks(bed: Bed) -> None:
    bed.reindex(BY_K)
    for limit, expected in (("0", False), ("4", False), ("5", True), ("none", False)):
        bed.spark.conf.set("skipstone.driverRows", limit)
        found = bed.query(f"select small from {TABLE} where k between 11 and 15")
        assert (found.only.driver is not None) == expected
    bed.spark.conf.set("skipstone.driverRows", "4")
    few, many = (bed.query(f"select k from {TABLE} where k between 11 and {last}") for last in (14, 15))
    assert few.only.driver is not None
    assert (few.only.driver.takes_answer, many.refusals) == (True, [Refusal.NOT_NARROWING])


def test_more_matches_than_expected_are_left_to_tasks(bed: Bed) -> None:
    bed.reindex(BY_K, max_segments=FILES - 1)
    bed.lake.table().append(pa.Table.from_pylist([row(1)] * 50, schema=arrow_schema(SCHEMA)))
    bed.spark.conf.set("skipstone.driverRows", "20")
    found = bed.query(f"select small from {TABLE} where k = 1")
    assert found.only.driver is not None
    assert (len(found.only.driver.ordinals), len(found.only.driver.scanned), staged(found.only)) == (1, 0, 1)
    assert len(found.answer) == 51


def test_an_index_lost_after_planning_leaves_its_files_to_tasks(bed: Bed) -> None:
    bed.reindex(BY_K)
    text = f"select k from {TABLE} where k between 11 and 15"
    assert len(bed.query(text).answer) == 5  # its footers are remembered now
    for entry in bed.lake.index_table(BY_K).entries:
        local(entry.path).unlink()
    found = skipstone.sql(bed.spark, text)
    assert sorted(one.k for one in found.collect()) == [11, 12, 13, 14, 15]
