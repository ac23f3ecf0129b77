"""What the programs of peers have in common: calls as lines of JSON, rows in one form, and a digest of them.

A program answers each line of its standard input by a line on its standard output; what libraries print goes to the
standard error. It runs in the environment of its peer, so this module needs NumPy and PyArrow, and nothing else of the
project.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

KEY, PART = "l_uuid", "l_partkey"
COLUMNS = (
    "l_uuid", "l_orderkey", "l_partkey", "l_suppkey", "l_linenumber", "l_quantity", "l_extendedprice", "l_discount",
    "l_tax", "l_returnflag", "l_linestatus", "l_shipdate", "l_commitdate", "l_receiptdate", "l_shipinstruct",
    "l_shipmode", "l_comment",
)  # fmt: skip
AGGREGATE, ROWS = "aggregate", "rows"
#: Columns of a query, in SQL.
SELECTED = {
    AGGREGATE: "count(*) as n, sum(l_extendedprice) as price, min(l_shipdate) as shipped",
    ROWS: ", ".join(COLUMNS),
}
#: Sums that differ if a row is lost, doubled or has other values, in SQL and from columns.
CHECKED = ("l_uuid", "l_orderkey", "l_partkey", "l_quantity", "l_comment")
CHECKS = (
    "count(*) as n, count(distinct l_uuid) as keys, sum(l_orderkey) as orders, "
    "sum(l_partkey * (l_orderkey % 9973)) as parts, "
    "sum(cast(l_quantity * 100 as bigint) * (l_orderkey % 9967)) as quantity, "
    "sum(cast(length(l_comment) as bigint) * (l_orderkey % 9949)) as comments"
)


class Peer(Protocol):
    """One engine. ``mode``: one of its ways to keep a table; each has a table of its own below the engine's folder."""

    def load(self, mode: str, files: Sequence[str]) -> None:
        """Make the table from Parquet files, as the engine lays it out best."""

    def index(self, mode: str, column: str) -> None:
        """Build what the engine has for lookups by ``column``."""

    def upsert(self, mode: str, changes: str) -> None:
        """Update the rows whose key a row of the Parquet file has, and insert the other rows."""

    def catch_up(self, mode: str) -> None:
        """Run the engine's services: indexing, compaction, clustering."""

    def lookup(self, mode: str, column: str, values: Sequence[Any], shape: str) -> Any:
        """All columns, or an aggregate, of the rows with one of the values."""

    def checks(self, mode: str) -> Any:
        """The sums of ``CHECKS`` over the whole table."""


def condition(column: str, values: Sequence[Any]) -> str:
    """The condition of a lookup, in SQL."""
    texts = [f"'{value}'" if isinstance(value, str) else str(value) for value in values]
    return f"{column} = {texts[0]}" if len(texts) == 1 else f"{column} in ({', '.join(texts)})"


def aggregated(rows: pa.Table) -> list[tuple[Any, ...]]:
    """The aggregate of rows that were read with its columns."""
    return [(rows.num_rows, pc.sum(rows["l_extendedprice"]).as_py(), pc.min(rows["l_shipdate"]).as_py())]


def checked(rows: pa.Table) -> list[tuple[Any, ...]]:
    """``CHECKS`` of rows that were read with the columns ``CHECKED``."""
    orders = rows["l_orderkey"].to_numpy()
    cents = np.rint(pc.cast(rows["l_quantity"], pa.float64()).to_numpy() * 100).astype("int64")
    lengths = pc.utf8_length(rows["l_comment"]).to_numpy().astype("int64")
    sums = (
        orders.sum(),
        (rows["l_partkey"].to_numpy().astype("int64") * (orders % 9973)).sum(),
        (cents * (orders % 9967)).sum(),
        (lengths * (orders % 9949)).sum(),
    )
    return [(rows.num_rows, pc.count_distinct(rows["l_uuid"]).as_py(), *map(int, sums))]


def lines(answer: Any) -> list[str]:
    """The rows of an answer, an Arrow table or a sequence of rows, each as one text, in the order of these texts."""
    rows: Iterable[Sequence[Any]] = answer
    if isinstance(answer, pa.Table):
        rows = zip(*(column.to_pylist() for column in answer.columns), strict=True) if len(answer) else []
    return sorted("|".join(map(_text, row)) for row in rows)


def digest(answer: Any) -> dict[str, Any]:
    """How many rows an answer has, a hash of them, and the first one for messages."""
    rows = lines(answer)
    return {
        "rows": len(rows),
        "digest": hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16],
        "first": rows[0][:200] if rows else "",
    }


def _text(value: Any) -> str:
    """Engines give the same number as an integer or a decimal with or without zeros at its end."""
    if isinstance(value, Decimal):
        return format(value.normalize(), "f")
    return str(value)


def serve(make: Callable[[str], Peer]) -> None:
    """Make the engine with the folder that the command line names, and answer calls until the input ends.

    A call is timed without the digest of its answer. What an engine's own processes print is no answer, so they get the
    standard error from the start.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peer = make(sys.argv[1])
    for line in sys.stdin:
        call = json.loads(line)
        try:
            start, used = time.perf_counter(), time.process_time()
            answer = getattr(peer, call["do"])(**call["with"])
            seconds = time.perf_counter() - start
            reply = {
                "seconds": seconds,
                "cpu": time.process_time() - used,
                **({} if answer is None else digest(answer)),
            }
        except Exception:  # noqa: BLE001 - the benchmark reports what the engine's error is
            reply = {"error": traceback.format_exc(limit=6)}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()
