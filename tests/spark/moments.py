"""Lets somebody else do something at a chosen moment of a run: before one of its statements reaches a database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import event
from sqlalchemy.engine import Engine


@contextmanager
def at_statement(number: int, do: Callable[[], object]) -> Iterator[list[str]]:
    """Before the statement of this number reaches a database, something is done by somebody else; all so far."""
    seen: list[str] = []

    def look(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if seen[-1:] == ["busy"]:
            return
        if len(seen) + 1 == number:
            seen.append("busy")
            do()
            seen.pop()
        seen.append(" ".join(statement.split()))

    event.listen(Engine, "before_cursor_execute", look)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", look)
