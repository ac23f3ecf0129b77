"""What the driver reads of Csv and Json is what Spark reads, cell by cell; what it does not know, Spark reads."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import available_timezones

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType
from pyspark.sql import SparkSession
from skipstone.sources.arrow import table_batch
from skipstone.sources.listing import list_source
from skipstone.sources.plain import NotPlainError, PlainLimits, find_plain
from skipstone.sources.projection import ERROR_COLUMN, FILE_COLUMN
from skipstone.sources.reading import ReadRules, read_source
from skipstone.sources.text.csvrecords import CsvShape
from skipstone.sources.text.driver.casts import cast_text, null_text, require_patterns
from skipstone.sources.text.driver.csvcells import csv_cells
from skipstone.sources.text.driver.sparkonly import SparkNeeded
from skipstone.sources.text.options import TextForms, TextOptions, text_options
from skipstone.tables.arrow import arrow_type_of
from skipstone_core.contract.requests import CatalogRef, CatalogType, SourceFormat, SourceSpec, WarehouseRef
from skipstone_core.errors import BadData

from tests.examples import cases
from tests.spark.textcells import SCHEMA, TYPES, cell, patterned

LIMITS = PlainLimits(1_000_000, 64 << 20)
REFERENCES = [f"c{at}" for at in range(len(TYPES))]
ARROW = pa.schema([(name, arrow_type_of(kind)) for name, kind in TYPES.items()])


def warehouse(root: Path) -> WarehouseRef:
    return WarehouseRef(name="wh", root=str(root), catalog=CatalogRef(type=CatalogType.SQL))


def by_spark(spark: SparkSession, root: Path, source: SourceSpec, zone: str) -> list[tuple[str, dict[str, Any]]]:
    """The file and the values of each row, null where one does not fit."""
    listing = list_source(warehouse(root), source)
    read = read_source(spark, listing, source, SCHEMA, ReadRules(zone, records=True))
    table = read.frame.toArrow()
    held = pa.Table.from_batches([table_batch(batch, ARROW) for batch in table.select(list(TYPES)).to_batches()], ARROW)
    return list(zip(table[FILE_COLUMN].to_pylist(), _told(held), strict=True))


def _told(table: pa.Table) -> list[dict[str, Any]]:
    """Values that can be compared: NaN is one, and so is -0.0."""
    columns = {name: _comparable(table[name]) for name in table.column_names}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _comparable(values: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_temporal(values.type):
        number = pa.int32() if pa.types.is_date(values.type) else pa.int64()
        return list(values.cast(number).to_pylist())
    found = values.to_pylist()
    is_floating = pa.types.is_floating(values.type)
    return [repr(value) if is_floating and value is not None else value for value in found]


def here(raw: Sequence[str | None], name: str, forms: TextForms) -> list[Any]:
    """What the driver makes of each text by itself: SparkNeeded where it leaves it to Spark."""
    return list(_each(pa.chunked_array([raw], pa.string()), name, forms))


def _each(raw: pa.ChunkedArray, name: str, forms: TextForms) -> Iterator[Any]:
    """Of all at once, else of halves: few texts are left to Spark."""
    try:
        yield from _comparable(cast_text(raw, TYPES[name], forms).cast(ARROW.field(name).type))
    except SparkNeeded as error:
        if len(raw) == 1:
            yield error
        else:
            half = len(raw) // 2
            yield from _each(raw.slice(0, half), name, forms)
            yield from _each(raw.slice(half), name, forms)


PATTERNS = [
    ("yyyyMMdd", "yyyy-MM-dd HH:mm:ss"),
    ("dd/MM/yyyy", "dd.MM.yyyy HH:mm:ss.SSS"),
    ("d.M.yyyy", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"),
    ("M/d/yyyy", "M/d/yyyy H:mm"),
    ("yyyy-MM-dd", "yyyyMMddHHmmss"),
]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Madrid", "Australia/Lord_Howe"])
@pytest.mark.parametrize("patterns", [None, *PATTERNS])
def test_each_text_is_the_value_that_spark_makes_of_it(
    tmp_path: Path, spark: SparkSession, zone: str, patterns: tuple[str, str] | None
) -> None:
    random = Random(f"{zone} {patterns}")
    rows = []
    for _ in range(cases(400, 3_000)):
        make = cell if patterns is None else lambda name, drawn: patterned(name, drawn, *patterns)
        rows.append([make(name, random) for name in TYPES])
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([list(TYPES), *rows])
    (tmp_path / "a.csv").write_bytes(text.getvalue().encode())
    options = {"header": "true", "nullValue": "NULL"}
    if patterns is not None:
        options |= {"dateFormat": patterns[0], "timestampFormat": patterns[1]}
    source = SourceSpec(format=SourceFormat.CSV, paths=("a.csv",), options=options)
    options_read = text_options(source)
    require_patterns(options_read)
    forms = TextForms(options=options_read, time_zone=zone)
    listing = list_source(warehouse(tmp_path), source)
    shape = CsvShape(options_read, REFERENCES, list(TYPES))
    (cells,) = csv_cells(listing.stored[0], shape, REFERENCES)
    expected = [values for _, values in by_spark(spark, tmp_path, source, zone)]
    assert cells.num_rows == len(expected) == len(rows)
    for name, reference in zip(TYPES, REFERENCES, strict=True):
        if zone != "UTC" and name != "z":
            continue  # only instants have a zone
        raw = null_text(cells[reference], options_read.null_value).to_pylist()
        found = here(raw, name, forms)
        kept = [(text, mine, row[name]) for text, mine, row in zip(raw, found, expected, strict=True)]
        wrong = [one for one in kept if not isinstance(one[1], SparkNeeded) and one[1] != one[2]]
        assert wrong == [], name
        left = [one for one in kept if isinstance(one[1], SparkNeeded)]
        needless = [one for one in left if one[2] is not None]
        print(name, zone, patterns, f"{len(left)} of {len(kept)} left, of which {len(needless)} fit", needless[:3])


LETTERS = ("a", "é", " ", "\t", "\\", "'", '"', '""', ",", ";", "\x01", "\x0b", "\x7f", "\n", "\r", "\r\n", "1", "\x00")
COLUMNS = ("x", "y", "z")


def test_clocks_of_all_zones_show_what_those_of_spark_show(spark: SparkSession) -> None:
    """Local times of the years that the driver knows, and of the days at which clocks change in many places."""
    random = Random("zones")
    known = set(spark._jvm.java.time.ZoneId.getAvailableZoneIds())  # those of Python may be newer
    zones = sorted(name for name in available_timezones() & known if "/" in name)
    asked = []
    for zone in random.sample(zones, cases(40, len(zones))):
        for _ in range(cases(50, 400)):
            month, day = random.choice(((3, random.randint(8, 31)), (10, random.randint(1, 31)), (4, 1), (11, 2)))
            if random.random() < 0.5:
                month, day = random.randint(1, 12), random.randint(1, 28)
            clock = f"{random.randint(0, 23):02d}:{random.choice((0, 30, 59)):02d}:00"
            asked.append((zone, f"{random.randint(1970, 2037)}-{month:02d}-{day:02d} {clock}"))
    frame = spark.createDataFrame(asked, "zone string, text string")
    found = frame.selectExpr("zone", "text", "unix_micros(to_utc_timestamp(cast(text as timestamp), zone)) as micros")
    wrong = []
    with_rows: dict[str, list[Any]] = {}
    for row in found.collect():
        with_rows.setdefault(row.zone, []).append(row)
    for zone, rows in with_rows.items():
        forms = TextForms(options=TextOptions(), time_zone=zone)
        mine = _each(pa.chunked_array([[row.text for row in rows]]), "z", forms)
        told = [(row, value) for row, value in zip(rows, mine, strict=True) if not isinstance(value, SparkNeeded)]
        wrong += [(zone, row.text, value - row.micros) for row, value in told if value != row.micros]
    assert wrong == []


def _content(random: Random, options: Mapping[str, str]) -> bytes:
    """A file of a few lines: some as programs write them, some of any characters."""
    delimiter = options.get("delimiter", ",").replace("\\t", "\t").replace("\\\\", "\\")
    quote, escape = options.get("quote", '"'), options.get("escape", options.get("quote", '"'))
    end = random.choice(("\n", "\r\n", "\r"))
    lines = [delimiter.join(COLUMNS)] if options.get("header") == "true" else []
    lines = [random.choice(("", " ", "\t", "")) for _ in range(random.randint(0, 1))] + lines
    for _ in range(random.randint(0, 4)):
        if random.random() < 0.1:
            lines.append("".join(random.choice(LETTERS) for _ in range(random.randint(0, 6))))
            continue
        fields = []
        for _ in range(3 if random.random() < 0.97 else random.randint(1, 4)):
            text = "".join(random.choice((*LETTERS[:13], delimiter)) for _ in range(random.randint(0, 4)))
            if quote and random.random() < 0.5:
                inner = (
                    text.replace(escape, escape * 2).replace(quote, escape + quote) if random.random() < 0.9 else text
                )
                fields.append(quote + (text.replace(quote, quote * 2) if escape == quote else inner) + quote)
            else:
                fields.append(text.replace(delimiter, "").replace("\t", " ") if random.random() < 0.9 else text)
        lines.append(delimiter.join(fields))
    text = end.join(lines) + (end if random.random() < 0.7 else "")
    encoding = options.get("encoding", "UTF-8")
    mark = "\ufeff" if encoding == "UTF-8" and random.random() < 0.1 else ""
    return (mark + text).encode(encoding, errors="replace")


@pytest.mark.parametrize(
    "options",
    [
        {"header": "true"},
        {},
        {"delimiter": "\\t"},
        {"delimiter": ";", "quote": "'"},
        {"delimiter": " ", "header": "true"},
        {"escape": "\\"},
        {"delimiter": "|", "quote": ""},
        {"delimiter": "\x01"},
        {"encoding": "ISO-8859-1", "header": "true"},
        {"encoding": "US-ASCII"},
        {"multiLine": "true", "header": "true"},
        {"multiLine": "true", "encoding": "UTF-16", "delimiter": ";"},
        {"delimiter": "\\\\"},
        {"delimiter": '"', "quote": "'", "escape": "\\"},
    ],
    ids=str,
)
def test_lines_are_cut_as_spark_cuts_them(tmp_path: Path, spark: SparkSession, options: dict[str, str]) -> None:
    """Every file is its own case; Spark reads those that the driver takes at once."""
    random = Random(str(options))
    content = partial(_content, random, options)
    count = cases(60, 1_500)
    suffixes = (".csv", ".csv", ".csv", ".csv.gz", ".csv.bz2")
    _judge(spark, tmp_path, SourceFormat.CSV, options, [(content(), random.choice(suffixes)) for _ in range(count)])


def _packed(content: bytes, suffix: str) -> bytes:
    """As the ending says, in two parts one behind the other."""
    pack = {"gz": gzip.compress, "bz2": bz2.compress}.get(suffix.rpartition(".")[2])
    half = len(content) // 2
    return pack(content[:half]) + pack(content[half:]) if pack else content


def _judge(
    spark: SparkSession, root: Path, kind: SourceFormat, options: Mapping[str, str], files: Sequence[tuple[bytes, str]]
) -> None:
    """Each of ``files`` as the driver reads it, if it does, and all that it reads by Spark."""
    schema = Schema(*(NestedField(at, name, StringType()) for at, name in enumerate(COLUMNS, start=1)))
    mine: dict[str, list[tuple[Any, ...]]] = {}
    for number, (content, suffix) in enumerate(files):
        name = f"{number:05d}{suffix}"
        (root / name).write_bytes(_packed(content, suffix))
        source = SourceSpec(format=kind, paths=(name,), options=options)
        with suppress(BadData, NotPlainError):
            found = find_plain(list_source(warehouse(root), source), source, schema, LIMITS)
            if found is not None:
                arrow = pa.schema([(one.name, pa.string()) for one in found.columns])
                rows = [row for part in found.batches(arrow) for row in part.to_pylist()]
                mine[name] = [tuple(row.get(column) for column in COLUMNS) for row in rows]
    assert len(mine) > len(files) / 8
    source = SourceSpec(format=kind, paths=tuple(mine), options=options)
    read = read_source(spark, list_source(warehouse(root), source), source, schema, ReadRules("UTC", records=True))
    expected: dict[str, list[tuple[Any, ...]]] = {name: [] for name in mine}
    for row in read.frame.collect():
        assert row[ERROR_COLUMN] is None, row
        expected[row[FILE_COLUMN]].append(tuple(row[name] for name in COLUMNS))
    wrong = {name: (rows, expected[name]) for name, rows in mine.items()
             if sorted(rows, key=str) != sorted(expected[name], key=str)}  # fmt: skip
    assert {name: ((root / name).read_bytes(), *rows) for name, rows in wrong.items()} == {}
    print(options, f"{len(mine)} of {len(files)} files in the driver")


TEXTS = ("a", "é", "𝄞", " ", "\\n", "\\u0041", "\\ud83d\\ude00", "\\/", '\\"', "\\\\", "{", "[", "//", "\u2028", "\x7f")
ODD_TEXTS = ("\\ud800", "\ufffd", "\x01", "\\x", "\\u00zz", '"', "\t", "\ufeff")
NUMBERS = ("0", "-0", "1.50", "1E5", "-12e-3", "123456789012345678901234567890", "1e400", "true", "false", "null")
ODD_NUMBERS = ("01", "+1", ".5", "1.", "NaN", "-Infinity", "0x10", "True", "nul", "1_0", "9" * 400, "'a'", "a", "")


def _json(random: Random, depth: int = 0) -> str:
    """A value of Json, now and then of no Json."""
    drawn = random.random()
    if drawn < 0.5:
        letters = [random.choice(TEXTS if random.random() < 0.99 else ODD_TEXTS) for _ in range(random.randint(0, 4))]
        return f'"{"".join(letters)}"'
    if drawn < 0.85 or depth > 2:
        return random.choice(NUMBERS if random.random() < 0.97 else ODD_NUMBERS)
    blank = random.choice(("", "", " ", "\t"))
    items = [_json(random, depth + 1) for _ in range(random.randint(0, 3))]
    if drawn < 0.92:
        return f"[{blank}{f'{blank},'.join(items)}{blank}]"
    names = [
        random.choice(('"a"', '"b"', '"c"', '""')) if random.random() < 0.1 else f'"k{at}"'
        for at, _ in enumerate(items)
    ]
    return f"{{{blank}{', '.join(f'{name}:{blank}{item}' for name, item in zip(names, items, strict=True))}{blank}}}"


def _json_record(random: Random) -> str:
    names = [name for name in ("x", "y", "z", "more") if random.random() < 0.8]
    random.shuffle(names)
    names += [random.choice((*names, ""))] if random.random() < 0.01 and names else []
    written = [
        f'"{name}"' if random.random() < 0.97 else f'"\\u00{ord(name[0]):x}{name[1:]}"' for name in names if name
    ]
    blank = random.choice(("", "", " ", "  "))
    text = f"{{{', '.join(f'{name}{blank}:{blank}{_json(random)}' for name in written)}}}"
    odd = (
        f"[{text}]",
        f"[{text}, {text}]",
        f"{text} {text}",
        f"{text},",
        f"\ufeff{text}",
        "",
        " ",
        "[]",
        "5",
        text[:-1],
        "#",
    )
    return text if random.random() < 0.9 else random.choice(odd)


@pytest.mark.parametrize("multi_line", ["false", "true"])
def test_records_of_json_are_cut_as_spark_cuts_them(tmp_path: Path, spark: SparkSession, multi_line: str) -> None:
    random = Random(multi_line)
    files = []
    for _ in range(cases(150, 3_000)):
        end = random.choice(("\n", "\r\n", "\r"))
        records = [_json_record(random) for _ in range(random.randint(1, 4))]
        text = end.join(records) + random.choice(("", end))
        if multi_line == "true":
            text = random.choice((records[0], f"[{f',{end}'.join(records)}]", f"{end}{records[0]}{end}"))
        is_packed = multi_line == "false" and random.random() < 0.2
        files.append((text.encode("utf-8", "surrogatepass"), ".json.gz" if is_packed else ".json"))
    _judge(spark, tmp_path, SourceFormat.JSON, {"multiLine": multi_line}, files)
