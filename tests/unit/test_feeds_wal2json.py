"""Messages of wal2json: those of tables with every kind of replica identity, as wal2json 2.5 wrote them."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)
from skipstone_core.contract.feeds import Infinity, NonFinite
from skipstone_core.contract.requests import ChangeFormat
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.merging.feeds import require_feed

from tests.unit.feed_bed import EVERY, KEPT, MISSING, FeedBed, Row

TYPES = {"id": "integer", "text": "text", "price": "numeric(9,2)", "wide": "double precision", "ratio": "real",
         "flag": "boolean", "small": "smallint", "day": "date", "local": "timestamp without time zone",
         "instant": "timestamp(3) with time zone", "raw": "bytea", "tags": "text[]", "counts": "integer[]",
         "code": "uuid", "codes": "uuid[]"}  # fmt: skip
DECIMALS = NestedField(2, "d", ListType(9, DecimalType(9, 2), element_required=False))
NUMBERS = NestedField(2, "n", DecimalType(38, 4))


@pytest.fixture
def bed(tmp_path: Path) -> FeedBed:
    return FeedBed(tmp_path, ChangeFormat.WAL2JSON, schema=EVERY)


def listed(row: Row, **types: str) -> list[Row]:
    return [{"name": name, "type": (TYPES | types)[name], "value": value} for name, value in row.items()]


def message(action: str, at: int, new: Row | None = None, old: Row | None = None, **more: Any) -> Row:
    """``new``: the columns of a row, ``old``: those of the replica identity."""
    told: Row = {"action": action, "lsn": f"0/{at:X}", "schema": "public", "table": "orders"}
    if new is not None:
        told["columns"] = listed(new)
    if old is not None:
        told["identity"] = listed(old)
    return {**told, "pk": [{"name": "id", "type": "integer"}], **more}


def typed(tmp_path: Path, field: NestedField, kind: str, *values: str, **source: Any) -> list[object]:
    """What is read of ``values`` of a column of the type ``kind`` in PostgreSQL, which stand in JSON as they are."""
    schema = Schema(NestedField(1, "id", LongType(), required=True), field)
    bed = FeedBed(tmp_path, ChangeFormat.WAL2JSON, schema=schema, source=source)
    lines = [
        f'{{"action":"I","lsn":"0/{at}","schema":"public","table":"t","columns":[{{"name":"id","type":"bigint","value":'
        f'{at}}},{{"name":"{field.name}","type":{json.dumps(kind)},"value":{value}}}],"pk":[{{"name":"id"}}]}}'
        for at, value in enumerate(values)
    ]
    return [row[field.name] for row in bed.lines(*lines).left() if isinstance(row, dict)]


def test_each_message_does_what_it_says(bed: FeedBed) -> None:
    bed.lines(
        {"action": "B", "xid": 1, "lsn": "0/9", "nextlsn": "0/99"},
        message("I", 1, {"id": 1, "text": "new", "small": 7}),
        message("U", 2, {"id": 1, "text": "after", "small": 8}, {"id": 1}),
        message("U", 3, {"id": 3, "text": "moved"}, {"id": 2}),
        message("D", 4, None, {"id": 4}),
        {"action": "M", "lsn": "0/9", "transactional": False, "prefix": "p", "content": "c"},
        {"action": "C", "xid": 1, "lsn": "0/9", "nextlsn": "0/99"},
    )
    left = [row if isinstance(row, str) else (row["id"], row["text"], row["small"]) for row in bed.left()]
    assert left == [(1, "after", 8), "deleted 2", (3, "moved", KEPT), "deleted 4"]


def test_changes_are_ordered_by_their_places_in_the_log(bed: FeedBed) -> None:
    bed.lines(
        message("U", 0, {"id": 1, "text": "last"}, {"id": 1}, lsn="10/0"),
        message("I", 0, {"id": 1, "text": "first"}, lsn="9/FFFFFFFF"),
        name="0.json",
    ).lines(message("D", 0, None, {"id": 1}, lsn="2/AB"), name="1.json")
    assert bed.row()["text"] == "last"


def test_a_value_that_is_not_logged_stays(bed: FeedBed) -> None:
    """It is of an earlier change, of the old row, or of the table; a row cannot be inserted without it."""
    bed.lines(
        message("I", 1, {"id": 1, "text": "large", "small": 1}),
        message("U", 2, {"id": 1, "small": 2}, {"id": 1}),
        message("U", 3, {"id": 2, "small": 2}, {"id": 2}),
        message("U", 4, {"id": 4, "small": 2}, {"id": 3, "text": "old", "small": 1}),
    )
    one, two, three, four = bed.left()
    assert isinstance(one, dict)
    assert isinstance(two, dict)
    assert isinstance(four, dict)
    assert (one["text"], one["small"], one["tags"]) == ("large", 2, KEPT)
    assert (two["text"], two["small"], two["tags"]) == (MISSING, 2, KEPT)
    assert (three, four["text"], four["small"]) == ("deleted 3", "old", 2)


def test_a_column_that_the_source_does_not_have_is_not_missed(bed: FeedBed) -> None:
    """The row is inserted without it, so that an update without it leaves nothing out."""
    bed.lines(
        message("D", 1, None, {"id": 1}),
        message("I", 2, {"id": 1, "text": "a"}),
        message("U", 3, {"id": 1, "text": "b"}, {"id": 1}),
    )
    assert (bed.row()["text"], bed.row()["tags"]) == ("b", None)


def test_a_column_that_was_dropped_is_not_missed(bed: FeedBed) -> None:
    """An insert without it tells so, and an old row that is told whole, as only FULL has columns with null."""
    first = message("I", 1, {"id": 1, "text": "a", "small": None})
    whole = message("U", 2, {"id": 2, "small": 5}, {"id": 1, "small": None})
    one, two = bed.lines(first, whole).left()
    assert isinstance(two, dict)
    assert (one, two["id"], two["text"]) == ("deleted 1", 2, KEPT)
    other = message("U", 4, {"id": 2, "small": 5}, {"id": 1, "small": 5})
    bed.lines(first, message("I", 3, {"id": 3, "small": 1}), other)
    assert MISSING not in [value for row in bed.left() if isinstance(row, dict) for value in row.values()]
    bed.lines(first, other)
    assert [row["text"] for row in bed.left() if isinstance(row, dict)] == [MISSING]


def test_an_identity_that_is_not_whole_any_more_may_leave_values_out(bed: FeedBed) -> None:
    """The table was altered from FULL to its primary key, and its only other column is large."""
    whole = message("U", 1, {"id": 1, "text": "b"}, {"id": 1, "text": None})
    bed.lines(whole, message("D", 2, None, {"id": 9, "text": "c"}), message("U", 3, {"id": 3}, {"id": 2}))
    assert [row["text"] for row in bed.left() if isinstance(row, dict)] == ["b", MISSING]


def test_text_of_any_length_is_missed_whatever_type_the_column_has(tmp_path: Path) -> None:
    """The values of a wide row are stored apart, those of UUIDs and times in columns of text too."""
    schema = Schema(*(field for field in EVERY.fields if field.name in ("id", "local", "code", "small")))
    bed = FeedBed(tmp_path, ChangeFormat.WAL2JSON, schema=schema)
    row = {"id": 1, "local": "2024-05-01T10:00:00.123456", "code": "12345678-1234-1234-1234-123456789012"}
    created, moved = (
        message("I", 1, {**row, "small": 1}),
        message("U", 2, {"id": 2, "small": 1}, {"id": 1}),
    )
    left = bed.lines(created, moved).left()
    expected = {"id": 2, "small": 1, "local": MISSING, "code": MISSING}
    assert left == ["deleted 1", expected], "the table has no row 2 that holds the values"


@pytest.mark.parametrize("action", ["U", "D"])
def test_a_key_that_two_rows_share_in_a_transaction_is_refused(bed: FeedBed, action: str) -> None:
    """`update orders set id = id + 1` with REPLICA IDENTITY FULL and a primary key that is deferrable."""
    bed.source, bed.schema = {"replica_identity": ("id",)}, Schema(*EVERY.fields[:1], EVERY.find_field("text"))
    moved = message("U", 2, {"id": 2, "text": "a"}, {"id": 1, "text": "a"}, pk=[])
    last = message(action, 3, {"id": 3, "text": "b"} if action == "U" else None, {"id": 2, "text": "b"}, pk=[])
    begin = {"action": "B", "lsn": "0/9", "nextlsn": "0/99"}
    bed.lines(begin, moved, last)
    with pytest.raises(BadData, match=r"line 3: another row got the key .* NOT DEFERRABLE and merge a new snapshot"):
        bed.left()
    same = message("U", 3, {"id": 3, "text": "a"}, {"id": 2, "text": "a"}, pk=[])
    bed.lines(begin, moved, same, begin, message("U", 4, {"id": 2, "text": "c"}, {"id": 4, "text": "c"}, pk=[]))
    assert bed.left()[0] == "deleted 1", "one row that moves on"
    bed.lines(begin, moved, begin, last)
    assert bed.left()[0] == "deleted 1", "a change between two transactions that the feed does not have"


@pytest.mark.parametrize("action", ["U", "D"])
def test_a_key_outside_the_replica_identity_is_refused(bed: FeedBed, action: str) -> None:
    """An update may have changed such a key, and only its new value is told."""
    bed.lines(message(action, 1, {"id": 2, "text": "a", "small": 5} if action == "U" else None, {"small": 5}))
    with pytest.raises(BadData, match=r"does not have the key column 'id'.* among small, or run ALTER TABLE"):
        bed.left()


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"pk": []}, r"has no primary key, .* REPLICA IDENTITY FULL .* name all keys in source.replicaIdentity"),
        ({"pk": None}, r"has no primary key"),
        ({"lsn": None}, r"does not tell 'lsn'.* set include-lsn of wal2json to true"),
        ({"schema": None}, r"set include-schemas of wal2json to true"),
        ({"columns": [{"name": "id", "value": 1}]}, r"set include-types of wal2json to true"),
        ({"columns": ["id"]}, r"its 'columns' is not a list of columns"),
        ({"action": "X"}, r"it is not a message of wal2json"),
        ({"change": [], "action": None}, r"set format-version of wal2json to 2"),
        ({"columns": listed({"id": None})}, r"no value for the key column 'id'"),
    ],
)
def test_a_message_that_lacks_something_is_refused(bed: FeedBed, more: Row, sentence: str) -> None:
    bed.lines(message("I", 1, {"id": 1}), {**message("I", 2, {"id": 2}), **more})
    with pytest.raises(BadData, match=rf"'feed/0.json', line 2: .*{sentence}"):
        bed.left()


@pytest.mark.parametrize("kind", ['"Odd S"."T x"', '"Odd S".t'])
def test_a_type_that_is_not_json_is_told(bed: FeedBed, kind: str) -> None:
    """As wal2json 2.5 writes the name of a type in a schema that needs quotes."""
    line = json.dumps(message("I", 1, {"id": 1, "text": "a"})).replace('"type": "text"', f'"type":{kind}')
    with pytest.raises(BadData, match="rename the schema in the database"):
        bed.lines(line).left()


def test_a_message_without_primary_key_needs_a_declared_identity(bed: FeedBed) -> None:
    told = message("I", 1, {"id": 1})
    del told["pk"]
    with pytest.raises(BadData, match="set include-pk of wal2json to true, or name the columns"):
        bed.lines(told).left()
    bed.source = {"replica_identity": ("id",)}
    assert bed.row()["id"] == 1


def test_a_truncate_empties_the_table_if_it_may(bed: FeedBed) -> None:
    truncate = {"action": "T", "lsn": "0/2", "schema": "public", "table": "orders"}
    bed.lines(message("I", 1, {"id": 1}), truncate, message("I", 3, {"id": 2}))
    with pytest.raises(BadData, match=r"line 2: it is a truncate.* set source.allowTruncate to true"):
        bed.left()
    bed.source = {"allow_truncate": True}
    assert bed.row()["id"] == 2


def test_tables_are_chosen_by_name(bed: FeedBed) -> None:
    other = message("I", 2, {"id": 2}, table="other", columns=[{"name": "x", "type": "text", "value": None}])
    bed.lines(message("I", 1, {"id": 1}), other)
    with pytest.raises(BadData, match="no value for the key column"):
        bed.left()
    bed.source = {"tables": ("public.orders",)}
    assert bed.row()["id"] == 1
    assert sorted(bed.changes()["_skipstone_op"].to_pylist()) == ["S", "U"]


def test_partitions_are_one_table_when_all_are_named(bed: FeedBed) -> None:
    """A row that moves to another partition is deleted in one and inserted in the other."""
    moved = (
        message("D", 2, None, {"id": 1}, table="orders_1"),
        message("I", 3, {"id": 1, "text": "b"}, table="orders_2"),
    )
    bed.lines(message("I", 1, {"id": 1, "text": "a"}, table="orders_1"), *moved)
    with pytest.raises(BadData, match=r"name the table, or all partitions of one, in source.tables"):
        bed.left()
    bed.source = {"tables": ("public.orders_*",), "allow_truncate": True}
    assert bed.row()["text"] == "b"
    bed.lines({**message("T", 4), "table": "orders_1"}, name="1.json")
    with pytest.raises(BadData, match=r"truncate of one of the tables that source.tables names"):
        bed.left()


def test_values_are_those_of_the_database(bed: FeedBed) -> None:
    bed.lines(
        message(
            "I",
            1,
            {"id": 1, "text": 'ä"\\', "price": 1.5, "flag": True, "small": 7, "day": "2024-05-01", "raw": "00ff",
             "local": "1582-10-10 12:00:00.5", "instant": "2024-05-01 07:30:00.5-02:30", "counts": "{1,2}",
             "tags": '{a,NULL,"b c","NULL","q\\"\\\\",""}', "code": "00000000-0000-0000-0000-000000000001",
             "codes": "{00000000-0000-0000-0000-000000000002,NULL}"},
        )
    )  # fmt: skip
    found = bed.row()
    assert found == dict.fromkeys(found, KEPT) | {
        "id": 1, "text": 'ä"\\', "price": Decimal("1.5"), "flag": True, "small": 7, "day": date(2024, 5, 1),
        "raw": b"\0\xff", "local": datetime.fromisoformat("1582-10-10T12:00:00.5"), "counts": [1, 2],
        "instant": datetime(2024, 5, 1, 10, 0, 0, 500_000, UTC), "tags": ["a", None, "b c", "NULL", 'q"\\', ""],
        "code": bytes(15) + b"\1", "codes": [bytes(15) + b"\2", None],
    }  # fmt: skip


def test_numbers_keep_their_digits_and_their_sign(tmp_path: Path) -> None:
    text, double = NestedField(2, "n", StringType()), NestedField(2, "n", DoubleType())
    assert typed(tmp_path / "a", text, "numeric", "1.50", "12345678901234567890123.4500", "7" * 9999) == [
        "1.50", "12345678901234567890123.4500", "7" * 9999,
    ]  # fmt: skip
    assert typed(tmp_path / "b", text, "double precision", "1e+300", "-0") == ["1e+300", "-0"]
    zero, large = typed(tmp_path / "c", double, "double precision", "-0", "1.7976931348623157e+308")
    assert isinstance(zero, float)
    assert (math.copysign(1, zero), large) == (-1, 1.7976931348623157e308)
    assert typed(tmp_path / "d", NUMBERS, "numeric(38,4)", "1234567890123456789012345678901234.5678", "-5") == [
        Decimal("1234567890123456789012345678901234.5678"), Decimal(-5),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["numeric", "numeric(9,2)", "real", "double precision"])
def test_a_null_that_may_be_no_number_is_refused(tmp_path: Path, kind: str) -> None:
    """wal2json writes null for NaN and infinities, unless it writes numbers in quotes."""
    with pytest.raises(BadData, match=r"column 'n'.* set numeric-data-types-as-string .* or source.nonFinite to Null"):
        typed(tmp_path / "a", NUMBERS, kind, "1", "null")
    assert typed(tmp_path / "b", NUMBERS, kind, "1", "null", non_finite=NonFinite.NULL) == [1, None]
    assert typed(tmp_path / "c", NUMBERS, "integer", "1", "null") == [1, None]


def test_numbers_in_quotes_tell_what_is_no_number(tmp_path: Path) -> None:
    """As wal2json 2.6 writes them with numeric-data-types-as-string. Domains are always quoted, and prove nothing."""
    schema = Schema(NestedField(1, "id", LongType(), required=True), NUMBERS, NestedField(3, "f", DoubleType()))
    bed = FeedBed(tmp_path, ChangeFormat.WAL2JSON, schema=schema)
    types = {"n": "numeric", "f": "double precision"}
    rows = [("1", "1.50", "NaN"), ("2", None, "-Infinity"), ("3", "7", None)]
    messages = [
        {**message("I", at), "columns": listed({"id": number, "n": n, "f": f}, **types)}
        for at, (number, n, f) in enumerate(rows)
    ]
    first, second, third = (row for row in bed.lines(*messages).left() if isinstance(row, dict))
    assert (first["n"], math.isnan(first["f"])) == (Decimal("1.5"), True)
    assert (second["n"], second["f"], third["n"], third["f"]) == (None, -math.inf, 7, None)
    unquoted = {**message("I", 9), "columns": listed({"id": 4, "n": "1", "f": None}, **types)}
    with pytest.raises(BadData, match="column 'f'"):
        bed.lines(unquoted, name="1.json").left()


@pytest.mark.parametrize(
    ("field", "kind", "value", "sentence"),
    [
        (NestedField(2, "d", DateType()), "date", '"0044-03-15 BC"', "declare the column as string if it has years"),
        (NestedField(2, "d", DateType()), "date", '"10/10/1582"', "set datestyle to ISO"),
        (NestedField(2, "d", DateType()), "date", '"infinity"', "set source.infinity to Null or Max"),
        (NestedField(2, "d", TimestampType()), "timestamp without time zone", '"10000-01-01 00:00:00"', "as string if"),
        (NestedField(2, "d", TimestampType()), "timestamp with time zone", '"2024-05-01 10:00:00+00"', "timestamptz"),
        (NestedField(2, "d", TimestamptzType()), "timestamp with time zone", '"-infinity"', "set source.infinity to"),
        (NestedField(2, "d", BinaryType()), "bytea", '"36\\\\255"', "set bytea_output to hex"),
        (NestedField(2, "d", StringType()), "bytea", '"00ff"', "declare the column as binary"),
        (NestedField(2, "d", BinaryType()), "bit(9)", '"10100000"', "declare the column as string"),
        (NestedField(2, "d", FixedType(4)), "text", '"abcd"', "declare the column as string"),
        (NUMBERS, "price", '"NaN"', "set source.nonFinite to Null"),
        (NUMBERS, "numeric", "0.00001", "declare the column with more digits"),
        (NestedField(2, "d", LongType()), "money", '"$12.34"', "long without loss: declare the column as string"),
        (NestedField(2, "d", StringType()), "boolean", "true", "without loss: declare the column as boolean"),
        (NestedField(2, "d", ListType(9, LongType())), "integer[]", '"{1,NULL}"', "a value of type list<long>"),
        (NestedField(2, "d", ListType(9, LongType())), "integer[]", '"{{1,2},{3,4}}"', "more than one dimension"),
        (NestedField(2, "d", ListType(9, LongType())), "integer[]", '"[2:3]={1,2}"', "does not begin at 1"),
        (NestedField(2, "d", ListType(9, LongType())), "int2vector", '"1 2"', "a value of type list<long>"),
        (DECIMALS, "numeric[]", '"{1.5,NaN}"', "source.nonFinite to Null"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_names_a_way_out(
    tmp_path: Path, field: NestedField, kind: str, value: str, sentence: str
) -> None:
    with pytest.raises(BadData, match=f"line 1: column '{field.name}'.*{sentence}"):
        typed(tmp_path, field, kind, value)


def test_ways_out_are_ways_out(tmp_path: Path) -> None:
    day = NestedField(2, "d", DateType())
    text = NestedField(2, "d", StringType())
    assert typed(tmp_path / "a", day, "date", '"infinity"', infinity=Infinity.MAX) == [date.max]
    assert typed(tmp_path / "b", DECIMALS, "numeric[]", '"{1.5,NaN}"', non_finite=NonFinite.NULL) == [
        [Decimal("1.5"), None]
    ]
    assert typed(tmp_path / "c", text, "integer[]", '"[2:3]={1,2}"') == ["[2:3]={1,2}"]
    assert typed(tmp_path / "d", text, "date", '"0044-03-15 BC"') == ["0044-03-15 BC"]
    assert typed(tmp_path / "e", text, "bit(9)", '"000000001"') == ["000000001"]
    octets = NestedField(2, "d", ListType(9, BinaryType(), element_required=False))
    assert typed(tmp_path / "f", octets, "bytea[]", '"{\\"\\\\\\\\x00ff\\",NULL}"') == [[b"\0\xff", None]]


def test_a_type_that_changes_in_mid_feed_is_read_as_each_message_says(bed: FeedBed) -> None:
    old, new = message("I", 1, {"id": 1, "raw": "00ff"}), message("I", 2, {"id": 2, "text": "b"})
    bed.lines(old, {**new, "columns": listed({"id": 2, "text": "12"}, text="varchar", id="bigint")})
    assert [row["id"] for row in bed.left() if isinstance(row, dict)] == [1, 2]


@pytest.mark.parametrize("name", ["allow_truncate", "non_finite", "infinity", "replica_identity", "tables"])
def test_fields_that_have_a_meaning_are_taken(bed: FeedBed, name: str) -> None:
    values: Row = {
        "non_finite": NonFinite.NULL,
        "infinity": Infinity.NULL,
        "replica_identity": ("id",),
        "tables": ("*",),
    }
    bed.source = {name: values.get(name, True)}
    assert bed.lines(message("I", 1, {"id": 1})).row()["id"] == 1


@pytest.mark.parametrize("name", ["time_precision", "unavailable_value"])
def test_other_fields_are_refused(tmp_path: Path, name: str) -> None:

    bed = FeedBed(tmp_path, ChangeFormat.WAL2JSON, source={name: "Micros"})
    with pytest.raises(BadSpec, match="are for Debezium and DebeziumFlat only"):
        require_feed(bed.task.source)


#: As wal2json 2.5 wrote them for PostgreSQL 15.18, with include-xids and include-timestamp, of a table with
#: REPLICA IDENTITY FULL; the large value is shortened.
_HEAD = ',"xid":741,"timestamp":"2026-11-28 07:02:46.124782+00","lsn":"0/%s","schema":"public","table":"big",'
_PK = '"pk":[{"name":"id","type":"integer"}]}'
_ROW = '{"name":"id","type":"integer","value":%d},{"name":"u","type":"integer","value":11}'
_LARGE = ',{"name":"v","type":"text","value":"c4ca4238a0b923820dcc509a6f75849b"}'
_SMALL = ',{"name":"w","type":"character varying(5)","value":%s},{"name":"o","type":"fee","value":"NaN"}'
_AB = '"ab"'
RECORDED = (
    '{"action":"B","xid":741,"timestamp":"2026-11-28 07:02:46.124782+00","lsn":"0/1529678","nextlsn":"0/1529F90"}',
    f'{{"action":"I"{_HEAD % "153A1E0"}"columns":[{_ROW % 2}{_LARGE}{_SMALL % "null"}],{_PK}',
    f'{{"action":"U"{_HEAD % "153B658"}"columns":[{_ROW % 3}{_SMALL % _AB}],'
    f'"identity":[{_ROW % 2}{_LARGE}{_SMALL % "null"}],{_PK}',
    f'{{"action":"D"{_HEAD % "153D1F8"}"identity":[{_ROW % 9}{_LARGE}{_SMALL % "null"}],{_PK}',
    '{"action":"M","xid":null,"timestamp":null,"lsn":"0/15598E0","transactional":false,"prefix":"pre","content":"con"}',
)


def test_what_wal2json_wrote_leads_to_the_rows_of_its_database(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "u", LongType()),
        NestedField(3, "v", StringType()),
        NestedField(4, "w", StringType()),
        NestedField(5, "o", DoubleType()),
    )
    bed = FeedBed(tmp_path, ChangeFormat.WAL2JSON, schema=schema).lines(*RECORDED)
    old, new, gone = bed.left()
    assert (old, gone) == ("deleted 2", "deleted 9")
    assert isinstance(new, dict)
    assert (new["id"], new["u"], new["v"], new["w"]) == (3, 11, "c4ca4238a0b923820dcc509a6f75849b", "ab")
    assert math.isnan(new["o"])
