"""``skipstone.open`` with real drivers: the page about it is followed as printed, then what it made is looked at."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import skipstone
from skipstone_cli.__main__ import main as skipstone_main

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "python.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def follow(blocks: list[str], names: dict[str, Any]) -> None:
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)


def test_the_page_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    try:
        follow(BLOCKS[:1], names)
        # Whoever serves the folder is killed: the next call has it served again.
        names["lake"]._requests.service.process.kill()
        follow(BLOCKS[1:], names)
        printed = capsys.readouterr().out
        assert printed.startswith("10000\n1 1 1 13\n20\nread")
        assert "1 read" in printed
        assert "used, reading" in printed
        assert printed.endswith(
            "TableNotFound\nthe lake has no table 'sales.order'\nmake it by lake.table(name, schema)\n"
        )
        lake = names["lake"]
        _same_as_a_merge_by_duckdb(lake.read("sales.orders"), names)
        _look_at(lake, names)
        _refuse(lake)
        _ask_by_command(lake, monkeypatch)
        lake.drop("sales.orders")
        assert lake.tables() == []
    finally:
        if "lake" in names:
            names["lake"].close()


def _same_as_a_merge_by_duckdb(found: pa.Table, names: dict[str, Any]) -> None:
    orders, changes = names["orders"], names["changes"]
    with duckdb.connect() as base:
        for name, rows in (("orders", orders), ("changes", changes), ("found", found)):
            base.register(name, rows)
        columns = "order_id, epoch_us(ordered_at), customer, price"
        kept = "select * from orders where order_id not in (select order_id from changes)"
        now = "select * exclude (op) from changes where op != 'delete'"
        expected = base.sql(f"select {columns} from ({kept} union all {now}) order by 1").fetchall()
        assert base.sql(f"select {columns} from found order by 1").fetchall() == expected


def _look_at(lake: Any, names: dict[str, Any]) -> None:
    """At a snapshot, at a read without indexes, and at what jobs have left behind."""
    before = lake.read("sales.orders", columns=["order_id"], snapshot_id=names["loaded"].snapshot_id)
    assert before.num_rows == 10_000
    assert "used" not in lake.explain("sales.orders", "customer = 'c007'", use_indexes=False)
    assert list((lake.files / "uploads").iterdir()) == []
    assert lake.table("sales.orders").rows == 10_000


def _refuse(lake: Any) -> None:
    """What is wrong is said by a reason and a way out, and runs nothing."""
    rows = [{"order_id": 1}]
    for wrong, reason, says in (
        (lambda: lake.read("sales.orders", "tint = 1"), "InvalidSpec", "tint"),
        (lambda: lake.read("sales.other"), "TableNotFound", "make it by lake.table"),
        (lambda: lake.table("sales.orders", {"order_id": "long", "nested": "map"}), "Invalid", "nested types"),
        (lambda: lake.load("sales.orders", "nothing/*.csv"), "SourceNotFound", "correct the path"),
        (lambda: lake.merge(rows, into="sales.orders", keys=[]), "Invalid", "keys"),
        (lambda: skipstone.open(lake.path, warehouse="sea"), "WarehouseNotFound", "which has lake"),
    ):
        with pytest.raises(skipstone.LakeError) as refused:
            wrong()
        assert refused.value.reason == reason
        assert says in str(refused.value)


def _ask_by_command(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other commands see the same objects."""
    monkeypatch.setenv("SKIPSTONE_LOCAL", str(lake.path))
    monkeypatch.setattr("sys.argv", ["skipstone", "why", "tbl/sales-orders"])
    with pytest.raises(SystemExit) as ended:
        skipstone_main()
    assert ended.value.code == 0
