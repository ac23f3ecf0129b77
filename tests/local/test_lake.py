"""``skipstone.open`` with real drivers: the page about it is followed as printed, then what it made is looked at."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import skipstone
from deltalake import DeltaTable, write_deltalake
from skipstone_cli.__main__ import main as skipstone_main
from skipstone_cli.app import app
from skipstone_cli.kinds import LOAD_JOB, TABLE
from skipstone_local.client.objects import Selection
from typer.testing import CliRunner

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
        assert [path.name for path in lake.files.rglob("*") if path.is_file()] == ["catalog.db"]
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
    assert (lake.path / "origin").read_text() == str(lake.path)


def _refuse(lake: Any) -> None:
    """What is wrong is said by a reason and a way out, and runs nothing."""
    rows = [{"order_id": 1}]
    for wrong, reason, says in (
        (lambda: lake.read("sales.orders", "tint = 1"), "InvalidSpec", "correct the argument where of the call"),
        (lambda: lake.read("sales.orders", columns=["tint"]), "ColumnNotFound", "in the argument columns of the call"),
        (lambda: lake.read("sales.other"), "TableNotFound", "make it by lake.table"),
        (lambda: lake.read("sales.orders", snapshot_id=5), "InvalidSpec", "does not have the snapshot 5"),
        (lambda: lake.index("sales.orders", "tint"), "ColumnNotFound", "has no column 'tint'"),
        (lambda: lake.table("sales.orders", {"order_id": "long", "nested": "map"}), "InvalidSpec", "nested types"),
        (lambda: lake.load("sales.orders", "nothing/*.csv"), "SourceNotFound", "correct the path"),
        (lambda: lake.merge(rows, into="sales.orders", keys=[]), "InvalidSpec", "keys"),
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


def test_a_call_fails_whole_and_goes_on_whoever_serves_the_folder(tmp_path: Path) -> None:
    first, second = skipstone.open(tmp_path / "lake"), skipstone.open(tmp_path / "lake")
    with first, second, ThreadPoolExecutor() as pool:
        first.table("s.t", {"id": "long", "v": "string"}, primary_key="id")
        _fail_to_change(first)
        _fail_to_load(first)
        assert first.table("s.t", {"w": "int"}).rows == 0
        assert first.read("s.t").schema.names == ["id", "v", "w"]
        loading = pool.submit(second.load, "s.t", [{"id": 1}, {"id": 2, "w": 5}])
        first.close()
        assert loading.result().rows == 2
        found = second.read("s.t").sort_by("id").to_pylist()
        assert found == [{"id": 1, "v": None, "w": None}, {"id": 2, "v": None, "w": 5}]
        assert second.index("s.t", "v", maintenance="Manual").synced == "1/1"
        with pytest.raises(skipstone.LakeError, match=r"the lake is closed: open it again by skipstone\.open"):
            first.tables()


def _fail_to_change(lake: Any) -> None:
    """What a table cannot become is not asked for any more, and a table that cannot be made is not there."""
    before = lake._requests.find(TABLE, "s-t")["spec"]
    with pytest.raises(skipstone.LakeError, match="cannot become required"):
        lake.table("s.t", {"v": "string"}, primary_key="v")
    assert lake._requests.find(TABLE, "s-t")["spec"] == before
    with pytest.raises(skipstone.LakeError, match="Day cannot be made"):
        lake.table("s.u", {"id": "long"}, partition_by="day(id)")
    assert [table.name for table in lake.tables()] == ["s.t"]


def _fail_to_load(lake: Any) -> None:
    """A load that waits for a table that has failed does not begin once the table is fixed."""
    before = lake._requests.find(TABLE, "s-t")["spec"]
    broken = {"columns": [{**before["columns"][0], "type": "string"}, *before["columns"][1:]]}
    changed = lake._requests.patch(TABLE, "s-t", {"spec": broken})
    with pytest.raises(skipstone.LakeError):
        lake._requests.wait(TABLE, changed)
    with pytest.raises(skipstone.LakeError, match="cannot become string"):
        lake.load("s.t", [{"id": "7"}])
    assert lake._requests.list_objects(LOAD_JOB, Selection(namespace="default"))["items"] == []
    assert list((lake.files / "uploads").iterdir()) == []
    lake._requests.patch(TABLE, "s-t", {"spec": before})


def test_a_table_of_the_lake_is_the_source_of_another(tmp_path: Path) -> None:
    with skipstone.open(tmp_path / "lake") as lake:
        for name in ("s.raw", "s.copy"):
            lake.table(name, {"id": "long", "v": "string"}, primary_key="id")
        loaded = lake.load("s.raw", [{"id": number, "v": "a"} for number in range(4)])
        assert lake.load("s.copy", lake.rows("s.raw", "id < 3")).rows == 3
        changes = [{"id": 0, "v": "b"}, {"id": 1, "v": "gone"}]
        deletes = {"when": "source.v = 'gone'", "action": "Delete"}
        lake.merge(changes, into="s.raw", keys="id", when_matched=[deletes, "Update"])
        rows = lake.rows("s.raw", changes=True, from_snapshot_id=loaded.snapshot_id)
        merged = lake.merge(rows, into="s.copy", keys="id")
        assert (merged.updated, merged.deleted, merged.inserted) == (1, 1, 0)
        assert lake.read("s.copy").sort_by("id").to_pylist() == [{"id": 0, "v": "b"}, {"id": 2, "v": "a"}]
        _look_at_changes(lake, loaded.snapshot_id)
        with pytest.raises(skipstone.LakeError, match="format and options are for files"):
            lake.load("s.copy", lake.table("s.raw"), format="Csv")
        audit = {"branch": {"name": "audit", "ifMissing": "Create"}}
        lake.merge([{"id": 2, "v": "c"}], into="s.copy", keys="id", fields=audit)
        assert lake.read("s.copy", "v = 'c'").num_rows == 0
        lake.load("s.raw", lake.rows("s.copy", "v = 'c'", ref="audit"))
        assert lake.read("s.raw", "v = 'c'").to_pylist() == [{"id": 2, "v": "c"}]
        with pytest.raises(skipstone.LakeError, match="does not have the branch 'audits'"):
            lake.load("s.copy", [{"id": 9}], fields={"branch": {"name": "audits"}})
        with pytest.raises(skipstone.LakeError, match="has no snapshot 5"):
            lake.load("s.copy", lake.rows("s.raw", snapshot_id=5))


def test_delta_tables_and_folders_of_values_are_sources(tmp_path: Path) -> None:
    """Inside of the Warehouse's folder they are read where they are, else linked for the time of the job."""
    with skipstone.open(tmp_path / "lake") as lake:
        lake.table("s.t", {"id": "long", "day": "date", "v": "string"}, primary_key="id")
        outside, inside = tmp_path / "events", lake.files / "events"
        for folder, first in ((outside, 0), (inside, 10)):
            rows = pa.table({"id": [first, first + 1, first + 2], "day": [date(2026, 1, 1), date(2026, 1, 2), None]})
            write_deltalake(str(folder), rows.append_column("v", pa.array(["delta"] * 3)), partition_by=["day"])
            DeltaTable(str(folder)).delete("day = '2026-01-02'")
        assert lake.load("s.t", lake.delta(outside)).rows == 2
        assert lake.merge(lake.delta(inside, "day is not null", version=0), into="s.t", keys="id").inserted == 2
        hive = tmp_path / "hive"
        pq.write_to_dataset(pa.table({"id": [1, 20, 21], "on": ["2026-01-01", "2026-01-02", None]}), hive, ["on"])
        late = lake.folders(hive, "on > date '2026-01-01'", types={"on": "date"})
        insert = {"values": {"id": "source.id", "day": "source.on"}}
        assert lake.merge(late, into="s.t", keys="id", when_not_matched=insert).inserted == 1
        found = {row["id"]: (row["day"], row["v"]) for row in lake.read("s.t").to_pylist()}
        first, second = date(2026, 1, 1), date(2026, 1, 2)
        assert found == {
            0: (first, "delta"), 2: (None, "delta"), 10: (first, "delta"), 11: (second, "delta"), 20: (second, None),
        }  # fmt: skip
        assert list((lake.files / "uploads").iterdir()) == []


def _look_at_changes(lake: Any, loaded: int) -> None:
    """By a call and by the command, which reads what it wrote to files back."""
    expected = [
        {"id": 0, "v": "a", "_change_type": "UPDATE_BEFORE"},
        {"id": 0, "v": "b", "_change_type": "UPDATE_AFTER"},
        {"id": 1, "v": "a", "_change_type": "DELETE"},
    ]
    changes = lake.changes("s.raw", loaded)
    assert changes.sort_by("id").to_pylist() == expected
    assert set(lake.changes("s.raw", 0, loaded)["_change_type"].to_pylist()) == {"INSERT"}
    assert lake.changes("s.raw", loaded, keys=(), where="v = 'b'").to_pylist() == [
        {"id": 0, "v": "b", "_change_type": "INSERT"}
    ]
    for wrong, says in (
        (lambda: lake.changes("s.raw", 5), "s.raw has no snapshot, branch or tag '5'.*: name one of its history"),
        (lambda: lake.changes("s.raw", loaded, "main", keys="nr"), "^the table s.raw has no column 'nr': name its"),
        (lambda: lake.changes("s.raw", loaded, where="tint = 1"), "correct the argument where of the call"),
    ):
        with pytest.raises(skipstone.LakeError, match=says):
            wrong()

    def run(*arguments: str, code: int = 0) -> Any:
        command = ["local", "changes", *arguments, "--from", str(loaded), "--root", str(lake.path)]
        ended = CliRunner().invoke(app, command)
        assert ended.exit_code == code, ended.output
        return ended

    shown = run("s-raw")
    assert shown.stdout.split() == ["ID", "V", "_CHANGE_TYPE", *(str(v) for row in expected for v in row.values())]
    assert shown.stderr == "0 inserted, 1 updated, 1 deleted\n"
    assert run("tbl/s-raw", "--limit", "1", "-o", "csv").stdout.splitlines()[1:] == [
        '0,"a","UPDATE_BEFORE"',
        '0,"b","UPDATE_AFTER"',
    ]
    for name in ("c.parquet", "c.json", "c.csv"):
        run("s-raw", "--to", "main", "--file", str(lake.path / name))
        assert duckdb.sql(f"select * from '{lake.path / name}' order by id, v").to_arrow_table().to_pylist() == expected
    assert "there is no Table raw" in run("raw", code=2).stderr
    assert "changed rows of s.raw have the key v = 'a': choose keys that" in run("s-raw", "--key", "v", code=2).stderr
    assert "use one of table, json, csv, parquet" in run("s-raw", "-o", "xml", code=2).stderr
    assert "add --file FILE" in run("s-raw", "-o", "parquet", code=2).stderr
