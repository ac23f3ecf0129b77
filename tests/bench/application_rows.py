"""A table of the columns and the size of TPC-H lineitem, with a key of one column in the order in which rows came.

Imported by the benchmark for its feeds. Run in a pod (``ROOT NAMESPACE.TABLE FILES ROWS``) it fills the table, one
append for each file.
"""

from __future__ import annotations

import datetime as dt
import sys
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog

KEY, COMMENT = "l_id", "l_comment"
MONEY = "decimal(15,2)"
#: Name and Iceberg type.
COLUMNS = (
    (KEY, "long"),
    ("l_orderkey", "long"),
    ("l_partkey", "long"),
    ("l_suppkey", "long"),
    ("l_linenumber", "int"),
    ("l_quantity", MONEY),
    ("l_extendedprice", MONEY),
    ("l_discount", MONEY),
    ("l_tax", MONEY),
    ("l_returnflag", "string"),
    ("l_linestatus", "string"),
    ("l_shipdate", "date"),
    ("l_commitdate", "date"),
    ("l_receiptdate", "date"),
    ("l_shipinstruct", "string"),
    ("l_shipmode", "string"),
    (COMMENT, "string"),
)
WORDS = ("carefully final", "deposits", "sleep", "furiously", "ironic", "requests", "above the", "pending", "accounts")
INSTRUCTIONS = ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN")
MODES = ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB")
CENT = pa.scalar(Decimal("0.01"))
EPOCH = dt.date(1992, 1, 1).toordinal() - dt.date(1970, 1, 1).toordinal()


def make_rows(keys: np.ndarray, seed: int) -> pa.Table:
    """A row for each key; equal keys and seeds give equal rows."""
    random, count = np.random.default_rng(seed), len(keys)
    shipped = EPOCH + random.integers(0, 2500, count)

    def money(low: int, high: int) -> pa.Array:
        cents = pa.array(random.integers(low, high, count)).cast(pa.decimal128(19, 0))
        return pc.multiply(cents, CENT).cast(pa.decimal128(15, 2))

    def chosen(texts: tuple[str, ...]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(random.integers(0, len(texts), count), texts).cast(pa.string())

    def days(first: np.ndarray) -> pa.Array:
        return pa.array(first.astype(np.int32)).cast(pa.date32())

    values = (
        pa.array(keys),
        pa.array(keys // 4),
        pa.array(random.integers(1, 200_000, count)),
        pa.array(random.integers(1, 10_000, count)),
        pa.array((keys % 4 + 1).astype(np.int32)),
        money(100, 5000),
        money(90_000, 10_000_000),
        money(0, 11),
        money(0, 9),
        chosen(("R", "A", "N")),
        chosen(("O", "F")),
        days(shipped),
        days(shipped + random.integers(-30, 90, count)),
        days(shipped + random.integers(1, 30, count)),
        chosen(INSTRUCTIONS),
        chosen(MODES),
        pc.binary_join_element_wise(chosen(WORDS), chosen(WORDS), chosen(WORDS), pa.array(keys).cast(pa.string()), " "),
    )
    return pa.table(dict(zip((name for name, _ in COLUMNS), values, strict=True)))


def fill(root: str, name: str, files: int, rows: int) -> None:
    """Append ``files`` files of ``rows`` rows, by plain PyIceberg."""
    catalog = SqlCatalog("skipstone", uri=f"sqlite:///{root}/catalog.db", warehouse=root)
    for number in range(files):
        table = catalog.load_table(name)
        made = make_rows(np.arange(number * rows, (number + 1) * rows), number)
        table.append(made.cast(table.schema().as_arrow()))


if __name__ == "__main__":
    fill(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
