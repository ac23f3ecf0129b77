"""Files that other engines wrote as ORC or Avro beside Parquet files that an index covers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from skipstone.query import read
from skipstone_core.errors import BadData

from tests.spark.index_bed import index_on
from tests.spark.plans_bed import TABLE, Bed, open_bed

ROWS = 400
COLUMNS = "k, text, at, moment, day, money, ratio, flag, bytes, items, inner"
START, ANCIENT = datetime(2020, 7, 1, 0, 0, 0, 123456, tzinfo=UTC), datetime(1900, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)


def expected(number: int) -> dict[str, object]:
    """A row as ``read`` gives it; every third is ancient, every seventh has nulls."""
    moment = (ANCIENT if number % 3 == 0 else START) + timedelta(hours=number)
    nothing = number % 7 == 0
    return {
        "k": number,
        "text": None if nothing else f"text{number}é",
        "at": moment.replace(tzinfo=None),
        "moment": moment,
        "day": date(1950, 1, 1) + timedelta(days=number),
        "money": Decimal(number).scaleb(-2),
        "ratio": number / 4,
        "flag": number % 2 == 0,
        "bytes": str(number).encode(),
        "items": None if nothing else [number, None],
        "inner": {"a": number, "m": moment},
    }


def insert(bed: Bed, first: int) -> None:
    """One file of rows whose keys are all over the table's range."""
    hours = "make_dt_interval(0, cast(k as int))"
    base = "2020-07-01 00:00:00.123456", "1900-01-01 00:00:00.123456"
    ntz, tz = (f"if(k % 3 = 0, {kind}'{base[1]}{utc}', {kind}'{base[0]}{utc}') + {hours}"
               for kind, utc in (("timestamp_ntz", ""), ("timestamp", " UTC")))  # fmt: skip
    bed.spark.sql(f"""
        insert into {TABLE} select /*+ coalesce(1) */ k, if(k % 7 = 0, null, concat('text', k, 'é')), {ntz}, {tz},
          date_add(date'1950-01-01', cast(k as int)), cast(k as decimal(9, 2)) / 100, k / 4, k % 2 = 0,
          cast(cast(k as string) as binary), if(k % 7 = 0, null, array(cast(k as int), null)),
          named_struct('a', cast(k as int), 'm', {tz})
        from (select id * 4 + {first} as k from range({ROWS}))""")


def set_format(bed: Bed, kind: str) -> None:
    """What Spark writes from now on."""
    bed.spark.sql(f"alter table {TABLE} set tblproperties ('write.format.default' = '{kind}')")


@pytest.fixture
def bed(spark: SparkSession, tmp_path: Path) -> Iterator[Bed]:
    """Two Parquet files that an index on k covers, and a newer ORC file; the driver reads what it likes."""
    made = open_bed(spark, tmp_path, driver_rows=None)
    made.spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    made.spark.sql(f"""
        create table {TABLE} (k bigint, text string, at timestamp_ntz, moment timestamp, day date, money decimal(9, 2),
          ratio double, flag boolean, bytes binary, items array<int>, inner struct<a: int, m: timestamp>)
        using iceberg tblproperties
          ('format-version' = '2', 'write.delete.mode' = 'merge-on-read', 'write.delete.format.default' = 'parquet')""")
    insert(made, 0)
    insert(made, 1)
    made.reindex(index_on("k"))
    set_format(made, "orc")
    insert(made, 2)
    yield made
    made.lake.catalog.close()


def test_an_index_is_used_beside_files_of_other_formats(bed: Bed) -> None:
    found = bed.query(f"select text, moment from {TABLE} where k in (400, 402)")
    assert (found.files_read, found.files_staged, len(found.answer)) == ([2], [1], 2), str(found.explanation)
    assert found.only.driver is not None
    set_format(bed, "avro")
    insert(bed, 3)
    found = bed.query(f"select text, moment from {TABLE} where k in (400, 402, 403)")
    assert (found.files_read, found.files_staged, len(found.answer)) == ([3], [2], 3), str(found.explanation)
    with pytest.raises(BadData, match=r"\.avro is AVRO; .* Query the table with skipstone\.sql"):
        read(bed.lake.table(), ["text"], "k = 403")


def test_deletes_that_only_spark_applies_leave_the_index_in_use(bed: Bed) -> None:
    bed.spark.sql(f"alter table {TABLE} set tblproperties ('write.delete.format.default' = 'avro')")
    bed.spark.sql(f"delete from {TABLE} where k = 404")
    found = bed.query(f"select text from {TABLE} where k in (400, 404)")
    assert (found.files_read, found.files_staged, len(found.answer)) == ([2], [2], 1), str(found.explanation)
    with pytest.raises(BadData, match="which cannot be applied"):
        read(bed.lake.table(), ["text"], "k in (400, 404)")


def test_orc_files_are_read_without_spark(bed: Bed) -> None:
    bed.spark.sql(f"delete from {TABLE} where k in (398, 410)")
    wanted = [number for number in range(396, 412) if number % 4 < 3 and number not in (398, 410)]
    found = read(bed.lake.table(), COLUMNS.split(", "), "k between 396 and 411").to_pylist()
    assert sorted(found, key=lambda one: one["k"]) == [expected(number) for number in wanted]
    for column, moment in (("at", "1900-01-17 18:00:00.123456"), ("moment", "1900-01-17 18:00:00.123456Z")):
        assert read(bed.lake.table(), ["k"], f"{column} = timestamp '{moment}'").to_pylist() == [{"k": 402}]
    for change in ("rename column text to label", "drop column ratio", "add column ratio double"):
        bed.spark.sql(f"alter table {TABLE} {change}")
    (row,) = read(bed.lake.table(), ["label", "ratio"], "k = 402").to_pylist()
    assert row == {"label": "text402é", "ratio": None}
    assert read(bed.lake.table(), ["ratio"], "ratio is null").num_rows == 3 * ROWS - 2
    assert read(bed.lake.table(), ["k"]).num_rows == 3 * ROWS - 2


def test_moments_that_arrow_does_not_read_from_orc_are_refused(bed: Bed) -> None:
    bed.spark.sql(f"insert into {TABLE} (k, at) values (402, timestamp_ntz'0001-01-01 00:00:00')")
    assert read(bed.lake.table(), ["k"], "k = 402").num_rows == 2
    with pytest.raises(BadData, match=r"\.orc cannot be read without Spark"):
        read(bed.lake.table(), ["at"], "k = 402")
    assert len(bed.query(f"select at from {TABLE} where k = 402").answer) == 2
