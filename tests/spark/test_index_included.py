"""Included columns are stored beside the keys as the table holds them, and reads of both open no data file."""

from __future__ import annotations

from decimal import Decimal, localcontext
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.types import DecimalType, DoubleType, LongType
from skipstone.indexes import definition
from skipstone.indexes.definition import stored_definition
from skipstone.indexes.keys import storage_type
from skipstone.query import plan_read
from skipstone_core.contract.requests import IndexRef
from skipstone_core.errors import BadSpec
from skipstone_core.reasons import Reason

from tests.spark.index_bed import Lake, index_on, rows_of
from tests.spark.rawdeletes import add_position_delete
from tests.unit.query_values import KINDS, random_values

SCHEMA = pa.schema([("k", pa.int64()), *((name, kind.type) for name, kind in KINDS.items())])
ALL = index_on("k", include=tuple(KINDS))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def built(tmp_path: Path) -> Lake:
    """Three segments under the index of all columns."""
    made = Lake(tmp_path)
    made.create(SCHEMA)
    for seed in range(3):
        made.table().append(rows(seed))
    made.reindex(ALL)
    return made


def rows(seed: int, count: int = 200) -> pa.Table:
    random = Random(seed)
    columns = {name: random_values(random, kind, count) for name, kind in KINDS.items()}
    return pa.table({"k": [random.randrange(50) for _ in range(count)], **columns}, schema=SCHEMA)


def assert_holds(lake: Lake, index: IndexRef, columns: tuple[str, ...]) -> None:
    """Entries hold the values of ``columns`` in their file and position, exact to the sign of zero."""
    names = [f"v{at}" for at in range(len(index.include))]
    found = lake.entries(index).select(["k0", *names]).rename_columns(["k", *columns])
    expected = lake.table().scan().to_arrow().select(["k", *columns])
    assert rows_of(found.cast(expected.schema)) == rows_of(expected)
    keys = lake.entries(index).sort_by([("data_path", "ascending"), ("pos", "ascending")])
    assert keys["pos"].to_pylist() == [at for count in _file_rows(lake) for at in range(count)]


def _file_rows(lake: Lake) -> list[int]:
    files = lake.table().inspect.data_files().sort_by("file_path")
    counts: list[int] = files["record_count"].to_pylist()
    return counts


def test_values_of_all_types_are_stored_as_they_are(lake: Lake) -> None:
    table = lake.create(SCHEMA, properties={"write.parquet.row-group-limit": "64"})
    for seed in range(3):
        table.append(rows(seed))
    lake.reindex(ALL)
    assert_holds(lake, ALL, ALL.include)


def test_values_stay_beside_their_keys_when_runs_are_merged(lake: Lake) -> None:
    table = lake.create(SCHEMA)
    for seed in range(9):
        table.append(rows(seed, 40))
    lake.follow(ALL)
    assert max(file.level for file in lake.index_table(ALL).entries) > 0
    assert_holds(lake, ALL, ALL.include)


def test_the_definition_is_read_back_with_its_included_columns(lake: Lake) -> None:
    lake.create(SCHEMA).append(rows(0))
    lake.reindex(ALL)
    index = lake.index_table(ALL)
    assert index.stored.names.included == ALL.include
    assert [column.storage_type for column in index.definition.included][:2] == ["boolean", "long"]
    without = {name: value for name, value in index.table.properties.items() if name != "skipstone.index.include"}
    assert stored_definition(without) is None


def test_a_renamed_or_widened_column_keeps_its_values(lake: Lake) -> None:
    table = lake.create(pa.schema([("k", pa.int64()), ("n", pa.int32()), ("x", pa.float32()), ("s", pa.string())]))
    index = index_on("k", include=["n", "x", "s"])
    floats = np.array([0.1, np.nan, -0.0, 7.5], np.float32)
    table.append(pa.table({"k": [1, 2, 3, 4], "n": pa.array([1, None, 3, 4], pa.int32()), "x": floats, "s": ["a"] * 4}))
    lake.reindex(index)
    with lake.table().update_schema() as update:
        update.update_column("n", LongType()).update_column("x", DoubleType()).rename_column("s", "t")
    wide = {"k": [5, 6], "n": [2**60, None], "x": [0.1, -0.0], "t": ["b", None]}
    lake.table().append(pa.Table.from_pydict(wide, lake.table().schema().as_arrow()))
    lake.reindex(index)
    assert lake.state(index).segments_synced == 2
    assert_holds(lake, index, ("n", "x", "t"))
    # As a float, 0.1 would be the value of the old file: a constant must never be narrowed to the type of a file.
    for condition, keys in {"x > 0.1": {1, 4}, "x = 0.1": {5}, "x <= 0.1": {3, 5, 6}, "x in (0.1, 9.0)": {5}}.items():
        assert set(lake.assert_exact(condition)["k"].to_pylist()) - {2} == keys
        assert set(lake.assert_exact(f"k >= 1 and {condition}")["k"].to_pylist()) - {2} == keys


@pytest.mark.parametrize(("digits", "fits"), [(18, True), (19, False)])
def test_an_included_decimal_is_widened_up_to_18_digits(lake: Lake, digits: int, *, fits: bool) -> None:
    table = lake.create(pa.schema([("k", pa.int64()), ("d", pa.decimal128(9, 2))]))
    index = index_on("k", include=["d"])
    table.append(pa.table({"k": [1, 2], "d": pa.array([Decimal("12.34"), None], pa.decimal128(9, 2))}))
    lake.reindex(index)
    with lake.table().update_schema() as update:
        update.update_column("d", DecimalType(digits, 2))
    wide = [Decimal("-9999999999999999.99"), Decimal("12.34")]
    lake.table().append(pa.table({"k": [1, 3], "d": pa.array(wide, pa.decimal128(digits, 2))}))
    if fits:
        lake.reindex(index)
        assert_holds(lake, index, ("d",))
    else:
        assert lake.state(index).degraded is Reason.COLUMN_TYPE_UNSUPPORTED
        with pytest.raises(BadSpec, match=r"column 'd' changed its type to decimal\(19, 2\); delete the index and"):
            lake.reindex(index)
    assert lake.assert_exact("k >= 1 and d = 12.34").num_rows == 2
    assert lake.assert_exact("k = 1 and d < -9999999999999999").num_rows == 1


def test_bounds_of_decimals_do_not_depend_on_the_digits_that_python_computes_with(lake: Lake) -> None:
    table = lake.create(pa.schema([("k", pa.int64()), ("d", pa.decimal128(18, 2))]))
    values = [Decimal("12345678901237.65"), Decimal("-12345678901237.65")]
    table.append(pa.table({"k": [1, 2], "d": pa.array(values, pa.decimal128(18, 2))}))
    lake.reindex(index_on("k", include=["d"]))
    with localcontext(prec=4):
        assert lake.assert_exact("k < 3 and d > 12345678901237.60").num_rows == 1
        assert lake.assert_exact("k < 3 and d < -12345678901237.60").num_rows == 1


def test_an_index_whose_included_decimals_are_as_wide_as_keys_goes_on(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As versions before made them."""
    table = lake.create(pa.schema([("k", pa.int64()), ("d", pa.decimal128(9, 2))]))
    table.append(pa.table({"k": [1, 2], "d": pa.array([Decimal("12.34"), Decimal("5.00")], pa.decimal128(9, 2))}))
    index = index_on("k", include=["d"])
    with monkeypatch.context() as before:
        before.setattr(definition, "value_storage_type", storage_type)
        lake.reindex(index)
    lake.table().append(pa.table({"k": [2], "d": pa.array([Decimal("12.34")], pa.decimal128(9, 2))}))
    lake.reindex(index)
    assert [one.storage_type for one in lake.index_table(index).definition.included] == ["decimal(2)"]
    assert lake.state(index).segments_synced == 2
    assert_holds(lake, index, ("d",))
    assert len(lake.plan("k = 2 and d > 12").ordinals) == 1
    assert lake.assert_exact("k = 2 and d > 12").num_rows == 1


def test_a_column_younger_than_files_is_null_in_their_entries(lake: Lake) -> None:
    lake.create(pa.schema([("k", pa.int64())])).append(pa.table({"k": [1, 2]}))
    with lake.table().update_schema() as update:
        update.add_column("late", LongType())
    lake.table().append(pa.table({"k": [3], "late": [4]}))
    index = index_on("k", include=["late"])
    lake.reindex(index)
    assert lake.entries(index).sort_by("k0")["v0"].to_pylist() == [None, None, 4]


@pytest.mark.parametrize("again", [True, False])
def test_an_index_with_a_replaced_or_dropped_column_is_degraded_and_queries_go_on(lake: Lake, *, again: bool) -> None:
    table = lake.create(pa.schema([("k", pa.int64()), ("n", pa.int32())]))
    index = index_on("k", include=["n"])
    table.append(pa.table({"k": [1, 2], "n": pa.array([1, 2], pa.int32())}))
    lake.reindex(index)
    with lake.table().update_schema() as update:
        update.delete_column("n")
    if again:
        with lake.table().update_schema() as update:
            update.add_column("n", LongType())
    lake.table().append(pa.table({"k": [2]}))
    reason = Reason.COLUMN_REPLACED if again else Reason.COLUMN_NOT_FOUND
    assert lake.state(index).degraded is reason
    with pytest.raises(BadSpec, match=r"column 'n' was (replaced|dropped)") as error:
        lake.reindex(index)
    assert (error.value.reason, error.value.field) == (reason, "spec.include")
    assert lake.assert_exact("k = 2").num_rows == 2


@pytest.mark.parametrize(
    "condition",
    [
        "k between 5 and 20",
        "k in (3, 30) and double > 0.3",
        "k < 25 and float = 0.0",
        "k < 25 and (double is null or string >= 'b')",
        "k = 7 and wide_decimal = 12.34",
        "k < 40 and decimal in (12.34, -0.01, 12345678901234567890123456.78)",
        "k < 40 and decimal between -0.01 and 12345678901234567890123456.78",
        "k >= 40 and not boolean",
    ],
)
def test_keys_and_included_columns_are_read_from_the_index_alone(built: Lake, condition: str) -> None:
    plan = plan_read(built.table(), condition, columns=SCHEMA.names)
    assert plan.answer is not None
    assert plan.answer.name.startswith("t__si_idx")
    assert len(plan.answer.ordinals) == plan.funnel.min_max - plan.funnel.read
    found = built.assert_exact(condition)
    assert 0 < found.num_rows < 600


def test_included_values_narrow_a_lookup_whose_rows_are_read_from_files(lake: Lake) -> None:
    lake.create(pa.schema([("k", pa.int64()), ("x", pa.float64()), ("note", pa.string())]))
    for segment in range(4):
        nan = [float("nan")] if segment == 2 else [-0.0]
        lake.table().append(pa.table({"k": list(range(200)), "x": nan * 200, "note": [f"s{segment}"] * 200}))
    lake.reindex(index_on("k", include=["x"]))
    for condition, files in (("k = 5 and x = 0.0", 3), ("k = 5 and x > 1e300", 1), ("k = 5 and x < 0.0", 0)):
        assert len(lake.plan(condition).ordinals) == files
        assert lake.assert_exact(condition).num_rows == files


def test_a_deleted_row_is_not_read_from_the_index(built: Lake) -> None:
    file = next(task.file for task in built.table().scan().plan_files())
    add_position_delete(built.table(), file, range(0, 200, 3))
    assert plan_read(built.table(), "k < 25", columns=SCHEMA.names).answer is not None
    assert built.assert_exact("k < 25").num_rows > 0


@pytest.mark.parametrize("name", ["_pos", "_row_group"])
def test_a_column_may_be_called_as_what_readers_add(lake: Lake, name: str) -> None:
    table = lake.create(pa.schema([("k", pa.int64()), (name, pa.int64())]))
    table.append(pa.table({"k": range(100), name: range(1000, 1100)}))
    table.append(pa.table({"k": range(100), name: range(2000, 2100)}))
    for condition in (f"{name} = 1007", f"k = 3 and {name} > 1500", f"k < 50 and {name} < 1010"):
        assert 0 < lake.assert_exact(condition).num_rows < 100
    lake.reindex(index_on("k", include=[name]))
    lake.reindex(index_on(name, name="by_it"))
    for condition in (f"{name} = 1007", f"k = 3 and {name} > 1500", f"k < 50 and {name} < 1010"):
        assert 0 < lake.assert_exact(condition).num_rows < 100
