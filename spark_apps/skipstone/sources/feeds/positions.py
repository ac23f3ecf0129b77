"""When a change happened: its place in the log that it was read from, as bytes that order as the changes do.

Called by the readers of each tool. Within a key the position in the log decides, and time only where there is none:
what a snapshot read is stamped later than the changes that follow it. Source: the fields of ``source`` in the
documentation of Debezium's connectors, "Change events"; the fields of Maxwell in its documentation, "Data Format"; of
wal2json, its README.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from skipstone.sources.feeds.shapes import FeedError, Fields, Mark, Raw

_FALSE = (None, False, "false", "FALSE", "")
_BINLOG = re.compile(r"(?P<base>.*?)\.?(?P<number>\d+)", re.ASCII)
_WAL = re.compile(r"([0-9a-fA-F]{1,8})/([0-9a-fA-F]{1,8})", re.ASCII)
_LSN = re.compile(r"[0-9a-fA-F]+(:[0-9a-fA-F]+)*", re.ASCII)
#: Text in JSON: the position of the last commit, and that of the change, each as text or null.
_SEQUENCE = re.compile(r'\s*\[\s*(?:null|"?(?P<commit>\d+)"?)\s*,\s*(?:null|"?(?P<change>\d+)"?)\s*\]\s*', re.ASCII)
_CHANGE, _SNAPSHOT = b"\1", b"\0"
#: Of PostgreSQL: a change in the first transaction that was read, before which no commit is told.
_FIRST = b"\2"
_BY_SEQUENCE = "by sequence"
_BY_TIME = "by ts_ms"
#: The log of Maxwell's changes without a position.
_BY_TS = "by ts"
#: The parts of an order of PostgreSQL around the flag, and where file and line begin, which ``batches`` adds.
_LAST, _AT, _FILE = slice(0, 8), slice(9, 17), 25
_LSN_BYTES = 24
#: Begins a log of MySQL: the server's id and the name of the files follow.
_SERVER = "server "
#: Where file and line begin in the orders that ``batches`` has made.
_IN_FEED = -12
_LAST_OFFSET = (1 << 64) - 1
#: Before each position of Maxwell, and as long.
_ZEROS = bytes(25)


@dataclass(frozen=True)
class _Place:
    """Where in a log: ``order`` as bytes, ``form``: what they are made of, ``log``: which one."""

    order: bytes
    form: str
    log: str | None = None


def debezium_mark(source: Fields, *, is_read: bool, ts_ms: Raw) -> Mark:
    """The mark of an event with this ``source``. ``is_read``: a snapshot read the row. ``ts_ms``: of the event.

    Raises FeedError for an event that does not tell its place.
    """
    connector = _text(source.get("connector"))
    if connector == "mongodb":
        raise FeedError(
            "it is of Debezium's MongoDB connector, whose documents are text: let the ExtractNewDocumentState "
            "transform write them as columns, and merge them as a source of the format Json"
        )
    is_of_snapshot = is_read or is_snapshot(source)
    place_of = _PLACES.get(connector, _by_time)
    time = _number(source.get("ts_ms") or ts_ms or 0, "source.ts_ms")
    place = place_of(source, _SNAPSHOT if is_of_snapshot else _CHANGE, time)
    origin = f"{connector or 'a connector'} {_text(source.get('name'))} {place.form}"
    return Mark(_table(source), origin, None if is_of_snapshot else place.log, place.order + _u64(time))


def transaction_of(source: Fields) -> Raw:
    """Return what the changes of one transaction of PostgreSQL share in their ``source``; None where nothing tells."""
    if _text(source.get("connector")) != "postgresql":
        return None
    found = _SEQUENCE.fullmatch(_text(source.get("sequence")))
    return source.get("txId") or (found and (found["commit"] or "first"))


def is_snapshot(source: Fields) -> bool:
    """Return whether the ``source`` of an event of Debezium says that a snapshot is running."""
    return source.get("snapshot") not in _FALSE


def maxwell_mark(message: Fields, table: str) -> Mark:
    """The mark of a message of Maxwell of ``table``. Raises FeedError."""
    is_snapshot = message.get("type") == "bootstrap-insert"
    flag = _SNAPSHOT if is_snapshot else _CHANGE
    time = _number(message.get("ts") or 0, "ts")
    position = message.get("position")
    if position is None:
        order = _ZEROS if is_snapshot else flag + bytes(len(_ZEROS) - 1)
        return Mark(table, "maxwell", None if is_snapshot else _BY_TS, order + _u64(time))
    place, _, _gtids = _text(position).partition("[")  # in GTID mode, the set of transactions follows
    file, _, at = place.rpartition(":")
    base, number = _binlog(file)
    # In its transaction: rows of one event share a position. The last row of a transaction tells no offset.
    last = _LAST_OFFSET if message.get("commit") is True else 0
    offset = _number(message.get("xoffset") or last, "xoffset")
    order = _u64(number) + _u64(_number(at, "position")) + flag + _u64(offset) + _u64(time)
    log = f"{_SERVER}{message.get('server_id') or ''} {base}"
    return Mark(table, "maxwell", None if is_snapshot else log, order)


def wal2json_mark(message: Fields, table: str) -> Mark:
    """The mark of a message of wal2json of ``table``. Raises FeedError for one that does not tell its place.

    Transactions lie across each other in the log, but changes of one row do not: each waits for the commit before it.
    """
    found = _WAL.fullmatch(_text(message.get("lsn")))
    if found is None:
        raise FeedError("it does not tell 'lsn', by which changes are ordered: set include-lsn of wal2json to true")
    return Mark(table, "wal2json", "wal", _u64((int(found[1], 16) << 32) + int(found[2], 16)))


def one_binlog(logs: Sequence[str | None], orders: Sequence[bytes]) -> bool:
    """Whether changes of one row, by their ``orders``, can be of one binary log though several servers took them.

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


def is_exact_place(origin: str, log: str | None, order: bytes) -> bool:
    """Return whether a mark tells one change from all others; else only its file and line do."""
    if origin == "maxwell":
        return log != _BY_TS and not order.startswith(_ZEROS)
    return origin != "dms" and not origin.endswith(f" {_BY_TIME}")


def dms_mark(*, is_full_load: bool) -> Mark:
    """The mark of a row of AWS DMS: files tell the rest."""
    return Mark("", "dms", None, _SNAPSHOT if is_full_load else _CHANGE)


def _table(source: Fields) -> str:
    if not source.get("table") and not source.get("collection"):
        raise FeedError("its 'source' does not name a table")
    parts = (source.get("db"), source.get("schema"), source.get("table") or source.get("collection"))
    return ".".join([str(part) for part in parts if part])


def _mysql(source: Fields, flag: bytes, _time: int) -> _Place:
    """Binlog file, position of the event in it, row in the event."""
    base, number = _binlog(_text(_needed(source, "file")))
    at, row = _number(_needed(source, "pos"), "source.pos"), _number(source.get("row") or 0, "source.row")
    order = _u64(number) + _u64(at) + flag + _u64(row)
    return _Place(order, "by binlog", f"{_SERVER}{_text(source.get('server_id'))} {base}")


def _postgres(source: Fields, flag: bytes, time: int) -> _Place:
    """The last commit before the transaction, then the change: transactions lie across each other in the log.

    The first snapshot knows no commit: it holds all that was committed before its own place. Nor does the first
    transaction after it: see ``behind_snapshots``. Where ``sequence`` is not told, commits are ordered by their time.
    """
    lsn = source.get("lsn")
    at = _number(lsn if lsn is not None or flag == _CHANGE else 0, "source.lsn")
    sequence = source.get("sequence")
    if sequence is None:
        return _Place(flag + _u64(time) + _u64(at), "by ts_ms and lsn")
    found = _SEQUENCE.fullmatch(_text(sequence))
    if found is None:
        raise FeedError("its 'source.sequence' is not a list of two positions")
    at = at if found["change"] is None else _number(found["change"], "source.sequence")
    last = at if found["commit"] is None else _number(found["commit"], "source.sequence")
    if found["commit"] is None and flag == _CHANGE:
        flag = _FIRST
    return _Place(_u64(last) + flag + _u64(at), _BY_SEQUENCE)


def is_first(orders: pa.ChunkedArray, origins: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which changes may have to come behind a snapshot whose place in the log is after theirs."""
    flags = pc.binary_slice(orders, _LAST.stop, _AT.start)
    return pc.and_(pc.equal(flags, _FIRST), pc.ends_with(origins, _BY_SEQUENCE))


def behind_snapshots(orders: Sequence[bytes]) -> list[bytes]:
    """The ``orders`` of one row's changes, with file and line at their ends, those of a first transaction corrected.

    It was committed after the first snapshot, and may have begun before it: then its changes have places before that of
    the snapshot, whose rows the connector writes first. A snapshot that is written after such a change is another one.
    """
    firsts = [order for order in orders if order[_LAST.stop : _AT.start] == _SNAPSHOT and order[_LAST] == order[_AT]]
    return [_behind(order, firsts) if order[_LAST.stop : _AT.start] == _FIRST else order for order in orders]


def _behind(order: bytes, snapshots: Sequence[bytes]) -> bytes:
    before = [one[_LAST] for one in snapshots if one[_FILE:] < order[_FILE:]]
    return max([order[_LAST], *before]) + order[_LAST.stop :]


def _sql_server(source: Fields, flag: bytes, _time: int) -> _Place:
    """Commit, change in it, and which of the events of one change."""
    commit = _lsn(_needed(source, "commit_lsn"), "source.commit_lsn")
    change = source.get("change_lsn")
    if change is None and flag == _CHANGE:
        raise FeedError("its 'source' has no 'change_lsn', which orders the changes")
    serial = _number(source.get("event_serial_no") or 0, "source.event_serial_no")
    at = bytes(_LSN_BYTES) if change is None else _lsn(change, "source.change_lsn")
    return _Place(commit + flag + at + _u64(serial), "by commit_lsn")


def _oracle(source: Fields, flag: bytes, _time: int) -> _Place:
    """The system change number of the commit, then that of the change."""
    scn = _number(_needed(source, "scn"), "source.scn")
    commit = source.get("commit_scn")
    ssn = _number(source.get("ssn") or 0, "source.ssn")
    if commit is None and flag == _CHANGE:
        raise FeedError("its 'source' has no 'commit_scn', which orders the changes")
    last = scn if commit is None else _number(commit, "source.commit_scn")
    return _Place(_wide(last) + flag + _wide(scn) + _u64(ssn), "by commit_scn")


def _by_time(_source: Fields, flag: bytes, _time: int) -> _Place:
    """Connectors that are not known: ``ts_ms`` follows."""
    return _Place(flag, _BY_TIME)


_PLACES: Mapping[str, Callable[[Fields, bytes, int], _Place]] = {
    "mysql": _mysql,
    "mariadb": _mysql,
    "postgresql": _postgres,
    "sqlserver": _sql_server,
    "db2": _sql_server,
    "oracle": _oracle,
}


def _needed(source: Fields, name: str) -> Raw:
    found = source.get(name)
    if found is None:
        raise FeedError(f"its 'source' has no '{name}', which orders the changes")
    return found


def _binlog(name: str) -> tuple[str, int]:
    """What the files of a binary log are called, and the number of this one: it may get more digits."""
    found = _BINLOG.fullmatch(name)
    if found is None:
        raise FeedError("the name of its binlog file does not end with a number")
    return found["base"], _number(found["number"], "binlog file")


def _number(value: Raw, name: str) -> int:
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 64:
        raise FeedError(f"its '{name}' is not a position: it must be a whole number")
    return number


def _lsn(value: Raw, name: str) -> bytes:
    text = _text(value)
    if not _LSN.fullmatch(text) or len(digits := text.replace(":", "")) > 2 * _LSN_BYTES:
        raise FeedError(f"its '{name}' is not a log sequence number")
    return bytes.fromhex(digits.zfill(2 * _LSN_BYTES))


def _text(value: Raw) -> str:
    return "" if value is None else str(value)


def _u64(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _wide(number: int) -> bytes:
    return number.to_bytes(16, "big")
