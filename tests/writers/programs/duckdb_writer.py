"""DuckDB: COPY without a catalog, and statements through a REST catalog. ``python duckdb_writer.py ROOT REST``."""

from __future__ import annotations

import importlib.util
import json
import sys
import urllib.request
from pathlib import Path

import duckdb
import pyarrow as pa
from rows import attempt, newest_metadata, rows

ROOT, REST = sys.argv[1], sys.argv[2]
TYPES = {
    "id": pa.int64(),
    "txt": pa.string(),
    "cat": pa.string(),
    "amount": pa.decimal128(9, 2),
    "price": pa.float64(),
    "day": pa.date32(),
    "ts": pa.timestamp("us"),
    "flag": pa.bool_(),
    "n": pa.int32(),
}
COLUMNS = (
    "id bigint, txt varchar, cat varchar, amount decimal(9, 2), price double, day date, ts timestamp, flag boolean, "
    "n int"
)


def connect() -> duckdb.DuckDBPyConnection:
    """A database with the extensions that packages brought."""
    made = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("avro", "httpfs", "iceberg"):
        spec = importlib.util.find_spec(f"duckdb_extension_{name}")
        (folder,) = spec.submodule_search_locations
        (path,) = Path(folder).rglob("*.duckdb_extension")
        made.execute(f"load '{path}'")
    return made


DB = connect()


def given(start: int = 0, count: int = 60) -> pa.Table:
    """Rows as Arrow."""
    return pa.Table.from_pylist(rows(start, count), schema=pa.schema(TYPES))


def copied(columns: str, name: str) -> dict[str, object]:
    """A table that COPY writes."""
    source = given()
    DB.register("source", source)
    DB.execute(f"copy (select {columns} from source) to '{ROOT}/{name}' (format iceberg)")
    return {"metadata": newest_metadata(f"{ROOT}/{name}"), "rows": 60}


def attach() -> None:
    """The REST catalog as ``lake``."""
    DB.execute(f"attach '' as lake (type iceberg, endpoint '{REST}', authorization_type 'none')")
    DB.execute("create schema if not exists lake.ns")


def located(name: str, count: int) -> dict[str, object]:
    """Where the catalog has the metadata of a table."""
    with urllib.request.urlopen(f"{REST}/v1/namespaces/ns/tables/{name}") as answer:
        place = json.load(answer)["metadata-location"]
    return {"metadata": place.removeprefix("file://"), "rows": count}


def insert(name: str, start: int, count: int = 60) -> None:
    """One INSERT."""
    source = given(start, count)
    DB.register("source", source)
    DB.execute(f"insert into lake.ns.{name} select * from source")


def deletes() -> dict[str, object]:
    """DELETE, UPDATE and MERGE after two inserts."""
    DB.execute(f"create table lake.ns.deletes ({COLUMNS})")
    insert("deletes", 0)
    insert("deletes", 60)
    DB.execute("delete from lake.ns.deletes where id % 10 = 3")
    DB.execute("update lake.ns.deletes set txt = 'updated by an engine' where id % 10 = 4")
    DB.execute("delete from lake.ns.deletes where id in (4, 5, 65)")
    source = given(118, 4)
    DB.register("source", source)
    DB.execute(
        "merge into lake.ns.deletes t using source s on t.id = s.id "
        "when matched then update set n = 0 when not matched then insert"
    )
    return located("deletes", 120 - 12 - 3 + 2)


def evolved() -> dict[str, object]:
    """Columns added, renamed, dropped and widened between inserts."""
    DB.execute(f"create table lake.ns.evolved ({COLUMNS})")
    insert("evolved", 0)
    DB.execute("alter table lake.ns.evolved add column extra varchar")
    DB.execute("alter table lake.ns.evolved rename column cat to category")
    DB.execute("alter table lake.ns.evolved drop column flag")
    DB.execute("alter table lake.ns.evolved alter column n set data type bigint")
    source = given(60)
    DB.register("source", source)
    DB.execute("insert into lake.ns.evolved select id, txt, cat, amount, price, day, ts, n, 'more' from source")
    return located("evolved", 120)


def partitioned(name: str, transforms: str) -> dict[str, object]:
    """A partitioned table with deletes."""
    DB.execute(f"create table lake.ns.{name} ({COLUMNS}) partitioned by ({transforms})")
    insert(name, 0)
    insert(name, 60)
    DB.execute(f"delete from lake.ns.{name} where id % 10 = 3")
    return located(name, 108)


attempt("copy", lambda: copied("*", "copy"))
attempt("copy-ascii", lambda: copied("id, cat, amount, day, n", "copy-ascii"))
attempt("copy-nested", lambda: copied("id, cat, {'a': n, 'b': cat} as st, [n, id] as items", "copy-nested"))
attach()
attempt("rest-deletes", deletes)
attempt("rest-evolved", evolved)
for number, transforms in enumerate(("cat", "bucket(4, id)", "truncate(2, cat)", "month(day)")):
    attempt(f"rest-{transforms.split('(')[0]}", lambda n=f"p{number}", t=transforms: partitioned(n, t))
