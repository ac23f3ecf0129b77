"""Json whose text Spark's parser would take for other text, or which ends the JVM: it is refused by name."""

from __future__ import annotations

import gzip
import itertools
import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType
from pyspark.sql import SparkSession
from skipstone.sources.listing import list_source
from skipstone.sources.reading import ERROR_COLUMN, read_table_rows
from skipstone.sources.text.documents import require_readable_text
from skipstone.sources.text.lines import wrong_lines
from skipstone_core.contract.requests import CatalogRef, CatalogType, SourceFormat, SourceSpec, WarehouseRef
from skipstone_core.errors import BadData
from skipstone_core.reasons import Reason

SCHEMA = Schema(NestedField(1, "v", StringType()))
TWO = '{"v": "a"}\n{"v": "b"}\n'
WIDE, NOT_UTF_8, HALF = "UTF-16 or UTF-32", "not UTF-8", "half a character"
REFUSED = {
    "utf-16-le": (TWO.encode("utf-16-le"), WIDE),
    "utf-16-be": (TWO.encode("utf-16-be"), WIDE),
    "utf-16 with mark": (TWO.encode("utf-16"), WIDE),
    "utf-32-le": (TWO.encode("utf-32-le"), WIDE),
    "utf-32-be": (TWO.encode("utf-32-be"), WIDE),
    "overlong": (b'{"v": "x\xc0\xafy"}\n', NOT_UTF_8),
    "overlong in three bytes": (b'{"v": "\xe2\x82\xac \xe0\x80\xaf"}\n', NOT_UTF_8),
    "half in bytes": (b'{"v": "x\xed\xa0\x80y"}\n', NOT_UTF_8),
    "beyond the last": (b'{"v": "x\xf4\x90\x80\x80y"}\n', NOT_UTF_8),
    "first half escaped": (rb'{"v": "x\ud83dy"}' b"\n", HALF),
    "second half behind text": (rb'{"v": "\\\\ud83d\uDE00"}' b"\n", HALF),
    "second half escaped": (rb'{"v": "\\\uDE00"}' b"\n", HALF),
}


@pytest.fixture
def warehouse(tmp_path: Path) -> WarehouseRef:
    return WarehouseRef(name="wh", root=str(tmp_path), catalog=CatalogRef(type=CatalogType.SQL))


@pytest.fixture
def read(warehouse: WarehouseRef, tmp_path: Path, spark: SparkSession) -> Any:
    """Reads one file of the given content as a load does."""

    def run(content: bytes, name: str = "a.json", **options: str) -> list[tuple[str | None, bool]]:
        (tmp_path / name).write_bytes(content)
        source = SourceSpec(format=SourceFormat.JSON, paths=(name,), options=options)
        found = read_table_rows(spark, list_source(warehouse, source), source, SCHEMA, "UTC").frame.collect()
        return [(row.asDict().get("v"), row[ERROR_COLUMN] is None) for row in found]

    return run


@pytest.mark.parametrize(("content", "said"), REFUSED.values(), ids=REFUSED)
def test_text_that_would_be_read_as_other_text_is_refused(read: Any, content: bytes, said: str) -> None:
    for options in ({}, {"multiLine": "true"}):
        with pytest.raises(BadData, match=rf"'a\.json': .*{said}") as caught:
            read(content, **options)
        assert caught.value.reason is Reason.SOURCE_UNREADABLE


@pytest.mark.parametrize("options", [{}, {"multiLine": "true"}], ids=["lines", "document"])
@pytest.mark.parametrize(
    ("record", "said"),
    [
        ('{"v": "b", "" : 1}', "a record has a value without a name, which Spark would leave out: name it"),
        ('{"v": NaN, "": {}}', "a record has a value without a name, which Spark would leave out: name it"),
        (
            r'{"v": 1, "w": 2, "\u0076": "b"}',
            "has two values of one name, of which Spark would read one: give each a name of its own",
        ),
        (
            '{"v": null, "v": NaN}',
            "has two values of one name, of which Spark would read one: give each a name of its own",
        ),
    ],
)
def test_a_value_that_would_be_left_out_is_refused(read: Any, record: str, said: str, options: dict[str, str]) -> None:
    for content in (record, f'[{{"v": "a"}}, {record}]') if options else (f'{{"v": "a"}}\n{record}', f"[{record}]"):
        with pytest.raises(BadData, match=said):
            read(content.encode(), **options)


def test_names_within_text_are_text(read: Any) -> None:
    assert read(
        rb'{"v": {"a": {"": 1}}}' + b"\n" + rb'{"v": "{\"\": 1, \"\": 2}"}' + b"\n" + b'{"v": {"x":1,"y":2}}'
    ) == [
        ('{"a": {"": 1}}', True),
        ('{"": 1, "": 2}', True),
        ('{"x":1,"y":2}', True),
    ]


def test_an_object_whose_only_name_is_empty_is_text(read: Any) -> None:
    assert read(b'{"v": {"": 1}}\n{"v": [{ "" : 2}]}') == [('{"": 1}', True), ('[{ "" : 2}]', True)]


def test_wide_text_is_refused_behind_other_lines_and_in_packed_files(read: Any) -> None:
    with pytest.raises(BadData, match=WIDE):
        read(b'{"v": "a"}\n' + TWO.encode("utf-16-be"))
    with pytest.raises(BadData, match=WIDE):
        read(gzip.compress(TWO.encode("utf-16-le")), "a.json.gz", multiLine="true")


@pytest.mark.parametrize("options", [{}, {"multiLine": "true"}], ids=["lines", "document"])
def test_text_that_only_looks_like_that_is_read(read: Any, options: dict[str, str]) -> None:
    assert read(rb'{"v": "\ud83d\uDE00 \\ud83d \\\\ude00"}' b"\n", **options) == [
        ("\U0001f600 \\ud83d \\\\ude00", True)
    ]
    text = "é€\U0001f600\uffff" * 1_000
    assert read(b"\xef\xbb\xbf" + f'{{"v": "{text}"}}'.encode(), **options) == [(text, True)]
    ((_, is_good),) = read(b'{"v": "x\xffy"}', **options)
    assert not is_good


def test_half_a_character_is_found_among_escapes_of_any_order(
    warehouse: WarehouseRef, tmp_path: Path, spark: SparkSession
) -> None:
    """As Python's parser reads them."""
    tokens = [r"\\", r"\ud83d", r"\uDE00", "x", r"\n", "ud83d", r"\u0041"]
    texts = ["".join(some) for count in range(1, 5) for some in itertools.product(tokens, repeat=count)]
    lines = [f'{{"v": "{text}"}}' for text in dict.fromkeys(texts)]
    for number, line in enumerate(lines):
        (tmp_path / f"{number}.json").write_text(line)
    halves = set()
    for file in list_source(warehouse, SourceSpec(format=SourceFormat.JSON, paths=("*.json",))).stored:
        try:
            require_readable_text(file)
        except BadData as error:
            assert HALF in str(error)
            halves.add(lines[int(file.name.removesuffix(".json"))])
    assert halves == {line for line in lines if re.search("[\ud800-\udfff]", json.loads(line)["v"])}
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    found = wrong_lines(spark.read.text(str(tmp_path / "lines.txt"))).collect()
    assert {row.value for row in found} == halves


@pytest.mark.parametrize("options", [{}, {"multiLine": "true"}], ids=["lines", "document"])
def test_a_record_that_nests_too_deep_is_a_bad_row(read: Any, options: dict[str, str]) -> None:
    for begin, end in (("[", "]"), ('{"w": ', "}")):
        assert read(f'{{"v": {begin * 999}1{end * 999}}}'.encode(), **options) == [(None, False)]
        assert read(f'{{"v": {begin * 150}1{end * 150}}}'.encode(), **options)[0][1]


#: Values that are not text, as they are written.
WRITTEN = (
    "1.10", "1e5", "1E+400", "-0", "0.00001", "123456789.10", "0.1000000000000000055511151231257827", "true",
    "12345678901234567890123", "[1.10,  2]", '{"x": 1.0, "y":  [1e2, {}]}', "[]", "[{}]", "{}", "{ }",
)  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"multiLine": "true"}], ids=["lines", "document"])
def test_values_arrive_as_they_are_written(read: Any, options: dict[str, str]) -> None:
    for mark in ("", "\ufeff"):
        for written in (
            WRITTEN if options else ["\n".join(f'{{"v": {one}}}' for one in WRITTEN), '{"v": {}}', '{"v": [{}]}']
        ):
            content = f'{{"v": {written}}}' if options else written
            expected = (written,) if options else WRITTEN if "\n" in written else (written[6:-1],)
            assert read(f"{mark}{content}".encode(), **options) == [(one, True) for one in expected]


@pytest.mark.parametrize("options", [{}, {"multiLine": "true"}], ids=["lines", "document"])
def test_texts_of_every_kind_arrive_whatever_ends_the_lines(read: Any, options: dict[str, str]) -> None:
    random, letters = (
        Random(7),
        ["a", "é", " ", "\t", "\n", "\r", '"', "\\", "/", "\0", "\x7f", "\u2028", "\U0001f600", "{", "}", "//"],
    )
    texts = ["".join(random.choice(letters) for _ in range(random.randint(0, 5))) for _ in range(200)]
    if options:
        content = json.dumps([{"v": text} for text in texts], ensure_ascii=False, indent=1)
    else:
        content = "".join(json.dumps({"v": text}) + random.choice(["\n", "\r", "\r\n"]) for text in texts)
    assert read(content.encode(), **options) == [(text, True) for text in texts]


def test_a_packed_document_is_refused_since_spark_changes_its_numbers(read: Any) -> None:
    packed = gzip.compress(b'{"v": 1.10}')
    assert read(packed, "a.json.gz") == [("1.10", True)]
    with pytest.raises(BadData, match=r"'a\.json\.gz': .* unpack it, or set multiLine to false"):
        read(packed, "a.json.gz", multiLine="true")
