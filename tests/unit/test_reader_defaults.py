"""Columns that a data file does not hold are read as the value their schema gives to older rows."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
    UUIDType,
)
from skipstone.files.reader import DataFileDescription, read_data_file
from skipstone.tables.arrow import arrow_schema

ID = NestedField(1, "id", LongType())


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
