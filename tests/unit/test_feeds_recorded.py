"""Sets of files in the shapes that tools were seen to write, each with the rows that the source had at its end.

Those of Maxwell are what 1.22.6 wrote for a MariaDB of `make soak-maxwell`; those of AWS DMS are made after its
documentation and what its users show: folders of dates, a column with the time of the change, full loads with and
without Op, columns added later, deletes that tell the key only.
"""

from __future__ import annotations

import csv
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)
from skipstone_core.contract.requests import ChangeFormat, SourceFormat
from skipstone_core.errors import BadData

from tests.unit.feed_bed import KEPT, FeedBed, Row

TYPES = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "bin", BinaryType()),
    NestedField(4, "u", DecimalType(20, 0)),
    NestedField(5, "s", ListType(20, StringType(), element_required=False)),
    NestedField(6, "bt", IntegerType()),
    NestedField(7, "g", StringType()),
    NestedField(8, "tm", TimeType()),
    NestedField(9, "ts", TimestamptzType()),
    NestedField(10, "dt", TimestampType()),
    NestedField(11, "d", DateType()),
    NestedField(12, "dc", DecimalType(30, 10)),
    NestedField(13, "db", DoubleType()),
    NestedField(14, "extra", StringType()),
)
FULL = (
    '{"id":%d,"name":"ä漢\\"","bin":"q80=","u":18446744073709551615,"s":["a","c"],"bt":2049,"g":"POINT (1 2)",'
    '"tm":"01:02:03.500","ts":"2024-05-01 10:00:00.250000","dt":"2024-05-01 12:00:00.250000","d":"1000-01-01",'
    '"dc":123456789012345678.5000000000,"db":1.0E-7%s}'
)
HEAD = '{"database":"shop","table":"t","type":"%s","ts":1795680066,"xid":%d,%s"position":"log.000001:%d","server_id":7,'
MAXWELL = (
    '{"type":"table-create","database":"shop","table":"t","def":{"database":"shop","charset":"utf8mb4","table":"t",'
    '"columns":[{"type":"int","name":"id","signed":true}],"primary-key":["id"]},"ts":1795680064000,"sql":"…"}',
    HEAD % ("insert", 903, '"xoffset":0,', 42519) + '"primary_key":[1],"data":' + FULL % (1, "") + "}",
    HEAD % ("insert", 903, '"commit":true,', 42519) + '"primary_key":[2],"data":{"id":2,"name":null,"dc":-1E-10}}',
    '{"type":"table-alter","database":"shop","table":"t","old":{"table":"t"},"def":{"table":"t"},"ts":1795680066000,'
    '"sql":"alter table t add column extra varchar(9) default \'x\'","position":"log.000001:42764"}',
    HEAD % ("update", 907, '"xoffset":0,', 43351)
    + '"primary_key":[3],"data":{"id":3,"name":null,"dc":-1E-10,"extra":"x"},"old":{"id":2}}',
    HEAD % ("update", 907, '"commit":true,', 43351)
    + '"primary_key":[2],"data":' + FULL % (2, ',"extra":"x"') + ',"old":{"id":1}}',
    HEAD % ("delete", 910, '"commit":true,', 44470) + '"primary_key":[3],"data":{"id":3,"name":null,"extra":"x"}}',
    '{"database":"maxwell","table":"bootstrap","type":"insert","ts":1795680067,"xid":915,"commit":true,'
    '"position":"log.000001:45228","server_id":7,"primary_key":[1],"data":{"id":1,"table_name":"t"}}',
    '{"database":"shop","table":"t","type":"bootstrap-start","ts":1795680070,"primary_key":[null],"data":{}}',
    '{"database":"shop","table":"t","type":"bootstrap-insert","ts":1795680071,"primary_key":[9],"data":'
    '{"id":9,"name":"loaded","bin":"AQ==","dt":"9999-12-31 23:59:59.999999","extra":null}}',
    '{"database":"shop","table":"t","type":"bootstrap-complete","ts":1795680076,"primary_key":[],"data":{}}',
)  # fmt: skip
NOON = datetime.fromisoformat("2024-05-01T12:00:00.25")
LEFT_OF_MAXWELL: list[Row | str] = [
    "deleted 1",
    {
        "id": 2, "name": 'ä漢"', "bin": b"\xab\xcd", "u": Decimal((1 << 64) - 1), "s": ["a", "c"], "bt": 2049,
        "g": "POINT (1 2)", "tm": time(1, 2, 3, 500_000), "ts": NOON.replace(hour=10, tzinfo=UTC), "dt": NOON,
        "d": date(1000, 1, 1), "dc": Decimal("123456789012345678.5"), "db": 1e-7, "extra": "x",
    },
    "deleted 3",
]  # fmt: skip


def test_what_maxwell_wrote_leads_to_the_rows_of_its_database(tmp_path: Path) -> None:
    bed = FeedBed(tmp_path, ChangeFormat.MAXWELL, schema=TYPES).lines(*MAXWELL)
    *left, loaded = bed.left()
    assert left == LEFT_OF_MAXWELL
    assert isinstance(loaded, dict)
    assert (loaded["name"], loaded["bin"], loaded["u"], loaded["extra"]) == ("loaded", b"\1", KEPT, None)


CUSTOMERS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "vip", StringType()),
    NestedField(4, "seen", TimestampType()),
)
#: Path below the table's folder, and lines.
DMS_CSV = (
    ("LOAD00000001.csv", "Op,dms_ts,id,name,seen", "I,2024-05-30 08:00:00.000000,1,Ann,2024-05-01 12:00:00",
     'I,2024-05-30 08:00:00.000000,2,"Bo, ""the second""",NULL'),
    ("LOAD0000000A.csv", "Op,dms_ts,id,name,seen", "I,2024-05-30 08:00:01.000000,10,Zoë,2024-05-01 12:00:00.123456"),
    ("30/05/2024/20240530-081500123.csv", "Op,dms_ts,id,name,seen",
     "U,2024-05-30 08:14:59.000001,1,Anne,2024-05-30 08:14:59", "D,2024-05-30 08:14:59.000001,2,,"),
    ("01/06/2024/20240601-000000001.csv", "Op,dms_ts,id,name,seen,vip",
     "I,2024-06-01 00:00:00.000001,2,Bob,NULL,no", "U,2024-06-01 00:00:00.000002,1,Anna,2024-06-01 00:00:00,yes"),
)  # fmt: skip
LEFT_OF_DMS: list[Row | str] = [
    {"id": 1, "name": "Anna", "vip": "yes", "seen": datetime.fromisoformat("2024-06-01")},
    {"id": 2, "name": "Bob", "vip": "no", "seen": None},
    {"id": 10, "name": "Zoë", "vip": KEPT, "seen": datetime.fromisoformat("2024-05-01T12:00:00.123456")},
]


@pytest.mark.parametrize("has_op", [True, False])
def test_csv_of_dms_in_folders_of_dates_leads_to_the_rows_of_its_database(tmp_path: Path, has_op: bool) -> None:
    """``has_op``: IncludeOpForFullLoad."""
    bed = FeedBed(tmp_path, ChangeFormat.DMS, SourceFormat.CSV, schema=CUSTOMERS)
    bed.paths = ("feed/*.csv", "feed/*/*/*/*.csv")
    for name, *lines in DMS_CSV:
        is_cut = name.startswith("LOAD") and not has_op
        bed.text("".join((line.split(",", 1)[1] if is_cut else line) + "\n" for line in lines), name)
    assert bed.left() == LEFT_OF_DMS


def test_parquet_of_dms_leads_to_the_rows_of_its_database(tmp_path: Path) -> None:
    """The time of the change is text, and timestamps tell no zone."""
    bed = FeedBed(tmp_path, ChangeFormat.DMS, SourceFormat.PARQUET, schema=CUSTOMERS)
    bed.paths = ("feed/*.parquet", "feed/*/*/*/*.parquet")
    for name, header, *lines in DMS_CSV:
        rows = [dict(zip(header.split(","), fields, strict=True)) for fields in csv.reader(lines)]
        columns: dict[str, Any] = {one: [row[one] for row in rows] for one in header.split(",")}
        columns["id"] = [int(one) for one in columns["id"]]
        columns["seen"] = [datetime.fromisoformat(one) if one not in ("NULL", "") else None for one in columns["seen"]]
        path = tmp_path / "feed" / name.replace(".csv", ".parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        kinds = {"id": pa.int64(), "seen": pa.timestamp("us")}
        table = pa.table({one: pa.array(found, kinds.get(one, pa.string())) for one, found in columns.items()})
        pq.write_table(table, path, version="1.0", compression="gzip", use_dictionary=["name"])
    assert bed.left() == LEFT_OF_DMS


def test_files_of_dms_that_keep_transactions_in_order_are_refused(tmp_path: Path) -> None:
    """They have rows of all tables and no header."""
    bed = FeedBed(tmp_path, ChangeFormat.DMS, SourceFormat.CSV, schema=CUSTOMERS)
    bed.text("I,customers,shop,1,Ann\nD,orders,shop,7\n", "20240601-000000001.csv")
    with pytest.raises(BadData, match="files without a header lose deletes"):
        bed.left()
