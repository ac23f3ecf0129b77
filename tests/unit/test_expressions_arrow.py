"""Expressions on Arrow columns: values, nulls, faults that are told without a value, and rows that lack a column."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from skipstone.kernels.clauses import MatchedBatch, apply_clauses, inserted_rows
from skipstone.kernels.computing.expressions import compute
from skipstone.kernels.partial import pack_bits
from skipstone_core.contract.requests import MergeAction
from skipstone_core.errors import BadData
from skipstone_core.language.expressions import Atom, ValueExpression, check_expression, with_sides
from skipstone_core.language.parser import parse_assigned
from skipstone_core.language.predicates import ColumnRef, Constant
from skipstone_core.merging.merges import BoundClause, PartialRows
from skipstone_core.reasons import Reason

COLUMNS: dict[str, tuple[str, pa.Array]] = {
    "source.i": ("int", pa.array([2, None, 2**31 - 1], pa.int32())),
    "target.l": ("long", pa.array([0, 5, -(2**63)], pa.int64())),
    "source.d": ("decimal(9, 2)", pa.array([Decimal("1.55"), None, Decimal("-9999999.99")], pa.decimal128(9, 2))),
    "target.w": ("decimal(38, 10)", pa.array([Decimal("1"), Decimal("1e27"), Decimal("-3.5")], pa.decimal128(38, 10))),
    "source.x": ("double", pa.array([0.1, None, float("inf")], pa.float64())),
    "source.s": ("string", pa.array([" 12 ", None, "no"], pa.string())),
    "target.t": ("string", pa.array(["a", None, "c"], pa.large_string())),
    "source.b": ("boolean", pa.array([True, None, False], pa.bool_())),
    "source.u": ("uuid", pa.array([b"u" * 16, None, b"v" * 16], pa.binary(16))),
    "source.tags": ("list<string>", pa.array([["a"], None, []], pa.list_(pa.string()))),
    "source.day": ("date", pa.array([date(2024, 2, 29), None, date(1, 1, 2)], pa.date32())),
    "source.at": ("timestamp", pa.array([datetime(2024, 2, 29, 23, 30), None, datetime(2024, 1, 1)])),  # noqa: DTZ001
    "source.seen": ("timestamptz", pa.array([datetime(2024, 2, 29, 23, 30, tzinfo=UTC), None, None])),
}
MADRID = ZoneInfo("Europe/Madrid")


def expression(text: str) -> ValueExpression:
    value = parse_assigned(text)
    term = Atom(value) if value is None or isinstance(value, ColumnRef | Constant) else value
    types = {name: kind for name, (kind, _) in COLUMNS.items()}
    return check_expression(with_sides(term), types, text=text, field="spec.f", zone=MADRID)


def value_of(text: str, *rows: int) -> list[Any]:
    picked = pa.array(rows or range(3), pa.int64())
    return compute(
        expression(text), {name: c.take(picked) for name, (_, c) in COLUMNS.items()}, len(picked)
    ).to_pylist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i / 2", [1.0, None, 1073741823.5]),
        ("i + 1.5", [Decimal("3.5"), None, Decimal("2147483648.5")]),
        ("i % -1", [0, None, 0]),
        ("target.l % 10", [0, 5, -8]),
        ("-d", [Decimal("-1.55"), None, Decimal("9999999.99")]),
        ("d / 3", [Decimal("0.516667"), None, Decimal("-3333333.330000")]),
        ("round(d, 1)", [Decimal("1.6"), None, Decimal("-10000000.0")]),
        ("round(x, 0)", [0.0, None, float("inf")]),
        ("target.w % 3", [Decimal("1.0000000000"), Decimal("1.0000000000"), Decimal("-0.5000000000")]),
        ("coalesce(i, target.l, 1 / 0)", [2.0, 5.0, 2147483647.0]),
        ("coalesce(d, i, 7)", [Decimal("1.55"), Decimal("7.00"), Decimal("-9999999.99")]),
        ("target.t || ':' || cast(b as string)", ["a:true", None, "c:false"]),
        ("null + i", [None, None, None]),
        ("coalesce(null, u, u)", [b"u" * 16, None, b"v" * 16]),
        ("coalesce(tags, tags)", [["a"], None, []]),
        ("to_date(seen)", [date(2024, 3, 1), None, None]),
        ("cast(seen as string)", ["2024-03-01 00:30:00", None, None]),
        (
            "cast(coalesce(day, date '2024-07-01') as timestamptz)",
            [
                datetime(2024, 2, 28, 23, tzinfo=UTC),
                datetime(2024, 6, 30, 22, tzinfo=UTC),
                datetime(1, 1, 2, 0, 14, 44, tzinfo=UTC),
            ],
        ),
        ("cast('2024-07-01 12:00:00.5' as timestamptz)", [datetime(2024, 7, 1, 10, 0, 0, 500000, tzinfo=UTC)] * 3),
        ("cast('2024-03-31 02:30:00' as timestamptz)", [datetime(2024, 3, 31, 1, 30, tzinfo=UTC)] * 3),
        ("cast(timestamp '2024-03-31 02:30:00' as timestamptz)", [datetime(2024, 3, 31, 1, 30, tzinfo=UTC)] * 3),
        ("cast(timestamp '2024-10-27 02:30:00' as timestamptz)", [datetime(2024, 10, 27, 0, 30, tzinfo=UTC)] * 3),
        ("cast(' yes ' as boolean)", [True] * 3),
        ("cast('-1.50' as decimal(3,1))", [Decimal("-1.5")] * 3),
        ("- 1.2345678901234567890123456789012345 + 0", [Decimal("-1.2345678901234567890123456789012345")] * 3),
        ("cast(coalesce(d, 0) as double)", [1.55, 0.0, -9999999.99]),
        ("cast(0.1 as float)", [pytest.approx(0.1)] * 3),
        ("cast(' -Infinity' as float)", [float("-inf")] * 3),
    ],
)
def test_values(text: str, expected: Any) -> None:
    assert value_of(text) == expected


@pytest.mark.parametrize(
    ("text", "row", "message"),
    [
        ("i + 1", 2, r"'i \+ 1' leaves the range of int in some row: cast its numbers"),
        ("-target.l", 2, "leaves the range of long"),
        ("target.w * target.w", 1, r"leaves the range of decimal\(38,6\)"),
        ("i / target.l", 0, "divides by zero in some row: leave such rows out"),
        ("d % 0", 0, "divides by zero"),
        ("x / 0", 2, "divides by zero"),
        (
            "cast(s as int)",
            2,
            "casts a value of source.s that int does not hold as it is: cast to a wider type",
        ),
        ("cast(d as int)", 0, "casts a value of source.d that int"),
        ("cast(d as decimal(9,1))", 0, r"that decimal\(9,1\) does not hold"),
        ("cast(2147483648 as decimal(38,38))", 2, r"that decimal\(38,38\) does not hold"),
        ("cast(cast(766 as decimal(20,0)) as decimal(38,38))", 2, r"that decimal\(38,38\) does not hold"),
        ("cast(x as long)", 2, "that long does not hold"),
        ("cast(x as decimal(9,2))", 2, r"that decimal\(9,2\) does not hold"),
        ("cast(at as date)", 0, "that date does not hold"),
        ("cast(1e300 as float)", 0, "that float does not hold"),
        ("cast('1e400' as double)", 0, "that double does not hold"),
        ("cast('-1e39' as float)", 0, "that float does not hold"),
        ("cast('2024-1-1' as date)", 0, "casts a value"),
        ("cast('1e9999' as decimal(9,2))", 0, "casts a value"),
    ],
)
def test_a_fault_names_the_field_and_no_value(text: str, row: int, message: str) -> None:
    with pytest.raises(BadData, match=f"^spec.f: .*{message}") as caught:
        value_of(text, row)
    assert caught.value.reason is Reason.BAD_RECORDS
    assert "2147483647" not in str(caught.value)


@pytest.mark.parametrize("text", ["cast(at as date)", "cast(x as int)", "cast(d as int)", "cast(s as int)", "i / i"])
def test_rows_of_nulls_have_no_fault(text: str) -> None:
    assert value_of(text, 1, 1) == [None, None]


# --- as clauses have them ---

TARGET = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("m", pa.int64())])
MATCH = np.array([1, -1, 0, 2], dtype=np.int64)
CHOICE = np.array([0, -1, 0, 0], dtype=np.int16)


def clause(action: MergeAction, **texts: str) -> BoundClause:
    types = {f"{side}.{name}": "long" for side in ("source", "target") for name in TARGET.names}
    made = {}
    for name, text in texts.items():
        value = parse_assigned(text)
        term = with_sides(Atom(value) if isinstance(value, ColumnRef) else value)  # type: ignore[arg-type]
        made[name] = check_expression(term, types, text=text, field=f"set.{name}")
    return BoundClause(action=action, expressions=made)


def batch(source: pa.Table, partial: PartialRows | None = None) -> MatchedBatch:
    rows = {"id": [1, 2, 3, 4], "n": [10, 20, 30, None], "m": [-1, -2, -3, -4]}
    return MatchedBatch(pa.RecordBatch.from_pydict(rows, schema=TARGET), source, MATCH, CHOICE, partial)


def test_expressions_read_what_a_row_was_before() -> None:
    source = pa.table({"n": pa.array([5, 6, None], pa.int64())})
    update = clause(MergeAction.UPDATE, n="target.m", m="target.n + coalesce(source.n, 100)")
    found = apply_clauses(batch(source), [update]).to_pydict()
    assert found == {"id": [1, 2, 3, 4], "n": [-1, 20, -3, -4], "m": [16, -2, 35, None]}


def test_expressions_take_a_column_that_a_row_lacks_for_null() -> None:
    kept = pack_bits(np.array([[True, False], [False, False], [False, True]]))
    source = pa.table({"n": pa.array([None, 6, 7], pa.int64()), "m": pa.array([1, 2, None], pa.int64()), "kept": kept})
    partial = PartialRows(columns=("n", "m"), kept="kept", missing="kept")
    update = clause(MergeAction.UPDATE, n="source.n * 2", m="source.n + source.m")
    found = apply_clauses(batch(source, partial), [update]).to_pydict()
    assert found == {"id": [1, 2, 3, 4], "n": [12, 20, None, 14], "m": [8, -2, None, None]}


def test_inserts_compute_from_the_source() -> None:
    source = pa.table({"id": pa.array([7, 8], pa.int64()), "n": pa.array([1, None], pa.int64())})
    insert = clause(MergeAction.INSERT, id="id * 10", n="coalesce(n, 0) - 1")
    assert inserted_rows(source, insert, TARGET).to_pydict() == {"id": [70, 80], "n": [0, -1], "m": [None, None]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("target.n + coalesce(source.x, 1)", [2, None]),
        ("target.n + round(source.x, 2)", [None, None]),
        ("coalesce(to_date(source.x), date '2024-02-29')", [date(2024, 2, 29)] * 2),
    ],
)
def test_a_column_of_no_known_type_is_null_in_expressions(text: str, expected: list[Any]) -> None:
    types = {"source.x": "unknown", "target.n": "long"}
    term = with_sides(parse_assigned(text))  # type: ignore[arg-type]
    one = check_expression(term, types, text="it", field="set.n")
    columns = {"source.x": pa.nulls(2, pa.string()), "target.n": pa.array([1, None], pa.int64())}
    assert compute(one, columns, 2).to_pylist() == expected
