"""Columns that a data file does not hold are read as the value their schema gives to older rows."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from skipstone.files.reader import DataFileDescription, read_data_file
from skipstone.tables.arrow import arrow_schema
from skipstone_core.errors import BadData

ID = NestedField(1, "id", LongType())
WALL = datetime.fromisoformat("2020-01-02")


def described(path: Path, schema: Schema) -> DataFileDescription:
    """A file that holds the column ``id`` only, to be read in ``schema``."""
    pq.write_table(pa.table([[1, 2]], schema=arrow_schema(Schema(ID))), path)
    return DataFileDescription(
        file_id=0, path=str(path), size=path.stat().st_size, records=2, schema_json=schema.model_dump_json()
    )


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        (StringType(), "none", "none"),
        (LongType(), 7, 7),
        (DecimalType(9, 2), Decimal("1.25"), Decimal("1.25")),
        (DateType(), date(2020, 1, 2), date(2020, 1, 2)),
        (TimestamptzType(), datetime(2020, 1, 2, tzinfo=UTC), datetime(2020, 1, 2, tzinfo=UTC)),
        (UUIDType(), UUID(int=1), UUID(int=1).bytes),
        (LongType(), None, None),
    ],
    ids=str,
)
@pytest.mark.parametrize("columns", [["id", "new"], ["new"]], ids=["with others", "alone"])
def test_rows_older_than_a_column_have_its_initial_default(
    tmp_path: Path, kind: IcebergType, default: Any, value: object, columns: list[str]
) -> None:
    schema = Schema(ID, NestedField(2, "new", kind, initial_default=default))
    found = [batch.column("new").to_pylist() for batch in read_data_file(described(tmp_path / "f", schema), columns)]
    assert found == [[value, value]]


def stored(path: Path, values: pa.Array, kind: IcebergType, *, by_name: bool) -> DataFileDescription:
    """A file of ``values`` under the name of a column of type ``kind``, with its field id or by its name alone."""
    metadata = None if by_name else {"PARQUET:field_id": "1"}
    pq.write_table(pa.table([values], schema=pa.schema([pa.field("v", values.type, metadata=metadata)])), path)
    schema = Schema(NestedField(1, "v", kind))
    return DataFileDescription(
        file_id=0,
        path=str(path),
        size=path.stat().st_size,
        records=len(values),
        schema_json=schema.model_dump_json(),
        name_mapping_json=create_mapping_from_schema(schema).model_dump_json(),
    )


@pytest.mark.parametrize("by_name", [False, True], ids=["by id", "by name"])
@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (pa.array([1, None], pa.int32()), LongType(), [1, None]),
        (pa.array([1.5, None], pa.float32()), DoubleType(), [1.5, None]),
        (pa.array([Decimal("1.25")], pa.decimal128(5, 2)), DecimalType(9, 2), [Decimal("1.25")]),
        (pa.array([b"a", None], pa.binary()), StringType(), ["a", None]),
        (pa.array(["a", "a"]).dictionary_encode(), StringType(), ["a", "a"]),
        (pa.array([date(2020, 1, 2)]), TimestampType(), [WALL]),
        (pa.array([1], pa.int64()), TimestamptzType(), [datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)]),
        (pa.array([None], pa.null()), StringType(), [None]),
        (pa.array([7], pa.int64()), StringType(), None),
        (pa.array(["7"]), LongType(), None),
        (pa.array([7], pa.int64()), DoubleType(), None),
        (pa.array([7], pa.int64()), DecimalType(9, 2), None),
        (pa.array([True]), LongType(), None),
        (pa.array([Decimal("1.25")], pa.decimal128(5, 2)), DecimalType(9, 3), None),
        (pa.array([0.1], pa.float64()), FloatType(), None),
        (pa.array([WALL], pa.timestamp("us")), StringType(), None),
        (pa.array([WALL], pa.timestamp("us")), LongType(), None),
    ],
    ids=lambda case: str(getattr(case, "type", case)),
)
def test_values_are_widened_and_never_made_of_another_type(
    tmp_path: Path, values: pa.Array, kind: IcebergType, expected: list[Any] | None, *, by_name: bool
) -> None:
    """A column that was dropped and added again finds the old values in files that know it by its name."""
    file = stored(tmp_path / "f", values, kind, by_name=by_name)
    if expected is None:
        with pytest.raises(BadData, match=f"its column 'v' is .*, and 'v' of the table is {re.escape(str(kind))}: "):
            list(read_data_file(file, ["v"]))
    else:
        assert [value for batch in read_data_file(file, ["v"]) for value in batch.column("v").to_pylist()] == expected
