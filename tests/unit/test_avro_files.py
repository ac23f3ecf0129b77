"""Avro files as Arrow: every codec and type, and files that lie, which must never lose a row in silence."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone.sources.avro.files import avro_batches, avro_columns
from skipstone.sources.groups import CORRUPT
from skipstone.sources.nested import Named
from skipstone.storage.port import StoredFile
from skipstone.storage.volume import Volume
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.reasons import Reason

from tests.avrofiles import CODECS, SYNC, avro_file, block, header, long_bytes, record, records, sized

PAIR = record(id="long", name=["null", "string"])
ROWS = [{"id": number, "name": None if number % 3 else f"é{number}"} for number in range(10)]
Read = Callable[[bytes], pa.Table]


def stored(folder: Path, content: bytes) -> StoredFile:
    """``content`` as the file ``a.avro``."""
    (folder / "a.avro").write_bytes(content)
    storage = Volume(str(folder))
    (entry,) = storage.list("")
    return StoredFile(storage, entry)


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads a file, CORRUPT included when a row is."""

    def run(content: bytes) -> pa.Table:
        batches = list(avro_batches(stored(tmp_path, content)))
        found = pa.Table.from_batches(batches) if batches else pa.table({CORRUPT: pa.nulls(0)})
        return found if found[CORRUPT].null_count < len(found) else found.drop_columns([CORRUPT])

    return run


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def fixed(name: str, size: int, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


MOMENT = datetime.fromisoformat("1880-01-01T01:02:03.004005")
ID = UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")
#: A type, a value as fastavro takes it, and as it is found.
VALUES: list[tuple[Any, Any, Any]] = [
    ("boolean", True, True),
    ("int", -(2**31), -(2**31)),
    ("long", 2**63 - 1, 2**63 - 1),
    ("float", -0.0, -0.0),
    ("double", math.nan, math.nan),
    ("double", -math.inf, -math.inf),
    ("bytes", b"\x00\xff", b"\x00\xff"),
    ("string", "𝄞", "𝄞"),
    (["null", "string"], None, None),
    (["string", "null"], "", ""),
    (["long"], 7, 7),
    (fixed("F3", 3), b"abc", b"abc"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
    (["null", "E"], "A", "A"),
    (logical("int", "date"), date(1, 1, 1), date(1, 1, 1)),
    (logical("int", "time-millis"), 86_399_999, 86_399_999_000),
    (logical("long", "time-micros"), 86_399_999_999, 86_399_999_999),
    (logical("long", "timestamp-millis"), -1, datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)),
    (logical("long", "timestamp-micros"), MOMENT.replace(tzinfo=UTC), MOMENT.replace(tzinfo=UTC)),
    (logical("long", "timestamp-nanos"), 1_001, 1_001),
    (logical("long", "local-timestamp-millis"), 0, datetime.fromisoformat("1970-01-01")),
    (logical("long", "local-timestamp-micros"), MOMENT, MOMENT),
    (logical("bytes", "decimal", precision=9, scale=2), Decimal("-1.25"), Decimal("-1.25")),
    (logical("bytes", "decimal", precision=38, scale=0), Decimal(10**38 - 1), Decimal(10**38 - 1)),
    (fixed("D", 20, logicalType="decimal", precision=12, scale=4), Decimal("-0.0001"), Decimal("-0.0001")),
    (logical("bytes", "decimal", precision=39), b"\x01", b"\x01"),
    (logical("string", "uuid"), str(ID), str(ID)),
    (fixed("U", 16, logicalType="uuid"), ID.bytes, ID.bytes),
    (logical("long", "of-tomorrow"), 5, 5),
]
#: Columns that are passed over.
NESTED: dict[str, tuple[Any, Any]] = {
    "list": ({"type": "array", "items": ["null", "tests.F3"]}, [None, b"xyz"]),
    "map": ({"type": "map", "values": {"type": "map", "values": "string"}}, {"a": {"b": "c"}}),
    "deep": (record(a="tests.E", b={"type": "array", "items": "int"}) | {"name": "Deep"}, {"a": "B", "b": [1, 2]}),
    "again": ("Deep", {"a": "A", "b": []}),
    "either": (["null", "int", "string"], "x"),
    "nothing": ("null", None),
}


@pytest.mark.parametrize("codec", CODECS)
def test_every_type_comes_back_as_it_was_written(read: Read, codec: str) -> None:
    kinds = {f"v{at}": kind for at, (kind, _, _) in enumerate(VALUES)} | {name: one[0] for name, one in NESTED.items()}
    row = {f"v{at}": value for at, (_, value, _) in enumerate(VALUES)} | {name: one[1] for name, one in NESTED.items()}
    found = read(avro_file(record(**kinds), [row] * 3, [], [row] * 4000, [row] * 200, codec=codec))
    assert found.column_names == [f"v{at}" for at in range(len(VALUES))]
    expected = [repr(value) for _, _, value in VALUES]
    assert len(found) == 4203
    for at in (0, 4202):
        (one,) = found.slice(at, 1).to_pylist()
        # a zone is UTC by whichever name
        assert [repr(v.astimezone(UTC) if getattr(v, "tzinfo", None) else v) for v in one.values()] == expected


def test_values_outside_of_the_range_of_their_type_make_bad_rows(read: Read) -> None:
    kinds = {
        "dec": (logical("bytes", "decimal", precision=2), 99, b"\x64"),
        "empty": (logical("bytes", "decimal", precision=2), -99, b""),
        "clock": (logical("long", "time-micros"), 0, 86_400_000_000),
        "watch": (logical("int", "time-millis"), 0, -1),
        "moment": (logical("long", "timestamp-millis"), 0, 2**62),
    }
    raw = record(**{name: ["null", one[0]["type"]] for name, one in kinds.items()})
    good = {
        name: one[1].to_bytes(1, "big", signed=True) if one[0]["type"] == "bytes" else one[1]
        for name, one in kinds.items()
    }
    rows = [good, dict.fromkeys(kinds), *({**good, name: one[2]} for name, one in kinds.items())]
    told = record(**{name: ["null", one[0]] for name, one in kinds.items()})
    found = read(header(told) + block(records(raw, rows), len(rows)))
    assert [text is not None for text in found[CORRUPT].to_pylist()] == [False, False, *[True] * len(kinds)]
    assert json.loads(found[CORRUPT][4].as_py())["clock"] == 86_400_000_000
    assert found["dec"].to_pylist()[:2] == [Decimal(99), None]


def test_a_file_without_records_has_columns(read: Read, tmp_path: Path) -> None:
    assert read(header(PAIR)).num_rows == 0
    assert read(header(PAIR) + block(b"", 0) + long_bytes(0) + sized(b"") + SYNC).num_rows == 0
    assert list(avro_columns(stored(tmp_path, header(PAIR)))) == ["id", "name"]


def test_no_file_that_was_cut_or_changed_loses_a_row_in_silence(read: Read) -> None:
    blocks = [block(records(PAIR, ROWS[:5]), 5), block(records(PAIR, ROWS[5:]), 5)]
    content = header(PAIR) + b"".join(blocks)
    ends = {len(content) - len(blocks[1]) - len(blocks[0]): 0, len(content) - len(blocks[1]): 5, len(content): 10}
    for cut in range(len(content) + 1):
        assert rows_or_error(read, content[:cut]) == ends.get(cut), cut
    for at in range(len(content)):
        for flip in (0x01, 0x02, 0x80, 0xFF):
            changed = content[:at] + bytes([content[at] ^ flip]) + content[at + 1 :]
            assert rows_or_error(read, changed) in (None, 10), (at, flip)


def rows_or_error(read: Read, content: bytes) -> int | None:
    """How many rows a file gives; None when it is told to be damaged."""
    try:
        return read(content).num_rows
    except BadData as error:
        assert error.reason is Reason.SOURCE_UNREADABLE
        assert str(error).startswith("source.paths: 'a.avro': this is not a readable Avro file: ")
        return None


BODY = records(PAIR, ROWS)
LYING = {
    "not Avro": (b"id,name\n1,a\n", "does not begin as Avro files do"),
    "empty": (b"", "the file ends in the middle"),
    "fewer than there are": (header(PAIR) + block(BODY, 9), "byte 197 are damaged (it holds more than it says"),
    "more than there are": (header(PAIR) + block(BODY, 11), "are damaged"),
    "billions": (header(PAIR) + block(BODY, 2**62), "are damaged"),
    "a negative count": (header(PAIR) + block(BODY, -10), "negative count"),
    "a block of 2^60 bytes": (header(PAIR) + long_bytes(1) + long_bytes(2**60), "more than 256 MiB"),
    "text beyond the block": (header(PAIR) + block(b"\x02\x02" + long_bytes(9) + b"abc", 1), "are damaged"),
    "text of negative length": (header(PAIR) + block(b"\x02\x02\x01abc", 1), "are damaged"),
    "an int of 64 bits": (header(record(v="int")) + block(long_bytes(2**40), 1), "column 'v' holds what its type"),
    "no such branch": (header(record(v=["null", "int"])) + block(b"\x08\x02", 1), "are damaged"),
    "no such symbol": (
        header(record(v={"type": "enum", "name": "E", "symbols": ["A"]})) + block(b"\x01", 1),
        "column 'v' holds what its type does not allow",
    ),
    "another codec": (header(PAIR, "lz4"), "its codec 'lz4' is not read: use one of null, deflate, snappy"),
    "packed by none": (header(PAIR, "deflate") + block(BODY, 10), "cannot be unpacked"),
    "a header of gigabytes": (b"Obj\x01" + long_bytes(1) + long_bytes(2**31), "larger than 16 MiB"),
    "a number of many bytes": (b"Obj\x01" + b"\xff" * 40, "longer than 64 bits"),
}


@pytest.mark.parametrize("name", LYING)
def test_files_that_lie_are_told_by_name(read: Read, name: str) -> None:
    content, said = LYING[name]
    with pytest.raises(BadData) as caught:
        read(content)
    assert (caught.value.reason, said in str(caught.value)) == (Reason.SOURCE_UNREADABLE, True), str(caught.value)


@pytest.mark.parametrize("codec", [name for name in CODECS if name != "null"])
def test_blocks_that_unpack_to_more_than_is_held_or_to_less_are_told(
    read: Read, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skipstone.files.avro.containers.MOST_BLOCK_BYTES", 1 << 20)
    bomb = block(bytes((1 << 20) + 1), 1, codec)
    with pytest.raises(BadData, match="it holds more than 1 MiB: write smaller blocks"):
        read(header(PAIR, codec) + bomb)
    packed = CODECS[codec](BODY)[:-9]
    with pytest.raises(BadData, match=r"the block at byte \d+ is damaged"):
        read(header(PAIR, codec) + long_bytes(10) + sized(packed) + SYNC)


def doubling(depth: int) -> dict[str, Any]:
    """A record that holds two of a record that holds two of another, and so on."""
    kind: Any = record(a="null") | {"name": "R0"}
    for number in range(depth):
        kind = record(a=kind, b=f"R{number}") | {"name": f"R{number + 1}"}
    return dict(kind)


def nested(depth: int) -> Any:
    kind: Any = "int"
    for _ in range(depth):
        kind = {"type": "array", "items": kind}
    return record(v=kind)


HOSTILE = {
    "no JSON": ("{", "is no schema of Avro"),
    "no record": ("int", "is no schema of Avro"),
    "a record of numbers": ('"int"', "does not hold records"),
    "no fields": ({"type": "record", "name": "R"}, "is no schema of Avro"),
    "an unknown type": (record(v="tests.Gone"), "is no schema of Avro"),
    "a type within itself": (record(v=["null", "Row"]), "its type 'Row' holds itself, which is not read"),
    "records of no bytes": (record(v="null"), "its records take no bytes"),
    "lists of nothing": (record(v={"type": "array", "items": "null"}, w="int"), "items of its arrays take no bytes"),
    "2^40 values": (record(v=doubling(40), w="int"), "its records hold more than 20000 values"),
    "200 lists": (nested(200), "its schema nests more than 64 deep"),
    "100000 brackets": ("[" * 100_000, "its schema "),
    "a column twice": (
        {"type": "record", "name": "R", "fields": [{"name": "v", "type": "int"}] * 2},
        "two of its columns have one name",
    ),
    "a negative size": (record(v=fixed("F", -1)), "is no schema of Avro"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_schemas_that_are_not_read_are_told_by_name(read: Read, name: str) -> None:
    schema, said = HOSTILE[name]
    with pytest.raises(BadData) as caught:
        read(header(schema))
    assert (caught.value.reason, said in str(caught.value)) == (Reason.SOURCE_UNREADABLE, True), str(caught.value)


def test_ten_thousand_columns_are_read(read: Read) -> None:
    schema = record(**{f"v{number}": "int" for number in range(10_000)})
    found = read(header(schema) + block(b"\x02" * 20_000, 2))
    assert (found.num_rows, found.num_columns) == (2, 10_000)
    assert found["v9999"].to_pylist() == [1, 1]


TYPED = record(
    i=["null", "int"],
    n=["long", "null"],
    d="double",
    s=["null", "string"],
    b=["null", "bytes"],
    m=["null", logical("bytes", "decimal", precision=20, scale=3)],
    t=["null", logical("long", "timestamp-micros")],
)
TYPED_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.none() | st.integers(-(2**31), 2**31 - 1),
            "n": st.none() | st.integers(-(2**63), 2**63 - 1),
            "d": st.floats(),
            "s": st.none() | st.text(st.characters(codec="utf-8")),
            "b": st.none() | st.binary(),
            "m": st.none() | st.integers(-(10**20) + 1, 10**20 - 1).map(lambda n: Decimal(n).scaleb(-3)),
            "t": st.none() | st.datetimes(timezones=st.just(UTC)),
        }
    ),
    max_size=20,
)


@settings(max_examples=40)
@given(blocks=st.lists(TYPED_ROWS, max_size=3), codec=st.sampled_from(sorted(CODECS)))
def test_any_rows_come_back(blocks: list[Any], codec: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = stored(tmp_path_factory.mktemp("avro"), avro_file(TYPED, *blocks, codec=codec))
    found = [row for batch in avro_batches(file) for row in batch.drop_columns([CORRUPT]).to_pylist()]
    assert repr(plain(found)) == repr(plain([row for one in blocks for row in one]))


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Decimals by value, moments in one zone, columns by name."""
    return [{name: plain_value(row[name]) for name in sorted(row)} for row in rows]


def plain_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(fold=0)
    return f"{value:f}" if isinstance(value, Decimal) else value


# --- fields within columns ---

INNER = record(id="long", name=["null", "string"], items={"type": "array", "items": "int"})
OUTER = record(key="long", after=["null", {**INNER, "name": "Inner"}], before=["null", "Inner"])
DEEP = [
    {"key": 1, "after": {"id": 7, "name": "é", "items": [1]}, "before": None},
    {"key": 2, "after": None, "before": {"id": 8, "name": None, "items": []}},
]
NAMED = {
    "after.id": "spec.keys[0]",
    "after.name": "spec.keys[1]",
    "before.id": "spec.sequenceBy",
    "key": "spec.keys[2]",
}


def test_fields_within_records_are_columns_where_they_are_named(tmp_path: Path) -> None:
    file = stored(tmp_path, avro_file(OUTER, DEEP))
    columns = avro_columns(file, Named(NAMED))
    assert [name for name, column in columns.items() if column.is_field] == ["after.id", "after.name", "before.id"]
    assert columns["after"].file_type is None
    (batch,) = avro_batches(file, Named(NAMED))
    assert batch.drop_columns([CORRUPT]).to_pydict() == {
        "key": [1, 2],
        "after.id": [7, None],
        "after.name": ["é", None],
        "before.id": [None, 8],
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("after.ids", r"^spec\.keys\[0\]: the source has no field 'ids' in 'after': name one of id, items, name"),
        ("After.id", "the source has no column 'After': write 'after', names are exact"),
        ("after.items", "field 'after.items' of the source is of a type that is not loaded"),
        ("after.id.x", "'after.id' is no struct in the source, so it has no field 'x'"),
    ],
)
def test_a_field_that_no_record_has_is_named(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(BadSpec, match=message):
        avro_columns(stored(tmp_path, avro_file(OUTER, DEEP)), Named({name: "spec.keys[0]"}))
