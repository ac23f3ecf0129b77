"""Flat messages of Debezium, messages of Maxwell and files of AWS DMS: shapes as their documentation shows them."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from skipstone.sources.feeds.tools.debezium import required_fields
from skipstone_core.contract.requests import ChangeFormat, SourceFormat
from skipstone_core.errors import BadData, BadSpec

from tests.unit.feed_bed import EVERY, KEPT, FeedBed, Row

NOON = datetime.fromisoformat("2024-05-01T12:00:00")
CONNECTORS = ("mysql", "mariadb", "postgresql", "sqlserver", "db2", "oracle", "vitess")


# --- Debezium with ExtractNewRecordState ---


def flat(op: str, pos: int, row: Row, **fields: Any) -> Row:
    source = {"connector": "mysql", "name": "s", "db": "shop", "table": "orders", "snapshot": "false", "ts_ms": 5,
              "server_id": 1, "file": "bin.000001", "pos": pos, "row": 0}  # fmt: skip
    told = {f"__source_{name}": value for name, value in source.items()}
    return {**row, **told, "__deleted": "true" if op == "d" else "false", "__op": op, **fields}


@pytest.fixture
def flat_bed(tmp_path: Path) -> FeedBed:
    return FeedBed(tmp_path, ChangeFormat.DEBEZIUM_FLAT)


def test_flat_messages_are_written_deleted_and_ordered(flat_bed: FeedBed) -> None:
    flat_bed.lines(
        flat("c", 9, {"id": 1, "name": "last"}),
        flat("c", 4, {"id": 1, "name": "first"}),
        flat("r", 4, {"id": 2, "name": "read"}, __source_snapshot="true"),
        flat("d", 7, {"id": 3, "name": None}),
        flat("m", 8, {}),
    )
    assert flat_bed.left() == [
        {"id": 1, "name": "last", "price": KEPT, "placed": KEPT},
        {"id": 2, "name": "read", "price": KEPT, "placed": KEPT},
        "deleted 3",
    ]


def test_fields_may_be_told_without_their_struct(flat_bed: FeedBed) -> None:
    message = {name.replace("__source_", "__"): value for name, value in flat("c", 9, {"id": 1, "name": "n"}).items()}
    assert flat_bed.lines(message).row()["name"] == "n"


@pytest.mark.parametrize("connector", CONNECTORS)
def test_the_fields_that_are_missing_are_named(tmp_path: Path, connector: str) -> None:
    bed = FeedBed(tmp_path, ChangeFormat.DEBEZIUM_FLAT)
    bed.lines({"id": 1, "name": "n", "__deleted": "false", "__source_connector": connector})
    with pytest.raises(BadData, match=r"'feed/0.json', line 1: it does not tell ") as caught:
        bed.left()
    wanted = ",".join(name for name in required_fields(connector) if name != "source.connector")
    assert f"add {wanted} to transforms.unwrap.add.fields" in str(caught.value)


def test_flat_messages_without_deletes_are_refused(flat_bed: FeedBed) -> None:
    message = flat("c", 9, {"id": 1})
    del message["__deleted"]
    with pytest.raises(BadData, match=r"set transforms.unwrap.delete.tombstone.handling.mode to rewrite"):
        flat_bed.lines(message).left()


def test_flat_truncates_are_refused_unless_allowed(flat_bed: FeedBed) -> None:
    flat_bed.lines(flat("c", 1, {"id": 1}), flat("t", 2, {}), flat("c", 3, {"id": 2}))
    with pytest.raises(BadData, match="line 2: it is a truncate"):
        flat_bed.left()
    flat_bed.source = {"allow_truncate": True}
    assert flat_bed.left() == [{"id": 2, "name": None, "price": None, "placed": None}]


def test_flat_avro_is_read(tmp_path: Path) -> None:
    stamp = {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}
    message = flat("c", 9, {"id": 1, "name": "n", "placed": 1_714_564_800_000_000})
    kinds: dict[str, object] = dict.fromkeys(("id", "__source_ts_ms", "__source_pos", "__source_server_id"), "long")
    kinds |= {"__source_row": "int", "placed": ["null", stamp]}
    schema = {
        "type": "record",
        "name": "Value",
        "fields": [{"name": n, "type": kinds.get(n, "string")} for n in message],
    }
    bed = FeedBed(tmp_path, ChangeFormat.DEBEZIUM_FLAT, SourceFormat.AVRO).avro(schema, [message])
    assert bed.row() == {"id": 1, "name": "n", "price": KEPT, "placed": NOON}


# --- Maxwell ---


def maxwell(kind: str, data: Row, old: Row | None = None, **fields: Any) -> Row:
    message = {"database": "shop", "table": "orders", "type": kind, "ts": 1477053217, "xid": 23396, "commit": True}
    return {**message, "data": data, **({} if old is None else {"old": old}), **fields}


@pytest.fixture
def maxwell_bed(tmp_path: Path) -> FeedBed:
    return FeedBed(tmp_path, ChangeFormat.MAXWELL, schema=EVERY)


def names(left: list[Row | str]) -> list[object]:
    return [one if isinstance(one, str) else (one["id"], one["text"]) for one in left]


def test_each_type_of_maxwell_does_what_it_says(maxwell_bed: FeedBed) -> None:
    maxwell_bed.lines(
        maxwell("bootstrap-start", {}),
        maxwell("bootstrap-insert", {"id": 1, "text": "read"}),
        maxwell("insert", {"id": 2, "text": "new"}),
        maxwell("update", {"id": 3, "text": "after"}, {"text": "before"}),
        maxwell("delete", {"id": 4, "text": "x"}),
        maxwell("bootstrap-complete", {}),
        {"type": "table-alter", "database": "shop", "table": "orders", "sql": "alter table …", "ts": 1},
        "",
    )
    assert names(maxwell_bed.left()) == [(1, "read"), (2, "new"), (3, "after"), "deleted 4"]


def test_rows_of_one_event_of_maxwell_are_ordered_though_the_last_tells_no_offset(maxwell_bed: FeedBed) -> None:
    """An update that moves keys along writes a row's key twice. The row that commits has no xoffset."""
    at = {"position": "bin.000001:90", "server_id": 1}
    maxwell_bed.lines(
        {**maxwell("update", {"id": 3, "text": "b"}, {"id": 2}, xoffset=0, **at), "commit": False},
        {**maxwell("update", {"id": 2, "text": "a"}, {"id": 1}, **at), "commit": True},
    )
    assert names(maxwell_bed.left()) == ["deleted 1", (2, "a"), (3, "b")]


def test_maxwells_own_rows_among_others_are_skipped(maxwell_bed: FeedBed) -> None:
    own = {**maxwell("insert", {"id": 7, "table_name": "orders"}), "database": "maxwell", "table": "bootstrap"}
    assert names(maxwell_bed.lines(own, maxwell("insert", {"id": 1, "text": "x"})).left()) == [(1, "x")]


def test_tables_of_maxwell_are_chosen_by_name(maxwell_bed: FeedBed) -> None:
    other = {**maxwell("insert", {"no": 7}), "table": "orders_old"}
    maxwell_bed.lines(other, maxwell("insert", {"id": 1, "text": "x"}))
    with pytest.raises(BadData, match="no value for the key column 'id'"):
        maxwell_bed.left()
    maxwell_bed.source = {"tables": ("shop.orders",)}
    assert names(maxwell_bed.left()) == [(1, "x")]
    assert sorted(maxwell_bed.changes()["_skipstone_op"].to_pylist()) == ["S", "U"]


def test_bytes_and_values_of_json_of_maxwell_are_read(maxwell_bed: FeedBed) -> None:
    maxwell_bed.lines(
        maxwell("insert", {"id": 1, "raw": "AP8Q", "text": 1.50, "tags": ["a", "c"]}),
        maxwell("insert", {"id": 2, "raw": "abcd", "text": True}),
        maxwell("bootstrap-insert", {"id": 3, "raw": "", "text": "POINT (1 2)", "price": -1e-2}),
    )
    found = [(one["raw"], one["text"], one["tags"]) for one in maxwell_bed.left() if isinstance(one, dict)]
    assert found == [
        (b"\0\xff\x10", "1.5", ["a", "c"]),
        (b"\x69\xb7\x1d", "true", KEPT),
        (b"", "POINT (1 2)", KEPT),
    ]


def test_an_update_of_maxwell_that_changes_the_key_deletes_the_old_row(maxwell_bed: FeedBed) -> None:
    maxwell_bed.lines(maxwell("update", {"id": 2, "text": "n"}, {"id": 1}))
    assert names(maxwell_bed.left()) == ["deleted 1", (2, "n")]


def test_maxwell_is_ordered_by_position_then_by_time_then_by_place(maxwell_bed: FeedBed) -> None:
    maxwell_bed.lines(
        maxwell("update", {"id": 1, "text": "last"}, position="master.000010:4", server_id=1, ts=1),
        maxwell("update", {"id": 1, "text": "first"}, position="master.000009:90", server_id=1, ts=9),
        maxwell("bootstrap-insert", {"id": 1, "text": "read"}, ts=99),
        maxwell("update", {"id": 2, "text": "last"}, ts=9),
        maxwell("update", {"id": 2, "text": "first"}, ts=8),
        maxwell("bootstrap-insert", {"id": 2, "text": "read"}, ts=99),
        maxwell("update", {"id": 3, "text": "first"}),
        maxwell("update", {"id": 3, "text": "last"}),
    )
    assert names(maxwell_bed.left()) == [(1, "last"), (2, "last"), (3, "last")]


def test_changes_that_two_servers_took_are_ordered_where_position_and_place_agree(maxwell_bed: FeedBed) -> None:
    """A replica, or a server after a failover, has the changes of others in its own log, under their ids."""
    first = maxwell("update", {"id": 1, "text": "first"}, position="master.000010:4", server_id=1)
    last = maxwell("update", {"id": 1, "text": "last"}, position="master.000010:9", server_id=2)
    assert names(maxwell_bed.lines(first, last).left()) == [(1, "last")]
    assert names(maxwell_bed.lines(first, last, first, last, name="0.json").left()) == [(1, "last")]


@pytest.mark.parametrize("position", ["master.000010:3", "master.000010:4", "other.000010:9"])
def test_changes_of_two_logs_are_refused(maxwell_bed: FeedBed, position: str) -> None:
    """The position of a server that another one took the place of says nothing."""
    first = maxwell("update", {"id": 1, "text": "first"}, position="master.000010:4", server_id=1)
    maxwell_bed.lines(first, maxwell("update", {"id": 1, "text": "x"}, position=position, server_id=2))
    with pytest.raises(BadData, match=r"come from two logs .* merge the files of each log by a job of its own"):
        maxwell_bed.left()


@pytest.mark.parametrize("column", ["day", "local"])
def test_days_that_maxwell_may_have_moved_are_refused(maxwell_bed: FeedBed, column: str) -> None:
    """1582-10-10 comes as 1582-10-20; the days around come as they are."""
    for number, day in enumerate(("1582-10-04", "1582-10-14", "1582-10-25")):
        maxwell_bed.lines(maxwell("insert", {"id": number, column: day}), name=f"{number}.json")
    assert [str(row[column])[:10] for row in maxwell_bed.left() if isinstance(row, dict)] == [
        "1582-10-04", "1582-10-14", "1582-10-25",
    ]  # fmt: skip
    for day in ("1582-10-15", "1582-10-24"):
        maxwell_bed.lines(maxwell("insert", {"id": 1, column: day}), name="9.json")
        with pytest.raises(BadData, match=rf"column '{column}'.*a day of 1582-10-15 to 24, and Maxwell"):
            maxwell_bed.left()


def test_values_of_maxwell_are_read_by_the_types_of_the_table(maxwell_bed: FeedBed) -> None:
    data = {"id": 1, "flag": 1, "small": "7", "ratio": 4.2341, "wide": "Infinity", "price": "12.5", "day": "2024-05-01",
            "clock": "12:00:00", "local": "2024-05-01 12:00:00.25", "instant": "2024-05-01 12:00:00",
            "text": {"a": [1.10, None]}}  # fmt: skip
    maxwell_bed.time_zone = "Europe/Berlin"
    found = maxwell_bed.lines(maxwell("insert", data)).row()
    assert found | {"ratio": 0} == dict.fromkeys(found, KEPT) | {
        "id": 1, "flag": True, "small": 7, "ratio": 0, "wide": math.inf, "price": Decimal("12.50"),
        "day": date(2024, 5, 1), "clock": time(12), "local": NOON.replace(microsecond=250_000),
        "instant": datetime(2024, 5, 1, 10, tzinfo=UTC), "text": '{"a":[1.1,null]}',
    }  # fmt: skip
    assert pa.scalar(found["ratio"], pa.float32()) == pa.scalar(4.2341, pa.float32())


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (maxwell("table-drop", {}), "its type is none of"),
        ({"type": "insert", "table": "orders"}, "it is not a message of Maxwell"),
        (maxwell("insert", {"text": "x"}), "no value for the key column 'id'"),
        (maxwell("insert", {"id": 1}, position="x"), "binlog file"),
        (maxwell("insert", {"id": 1, "raw": "AQ"}), "column 'raw'"),
        (maxwell("insert", {"id": 1, "day": "0000-00-00"}), "zero date of MySQL"),
        (maxwell("insert", {"id": 1, "Text": "x"}), "the feed has a column 'Text' and the table 'text'"),
    ],
)
def test_messages_of_maxwell_that_cannot_be_used_are_refused(maxwell_bed: FeedBed, message: Row, says: str) -> None:
    with pytest.raises(BadData, match=r"'feed/0.json', line 1: ") as caught:
        maxwell_bed.lines(message).left()
    assert says in str(caught.value)


def test_a_feed_of_two_tables_of_maxwell_is_refused(maxwell_bed: FeedBed) -> None:
    maxwell_bed.lines(maxwell("insert", {"id": 1}))
    maxwell_bed.lines(maxwell("insert", {"id": 1}, table="lines"), name="1.json")
    changes = maxwell_bed.changes()
    assert set(changes["_skipstone_table"].to_pylist()) == {"shop.orders", "shop.lines"}
    maxwell_bed.lines(maxwell("insert", {"id": 1}, table="lines"), maxwell("insert", {"id": 1}), name="2.json")
    with pytest.raises(BadData, match=r"changes of 'shop.lines' and of 'shop.orders'"):
        maxwell_bed.left()


# --- AWS DMS ---


@pytest.fixture
def csv_bed(tmp_path: Path) -> FeedBed:
    return FeedBed(tmp_path, ChangeFormat.DMS, SourceFormat.CSV)


def test_dms_files_are_ordered_by_name_behind_the_full_load(csv_bed: FeedBed) -> None:
    csv_bed.text("id,name,price\n1,load,1\n2,load,2\n3,load,3\n", "LOAD00000001.csv")
    csv_bed.text('Op,id,name,price\nU,1,later,1.5\nD,2,x,\nI,4,"a, ""b""",\n', "20240502-1.csv")
    csv_bed.text("Op,id,name\nU,1,first\nI,2,again\n", "20240501-1.csv")
    assert csv_bed.left() == [
        {"id": 1, "name": "later", "price": Decimal("1.50"), "placed": KEPT},
        "deleted 2",
        {"id": 3, "name": "load", "price": Decimal("3.00"), "placed": KEPT},
        {"id": 4, "name": 'a, "b"', "price": None, "placed": KEPT},
    ]


@pytest.mark.parametrize("name", ["op", "OP", "Op "])
def test_dms_files_with_op_in_other_letters_are_refused_since_deletes_would_become_rows(
    csv_bed: FeedBed, name: str
) -> None:
    csv_bed.text(f"{name},id,name\nD,1,x\n", "20240501-1.csv")
    with pytest.raises(BadData, match=f"it has a column '{name}' and no column 'Op', and names are exact"):
        csv_bed.left()


def test_dms_files_in_folders_of_dates_are_ordered_by_their_names(csv_bed: FeedBed) -> None:
    """With DatePartitionSequence=DDMMYYYY, paths are not in the order of time."""
    csv_bed.paths = ("feed/*/*/*/*.csv",)
    csv_bed.text("Op,dms_ts,id,name\nI,2024-06-01 00:00:00.000001,1,new\n", "01/06/2024/20240601-000000123.csv")
    csv_bed.text("Op,dms_ts,id,name\nU,2024-05-30 23:59:59.000001,1,old\n", "30/05/2024/20240530-235959123.csv")
    assert csv_bed.row()["name"] == "new"


def test_dms_files_of_inserts_only_have_no_op_and_follow_the_full_load(csv_bed: FeedBed) -> None:
    csv_bed.text("id,name\n1,load\n", "LOAD00000001.csv")
    csv_bed.text("id,name\n1,inserted again\n", "20240501-120000123.csv")
    assert csv_bed.row()["name"] == "inserted again"


def test_a_column_that_a_later_file_lacks_comes_from_an_earlier_one(csv_bed: FeedBed) -> None:
    csv_bed.text("Op,id,name,price\nI,1,first,2.5\n", "20240501-1.csv")
    csv_bed.text("Op,id,name\nU,1,second\n", "20240501-2.csv")
    assert csv_bed.row() == {"id": 1, "name": "second", "price": Decimal("2.50"), "placed": KEPT}


def test_dms_writes_null_as_its_setting_says(csv_bed: FeedBed) -> None:
    csv_bed.text("Op,id,name,price\nI,1,NULL,NULL\nI,2,,\n", "1.csv")
    assert [one["name"] for one in csv_bed.left() if isinstance(one, dict)] == [None, ""]
    csv_bed.source = {"options": {"nullValue": ""}}
    csv_bed.text("Op,id,name,price\nI,1,NULL,\nI,2,,\n", "1.csv")
    assert [one["name"] for one in csv_bed.left() if isinstance(one, dict)] == ["NULL", None]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("I,1,a,2\nD,1,,\n", "files without a header lose deletes"),
        ("Op,id,id\nI,1,1\n", "stands twice in the header"),
        ("Op,id,name\nI,1\n", "does not have the 3 fields"),
        ("Op,id,name\nX,1,a\n", "its Op is none of I, U and D"),
        ("Op,id,name\nD,,a\n", "no value for the key column 'id'"),
        ("Op,id,price\nI,1,1.005\n", "column 'price'"),
        ("Op,id,NAME\nI,1,a\n", "the feed has a column 'NAME' and the table 'name'"),
        ("Op,id,placed\nI,1,0000-00-00 00:00:00\n", "zero date of MySQL"),
        ("Op,id,placed\nI,1,2024-05-01 12:00:00.1234567\n", "column 'placed'"),
        ("Op,id\nI,99999999999999999999\n", "column 'id'"),
    ],
)
def test_csv_of_dms_that_cannot_be_used_is_refused_by_line(csv_bed: FeedBed, text: str, says: str) -> None:
    with pytest.raises(BadData, match=r"'feed/1.csv', line ") as caught:
        csv_bed.text(text, "1.csv").left()
    assert says in str(caught.value)


def test_csv_of_dms_without_header_cannot_be_asked_for(csv_bed: FeedBed) -> None:
    csv_bed.text("Op,id\nI,1\n", "1.csv").source = {"options": {"header": "false"}}
    with pytest.raises(BadSpec, match=r"spec.source.options.header: must be true"):
        csv_bed.left()


def parquet(bed: FeedBed, name: str, **columns: pa.Array) -> FeedBed:
    path = bed.root / "feed" / name
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return bed


@pytest.fixture
def parquet_bed(tmp_path: Path) -> FeedBed:
    return FeedBed(tmp_path, ChangeFormat.DMS, SourceFormat.PARQUET, schema=EVERY)


def test_parquet_of_dms_with_op_in_other_letters_is_refused(parquet_bed: FeedBed) -> None:
    parquet(parquet_bed, "20240501.parquet", op=pa.array(["D"]), id=pa.array([1]))
    with pytest.raises(BadData, match="it has a column 'op' and no column 'Op'"):
        parquet_bed.left()


def test_parquet_of_dms_is_read_by_the_types_of_the_table(parquet_bed: FeedBed) -> None:
    nanos = pa.array([1_714_564_800_000_000_000], pa.timestamp("ns"))
    parquet(parquet_bed, "LOAD1.parquet", id=pa.array([1, 2]), small=pa.array([1, 2], pa.int64()))
    parquet(
        parquet_bed, "20240501.parquet", Op=pa.array(["U"]), id=pa.array([1], pa.int32()),
        wide=pa.array([0.1], pa.float32()), ratio=pa.array([0.5]),
        price=pa.array([Decimal("1.5000")], pa.decimal128(20, 4)),
        local=nanos, instant=nanos, text=pa.array(["x"]), raw=pa.array([b"\0"]), code=pa.array([None], pa.string()),
        unknown=pa.array([1]),
    )  # fmt: skip
    parquet(parquet_bed, "20240502.parquet", Op=pa.array(["D"]), id=pa.array([2]), small=pa.array([1 << 40]))
    found, deleted = parquet_bed.left()
    assert deleted == "deleted 2"
    assert isinstance(found, dict)
    assert found == dict.fromkeys(found, KEPT) | {
        "id": 1, "small": 1, "wide": pa.scalar(0.1, pa.float32()).as_py(), "ratio": 0.5, "price": Decimal("1.50"),
        "local": NOON, "instant": NOON.replace(tzinfo=UTC), "text": "x", "raw": b"\0", "code": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("small", pa.array([1 << 31])),
        ("small", pa.array([1.5])),
        ("ratio", pa.array([0.1])),
        ("wide", pa.array([(1 << 53) + 1])),
        ("wide", pa.array([Decimal("0.1")], pa.decimal128(38, 20))),
        ("price", pa.array([Decimal("1.005")], pa.decimal128(20, 3))),
        ("price", pa.array([12_345_678])),
        ("price", pa.array([1.005])),
        ("local", pa.array([1], pa.timestamp("ns"))),
        ("local", pa.array([1], pa.timestamp("us", tz="UTC"))),
        ("day", pa.array([1], pa.timestamp("us"))),
        ("flag", pa.array([1])),
        ("text", pa.array([1])),
        ("text", pa.array([b"x"])),
    ],
)
def test_a_value_of_parquet_is_never_cut(parquet_bed: FeedBed, column: str, values: pa.Array) -> None:
    parquet(parquet_bed, "1.parquet", Op=pa.array(["I"]), id=pa.array([1]), **{column: values})
    with pytest.raises(BadData, match=f"'feed/1.parquet'.*column '{column}'.* without loss"):
        parquet_bed.left()


@pytest.mark.parametrize(
    ("column", "kind", "values"),
    [
        ("day", "date", pa.array([3_000_000], pa.date32())),
        ("local", "timestamp", pa.array([1 << 40], pa.timestamp("s"))),
        ("instant", "timestamptz", pa.array([-1 << 36], pa.timestamp("s"))),
    ],
)
def test_a_year_that_feeds_do_not_take_is_told(parquet_bed: FeedBed, column: str, kind: str, values: pa.Array) -> None:
    parquet(parquet_bed, "1.parquet", Op=pa.array(["I"]), id=pa.array([1]), **{column: values})
    said = rf"'feed/1.parquet'.*column '{column}': a {kind} near row 1 is in a year before 1 or after 9999"
    with pytest.raises(BadData, match=said):
        parquet_bed.left()


def test_a_column_of_parquet_in_other_letters_is_refused(parquet_bed: FeedBed) -> None:
    with pytest.raises(BadData, match="the feed has a column 'TEXT' and the table 'text'"):
        parquet(parquet_bed, "1.parquet", Op=pa.array(["I"]), id=pa.array([1]), TEXT=pa.array(["x"])).left()


def test_parquet_of_dms_without_its_keys_is_refused(parquet_bed: FeedBed) -> None:
    with pytest.raises(BadData, match="it has no key column 'id'"):
        parquet(parquet_bed, "1.parquet", Op=pa.array(["D"]), text=pa.array(["x"])).left()
