"""Rows that Iceberg loses by what other writers say of files and manifests are found, with an index and without."""

from __future__ import annotations

import math
import uuid
from typing import NoReturn

import pyarrow as pa
import pytest
import skipstone
from pyiceberg.transforms import BucketTransform, Transform, TruncateTransform
from pyspark.sql import DataFrame
from skipstone.query.plans.guarding import risks
from skipstone.query.plans.refusals import Refusal
from skipstone.tables.filesets import read_file_set
from skipstone.tables.states import table_state
from skipstone.tables.upkeep.health import table_health
from skipstone.tables.upkeep.manifests import rewrite_manifests
from skipstone_core.maintenance.policies import MaintenancePolicy

from tests.spark.index_bed import index_on
from tests.spark.listless import Change, forget_bounds, without_any, without_lower
from tests.spark.plans_bed import TABLE, Bed, bed

__all__ = ["bed"]
ROWS = pa.table({"k": pa.array(range(8), pa.int64()), "s": ["", "ab", "ac", "b", "ca", "cb", "cc", "d"]})


def rows(df: DataFrame) -> list[tuple[object, ...]]:
    """The rows, in order."""
    return sorted(tuple(row) for row in df.collect())


@pytest.mark.parametrize(
    ("column", "transform", "change"),
    [(1, BucketTransform(2), without_any), (2, TruncateTransform(2), without_lower)],
    ids=["bucket", "truncate"],
)
def test_a_manifest_list_without_bounds_costs_no_row(
    bed: Bed, column: int, transform: Transform[object, object], change: Change
) -> None:
    table = bed.lake.create(ROWS.schema)
    with table.update_spec() as update:
        update.add_field(table.schema().find_column_name(column) or "", transform, "part")
    bed.lake.table().append(ROWS)
    whole = rows(bed.spark.table(TABLE))
    forget_bounds(bed.lake.table(), change)
    copy = bed.spark.createDataFrame(whole, "k long, s string")
    asked = "k = 5", "s = 'cb'", "k > 3 and s is not null", "s like 'c%'"
    lost = 0
    for condition in asked:
        text = f"select * from {TABLE} where {condition}"
        expected = [row for row in whole if row in rows(copy.where(condition))]
        found = skipstone.sql(bed.spark, text)
        assert rows(found) == expected, str(skipstone.explain(found))
        (relation,) = skipstone.explain(found).relations
        assert relation.guard.endswith("it gets a list of files"), str(relation)
        lost += rows(bed.spark.sql(text)) != expected
    assert lost, "plain Spark loses none of these rows: is there anything left to guard?"
    assert skipstone.rewrite(df := bed.spark.table(TABLE)) is df
    bed.reindex(index_on("k"))
    assert rows(skipstone.sql(bed.spark, f"select k from {TABLE} where k = 5")) == [(5,)]
    assert without_bounds_in(bed) == 1
    (caveat,) = table_state(bed.lake.catalog, bed.lake.ref()).state.caveats
    assert "skip the files of 1 of 1 manifests" in caveat
    repaired = rewrite_manifests(bed.lake.catalog, bed.lake.ref(), "22222222-00000001-1")
    assert (repaired.replaced, repaired.written, without_bounds_in(bed)) == (1, 1, 0)
    assert table_state(bed.lake.catalog, bed.lake.ref()).state.caveats == ()
    assert rewrite_manifests(bed.lake.catalog, bed.lake.ref(), "22222222-00000002-1").outcome is None
    for condition in asked:
        df = bed.spark.sql(f"select * from {TABLE} where {condition}")
        assert rows(df) == [row for row in whole if row in rows(copy.where(condition))]
        assert skipstone.explain(df).relations[0].guard == ""


def test_a_manifest_list_that_cannot_be_read_at_that_moment_costs_no_row(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = bed.lake.create(ROWS.schema)
    with table.update_spec() as update:
        update.add_field("k", BucketTransform(2), "part")
    bed.lake.table().append(ROWS)
    forget_bounds(bed.lake.table(), without_any)
    text = f"select k from {TABLE} where k in (2, 5)"
    assert rows(bed.spark.sql(text)) != [(2,), (5,)], "plain Spark loses none of these rows"

    def read(*_: object) -> NoReturn:
        monkeypatch.undo()
        raise OSError("the storage does not answer at this moment")

    monkeypatch.setattr(risks, "read_manifests", read)
    found = skipstone.sql(bed.spark, text)
    assert rows(found) == [(2,), (5,)], str(skipstone.explain(found))
    assert risks.read_manifests is not read, "nobody looked"


def without_bounds_in(bed: Bed) -> int:
    """How many manifests of the table other engines skip, as a run tells of it."""
    table = bed.lake.table()
    return table_health(table, read_file_set(table), MaintenancePolicy(), 0).manifests_without_bounds


def test_a_partition_of_nulls_alone_needs_no_bounds(bed: Bed) -> None:
    bed.spark.sql(f"create table {TABLE} (k int, g string) using iceberg partitioned by (g)")
    bed.spark.sql(f"insert into {TABLE} values (1, null), (2, null)")
    df = bed.spark.sql(f"select k from {TABLE} where k = 1")
    assert skipstone.rewrite(df) is df
    assert rows(df) == [(1,)]


def test_the_largest_float_is_not_taken_from_bounds_without_nan(bed: Bed) -> None:
    """PyIceberg counts no NaN, and its bounds hold none: Iceberg answers from them."""
    schema = pa.schema([("k", pa.int64()), ("x", pa.float64())])
    bed.lake.create(schema).append(pa.table({"k": [1, 2], "x": [1.0, math.nan]}, schema=schema))
    text = f"select max(x) as most, count(*) as n from {TABLE}"
    (row,) = skipstone.sql(bed.spark, text).collect()
    assert math.isnan(row.most)
    assert row.n == 2
    assert bed.spark.sql(text).collect()[0].most == 1.0


def test_uuids_on_both_sides_of_zero_are_found_without_an_index(bed: Bed) -> None:
    low, high = uuid.UUID(int=1), uuid.UUID(int=(0xF << 124) + 5)
    schema = pa.schema([("k", pa.int64()), ("u", pa.uuid())])
    values = pa.array([low.bytes, high.bytes], pa.binary(16)).cast(pa.uuid())
    bed.lake.create(schema).append(pa.table({"k": [1, 2], "u": values}, schema=schema))
    for number, value in ((1, low), (2, high)):
        found = skipstone.sql(bed.spark, f"select k from {TABLE} where u = '{value}'")
        assert rows(found) == [(number,)]
        assert skipstone.explain(found).relations[0].refusal is Refusal.NO_INDEX
    assert rows(skipstone.sql(bed.spark, f"select min(u), max(u) from {TABLE}")) == [(str(low), str(high))]
