"""Whole structs as the values of an Update and an Insert: rows equal those of Spark's own MERGE INTO on Iceberg.

Structs that are null, within structs, of files older than their fields, and of sources that lack some of them.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType
from pyspark.sql import SparkSession
from skipstone_core.contract.requests import MergeAction, MergeClause, SourceFormat, SourceSpec
from skipstone_core.errors import BadSpec
from skipstone_core.reasons import Reason

from tests.spark.merge_bed import UPDATE, MergeBed, rows_of, task_of

Row = dict[str, Any]
INNER = StructType(NestedField(6, "c", LongType()), NestedField(7, "d", StringType()))
STRUCT = StructType(NestedField(3, "a", LongType()), NestedField(4, "b", StringType()), NestedField(5, "in", INNER))
SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "s", STRUCT), NestedField(8, "n", LongType()))
WHOLE = {"s": "source.s"}
SET = MergeClause(action=MergeAction.UPDATE, values=WHOLE)
ALL = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
ASSIGNED = (
    "WHEN MATCHED THEN UPDATE SET s = source.s "
    "WHEN NOT MATCHED THEN INSERT (id, s, n) VALUES (source.id, source.s, source.n)"
)
#: Types of the source's struct: in another order and narrower, without a field, without a field within a field.
INSIDE = pa.struct([("d", pa.string()), ("c", pa.int32())])
COMPLETE = pa.struct([("in", INSIDE), ("b", pa.string()), ("a", pa.int32())])
LACKING = {
    "b": pa.struct([("a", pa.int64()), ("in", pa.struct([("c", pa.int64()), ("d", pa.string())]))]),
    "in.d": pa.struct([("a", pa.int64()), ("b", pa.string()), ("in", pa.struct([("c", pa.int64())]))]),
}


def drawn_rows(seed: int, ids: Sequence[int]) -> list[Row]:
    """Rows whose structs, and the structs within these, are null now and then."""
    drawn = random.Random(seed)

    def maybe(value: Any) -> Any:
        return None if drawn.random() < 0.25 else value

    def struct() -> Row:
        inner = maybe({"c": maybe(drawn.randint(0, 99)), "d": maybe(f"d{drawn.randint(0, 99)}")})
        return {"a": maybe(drawn.randint(0, 99)), "b": maybe(f"b{drawn.randint(0, 99)}"), "in": inner}

    return [{"id": number, "s": maybe(struct()), "n": drawn.randint(0, 9)} for number in ids]


def changes(seed: int, kind: pa.StructType) -> pa.Table:
    """Changes of some rows and new ones, with structs of type ``kind``."""

    def pruned(value: Any, kind: pa.DataType) -> Any:
        if value is None or not pa.types.is_struct(kind):
            return value
        return {field.name: pruned(value[field.name], field.type) for field in kind}

    rows = [{**row, "s": pruned(row["s"], kind)} for row in drawn_rows(seed, range(8, 32, 2))]
    return pa.Table.from_pylist(rows, pa.schema([("id", pa.int64()), ("s", kind), ("n", pa.int64())]))


def filled(root: Path) -> dict[str, MergeBed]:
    """Three files of eight rows each, by the mode of merges."""
    beds = {}
    for mode in ("copy-on-write", "merge-on-read"):
        (root / mode).mkdir()
        beds[mode] = MergeBed(root / mode)
        beds[mode].create(SCHEMA, **{"write.merge.mode": mode})  # type: ignore[arg-type]
        beds[mode].append(*(drawn_rows(seed, range(8 * seed, 8 * seed + 8)) for seed in range(3)))
    return beds


def assert_merged_as_by_spark(
    beds: Mapping[str, MergeBed], session: SparkSession, source: pa.Table, merge: str, **fields: Any
) -> None:
    """Merge ``source`` into the table of each bed, and the rows that these had into a table of Spark's own."""
    before = beds["copy-on-write"].table().scan().to_arrow()
    expected = by_spark(session, before, source, merge)
    for mode, bed in beds.items():
        bed.merge(task_of(bed.source(source, secrets.token_hex(4)), **fields))
        assert bed.rows() == expected, mode


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> SparkSession:
    """A session with a catalog of its own."""
    made = spark.newSession()
    settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".warehouse": f"{tmp_path}/spark"}
    for key, value in settings.items():
        made.conf.set(f"spark.sql.catalog.ref{key}", value)
    made.conf.set("spark.sql.mergeNestedTypeCoercion.enabled", "true")
    made.conf.set("spark.sql.shuffle.partitions", 1)
    made.sql("CREATE NAMESPACE ref.n")
    return made


def by_spark(session: SparkSession, target: pa.Table, source: pa.Table, merge: str) -> list[str]:
    """The rows of ``target`` after Spark's MERGE."""
    session.createDataFrame(source).createOrReplaceTempView("source")
    session.createDataFrame(target).coalesce(1).writeTo("ref.n.t").createOrReplace()
    session.sql(merge)
    return rows_of(session.table("ref.n.t").toArrow().cast(target.schema))


def test_whole_structs_replace_those_of_the_table_as_in_spark(tmp_path: Path, session: SparkSession) -> None:
    beds = filled(tmp_path)
    for seed, matched, clauses in ((7, UPDATE, ALL), (8, SET, ASSIGNED)):
        statement = f"MERGE INTO ref.n.t USING source ON t.id = source.id {clauses}"
        assert_merged_as_by_spark(beds, session, changes(seed, COMPLETE), statement, when_matched=(matched,))


def test_whole_structs_of_a_table_that_evolved(tmp_path: Path, session: SparkSession) -> None:
    beds = filled(tmp_path)
    for bed in beds.values():
        with bed.table().update_schema() as update:
            update.add_column(("s", "new"), IntegerType())
            update.rename_column("s.b", "bb")
            update.delete_column(("s", "in", "d"))
    inner = pa.struct([("c", pa.int64())])
    kind = pa.struct([("new", pa.int32()), ("a", pa.int64()), ("bb", pa.string()), ("in", inner)])
    rows = [
        {"id": 3, "s": {"new": 1, "a": 2, "bb": "x", "in": {"c": 5}}, "n": 1},
        {"id": 9, "s": {"new": None, "a": None, "bb": None, "in": None}, "n": 2},
        {"id": 17, "s": None, "n": 3},
        {"id": 40, "s": {"new": 4, "a": 5, "bb": "y", "in": {"c": None}}, "n": 4},
    ]
    source = pa.Table.from_pylist(rows, pa.schema([("id", pa.int64()), ("s", kind), ("n", pa.int64())]))
    assert_merged_as_by_spark(beds, session, source, f"MERGE INTO ref.n.t USING source ON t.id = source.id {ALL}")


@pytest.mark.parametrize("lacking", list(LACKING))
def test_fields_that_the_source_lacks_stay_as_they_are(tmp_path: Path, session: SparkSession, lacking: str) -> None:
    statement = f"MERGE WITH SCHEMA EVOLUTION INTO ref.n.t USING source ON t.id = source.id {ALL}"
    assert_merged_as_by_spark(filled(tmp_path), session, changes(5, LACKING[lacking]), statement)


def test_fields_that_only_some_files_have_are_not_made_null(tmp_path: Path) -> None:
    bed = filled(tmp_path)["copy-on-write"]
    others = changes(6, LACKING["in.d"]).set_column(0, "id", pa.array(range(100, 112), pa.int64()))
    whole = pa.struct(
        [("a", pa.int64()), ("b", pa.string()), ("in", pa.struct([("c", pa.int64()), ("d", pa.string())]))]
    )
    paths = (bed.source(changes(5, whole), "a"), bed.source(others, "b"))
    source = SourceSpec(format=SourceFormat.PARQUET, paths=paths)
    before = bed.rows()
    with pytest.raises(BadSpec, match=r"some files of the source lack the field 'in\.d' within 's'") as refused:
        bed.merge(task_of("", source=source))
    assert (refused.value.reason, refused.value.field) == (Reason.SOURCE_COLUMN_MISSING, "spec.whenMatched[0].set")
    assert bed.rows() == before
    fields = MergeClause(action=MergeAction.UPDATE, values={"s.a": "source.s.a", "n": "n"})
    bed.merge(task_of("", source=source, when_matched=(fields,)))
    assert bed.rows() != before
