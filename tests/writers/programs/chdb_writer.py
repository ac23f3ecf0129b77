"""ClickHouse in a process (chdb): tables of the engine IcebergLocal. ``python chdb_writer.py ROOT``."""

from __future__ import annotations

import os
import sys

from chdb import session
from rows import attempt, newest_metadata, rows

ROOT = sys.argv[1]
COLUMNS = {
    "id": "Int64",
    "txt": "Nullable(String)",
    "cat": "String",
    "amount": "Nullable(Decimal(9, 2))",
    "price": "Float64",
    "day": "Nullable(Date32)",
    "ts": "DateTime64(6)",
    "n": "Int32",
}
os.chdir(ROOT)  # tables have to be below the working directory
CLICKHOUSE = session.Session()
CLICKHOUSE.query("set allow_experimental_insert_into_iceberg = 1")
CLICKHOUSE.query("set allow_insert_into_iceberg = 1")


def literal(name: str, value: object) -> str:
    """``value`` in ClickHouse's SQL."""
    match value:
        case None:
            return "NULL"
        case int() | bool():
            return str(int(value))
        case float():
            return {"nan": "nan", "inf": "inf", "-inf": "-inf"}.get(repr(value), repr(value))
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"toDateTime64('{text}', 6)" if name == "ts" else f"'{text}'"


def create(name: str, tail: str = "", leave_out: tuple[str, ...] = ()) -> None:
    """A table below ROOT."""
    columns = ", ".join(f"{column} {kind}" for column, kind in COLUMNS.items() if column not in leave_out)
    CLICKHOUSE.query(f"create table {name} ({columns}) engine = IcebergLocal('{ROOT}/{name}/', 'Parquet') {tail}")


def insert(name: str, start: int = 0, leave_out: tuple[str, ...] = (), extra: str = "") -> None:
    """One INSERT of given rows."""
    names = [column for column in COLUMNS if column not in leave_out]
    values = (f"({', '.join(literal(column, row[column]) for column in names)}{extra})" for row in rows(start))
    CLICKHOUSE.query(f"insert into {name} values {', '.join(values)}")


def located(name: str, count: int) -> dict[str, object]:
    """The newest metadata file."""
    return {"metadata": newest_metadata(f"{ROOT}/{name}"), "rows": count}


def written(name: str, tail: str = "", leave_out: tuple[str, ...] = ()) -> dict[str, object]:
    """Two inserts, a delete and an update."""
    create(name, tail, leave_out)
    insert(name, 0, leave_out)
    insert(name, 60, leave_out)
    CLICKHOUSE.query(f"alter table {name} delete where id % 10 = 3")
    CLICKHOUSE.query(f"alter table {name} update n = 7 where id % 10 = 4")
    return located(name, 108)


def evolved() -> dict[str, object]:
    """Columns added, dropped and widened between inserts."""
    create("evolved")
    insert("evolved")
    CLICKHOUSE.query("alter table evolved add column extra Nullable(String)")
    CLICKHOUSE.query("alter table evolved modify column n Int64")
    insert("evolved", 60, extra=", 'more'")
    return located("evolved", 120)


attempt("append", lambda: written("append"))
attempt("without-floats", lambda: written("bare", leave_out=("price",)))
attempt("evolved", evolved)
attempt("identity", lambda: written("p_identity", "partition by cat"))
attempt("bucket", lambda: written("p_bucket", "partition by icebergBucket(4, id)"))
attempt("truncate", lambda: written("p_truncate", "partition by icebergTruncate(2, cat)"))
attempt("year", lambda: written("p_year", "partition by toYearNumSinceEpoch(ts)"))
