"""The schema of a CRD as a tree of nodes; a keyword that this package does not know is refused, never ignored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from skipstone_local.admission.failures import JsonObject

#: Keywords whose meaning is in ``Node``, and those that mean nothing to admission.
_KNOWN = frozenset(
    {
        *("type", "nullable", "format", "enum", "default", "required", "properties", "additionalProperties", "items"),
        *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        *("x-kubernetes-validations", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"),
        *("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "description"),
    }
)
#: Formats that are checked; int64 and its like are not, as in Kubernetes.
_CHECKED_FORMATS = frozenset({"date-time"})
_UNCHECKED_FORMATS = frozenset({"", "int32", "int64"})
RULES = "x-kubernetes-validations"


class UnknownKeywordError(ValueError):
    """A schema says something that this package does not enforce."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a number, or of the size of a text, list or map."""

    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One schema. ``rules`` are the entries of x-kubernetes-validations; ``default`` is None when there is none."""

    types: tuple[str, ...]
    nullable: bool
    format: str
    enum: tuple[Any, ...]
    default: Any
    required: tuple[str, ...]
    number: Bounds
    length: Bounds
    size: Bounds
    width: Bounds
    list_type: str
    map_keys: tuple[str, ...]
    preserve: bool
    rules: tuple[JsonObject, ...]
    items: Node | None
    additional: Node | None
    properties: dict[str, Node]
    #: A default is below, and a list of the type set or map is here or below: else nobody need look.
    has_defaults: bool
    has_keys: bool

    def child(self, name: str) -> Node | None:
        """The schema of a field or an entry, or None."""
        return self.properties.get(name, self.additional)


def parse_schema(schema: JsonObject, path: str = "") -> Node:
    """Return the tree of ``schema``; raises UnknownKeywordError, which names the keyword and its path."""
    _check_keywords(schema, path)
    items, additional = (
        parse_schema(schema[word], f"{path}{place}") if word in schema else None
        for word, place in (("items", "[]"), ("additionalProperties", ".*"))
    )
    properties = {name: parse_schema(inner, f"{path}.{name}") for name, inner in schema.get("properties", {}).items()}
    below = [*properties.values(), *(inner for inner in (items, additional) if inner is not None)]
    given, list_type = schema.get("format", ""), schema.get("x-kubernetes-list-type", "")
    types = ("integer", "string") if schema.get("x-kubernetes-int-or-string") else (schema.get("type"),)
    return Node(
        types=tuple(name for name in types if name),
        nullable=bool(schema.get("nullable")),
        format=given if given in _CHECKED_FORMATS else "",
        enum=tuple(schema.get("enum", ())),
        default=schema.get("default"),
        required=tuple(schema.get("required", ())),
        number=Bounds(schema.get("minimum"), schema.get("maximum")),
        length=Bounds(schema.get("minLength"), schema.get("maxLength")),
        size=Bounds(schema.get("minItems"), schema.get("maxItems")),
        width=Bounds(schema.get("minProperties"), schema.get("maxProperties")),
        list_type=list_type,
        map_keys=tuple(schema.get("x-kubernetes-list-map-keys", ())),
        preserve=bool(schema.get("x-kubernetes-preserve-unknown-fields")),
        rules=tuple(schema.get(RULES, ())),
        items=items,
        additional=additional,
        properties=properties,
        has_defaults=any(inner.default is not None or inner.has_defaults for inner in below),
        has_keys=list_type in ("set", "map") or any(inner.has_keys for inner in below),
    )


def _check_keywords(schema: object, path: str) -> None:
    where = path.removeprefix(".") or "the root"
    if not isinstance(schema, dict):
        raise UnknownKeywordError(f"the schema of {where} is not an object")
    unknown = sorted(set(schema) - _KNOWN)
    if unknown:
        raise UnknownKeywordError(f"the schema of {where} has {unknown[0]}, which admission does not enforce")
    if schema.get("format", "") not in _CHECKED_FORMATS | _UNCHECKED_FORMATS:
        raise UnknownKeywordError(f"the schema of {where} has the format {schema['format']}, which admission ignores")
