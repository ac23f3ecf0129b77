"""The Spark data source: the same answers as Iceberg's own reader, through the indexes when it is given a filter."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import reduce

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from skipstone.query.datasource import SkipstoneDataSource
from skipstone_core.errors import BadSpec

from tests.examples import turn
from tests.spark.index_bed import Lake, index_on, query, rows_of

SEGMENTS = 4
PER_SEGMENT = 50
BY_KEY, BY_NAME = index_on("k", name="by-k"), index_on("s", "k", name="by-s")


def rows(segment: int) -> pa.Table:
    """Fifty rows; every key stands in two segments, every seventh is null."""
    numbers = range(segment * PER_SEGMENT, (segment + 1) * PER_SEGMENT)
    keys = [None if n % 7 == 0 else n % (2 * PER_SEGMENT) for n in numbers]
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "s": pa.array([f"name {n % 20}" for n in numbers]),
            "d": pa.array([dt.date(2020, 1, 1) + dt.timedelta(days=n) for n in numbers]),
            "t": pa.array([dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=n) for n in numbers]),
            "x": pa.array([Decimal(n).scaleb(-2) for n in numbers], pa.decimal128(10, 2)),
            "f": pa.array([float("nan") if n % 11 == 0 else n / 4 for n in numbers]),
        }
    )


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Four segments, the first three covered by two indexes."""
    made = Lake(tmp_path_factory.mktemp("lake"))
    table = made.create(rows(0).schema)
    for segment in range(SEGMENTS - 1):
        table.append(rows(segment))
    for index in (BY_KEY, BY_NAME):
        made.reindex(index)
    made.table().append(rows(SEGMENTS - 1))
    return made


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """A session of its own that knows the data source."""
    opened = spark.newSession()
    opened.dataSource.register(SkipstoneDataSource)
    return opened


def catalog_options(lake: Lake) -> dict[str, str]:
    """The lake's catalog as the data source takes it."""
    properties = {f"catalog.{key}": value for key, value in lake.catalog.properties.items()}
    return {"catalog": lake.warehouse.catalog.name, **properties, "catalog.type": "sql"}


def reader(session: SparkSession, lake: Lake, **options: str) -> DataFrameReader:
    """The data source with the lake's catalog."""
    return session.read.format("skipstone").options(**catalog_options(lake), **options)


def assert_same(frame: DataFrame, expected: pa.Table) -> None:
    """Equal rows in no order."""
    found = frame.toArrow().cast(expected.schema)
    assert rows_of(found) == rows_of(expected)


#: As the option ``filter``, and as Spark understands them.
FILTERS = [
    "k = 5",
    "k in (5, 17, 99, 1000)",
    "k not in (5, 6)",
    "k between 10 and 12",
    "k is null",
    "k is not null and s = 'name 3'",
    "s like 'name 1%'",
    "k = 5 or s = 'name 3'",
    "d >= date'2020-06-01'",
    "t < timestamp'2020-01-02 00:00:00'",
    "x = 0.07",
    "f > 10",
    "k = 5 and k = 6",
]
#: What the queries of a session ask of a table at once; the option takes some of them, Spark all.
#: For each relation Spark starts processes, which takes seconds: `make test` asks every second one; which ones changes
#: with the commit. `make soak-query` asks all.
CONDITIONS = ["k = 5", "k <=> null", "s like '%3' and k < 50", "x = 0.07", "f = double('nan')", "k + 1 = 6"]
#: Makes Spark ask Python sources which filters they take.
PUSHDOWN_SETTING = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def everything(spark: SparkSession, lake: Lake) -> DataFrame:
    """All rows as PyIceberg reads them."""
    return spark.createDataFrame(lake.table().scan().to_arrow())


@pytest.fixture(scope="module")
def judged(everything: DataFrame) -> pa.Table:
    """All rows, and a column for each filter by its place in FILTERS: whether Spark takes the row."""
    return everything.selectExpr("*", *(f"({one}) as `{at}`" for at, one in enumerate(FILTERS))).toArrow()


@pytest.mark.parametrize("at", range(len(FILTERS)), ids=FILTERS)
def test_answers_are_those_of_iceberg_without_us(lake: Lake, judged: pa.Table, at: int) -> None:
    """What Spark's workers do, in this process."""
    source = SkipstoneDataSource({**catalog_options(lake), "filter": FILTERS[at], "path": "ns.t"})
    kept = source.reader(source.schema())
    schema = lake.table().scan().to_arrow().schema
    batches = [batch.cast(schema) for share in kept.partitions() for batch in kept.read(share)]
    expected = judged.filter(judged[str(at)]).select(schema.names).cast(schema)
    assert rows_of(pa.Table.from_batches(batches, schema)) == rows_of(expected)


@pytest.mark.parametrize("asked", [CONDITIONS[turn(4) :: 4], pytest.param(CONDITIONS, marks=pytest.mark.soak)], ids=len)
@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_queries_of_one_frame_do_not_take_rows_from_each_other(
    session: SparkSession, lake: Lake, everything: DataFrame, pushdown: str, asked: list[str]
) -> None:
    """Spark keeps the answer of a Python source with the frame, whichever query it was for."""
    session.conf.set(PUSHDOWN_SETTING, pushdown)
    frame = reader(session, lake, tasks="1").load("ns.t")
    numbers = everything.agg(*(F.count_if(F.expr(one)) for one in asked)).first()
    assert numbers is not None
    counts = list(numbers)
    assert frame.where(asked[0]).count() == counts[0]
    assert frame.count() == SEGMENTS * PER_SEGMENT
    together = reduce(
        DataFrame.unionAll,
        (frame.where(one).select(F.lit(at).alias("at")) for at, one in enumerate(asked)),
    )
    found = {row["at"]: row["count"] for row in together.groupBy("at").count().collect()}
    assert [found.get(at, 0) for at in range(len(asked))] == counts


def test_without_a_filter_everything_is_read(session: SparkSession, lake: Lake) -> None:
    frame = reader(session, lake, tasks="100").load("ns.t").where("k = 6")
    assert frame.count() == 2
    assert frame.rdd.getNumPartitions() == SEGMENTS


def test_a_filter_prunes(session: SparkSession, lake: Lake) -> None:
    frame = reader(session, lake, tasks="100", filter="k = 6").load("ns.t")
    assert frame.count() == 2
    assert frame.rdd.getNumPartitions() < SEGMENTS


def test_chosen_columns_only(session: SparkSession, lake: Lake) -> None:
    frame = reader(session, lake, columns="s, k", filter="x < 0.03").load("ns.t")
    assert frame.columns == ["s", "k"]
    assert_same(frame, query("select s, k from rows where x < 0.03", lake.table().scan().to_arrow()))


def test_a_frame_keeps_its_snapshot(session: SparkSession, lake: Lake) -> None:
    table = lake.create(rows(0).schema, name="growing")
    table.append(rows(0))
    frame = reader(session, lake).load("ns.growing")
    table.append(rows(1))
    assert_same(frame, rows(0))


def test_an_older_snapshot_by_number(session: SparkSession, lake: Lake) -> None:
    first = lake.table().history()[0].snapshot_id
    assert_same(reader(session, lake, snapshotId=str(first)).load("ns.t"), rows(0))


def test_nothing_to_read_is_an_empty_answer(session: SparkSession, lake: Lake) -> None:
    assert reader(session, lake, filter="k = 1000000").load("ns.t").toArrow().num_rows == 0


def test_without_indexes_the_answer_is_the_same(session: SparkSession, lake: Lake) -> None:
    assert reader(session, lake, useIndexes="false", filter="k = 6").load("ns.t").count() == 2


@pytest.mark.parametrize(
    ("options", "name", "sentence"),
    [
        ({}, "t", "name the table as load"),
        ({}, "ns.other", "the catalog holds no table ns.other"),
        ({"colunms": "k"}, "ns.t", "there is no such option"),
        ({"columns": "nope"}, "ns.t", "there is no column 'nope'"),
        ({"columns": "[1"}, "ns.t", "nor a JSON list"),
        ({"snapshotId": "x"}, "ns.t", "'x' is not a whole number"),
        ({"snapshotId": "17"}, "ns.t", "ns.t has no snapshot 17"),
        ({"useIndexes": "maybe"}, "ns.t", "neither true nor false"),
        ({"filter": "k ="}, "ns.t", "filter"),
    ],
)
def test_wrong_options_are_told(lake: Lake, options: dict[str, str], name: str, sentence: str) -> None:
    with pytest.raises(BadSpec, match=sentence):
        SkipstoneDataSource({**catalog_options(lake), **options, "path": name}).schema()


def test_a_column_that_spark_cannot_hold_is_named(session: SparkSession, lake: Lake) -> None:
    table = lake.create(pa.schema([("k", pa.int64()), ("at", pa.time64("us"))]), name="times")
    table.append(pa.table({"k": [1], "at": pa.array([dt.time(1, 2, 3)], pa.time64("us"))}))
    with pytest.raises(BadSpec, match="'at' is time64"):
        SkipstoneDataSource({**catalog_options(lake), "path": "ns.times"}).schema()
    assert reader(session, lake, columns="k").load("ns.times").count() == 1
