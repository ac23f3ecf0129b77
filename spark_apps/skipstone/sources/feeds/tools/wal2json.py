"""Messages of wal2json as changes.

Source: the documentation of wal2json, "format-version 2", and its messages in 2.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from skipstone_core.contract.formats import ChangeFormat
from skipstone_core.merging.feeds import DELETE, NO_ROW, TRUNCATE, UPSERT

from skipstone.sources.feeds.deletedkeys import require_keys
from skipstone.sources.feeds.messages import message_batches
from skipstone.sources.feeds.positions import text_of, u64
from skipstone.sources.feeds.postgres.lines import Wal2JsonLines, columns_of, table_of
from skipstone.sources.feeds.postgres.sharedkeys import SharedKeys
from skipstone.sources.feeds.registry import Tool
from skipstone.sources.feeds.shapes import (
    NOWHERE,
    UNAVAILABLE,
    Change,
    FeedError,
    FeedTarget,
    Fields,
    Mark,
    Raw,
    Semantics,
    TableChoice,
    ValueStyle,
)
from skipstone.sources.feeds.values.postgres import (
    NO_NUMBER,
    Unquoted,
    has_non_finite,
    is_number,
    may_be_large,
    postgres_semantic,
)

_INSERT, _UPDATE, _DELETE, _TRUNCATE = "I", "U", "D", "T"
_ACTIONS = (_INSERT, _UPDATE, _DELETE, _TRUNCATE)
_BEGIN = "B"
_WAL = re.compile(r"([0-9a-fA-F]{1,8})/([0-9a-fA-F]{1,8})", re.ASCII)
#: The begin and the end of a transaction, and messages of applications.
_OF_NO_ROW = (_BEGIN, "C", "M")


@dataclass
class Wal2JsonReader:
    """Reads messages with ``columns`` and ``identity``.

    ``keys``: the columns that name a row; ``large``: those whose values may be left out of updates. ``is_declared``:
    the spec says that the replica identity has the keys.
    """

    keys: tuple[str, ...]
    large: tuple[str, ...]
    choice: TableChoice
    is_declared: bool = False
    allow_truncate: bool = False
    _numbers: _Numbers = field(default_factory=lambda: _Numbers())
    _columns: _Columns = field(default_factory=lambda: _Columns())
    _shared: SharedKeys = field(init=False)
    _transactions: int = 0

    def __post_init__(self) -> None:
        """No row is known yet."""
        self._shared = SharedKeys(self.keys)

    def changes(self, message: Fields, line: int, _columns: Semantics) -> Iterator[Change]:
        """What ``message`` does: nothing, one change, or two when a key changes. Raises FeedError."""
        action = message.get("action")
        table = None if action in _OF_NO_ROW else _required_table(message)
        self._transactions += action == _BEGIN
        if table is None or not self.choice.takes(table):
            yield Change(NO_ROW, {}, NOWHERE, line)
            return
        mark = _mark(message, self.choice.name_of(table))
        self._numbers.look_at(message)
        self._columns.look_at(message)
        self._shared.begin(message.get("xid", self._transactions), mark.order)
        if action == _TRUNCATE:
            yield self._truncate(mark, line)
        elif action == _INSERT:
            yield self._insert(message, mark, line)
        else:
            yield from self._update_or_delete(message, mark, line)

    def _update_or_delete(self, message: Fields, mark: Mark, line: int) -> Iterator[Change]:
        old = self._identity(message)
        self._shared.take_out(self._numbers.values(columns_of(message, "identity")), None)
        if message.get("action") == _DELETE:
            yield Change(DELETE, old, mark, line)
            return
        new = self._updated(message)
        is_moved = list(old.values()) != require_keys(new, self.keys)
        if is_moved:
            yield Change(DELETE, old, mark, line)
        self._shared.put(new)
        yield Change(UPSERT, new, mark, line, is_update=not is_moved)

    def _insert(self, message: Fields, mark: Mark, line: int) -> Change:
        values = self._numbers.values(columns_of(message, "columns"))
        require_keys(values, self.keys)
        if not self.is_declared and not message.get("pk"):
            raise FeedError(_no_primary_key(has_pk="pk" in message))
        self._shared.put(values)
        return Change(UPSERT, values, mark, line)

    def _updated(self, message: Fields) -> dict[str, Raw]:
        """The row after an update: what the database did not log of it is in the old row, or not told."""
        old = self._numbers.values(columns_of(message, "identity"))
        new = self._numbers.values(columns_of(message, "columns"))
        left_out = (name for name in self.large if self._columns.may_have(name))
        return {**dict.fromkeys(left_out, UNAVAILABLE), **old, **new}

    def _identity(self, message: Fields) -> dict[str, Raw]:
        """The key of the row before ``message``. Raises FeedError where the replica identity does not have it."""
        old = self._numbers.values(columns_of(message, "identity"))
        outside = next((key for key in self.keys if key not in old), None)
        if outside is not None:
            raise FeedError(
                f"its 'identity' does not have the key column '{outside}', so that it does not name its row: choose "
                f"keys among {', '.join(sorted(old)) or 'its columns'}, or run ALTER TABLE ... REPLICA IDENTITY FULL "
                "on the source table, and merge a new snapshot"
            )
        return dict(zip(self.keys, require_keys(old, self.keys), strict=True))

    def _truncate(self, mark: Mark, line: int) -> Change:
        if not self.allow_truncate:
            raise FeedError(
                "it is a truncate, which deletes all rows of the table: set source.allowTruncate to true to apply it, "
                "or leave it out (actions of wal2json)"
            )
        if self.choice.is_of_many:
            raise FeedError(
                "it is a truncate of one of the tables that source.tables names, and would delete the rows of all: "
                "leave truncates out (actions of wal2json), and delete the rows by a job of its own"
            )
        return Change(TRUNCATE, {}, mark, line)


@dataclass
class _Columns:
    """Columns of the source table, as far as they are known: inserts tell all of them, and so do whole old rows."""

    _all: set[str] | None = None
    #: The columns of whole old rows, while these are what messages tell.
    _whole: set[str] | None = None

    def look_at(self, message: Fields) -> None:
        """Note the columns of ``message``, and whether old rows are told whole."""
        names = {str(column["name"]) for column in columns_of(message, "columns")}
        if message.get("action") == _INSERT:
            self._all = names
        elif message.get("action") in (_UPDATE, _DELETE):
            self._all = None if self._all is None else self._all | names
            self._judge_identity(names, columns_of(message, "identity"))

    def _judge_identity(self, names: set[str], identity: Sequence[Fields]) -> None:
        """Only REPLICA IDENTITY FULL has columns that may be null, and it has all that a new row tells."""
        identity_names = {str(column["name"]) for column in identity}
        has_null = any(column.get("value") is None and not _may_be_no_number(column) for column in identity)
        self._whole = (
            identity_names if names <= identity_names and (has_null or identity_names == self._whole) else None
        )

    def may_have(self, name: str) -> bool:
        """Return whether the source table may have the column ``name``, which an update has in neither row."""
        return self._whole is None and (self._all is None or name in self._all)


def _may_be_no_number(column: Fields) -> bool:
    return has_non_finite(postgres_semantic(str(column.get("type"))))


@dataclass
class _Numbers:
    """How numbers are written: only in quotes they can be NaN and infinities, for which there is null else."""

    _quoted: bool = False
    _unquoted: bool = False

    def look_at(self, message: Fields) -> None:
        """Note whether ``message`` has numbers with and without quotes: domains are quoted always."""
        for part in ("columns", "identity"):
            for column in columns_of(message, part):
                value = column.get("value")
                if value is not None and is_number(postgres_semantic(str(column.get("type")))):
                    is_quoted = isinstance(value, str) and not isinstance(value, Unquoted)
                    self._quoted |= is_quoted
                    self._unquoted |= not is_quoted

    def values(self, columns: Sequence[Fields]) -> dict[str, Raw]:
        """The values of ``columns`` by name."""
        return {str(column["name"]): self._value(column) for column in columns}

    def _value(self, column: Fields) -> Raw:
        value = column.get("value")
        if value is not None or (self._quoted and not self._unquoted):
            return value
        return NO_NUMBER if _may_be_no_number(column) else None


def _required_table(message: Fields) -> str:
    """The table of a message of a row or a truncate. Raises FeedError for any other message."""
    if "change" in message:
        raise FeedError("it is of format-version 1: set format-version of wal2json to 2")
    if message.get("action") not in _ACTIONS:
        raise FeedError(
            "it is not a message of wal2json, which has 'action', 'schema' and 'table': name only its files"
        )
    table = table_of(message)
    if table is None:
        raise FeedError("it does not tell schema and table: set include-schemas of wal2json to true")
    return table


def _no_primary_key(*, has_pk: bool) -> str:
    if not has_pk:
        return (
            "it does not tell the primary key, without which updates and deletes may be missing: set include-pk of "
            "wal2json to true, or name the columns of the replica identity in source.replicaIdentity"
        )
    return (
        "its table has no primary key, so that PostgreSQL logs no key of updated and deleted rows, and wal2json leaves "
        "them out: run ALTER TABLE ... REPLICA IDENTITY FULL on the source table, merge a new snapshot, and name all "
        "keys in source.replicaIdentity"
    )


def _mark(message: Fields, table: str) -> Mark:
    """The mark of a message of ``table``. Raises FeedError for one that does not tell its place.

    Transactions lie across each other in the log, but changes of one row do not: each waits for the commit before it.
    """
    match = _WAL.fullmatch(text_of(message.get("lsn")))
    if match is None:
        raise FeedError("it does not tell 'lsn', by which changes are ordered: set include-lsn of wal2json to true")
    return Mark(table, "wal2json", "wal", u64((int(match[1], 16) << 32) + int(match[2], 16)))


def _reader(target: FeedTarget) -> Wal2JsonReader:
    return Wal2JsonReader(
        keys=target.keys,
        large=tuple(column.name for column in target.carried if may_be_large(column.type)),
        choice=target.tables,
        is_declared=target.identity_declared,
        allow_truncate=target.allow_truncate,
    )


def _lines(target: FeedTarget) -> Wal2JsonLines:
    return Wal2JsonLines(target.tables)


TOOLS = (
    Tool(
        format=ChangeFormat.WAL2JSON,
        batches=message_batches(_reader, _lines),
        values=ValueStyle(is_text=True),
    ),
)
