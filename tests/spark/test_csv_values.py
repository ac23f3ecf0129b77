"""Values of Csv files arrive as they were written, in every dialect and with every line end; Python's csv says which.

What would be read otherwise is refused.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession
from skipstone.sources.failures import readable
from skipstone.sources.listing import list_source
from skipstone.sources.reading import ERROR_COLUMN, read_table_rows
from skipstone_core.contract.requests import CatalogRef, CatalogType, SourceFormat, SourceSpec, WarehouseRef
from skipstone_core.errors import BadData, BadSpec

from tests.examples import cases

SCHEMA = Schema(NestedField(1, "n", LongType()), NestedField(2, "a", StringType()), NestedField(3, "b", StringType()))
LINE_ENDS = ("\n", "\r\n", "\r")
Row = tuple[int, str | None, str | None]


class Files:
    """A folder of Csv files, each read with the same options."""

    def __init__(self, root: Path, spark: SparkSession, **options: str) -> None:
        self.root, self.spark, self.options = root, spark, options

    def rows(self, *contents: str | bytes, header: bool = True) -> list[Row]:
        """The rows of all files; none may be bad."""
        for number, content in enumerate(contents):
            raw = content.encode(self.options.get("encoding", "UTF-8")) if isinstance(content, str) else content
            (self.root / f"{number}.csv").write_bytes(raw)
        options = {"header": str(header).lower(), **self.options}
        source = SourceSpec(format=SourceFormat.CSV, paths=("*.csv",), options=options)
        warehouse = WarehouseRef(name="wh", root=str(self.root), catalog=CatalogRef(type=CatalogType.SQL))
        listing = list_source(warehouse, source)
        with readable(listing):
            found = read_table_rows(self.spark, listing, source, SCHEMA, "UTC").frame.collect()
        assert {row[ERROR_COLUMN] for row in found} <= {None}
        return [(row[0], row[1], row[2]) for row in found]


def value(random: Random, letters: Sequence[str]) -> str:
    return "".join(random.choice(letters) for _ in range(random.randint(0, 4)))


@pytest.mark.parametrize(
    ("options", "dialect"),
    [
        ({"multiLine": "true"}, {}),
        ({}, {}),
        ({"multiLine": "true", "delimiter": "\\t", "quote": "'"}, {"delimiter": "\t", "quotechar": "'"}),
        ({"multiLine": "true", "encoding": "UTF-16"}, {"delimiter": ","}),
        ({"delimiter": " "}, {"delimiter": " "}),
        ({"escape": "\\"}, {"doublequote": False, "escapechar": "\\"}),
        ({"encoding": "ISO-8859-1", "delimiter": "§"}, {"delimiter": "§"}),
    ],
)
def test_values_in_quotes_arrive_as_they_are(
    tmp_path: Path, spark: SparkSession, options: dict[str, str], dialect: dict[str, str]
) -> None:
    random = Random(str(options))
    letters = [
        "a",
        "é",
        " ",
        "\t",
        "\\",
        "'",
        '"',
        ",",
        "§",
        "\x01",
        "\x0b",
        "\x85" if "encoding" not in options else "b",
    ]
    if "multiLine" in options:
        letters += ["\n", "\r", "\r\n", "\n\n"]
    contents, expected = [], []
    for number in range(cases(60, 2000)):
        text, line_end = io.StringIO(newline=""), random.choice(LINE_ENDS)
        writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator=line_end, **dialect)
        rows = [(number, value(random, letters), value(random, letters)) for _ in range(random.randint(1, 3))]
        writer.writerows([("n", "a", "b"), *rows])
        content = text.getvalue()
        contents.append(content if random.random() < 0.7 else content.removesuffix(line_end))
        expected += rows
    assert sorted(Files(tmp_path, spark, **options).rows(*contents)) == sorted(expected)


@pytest.mark.parametrize("multi_line", ["true", "false"])
def test_fields_without_quotes_keep_their_blanks_and_empty_ones_are_null(
    tmp_path: Path, spark: SparkSession, multi_line: str
) -> None:
    files = Files(tmp_path, spark, multiLine=multi_line)
    content = '1, a ,b \r\n2,,""\r\n3, "x",y"z"\r\n\r\n \t\r\n4,#,\\N\r\n5,a\0,"c"'
    assert sorted(files.rows(content, header=False)) == [
        (1, " a ", "b "), (2, None, ""), (3, ' "x"', 'y"z"'), (4, "#", "\\N"), (5, "a\0", "c")
    ]  # fmt: skip


def test_with_multi_line_a_row_of_blanks_and_delimiters_is_a_row_and_text_goes_on_behind_quotes(
    tmp_path: Path, spark: SparkSession
) -> None:
    files = Files(tmp_path, spark, multiLine="true", delimiter="\\t")
    assert files.rows('n\ta\tb\n\t\t\n \t\n1\t"x"y\t"z" \n'.replace(" \t\n", ""), header=True) == [
        (None, None, None), (1, "xy", "z ")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "content", "says"),
    [
        ({}, '1,a,"two\nlines"\n', "a quote is not closed in its line"),
        ({}, '1,a,"two\n2,a,lines"\n', "a quote is not closed in its line"),
        ({}, '1,"a"b,c\n', "text follows a closing quote: set multiLine to true"),
        ({}, '1,"a" ,c\n', "text follows a closing quote"),
        ({"delimiter": "\\t"}, "1\ta\tb\n\t\t\n", "Spark would leave out its row: set multiLine to true"),
        ({"delimiter": "\x01"}, "1\x01a\x01b\n\x01\x01\n", "Spark would leave out its row"),
        ({}, "1,\uf8ff,c\n", r"U\+F8FF"),
        ({"multiLine": "true"}, '1,a,"b\n2,c,d\n', "a quote is not closed before the file ends"),
        ({"multiLine": "true"}, '1,a,b\n"2,c,d', "a quote is not closed before the file ends"),
        ({"multiLine": "true", "escape": "\\"}, '1,"a\r\nb",c\r\n', "a carriage return .* write line feeds only"),
        ({"multiLine": "true", "escape": "\\"}, '1,a,"b\n', "a quote is not closed"),
        ({"multiLine": "true", "delimiter": "§"}, "1§a§b\r", "a carriage return"),
        (
            {"multiLine": "true", "encoding": "UTF-16"},
            "1,a,b\n".encode("utf-16-le"),
            "set the option encoding to UTF-16LE",
        ),
    ],
)
def test_what_would_be_read_otherwise_is_refused(
    tmp_path: Path, spark: SparkSession, options: dict[str, str], content: str | bytes, says: str
) -> None:
    with pytest.raises(BadData, match=rf"'0\.csv': .*{says}"):
        Files(tmp_path, spark, **options).rows(content, header=False)


def test_a_backslash_escapes_quotes_over_line_feeds(tmp_path: Path, spark: SparkSession) -> None:
    files = Files(tmp_path, spark, multiLine="true", escape="\\")
    assert files.rows('n,a,b\n1,"two\nlines, \\"q\\"","C:\\\\x"\n') == [(1, 'two\nlines, "q"', "C:\\x")]


@pytest.mark.parametrize("name", ["UTF-16LE", "UTF-16BE"])
def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path, spark: SparkSession, name: str) -> None:
    files = Files(tmp_path, spark, multiLine="true", encoding=name)
    marked = '"n",a,b\n1,"x\r\n",é\n'
    assert files.rows(marked, f"\ufeff{marked}") == [(1, "x\r\n", "é")] * 2


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"quote": " "}, "quote"),
        ({"escape": "\t"}, "escape"),
        ({"escape": ","}, "delimiter"),
        ({"quote": "😀"}, "quote"),
    ],
)
def test_dialects_that_spark_does_not_read_are_refused(
    tmp_path: Path, spark: SparkSession, options: dict[str, str], field: str
) -> None:
    with pytest.raises(BadSpec, match=rf"^source\.options\.{field}: "):
        Files(tmp_path, spark, **options).rows("n,a,b\n")
