"""Delete files in the formats of other writers name the same rows as those in Parquet."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.types import DateType, DecimalType, LongType
from skipstone.files.deletions import EQUALITY_CONTENT, POSITION_CONTENT, DeleteDescription, Deletions
from skipstone.tables.deletes import PATH_FIELD_ID
from skipstone_core.errors import BadData

from tests.avrofiles import avro_file, record

KINDS = (LongType(), DecimalType(9, 2), DateType())
TYPES = {1: pa.int64(), 2: pa.decimal128(9, 2), 3: pa.date32()}


def with_ids(schema: dict[str, object], *ids: int) -> dict[str, object]:
    """The schema of a record with the field ids of Iceberg."""
    fields = schema["fields"]
    assert isinstance(fields, list)
    return {**schema, "fields": [{**one, "field-id": number} for one, number in zip(fields, ids, strict=True)]}


def test_equality_deletes_in_avro_compare_as_the_columns_of_the_table_do(tmp_path: Path) -> None:
    money = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
    schema = record(k=["null", "int"], m=["null", money], d=["null", {"type": "int", "logicalType": "date"}])
    rows = [{"k": 1, "m": b"\x7d", "d": 0}, {"k": None, "m": None, "d": None}]
    path = tmp_path / "deletes.avro"
    path.write_bytes(avro_file(with_ids(schema, 1, 2, 3), rows))
    delete = DeleteDescription(str(path), EQUALITY_CONTENT, "AVRO", (1, 2, 3), KINDS)
    columns = [[1, 1, None, 2], [Decimal("1.25"), Decimal("1.26"), None, None], [0, 0, None, 0]]
    given = {number: pa.array(column, pa.int32()).cast(TYPES[3]) if number == 3 else pa.array(column, TYPES[number])
             for number, column in enumerate(columns, start=1)}  # fmt: skip
    live = Deletions("data", [delete], TYPES).live_rows(np.arange(4), given)
    assert live is not None and live.to_pylist() == [False, True, False, True]


@pytest.mark.parametrize("cut", [0, 30])
def test_positions_in_avro_are_those_of_the_data_file_and_a_damaged_file_is_told(tmp_path: Path, cut: int) -> None:
    rows = [{"file_path": path, "pos": pos} for path, pos in (("a", 3), ("b", 1), ("a", 5))]
    content = avro_file(with_ids(record(file_path="string", pos="long"), PATH_FIELD_ID, 2147483545), rows)
    path = tmp_path / "deletes.avro"
    path.write_bytes(content[: len(content) - cut])
    delete = DeleteDescription(str(path), POSITION_CONTENT, "AVRO")
    if cut:
        with pytest.raises(BadData, match=r"deletes\.avro is damaged"):
            Deletions("a", [delete], {})
    else:
        assert Deletions("a", [delete], {}).positions.tolist() == [3, 5]
