"""Messages of Kafka Connect in JSON: with and without the schema that its converter can write beside each.

Called by ``files``. Source: Kafka's documentation of JsonConverter. Must not know what a message means.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from skipstone.sources.feeds.shapes import ABSENT, FeedError, Fields, Raw, Semantic, Semantics

DECIMAL = "org.apache.kafka.connect.data.Decimal"
_IMAGES = ("after", "before")
_DECODER = json.JSONDecoder(parse_float=Decimal)


@dataclass
class MessageReader:
    """Reads one line after the other; remembers the last schema, because most lines repeat it."""

    _schema: Raw = None
    _semantics: dict[str, Semantic] = field(default_factory=dict)

    def read(self, line: bytes) -> tuple[Fields, Semantics] | None:
        """The message of ``line`` and what its schema says of columns; None for a blank line and for a tombstone.

        Raises FeedError.
        """
        if not line.strip():
            return None
        message = parsed(line)
        if message is None:
            return None
        if not isinstance(message, Mapping):
            raise FeedError("it is not a JSON object: write one message a line")
        if set(message) != {"schema", "payload"}:
            return message, None
        payload = message["payload"]
        if payload is None:
            return None
        if not isinstance(payload, Mapping):
            raise FeedError("its payload is not an object")
        return payload, self._semantics_of(message["schema"])

    def _semantics_of(self, schema: Raw) -> Semantics:
        if schema is None:
            return None
        if schema != self._schema:
            self._semantics = _columns(schema)
            self._schema = schema
        return self._semantics


def parsed(line: bytes, decoder: json.JSONDecoder = _DECODER) -> Raw:
    """The JSON of ``line``. Raises FeedError for what is none."""
    if line.startswith(b"\0\0"):
        raise FeedError(
            "it begins with a zero byte, as the header of a schema registry does (a zero byte and an id of 4 bytes): "
            "write the files through the converter of that registry (JsonSchemaConverter), which takes the header off"
        )
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise FeedError("it is not UTF-8: write the file in UTF-8") from error
    try:
        value: Raw = decoder.decode(text)
    except (ValueError, RecursionError) as error:
        raise FeedError("it is not a JSON object: write one message a line") from error
    return value


def _columns(schema: Raw) -> dict[str, Semantic]:
    """The columns of an envelope's images, or of a flat message."""
    fields = _fields(schema)
    image = next((part for name in _IMAGES if (part := _fields(fields.get(name)))), None)
    columns = fields if image is None or "op" not in fields else image
    return {name: _semantic(described) for name, described in columns.items()}


def _fields(schema: Raw) -> dict[str, Fields]:
    listed = schema.get("fields") if isinstance(schema, Mapping) else None
    if not isinstance(listed, list):
        return {}
    return {str(entry.get("field")): entry for entry in listed if isinstance(entry, Mapping)}


def _semantic(schema: Raw) -> Semantic:
    if not isinstance(schema, Mapping):
        return Semantic()
    parameters = schema.get("parameters")
    name = str(schema.get("name") or "")
    scale = parameters.get("scale") if isinstance(parameters, Mapping) and name == DECIMAL else None
    inner = schema.get("items") or schema.get("values")
    item = _semantic(inner) if inner else None
    kind, default = str(schema.get("type") or ""), schema.get("default", ABSENT)
    facts = {"is_bytes": kind == "bytes", "optional": schema.get("optional") is True}
    return Semantic(name, None if scale is None else _whole(scale), item, default=default, type=kind, **facts)


def _whole(scale: Raw) -> int:
    try:
        return int(str(scale))
    except ValueError as error:
        raise FeedError("its schema has a decimal whose scale is not a whole number: fix the converter") from error
