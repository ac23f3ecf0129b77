"""Texts that are no UTF-8, as Spark lets columns hold them: their files are merged, indexed and read by their bytes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform, TruncateTransform
from pyspark.sql import SparkSession
from skipstone.query import read
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import MergeAction, MergeClause
from skipstone_core.errors import BadData

from tests.spark.index_bed import Lake, index_on
from tests.spark.lake import append
from tests.spark.merge_bed import MergeBed, task_of
from tests.spark.secondengine import second_spark

T = "skipstone.ns.t"
NEW_V = MergeClause(action=MergeAction.UPDATE, values={"v": "source.v"})
#: Rows of one file: the least and the greatest text, and one between them, are no UTF-8.
TEXTS = (b"\x80", b"a", b"caf\xc3\xa9", b"caf\xe9", b"\xf0\x28\x8c\xbc", b"\xff\xfe", b"b")


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_texts_that_are_not_utf8_are_merged_and_indexed(tmp_path: Path, spark: SparkSession, mode: str) -> None:
    bed, lake = MergeBed(tmp_path), Lake(tmp_path)
    session = second_spark(spark, bed.warehouse)
    session.sql(
        f"create table {T} (id bigint, k string, v string) using iceberg "
        f"tblproperties ('format-version' = '2', 'write.merge.mode' = '{mode}')"
    )
    rows = ", ".join(f"({id_}, cast(x'{text.hex()}' as string), 'old')" for id_, text in enumerate(TEXTS))
    session.sql(f"insert into {T} select /*+ coalesce(1) */ * from (values {rows})")
    path = bed.source(pa.table({"id": [1, 5], "v": ["new"] * 2}))
    assert bed.merge(task_of(path, when_matched=(NEW_V,), when_not_matched=())).outcome is RunOutcome.COMMITTED
    after = session.sql(f"select id, hex(cast(k as binary)), v from {T} order by id").collect()
    expected = [(id_, text.hex().upper(), "new" if id_ in (1, 5) else "old") for id_, text in enumerate(TEXTS)]
    assert [tuple(row) for row in after] == expected
    for index in (index_on("k", name="by-text"), index_on("id", name="beside-text", include=["k"])):
        assert lake.reindex(index).counts["entries"] >= len(TEXTS)
    for condition, wanted in CONDITIONS.items():
        assert texts(lake.table(), condition) == sorted(text for text in TEXTS if wanted(text)), condition


CONDITIONS = {
    "k = 'a'": lambda text: text == b"a",
    "k >= 'c'": lambda text: text >= b"c",
    "k < 'c'": lambda text: text < b"c",
    "k like 'caf%'": lambda text: text.startswith(b"caf"),
    "id in (3, 5)": lambda text: text in (b"caf\xe9", b"\xff\xfe"),
}


def texts(table: Table, condition: str) -> list[bytes]:
    """The bytes of ``k`` of the rows found."""
    return sorted(pc.cast(read(table, ["k"], condition)["k"], pa.binary()).to_pylist())


def texts_table(tmp_path: Path) -> tuple[Table, pa.Table]:
    """A table with TEXTS in no order, not appended yet."""
    table = Lake(tmp_path).create(pa.schema([("k", pa.string()), ("v", pa.string())]))
    return table, pa.table({"k": pa.array(TEXTS, pa.binary()).view(pa.string()), "v": ["v"] * len(TEXTS)})


@pytest.mark.parametrize("transform", [IdentityTransform(), TruncateTransform(2)])
def test_a_text_that_is_not_utf8_has_no_partition_of_texts(tmp_path: Path, transform: Transform[str, str]) -> None:
    table, rows = texts_table(tmp_path)
    with table.update_spec() as update:
        update.add_field("k", transform, "part")
    with pytest.raises(BadData, match=r"a row has no partition: its 'part' .* is of a text that is not UTF-8: fix"):
        append(table, rows)


def test_texts_that_are_not_utf8_have_buckets(tmp_path: Path) -> None:
    table, rows = texts_table(tmp_path)
    with table.update_spec() as update:
        update.add_field("k", BucketTransform(4), "part")
    assert sorted(texts(append(table, rows), "v = 'v'")) == sorted(TEXTS)


def test_texts_that_are_not_utf8_are_sorted_by_their_beginnings(tmp_path: Path) -> None:
    table, rows = texts_table(tmp_path)
    with table.update_sort_order() as update:
        update.asc("k", TruncateTransform(2))
    found = read(append(table, rows), ["k"])["k"]
    assert pc.cast(found, pa.binary()).to_pylist() == sorted(TEXTS)
