"""How Json, Parquet and ORC are read: types, widening without loss, and what is refused by name."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyspark.sql import SparkSession
from skipstone.sources.listing import list_source
from skipstone.sources.reading import (
    ERROR_COLUMN,
    FILE_COLUMN,
    RECORD_COLUMN,
    ReadRules,
    SourceRead,
    read_source,
    read_table_rows,
)
from skipstone_core.contract.requests import (
    CatalogRef,
    CatalogType,
    ColumnMapping,
    ColumnSpec,
    SourceFormat,
    SourceSpec,
    WarehouseRef,
)
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.reasons import Reason

Read = Callable[..., SourceRead]
#: What is said of a record that Spark cannot read.
BROKEN = "the record is not a JSON object, or nests more than 200 deep"
ENDINGS = {".json": SourceFormat.JSON, ".parquet": SourceFormat.PARQUET, ".orc": SourceFormat.ORC}


@pytest.fixture
def read(tmp_path: Path, spark: SparkSession) -> Read:
    """Reads files of the test's directory as a load does (``merge=True``: as a merge does); format by ending."""

    def run(names: list[str], schema: Schema, **given: Any) -> SourceRead:
        is_merge, time_zone = given.pop("merge", False), given.pop("time_zone", "UTC")
        kind = given.pop("format", None) or ENDINGS[Path(names[0]).suffix]
        source = SourceSpec(format=kind, paths=tuple(names), **given)
        warehouse = WarehouseRef(name="wh", root=str(tmp_path), catalog=CatalogRef(type=CatalogType.SQL))
        listing = list_source(warehouse, source)
        if is_merge:
            return read_source(spark, listing, source, schema, ReadRules(time_zone))
        return read_table_rows(spark, listing, source, schema, time_zone)

    return run


def rows(read: SourceRead) -> list[dict[str, Any]]:
    return [row.asDict() for row in read.frame.collect()]


def good_rows(read: SourceRead) -> list[dict[str, Any]]:
    """Rows, none of which may be bad."""
    found = rows(read)
    assert [row[ERROR_COLUMN] for row in found if row[ERROR_COLUMN]] == []
    return found


def values(read: SourceRead) -> list[Any]:
    """The values of the column ``v``; no row may be bad."""
    return [row["v"] for row in good_rows(read)]


def only(kind: PrimitiveType, *, required: bool = False) -> Schema:
    return Schema(NestedField(1, "v", kind, required=required))


def numbered(cases: Sequence[Any]) -> list[str]:
    """Names of columns, one for each case of a file."""
    return [f"v{number}" for number in range(len(cases))]


def wide(kinds: Iterable[PrimitiveType], *, required: bool = False) -> Schema:
    """A table with a column for each case."""
    return Schema(*(NestedField(at + 1, f"v{at}", kind, required=required) for at, kind in enumerate(kinds)))


# Json


JSON: list[tuple[PrimitiveType, str, Any]] = [
    (IntegerType(), "7", 7),
    (IntegerType(), '"7"', 7),
    (LongType(), "9223372036854775807", 2**63 - 1),
    (DecimalType(38, 3), "12345678901234567890.123", Decimal("12345678901234567890.123")),
    (DecimalType(9, 2), "1.50", Decimal("1.50")),
    (DoubleType(), "1e300", 1e300),
    (DoubleType(), '"NaN"', "nan"),
    (BooleanType(), "true", True),
    (StringType(), '"caf\\u00e9 \\ud834\\udd1e"', "café 𝄞"),
    (StringType(), "1.50", "1.50"),
    (StringType(), '{"x": [1, null]}', '{"x": [1, null]}'),
    (StringType(), '""', ""),
    (DateType(), '"2013-01-31"', date(2013, 1, 31)),
    (IntegerType(), "null", None),
]


def test_json_values_are_kept_exactly(read: Read, tmp_path: Path) -> None:
    """All cases are columns of one row; names that differ in case only are other columns."""
    names = numbered(JSON)
    members = [f'"{name}": {written}, "{name.upper()}": 1' for name, (_, written, _) in zip(names, JSON, strict=True)]
    (tmp_path / "a.json").write_text(f"{{{', '.join(members)}}}\n")
    (row,) = good_rows(read(["a.json"], wide(kind for kind, _, _ in JSON)))
    found = [(row[name], value) for name, (_, _, value) in zip(names, JSON, strict=True)]
    assert [pair for pair in found if not is_same(*pair)] == []


def is_same(found: Any, value: Any) -> bool:
    """Whether both are equal, as text or as JSON if not as they are."""
    if isinstance(value, str) and value.startswith("{"):
        return bool(json.loads(found) == json.loads(value))
    return bool(found == value) or str(found) == value


def test_json_rows_that_do_not_fit_are_told(read: Read, tmp_path: Path) -> None:
    lines = ['{"v": 1}', '{"v": 2147483648}', '{"v":', "7", "{}", '{"v": 1.5}', ""]
    (tmp_path / "a.json").write_text("\n".join(lines))
    found = rows(read(["a.json"], only(IntegerType(), required=True)))
    assert [(row[ERROR_COLUMN], row[RECORD_COLUMN]) for row in found] == [
        (None, None),
        ("column 'v': the value is not of type int", '{"v":"2147483648"}'),
        (BROKEN, '{"v":'),
        (BROKEN, "7"),
        ("column 'v' is required and holds null", "{}"),
        ("column 'v': the value is not of type int", '{"v":"1.5"}'),
    ]


def test_json_without_any_name_is_told_row_by_row(read: Read, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("garbage\n[\n{}\n")
    found = rows(read(["a.json"], only(IntegerType())))
    assert [(row[ERROR_COLUMN], row[RECORD_COLUMN]) for row in found] == [
        (BROKEN, "garbage"),
        (BROKEN, "["),
        (None, None),
    ]


def test_json_over_several_lines(read: Read, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[\n {"v": 1},\n {"v": 2}\n]\n')
    assert values(read(["a.json"], only(IntegerType()), options={"multiLine": "true"})) == [1, 2]


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"v": 1, "t": "}" * 70_000}) + '\n{"v": 2}\n',
        json.dumps([{"v": 1, "t": "]\"'" * 70_000}]) + '\n[{"v": 2}]\n',
        '[\n{"v": 1}\n]\n{"v": 2}\n',
        '{"v": 1}, {"v": 2}',
        "{'v': 1, 't': '}\"'}{'v': 2}",
    ],
    ids=["objects", "lists", "mixed", "comma", "single-quotes"],
)
def test_json_with_more_than_one_document_in_a_file_is_told(read: Read, tmp_path: Path, text: str, ending: str) -> None:
    content = text.encode()
    (tmp_path / f"a.json{ending}").write_bytes(gzip.compress(content) if ending else content)
    with pytest.raises(BadData, match="holds more than one document: set multiLine to false") as caught:
        read([f"a.json{ending}"], only(IntegerType()), format=SourceFormat.JSON, options={"multiLine": "true"})
    assert caught.value.reason is Reason.SOURCE_UNREADABLE


def test_one_json_document_may_be_a_broken_or_a_long_one(read: Read, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('\n{"v":\n 1, "t": "' + "{" * 200_000 + '"}\n\n')
    (tmp_path / "b.json").write_text('{"v":\n')
    (tmp_path / "c.json").write_text('[{"v": 3, "t": ["[", {"u": "\\\\"}]},\n{"v": 4}] \n')
    (tmp_path / "d.json").write_text('{"v": [5}]\n{"v": 6}')
    found = rows(read([f"{name}.json" for name in "abcd"], only(IntegerType()), options={"multiLine": "true"}))
    assert sorted((row["v"] or 0, row[ERROR_COLUMN] or "") for row in found) == [
        (0, BROKEN),
        (0, BROKEN),
        (1, ""),
        (3, ""),
        (4, ""),
    ]


@pytest.mark.parametrize(
    "line",
    [
        '{"v": 1}{"v": 2}',
        '{"v": 1} {"v": 2}',
        '{"v": 1},{"v": 2}',
        '{"v": 1} garbage',
        '{"v": 1}}',
        '{"v": 1}] {"v": 2}',
        '{"v": 1},0] {"v": 2}',
        '{"v": 1},7,0] [{"v": 2}',
        '{"v": NaN}] {"v": 2}',
        '{"v": NaN},0] {"v": 2}',
        '{"v": {"w": 1}}\t{"v": 2}',
        '{"v": "}"} 7',
        '\ufeff{"v": 1} {"v": 2}',
        '[{"v": 1}] {"v": 2}',
        '[] {"v": 2}',
        '\t[{"v": 1}]{"v": 2}',
        '\ufeff \t[] {"v": 2}',
        "{'v': NaN} {'v': 2}",
    ],
)
def test_json_lines_that_go_on_behind_their_object_are_told(read: Read, tmp_path: Path, line: str) -> None:
    (tmp_path / "a.json").write_text('{"v": 1}\n')
    (tmp_path / "b +%41.json").write_text(f'{{"v": 3}}\n{line}\n')
    with pytest.raises(BadData, match=r"'b \+%41\.json': a line goes on behind its JSON object: write one") as caught:
        read(["a.json", "b +%41.json"], only(IntegerType()))
    assert caught.value.reason is Reason.SOURCE_UNREADABLE


def test_json_lines_that_only_look_as_if_they_went_on(read: Read, tmp_path: Path) -> None:
    lines = [
        ('{"v": "} {"}', ["} {"]),
        ('{"v": {"a": {"b": [1.50, {}]}}} \t\r', ['{"a": {"b": [1.50, {}]}}']),
        ('\ufeff{"v": "a"}', ["a"]),
        ('[{"v": "a"}, {"v": "b"}]', ["a", "b"]),
        ("[]", []),
        ("{'v': [{}, {}]}", ["[{}, {}]"]),
        ('{"v": NaN, "w": {}}', ["NaN"]),
        ("   ", []),
        ('{"v": "\\"} {"}', ['"} {']),
    ]
    (tmp_path / "a.json").write_text("\n".join(line for line, _ in lines))
    assert values(read(["a.json"], only(StringType()))) == [value for _, found in lines for value in found]


@pytest.mark.parametrize("line", ['{"v": {"w": 1}', "7 {}", "null {}", '"x" {"v": 1}', "{]} {}", "} {"])
def test_json_lines_that_begin_with_no_object_are_bad_rows(read: Read, tmp_path: Path, line: str) -> None:
    (tmp_path / "a.json").write_text(f'{{"v": 3}}\n{line}\n')
    (_, bad) = rows(read(["a.json"], only(StringType())))
    assert (bad[ERROR_COLUMN], bad[RECORD_COLUMN]) == (BROKEN, line)


def test_json_that_lacks_a_required_or_mapped_name_is_told(read: Read, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"V": 1}\n')
    with pytest.raises(BadData, match=r"'a\.json' has the column 'V' and the table has 'v'") as caught:
        read(["a.json"], only(IntegerType(), required=True))
    assert caught.value.reason is Reason.SOURCE_COLUMNS_UNUSED
    with pytest.raises(BadData, match="has no column 'w'"):
        read(["a.json"], only(IntegerType()), mapping=(ColumnMapping(column="v", from_="w"),))


def test_json_names_that_stand_twice_in_a_record_are_told(read: Read, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"v": 1, "v": 2}\n')
    with pytest.raises(BadData, match="a record has two values of one name") as caught:
        read(["a.json"], only(IntegerType()))
    assert caught.value.reason is Reason.SOURCE_UNREADABLE


@pytest.mark.parametrize("option", ["header", "delimiter", "quote", "escape"])
def test_options_of_csv_are_refused_for_json(read: Read, tmp_path: Path, option: str) -> None:
    (tmp_path / "a.json").write_text('{"v": 1}\n')
    with pytest.raises(BadSpec, match=rf"source\.options\.{option}: is for the format Csv only"):
        read(["a.json"], only(IntegerType()), options={option: "true"})


def test_json_is_utf_8(read: Read, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"v": 1}\n')
    with pytest.raises(BadSpec, match=r"source\.options\.encoding: is always UTF-8"):
        read(["a.json"], only(IntegerType()), options={"encoding": "ISO-8859-1"})


def test_json_null_text_is_null(read: Read, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"v": "NA"}\n{"v": 3}\n')
    assert values(read(["a.json"], only(IntegerType()), options={"nullValue": "NA"})) == [None, 3]


def test_a_name_that_spark_cannot_read_is_told(read: Read, tmp_path: Path) -> None:
    (tmp_path / "a:b").mkdir()
    (tmp_path / "a:b" / "c.json").write_text('{"v": 3}\n')
    assert values(read(["a:b/c.json"], only(IntegerType()))) == [3]
    (tmp_path / "a:b.json").write_text('{"v": 3}\n')
    with pytest.raises(BadSpec, match=r"'a:b\.json' has a colon in its name, which Spark cannot read: rename"):
        read(["a:b.json"], only(IntegerType()))


# Parquet and ORC

NAIVE = datetime.fromisoformat("1880-01-01T01:02:03.000004")
AWARE = NAIVE.replace(tzinfo=UTC)
ID = UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")
PARQUET: list[tuple[pa.DataType, Any, PrimitiveType, Any]] = [
    (pa.bool_(), True, BooleanType(), True),
    (pa.int8(), -1, IntegerType(), -1),
    (pa.uint8(), 255, LongType(), 255),
    (pa.int32(), 7, LongType(), 7),
    (pa.int32(), 7, DoubleType(), 7.0),
    (pa.int32(), 7, DecimalType(12, 2), Decimal("7.00")),
    (pa.uint32(), 2**32 - 1, LongType(), 2**32 - 1),
    (pa.uint64(), 2**64 - 1, DecimalType(20, 0), Decimal(2**64 - 1)),
    (pa.float32(), 0.5, DoubleType(), 0.5),
    (pa.decimal128(9, 2), Decimal("-1.25"), DecimalType(12, 4), Decimal("-1.2500")),
    (pa.string(), "𝄞", StringType(), "𝄞"),
    (pa.large_string(), "x", StringType(), "x"),
    (pa.dictionary(pa.int32(), pa.string()), "x", StringType(), "x"),
    (pa.binary(), b"\x00\xff", BinaryType(), b"\x00\xff"),
    (pa.binary(), b"abcd", FixedType(4), b"abcd"),
    (pa.binary(4), b"abcd", FixedType(4), b"abcd"),
    (pa.binary(16), ID.bytes, UUIDType(), str(ID)),
    (pa.uuid(), ID.bytes, UUIDType(), str(ID)),
    (pa.string(), str(ID).upper(), UUIDType(), str(ID)),
    (pa.date32(), date(1, 1, 1), DateType(), date(1, 1, 1)),
    (pa.time64("us"), time(1, 2, 3, 4), TimeType(), 3_723_000_004),
    (pa.time32("ms"), time(1, 2, 3, 4000), TimeType(), 3_723_004_000),
    (pa.timestamp("us"), NAIVE, TimestampType(), NAIVE),
    (pa.timestamp("ms"), NAIVE.replace(microsecond=0), TimestampType(), NAIVE.replace(microsecond=0)),
    (pa.timestamp("ns"), NAIVE, TimestampType(), NAIVE),
    (pa.timestamp("us", tz="UTC"), AWARE, TimestamptzType(), AWARE),
    (pa.timestamp("ns", tz="Europe/Berlin"), AWARE, TimestamptzType(), AWARE),
]


def plain(value: Any, kind: PrimitiveType) -> Any:
    """PySpark gives instants as naive datetimes of this process's zone and binary as bytearray."""
    if isinstance(kind, TimestamptzType):
        return value.astimezone(UTC)
    return bytes(value) if isinstance(value, bytearray) else value


def fed(read: Read, tmp_path: Path, cases: Sequence[tuple[pa.DataType, Any, PrimitiveType, Any]], name: str) -> None:
    """Assert that a file with a column for each case, of a value and a null, gives what the cases expect."""
    columns = {
        case: pa.array([value, None], kind) for case, (kind, value, _, _) in zip(numbered(cases), cases, strict=True)
    }
    (pq if name.endswith(".parquet") else orc).write_table(pa.table(columns), tmp_path / name)
    first, second = good_rows(read([name], wide(kind for _, _, kind, _ in cases)))
    found = [plain(first[case], kind) for case, (_, _, kind, _) in zip(columns, cases, strict=True)]
    assert found == [expected for _, _, _, expected in cases]
    assert [second[case] for case in columns] == [None] * len(cases)


def test_parquet_columns_feed_equal_and_wider_types(read: Read, tmp_path: Path) -> None:
    fed(read, tmp_path, PARQUET, "a.parquet")


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (pa.array(["1"]), IntegerType()),
        (pa.array([1], pa.int32()), StringType()),
        (pa.array([0.5]), DecimalType(9, 2)),
        (pa.array([AWARE], pa.timestamp("us", tz="UTC")), TimestampType()),
        (pa.array([date(1, 1, 1)]), TimestampType()),
        (pa.array([b"12345"], pa.binary(5)), FixedType(4)),
        (pa.array([None], pa.list_(pa.int32())), IntegerType()),
        (pa.array([0.5], pa.float16()), FloatType()),
    ],
    ids=lambda given: str(getattr(given, "type", given)),
)
def test_parquet_columns_of_types_that_feed_no_other_are_told(
    read: Read, tmp_path: Path, found: pa.Array, kind: PrimitiveType
) -> None:
    pq.write_table(pa.table({"v": found}), tmp_path / "a.parquet")
    with pytest.raises(BadSpec, match=r"column 'v' of 'a\.parquet' is .* cannot feed 'v'") as caught:
        read(["a.parquet"], only(kind))
    assert caught.value.reason is Reason.COLUMN_TYPE_UNSUPPORTED


EMPTY: list[tuple[pa.DataType, PrimitiveType]] = [
    (pa.null(), IntegerType()),
    (pa.null(), TimestamptzType()),
    (pa.null(), UUIDType()),
    (pa.string(), DecimalType(9, 2)),
    (pa.float16(), DateType()),
    (pa.list_(pa.int32()), StringType()),
]


def test_parquet_columns_without_a_value_feed_every_type(read: Read, tmp_path: Path) -> None:
    *plain_ones, _ = EMPTY
    columns = {name: pa.array([None] * 2, kind) for name, (kind, _) in zip(numbered(EMPTY), EMPTY, strict=True)}
    pq.write_table(pa.table({**columns, "w": [1, 2]}).drop_columns([f"v{len(plain_ones)}"]), tmp_path / "a.parquet")
    table = wide(kind for _, kind in plain_ones)
    found = good_rows(read(["a.parquet"], table))
    assert [[row[name] for name in numbered(plain_ones)] for row in found] == [[None] * len(plain_ones)] * 2
    (bad, _) = rows(read(["a.parquet"], wide((kind for _, kind in plain_ones), required=True)))
    assert bad[ERROR_COLUMN] == "column 'v0' is required and holds null"


def test_a_column_without_a_value_takes_its_type_from_other_files(read: Read, tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": [1], "op": pa.nulls(1), "w": pa.nulls(1)}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"v": [2], "op": ["D"], "w": pa.nulls(1)}), tmp_path / "b.parquet")
    found = read(["a.parquet", "b.parquet"], only(LongType()), merge=True)
    assert [(c.name, str(c.type)) for c in found.columns] == [("v", "long"), ("op", "string"), ("w", "unknown")]
    assert sorted((row["v"], row["op"], row["w"]) for row in good_rows(found)) == [(1, None, None), (2, "D", None)]


MOST = 2**63 - 1
#: By the type in the file and in the table: values that fit, and values that would lose something.
NARROWED: list[tuple[pa.DataType, PrimitiveType, list[Any], list[Any]]] = [
    (pa.int64(), IntegerType(), [2**31 - 1, -(2**31)], [2**31, -MOST]),
    (pa.int64(), DecimalType(9, 2), [1234567, -1], [12345678, MOST]),
    (pa.int64(), DoubleType(), [2**53, 2**60], [2**53 + 1, MOST]),
    (pa.int32(), FloatType(), [2**24, -(2**30)], [2**24 + 1, 2**31 - 1]),
    (pa.uint64(), LongType(), [MOST, 0], [MOST + 1, 2**64 - 1]),
    (pa.float64(), IntegerType(), [-7.0, 2.0**30], [0.5, 2.0**31]),
    (pa.float64(), LongType(), [2.0**62, -(2.0**63)], [2.0**63, float("nan")]),
    (pa.float64(), FloatType(), [0.5, float("-inf")], [0.1, 1e300]),
    (pa.float32(), IntegerType(), [3.0, -1.0], [1.5, float("inf")]),
    (pa.decimal128(9, 3), DecimalType(9, 2), [Decimal("1.230"), Decimal("-999999.990")], [Decimal("1.235")] * 2),
    (pa.decimal128(38, 2), DecimalType(9, 4), [Decimal("12345.67"), Decimal(0)], [Decimal(123456), Decimal(10**35)]),
    (pa.decimal128(9, 2), LongType(), [Decimal("5.00"), Decimal(-7)], [Decimal("5.01"), Decimal("-0.99")]),
]


def test_parquet_values_feed_narrower_types_where_they_fit(read: Read, tmp_path: Path) -> None:
    """The rows after the first two have one value each that does not fit, in a column of its own."""
    names, rows_ = numbered(NARROWED), 2 + 2 * len(NARROWED)
    columns = {}
    for at, (name, (kind, _, good, bad)) in enumerate(zip(names, NARROWED, strict=True)):
        held = [*good, *[None] * (rows_ - 2)]
        held[2 + 2 * at : 4 + 2 * at] = bad
        columns[name] = pa.array(held, kind)
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    found = rows(read(["a.parquet"], wide(kind for _, kind, _, _ in NARROWED)))
    assert [row[ERROR_COLUMN] for row in found[:2]] == [None, None]
    assert [[row[name] for name in names] for row in found[:2]] == [
        [good[n] for _, _, good, _ in NARROWED] for n in (0, 1)
    ]
    said = [
        f"column '{name}': the value is not {kind} without loss"
        for name, (_, kind, _, _) in zip(names, NARROWED, strict=True)
    ]
    assert [row[ERROR_COLUMN] for row in found[2:]] == [one for one in said for _ in range(2)]


#: A value that fits and one that does not, by their type in the file and in the table.
UNFIT: list[tuple[pa.DataType, PrimitiveType, tuple[Any, Any], str]] = [
    (pa.timestamp("ns"), TimestampType(), (1_000, 1_001), "column 'v0': the value is not timestamp without loss"),
    (pa.binary(), FixedType(4), (b"abcd", b"abc"), "column 'v1': the value is not fixed[4] without loss"),
    (pa.string(), UUIDType(), (str(ID), "x"), "column 'v2': the value is not uuid without loss"),
    (pa.int32(), IntegerType(), (1, None), "column 'v3' is required and holds null"),
]


def test_parquet_rows_that_do_not_fit_are_told(read: Read, tmp_path: Path) -> None:
    """Each case is a row of its own, with the value in a column of its own."""
    columns = {
        name: pa.array([values[row == at] for row in range(len(UNFIT))], kind)
        for at, (name, (kind, _, values, _)) in enumerate(zip(numbered(UNFIT), UNFIT, strict=True))
    }
    pq.write_table(pa.table({**columns, "w": pa.array([5] * len(UNFIT))}), tmp_path / "a.parquet")
    found = rows(read(["a.parquet"], wide((kind for _, kind, _, _ in UNFIT), required=True)))
    assert [(row[ERROR_COLUMN], row[FILE_COLUMN]) for row in found] == [(said, "a.parquet") for *_, said in UNFIT]
    assert [json.loads(row[RECORD_COLUMN])["w"] for row in found] == [5] * len(UNFIT)


def test_wall_clocks_of_a_file_are_of_the_jobs_time_zone(read: Read, tmp_path: Path) -> None:
    noon = datetime.fromisoformat("2013-07-01T12:00")
    pq.write_table(pa.table({"v": pa.array([noon], pa.timestamp("us"))}), tmp_path / "a.parquet")
    orc.write_table(pa.table({"v": pa.array([noon], pa.timestamp("us"))}), tmp_path / "a.orc")
    for name in ("a.parquet", "a.orc"):
        (found,) = values(read([name], only(TimestamptzType()), time_zone="Europe/Berlin"))
        assert found.astimezone(UTC) == datetime(2013, 7, 1, 10, tzinfo=UTC)


def test_timestamps_of_old_writers_are_instants(read: Read, tmp_path: Path) -> None:
    table = pa.table({"v": pa.array([AWARE], pa.timestamp("us", tz="UTC"))})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    (found,) = values(read(["a.parquet"], only(TimestamptzType()), time_zone="Europe/Berlin"))
    assert found.astimezone(UTC) == AWARE


def test_files_with_other_columns_and_types_go_into_one_frame(read: Read, tmp_path: Path) -> None:
    pq.write_table(pa.table({"w": ["x"], "v": pa.array([1], pa.int32())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"v": pa.array([2], pa.int64())}), tmp_path / "b.parquet")
    schema = Schema(NestedField(1, "v", LongType()), NestedField(2, "w", StringType()))
    found = read(["a.parquet", "b.parquet"], schema).frame.collect()
    assert sorted((row.v, row.w) for row in found) == [(1, "x"), (2, None)]


@pytest.mark.parametrize("name", ["a.parquet", "a.orc"])
@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"PAR1" + b"\0" * 50 + b"PAR1"], ids=["empty", "text", "torn"])
def test_files_of_another_format_are_told(read: Read, tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadData, match=f"'{name}': this is not a readable") as caught:
        read([name], only(IntegerType()))
    assert caught.value.reason is Reason.SOURCE_UNREADABLE


@pytest.mark.parametrize("given", [{"options": {"header": "true"}}, {"columns": (ColumnSpec(name="v", type="int"),)}])
def test_options_and_types_are_refused_for_typed_files(read: Read, tmp_path: Path, given: Mapping[str, Any]) -> None:
    pq.write_table(pa.table({"v": [1]}), tmp_path / "a.parquet")
    with pytest.raises(BadSpec, match=r"^source\.(options|columns)") as caught:
        read(["a.parquet"], only(LongType()), **given)
    assert caught.value.reason is Reason.INVALID_SPEC


ORC: list[tuple[pa.DataType, Any, PrimitiveType, Any]] = [
    (pa.bool_(), True, BooleanType(), True),
    (pa.int16(), -1, IntegerType(), -1),
    (pa.int64(), 2**62, LongType(), 2**62),
    (pa.float64(), -0.5, DoubleType(), -0.5),
    (pa.decimal128(20, 2), Decimal("-1.25"), DecimalType(20, 2), Decimal("-1.25")),
    (pa.string(), "𝄞", StringType(), "𝄞"),
    (pa.binary(), b"\x00\xff", BinaryType(), b"\x00\xff"),
    (pa.date32(), date(1880, 1, 1), DateType(), date(1880, 1, 1)),
    (pa.timestamp("us"), NAIVE.replace(microsecond=0), TimestampType(), NAIVE.replace(microsecond=0)),
    (pa.timestamp("us"), NAIVE.replace(year=2013), TimestampType(), NAIVE.replace(year=2013)),
]


def test_orc_columns(read: Read, tmp_path: Path) -> None:
    fed(read, tmp_path, ORC, "a.orc")


def test_orc_dates_before_the_gregorian_calendar_are_told(read: Read, tmp_path: Path) -> None:
    orc.write_table(pa.table({"v": pa.array([date(1500, 1, 1)])}), tmp_path / "a.orc")
    (row,) = rows(read(["a.orc"], only(DateType())))
    assert row[ERROR_COLUMN].endswith("is not date without loss")


def test_orc_instants_are_told(read: Read, tmp_path: Path) -> None:
    orc.write_table(pa.table({"v": pa.array([AWARE], pa.timestamp("us", tz="UTC"))}), tmp_path / "a.orc")
    with pytest.raises(BadSpec, match="column 'v' is a timestamp with local time zone") as caught:
        read(["a.orc"], only(TimestamptzType()))
    assert caught.value.reason is Reason.COLUMN_TYPE_UNSUPPORTED


def test_a_merge_sees_the_types_of_the_file_where_the_table_has_none(read: Read, tmp_path: Path) -> None:
    table = pa.table({"op": ["U"], "seq": pa.array([1], pa.int32()), "v": pa.array([1], pa.int32()), "deep": [[1]]})
    pq.write_table(table, tmp_path / "a.parquet")
    found = read(["a.parquet"], only(LongType()), merge=True)
    assert [(c.name, str(c.type)) for c in found.columns] == [("op", "string"), ("seq", "int"), ("v", "long")]


def test_a_merge_needs_the_same_columns_in_all_files(read: Read, tmp_path: Path) -> None:
    pq.write_table(pa.table({"op": ["U"], "v": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"v": [1]}), tmp_path / "b.parquet")
    with pytest.raises(BadData, match=r"'b\.parquet' has no column 'op'") as caught:
        read(["a.parquet", "b.parquet"], only(LongType()), merge=True)
    assert caught.value.reason is Reason.SOURCE_COLUMN_MISSING


def test_a_merge_needs_one_type_per_column_that_the_table_does_not_know(read: Read, tmp_path: Path) -> None:
    pq.write_table(pa.table({"seq": ["1"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"seq": [1]}), tmp_path / "b.parquet")
    with pytest.raises(BadSpec, match=r"column 'seq' is string in 'a\.parquet' and long in 'b\.parquet'"):
        read(["a.parquet", "b.parquet"], only(LongType()), merge=True)


def test_orc_of_hive_whose_names_are_positions_is_read_or_refused(read: Read, tmp_path: Path) -> None:
    """Spark takes such columns by their place, which needs all of them."""
    columns = {"_col0": pa.array([7], pa.int64()), "_col1": pa.array(["x"])}
    mapping = (ColumnMapping(column="v", from_="_col1"),)
    orc.write_table(pa.table(columns), tmp_path / "a.orc")
    assert [row["v"] for row in rows(read(["a.orc"], only(StringType()), mapping=mapping))] == ["x"]
    lists = pa.array([[7]], pa.list_(pa.int64()))
    orc.write_table(pa.table({**columns, "_col2": lists}), tmp_path / "b.orc")
    said = (
        r"'b\.orc': column '_col2' \(list<.*>\) is not loaded, .*: write the file without it, or with names of columns"
    )
    with pytest.raises(BadSpec, match=said) as caught:
        read(["b.orc"], only(StringType()), mapping=mapping)
    assert caught.value.reason is Reason.COLUMN_TYPE_UNSUPPORTED
    orc.write_table(
        pa.table(dict(zip(("id", "_col1", "tags"), [*columns.values(), lists], strict=True))), tmp_path / "b.orc"
    )
    assert [row["v"] for row in rows(read(["b.orc"], only(StringType()), mapping=mapping))] == ["x"]
