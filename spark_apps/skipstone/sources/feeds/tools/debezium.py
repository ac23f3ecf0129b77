"""Messages of Debezium as changes: envelopes with before and after, and the flat rows of ExtractNewRecordState.

Messages come from JSON or Avro. Source: Debezium's documentation, "Change events" of each
connector and "New Record State Extraction". Must not know how values are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from skipstone_core.contract.formats import ChangeFormat
from skipstone_core.merging.feeds import DELETE, NO_ROW, TRUNCATE, UPSERT

from skipstone.sources.feeds.connectors import debezium_mark, is_exact_event, is_snapshot, transaction_of
from skipstone.sources.feeds.deletedkeys import DeletedKeys, require_keys
from skipstone.sources.feeds.messages import message_batches
from skipstone.sources.feeds.postgres.sharedkeys import SharedKeys
from skipstone.sources.feeds.registry import Tool
from skipstone.sources.feeds.shapes import (
    ABSENT,
    NOWHERE,
    Change,
    FeedError,
    FeedTarget,
    Fields,
    Mark,
    Raw,
    Semantics,
    ValueStyle,
)

_CREATE, _READ, _UPDATE, _DELETE, _TRUNCATE, _MESSAGE = "c", "r", "u", "d", "t", "m"
_WRITES = (_CREATE, _READ, _UPDATE)
#: What flat messages must tell besides their columns, and what their order needs by connector.
_ALWAYS = ("op", "source.connector", "source.name", "source.db", "source.table", "source.snapshot", "source.ts_ms")
_BY_CONNECTOR = {
    "mysql": ("source.server_id", "source.file", "source.pos", "source.row"),
    "mariadb": ("source.server_id", "source.file", "source.pos", "source.row"),
    "postgresql": ("source.schema", "source.lsn", "source.sequence"),
    "sqlserver": ("source.schema", "source.commit_lsn", "source.change_lsn", "source.event_serial_no"),
    "db2": ("source.schema", "source.commit_lsn", "source.change_lsn"),
    "oracle": ("source.schema", "source.scn", "source.commit_scn"),
}
_HEARTBEAT = {"ts_ms"}
#: The fields of a message at the begin or end of a transaction; the time is told since Debezium 2.
_BOUNDARIES = tuple({"status", "id", "event_count", "data_collections", *time} for time in ((), ("ts_ms",)))
_TEXTS_OF_TRUE, _TEXTS_OF_FALSE = ("true", True), ("false", False)


@dataclass(frozen=True, kw_only=True)
class EnvelopeReader:
    """Reads messages with ``before`` and ``after``; ``deletes``: reads the keys of rows that go.

    ``shared``: of the same keys.
    """

    deletes: DeletedKeys
    shared: SharedKeys
    allow_truncate: bool = False

    def changes(self, message: Fields, line: int, columns: Semantics) -> Iterator[Change]:
        """What ``message`` does: nothing, one change, or two when a key changes. Raises FeedError."""
        op = message.get("op")
        if op == _MESSAGE or is_of_no_row(message, self.deletes.names):
            yield Change(NO_ROW, {}, NOWHERE, line)
            return
        source = message.get("source")
        if not isinstance(op, str) or not isinstance(source, Mapping):
            raise FeedError(_no_envelope(message))
        mark = debezium_mark(source, is_read=op == _READ, ts_ms=message.get("ts_ms"))
        self.shared.begin(transaction_of(source), mark.order)
        if op == _TRUNCATE:
            yield _truncate(mark, line, allowed=self.allow_truncate)
        elif op == _DELETE:
            before = _image(message, "before")
            key = self.deletes.require(before, source, columns)
            self.shared.take_out(before, columns)
            yield Change(DELETE, key, mark, line)
        elif op in _WRITES:
            after = _image(message, "after")
            old = self._replaced_key(message.get("before"), after, source, columns)
            self._remember(message, after, columns)
            if old is not None:
                yield Change(DELETE, old, mark, line)
            is_read, is_update = is_of_snapshot(source, op), op == _UPDATE and old is None
            yield Change(UPSERT, after, mark, line, is_update, is_read)
        else:
            raise FeedError(f"its op is none of c, r, u, d, t and m: {_READ_AGAIN}")

    def _remember(self, message: Fields, after: Fields, columns: Semantics) -> None:
        before = message.get("before")
        if isinstance(before, Mapping):
            self.shared.take_out(before, columns)
        elif message.get("op") == _UPDATE:
            self.shared.forget(after)
            return
        self.shared.put(after)

    def _replaced_key(self, before: Raw, after: Fields, source: Fields, columns: Semantics) -> Mapping[str, Raw] | None:
        """The key that the row had before, if it has another one after. Raises FeedError."""
        names = self.deletes.names
        new = require_keys(after, names)
        if not isinstance(before, Mapping):
            return None
        old = [before.get(name) for name in names]
        if any(value is None for value in old) or old == new:
            return None
        return self.deletes.require(before, source, columns)


@dataclass(frozen=True, kw_only=True)
class FlatReader:
    """Reads messages whose columns lie beside ``__deleted``, ``__op`` and fields of the source.

    ``shared``: of the keys of ``deletes``; ``has_keys_only``: all columns of the table are keys.
    """

    deletes: DeletedKeys
    shared: SharedKeys
    allow_truncate: bool = False
    has_keys_only: bool = False

    def changes(self, message: Fields, line: int, columns: Semantics) -> Iterator[Change]:
        """What ``message`` does: nothing or one change. Raises FeedError."""
        control = {name[2:]: value for name, value in message.items() if name.startswith("__")}
        op = control.get("op")
        if op == _MESSAGE or is_of_no_row(message, self.deletes.names):
            yield Change(NO_ROW, {}, NOWHERE, line)
            return
        if not control:
            _refuse_other(message)
        source = _flat_source(control)
        mark = debezium_mark(source, is_read=op == _READ, ts_ms=control.get("ts_ms"))
        self.shared.begin(transaction_of(source), mark.order)
        if op == _TRUNCATE:
            yield _truncate(mark, line, allowed=self.allow_truncate)
            return
        deleted = control.get("deleted", ABSENT)
        if deleted not in (*_TEXTS_OF_TRUE, *_TEXTS_OF_FALSE):
            raise FeedError(
                "it has no '__deleted', without which deletes are lost: set "
                "transforms.unwrap.delete.tombstone.handling.mode to rewrite"
            )
        values = {name: value for name, value in message.items() if not name.startswith("__")}
        if op == _DELETE or deleted in _TEXTS_OF_TRUE:
            key = self.deletes.require(values, source, columns)
            self.shared.take_out(values, columns)
            yield Change(DELETE, key, mark, line)
        elif op in _WRITES:
            if op == _UPDATE and self.has_keys_only:
                raise FeedError(_no_row_before(source))
            require_keys(values, self.deletes.names)
            self.shared.forget(values) if op == _UPDATE else self.shared.put(values)
            yield Change(UPSERT, values, mark, line, op == _UPDATE, is_of_snapshot(source, op))
        else:
            raise FeedError(f"its __op is none of c, r, u, d, t and m: {_READ_AGAIN}")


def is_of_snapshot(source: Fields, op: Raw) -> bool:
    """Return whether a snapshot read the row; ``snapshot.events.as.inserts`` makes that a create."""
    return op == _READ or (op == _CREATE and is_snapshot(source))


def is_of_no_row(message: Fields, keys: tuple[str, ...]) -> bool:
    """Return whether ``message`` is a heartbeat or a boundary of a transaction; a row of only a key is neither."""
    names = set(message)
    if names == _HEARTBEAT:
        return names.isdisjoint(keys)
    return names in _BOUNDARIES and message["status"] in ("BEGIN", "END")


def required_fields(connector: str) -> tuple[str, ...]:
    """What ``transforms.unwrap.add.fields`` must name for feeds of ``connector``."""
    return (*_ALWAYS, *_BY_CONNECTOR.get(connector, ()))


_READ_AGAIN = "name only files of one topic of Debezium in source.paths"


def _no_row_before(source: Fields) -> str:
    return (
        f"it is an update of '{source.get('table')}', and all columns are keys: a flat message does not tell the row "
        "before it, which would stay: leave the transform ExtractNewRecordState out and set source.changeFormat to "
        "Debezium"
    )


def _flat_source(control: Fields) -> Fields:
    """The fields of ``source``, which may be told with and without it. Raises FeedError naming those to add."""
    names = [name.removeprefix("source.") for name in required_fields(str(_field_of(control, "connector") or ""))[1:]]
    missing = [name for name in names if _field_of(control, name) is ABSENT]
    if missing or "op" not in control:
        wanted = [*(() if "op" in control else ("op",)), *(f"source.{name}" for name in missing)]
        raise FeedError(
            f"it does not tell {', '.join(wanted)}, by which changes are told apart and ordered: add "
            f"{','.join(wanted)} to transforms.unwrap.add.fields"
        )
    shared = ("ssn", "collection")
    fields = {name: _field_of(control, name) for name in (*names, *shared, "schema")}
    return {name: value for name, value in fields.items() if value is not ABSENT}


def _field_of(control: Fields, name: str) -> Raw:
    return control.get(f"source_{name}", control.get(name, ABSENT))


def _image(message: Fields, name: str) -> Fields:
    image = message.get(name)
    if isinstance(image, Mapping):
        return image
    if isinstance(image, str):
        raise FeedError(f"its '{name}' is text, as of Debezium's MongoDB connector, which is not read")
    raise FeedError(
        f"its op is '{message.get('op')}' and it has no '{name}': let the database log it (in PostgreSQL by REPLICA "
        "IDENTITY)"
    )


def _truncate(mark: Mark, line: int, *, allowed: bool) -> Change:
    if not allowed:
        raise FeedError(
            "it is a truncate, which deletes all rows of the table: set source.allowTruncate to true to apply it, or "
            "leave it out (skipped.operations of the connector)"
        )
    return Change(TRUNCATE, {}, mark, line)


def _no_envelope(message: Fields) -> str:
    if "__op" in message or "__deleted" in message:
        return "it is a flat message of ExtractNewRecordState: set source.changeFormat to DebeziumFlat"
    if _is_schema_change(message):
        return f"it tells of a changed schema, and not of a row: {_READ_AGAIN}"
    return f"it is not a change event, which has 'op' and 'source': {_READ_AGAIN}"


def _refuse_other(message: Fields) -> None:
    """Raise FeedError for a message without fields of the transform, if it is one that the transform never writes."""
    if "op" in message and isinstance(message.get("source"), Mapping):
        raise FeedError("it is an envelope, which no transform made flat: set source.changeFormat to Debezium")
    if _is_schema_change(message):
        raise FeedError(_no_envelope(message))


def _is_schema_change(message: Fields) -> bool:
    return isinstance(message.get("source"), Mapping) and ("ddl" in message or "tableChanges" in message)


def _envelopes(target: FeedTarget) -> EnvelopeReader:
    deletes = DeletedKeys(target.keys, is_declared=target.identity_declared)
    return EnvelopeReader(deletes=deletes, shared=SharedKeys(target.keys), allow_truncate=target.allow_truncate)


def _flat(target: FeedTarget) -> FlatReader:
    return FlatReader(
        deletes=DeletedKeys(target.keys, is_declared=target.identity_declared),
        shared=SharedKeys(target.keys),
        allow_truncate=target.allow_truncate,
        has_keys_only=all(column.is_key for column in target.columns),
    )


_VALUES = ValueStyle(
    bytes_remedy="set binary.handling.mode to bytes and let the converter write schemas (schemas.enable=true), or use "
    "Avro"
)
TOOLS = (
    Tool(format=ChangeFormat.DEBEZIUM, batches=message_batches(_envelopes), values=_VALUES, is_exact=is_exact_event),
    Tool(format=ChangeFormat.DEBEZIUM_FLAT, batches=message_batches(_flat), values=_VALUES, is_exact=is_exact_event),
)
