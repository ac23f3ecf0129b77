"""The SQLite file: its tables, its settings, who may read it."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

#: The number of this layout; a file of a later one is not opened.
LAYOUT = 1
#: Seconds to wait for another connection, such as a person's `sqlite3`, to let go of the file.
PATIENCE = 10.0
TABLES = """
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO counters VALUES ('version', 1), ('compacted', 1);
CREATE TABLE IF NOT EXISTS objects (
    resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    uid TEXT NOT NULL UNIQUE, version INTEGER NOT NULL, body TEXT NOT NULL,
    UNIQUE (resource, namespace, name)
);
CREATE INDEX IF NOT EXISTS objects_by_namespace ON objects (namespace, resource, name);
CREATE TABLE IF NOT EXISTS owners (
    owner TEXT NOT NULL, resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    PRIMARY KEY (owner, resource, namespace, name)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS owners_by_place ON owners (resource, namespace, name);
CREATE TABLE IF NOT EXISTS changes (
    version INTEGER PRIMARY KEY, resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    before TEXT, after TEXT, size INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS changes_by_resource ON changes (resource, version);
"""


class ForeignLayout(OSError):
    """The file was written by a later release, or is of something else; the text says what to do."""


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, making it if it is missing; only its owner may read it. Raises ForeignLayout, OSError.

    What was committed is on disk when the commit returns, and stays whole whenever the process dies.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        (layout,) = connection.execute("PRAGMA user_version").fetchone()
        if layout > LAYOUT:
            raise ForeignLayout(
                f"{path} has layout {layout}, and this release of Skipstone knows up to {LAYOUT}: install the release "
                "that wrote it, or a later one"
            )
        if not layout and connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise ForeignLayout(f"{path} is a database of another program: name another folder, or move this file away")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(f"BEGIN IMMEDIATE; {TABLES} PRAGMA user_version = {LAYOUT}; COMMIT;")
    except sqlite3.DatabaseError as error:
        connection.close()
        raise ForeignLayout(
            f"{path} cannot be opened ({error}): name another folder, or move this file away"
        ) from error
    except BaseException:
        connection.close()
        raise
    return connection
