"""Folders such as ``day=2026-01-31`` as sources: their values, which of them are read, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, DateType, DecimalType, IntegerType, LongType, NestedField, StringType
from skipstone.sources.plain import PlainLimits
from skipstone.tasks.share import USUAL_SHARE, DriverShare
from skipstone_core.contract.badrecords import BadRecordPolicy, BadRecordsSpec
from skipstone_core.contract.columns import UnknownColumns
from skipstone_core.contract.reports import UnusedColumn
from skipstone_core.contract.requests import (
    ColumnSpec,
    ConsumePolicy,
    HivePartitions,
    SourceFormat,
    SourceSpec,
)
from skipstone_core.errors import BadData, BadSpec, UserError
from skipstone_core.reasons import Reason

from tests.spark.load_bed import Bed, source
from tests.spark.merge_bed import ALL_IN_SPARK, MergeBed, task_of

SCHEMA = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "day", DateType()), NestedField(3, "place", StringType()),
    NestedField(4, "n", IntegerType()), NestedField(5, "late", BooleanType()),
)  # fmt: skip
IN_SPARK = PlainLimits(0, 0)
NULL = "__HIVE_DEFAULT_PARTITION__"
FOLDERS = (
    "day=2026-01-01/place=a%20b%2Fc/n=-7/late=true",
    "day=2026-01-02/place=100%25/n=0/late=false",
    f"day={NULL}/place={NULL}/n={NULL}/late={NULL}",
    "day=1969-12-31/place=é+'x/n=2147483647/late=true",
)  # fmt: skip


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    made = Bed(tmp_path)
    yield made
    made.catalog.close()


def put(bed: Bed | MergeBed, folder: str, *ids: int, **columns: Any) -> None:
    path = bed.root / "in" / folder / f"part-{ids[0]}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64()), **columns}), path)


def hive(where: str | None = None, consume: ConsumePolicy = ConsumePolicy.ALL, **types: str) -> SourceSpec:
    columns = tuple(ColumnSpec(name=name, type=kind) for name, kind in types.items())
    return source(
        SourceFormat.PARQUET, "in", hive_partitions=HivePartitions(columns=columns, where=where), consume=consume,
        consumer="jobs" if consume is ConsumePolicy.NEW else "",
    )  # fmt: skip


def sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: int(row["id"]))


def test_the_driver_and_spark_read_the_values_of_folders_as_duckdb_does(bed: Bed) -> None:
    for number, folder in enumerate(FOLDERS):
        put(bed, folder, 2 * number, 2 * number + 1)
    put(bed, f"{FOLDERS[0]}/_temporary", 99)
    with duckdb.connect() as second:
        given = "{'day': date, 'place': varchar, 'n': integer, 'late': boolean}"
        files = [str(path) for path in (bed.root / "in").rglob("*.parquet") if "_temporary" not in path.parts]
        query = "select id, day, place, n, late from read_parquet(?, hive_partitioning=true, hive_types=" + given + ")"
        expected = sorted_rows(second.sql(query, params=[files]).to_arrow_table())
    for name, limits in (("driver", None), ("spark", IN_SPARK)):
        bed.create(SCHEMA, name)
        report = bed.load(hive(), name, limits=limits)
        assert ("session" in report.stages_ms) is (name == "spark")
        assert sorted_rows(bed.arrow(name)) == expected
    assert [row["place"] for row in expected[::2]] == ["a b/c", "100%", None, "é+'x"]


def test_a_condition_opens_only_files_of_folders_on_which_it_is_true(bed: Bed) -> None:
    bed.create(SCHEMA)
    put(bed, "day=2026-01-01/place=a", 1)
    put(bed, "day=2026-01-02/place=a", 2)
    put(bed, f"day={NULL}/place=a", 3)
    (bed.root / "in" / "day=2026-01-03").mkdir()
    bed.put("in/day=2026-01-03/place=a/broken.parquet", "this is not Parquet")
    assert bed.load(hive("day < date '2026-01-03' and place = 'a'")).counts["rowsRead"] == 2
    assert bed.load(hive("day is null")).counts["rowsRead"] == 1
    assert sorted(row["id"] for row in bed.rows()) == [1, 2, 3]
    with pytest.raises(BadData, match=r"where: it is true on no folder") as nothing:
        bed.load(hive("day = date '1999-01-01'"))
    assert nothing.value.reason is Reason.SOURCE_NOT_FOUND


def test_new_reads_each_file_once_whatever_the_condition(bed: Bed) -> None:
    bed.create(SCHEMA)
    new = ConsumePolicy.NEW
    put(bed, "day=2026-01-01", 1)
    put(bed, "day=2026-01-02", 2)
    bed.load(hive("day = date '2026-01-01'", new))
    put(bed, "day=2026-01-01", 3)
    bed.load(hive("day = date '2026-01-01'", new))
    assert sorted(row["id"] for row in bed.rows()) == [1, 3]
    bed.load(hive(consume=new))
    assert sorted((row["id"], str(row["day"])) for row in bed.rows()) == [
        (1, "2026-01-01"), (2, "2026-01-02"), (3, "2026-01-01"),
    ]  # fmt: skip
    assert bed.load(hive(consume=new)).counts == {}


def test_values_that_do_not_fit_are_bad_rows(bed: Bed) -> None:
    bed.create(SCHEMA)
    put(bed, "n=7", 1)
    put(bed, "n=seven", 2)
    with pytest.raises(BadData, match="column 'n': the value is not") as bad:
        bed.load(hive())
    assert bad.value.reason is Reason.BAD_RECORDS
    redirected = BadRecordsSpec(policy=BadRecordPolicy.REDIRECT, max_count=1)
    assert bed.load(hive(), bad_records=redirected).counts["rowsRejected"] == 1
    (rejects,) = (bed.root / ".skipstone").rglob("part-*.json*")
    assert '"n":"seven"' in rejects.read_text().replace("\\", "")
    with pytest.raises(BadData, match=r"'n=seven', the partition of 'in/n=seven/part-2.parquet', does not"):
        bed.load(hive("n > 3"))


def test_columns_that_the_table_lacks_are_added_with_their_types_or_named(bed: Bed) -> None:
    bed.create(Schema(NestedField(1, "id", LongType())))
    put(bed, "price=-1.50/tag=x", 1)
    report = bed.load(hive())
    assert report.unused_columns == (UnusedColumn(name="price"), UnusedColumn(name="tag"))
    put(bed, "price=2.25/tag=y", 2)
    spec = hive(price="decimal(9,2)")
    added = SourceSpec(**{**vars(spec), "unknown_columns": UnknownColumns.ADD})
    bed.load(added)
    assert bed.table().schema().find_field("price").field_type == DecimalType(9, 2)
    assert [(row["id"], row["price"], row["tag"]) for row in bed.rows() if row["price"]] == [
        (1, Decimal("-1.50"), "x"), (2, Decimal("2.25"), "y"),
    ]  # fmt: skip


@pytest.mark.parametrize("limits", [USUAL_SHARE, ALL_IN_SPARK])
def test_a_merge_reads_them_too(tmp_path: Path, limits: DriverShare) -> None:
    bed = MergeBed(tmp_path, limits)
    bed.create(SCHEMA)
    bed.append([{"id": 1, "day": date(2026, 1, 1), "place": "old", "n": 0, "late": False}])
    put(bed, "day=2026-01-09/place=new", 1, n=pa.array([1], pa.int32()), late=[True])
    put(bed, "day=2026-01-09/place=other", 2, n=pa.array([1], pa.int32()), late=[True])
    counts = bed.merge(task_of("", source=hive("place = 'new'"), keys=("id",))).counts
    assert (counts["rowsUpdated"], counts["rowsInserted"]) == (1, 0)
    assert bed.table().scan().to_arrow().to_pylist() == [
        {"id": 1, "day": date(2026, 1, 9), "place": "new", "n": 1, "late": True}
    ]
    bed.catalog.close()


@pytest.mark.parametrize(
    ("folders", "fields", "says"),
    [
        (("day=2026-01-01", "place=a"), {}, r"is in a folder 'day=…' and '.*' is not"),
        (("x",), {}, r"no folder of 'in/x/part-0.parquet' has a name such as"),
        (("id=4",), {}, r"holds the column 'id', and its folder names 'id': remove source.hivePartitions"),
        (("ID=4",), {}, r"holds the column 'id', and its folder names 'ID'"),
        (("n=1/n=2",), {}, r"name the column 'n' twice"),
        (("place=100%",), {}, r"the folder 'place=100%' of .* is not percent-encoded UTF-8"),
        (("place=%FF",), {}, r"is not percent-encoded UTF-8"),
        (("n=1",), {"where": "id > 3"}, r"where: there is no column id: name one of n"),
        (("n=1",), {"where": "n >"}, r"source.hivePartitions.where"),
        (("_delta_log", "n=1"), {}, r"'in' holds a Delta table, and only its metadata says"),
        (("n=1",), {"day": "date"}, r"columns: no folder names the column 'day'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_folders_is_one_sentence(
    bed: Bed, folders: tuple[str, ...], fields: dict[str, str], says: str
) -> None:
    bed.create(SCHEMA)
    for number, folder in enumerate(folders):
        put(bed, folder, number)
    with pytest.raises(UserError, match=says) as refused:
        bed.load(hive(**fields))
    assert isinstance(refused.value, BadData | BadSpec)
    assert bed.rows() == []
