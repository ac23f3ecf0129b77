"""Lists, maps and structs in sources: fields by name, values widened, nulls at each depth, in every format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from skipstone.tasks.share import NO_SHARE, USUAL_SHARE, DriverShare
from skipstone_core.contract.requests import SourceFormat, SourceSpec
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.reasons import Reason

from tests.avrofiles import avro_file
from tests.spark.lake import read_all
from tests.spark.load_bed import Bed, source
from tests.spark.merge_bed import MergeBed, task_of

INNER = StructType(NestedField(21, "x.y", DecimalType(9, 2)), NestedField(22, "at", TimestamptzType()))
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "tags", ListType(30, StringType(), element_required=False)),
    NestedField(3, "counts", ListType(31, LongType(), element_required=True)),
    NestedField(4, "rates", MapType(32, StringType(), 33, DoubleType(), value_required=False)),
    NestedField(
        5,
        "st",
        StructType(
            NestedField(23, "a", LongType()), NestedField(24, "day", DateType()), NestedField(25, "inner", INNER)
        ),
    ),
    NestedField(
        6,
        "recs",
        ListType(
            34,
            StructType(
                NestedField(26, "k", StringType(), required=True),
                NestedField(27, "v", ListType(35, LongType(), element_required=False)),
            ),
            element_required=False,
        ),
    ),
    NestedField(7, "codes", MapType(36, StringType(), 37, UUIDType(), value_required=False)),
    NestedField(8, "clocks", ListType(38, TimeType(), element_required=False)),
)
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
CODE = UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")
FULL: dict[str, Any] = {
    "id": 1,
    "tags": ["x", None, "é\r\n"],
    "counts": [1, 2],
    "rates": [("k", 0.5), ("n", None)],
    "st": {"a": 7, "day": date(2024, 5, 1), "inner": {"x.y": Decimal("1.25"), "at": NOON}},
    "recs": [{"k": "one", "v": [1, None]}, None, {"k": "two", "v": None}, {"k": "", "v": []}],
    "codes": [("c", CODE)],
    "clocks": [43_200_000_000],
}
EMPTY: dict[str, Any] = {
    "id": 2, "tags": [], "counts": None, "rates": [], "st": {"a": None, "day": None, "inner": None}, "recs": [],
    "codes": None, "clocks": None,
}  # fmt: skip
NONE: dict[str, Any] = dict.fromkeys(FULL) | {"id": 3}
NARROW_INNER = pa.struct([("at", pa.timestamp("us", "UTC")), ("x.y", pa.decimal128(5, 2))])
#: As narrower types, structs in another order.
NARROW = pa.schema(
    [
        ("st", pa.struct([("inner", NARROW_INNER), ("day", pa.date32()), ("a", pa.int32())])),
        ("id", pa.int64()),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.list_(pa.int32())),
        ("rates", pa.map_(pa.string(), pa.float32())),
        ("recs", pa.list_(pa.struct([("v", pa.list_(pa.int32())), ("k", pa.string())]))),
        ("codes", pa.map_(pa.string(), pa.string())),
        ("clocks", pa.list_(pa.time64("us"))),
    ]
)  # fmt: skip


def given(row: dict[str, Any], *without: str) -> dict[str, Any]:
    """As Arrow takes it."""
    made = {name: value for name, value in row.items() if name not in without}
    made["codes"] = None if row["codes"] is None else [(key, str(value)) for key, value in row["codes"]]
    return {name: made[name] for name in made if name not in without}


def rows(bed: Bed | MergeBed) -> list[dict[str, Any]]:
    """By our own reader: PyIceberg's makes empty lists of null ones."""
    found = []
    for row in sorted(read_all(bed.table()).to_pylist(), key=lambda one: one["id"]):
        codes, clocks = row["codes"], row["clocks"]
        row["codes"] = None if codes is None else [(key, value and UUID(bytes=value)) for key, value in codes]
        row["clocks"] = None if clocks is None else [(one.hour * 3600 + one.minute * 60) * 1_000_000 for one in clocks]
        found.append(row)
    return found


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    made = Bed(tmp_path)
    made.create(SCHEMA)
    yield made
    made.catalog.close()


def test_parquet(bed: Bed) -> None:
    table = pa.Table.from_pylist([given(FULL), given(EMPTY), given(NONE)], schema=NARROW)
    pq.write_table(table, bed.root / "one.parquet")
    assert bed.load(SourceSpec(format=SourceFormat.PARQUET, paths=("one.parquet",))).counts["rowsLoaded"] == 3
    assert rows(bed) == [FULL, EMPTY, NONE]


def test_orc(bed: Bed) -> None:
    lacking = ("clocks",)
    schema = pa.schema([field for field in NARROW if field.name not in lacking])
    local = schema.field("st").type
    table = pa.Table.from_pylist([given(one, *lacking) for one in (FULL, EMPTY, NONE)], schema=schema)
    fields = [("inner", pa.struct([("x.y", pa.decimal128(5, 2))])), ("day", pa.date32()), ("a", pa.int32())]
    held = [
        None if one is None else {**one, "inner": one["inner"] and {"x.y": one["inner"]["x.y"]}}
        for one in table["st"].to_pylist()
    ]
    assert local.num_fields == len(fields)
    table = table.set_column(0, "st", pa.array(held, pa.struct(fields)))
    orc.write_table(table, bed.root / "one.orc")
    bed.load(SourceSpec(format=SourceFormat.ORC, paths=("one.orc",)))
    inner = {"x.y": Decimal("1.25"), "at": None}
    full = FULL | {"clocks": None, "st": FULL["st"] | {"inner": inner}}
    assert rows(bed) == [full, EMPTY, NONE]


def record(name: str, **fields: object) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": [{"name": one, "type": kind} for one, kind in fields.items()]}


def test_avro(bed: Bed) -> None:
    def maybe(kind: object) -> list[object]:
        return ["null", kind]

    day = {"type": "int", "logicalType": "date"}
    struct = record("st", day=maybe(day), a=maybe("int"))
    item = record("rec", v=maybe({"type": "array", "items": maybe("long")}), k="string")
    schema = record(
        "r",
        id="long",
        tags=maybe({"type": "array", "items": maybe("string")}),
        counts=maybe({"type": "array", "items": "int"}),
        rates=maybe({"type": "map", "values": maybe("float")}),
        st=maybe(struct),
        recs=maybe({"type": "array", "items": maybe(item)}),
        clocks=maybe({"type": "array", "items": {"type": "long", "logicalType": "time-micros"}}),
    )
    made = []
    for one in (FULL, EMPTY, NONE):
        row = {name: value for name, value in one.items() if name != "codes"}
        row["rates"] = None if row["rates"] is None else dict(row["rates"])
        row["st"] = row["st"] and {"a": row["st"]["a"], "day": row["st"]["day"]}
        row["clocks"] = row["clocks"] and [datetime(1970, 1, 1, 12).time()]  # noqa: DTZ001
        made.append(row)
    (bed.root / "one.avro").write_bytes(avro_file(schema, made))
    bed.load(SourceSpec(format=SourceFormat.AVRO, paths=("one.avro",)))
    full = FULL | {"codes": None, "st": FULL["st"] | {"inner": None}}
    assert rows(bed) == [full, EMPTY, NONE]


@pytest.mark.parametrize("multi_line", ["false", "true"])
def test_json(bed: Bed, multi_line: str) -> None:
    def plain(value: object) -> object:
        return value.isoformat() if isinstance(value, date) else str(value)

    made = []
    for one in (FULL, EMPTY, NONE):
        row = one | {name: None if one[name] is None else dict(one[name]) for name in ("rates", "codes")}
        row["clocks"] = one["clocks"] and ["12:00"]
        made.append(json.dumps({name: value for name, value in row.items() if value is not None}, default=plain))
    content = f"[{', '.join(made)}]" if multi_line == "true" else "\n".join(made)
    (bed.root / "one.json").write_text(content)
    bed.load(SourceSpec(format=SourceFormat.JSON, paths=("one.json",), options={"multiLine": multi_line}))
    assert rows(bed) == [FULL, EMPTY, NONE]


@pytest.mark.parametrize(
    "line",
    [
        '{"id": 1, "counts": [1, "x"]}',
        '{"id": 1, "counts": [1, null]}',
        '{"id": 1, "counts": [1.5]}',
        '{"id": 1, "counts": 7}',
        '{"id": 1, "st": {"day": "2024-02-30"}}',
        '{"id": 1, "st": [1]}',
        '{"id": 1, "recs": [{"v": [1]}]}',
        '{"id": 1, "recs": [5]}',
        '{"id": 1, "codes": {"k": "no uuid"}}',
    ],
)
def test_values_within_that_do_not_fit_make_bad_rows(bed: Bed, line: str) -> None:
    shape = '{"id": 9, "counts": [1], "st": {"day": null}, "recs": [{"k": "k", "v": [1]}], "codes": {"k": null}}'
    (bed.root / "one.json").write_text(f"{shape}\n{line}\n")
    with pytest.raises(BadData) as caught:
        bed.load(SourceSpec(format=SourceFormat.JSON, paths=("one.json",)))
    assert caught.value.reason is Reason.BAD_RECORDS
    assert "1 rows do not fit" in str(caught.value)


def test_fields_that_the_table_lacks_or_requires_are_told(bed: Bed) -> None:
    extra = pa.table({"id": [1], "recs": pa.array([[{"k": "a", "extra": 1}]])})
    lacking = pa.table({"id": [1], "recs": pa.array([[{"v": [1]}]])})
    other = pa.table({"id": [1], "st": pa.array([[1]])})
    deep = pa.table({"id": [1], "st": pa.array([{"inner": {"at": "text"}}])})
    for table, kind, says in (
        (extra, BadSpec, "field 'element.extra' in column 'recs' of the source is not a field of the table's column"),
        (lacking, BadData, "the source lacks field 'element.k' in column 'recs'"),
        (other, BadSpec, "cannot feed"),
        (deep, BadSpec, "field 'inner.at' in column 'st' is string in the source and cannot feed"),
    ):
        pq.write_table(table, bed.root / "one.parquet")
        with pytest.raises(kind, match=says):
            bed.load(SourceSpec(format=SourceFormat.PARQUET, paths=("one.parquet",)))
    (bed.root / "one.json").write_text('{"id": 1, "st": {"a": 1, "b": 2}}')
    with pytest.raises(BadSpec, match="field 'b' in column 'st' of the source is not a field"):
        bed.load(SourceSpec(format=SourceFormat.JSON, paths=("one.json",)))


@pytest.mark.parametrize("share", [USUAL_SHARE, NO_SHARE], ids=["driver", "spark"])
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_merges(tmp_path: Path, share: DriverShare, mode: str) -> None:
    bed = MergeBed(tmp_path, share)
    bed.create(SCHEMA, **{"write.merge.mode": mode})
    first = pa.Table.from_pylist([given(one) for one in (FULL, EMPTY, NONE)], schema=NARROW)
    bed.merge(task_of(bed.source(first, "first")))
    assert rows(bed) == [FULL, EMPTY, NONE]
    changed = [FULL | {"id": 2}, NONE | {"id": 1}, EMPTY | {"id": 4}]
    again = pa.Table.from_pylist([given(one) for one in changed], schema=NARROW)
    bed.merge(task_of(bed.source(again, "again")))
    assert rows(bed) == [NONE | {"id": 1}, FULL | {"id": 2}, NONE, EMPTY | {"id": 4}]
    bed.catalog.close()


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("st", '{"a": 1, "a": 2}', "an object in a record of this or another file has two values of one name"),
        ("recs", '[{"k": "a"}, {"k": "b", "k": "c"}]', "an object in a record of .* has two values of one name"),
        ("rates", '{"k": 1, "k": 2}', "an object in a record of this or another file has two values of one name"),
        ("st", '{"a": 1, "": 2}', "column 'st' has a value without a name, which Spark would leave out: name it"),
        ("st", '{"inner": {"at": null, "": {}}}', "column 'st' has a value without a name"),
        ("recs", '[{"k": "b", "": "c"}]', "column 'recs' has a value without a name"),
    ],
)
def test_an_object_of_json_of_which_a_part_would_be_lost_is_refused(
    bed: Bed, column: str, value: str, said: str
) -> None:
    for options, text in (({}, "{}\n{}"), ({"multiLine": "true"}, "[{}, {}]")):
        bed.put("in/a.json", text.format('{"id": 1}', f'{{"id": 2, "{column}": {value}}}'))
        with pytest.raises(BadData, match=rf"'in/a.json': {said}") as caught:
            bed.load(source(SourceFormat.JSON, "in/a.json", options=options))
        assert caught.value.reason is Reason.SOURCE_UNREADABLE


def test_objects_of_json_that_only_look_like_that_are_loaded(bed: Bed) -> None:
    value = {"a": 1, "inner": {"x.y": 1.25, "at": None}}
    records = [{"id": 1, "st": value, "recs": [{"k": "k: k"}, {"k": '{"": 1}'}], "tags": ['{"": 1}']}, {"id": 2}]
    bed.put("in/a.json", "\n".join(json.dumps(record) for record in records) + '\n{"id": 3, "rates": {"": 1}}')
    bed.load(source(SourceFormat.JSON, "in/a.json"))
    assert [row["recs"] and row["recs"][1]["k"] for row in rows(bed)] == ['{"": 1}', None, None]
    assert rows(bed)[2]["rates"] == [("", 1.0)]


#: A field of each type that is held otherwise in a frame than in a file, with its default.
DEFAULTS: dict[str, tuple[PrimitiveType, Any]] = {
    "text": (StringType(), "d"),
    "number": (LongType(), 7),
    "amount": (DecimalType(9, 2), Decimal("1.25")),
    "day": (DateType(), date(2024, 5, 1)),
    "local": (TimestampType(), NOON.replace(tzinfo=None)),
    "at": (TimestamptzType(), NOON),
    "code": (UUIDType(), CODE),
    "clock": (TimeType(), time(12)),
    "raw": (BinaryType(), b"\0"),
}


def test_fields_that_the_source_lacks_have_their_write_defaults(tmp_path: Path) -> None:
    bed = MergeBed(tmp_path)
    inner = StructType(NestedField(3, "a", LongType()))
    table = bed.create(
        Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "s", inner)), **{"format-version": "3"}
    )
    for name, (kind, default) in DEFAULTS.items():
        with table.update_schema() as change:
            change.add_column(("s", name), kind, default_value=default)
    rows = [{"id": 1, "s": {"a": 1}}, {"id": 2, "s": None}, {"id": 3, "s": {"a": None}}]
    schema = pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int64())]))])
    bed.merge(task_of(bed.source(pa.Table.from_pylist(rows, schema=schema))))
    whole = pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int64()), ("text", pa.string())]))])
    bed.merge(task_of(bed.source(pa.Table.from_pylist([{"id": 4, "s": {"a": 4, "text": None}}], schema=whole), "b")))
    found = {row["id"]: row["s"] for row in read_all(bed.table()).to_pylist()}
    values = {name: default.bytes if name == "code" else default for name, (_, default) in DEFAULTS.items()}
    assert found == {1: {"a": 1, **values}, 2: None, 3: {"a": None, **values}, 4: {"a": 4, **values, "text": None}}
