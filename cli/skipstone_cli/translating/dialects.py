"""The dialects of SQL that are read, and in what they differ from the expressions of a MergeJob, which are Spark's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect as Grammar
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from skipstone_cli.errors import CliError
from skipstone_cli.translating.refusals import GRAMMAR, Untranslatable

#: Under this name a statement records that it adds columns.
EVOLVES = "evolves"
_EVOLUTION = re.compile(r"\bmerge\s+with\s+schema\s+evolution\s+into\b", re.IGNORECASE)
_TEXTS = frozenset({TokenType.STRING, TokenType.RAW_STRING, TokenType.HEREDOC_STRING, TokenType.UNICODE_STRING})


@dataclass(frozen=True)
class Dialect:
    """One dialect. ``grammar``: its name in sqlglot. ``operators``: those of + - * / % whose results are Spark's.

    ``casts``: whether its casts are Spark's. ``rounds``: whether ``round`` is.
    """

    name: str
    grammar: str
    operators: str
    casts: bool = False
    rounds: bool = False


def _of_spark(name: str, grammar: str) -> Dialect:
    return Dialect(name, grammar, "+-*/%", casts=True, rounds=True)


#: Trino divides whole numbers to whole numbers, and rounds doubles by products (1.005 to 1.0); Snowflake and BigQuery
#: round products of decimals.
DIALECTS: Mapping[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        _of_spark("spark", "spark"),
        _of_spark("delta", "spark"),
        _of_spark("iceberg", "spark"),
        _of_spark("databricks", "databricks"),
        Dialect("trino", "trino", "+-*%"),
        Dialect("snowflake", "snowflake", "+-%"),
        Dialect("bigquery", "bigquery", "+-"),
    )
}


def find_dialect(name: str) -> Dialect:
    """The dialect called ``name``. Raises CliError."""
    if name.lower() not in DIALECTS:
        raise CliError(f"--dialect is {name!r}: use {', '.join(DIALECTS)}")
    return DIALECTS[name.lower()]


def parse_merge(text: str, dialect: Dialect) -> exp.Merge:
    """The MERGE statement that ``text`` consists of. Raises Untranslatable."""
    evolution = _find_evolution(text, dialect)
    text = text if evolution is None else f"{text[: evolution.start()]}MERGE INTO{text[evolution.end() :]}"
    try:
        _refuse_escapes(text, dialect)
        statements = [statement for statement in sqlglot.parse(text, read=dialect.grammar) if statement is not None]
    except SqlglotError as error:
        reason = str(error).splitlines()[0].rstrip(". ")
        raise Untranslatable(
            f"it is not SQL of {dialect.name} that sqlglot reads ({reason}): try another --dialect"
        ) from None
    if len(statements) != 1:
        raise Untranslatable(f"there are {len(statements)} statements: give one MERGE INTO at a time")
    if not isinstance(statements[0], exp.Merge):
        raise Untranslatable(f"the statement is {statements[0].key.upper()}: give a MERGE INTO")
    statements[0].meta[GRAMMAR] = dialect.grammar
    statements[0].meta[EVOLVES] = evolution is not None
    return statements[0]


def _find_evolution(text: str, dialect: Dialect) -> re.Match[str] | None:
    """Return the words MERGE WITH SCHEMA EVOLUTION INTO, which sqlglot does not read, where they are no text."""
    try:
        starts = {token.start for token in Grammar.get_or_raise(dialect.grammar).tokenize(text)}
    except SqlglotError:
        return None
    return next((match for match in _EVOLUTION.finditer(text) if match.start() in starts), None)


def _refuse_escapes(text: str, dialect: Dialect) -> None:
    """Engines differ in what a backslash in a text means, and Spark 4 reads two quotes otherwise than Spark 3."""
    grammar = Grammar.get_or_raise(dialect.grammar)
    if "\\" not in grammar.tokenizer_class.STRING_ESCAPES:
        return
    end = -1
    for token in grammar.tokenize(text):
        if token.token_type not in _TEXTS:
            continue
        raw = text[token.start : token.end + 1]
        if token.start == end + 1 or "\\" in raw.replace("\\'", "").replace('\\"', ""):
            raise Untranslatable(
                f"the text {raw} has an escape or stands behind another text without a blank, which versions of "
                "engines read differently: write a quote as \\' and leave out other escapes"
            )
        end = token.end
