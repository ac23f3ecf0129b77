"""The inputs of Spark's own SQL tests, out of the jar in which the Spark project publishes its tests.

Used by the soak that runs them over indexed tables. Nothing of them is kept here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from zipfile import ZipFile

from tests.spark.jars import jar_paths

#: The newest release whose tests are published beside the Spark that we run.
SPARK_TESTS = ("org.apache.spark:spark-sql_2.13:4.1.3:tests",)
_INPUTS = "sql-tests/inputs/"
#: Inputs that Spark runs without ANSI.
_NOT_ANSI = "nonansi/"
_QUERY = re.compile(r"[\s(]*(select|with|from|table|values)\b", re.IGNORECASE)
_COMMAND = re.compile(r"\binsert\s+(into|overwrite)\b", re.IGNORECASE)
#: What ends or begins something: quotes, comments, and the end of a statement.
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`[^`]*`|--[^\n]*|/\*|\*/|(?<!\\);""", re.DOTALL)


@dataclass(frozen=True)
class Statement:
    """A statement of an input. ``is_query``: it gives rows and changes nothing."""

    text: str
    is_query: bool


@dataclass(frozen=True)
class Input:
    """A file of statements with the settings that its session needs."""

    name: str
    settings: dict[str, str]
    statements: tuple[Statement, ...]


@lru_cache(maxsize=1)
def _jar() -> ZipFile:
    return ZipFile(jar_paths("spark-sql-tests", SPARK_TESTS)[0])


#: Inputs that are left out: those that need functions of Spark's own tests, scripts, one that Spark ignores, one about
#: how statements are divided, and one that inserts hundreds of rows one by one for queries on arithmetic.
_LEFT_OUT = re.compile(r"(udf|udaf|udtf|scripting)/|(ignored|comments|postgreSQL/numeric)$")


def input_names() -> list[str]:
    """Names of the inputs, such as ``subquery/in-subquery/in-joins``."""
    names = (name for name in _jar().namelist() if name.startswith(_INPUTS) and name.endswith(".sql"))
    found = (name.removeprefix(_INPUTS).removesuffix(".sql") for name in names)
    return sorted(name for name in found if not _LEFT_OUT.match(name))


def read_input(name: str) -> Input:
    """An input, with the statements of those that it imports first."""
    lines = list(_lines(name))
    settings = {"spark.sql.ansi.enabled": str(not name.startswith(_NOT_ANSI)).lower()}
    settings |= dict(_settings(line.removeprefix("--SET")) for line in lines if line.startswith("--SET"))
    statements = (Statement(text, _is_query(text)) for text in _statements(lines))
    return Input(name, settings, tuple(statements))


def read_data(name: str) -> list[list[str]]:
    """Fields of each line of a file of data that some inputs read."""
    text = _jar().read(f"test-data/postgresql/{name}.data").decode()
    return [line.split("\t") for line in text.splitlines()]


def _lines(name: str) -> Iterator[str]:
    own = _jar().read(f"{_INPUTS}{name}.sql").decode().splitlines()
    for line in own:
        if line.startswith("--IMPORT"):
            yield from _lines(line.removeprefix("--IMPORT").strip().removesuffix(".sql"))
    yield from own


def _settings(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    return key.strip(), value.strip()


def _statements(lines: list[str]) -> Iterator[str]:
    """Statements end with a semicolon, but between two marks there is one whatever it holds."""
    loose: list[str] = []
    whole: list[str] | None = None
    for line in lines:
        if line.startswith("--QUERY-DELIMITER-START"):
            yield from _split("\n".join(loose))
            loose, whole = [], []
        elif line.startswith("--QUERY-DELIMITER-END"):
            yield "\n".join(whole or ()).strip().removesuffix(";")
            whole = None
        else:
            (loose if whole is None else whole).append(line)
    yield from _split("\n".join(loose))


def _split(text: str) -> Iterator[str]:
    """Statements without comments; a hint looks like one and stays."""
    parts: list[str] = []
    depth = at = 0
    for token in _TOKEN.finditer(text):
        if depth == 0:
            parts.append(text[at : token.start()])
        at = token.end()
        found = token.group()
        if found == "/*" and text[at : at + 1] != "+":
            depth += 1
        elif found == "*/" and depth:
            depth -= 1
        elif depth == 0 and found == ";":
            yield from _said(parts)
            parts = []
        elif depth == 0 and not found.startswith("--"):
            parts.append(found)
    if depth == 0:
        parts.append(text[at:])
    yield from _said(parts)


def _said(parts: list[str]) -> Iterator[str]:
    text = "".join(parts).strip()
    if text:
        yield text


def _is_query(text: str) -> bool:
    return bool(_QUERY.match(text)) and not _COMMAND.search(text)
