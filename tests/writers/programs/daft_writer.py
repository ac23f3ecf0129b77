"""Daft: ``DataFrame.write_iceberg``. ``python daft_writer.py ROOT``."""

from __future__ import annotations

import sys

import daft
import pyarrow as pa
from lakes import PyLake
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform, YearTransform
from rows import attempt, rows

LAKE = PyLake(sys.argv[1])
TYPES = {
    "id": pa.int64(),
    "txt": pa.large_string(),
    "cat": pa.large_string(),
    "amount": pa.decimal128(9, 2),
    "price": pa.float64(),
    "day": pa.date32(),
    "ts": pa.timestamp("us"),
    "flag": pa.bool_(),
    "n": pa.int32(),
}


def given(start: int = 0, count: int = 60) -> pa.Table:
    """Rows as Arrow."""
    return pa.Table.from_pylist(rows(start, count), schema=pa.schema(TYPES))


def put(name: str, table: pa.Table, mode: str = "append") -> None:
    """Write rows."""
    daft.from_arrow(table).write_iceberg(LAKE.table(name), mode=mode)


def written(name: str, **shape: object) -> dict[str, object]:
    """Two appends, then a delete by PyIceberg."""
    LAKE.create(name, **shape)
    put(name, given())
    put(name, given(60))
    LAKE.table(name).delete("id in (3, 13, 63)")
    return LAKE.located(name, 117)


def evolved() -> dict[str, object]:
    """Another schema for the second append."""
    LAKE.create("evolved")
    put("evolved", given())
    LAKE.evolve("evolved")
    more = given(60).drop_columns(["flag"]).rename_columns({"cat": "category"})
    more = more.append_column("extra", pa.array(["more"] * 60, pa.large_string()))
    put("evolved", more.set_column(more.schema.get_field_index("n"), "n", more["n"].cast(pa.int64())))
    return LAKE.located("evolved", 120)


def overwritten() -> dict[str, object]:
    """An overwrite of everything."""
    written("overwritten")
    put("overwritten", given(200), "overwrite")
    return LAKE.located("overwritten", 60)


PARTITIONS = {
    "bucket": (1, BucketTransform(4)),
    "identity": (3, IdentityTransform()),
    "truncate": (3, TruncateTransform(2)),
    "year": (7, YearTransform()),
}
attempt("append", lambda: written("append"))
attempt("evolved", evolved)
attempt("overwrite", overwritten)
for by, (field, transform) in PARTITIONS.items():
    attempt(by, lambda n=f"by_{by}", f=field, t=transform: written(n, field=f, transform=t))
attempt("v3", lambda: written("third", version=3))
