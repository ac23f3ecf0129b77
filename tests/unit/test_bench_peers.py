"""What the benchmark of peers relies on: digests of answers, copies of first states, and tables of its results."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.bench.peer_programs.serving import aggregated, checked, condition, digest
from tests.bench.peers_published import OURS, PEER_TABLES, PEERS, SCALE
from tests.bench.peers_setup import Listing, copy_state

DAY = dt.date(1995, 3, 1)


def test_engines_that_give_the_same_rows_in_other_forms_have_the_same_digest() -> None:
    rows = pa.table({"k": ["b", "a"], "n": [2, 1], "price": pa.array([Decimal("2.50"), Decimal("1.00")])})
    expected = digest(rows)
    assert digest([("a", 1, Decimal("1")), ("b", 2, Decimal("2.5"))]) == expected
    assert expected["rows"] == 2
    for other in (
        [("a", 1, Decimal("1"))],
        [("a", 1, Decimal("1")), ("b", 2, Decimal("2.51"))],
        [("a", 1, Decimal("1")), ("b", 2, Decimal("2.5")), ("b", 2, Decimal("2.5"))],
    ):
        assert digest(other)["digest"] != expected["digest"]
    assert digest(rows.slice(0, 0))["rows"] == 0


def _rows(**changed: list[Any]) -> pa.Table:
    columns: dict[str, Any] = {
        "l_uuid": ["a", "b"],
        "l_orderkey": [10_000, 10_001],
        "l_partkey": [1, 2],
        "l_quantity": pa.array([Decimal("1.25"), Decimal("2.00")]),
        "l_comment": ["ä", "bc"],
    }
    return pa.table({**columns, **changed})


def test_sums_over_columns_differ_if_a_row_is_lost_doubled_or_changed() -> None:
    rows = _rows()
    orders = (10_000, 10_001)
    parts = sum(part * (order % 9973) for part, order in zip((1, 2), orders, strict=True))
    quantity = sum(cents * (order % 9967) for cents, order in zip((125, 200), orders, strict=True))
    comments = sum(length * (order % 9949) for length, order in zip((1, 2), orders, strict=True))
    assert checked(rows) == [(2, 2, sum(orders), parts, quantity, comments)]
    for other in (rows.slice(1), pa.concat_tables([rows, rows.slice(1)]), _rows(l_partkey=[1, 3])):
        assert checked(other) != checked(rows)


def test_an_aggregate_of_columns_is_that_of_sql() -> None:
    rows = pa.table({"l_extendedprice": pa.array([Decimal("1.25"), Decimal("2.00")]), "l_shipdate": [DAY, DAY]})
    assert aggregated(rows) == [(2, Decimal("3.25"), DAY)]


def test_a_condition_names_one_value_or_all_of_them() -> None:
    assert condition("k", ["a"]) == "k = 'a'"
    assert condition("n", [1, 2]) == "n in (1, 2)"


def test_a_copy_of_a_first_state_shares_only_files_that_never_change(tmp_path: Path) -> None:
    base, work = tmp_path / "base", tmp_path / "work"
    (base / "log").mkdir(parents=True)
    (base / "rows.parquet").write_text("rows")
    (base / "log" / "state.json").write_text("first")
    copy_state(base, work)
    assert (work / "rows.parquet").samefile(base / "rows.parquet")
    before = Listing.of(work)
    (work / "log" / "state.json").write_text("second")
    (work / "index.parquet").write_text("entries")
    now = Listing.of(work)
    assert (base / "log" / "state.json").read_text() == "first"
    assert now.bytes_since(before) == len("second") + len("entries")
    assert now.bytes_of(("/index.",)) == len("entries")
    copy_state(base, work)
    assert Listing.of(work).bytes() == before.bytes()


@pytest.mark.parametrize("table", PEER_TABLES, ids=lambda table: table.name)
def test_a_table_has_a_row_for_each_case_and_marks_its_least_value(table: Any) -> None:
    (kind, *_), measure = table.rows.kinds, table.rows.measure

    def line(engine: str, against: str, ours: float, peer: float) -> dict[str, Any]:
        case = f"{kind} of something, {engine}"
        sides = {"ours": {measure: ours}, "peer": {measure: peer}}
        return {"case": case, "scale": SCALE, "engine": engine, "against": against, **sides}

    lines = [line("lance", "skipstone_mor", 3e6, 1e6), line("hudi_cow", "skipstone_cow", 2e6, 4e6)]
    (row,) = table.rows([*lines, {**lines[0], "scale": SCALE * 2}])
    cells = dict(zip(("case", *OURS, *PEERS), row.cells, strict=True))
    assert cells["case"] == f"{kind} of something"
    assert [name for name in cells if cells[name].startswith("**")] == ["lance"]
    assert all(cells[name] for name in ("lance", "hudi_cow", "skipstone_cow", "skipstone_mor"))
    assert not cells["delta_cow"]
