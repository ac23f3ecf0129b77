"""The writer and its reader: partition values as PyIceberg computes them singly, bounds that hold, sizes."""

from __future__ import annotations

import datetime as dt
import math
import pickle
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec, partition_record_value
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from skipstone.files.partitions import split_by_partition
from skipstone.files.reader import POSITION_COLUMN, ROW_GROUP_COLUMN, describe_files, read_data_file
from skipstone.files.writer import DataFileWriter, WriteSpec, WrittenFile, write_spec
from skipstone.tables.arrow import arrow_schema
from skipstone.tables.filesets import read_file_set
from skipstone_core.errors import BadData
from skipstone_core.reasons import Reason

from tests.spark.lake import append, read_all, write_files

VALUES: dict[PrimitiveType, st.SearchStrategy[Any]] = {
    IntegerType(): st.integers(-(2**31) + 3, 2**31 - 1),
    LongType(): st.integers(-(2**63) + 3, 2**63 - 1),
    DecimalType(9, 2): st.decimals(Decimal("-9999999.99"), Decimal("9999999.99"), places=2),
    DecimalType(38, 5): st.decimals(Decimal(-(10**30)), Decimal(10**30), places=5),
    DateType(): st.dates(dt.date(1, 1, 2), dt.date(9999, 12, 30)),
    TimestampType(): st.datetimes(),
    TimestamptzType(): st.datetimes(timezones=st.just(dt.UTC)),
    TimeType(): st.times(),
    StringType(): st.text(max_size=8),
    BinaryType(): st.binary(max_size=8),
    FixedType(4): st.binary(min_size=4, max_size=4),
    UUIDType(): st.uuids(),
}
TRANSFORMS: list[Transform[Any, Any]] = [
    IdentityTransform(),
    BucketTransform(7),
    TruncateTransform(3),
    YearTransform(),
    MonthTransform(),
    DayTransform(),
    HourTransform(),
    VoidTransform(),
]
CASES = [(kind, transform) for kind in VALUES for transform in TRANSFORMS if transform.can_transform(kind)]


@pytest.mark.parametrize(("kind", "transform"), CASES, ids=[f"{transform} of {kind}" for kind, transform in CASES])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors])
@given(data=st.data())
def test_partition_values_are_those_of_each_value_alone(
    kind: PrimitiveType, transform: Transform[Any, Any], data: st.DataObject
) -> None:
    values = data.draw(st.lists(st.none() | VALUES[kind], min_size=1, max_size=12))
    schema = Schema(NestedField(1, "v", kind))
    field = PartitionField(1, 1000, transform, "p")
    stored = [value.bytes if isinstance(kind, UUIDType) and value is not None else value for value in values]
    table = pa.table([pa.array(stored, arrow_schema(schema).field(0).type)], names=["v"])
    pairs = [
        (partition[0], value)
        for partition, rows in split_by_partition(table, PartitionSpec(field), schema)
        for value in rows.column(0).to_pylist()
    ]
    assert sorted(map(repr, (value for _, value in pairs))) == sorted(map(repr, stored_back(table)))
    for partition, value in pairs:
        internal = partition_record_value(field, value, schema)
        assert partition == (None if value is None else transform.transform(kind)(internal))


def stored_back(table: pa.Table) -> list[Any]:
    """The values as Arrow gives them back."""
    values: list[Any] = table.column(0).to_pylist()
    return values


def test_each_combination_of_partition_values_is_one_partition() -> None:
    schema = Schema(NestedField(1, "a", StringType()), NestedField(2, "b", DoubleType()))
    spec = PartitionSpec(
        PartitionField(1, 1000, IdentityTransform(), "a"), PartitionField(2, 1001, IdentityTransform(), "b")
    )
    nan = float("nan")
    table = pa.table({"a": ["x", None, "x", None, "y"], "b": [nan, 1.0, nan, 1.0, None]})
    sizes = [rows.num_rows for _, rows in split_by_partition(table, spec, schema)]
    assert sorted(sizes) == [1, 2, 2]


SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "x", DoubleType()),
    NestedField(3, "s", StringType()),
    NestedField(4, "b", BinaryType()),
)


def make(catalog: Catalog, schema: Schema = SCHEMA, name: str = "t", **options: Any) -> Table:
    """A table."""
    return catalog.create_table(("ns", name), schema, **options)


def rows(**columns: list[Any]) -> pa.Table:
    """Rows of SCHEMA; columns not given are null."""
    count = len(next(iter(columns.values())))
    given = {"id": list(range(count)), **columns}
    return pa.table({name: pa.array(v, arrow_schema(SCHEMA).field(name).type) for name, v in given.items()})


texts = st.lists(st.none() | st.text(max_size=30), min_size=1, max_size=20)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(texts, st.data())
def test_bounds_hold_for_every_value(tmp_path: Path, values: list[str | None], data: st.DataObject) -> None:
    floats = data.draw(st.lists(st.none() | st.floats(), min_size=len(values), max_size=len(values)))
    blobs = data.draw(st.lists(st.none() | st.binary(max_size=30), min_size=len(values), max_size=len(values)))
    spec = plain_spec(tmp_path)
    writer = DataFileWriter(spec, uuid.uuid4().hex)
    writer.write(rows(s=values, x=floats, b=blobs))
    (written,) = writer.close()
    found = written.statistics
    lower, upper = found["lower_bounds"], found["upper_bounds"]
    for value in (value.encode() for value in values if value is not None):
        assert 3 not in lower or lower[3] <= value
        assert 3 not in upper or upper[3] >= value
    for blob in (blob for blob in blobs if blob is not None):
        assert 4 not in lower or lower[4] <= blob
        assert 4 not in upper or upper[4] >= blob
    ordered = [value for value in floats if value is not None and not math.isnan(value)]
    for number in ordered:
        assert np.frombuffer(lower[2], "<f8")[0] <= number <= np.frombuffer(upper[2], "<f8")[0]
    assert found["nan_value_counts"][2] == sum(math.isnan(value) for value in floats if value is not None)
    assert found["null_value_counts"][3] == values.count(None)
    assert found["value_counts"][3] == len(values)


def plain_spec(root: Path, **options: Any) -> WriteSpec:
    """A spec for unpartitioned files of SCHEMA below ``root``."""
    values = {
        "schema_json": SCHEMA.model_dump_json(),
        "spec_json": PartitionSpec().model_dump_json(),
        "sort_json": SortOrder().model_dump_json(),
        "location": f"file://{root}/data",
        "run_id": "run",
        "target_file_bytes": 1 << 29,
        "row_group_bytes": 1 << 27,
        "row_group_rows": 1 << 20,
        "codec": "zstd",
    }
    return WriteSpec(**{**values, **options})


def test_a_value_too_long_for_statistics_leaves_the_column_without_bounds(tmp_path: Path) -> None:
    """Parquet keeps no bounds of a row group with such a value: those of the others must not stand for the file."""
    writer = DataFileWriter(plain_spec(tmp_path, row_group_rows=1), "0")
    writer.write(rows(s=["a", "b", "z" * 100_000]))
    (written,) = writer.close()
    assert pq.read_metadata(written.path.removeprefix("file://")).num_row_groups == 3
    assert 3 not in written.statistics["upper_bounds"] or written.statistics["upper_bounds"][3] > b"z"
    assert 1 in written.statistics["lower_bounds"]


def test_nan_makes_the_upper_bound_unknown_and_keeps_the_lower(catalog: Catalog) -> None:
    table = append(make(catalog), rows(x=[1.0, float("nan"), 3.0]))
    bounds = read_file_set(append(table, rows(x=[1.0, 2.0]))).bounds(2)
    by_nan = dict(
        zip(
            bounds.nan_count.to_pylist(),
            zip(bounds.lower.to_pylist(), bounds.upper.to_pylist(), strict=True),
            strict=True,
        )
    )
    assert by_nan == {1: (1.0, None), 0: (1.0, 2.0)}


def test_bounds_of_files_from_before_a_widening_are_widened(catalog: Catalog) -> None:
    schema = Schema(NestedField(1, "n", IntegerType()), NestedField(2, "d", DecimalType(5, 2)))
    kinds = arrow_schema(schema)
    table = append(make(catalog, schema), pa.table([[-5, 7], [Decimal("-1.25"), Decimal("3.50")]], schema=kinds))
    with table.update_schema() as update:
        update.update_column("n", LongType())
        update.update_column("d", DecimalType(20, 2))
    files = read_file_set(catalog.load_table(("ns", "t")))
    assert files.bounds(1).lower.equals(pa.array([-5], pa.int64()))
    assert files.bounds(2).upper.equals(pa.array([Decimal("3.50")], pa.decimal128(20, 2)))
    assert read_all(catalog.load_table(("ns", "t")))["n"].type == pa.int64()


def test_files_roll_at_the_target_size_and_row_groups_at_theirs(tmp_path: Path) -> None:
    spec = plain_spec(tmp_path, target_file_bytes=200_000, row_group_bytes=100_000, codec="uncompressed")
    writer = DataFileWriter(spec, "0")
    noise = np.random.default_rng(1).bytes(1000)
    for start in range(0, 2000, 500):
        writer.write(rows(id=list(range(start, start + 500)), b=[noise + str(n).encode() for n in range(500)]))
    written = writer.close()
    assert len(written) > 5
    assert all(200_000 <= file.size < 500_000 for file in written[:-1])
    assert sum(file.records for file in written) == 2000
    assert len({file.path for file in written}) == len(written)
    groups = pq.read_metadata(written[0].path.removeprefix("file://"))
    assert all(groups.row_group(n).total_byte_size < 150_000 for n in range(groups.num_row_groups))


def test_row_groups_keep_to_the_row_limit_of_the_table(catalog: Catalog) -> None:
    table = make(catalog, properties={"write.parquet.row-group-limit": "10", "write.parquet.compression-codec": "gzip"})
    (file,) = write_files(table, rows(x=[1.0] * 25))
    found = pq.read_metadata(file.file_path.removeprefix("file://"))
    assert [found.row_group(n).num_rows for n in range(3)] == [10, 10, 5]
    assert found.row_group(0).column(0).compression == "GZIP"


@pytest.mark.parametrize(
    ("mode", "has_bounds", "has_counts"), [("none", False, False), ("counts", False, True), ("full", True, True)]
)
def test_metrics_modes_of_the_table_are_kept(catalog: Catalog, mode: str, has_bounds: bool, has_counts: bool) -> None:
    table = make(catalog, properties={"write.metadata.metrics.column.x": mode})
    (file,) = write_files(table, rows(x=[1.0, float("nan")]))
    assert (2 in file.lower_bounds) is has_bounds
    assert (2 in file.value_counts) is has_counts
    assert (2 in file.nan_value_counts) is has_counts
    assert 1 in file.lower_bounds


@pytest.mark.parametrize("nulls", list(NullOrder))
@pytest.mark.parametrize("direction", list(SortDirection))
def test_rows_are_sorted_within_a_file(catalog: Catalog, direction: SortDirection, nulls: NullOrder) -> None:
    order = SortOrder(SortField(3, direction=direction, null_order=nulls), SortField(1))
    table = make(catalog, sort_order=order)
    (file,) = write_files(table, rows(s=["b", None, "a", "c", "b"]))
    found = pq.read_table(file.file_path.removeprefix("file://")).select(["s", "id"]).to_pylist()
    named = [row["s"] for row in found if row["s"] is not None]
    assert named == sorted(named, reverse=direction is SortDirection.DESC)
    assert found[0 if nulls is NullOrder.NULLS_FIRST else -1]["s"] is None
    assert [row["id"] for row in found if row["s"] == "b"] == [0, 4]


def test_many_partitions_leave_no_more_open_files_than_allowed(catalog: Catalog) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    table = make(catalog, partition_spec=spec, properties={"write.parquet.row-group-size-bytes": "1"})
    written = write_files(table, rows(x=[0.5] * 200))
    assert sorted(file.partition[0] for file in written) == list(range(200))


def test_columns_are_taken_by_name_and_cast(catalog: Catalog) -> None:
    table = make(catalog)
    given = pa.table({"s": pa.array(["a"]).dictionary_encode(), "id": pa.array([1], pa.int8()), "other": [1]})
    assert read_all(append(table, given)).to_pylist() == [{"id": 1, "x": None, "s": "a", "b": None}]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (pa.table({"s": ["a"]}), "is missing"),
        (pa.table({"id": pa.array([1, None, None], pa.int64())}), "null in 2 rows"),
    ],
)
def test_a_required_column_must_be_there_and_whole(catalog: Catalog, given: pa.Table, said: str) -> None:
    with pytest.raises(BadData, match=said) as caught:
        write_files(make(catalog), given)
    assert caught.value.reason is Reason.BAD_RECORDS


def test_two_attempts_never_write_the_same_file(tmp_path: Path) -> None:
    for _ in range(2):
        writer = DataFileWriter(plain_spec(tmp_path), "7-0")
        writer.write(rows(x=[1.0]))
        if (tmp_path / "data" / "run-7-0-00000.parquet").exists():
            with pytest.raises(FileExistsError):
                writer.close()
        else:
            writer.close()


def test_an_aborted_writer_leaves_nothing(tmp_path: Path) -> None:
    spec = plain_spec(tmp_path, row_group_bytes=1)
    writer = DataFileWriter(spec, "0")
    writer.write(rows(x=[1.0] * 3))
    assert list((tmp_path / "data").iterdir())
    writer.abort()
    assert list((tmp_path / "data").iterdir()) == []


def test_a_file_that_cannot_be_deleted_hides_no_error(tmp_path: Path) -> None:
    writer = DataFileWriter(plain_spec(tmp_path, row_group_bytes=1), "0")
    writer.write(rows(x=[1.0] * 3))
    (path,) = (tmp_path / "data").iterdir()
    path.unlink()
    path.mkdir()
    writer.abort()
    assert path.is_dir()


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    writer = DataFileWriter(plain_spec(tmp_path), "0")
    writer.write(rows(x=[]))
    assert writer.close() == []


def test_specs_and_results_travel_to_tasks_and_back(catalog: Catalog) -> None:
    spec = write_spec(make(catalog), "r")
    assert pickle.loads(pickle.dumps(spec)) == spec
    written = WrittenFile("p", 3, (None, 1, "x"), {"record_count": 2, "lower_bounds": {1: b"a"}})
    assert WrittenFile.from_row(written.to_row()) == written


def test_renamed_dropped_and_added_columns_are_read_by_id(catalog: Catalog) -> None:
    table = append(make(catalog), rows(s=["old"], x=[1.5]))
    with table.update_schema() as update:
        update.rename_column("s", "t")
        update.delete_column("x")
    with catalog.load_table(("ns", "t")).update_schema() as update:
        update.add_column("s", StringType())
        update.add_column("x", LongType())
    now = catalog.load_table(("ns", "t"))
    assert read_all(now, ["t", "s", "x", "id"]).to_pylist() == [{"t": "old", "s": None, "x": None, "id": 0}]


def test_nested_columns_are_read_by_id(catalog: Catalog) -> None:
    place = StructType(NestedField(2, "city", StringType()), NestedField(3, "zip", IntegerType()))
    schema = Schema(NestedField(1, "place", place))
    table = append(make(catalog, schema), pa.table([[{"city": "c", "zip": 1}, None]], schema=arrow_schema(schema)))
    with table.update_schema() as update:
        update.rename_column(("place", "city"), "town")
        update.update_column(("place", "zip"), LongType())
        update.add_column(("place", "land"), StringType())
    now = catalog.load_table(("ns", "t"))
    assert read_all(now).to_pylist() == [{"place": {"town": "c", "zip": 1, "land": None}}, {"place": None}]


def batches(table: Table, columns: list[str], groups: list[int] | None = None) -> Iterator[dict[str, Any]]:
    """Rows of the only file."""
    files = read_file_set(table)
    (described,) = describe_files(table, files, [0])
    for batch in read_data_file(described, columns, groups):
        yield from batch.to_pylist()


def test_positions_and_row_groups_count_from_the_start_of_the_file(catalog: Catalog) -> None:
    table = append(make(catalog, properties={"write.parquet.row-group-limit": "2"}), rows(x=[0.5] * 5))
    found = list(batches(table, ["id", POSITION_COLUMN, ROW_GROUP_COLUMN], [2, 1]))
    assert [(row["id"], row[POSITION_COLUMN], row[ROW_GROUP_COLUMN]) for row in found] == [
        (4, 4, 2),
        (2, 2, 1),
        (3, 3, 1),
    ]
    assert [row[POSITION_COLUMN] for row in batches(table, [POSITION_COLUMN])] == [0, 1, 2, 3, 4]


def test_a_description_is_picklable(catalog: Catalog) -> None:
    table = append(make(catalog), rows(x=[1.0]))
    described = describe_files(table, read_file_set(table), [0])
    assert pickle.loads(pickle.dumps(described)) == described


def test_files_without_field_ids_are_read_by_the_name_mapping(catalog: Catalog, tmp_path: Path) -> None:
    table = make(catalog)
    kinds = pa.schema([pa.field("s", pa.string()), pa.field("id", pa.int64(), nullable=False)])
    pq.write_table(pa.table([["plain"], [9]], schema=kinds), tmp_path / "plain.parquet")
    table.add_files([f"file://{tmp_path}/plain.parquet"])
    assert read_all(catalog.load_table(("ns", "t")), ["id", "s", "x"]).to_pylist() == [
        {"id": 9, "s": "plain", "x": None}
    ]


def test_a_required_value_of_every_kind_survives(catalog: Catalog) -> None:
    table = append(make(catalog), rows(x=[-0.0, float("inf")], s=["", "é"], b=[b"", b"\x00"]))
    found = read_all(table)
    assert found.to_pylist() == rows(x=[-0.0, float("inf")], s=["", "é"], b=[b"", b"\x00"]).to_pylist()
    assert math.copysign(1, found["x"][0].as_py()) == -1
    assert pc.all(pc.is_valid(found["id"])).as_py()
