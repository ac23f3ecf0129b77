"""Messages of Kafka Connect in Avro: values under the names of their schema, and what it says of columns.

Called by ``files``. The layout that reads records has no names (see ``sources.avro.schemas``), so they are put back
here. Source: the documentation of Confluent's AvroData and of Avro's logical types.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from skipstone.files.avro.containers import BlockReader, Damaged
from skipstone.files.avro.records import avro_records
from skipstone.sources.avro.schemas import Json, layout_name, parse_schema
from skipstone.sources.feeds.kafka.connect import DECIMAL
from skipstone.sources.feeds.shapes import Fields, Raw, Semantic
from skipstone.sources.text.headers import unreadable
from skipstone.storage.port import StoredFile

_CONNECT = "org.apache.kafka.connect.data."
_LOGICAL = {
    "date": f"{_CONNECT}Date",
    "time-millis": f"{_CONNECT}Time",
    "time-micros": "io.debezium.time.MicroTime",
    "timestamp-millis": f"{_CONNECT}Timestamp",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
    "timestamp-nanos": "io.debezium.time.NanoTimestamp",
    "local-timestamp-millis": f"{_CONNECT}Timestamp",
    "local-timestamp-micros": "io.debezium.time.MicroTimestamp",
    "local-timestamp-nanos": "io.debezium.time.NanoTimestamp",
    "decimal": DECIMAL,
}
#: Connect's names of types that Avro calls otherwise.
_TYPES = {"int": "int32", "long": "int64", "float": "float32", "double": "float64"}
_Named = Callable[[Raw], Raw]


def avro_messages(stored: StoredFile) -> Iterator[tuple[Fields, Mapping[str, Semantic]]]:
    """The records of a file by the names of their fields, with what its schema says of columns.

    Raises BadData (SOURCE_UNREADABLE), maybe after the first records.
    """
    try:
        with stored.open() as opened:
            container = BlockReader(opened)
            schema = parse_schema(container.schema)
            tree = _Tree()
            root = tree.node(json.loads(container.schema), "")
            semantics = _columns(root)
            for record, _ in avro_records(schema.layout, container.blocks()):
                named = root.named(record)
                if isinstance(named, Mapping):
                    yield named, semantics
    except Damaged as error:
        raise unreadable(stored.name, f"this is not a readable Avro file: {error}") from error


@dataclass(frozen=True)
class _Node:
    """A type: how its values get names, what it means, and the types of its fields."""

    named: _Named
    semantic: Semantic = field(default_factory=Semantic)
    fields: Mapping[str, _Node] = field(default_factory=dict)


def _columns(root: _Node) -> Mapping[str, Semantic]:
    images = (root.fields[name].fields for name in ("after", "before") if name in root.fields)
    image = next(filter(None, images), None)
    columns = root.fields if image is None or "op" not in root.fields else image
    return {name: node.semantic for name, node in columns.items()}


@dataclass
class _Tree:
    """Types by full name. The schema has been judged by ``parse_schema``."""

    _named: dict[str, _Node] = field(default_factory=dict)

    def node(self, tree: Json, space: str) -> _Node:
        if isinstance(tree, str):
            return self._called(tree, space)
        if isinstance(tree, Mapping):
            return self._complex(tree, space)
        return self._union(tree, space)

    def _called(self, name: str, space: str) -> _Node:
        for full in (name if "." in name or not space else f"{space}.{name}", name):
            if full in self._named:
                return self._named[full]
        return _Node(_text if name == "string" else _same, Semantic(type=_TYPES.get(name, name)))

    def _union(self, tree: Json, space: str) -> _Node:
        branches = [branch for branch in tree if branch != "null"] if isinstance(tree, Sequence) else []
        if len(branches) != 1:
            raise Damaged("a field may have values of several types, which is not read in change feeds")
        inner = self.node(branches[0], space)
        is_optional = isinstance(tree, Sequence) and "null" in tree
        return _Node(_or_null(inner.named), replace(inner.semantic, optional=is_optional), inner.fields)

    def _complex(self, tree: Mapping[str, Json], space: str) -> _Node:
        kind = tree["type"]
        match kind:
            case "record" | "error":
                return self._record(tree, space)
            case "enum":
                symbols = tree["symbols"]
                picked = _picked(symbols if isinstance(symbols, list) else [])
                return self._keep(tree, space, _Node(picked, Semantic(type="string")))
            case "fixed":
                return self._keep(tree, space, _Node(_same, replace(_meaning(tree), type="bytes")))
            case "array":
                item = self.node(tree["items"], space)
                return _Node(_each(item.named), Semantic(_meaning(tree).name, None, item.semantic))
            case "map":
                item = self.node(tree["values"], space)
                return _Node(_pairs(item.named), Semantic(_meaning(tree).name, None, item.semantic))
        inner = self.node(kind, space)
        return _Node(inner.named, replace(_meaning(tree), type=inner.semantic.type), inner.fields)

    def _record(self, tree: Mapping[str, Json], space: str) -> _Node:
        full = _full(tree, space)
        listed = tree["fields"]
        trees = [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []
        nodes = {str(entry["name"]): self._field(entry, full.rpartition(".")[0]) for entry in trees}
        return self._keep(tree, space, _Node(_record_named(nodes), _meaning(tree), nodes))

    def _field(self, tree: Mapping[str, Json], space: str) -> _Node:
        node = self.node(tree["type"], space)
        if tree.get("default") is None:
            return node
        return replace(node, semantic=replace(node.semantic, default=tree["default"]))

    def _keep(self, tree: Mapping[str, Json], space: str, node: _Node) -> _Node:
        self._named[_full(tree, space)] = node
        return node


def _full(tree: Mapping[str, Json], space: str) -> str:
    name, given = str(tree["name"]), tree.get("namespace")
    outer = given if isinstance(given, str) else space
    return name if "." in name or not outer else f"{outer}.{name}"


def _meaning(tree: Mapping[str, Json]) -> Semantic:
    logical = tree.get("logicalType")
    name = str(tree.get("connect.name") or _LOGICAL.get(str(logical), ""))
    parameters = tree.get("connect.parameters")
    given = parameters.get("scale") if isinstance(parameters, Mapping) else None
    scale = tree.get("scale", 0 if given is None else given) if name == DECIMAL or logical == "decimal" else None
    return Semantic(name, None if scale is None else _whole(scale))


def _whole(scale: Json) -> int:
    try:
        return int(str(scale))
    except ValueError as error:
        raise Damaged("a decimal's scale is not a whole number") from error


def _same(value: Raw) -> Raw:
    return value


def _text(value: Raw) -> Raw:
    return value.decode() if isinstance(value, bytes) else value


def _or_null(inner: _Named) -> _Named:
    return lambda value: None if value is None else inner(value)


def _picked(symbols: Sequence[Json]) -> _Named:
    return lambda value: symbols[value] if isinstance(value, int) else value


def _each(inner: _Named) -> _Named:
    return lambda value: [inner(item) for item in value] if isinstance(value, list) else value


def _pairs(inner: _Named) -> _Named:
    """Maps are laid out as arrays of pairs."""
    return lambda value: {_text(pair["k"]): inner(pair["v"]) for pair in value} if isinstance(value, list) else value


def _record_named(nodes: Mapping[str, _Node]) -> _Named:
    parts = [(name, layout_name(at), node.named) for at, (name, node) in enumerate(nodes.items())]
    return lambda value: {name: named(value[at]) for name, at, named in parts} if isinstance(value, dict) else value
