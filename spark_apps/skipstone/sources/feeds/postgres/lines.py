"""Lines of wal2json as messages, and what they say of columns.

Called by ``files``. Numbers keep all their digits and the sign of zero. Each message names the types of its columns:
they are gathered, so that messages of one table share them until a type changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from skipstone.sources.feeds.kafka.connect import parsed
from skipstone.sources.feeds.shapes import FeedError, Fields, Raw, Semantic, Semantics, TableChoice
from skipstone.sources.feeds.values.postgres import Unquoted, postgres_semantic

#: Longer whole numbers stay text: Python refuses to read those of thousands of digits.
_DIGITS = 40
_QUOTED_TYPE = re.compile(rb'"type":"(?:[^"\\]|\\.)*"[^,}]')
_PARTS = ("columns", "identity")


def table_of(message: Fields) -> str | None:
    """Return the name of the table of ``message`` with its schema; None when it does not tell both."""
    schema, table = message.get("schema"), message.get("table")
    return f"{schema}.{table}" if isinstance(schema, str) and isinstance(table, str) else None


def columns_of(message: Fields, part: str) -> Sequence[Fields]:
    """Return the columns that ``message``, which ``Wal2JsonLines`` has read, lists in ``part``."""
    return cast(Sequence[Fields], message.get(part) or ())


def _require_columns(message: Fields, part: str) -> Sequence[Fields]:
    """The same of a message that was not looked at. Raises FeedError."""
    listed = message.get(part, [])
    if not isinstance(listed, list) or not all(map(_is_column, listed)):
        raise FeedError(f"its '{part}' is not a list of columns, as wal2json writes it in format-version 2")
    return listed


def _is_column(column: Raw) -> bool:
    return isinstance(column, Mapping) and isinstance(column.get("name"), str)


def _parsed(line: bytes) -> Raw:
    try:
        return parsed(line, _DECODER)
    except FeedError as error:
        if _QUOTED_TYPE.search(line):
            raise FeedError(
                "a column's type is not JSON, as wal2json writes one whose schema needs quotes: rename the schema in "
                "the database, or leave the table out (filter-tables of wal2json)"
            ) from error
        raise


def _whole(text: str) -> Raw:
    return Unquoted(text) if text == "-0" or len(text) > _DIGITS else int(text)


_DECODER = json.JSONDecoder(parse_float=Unquoted, parse_int=_whole)


@dataclass
class Wal2JsonLines:
    """Reads one line after the other; ``choice``: whose columns are gathered."""

    choice: TableChoice
    _semantics: dict[str, Semantic] = field(default_factory=dict)

    def read(self, line: bytes) -> tuple[Fields, Semantics] | None:
        """The message of ``line`` and the types of columns; None for a blank line. Raises FeedError."""
        if not line.strip():
            return None
        message = _parsed(line)
        if not isinstance(message, Mapping):
            raise FeedError("it is not a JSON object: write one message a line")
        if self.choice.takes(table_of(message) or ""):
            self._gather(dict(self._types(message)))
        return message, self._semantics

    def _types(self, message: Fields) -> Iterator[tuple[str, Semantic]]:
        for part in _PARTS:
            for column in _require_columns(message, part):
                if not isinstance(column.get("type"), str):
                    raise FeedError(
                        "it does not tell the types of columns, by which values are read: set include-types of "
                        "wal2json to true"
                    )
                yield str(column["name"]), postgres_semantic(str(column["type"]))

    def _gather(self, semantics: Mapping[str, Semantic]) -> None:
        known = self._semantics
        if any(known.get(name, semantic) != semantic for name, semantic in semantics.items()):
            self._semantics = known = {**known}  # a batch of changes before this one is read by the old types
        known.update(semantics)
