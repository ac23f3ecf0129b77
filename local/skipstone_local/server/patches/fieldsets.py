"""Which fields a manager applied, in the form of metadata.managedFields, and values at these fields."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from skipstone_local.server.patches.lists import Shape, key_of

#: A set of fields: "f:NAME", "k:{KEYS}" and "v:VALUE" to sets of fields below; "." is the item itself.
FieldSet = dict[str, Any]
#: Fields that nobody owns.
UNOWNED = ("apiVersion", "kind")
UNOWNED_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")


def fields_of(value: object, shape: Shape) -> FieldSet:
    """The fields that a value sets; {} for one that is set whole."""
    if isinstance(value, dict) and not shape.is_atomic:
        return {f"f:{name}": fields_of(inner, shape.field(name)) for name, inner in value.items()}
    if isinstance(value, list) and shape.is_set:
        return {f"v:{_json(item)}": {} for item in value}
    if isinstance(value, list) and (keys := shape.keys(value)):
        return {
            _item_name(item, keys): {".": {}, **fields_of(item, shape.item)} for item in value if key_of(item, keys)
        }
    return {}


def applied_fields(obj: dict[str, Any], shape: Shape) -> FieldSet:
    """The fields that an applied object sets, but for those that say which object it is."""
    metadata = {name: value for name, value in obj.get("metadata", {}).items() if name not in UNOWNED_METADATA}
    kept = {name: value for name, value in obj.items() if name not in (*UNOWNED, "metadata")}
    return fields_of({**kept, **({"metadata": metadata} if metadata else {})}, shape)


def _item_name(item: object, keys: tuple[str, ...]) -> str:
    values = key_of(item, keys) or ()
    return f"k:{_json(dict(zip(keys, values, strict=True)))}"


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def leaves(fields: FieldSet, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths in a set that have nothing below; an item of a list is one, too."""
    for name, inner in fields.items():
        if name == ".":
            yield (*path, name)
        elif inner:
            yield from leaves(inner, (*path, name))
        else:
            yield (*path, name)


def remove_path(fields: FieldSet, path: tuple[str, ...]) -> None:
    """Take a path out of a set, and whatever is empty then."""
    name, rest = path[0], path[1:]
    if name not in fields:
        return
    if rest:
        remove_path(fields[name], rest)
    if not rest or not fields[name]:
        del fields[name]


def holds(fields: FieldSet, path: tuple[str, ...]) -> bool:
    """Return whether a set has a path, or something below it or above it."""
    inner: FieldSet = fields
    for name in path:
        if name not in inner:
            return False
        inner = inner[name]
        if not inner:
            return True
    return True


def value_at(value: object, path: tuple[str, ...]) -> object:
    """The value at a path; ``MISSING`` when there is none."""
    for name in path:
        value = _step(value, name)
        if value is MISSING:
            return MISSING
    return value


MISSING = object()


def _step(value: object, name: str) -> object:
    if name == ".":
        return True
    letter, rest = name[0], name[2:]
    if letter == "f":
        return value.get(rest, MISSING) if isinstance(value, dict) else MISSING
    at = _index(value, name)
    return MISSING if at is None or not isinstance(value, list) else value[at]


def _index(value: object, name: str) -> int | None:
    if not isinstance(value, list):
        return None
    wanted = json.loads(name[2:])
    if name[0] == "v":
        return value.index(wanted) if wanted in value else None
    matches = (
        number
        for number, item in enumerate(value)
        if isinstance(item, dict) and all(item.get(key) == inner for key, inner in wanted.items())
    )
    return next(matches, None)


def without(value: object, path: tuple[str, ...]) -> object:
    """A copy of a value without what is at a path, and without items and maps that hold nothing else then."""
    name, rest = path[0], path[1:]
    if isinstance(value, dict):
        return _without_field(value, name[2:], rest)
    at = _index(value, name)
    if at is None or not isinstance(value, list):
        return value
    if not rest or rest == (".",):
        return [*value[:at], *value[at + 1 :]]
    return [*value[:at], without(value[at], rest), *value[at + 1 :]]


def _without_field(value: dict[str, Any], field: str, rest: tuple[str, ...]) -> dict[str, Any]:
    if field not in value:
        return value
    kept = {name: inner for name, inner in value.items() if name != field}
    if not rest:
        return kept
    inner = without(value[field], rest)
    return kept if inner in ({}, []) else {**value, field: inner}


def dotted(path: tuple[str, ...]) -> str:
    """A path as messages write it: .spec.containers[name="a"].image."""
    return "".join(_dotted(name) for name in path if name != ".")


def _dotted(name: str) -> str:
    if name[0] == "f":
        return f".{name[2:]}"
    if name[0] == "v":
        return f"[={name[2:]}]"
    pairs = (f"{key}={_json(value)}" for key, value in json.loads(name[2:]).items())
    return f"[{','.join(pairs)}]"
