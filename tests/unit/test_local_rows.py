"""Rows as a command prints and writes them: values of every type, and text that terminals and formats could misread."""

from __future__ import annotations

import csv
import io
import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from skipstone_cli.errors import CliError
from skipstone_cli.output.screen import Screen
from skipstone_local.commands.output.rows import (
    CSV,
    JSON,
    PARQUET,
    TABLE_FORMAT,
    Rows,
    format_of,
    print_rows,
    write_rows,
)

ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
NESTED = pa.struct([("at", pa.timestamp("us", "UTC")), ("m", pa.map_(pa.string(), pa.decimal128(5, 2)))])
SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64()),
        pa.field("f", pa.float64()),
        pa.field("d", pa.decimal128(20, 10)),
        pa.field("at", pa.timestamp("ns", "UTC")),
        pa.field("day", pa.date32()),
        pa.field("b", pa.binary()),
        pa.field("u", pa.binary(16), metadata={"iceberg.type": "uuid"}),
        pa.field("s", pa.string()),
        pa.field("l", pa.list_(pa.float32())),
        pa.field("r", NESTED),
    ]
)
FULL = {
    "n": 2**62,
    "f": math.nan,
    "d": Decimal("0.0000000001"),
    "at": 1_700_000_000_123_456_789,
    "day": date(2026, 1, 31),
    "b": b"\x00\xff",
    "u": ID.bytes,
    "s": 'a "b",\x7f\x1b[31m\n\u202e☃',
    "l": [1.5, None, -math.inf],
    "r": {"at": datetime(2026, 1, 31, tzinfo=UTC), "m": {"k": Decimal("1.50")}},
}
NULLS = dict.fromkeys(SCHEMA.names)
EMPTY = {**NULLS, "s": "", "l": []}
TEXTS = {
    "n": 2**62,
    "f": "NaN",
    "d": "0.0000000001",
    "at": "2023-11-14T22:13:20.123456789Z",
    "day": "2026-01-31",
    "b": "AP8=",
    "u": str(ID),
    "s": FULL["s"],
    "l": [1.5, None, "-Infinity"],
    "r": {"at": "2026-01-31T00:00:00.000000Z", "m": {"k": "1.50"}},
}


def rows() -> Rows:
    batches = [pa.RecordBatch.from_pylist(each, SCHEMA) for each in ([FULL, NULLS], [EMPTY])]
    return Rows(SCHEMA, iter(batches))


def test_json_has_an_object_on_each_line(capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    print_rows(rows(), Screen(), JSON)
    printed = capsysbinary.readouterr().out
    write_rows(rows(), str(tmp_path / "rows.json"), JSON)
    assert (tmp_path / "rows.json").read_bytes() == printed
    assert printed.isascii()
    assert b"\x7f" not in printed
    assert [json.loads(line) for line in printed.splitlines()] == [TEXTS, NULLS, EMPTY]


def test_csv_tells_null_from_an_empty_text(capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    print_rows(rows(), Screen(), CSV)
    printed = capsysbinary.readouterr().out.decode()
    write_rows(rows(), str(tmp_path / "rows.csv"), CSV)
    assert (tmp_path / "rows.csv").read_bytes().decode() == printed
    header, full, nulls, empty = csv.reader(io.StringIO(printed))
    assert header == SCHEMA.names
    shown = dict(zip(header, full, strict=True))
    assert {**shown, "n": 2**62, "f": shown["f"].replace("nan", "NaN")} == {
        name: value if isinstance(value, str | int) else json.dumps(value) for name, value in TEXTS.items()
    }
    assert nulls == [""] * len(header)
    assert printed.splitlines()[-1].count('""') == 1
    assert empty[header.index("l")] == "[]"


def test_a_table_keeps_each_row_on_a_line_and_the_terminal_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(rows(), Screen(), TABLE_FORMAT)
    printed = capsys.readouterr().out
    header, full, nulls, _ = printed.splitlines()
    assert header.split() == [name.upper() for name in SCHEMA.names]
    assert not {"\x7f", "\x1b", "\u202e"} & set(printed)
    assert r"a \"b\"" not in full
    assert nulls.split() == ["null"] * len(SCHEMA)
    assert full.index(str(ID)) == header.index("U ")


def test_rows_beyond_those_that_set_the_widths_are_printed_too(capsys: pytest.CaptureFixture[str]) -> None:
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    batch = pa.record_batch({"n": pa.array(range(1002)), "s": ["x"] * 1001 + ["longer than all before"]}, schema)
    print_rows(Rows(schema, iter([batch])), Screen(), TABLE_FORMAT)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=1) for line in lines[-2:]] == [["1000", "x"], ["1001", "longer than all before"]]
    assert len(lines) == 1003


def test_parquet_keeps_types_and_an_error_leaves_no_file(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    batch = pa.RecordBatch.from_pylist([{"n": 1, "at": datetime(2026, 1, 1, tzinfo=UTC)}], schema)
    write_rows(Rows(schema, iter([batch])), str(tmp_path / "rows.parquet"), PARQUET)
    assert pq.read_table(tmp_path / "rows.parquet").to_pylist() == batch.to_pylist()
    assert duckdb.sql(f"select n from '{tmp_path}/rows.parquet'").fetchall() == [(1,)]

    def failing() -> object:
        yield batch
        raise CliError("the table is gone: name another one")

    for chosen in (CSV, JSON, PARQUET):
        with pytest.raises(CliError, match="the table is gone"):
            write_rows(Rows(schema, failing()), str(tmp_path / "other"), chosen)
    with pytest.raises(CliError, match=r"none/rows.csv cannot be written \(No such file or directory\): name another"):
        write_rows(Rows(schema, iter([batch])), str(tmp_path / "none" / "rows.csv"), CSV)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]


@pytest.mark.parametrize(
    ("name", "chosen"), [("a.JSONL", JSON), ("a.csv", CSV), ("a.b.parquet", PARQUET), ("a", ""), ("a.xlsx", "")]
)
def test_the_ending_of_a_file_shows_the_format(name: str, chosen: str) -> None:
    assert format_of(name) == chosen
