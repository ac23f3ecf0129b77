"""Messages in the folder of a feed that are not changes of its table: what is skipped, and what is told of the rest.

The messages are those of Debezium 3.6.1. Each way out that a sentence names is taken, and leads out.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from skipstone_core.contract.requests import ChangeFormat, SourceFormat
from skipstone_core.errors import BadData
from skipstone_core.merging.feeds import NO_ROW, OP_COLUMN
from skipstone_core.merging.unused import describe_skipped

from tests.unit.feed_bed import ORDERS, FeedBed, Row
from tests.unit.test_feeds_debezium import avro_schema, envelope, mysql, order, postgres
from tests.unit.test_feeds_identity import flat

HEARTBEAT = {"ts_ms": 1764306000000}
BEGIN: Row = {"status": "BEGIN", "id": "571:53195829", "event_count": None, "data_collections": None, "ts_ms": 1}
END: Row = {**BEGIN, "status": "END", "event_count": 1,
            "data_collections": [{"data_collection": "public.orders", "event_count": 1}]}  # fmt: skip
SCHEMA_CHANGE: Row = {"source": mysql("b.1", 4), "ts_ms": 1, "databaseName": "inventory", "schemaName": None,
                      "ddl": "create table t (id int)", "tableChanges": []}  # fmt: skip


@pytest.fixture
def bed(tmp_path: Path) -> FeedBed:
    return FeedBed(tmp_path, ChangeFormat.DEBEZIUM)


@pytest.mark.parametrize("is_wrapped", [False, True], ids=["plain", "with schema"])
@pytest.mark.parametrize("tool", [ChangeFormat.DEBEZIUM, ChangeFormat.DEBEZIUM_FLAT])
def test_heartbeats_and_boundaries_of_transactions_are_skipped_and_counted(
    tmp_path: Path, tool: ChangeFormat, *, is_wrapped: bool
) -> None:
    is_flat = tool is ChangeFormat.DEBEZIUM_FLAT
    change = flat(order(1), deleted=False) if is_flat else envelope("c", postgres(1), after=order(1))
    others = [HEARTBEAT, BEGIN, END, {name: value for name, value in BEGIN.items() if name != "ts_ms"}]
    wrapped = [{"schema": {"type": "struct", "fields": []}, "payload": one} for one in others]
    bed = FeedBed(tmp_path, tool).lines(*(wrapped if is_wrapped else others), change)
    assert bed.left() == [order(1)]
    assert bed.changes().column(OP_COLUMN).to_pylist().count(NO_ROW) == 4


def test_a_feed_of_heartbeats_only_leaves_nothing(bed: FeedBed) -> None:
    assert bed.lines(HEARTBEAT).left() == []


def test_heartbeats_in_avro_are_skipped(tmp_path: Path) -> None:
    bed = FeedBed(tmp_path, ChangeFormat.DEBEZIUM, SourceFormat.AVRO)
    fields = [{"name": "ts_ms", "type": "long"}]
    bed.avro({"type": "record", "name": "Heartbeat", "fields": fields}, [HEARTBEAT])
    change = envelope("c", postgres(2), after={"id": 1})
    bed.avro(avro_schema({"name": "id", "type": "long"}), [change], "1.avro")
    left = bed.left()
    assert [row["id"] for row in left if isinstance(row, dict)] == [1]


@pytest.mark.parametrize("message", [{"ts_ms": "x", "id": 1}, {**BEGIN, "status": "OPEN"}, {**BEGIN, "name": "n"}, {}])
def test_rows_without_fields_of_the_transform_are_not_taken_for_those(tmp_path: Path, message: Row) -> None:
    bed = FeedBed(tmp_path, ChangeFormat.DEBEZIUM_FLAT).lines(message)
    with pytest.raises(BadData, match=r"add .* to transforms.unwrap.add.fields"):
        bed.left()


@pytest.mark.parametrize("tool", [ChangeFormat.DEBEZIUM, ChangeFormat.DEBEZIUM_FLAT])
def test_a_changed_schema_is_no_row(tmp_path: Path, tool: ChangeFormat) -> None:
    bed = FeedBed(tmp_path, tool).lines(SCHEMA_CHANGE, name="schema.json")
    with pytest.raises(BadData, match=r"it tells of a changed schema.*: name only files of one topic"):
        bed.left()
    is_flat = tool is ChangeFormat.DEBEZIUM_FLAT
    change = flat(order(1), deleted=False) if is_flat else envelope("c", postgres(1), after=order(1))
    bed.lines(change, name="orders.json").paths = ("feed/orders.json",)
    assert bed.left() == [order(1)]


def test_an_envelope_is_not_told_to_be_flattened(tmp_path: Path) -> None:
    bed = FeedBed(tmp_path, ChangeFormat.DEBEZIUM_FLAT).lines(envelope("c", postgres(1), after=order(1)))
    with pytest.raises(BadData, match=r"it is an envelope.*set source.changeFormat to Debezium$"):
        bed.left()
    bed.tool = ChangeFormat.DEBEZIUM
    assert bed.left() == [order(1)]


def test_partitions_of_one_table_are_told_how_they_become_one(bed: FeedBed) -> None:
    parts = [envelope("c", postgres(n, table=f"orders_{n}"), after=order(n)) for n in (1, 2)]
    with pytest.raises(BadData, match=r"set publish.via.partition.root of Debezium's connector to true"):
        bed.lines(*parts).left()
    bed.lines(*(envelope("c", postgres(n), after=order(n)) for n in (1, 2)))
    assert bed.left() == [order(1), order(2)]


@pytest.mark.parametrize("number", [1, 10, 0x20000A])
def test_the_header_of_a_registry_is_told(tmp_path: Path, number: int) -> None:
    header = b"\0" + number.to_bytes(4, "big")
    folder = tmp_path / "feed"
    folder.mkdir()
    message = json.dumps(envelope("c", postgres(1), after=order(1))).encode()
    for name, tool_format in (("0.json", SourceFormat.JSON), ("0.avro", SourceFormat.AVRO)):
        (folder / name).write_bytes(header + message)
        bed = FeedBed(tmp_path, ChangeFormat.DEBEZIUM, tool_format, ORDERS, paths=(f"feed/{name}",))
        with pytest.raises(BadData, match="header of a schema registry"):
            bed.left()
    (folder / "0.json").write_bytes(message)
    assert FeedBed(tmp_path, ChangeFormat.DEBEZIUM, paths=("feed/0.json",)).left() == [order(1)]


def test_messages_of_no_row_are_told() -> None:
    assert describe_skipped(0) == ""
    assert describe_skipped(1).startswith("The feed has 1 message that tells of no row")
    assert describe_skipped(2).startswith("The feed has 2 messages that tell of no row")
