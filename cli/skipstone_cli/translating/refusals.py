"""What a MergeJob cannot say, and the parts of a statement that were found to say it.

Raised where a part is read, collected where the parts are put together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

from sqlglot import exp
from sqlglot.errors import SqlglotError

Read = TypeVar("Read")
#: Under this name the root of a statement has its dialect.
GRAMMAR = "grammar"
#: The way out where a statement chooses or makes rows.
WRITE_ROWS = "write the rows that it selects to files, and merge those"
#: Characters of SQL that a sentence shows.
_SHOWN = 60


class Untranslatable(Exception):
    """A part of a statement that a MergeJob cannot say: one sentence with the way out."""


@dataclass
class Parts:
    """The parts of a statement that could not be translated, in its order."""

    refused: list[str] = field(default_factory=list)

    def attempt(self, name: str, read: Callable[[], Read]) -> Read | None:
        """Return the result of ``read``; None if it is refused: the sentence is kept."""
        try:
            return read()
        except Untranslatable as error:
            self.refused.append(f"{name}: {error}")
            return None

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Keep the sentence of what is refused within, and go on with the next part."""
        try:
            yield
        except Untranslatable as error:
            self.refused.append(f"{name}: {error}")


def only(node: exp.Expr, *names: str, instead: str = "leave it out") -> None:
    """Raise Untranslatable if ``node`` has more than the parts ``names``: what nobody reads must not be there.

    ``instead``: the way out; without a part that chooses rows, others would be merged.
    """
    others = [name for name, value in node.args.items() if value not in (None, False, []) and name not in names]
    if others:
        word = ", ".join(name.strip("_").replace("_", " ").upper() for name in others)
        raise Untranslatable(f"{quoted(node)} has a part ({word}) that a MergeJob does not have: {instead}")


def quoted(node: exp.Expr) -> str:
    """The SQL of ``node``, as a sentence shows it."""
    text = str(node.key)
    with suppress(SqlglotError):
        text = " ".join(node.sql(node.root().meta.get(GRAMMAR), comments=False).split())
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
