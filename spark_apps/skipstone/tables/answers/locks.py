"""Who holds the lock of an SQLite catalog that others wait for in vain: a sentence that names it, if that is known.

SQLite itself tells nobody. So a connection of ours leaves a note beside the file from its first change to the end of
its transaction, and whoever waited too long reads it. Pods do not see each other's processes, but share the file's
folder. Must not open the catalog's file: closing it would release the locks that SQLite holds in this process.
"""

from __future__ import annotations

import os
import socket
import sqlite3
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import OperationalError

#: What the name of a note ends with, after that of the catalog's file.
NOTE_ENDING = "-held"
_LOCKED = "database is locked"
_READS = ("SELECT", "PRAGMA")
#: How long a note may be, in bytes.
_MOST_READ = 500


class LockedError(sqlite3.OperationalError):
    """The catalog was locked for longer than a connection waits. Nothing of its transaction is in the catalog."""


def find_lock(error: BaseException) -> LockedError | None:
    """The cause of ``error`` if the catalog was locked."""
    return error.orig if isinstance(error, OperationalError) and isinstance(error.orig, LockedError) else None


def watch_locks(engine: Engine, busy_seconds: float) -> None:
    """Leave notes for connections of ``engine``, if it is of SQLite, and name who holds the lock in their errors.

    ``busy_seconds``: how long its connections wait.
    """
    database = engine.url.database
    if engine.dialect.name != "sqlite" or not database:
        return
    file = Path(unquote(database.removeprefix("file:")))
    note, ours = file.with_name(f"{file.name}{NOTE_ENDING}"), _note()

    def hold(_: Connection, __: object, statement: str, *___: object) -> None:
        if not statement.lstrip().upper().startswith(_READS):
            with suppress(OSError):
                note.write_text(ours)

    def release(*_: object) -> None:
        with suppress(OSError):
            if note.read_text() == ours:
                note.unlink()

    def name_holder(context: ExceptionContext) -> OperationalError | None:
        if _LOCKED not in str(context.original_exception):
            return None
        problem = f"the SQLite file {file} was locked for more than {busy_seconds:.0f} s by {_holder(note, ours)}"
        error = LockedError(f"{problem}; nothing was changed: end that process, or let it go on")
        return OperationalError(context.statement, None, error)

    event.listen(engine, "after_cursor_execute", hold)
    event.listen(engine.pool, "checkin", release)
    event.listen(engine, "handle_error", name_holder, retval=True)


def _note() -> str:
    return f"{socket.gethostname()} {os.getpid()}"


def _holder(note: Path, ours: str) -> str:
    """Who left the note; what is told of its process is known on its own machine only."""
    unknown = "a process that left no note: look for a pod or program that uses this catalog and does not go on"
    try:
        with note.open() as file:
            host, _, pid = file.read(_MOST_READ).strip().partition(" ")
    except OSError:
        return unknown
    if not pid.isdecimal() or f"{host} {pid}" == ours:
        return unknown
    state = _state(int(pid)) if host == socket.gethostname() else ""
    return unknown if state == "gone" else f"process {pid} of {host}{state}"


def _state(pid: int) -> str:
    """Return the state of a process of this machine, if it is worth telling; ``gone`` if there is none."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "gone"
    return ", which is stopped" if state in ("T", "t") else ""
