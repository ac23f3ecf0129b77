"""The ``source`` of Debezium's events: where in its log a change stands, and of which transaction it is.

Called by ``tools.debezium``. Source: the fields of ``source`` in the documentation of Debezium's connectors, "Change
events".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from skipstone.sources.feeds.positions import (
    BY_SEQUENCE,
    CHANGE,
    FIRST,
    SNAPSHOT,
    binlog_name,
    binlog_of,
    position_number,
    text_of,
    u64,
)
from skipstone.sources.feeds.shapes import FeedError, Fields, Mark, Raw

_FALSE = (None, False, "false", "FALSE", "")
_LSN = re.compile(r"[0-9a-fA-F]+(:[0-9a-fA-F]+)*", re.ASCII)
_LSN_BYTES = 24
#: Text in JSON: the position of the last commit, and that of the change, each as text or null.
_SEQUENCE = re.compile(r'\s*\[\s*(?:null|"?(?P<commit>\d+)"?)\s*,\s*(?:null|"?(?P<change>\d+)"?)\s*\]\s*', re.ASCII)
_BY_TIME = "by ts_ms"


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
    connector = text_of(source.get("connector"))
    if connector == "mongodb":
        raise FeedError(
            "it is of Debezium's MongoDB connector, whose documents are text: let the ExtractNewDocumentState "
            "transform write them as columns, and merge them as a source of the format Json"
        )
    is_of_snapshot = is_read or is_snapshot(source)
    place_of = _PLACES.get(connector, _by_time)
    time = position_number(source.get("ts_ms") or ts_ms or 0, "source.ts_ms")
    place = place_of(source, SNAPSHOT if is_of_snapshot else CHANGE, time)
    origin = f"{connector or 'a connector'} {text_of(source.get('name'))} {place.form}"
    return Mark(_table(source), origin, None if is_of_snapshot else place.log, place.order + u64(time))


def transaction_of(source: Fields) -> Raw:
    """Return what the changes of one transaction of PostgreSQL share in their ``source``; None where nothing tells."""
    if text_of(source.get("connector")) != "postgresql":
        return None
    match = _SEQUENCE.fullmatch(text_of(source.get("sequence")))
    return source.get("txId") or (match and (match["commit"] or "first"))


def is_snapshot(source: Fields) -> bool:
    """Return whether the ``source`` of an event of Debezium says that a snapshot is running."""
    return source.get("snapshot") not in _FALSE


def is_exact_event(origin: str, _log: str | None, _order: bytes) -> bool:
    """Return whether a mark tells one change from all others; else only its file and line do."""
    return not origin.endswith(f" {_BY_TIME}")


def _table(source: Fields) -> str:
    if not source.get("table") and not source.get("collection"):
        raise FeedError("its 'source' does not name a table")
    parts = (source.get("db"), source.get("schema"), source.get("table") or source.get("collection"))
    return ".".join([str(part) for part in parts if part])


def _mysql(source: Fields, flag: bytes, _time: int) -> _Place:
    """Binlog file, position of the event in it, row in the event."""
    base, number = binlog_of(text_of(_needed(source, "file")))
    at = position_number(_needed(source, "pos"), "source.pos")
    row = position_number(source.get("row") or 0, "source.row")
    order = u64(number) + u64(at) + flag + u64(row)
    return _Place(order, "by binlog", binlog_name(source.get("server_id"), base))


def _postgres(source: Fields, flag: bytes, time: int) -> _Place:
    """The last commit before the transaction, then the change: transactions lie across each other in the log.

    The first snapshot knows no commit: it holds all that was committed before its own place. Nor does the first
    transaction after it: see ``behind_snapshots``. Where ``sequence`` is not told, commits are ordered by their time.
    """
    lsn = source.get("lsn")
    at = position_number(lsn if lsn is not None or flag == CHANGE else 0, "source.lsn")
    sequence = source.get("sequence")
    if sequence is None:
        return _Place(flag + u64(time) + u64(at), "by ts_ms and lsn")
    match = _SEQUENCE.fullmatch(text_of(sequence))
    if match is None:
        raise FeedError("its 'source.sequence' is not a list of two positions")
    at = at if match["change"] is None else position_number(match["change"], "source.sequence")
    last = at if match["commit"] is None else position_number(match["commit"], "source.sequence")
    if match["commit"] is None and flag == CHANGE:
        flag = FIRST
    return _Place(u64(last) + flag + u64(at), BY_SEQUENCE)


def _sql_server(source: Fields, flag: bytes, _time: int) -> _Place:
    """Commit, change in it, and which of the events of one change."""
    commit = _lsn(_needed(source, "commit_lsn"), "source.commit_lsn")
    change = source.get("change_lsn")
    if change is None and flag == CHANGE:
        raise FeedError("its 'source' has no 'change_lsn', which orders the changes")
    serial = position_number(source.get("event_serial_no") or 0, "source.event_serial_no")
    at = bytes(_LSN_BYTES) if change is None else _lsn(change, "source.change_lsn")
    return _Place(commit + flag + at + u64(serial), "by commit_lsn")


def _oracle(source: Fields, flag: bytes, _time: int) -> _Place:
    """The system change number of the commit, then that of the change."""
    scn = position_number(_needed(source, "scn"), "source.scn")
    commit = source.get("commit_scn")
    ssn = position_number(source.get("ssn") or 0, "source.ssn")
    if commit is None and flag == CHANGE:
        raise FeedError("its 'source' has no 'commit_scn', which orders the changes")
    last = scn if commit is None else position_number(commit, "source.commit_scn")
    return _Place(_wide(last) + flag + _wide(scn) + u64(ssn), "by commit_scn")


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
    value = source.get(name)
    if value is None:
        raise FeedError(f"its 'source' has no '{name}', which orders the changes")
    return value


def _lsn(value: Raw, name: str) -> bytes:
    text = text_of(value)
    if not _LSN.fullmatch(text) or len(digits := text.replace(":", "")) > 2 * _LSN_BYTES:
        raise FeedError(f"its '{name}' is not a log sequence number")
    return bytes.fromhex(digits.zfill(2 * _LSN_BYTES))


def _wide(number: int) -> bytes:
    return number.to_bytes(16, "big")
