"""What the schema of an Avro file says: the columns of its records, and how their bytes are laid out.

Called by ``files``. Pure: JSON text in. The layout is a schema without names, logical types and text, so that what
reads records converts nothing and nothing that a file calls its types reaches it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from skipstone.files.avro.containers import Damaged
from skipstone.sources.avro.values import AvroType, list_column, logical_type, map_column, plain_type, record_column
from skipstone.sources.nested import Named, unloaded

#: A schema of Avro as JSON values.
Json = str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]
#: The same, of a layout.
Layout = str | list["Layout"] | dict[str, object]
_MOST_DEPTH = 64
#: Values of a record that stand in no array or map.
_MOST_VALUES = 20_000
#: Bytes that a value of each type takes at least, as the layout has it, and as.
_PRIMITIVES = {
    "null": (0, "null"),
    "boolean": (1, "boolean"),
    "int": (1, "int"),
    "long": (1, "long"),
    "float": (4, "float"),
    "double": (8, "double"),
    "bytes": (1, "bytes"),
    "string": (1, "bytes"),
}


@dataclass(frozen=True)
class AvroColumn:
    """A column by its name in the file; ``type`` is None for one that cannot be loaded.

    ``fields``: of a record, by their own names. ``path``: positions of the column and of the fields that lead to it.
    """

    name: str
    type: AvroType | None
    path: tuple[int, ...] = ()
    fields: tuple[AvroColumn, ...] = ()
    is_field: bool = False


@dataclass(frozen=True)
class RecordSchema:
    """``layout``: of a record, whose fields are called as ``layout_name`` says, by the positions in paths."""

    layout: Layout
    columns: tuple[AvroColumn, ...]

    def naming(self, named: Named) -> RecordSchema:
        """With the fields within columns that are ``named`` as columns, too. Raises as ``find_field`` does."""
        added = []
        columns = tuple(
            replace(column, type=None)
            if column.type and column.type.file_type.inside and column.name not in named.nested
            else column
            for column in self.columns
        )
        for name, column in named.found(self.columns):
            if column.type is None or column.type.file_type.inside:
                raise unloaded(name, named.fields[name])
            added.append(replace(column, name=name, is_field=True))
        return replace(self, columns=(*columns, *added))


def layout_name(position: int) -> str:
    """What the layout calls the field at ``position``."""
    return f"f{position}"


def parse_schema(text: str) -> RecordSchema:
    """Judge the schema of a file. Raises Damaged for one that is none, and for what is not read."""
    try:
        tree: Json = json.loads(text)
        return _Parser().records(tree)
    except RecursionError as error:
        raise Damaged("its schema nests too deep") from error
    except Damaged:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"its schema is no schema of Avro ({error})") from error


@dataclass(frozen=True)
class _Node:
    """A type: its ``layout``, how many ``values`` one has, the ``least`` bytes that it takes, and its column type."""

    layout: Layout
    values: int = 1
    least: int = 0
    column: AvroType | None = None
    is_null: bool = False
    fields: tuple[tuple[str, _Node], ...] = ()


@dataclass
class _Parser:
    """Types by full name; None while one is being read."""

    _named: dict[str, _Node | None] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def records(self, tree: Json) -> RecordSchema:
        """The schema ``tree`` of a whole file."""
        node = self._node(tree, "", 0)
        if not isinstance(node.layout, dict) or node.layout.get("type") != "record":
            raise Damaged("it does not hold records")
        if not node.least:
            raise Damaged("its records take no bytes")
        columns = _columns(node, ())
        if len({column.name for column in columns}) < len(columns):
            raise Damaged("two of its columns have one name")
        return RecordSchema(node.layout, columns)

    def _node(self, tree: Json, space: str, depth: int) -> _Node:
        if depth > _MOST_DEPTH:
            raise Damaged(f"its schema nests more than {_MOST_DEPTH} deep")
        if isinstance(tree, str):
            return self._called(tree, space)
        if isinstance(tree, Mapping):
            return self._complex(tree, space, depth)
        if isinstance(tree, Sequence):
            return self._union(tree, space, depth)
        raise ValueError(f"{tree!r} is no type")

    def _called(self, name: str, space: str) -> _Node:
        if name in _PRIMITIVES:
            least, layout = _PRIMITIVES[name]
            return _Node(layout, least=least, column=plain_type(name), is_null=name == "null")
        for full in (_full_name(name, space), name):
            if full in self._named:
                if (node := self._named[full]) is None:
                    raise Damaged(f"its type '{name}' holds itself, which is not read")
                return node
        raise ValueError(f"{name!r} is no type")

    def _union(self, trees: Sequence[Json], space: str, depth: int) -> _Node:
        branches = [self._node(tree, space, depth + 1) for tree in trees]
        if not branches or any(isinstance(tree, list) for tree in trees):
            raise ValueError("a union is empty or holds a union")
        values = [branch for branch in branches if not branch.is_null]
        return _Node(
            [branch.layout for branch in branches],
            values=1 + max(branch.values for branch in branches),
            least=1 + min(branch.least for branch in branches),
            column=values[0].column if len(values) == 1 else None,
            fields=values[0].fields if len(values) == 1 else (),
        )

    def _complex(self, tree: Mapping[str, Json], space: str, depth: int) -> _Node:
        kind = tree["type"]
        match kind:
            case "record" | "error":
                return self._record(tree, space, depth)
            case "enum":
                return self._enum(tree, space)
            case "fixed":
                return self._fixed(tree, space)
            case "array":
                return _repeated(self._node(tree["items"], space, depth + 1))
            case "map":
                return self._map(tree, space, depth)
        inner = self._node(kind, space, depth + 1)
        if isinstance(kind, str) and kind in _PRIMITIVES:
            return _Node(inner.layout, inner.values, inner.least, logical_type(kind, tree) or inner.column)
        return inner

    def _record(self, tree: Mapping[str, Json], space: str, depth: int) -> _Node:
        full = self._begin(tree, space)
        inside = full.rpartition(".")[0]
        nodes: list[tuple[str, _Node]] = []
        trees = tree["fields"]
        if not isinstance(trees, list):
            raise ValueError("a record has no list of fields")
        for field_tree in trees:
            nodes.append((_text(field_tree["name"]), self._node(field_tree["type"], inside, depth + 1)))
        values = sum(node.values for _, node in nodes)
        if values > _MOST_VALUES:
            raise Damaged(f"its records hold more than {_MOST_VALUES} values")
        fields = [{"name": layout_name(at), "type": node.layout} for at, (_, node) in enumerate(nodes)]
        layout: Layout = {"type": "record", "name": self._new_name(), "fields": fields}
        least = sum(node.least for _, node in nodes)
        columns = {name: node.column for name, node in nodes}
        is_named = len(columns) == len(nodes)
        column = record_column(columns, list(map(layout_name, range(len(nodes))))) if is_named else None
        return self._end(full, _Node(layout, values, least, column, fields=tuple(nodes)))

    def _enum(self, tree: Mapping[str, Json], space: str) -> _Node:
        full = self._begin(tree, space)
        symbols = tree["symbols"]
        if not isinstance(symbols, list) or not symbols:
            raise ValueError("an enum has no symbols")
        return self._end(full, _Node("int", least=1, column=plain_type("enum", tuple(map(_text, symbols)))))

    def _fixed(self, tree: Mapping[str, Json], space: str) -> _Node:
        full = self._begin(tree, space)
        size = tree["size"]
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ValueError(f"a fixed type has the size {size!r}")
        layout: Layout = {"type": "fixed", "name": self._new_name(), "size": size}
        column = logical_type("fixed", tree, size) or plain_type("fixed", size=size)
        return self._end(full, _Node(layout, least=size, column=column))

    def _map(self, tree: Mapping[str, Json], space: str, depth: int) -> _Node:
        """Written like an array of pairs."""
        value = self._node(tree["values"], space, depth + 1)
        fields = [{"name": "k", "type": "bytes"}, {"name": "v", "type": value.layout}]
        pair = {"type": "record", "name": self._new_name(), "fields": fields}
        return _Node({"type": "array", "items": pair}, least=1, column=map_column(value.column))

    def _new_name(self) -> str:
        return f"r{next(self._numbers)}"

    def _begin(self, tree: Mapping[str, Json], space: str) -> str:
        name, given = _text(tree["name"]), tree.get("namespace")
        full = _full_name(name, given if isinstance(given, str) else space)
        if full in self._named or full in _PRIMITIVES:
            raise ValueError(f"the type {full!r} stands twice")
        self._named[full] = None
        return full

    def _end(self, full: str, node: _Node) -> _Node:
        """Remember a type: where it stands again, the layout says its name."""
        layout = node.layout
        self._named[full] = _Node(
            str(layout["name"]) if isinstance(layout, dict) else layout,
            node.values,
            node.least,
            node.column,
            fields=node.fields,
        )
        return node


def _columns(record: _Node, above: tuple[int, ...]) -> tuple[AvroColumn, ...]:
    paths = [(name, node, (*above, at)) for at, (name, node) in enumerate(record.fields)]
    return tuple(AvroColumn(name, node.column, path, _columns(node, path)) for name, node, path in paths)


def _repeated(item: _Node) -> _Node:
    if not item.least:
        raise Damaged("the items of its arrays take no bytes")
    return _Node({"type": "array", "items": item.layout}, least=1, column=list_column(item.column))


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _text(value: Json) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is no name")
    return value
