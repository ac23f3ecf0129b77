"""Envelopes of Debezium: what each does, in which order, and what is refused. Shapes as its documentation has them."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from skipstone_core.contract.feeds import TimePrecision
from skipstone_core.contract.requests import ChangeFormat, SourceFormat
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.reasons import Reason

from tests.unit.feed_bed import EVERY, KEPT, MISSING, FeedBed, Row

PLACEHOLDER = "__debezium_unavailable_value"
NOON = datetime.fromisoformat("2024-05-01T12:00:00")
NOON_MILLIS = 1_714_564_800_000


def postgres(lsn: int, *, after_commit: int | None = None, **fields: Any) -> Row:
    sequence = json.dumps([None if after_commit is None else str(after_commit), str(lsn)])
    return {
        "version": "2.7.0.Final", "connector": "postgresql", "name": "PostgreSQL_server", "ts_ms": 1559033904863,
        "snapshot": "false", "db": "postgres", "sequence": sequence, "schema": "public", "table": "orders", "txId": 555,
        "lsn": lsn, "xmin": None, **fields,
    }  # fmt: skip


def mysql(file: str, pos: int, *, row: int = 0, **fields: Any) -> Row:
    return {
        "version": "2.7.0.Final", "connector": "mysql", "name": "mysql-server-1", "ts_ms": 1465491411815,
        "snapshot": "false", "db": "inventory", "sequence": None, "table": "orders", "server_id": 223344, "gtid": None,
        "file": file, "pos": pos, "row": row, "thread": 7, "query": None, **fields,
    }  # fmt: skip


def envelope(op: str, source: Row, before: Row | None = None, after: Row | None = None) -> Row:
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": source.get("ts_ms")}


def order(number: int, name: str | None = "n", **fields: Any) -> Row:
    return {"id": number, "name": name, "price": None, "placed": None, **fields}


@pytest.fixture
def bed(tmp_path: Path) -> FeedBed:
    return FeedBed(tmp_path, ChangeFormat.DEBEZIUM)


def test_each_operation_does_what_it_says(bed: FeedBed) -> None:
    bed.lines(
        envelope("r", postgres(1, snapshot="first"), after=order(1)),
        envelope("c", postgres(2), after=order(2)),
        envelope("u", postgres(3), after=order(3, "changed")),
        envelope("d", postgres(4), before=order(4, None)),
        envelope("m", postgres(5)),
        "",
        "null",
    )
    assert bed.left() == [order(1), order(2), order(3, "changed"), "deleted 4"]


def test_a_tombstone_behind_a_delete_is_no_row(bed: FeedBed) -> None:
    wrapped = {"schema": {"type": "struct", "fields": []}, "payload": None}
    bed.lines(envelope("d", postgres(4), before=order(4, None)), "null", wrapped)
    assert bed.left() == ["deleted 4"]


def test_an_update_that_changes_the_key_deletes_the_old_row(bed: FeedBed) -> None:
    bed.lines(envelope("u", postgres(3), before=order(1, "x"), after=order(2, "x")))
    assert bed.left() == ["deleted 1", order(2, "x")]


def test_before_that_does_not_hold_the_key_changes_no_key(bed: FeedBed) -> None:
    before = {"id": None, "name": "x", "price": None, "placed": None}
    bed.lines(envelope("u", postgres(3), before=before, after=order(2, "y")))
    assert bed.left() == [order(2, "y")]


def test_the_last_change_of_a_key_wins_by_its_place_in_the_log(bed: FeedBed) -> None:
    bed.lines(
        envelope("u", postgres(30, after_commit=25), after=order(1, "last")),
        envelope("c", postgres(20, after_commit=10), after=order(1, "first")),
        envelope("d", postgres(21, after_commit=10), before=order(1)),
    )
    assert bed.left() == [order(1, "last")]


def test_transactions_that_lie_across_each_other_are_ordered_by_their_commits(bed: FeedBed) -> None:
    """The second one began before the first one committed, so that its change has the smaller position."""
    bed.lines(
        envelope("u", postgres(20, after_commit=10), after=order(1, "first")),
        envelope("u", postgres(15, after_commit=30), after=order(1, "second")),
    )
    assert bed.left() == [order(1, "second")]


def test_a_snapshot_comes_before_the_changes_that_follow_it_whatever_their_time(bed: FeedBed) -> None:
    bed.lines(
        envelope("c", postgres(21, after_commit=20, ts_ms=1_000), after=order(1, "changed")),
        envelope("r", postgres(20, snapshot="true", ts_ms=9_000), after=order(1, "read")),
        envelope("u", postgres(22, ts_ms=1_000), after=order(2, "first transaction")),
        envelope("r", postgres(20, snapshot="last", ts_ms=9_000), after=order(2, "read")),
    )
    assert bed.left() == [order(1, "changed"), order(2, "first transaction")]


def test_a_first_transaction_that_lies_across_the_snapshot_comes_after_it(bed: FeedBed) -> None:
    """It began before the snapshot's place in the log. Positions as Debezium 3.6.1 and PostgreSQL 15 wrote them."""
    bed.lines(
        envelope("r", postgres(34753856, snapshot="true"), after=order(1, "read")),
        envelope("r", postgres(34753856, snapshot="last"), after=order(2, "read")),
    )
    bed.lines(
        envelope("u", postgres(34744240), after=order(1, "once")),
        envelope("u", postgres(34744960), after=order(1, "twice")),
        envelope("d", postgres(34744240), before=order(2)),
        envelope("u", postgres(34754400), after=order(3, "last")),
        envelope("u", postgres(34744960), after=order(3, "first")),
        envelope("c", postgres(34744100, after_commit=34809496), after=order(2, "again")),
        name="1.json",
    )
    assert bed.left() == [order(1, "twice"), order(2, "again"), order(3, "last")]


def test_a_second_snapshot_comes_after_the_first_transaction_that_was_before_it(bed: FeedBed) -> None:
    bed.lines(
        envelope("r", postgres(10, snapshot="last"), after=order(1, "read")),
        envelope("u", postgres(5), after=order(1, "first transaction")),
        envelope("u", postgres(12, after_commit=14), after=order(1, "second transaction")),
        envelope("r", postgres(20, snapshot="last"), after=order(1, "read again")),
    )
    assert bed.left() == [order(1, "read again")]


def test_without_sequence_commits_are_ordered_by_time_and_snapshots_come_first(bed: FeedBed) -> None:
    bed.lines(
        envelope("r", postgres(20, snapshot="true", ts_ms=9_000, sequence=None), after=order(1, "read")),
        envelope("u", postgres(15, ts_ms=3_000, sequence=None), after=order(1, "last")),
        envelope("u", postgres(25, ts_ms=2_000, sequence=None), after=order(1, "first")),
    )
    assert bed.left() == [order(1, "last")]


def test_binlog_files_are_ordered_by_number(bed: FeedBed) -> None:
    bed.lines(
        envelope("u", mysql("mysql-bin.1000000", 4), after=order(1, "last")),
        envelope("u", mysql("mysql-bin.999999", 900), after=order(1, "first")),
        envelope("u", mysql("mysql-bin.000003", 154, row=1), after=order(2, "last")),
        envelope("u", mysql("mysql-bin.000003", 154, row=0), after=order(2, "first")),
        envelope("r", mysql("mysql-bin.000003", 154, snapshot="true", server_id=0, ts_ms=1 << 41), after=order(2)),
    )
    assert bed.left() == [order(1, "last"), order(2, "last")]


def test_changes_of_sql_server_and_oracle_are_ordered_by_commit(tmp_path: Path) -> None:
    common = {"name": "s", "db": "shop", "schema": "dbo", "table": "orders", "snapshot": "false", "ts_ms": 5}

    def sql_server(commit: str, change: str | None, **more: Any) -> Row:
        return {"connector": "sqlserver", **common, "commit_lsn": commit, "change_lsn": change, **more}

    def oracle(commit: str | None, scn: str, **more: Any) -> Row:
        return {"connector": "oracle", **common, "commit_scn": commit, "scn": scn, **more}

    first = FeedBed(tmp_path / "a", ChangeFormat.DEBEZIUM).lines(
        envelope("u", sql_server("00000027:00000758:0005", "00000027:00000758:0003"), after=order(1, "last")),
        envelope("u", sql_server("00000027:00000750:0001", "00000027:00000760:0003"), after=order(1, "first")),
        envelope("r", sql_server("00000027:00000750:0001", None, snapshot="true"), after=order(1, "read")),
    )
    second = FeedBed(tmp_path / "b", ChangeFormat.DEBEZIUM).lines(
        envelope("u", oracle("9999999999999999999", "15"), after=order(1, "last")),
        envelope("u", oracle("999999999999999999", "20"), after=order(1, "first")),
        envelope("r", oracle(None, "10", snapshot="true"), after=order(1, "read")),
    )
    assert first.left() == second.left() == [order(1, "last")]


def test_connectors_that_are_not_known_are_ordered_by_time_then_by_place(bed: FeedBed) -> None:
    source = {"connector": "vitess", "name": "v", "db": "shop", "table": "orders", "ts_ms": 5, "snapshot": "false"}
    bed.lines(envelope("u", source | {"ts_ms": 6}, after=order(1, "last")), name="0.json")
    bed.lines(envelope("u", source, after=order(1)), envelope("u", source, after=order(2, "a")), name="1.json")
    bed.lines(envelope("u", source, after=order(2, "b")), envelope("u", source, after=order(2, "c")), name="2.json")
    assert bed.left() == [order(1, "last"), order(2, "c")]


@pytest.mark.parametrize("other", [{"server_id": 5}, {"name": "other"}, {"file": "other-bin.000003"}])
def test_changes_of_one_row_in_two_logs_are_refused(bed: FeedBed, other: Row) -> None:
    first, second = mysql("mysql-bin.000003", 3), mysql("mysql-bin.000003", 2) | other
    bed.lines(envelope("u", first, after=order(1)), envelope("u", second, after=order(2)))
    assert len(bed.left()) == 2
    bed.lines(envelope("u", second, after=order(1)), name="1.json")
    with pytest.raises(BadData, match="changes of one row come from two logs") as caught:
        bed.left()
    assert caught.value.reason is Reason.BAD_RECORDS


def test_a_truncate_is_refused_unless_it_is_allowed(bed: FeedBed) -> None:
    truncate = envelope("t", postgres(5, after_commit=4))
    bed.lines(
        envelope("c", postgres(3), after=order(1)), truncate, envelope("c", postgres(6, after_commit=5), after=order(2))
    )
    with pytest.raises(BadData, match=r"'feed/0.json', line 2: it is a truncate.*source.allowTruncate"):
        bed.left()
    bed.source = {"allow_truncate": True}
    assert bed.left() == [order(2)]


def test_a_value_that_is_unchanged_comes_from_an_earlier_change_else_from_the_table(bed: FeedBed) -> None:
    bed.lines(
        envelope("u", postgres(1), after=order(1, PLACEHOLDER)),
        envelope("u", postgres(2), after=order(2, "known")),
        envelope("u", postgres(3), after=order(2, PLACEHOLDER, price="1.50")),
        envelope("c", postgres(4), after={"id": 3, "name": "no price"}),
    )
    assert bed.left() == [
        order(1, MISSING),
        order(2, "known", price=Decimal("1.50")),
        {"id": 3, "name": "no price", "price": KEPT, "placed": KEPT},
    ]


def test_a_value_does_not_outlive_its_row(bed: FeedBed) -> None:
    bed.lines(
        envelope("u", postgres(1), after=order(1, "old")),
        envelope("d", postgres(2), before=order(1)),
        envelope("c", postgres(3), after={"id": 1, "name": "new"}),
    )
    assert bed.left() == [order(1, "new")]
    bed.lines(
        envelope("d", postgres(4), before=order(1)), envelope("c", postgres(5), after=order(1, PLACEHOLDER)), name="1"
    )
    with pytest.raises(BadData, match="column 'name': a change leaves its value out as unchanged"):
        bed.left()


def test_a_changed_key_takes_no_value_along_that_the_feed_does_not_have(bed: FeedBed) -> None:
    """As Debezium 3.6.1 writes an update of a key by PostgreSQL, with REPLICA IDENTITY DEFAULT: two messages."""
    moved = [
        envelope("d", postgres(4, after_commit=3), before=order(1, None)),
        envelope("c", postgres(4, after_commit=3), after=order(2, PLACEHOLDER)),
    ]
    bed.lines(*moved)
    assert bed.left() == ["deleted 1", order(2, MISSING)]


def test_placeholders_of_every_type_are_known(tmp_path: Path) -> None:
    bed = FeedBed(tmp_path, ChangeFormat.DEBEZIUM, schema=EVERY)
    numbers = list(PLACEHOLDER.encode())
    after = {"id": 1, "raw": base64.b64encode(PLACEHOLDER.encode()).decode(), "tags": [PLACEHOLDER], "counts": numbers,
             "pairs": {PLACEHOLDER: PLACEHOLDER}, "text": PLACEHOLDER}  # fmt: skip
    found = bed.lines(envelope("u", postgres(1), after=after)).row()
    assert {name for name, value in found.items() if value == MISSING} == set(after) - {"id"}
    as_text = f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}'
    bed.lines(envelope("u", postgres(2), after={"id": 2, "pairs": as_text, "text": as_text}), name="1.json")
    second = bed.left()[1]
    assert isinstance(second, dict)
    assert second["pairs"] == second["text"] == MISSING


def schema_of(*columns: Row) -> Row:
    image = {"type": "struct", "optional": True, "name": "s.public.orders.Value", "fields": list(columns)}
    fields = [
        {**image, "field": "before"}, {**image, "field": "after"},
        {"type": "struct", "fields": [], "optional": False, "name": "io.debezium.connector.postgresql.Source",
         "field": "source"},
        {"type": "string", "optional": False, "field": "op"}, {"type": "int64", "optional": True, "field": "ts_ms"},
    ]  # fmt: skip
    return {"type": "struct", "fields": fields, "optional": False, "name": "s.public.orders.Envelope"}


def typed(name: str, kind: str, semantic: str = "", **parameters: str) -> Row:
    found: Row = {"type": kind, "optional": True, "field": name}
    if semantic:
        found |= {"name": semantic, "version": 1}
    return found | ({"parameters": parameters} if parameters else {})


CONNECT, TIME = "org.apache.kafka.connect.data.", "io.debezium.time."


@pytest.mark.parametrize(
    ("column", "semantic", "value", "expected"),
    [
        ("local", f"{TIME}Timestamp", NOON_MILLIS, NOON),
        ("local", f"{TIME}MicroTimestamp", NOON_MILLIS * 1000, NOON),
        ("local", f"{TIME}NanoTimestamp", NOON_MILLIS * 1_000_000, NOON),
        ("local", f"{TIME}IsoTimestamp", "2024-05-01T12:00:00Z", NOON),
        ("instant", f"{TIME}ZonedTimestamp", "2024-05-01T14:00:00+02:00", NOON.replace(tzinfo=UTC)),
        ("day", f"{TIME}Date", 19844, NOON.date()),
        ("day", f"{CONNECT}Date", 19844, NOON.date()),
        ("clock", f"{TIME}Time", 43_200_000, NOON.time()),
        ("clock", f"{TIME}MicroTime", 43_200_000_000, NOON.time()),
        ("clock", f"{TIME}NanoTime", 43_200_000_000_000, NOON.time()),
        ("clock", f"{TIME}ZonedTime", "12:00:00Z", NOON.time()),
        ("text", "io.debezium.data.Json", '{"a": 1}', '{"a": 1}'),
        ("code", "io.debezium.data.Uuid", "00000000-0000-0000-0000-00000000000A", bytes(15) + b"\n"),
    ],
)
def test_the_schema_of_a_message_says_what_its_values_are(
    tmp_path: Path, column: str, semantic: str, value: Any, expected: object
) -> None:
    schema = schema_of(typed("id", "int64"), typed(column, "int64", semantic))
    payload = envelope("c", postgres(1), after={"id": 1, column: value})
    bed = FeedBed(tmp_path, ChangeFormat.DEBEZIUM, schema=EVERY).lines({"schema": schema, "payload": payload})
    assert bed.row()[column] == expected


@pytest.mark.parametrize(
    ("column", "name", "value", "expected"),
    [
        ("local", "Timestamp", NOON_MILLIS, NOON),
        ("clock", "Time", 43_200_000, NOON.time()),
        ("text", "Time", 43_200_000, "12:00:00.000000"),
    ],
)
def test_times_that_connect_cuts_to_milliseconds_are_refused_unless_that_is_all_they_have(
    tmp_path: Path, column: str, name: str, value: int, expected: object
) -> None:
    """``time.precision.mode=connect``: 12:34:56.123456 of PostgreSQL arrives as 12:34:56.123."""
    schema = schema_of(typed("id", "int64"), typed(column, "int64", f"{CONNECT}{name}"))
    payload = envelope("c", postgres(1), after={"id": 1, column: value})
    bed = FeedBed(tmp_path, ChangeFormat.DEBEZIUM, schema=EVERY).lines({"schema": schema, "payload": payload})
    with pytest.raises(BadData, match=r"set time.precision.mode to adaptive, or source.timePrecision to Millis"):
        bed.left()
    bed.source = {"time_precision": TimePrecision.MILLIS}
    assert bed.row()[column] == expected


def test_decimals_are_read_in_every_handling_mode(tmp_path: Path) -> None:
    exact = typed("price", "bytes", f"{CONNECT}Decimal", scale="2", **{"connect.decimal.precision": "9"})
    variable = typed("price", "struct", "io.debezium.data.VariableScaleDecimal")
    text, double = typed("price", "string"), typed("price", "double")
    minus = base64.b64encode((-12345).to_bytes(2, "big", signed=True)).decode()
    cases = [(exact, minus), (variable, {"scale": 2, "value": minus}), (text, "-123.45"), (double, -123.45)]
    for number, (column, value) in enumerate(cases):
        payload = envelope("c", postgres(1), after={"id": 1, "price": value})
        bed = FeedBed(tmp_path / str(number), ChangeFormat.DEBEZIUM)
        bed.lines({"schema": schema_of(typed("id", "int64"), column), "payload": payload})
        assert bed.row()["price"] == Decimal("-123.45")


def test_times_without_schema_need_their_unit(bed: FeedBed) -> None:
    bed.lines(envelope("c", postgres(1), after=order(1, placed=NOON_MILLIS)))
    with pytest.raises(BadData, match=r"'feed/0.json', line 1: column 'placed': .* set source.timePrecision"):
        bed.left()
    bed.source = {"time_precision": TimePrecision.MILLIS}
    assert bed.row()["placed"] == NOON


def test_text_with_an_offset_is_no_timestamp_unless_a_schema_says_so(bed: FeedBed) -> None:
    """As Debezium 3.6.1 writes a timestamp of PostgreSQL with time.precision.mode=isostring, and a timestamptz."""
    bed.lines(envelope("c", postgres(1), after=order(1, placed="2040-03-11T20:53:14.738Z")))
    with pytest.raises(BadData, match=r"column 'placed': .* timestamp, but text with an offset .*schemas.enable=true"):
        bed.left()


@pytest.mark.parametrize(
    ("column", "value"),
    [("small", 1 << 31), ("small", 1.5), ("ratio", 0.12345678901), ("wide", 2**53 + 1),
     ("wide", "1.2345e-320"), ("wide", "1e400"), ("ratio", "1e39"),
     ("price", "1.005"),
     ("price", 10_000_000), ("text", 5), ("raw", "not base64!"), ("code", "x"), ("flag", 2), ("text", "\ud800"),
     ("wide", "Infinite"), ("local", "2024-05-01T12:00:00+02:00"), ("local", "2024-05-01T12:00:00.1234567"),
     ("day", "2024-02-30"), ("clock", "24:00:00"), ("counts", ["x"]),
        ("counts", [None]), ("pairs", [1]), ("shape", {"x": 1})],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_refused_by_file_line_and_column(tmp_path: Path, column: str, value: Any) -> None:
    bed = FeedBed(tmp_path, ChangeFormat.DEBEZIUM, schema=EVERY)
    bed.lines(envelope("c", postgres(1), after={"id": 1}), envelope("c", postgres(2), after={"id": 2, column: value}))
    with pytest.raises(BadData, match=rf"'feed/0.json', line 2: column '{column}'") as caught:
        bed.left()
    assert caught.value.reason is Reason.BAD_RECORDS
    assert str(value) not in str(caught.value) or len(str(value)) == 1


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ({"op": "c", "after": order(1)}, "it is not a change event"),
        ({"status": "BEGIN", "id": "571"}, "it is not a change event"),
        ({"__op": "c", "__deleted": "false", "id": 1}, "set source.changeFormat to DebeziumFlat"),
        (envelope("x", postgres(1), after=order(1)), "its op is none of"),
        (envelope("d", postgres(1)), "REPLICA IDENTITY"),
        (envelope("d", postgres(1), before=order(1) | {"id": None}), "no value for the key column 'id'"),
        (envelope("c", postgres(1, table=None), after=order(1)), "does not name a table"),
        (envelope("c", postgres(1, sequence="x"), after=order(1)), "'source.sequence' is not a list"),
        (envelope("c", mysql("binlog", 1), after=order(1)), "does not end with a number"),
        (envelope("c", mysql("b.1", 1) | {"pos": None}, after=order(1)), "has no 'pos'"),
        (envelope("c", {"connector": "mongodb", "db": "d", "collection": "c"}), "MongoDB"),
        ("[1]", "it is not a JSON object"),
        ('{"op": ', "it is not a JSON object"),
    ],
)
def test_messages_that_cannot_be_used_are_refused_by_line(bed: FeedBed, message: object, says: str) -> None:
    bed.lines(envelope("c", postgres(1), after=order(1)), message)
    with pytest.raises(BadData, match=r"'feed/0.json', line 2: ") as caught:
        bed.left()
    assert says in str(caught.value)


def test_a_feed_of_two_tables_is_refused(bed: FeedBed) -> None:
    bed.lines(envelope("c", postgres(1), after=order(1)), envelope("c", postgres(2, table="lines"), after=order(2)))
    with pytest.raises(BadData, match=r"changes of 'postgres.public.lines' and of 'postgres.public.orders'"):
        bed.left()


def test_options_have_no_meaning_for_envelopes(bed: FeedBed) -> None:
    bed.lines(envelope("c", postgres(1), after=order(1))).source = {"options": {"multiLine": "true"}}
    with pytest.raises(BadSpec, match=r"spec.source.options.multiLine"):
        bed.left()


def avro_schema(*columns: Row) -> Row:
    value = {"type": "record", "name": "Value", "fields": list(columns)}
    source = [
        {"name": name, "type": ["null", kind], "default": None}
        for name, kind in (("connector", "string"), ("name", "string"), ("ts_ms", "long"), ("db", "string"),
                           ("schema", "string"), ("table", "string"), ("sequence", "string"), ("lsn", "long"))
    ]  # fmt: skip
    fields: list[Row] = [
        {"name": "before", "type": ["null", value], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": {"type": "record", "name": "Source", "namespace": "io.debezium", "fields": source}},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ]
    return {"type": "record", "name": "Envelope", "namespace": "s.public.orders", "fields": fields}


def test_avro_tells_types_and_scales_by_its_schema(tmp_path: Path) -> None:
    stamp = {"type": "long", "connect.version": 1, "connect.name": f"{TIME}Timestamp"}
    price = {"type": "bytes", "scale": 2, "precision": 9, "connect.version": 1, "connect.name": f"{CONNECT}Decimal",
             "connect.parameters": {"scale": "2"}, "logicalType": "decimal"}  # fmt: skip
    day = {"type": "int", "connect.name": f"{TIME}Date", "connect.version": 1}
    schema = avro_schema(
        {"name": "id", "type": "long"}, {"name": "local", "type": ["null", stamp]},
        {"name": "price", "type": ["null", price]}, {"name": "day", "type": ["null", day]},
        {"name": "ratio", "type": ["null", "float"]}, {"name": "raw", "type": ["null", "bytes"]},
        {"name": "tags", "type": ["null", {"type": "array", "items": ["null", "string"]}]},
        {"name": "pairs", "type": ["null", {"type": "map", "values": ["null", "string"]}]},
        {"name": "text", "type": ["null", {"type": "enum", "name": "Kind", "symbols": ["a", "b"]}]},
    )  # fmt: skip
    full = {"id": 1, "local": NOON_MILLIS, "price": Decimal("-1.50"), "day": 19844, "ratio": 0.5, "raw": b"\0\xff",
            "tags": ["x", None], "pairs": {"k": "v"}, "text": "b"}  # fmt: skip
    left = dict.fromkeys(full) | {"id": 2, "raw": PLACEHOLDER.encode()}
    records = [
        envelope("c", postgres(1), after=full),
        envelope("u", postgres(2), after=left),
        envelope("d", postgres(3), before=dict.fromkeys(full) | {"id": 3}),
    ]
    bed = FeedBed(tmp_path, ChangeFormat.DEBEZIUM, SourceFormat.AVRO, schema=EVERY).avro(schema, records)
    first, second, third = bed.left()
    assert isinstance(first, dict)
    assert {name: first[name] for name in full} == full | {"local": NOON, "day": NOON.date(), "pairs": [("k", "v")]}
    assert isinstance(second, dict)
    assert second["raw"] == MISSING
    assert third == "deleted 3"
