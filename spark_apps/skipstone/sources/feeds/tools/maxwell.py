"""Messages of Maxwell as changes.

Source: Maxwell's documentation, "Data Format" and "Bootstrapping".
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from skipstone_core.contract.formats import ChangeFormat
from skipstone_core.merging.feeds import DELETE, NO_ROW, UPSERT

from skipstone.sources.feeds.deletedkeys import require_keys
from skipstone.sources.feeds.messages import message_batches
from skipstone.sources.feeds.positions import CHANGE, SNAPSHOT, binlog_name, binlog_of, position_number, text_of, u64
from skipstone.sources.feeds.registry import Tool
from skipstone.sources.feeds.shapes import (
    NOWHERE,
    Change,
    FeedError,
    FeedTarget,
    Fields,
    Mark,
    Semantics,
    TableChoice,
    ValueStyle,
)

_WRITES = ("insert", "update", "bootstrap-insert")
#: Messages that tell of no row.
_SKIPPED = frozenset({"bootstrap-start", "bootstrap-complete", "heartbeat", "table-create", "table-alter",
                      "database-create", "database-alter"})  # fmt: skip

#: The table by which bootstraps are asked for: Maxwell writes its rows among the others, whatever it filters.
_OWN = "maxwell.bootstrap"
_ORIGIN = "maxwell"
#: The log of changes without a position.
_BY_TS = "by ts"
_LAST_OFFSET = (1 << 64) - 1
#: Before each position, and as long.
_ZEROS = bytes(25)


@dataclass(frozen=True, kw_only=True)
class MaxwellReader:
    """Reads messages with ``data`` and ``old``; ``keys``: the columns that name a row, ``choice``: of which tables."""

    keys: tuple[str, ...]
    choice: TableChoice

    def changes(self, message: Fields, line: int, _columns: Semantics) -> Iterator[Change]:
        """What ``message`` does: nothing, one change, or two when a key changes. Raises FeedError."""
        kind = message.get("type")
        table = f"{message.get('database')}.{message.get('table')}"
        is_skipped = isinstance(kind, str) and kind in _SKIPPED
        if is_skipped or table == _OWN or not self.choice.takes(table):
            yield Change(NO_ROW, {}, NOWHERE, line)
            return
        data = message.get("data")
        if kind not in (*_WRITES, "delete"):
            raise FeedError(
                "its type is none of insert, update, delete and those of bootstrapping: leave such messages out of the "
                "feed"
            )
        if not isinstance(data, Mapping) or not message.get("table"):
            raise FeedError("it is not a message of Maxwell, which has 'database', 'table' and 'data'")
        mark = _mark(message, self.choice.name_of(table))
        keys = dict(zip(self.keys, require_keys(data, self.keys), strict=True))
        if kind == "delete":
            yield Change(DELETE, keys, mark, line)
            return
        old, is_update = message.get("old"), kind == "update"
        if kind == "update" and isinstance(old, Mapping):
            before = {**keys, **{key: old[key] for key in self.keys if old.get(key) is not None}}
            if before != keys:
                yield Change(DELETE, before, mark, line)
                is_update = False
            data = {**dict.fromkeys(old), **data}  # with output_nulls=false, what became null is in old only
        yield Change(UPSERT, data, mark, line, is_update)


def _mark(message: Fields, table: str) -> Mark:
    """The mark of a message of ``table``. Raises FeedError."""
    is_snapshot = message.get("type") == "bootstrap-insert"
    flag = SNAPSHOT if is_snapshot else CHANGE
    time = position_number(message.get("ts") or 0, "ts")
    position = message.get("position")
    if position is None:
        order = _ZEROS if is_snapshot else flag + bytes(len(_ZEROS) - 1)
        return Mark(table, _ORIGIN, None if is_snapshot else _BY_TS, order + u64(time))
    place, _, _gtids = text_of(position).partition("[")  # in GTID mode, the set of transactions follows
    file, _, at = place.rpartition(":")
    base, number = binlog_of(file)
    # In its transaction: rows of one event share a position. The last row of a transaction tells no offset.
    last = _LAST_OFFSET if message.get("commit") is True else 0
    offset = position_number(message.get("xoffset") or last, "xoffset")
    order = u64(number) + u64(position_number(at, "position")) + flag + u64(offset) + u64(time)
    log = binlog_name(message.get("server_id") or "", base)
    return Mark(table, _ORIGIN, None if is_snapshot else log, order)


def _is_exact(_origin: str, log: str | None, order: bytes) -> bool:
    return log != _BY_TS and not order.startswith(_ZEROS)


def _octets(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _reader(target: FeedTarget) -> MaxwellReader:
    return MaxwellReader(keys=target.keys, choice=target.tables)


TOOLS = (
    Tool(
        format=ChangeFormat.MAXWELL,
        batches=message_batches(_reader),
        values=ValueStyle(
            is_text=True,
            octets=_octets,
            has_json=True,
            moves_days="Maxwell",
            zero_date_remedy="let the tool write null for it (output_null_zerodates of Maxwell)",
        ),
        is_exact=_is_exact,
    ),
)
