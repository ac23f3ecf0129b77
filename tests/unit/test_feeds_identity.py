"""Deletes whose key the source database may not have logged: Debezium writes zeros and defaults for what it lacks.

The messages are those of Debezium 3.6.1 and PostgreSQL 15 for a table with NOT NULL columns outside its identity.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from skipstone.sources.feeds.deletedkeys import is_filler
from skipstone_core.contract.feeds import EqualRows
from skipstone_core.contract.requests import ChangeFormat, MergeKey, MergeTask, SourceFormat, SourceSpec
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.merging.feeds import feed_task

from tests.unit.feed_bed import FeedBed, Row
from tests.unit.test_feeds_debezium import envelope, mysql, postgres

USERS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "u", IntegerType(), required=True),
    NestedField(3, "name", StringType()),
)
#: What `delete from orders where id = 4` becomes with REPLICA IDENTITY USING INDEX on u.
DELETE_OF_ID_4 = {"id": 0, "u": 401, "name": None}
REFUSED = r"key column 'id' has a zero.*source.replicaIdentity.*ALTER TABLE public.orders REPLICA IDENTITY FULL"


@pytest.fixture
def bed(tmp_path: Path) -> FeedBed:
    return FeedBed(tmp_path, ChangeFormat.DEBEZIUM, schema=USERS)


def user(number: int, u: int) -> Row:
    return {"id": number, "u": u, "name": "n"}


def flat(values: Row, *, deleted: bool, connector: str = "postgresql") -> Row:
    places: dict[str, Any] = {**postgres(7), "connector": connector}
    fields = {f"__source_{name}": value for name, value in places.items() if name not in ("ts_ms", "snapshot")}
    others = {"__source_ts_ms": 1, "__source_snapshot": "false", "__op": "d" if deleted else "u"}
    return {**values, **fields, **others, "__deleted": "true" if deleted else "false"}


def test_a_delete_whose_key_is_not_logged_removes_no_other_row(bed: FeedBed) -> None:
    bed.lines(envelope("d", postgres(3), before=DELETE_OF_ID_4))
    with pytest.raises(BadData, match=rf"'feed/0.json', line 1: its {REFUSED}"):
        bed.left()


def test_a_changed_identity_whose_key_is_not_logged_removes_no_other_row(bed: FeedBed) -> None:
    bed.lines(envelope("u", postgres(3), before=DELETE_OF_ID_4, after=user(4, 402)))
    with pytest.raises(BadData, match=REFUSED):
        bed.left()


def test_a_flat_delete_whose_key_is_not_logged_removes_no_other_row(tmp_path: Path) -> None:
    bed = FeedBed(tmp_path, ChangeFormat.DEBEZIUM_FLAT, schema=USERS)
    bed.lines(flat(DELETE_OF_ID_4, deleted=True))
    with pytest.raises(BadData, match=REFUSED):
        bed.left()
    bed.lines(flat(user(0, 5), deleted=False), flat(user(4, 0), deleted=True))
    assert bed.left() == [user(0, 5), "deleted 4"], "a write names its row, whatever its key"


def test_a_delete_in_avro_whose_key_is_not_logged_removes_no_other_row(tmp_path: Path) -> None:
    """The schema tells the default of the column, which Debezium writes instead of zero."""
    columns = [
        {"name": "id", "type": "long", "default": 7},
        {"name": "u", "type": "int"},
        {"name": "name", "type": ["null", "string"], "default": None},
    ]
    place = postgres(3)
    fields = [{"name": name, "type": ["null", _avro(value)], "default": None} for name, value in place.items()]
    schema = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", {"type": "record", "name": "Value", "fields": columns}]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "source", "type": {"type": "record", "name": "Source", "fields": fields}},
            {"name": "op", "type": "string"},
        ],
    }
    bed = FeedBed(tmp_path, ChangeFormat.DEBEZIUM, SourceFormat.AVRO, schema=USERS)
    bed.avro(schema, [{"before": {**DELETE_OF_ID_4, "id": 7}, "after": None, "source": place, "op": "d"}])
    with pytest.raises(BadData, match=REFUSED):
        bed.left()
    bed.avro(schema, [{"before": {**DELETE_OF_ID_4, "id": 8}, "after": None, "source": place, "op": "d"}])
    assert bed.left() == ["deleted 8"]


def _avro(value: object) -> str:
    return "long" if isinstance(value, int) else "string"


def test_a_default_that_the_schema_tells_is_no_proof_of_a_key(bed: FeedBed) -> None:
    columns = [{"type": "int64", "field": "id", "default": 7}, {"type": "int32", "field": "u"}]
    image = [{"type": "struct", "field": name, "fields": columns} for name in ("before", "after")]
    schema = {"type": "struct", "fields": [*image, {"type": "string", "field": "op"}]}
    delete = envelope("d", postgres(3), before={**DELETE_OF_ID_4, "id": 7})
    bed.lines({"schema": schema, "payload": delete})
    with pytest.raises(BadData, match=REFUSED):
        bed.left()


def test_a_declared_identity_lets_rows_with_zeros_go(bed: FeedBed) -> None:
    bed.source = {"replica_identity": ("id", "u")}
    bed.lines(envelope("d", postgres(3), before=user(0, 0)), envelope("d", postgres(4), before=user(4, 0)))
    assert bed.left() == ["deleted 0", "deleted 4"]


def test_a_declared_identity_must_have_the_keys() -> None:
    source = SourceSpec(
        format=SourceFormat.JSON,
        paths=("feed",),
        change_format=ChangeFormat.DEBEZIUM,
        replica_identity=("u",),
    )
    task = MergeTask(source=source, keys=(MergeKey(target="id", source="id"),))
    with pytest.raises(BadSpec, match=r"the key column 'id' is not in source.replicaIdentity"):
        feed_task(task)
    assert feed_task(replace(task, source=replace(source, replica_identity=("id", "u")))).when_matched


def test_databases_that_log_whole_rows_delete_rows_with_zeros(bed: FeedBed) -> None:
    bed.lines(envelope("d", mysql("bin.1", 4), before=user(0, 3)))
    assert bed.left() == ["deleted 0"]


def test_a_delete_without_a_key_names_what_makes_the_database_log_it(bed: FeedBed) -> None:
    bed.lines(envelope("d", postgres(3), before={"id": None, "u": 401}))
    with pytest.raises(
        BadData, match=r"no value for the key column 'id'.*ALTER TABLE public.orders REPLICA IDENTITY FULL"
    ):
        bed.left()


@pytest.mark.parametrize(
    "value",
    [
        0,
        0.0,
        Decimal("0.00"),
        False,
        "",
        "0",
        "AA==",
        b"",
        b"\x00",
        [],
        {"scale": 2, "value": "AA=="},
        "1970-01-01T00:00:00Z",
    ],
)
def test_zeros_of_every_type_are_no_proof_of_a_key(value: object) -> None:
    assert is_filler(value, None)


@pytest.mark.parametrize(
    "value", [1, -0.5, True, "a", "00", b"\x01", ["a"], {"scale": 0, "value": "AQ=="}, "1970-01-02"]
)
def test_other_values_are_the_row_s_own(value: object) -> None:
    assert not is_filler(value, None)


def test_a_flat_update_of_a_table_without_a_key_is_refused_because_the_row_before_stays(tmp_path: Path) -> None:
    keys = ("id", "u", "name")
    source = {"equal_rows": EqualRows.COLLAPSE, "replica_identity": keys}
    bed = FeedBed(tmp_path, ChangeFormat.DEBEZIUM_FLAT, schema=USERS, keys=keys, source=source)
    bed.lines({**flat(user(4, 6), deleted=False), "__op": "c"})
    assert bed.left() == [user(4, 6)]
    bed.lines(flat(user(4, 6), deleted=False))
    with pytest.raises(BadData, match=r"update of 'orders', and all columns are keys: .*changeFormat to Debezium"):
        bed.left()


def test_keys_that_two_rows_share_in_a_transaction_are_refused(bed: FeedBed) -> None:
    """`update orders set id = 3 - id` with REPLICA IDENTITY FULL and a primary key that is deferrable."""
    swap = (
        envelope("d", postgres(3, after_commit=1), before=user(1, 5)),
        envelope("c", postgres(3, after_commit=1), after=user(2, 5)),
        envelope("d", postgres(4, after_commit=1), before=user(2, 6)),
        envelope("c", postgres(4, after_commit=1), after=user(1, 6)),
    )
    bed.lines(*swap)
    with pytest.raises(BadData, match="line 3: another row got the key of its row before that in the same transaction"):
        bed.left()
    updates = (
        envelope("u", postgres(3, after_commit=1), before=user(1, 5), after=user(2, 5)),
        envelope("u", postgres(4, after_commit=1), before=user(2, 6), after=user(1, 6)),
    )
    bed.lines(*updates)
    with pytest.raises(BadData, match="line 2: another row got the key"):
        bed.left()


def test_keys_that_one_row_has_after_the_other_are_taken(bed: FeedBed) -> None:
    """Three updates of one transaction swap rows 1 and 2 by way of row 9; the last is read twice."""
    moves = [
        envelope("u", postgres(3, after_commit=1), before=user(1, 5), after=user(9, 5)),
        envelope("u", postgres(4, after_commit=1), before=user(2, 6), after=user(1, 6)),
        envelope("u", postgres(5, after_commit=1), before=user(9, 5), after=user(2, 5)),
    ]
    bed.lines(*moves, envelope("u", postgres(6, after_commit=1), before=user(2, 5), after=user(2, 7)), *moves[2:])
    assert bed.left() == [user(1, 6), user(2, 7), "deleted 9"]


def test_flat_messages_of_keys_that_two_rows_share_are_refused(tmp_path: Path) -> None:
    bed = FeedBed(tmp_path, ChangeFormat.DEBEZIUM_FLAT, schema=USERS)
    created = {**flat(user(2, 5), deleted=False), "__op": "c"}
    bed.lines(flat(user(1, 5), deleted=True), created, flat(user(2, 6), deleted=True))
    with pytest.raises(BadData, match="line 3: another row got the key"):
        bed.left()
