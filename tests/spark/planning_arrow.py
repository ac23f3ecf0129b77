"""Scans of PyIceberg over the tables of ``planning_lake``, planned by a server and by PyIceberg itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, IsNaN, LessThan, NotNaN, NotStartsWith, Or, StartsWith, parser
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.table import DataScan

from tests.spark.planning_lake import UUIDS

#: Rows as text, sorted, and what ``count()`` says; the error in their place.
Found = tuple[list[str], int] | str


@dataclass(frozen=True)
class Scan:
    """A scan: its table, the row filter, the columns. ``at``: the name of a snapshot."""

    table: str
    row_filter: Any
    columns: tuple[str, ...] = ("*",)
    at: str = ""


_K = ("k", "s")
_TEXTS = (
    *("k = 7", "k != 7", "k in (1, 2, 3, 500)", "k not in (1, 2, 3)", "k > 230", "k >= 230", "k < 5", "k <= 5"),
    *("k is null", "k is not null", "k = 7 or k = 8", "k = 7 or i = 3", "not (k = 7 or k > 20)", "k = 7 and i = -5"),
    *("k > 10 and k < 13", "i = -5", "i = 2147483648", "o = true", "o = false", "o is null", "s = 'apple'", "s = ''"),
    *(
        "s like 'app%'",
        "s not like 'app%'",
        "s > 'z'",
        "s in ('apple', 'b10', 'none')",
        "s is null",
        "m = 0.05",
        "m > 1.2",
    ),
    *("m in (0.01, 0.02)", "w is null", "w > 130000000000000000", "dt = '2023-12-25'", "dt > '2024-04-27'"),
    *("dt < '2023-09-05'", "dt in ('2023-12-25', '2023-12-26')", "ts = '2024-01-02T12:40:00.000040+00:00'"),
    *("ts > '2024-01-07T00:00:00+00:00'", "ts is null", "tn = '2024-01-02T00:00:00'", "tn < '2024-01-01T15:00:00'"),
    *("p.a = 8", "p.t = 't3'", "p.z < 2", "MiXed = 3", "d > 36", "f = 1.5", "d < 2", "d != 36.0", "d is null"),
)
_WHERE = (
    "g = 3",
    "g != 3",
    "g is null",
    "g is not null",
    "g in (1, 2)",
    "g not in (1, 2)",
    "g > 2",
    "k = 7",
    "g = 3 or k = 7",
)
SCANS: tuple[Scan, ...] = (
    *(Scan("types", text, ("k", "i", "s", "m", "dt", "ts")) for text in _TEXTS),
    *(
        Scan("parts", text)
        for text in (*_WHERE, "s like 'x%'", "dt = '1970-01-03'", "ts < '1970-01-01T00:00:00+00:00'", "g = 9")
    ),
    Scan("types", StartsWith("s", "äp"), _K),
    Scan("types", NotStartsWith("s", "a"), _K),
    Scan("types", IsNaN("d"), ("k", "d")),
    Scan("types", And(NotNaN("d"), LessThan("k", 20)), ("k", "d")),
    Scan("types", Or(IsNaN("f"), LessThan("k", 20)), ("k", "f")),
    Scan("types", f"u = '{UUIDS[3]}'", _K),
    Scan("types", "k = 7", ("p", "l")),
    Scan("types", "true", ("k",)),
    Scan("types", "false", ("k",)),
    *(
        Scan("floats", text)
        for text in ("d > 5", "d >= 0.0", "d = 0.0", "d <= -0.0", "d in (0.0, 9.0)", "d != 0.0", "d is null")
    ),
    *(Scan("dels", text) for text in ("k = 8", "k = 7", "n = 3 and k > 100", "s = 's3'", "true")),
    *(Scan("vectors", text) for text in ("k = 8", "k = 9", "true")),
    *(Scan("empty", text) for text in ("k = 7", "true")),
    *(Scan("evolved", text) for text in ("a2 = 20", "b = 70", "b is null", "a = 'a3'", "h = 1", "true")),
    *(Scan("changed", text) for text in ("h = 1 and a2 < 30", "h = 1", "b = 70", "true")),
    *(Scan("evolved", text, ("k",), "evolved_first") for text in ("k = 7", "true")),
    *(Scan("changed", text, ("k",), "changed_first") for text in ("k = 7", "true")),
)


def found(catalog: Catalog, scan: Scan, at: Mapping[str, int]) -> Found:
    """The rows of ``scan`` and its count."""
    try:
        return _found(_opened(catalog, scan, at))
    except Exception as error:  # noqa: BLE001 - client planning fails too, or the test does
        return f"{type(error).__name__}: {error}"[:200]


def files(catalog: Catalog, scan: Scan, at: Mapping[str, int]) -> int:
    """How many files the plan of ``scan`` names."""
    return len(list(_opened(catalog, scan, at).plan_files()))


def compared(served: Catalog, plain: Catalog, scans: tuple[Scan, ...], at: Mapping[str, int]) -> Iterator[str]:
    """A sentence for each scan that finds other rows than PyIceberg's own plan, or counts others than it finds.

    PyIceberg fails to plan some itself, loses NaN by bounds, and counts rows of null partitions that ``!=`` does not
    find: rows may be more than its own, if PyArrow finds them without any bounds, and its own counts are not compared.
    """
    for scan in scans:
        expected = found(plain, scan, at)
        if isinstance(expected, str):
            continue
        answer = found(served, scan, at)
        is_same = not isinstance(answer, str) and _is_between(expected[0], answer[0], plain, scan, at)
        if not is_same or answer[1] != len(answer[0]):
            yield f"{scan}: served {answer}, planned by PyIceberg {expected}"


def _is_between(own: list[str], served: list[str], plain: Catalog, scan: Scan, at: Mapping[str, int]) -> bool:
    """Whether ``served`` has all that PyIceberg finds, and nothing that PyArrow does not find in all rows."""
    if own == served:
        return True
    whole = _opened(plain, Scan(scan.table, "true", ("*",), scan.at), at).to_arrow()
    schema = plain.load_table(f"ns.{scan.table}").schema()
    tree = parser.parse(scan.row_filter) if isinstance(scan.row_filter, str) else scan.row_filter
    rows = whole.filter(expression_to_pyarrow(bind(schema, tree, case_sensitive=True), schema))
    names = rows.column_names if "*" in scan.columns else scan.columns
    every = Counter(repr(row) for row in rows.select(names).to_pylist())
    return Counter(own) <= Counter(served) <= every


def _opened(catalog: Catalog, scan: Scan, at: Mapping[str, int]) -> DataScan:
    table = catalog.load_table(f"ns.{scan.table}")
    return table.scan(scan.row_filter, scan.columns, snapshot_id=at[scan.at] if scan.at else None)


def _found(scan: DataScan) -> Found:
    return sorted(repr(row) for row in scan.to_arrow().to_pylist()), scan.count()
