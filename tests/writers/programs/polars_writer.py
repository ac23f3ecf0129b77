"""Polars: ``write_iceberg`` and ``sink_iceberg``. ``python polars_writer.py ROOT``."""

from __future__ import annotations

import sys

import polars as pl
from lakes import PyLake
from pyiceberg.transforms import BucketTransform, TruncateTransform, YearTransform
from rows import attempt, rows

LAKE = PyLake(sys.argv[1])
TYPES = {
    "id": pl.Int64,
    "txt": pl.String,
    "cat": pl.String,
    "amount": pl.Decimal(9, 2),
    "price": pl.Float64,
    "day": pl.Date,
    "ts": pl.Datetime("us"),
    "flag": pl.Boolean,
    "n": pl.Int32,
}


def given(start: int = 0, count: int = 60) -> pl.DataFrame:
    """Rows as a frame."""
    return pl.DataFrame(rows(start, count), schema=TYPES)


def put(name: str, frame: pl.DataFrame, *, sink: bool) -> None:
    """Append ``frame`` by one way or the other."""
    if sink:
        frame.lazy().sink_iceberg(LAKE.table(name), mode="append")
    else:
        frame.write_iceberg(LAKE.table(name), mode="append")


def written(name: str, *, sink: bool, **shape: object) -> dict[str, object]:
    """Two appends, then a delete by PyIceberg."""
    LAKE.create(name, **shape)
    put(name, given(), sink=sink)
    put(name, given(60), sink=sink)
    LAKE.table(name).delete("id in (3, 13, 63)")
    return LAKE.located(name, 117)


def evolved(name: str, *, sink: bool) -> dict[str, object]:
    """Another schema for the second append."""
    LAKE.create(name)
    put(name, given(), sink=sink)
    LAKE.evolve(name)
    more = given(60).drop("flag").rename({"cat": "category"}).cast({"n": pl.Int64})
    put(name, more.with_columns(extra=pl.lit("more")), sink=sink)
    return LAKE.located(name, 120)


def overwritten() -> dict[str, object]:
    """An overwrite of everything."""
    written("overwritten", sink=False)
    given(200).write_iceberg(LAKE.table("overwritten"), mode="overwrite")
    return LAKE.located("overwritten", 60)


PARTITIONS = {"bucket": (1, BucketTransform(4)), "truncate": (3, TruncateTransform(2)), "year": (7, YearTransform())}
for sink in (False, True):
    kind = "sink" if sink else "write"
    attempt(kind, lambda k=kind, s=sink: written(k, sink=s))
    attempt(f"{kind}-evolved", lambda k=kind, s=sink: evolved(f"{k}_evolved", sink=s))
    for by, (field, transform) in PARTITIONS.items():
        attempt(
            f"{kind}-{by}",
            lambda n=f"{kind}_{by}", s=sink, f=field, t=transform: written(n, sink=s, field=f, transform=t),
        )
attempt("overwrite", overwritten)
attempt("v3", lambda: written("third", sink=True, version=3))
