"""When a change happened: its place in the log that it was read from, as bytes that order as the changes do.

Called by the readers of each tool. Within a key the position in the log decides, and time only where there is none:
what a snapshot read is stamped later than the changes that follow it. Here is what tools share: numbers, the log of
MySQL, whose files are numbered, and that of PostgreSQL, in which transactions lie across each other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from skipstone.sources.feeds.shapes import FeedError, Raw

_BINLOG = re.compile(r"(?P<base>.*?)\.?(?P<number>\d+)", re.ASCII)
#: The flag in an order: a change comes behind what a snapshot read at the same place.
CHANGE, SNAPSHOT = b"\1", b"\0"
#: Of PostgreSQL: a change in the first transaction that was read, before which no commit is told.
FIRST = b"\2"
BY_SEQUENCE = "by sequence"
#: The parts of an order of PostgreSQL around the flag, and where file and line begin, which ``batches`` adds.
_LAST, _AT, _FILE = slice(0, 8), slice(9, 17), 25
#: Begins a log of MySQL: the server's id and the name of the files follow.
_SERVER = "server "
#: Where file and line begin in the orders that ``batches`` has made.
_IN_FEED = -12


def one_binlog(logs: Sequence[str | None], orders: Sequence[bytes]) -> bool:
    """Return whether changes of one row, by their ``orders``, can be of one binary log though several servers wrote it.

    A replica's log has the changes of others under their ids. Places in the log of another server, to which the tool
    turned, would say nothing: so they must agree with the order in which changes stand in the feed. What comes again
    counts where it stood first.
    """
    first: dict[bytes, tuple[str, bytes]] = {}
    for log, order in zip(logs, orders, strict=True):
        if log is None:
            continue
        if not log.startswith(_SERVER) or first.setdefault(order[:_IN_FEED], (log, order[_IN_FEED:]))[0] != log:
            return False
    places = [place for _, place in first.values()]
    return len({log.rpartition(" ")[2] for log, _ in first.values()}) == 1 and places == sorted(places)


def is_first(orders: pa.ChunkedArray, origins: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which changes may have to come behind a snapshot whose place in the log is after theirs."""
    flags = pc.binary_slice(orders, _LAST.stop, _AT.start)
    return pc.and_(pc.equal(flags, FIRST), pc.ends_with(origins, BY_SEQUENCE))


def behind_snapshots(orders: Sequence[bytes]) -> list[bytes]:
    """The ``orders`` of one row's changes, with file and line at their ends, those of a first transaction corrected.

    It was committed after the first snapshot, and may have begun before it: then its changes have places before that of
    the snapshot, whose rows the connector writes first. A snapshot that is written after such a change is another one.
    """
    firsts = [order for order in orders if order[_LAST.stop : _AT.start] == SNAPSHOT and order[_LAST] == order[_AT]]
    return [_behind(order, firsts) if order[_LAST.stop : _AT.start] == FIRST else order for order in orders]


def _behind(order: bytes, snapshots: Sequence[bytes]) -> bytes:
    before = [snapshot[_LAST] for snapshot in snapshots if snapshot[_FILE:] < order[_FILE:]]
    return max([order[_LAST], *before]) + order[_LAST.stop :]


class Binlog(NamedTuple):
    """What the files of a binary log are called, and the number of one of them: it may get more digits."""

    base: str
    number: int


def binlog_of(name: str) -> Binlog:
    """Return the binary log of which ``name`` is a file. Raises FeedError."""
    match = _BINLOG.fullmatch(name)
    if match is None:
        raise FeedError("the name of its binlog file does not end with a number")
    return Binlog(match["base"], position_number(match["number"], "binlog file"))


def binlog_name(server_id: Raw, base: str) -> str:
    """Return the log of a Mark: that of a server whose files are called ``base``."""
    return f"{_SERVER}{text_of(server_id)} {base}"


def position_number(value: Raw, name: str) -> int:
    """Return the whole number of 64 bits that the field ``name`` tells, as a number or as text. Raises FeedError."""
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 64:
        raise FeedError(f"its '{name}' is not a position: it must be a whole number")
    return number


def text_of(value: Raw) -> str:
    """Return ``value`` as text, and nothing of null."""
    return "" if value is None else str(value)


def u64(number: int) -> bytes:
    """Return ``number`` as 8 bytes that order as numbers do."""
    return number.to_bytes(8, "big")
