"""OpenAPI v3 schemas with CEL rules out of the typed kinds.

Called by ``crds`` and ``fieldreference``. Pure: types in, dictionaries out.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, Union

from skipstone_core.codec import camel, encode

from skipstone_operator.resources.rules.markers import Doc, Rule, pattern_rule

Schema = dict[str, Any]

_BOUNDS = {
    "min_length": "minLength",
    "max_length": "maxLength",
    "minimum": "minimum",
    "maximum": "maximum",
    "min_items": "minItems",
    "max_items": "maxItems",
    "max_properties": "maxProperties",
    "format": "format",
}
_SCALARS: Mapping[type, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
}


def object_schema(kind: type, doc: Doc, *, defaults: bool) -> Schema:
    """The schema of a dataclass whose fields are annotated; ``defaults`` writes them for the API server to fill in."""
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = dataclasses.fields(kind)
    required = [camel(field.name) for field in fields if _is_required(field)]
    schema: Schema = {"type": "object"}
    if required:
        schema["required"] = required
    schema["properties"] = {
        camel(field.name): _with_default(_annotated(hints[field.name], defaults=defaults), field, defaults=defaults)
        for field in fields
    }
    return _described(schema, doc, own=getattr(kind, "RULES", ()))


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _with_default(schema: Schema, field: dataclasses.Field[Any], *, defaults: bool) -> Schema:
    value = field.default
    if not defaults or value is dataclasses.MISSING or value in (None, "", ()):
        return schema
    return {**schema, "default": {} if dataclasses.is_dataclass(value) else encode(value)}


def _annotated(hint: Any, *, defaults: bool) -> Schema:
    if typing.get_origin(hint) is not Annotated:
        raise TypeError(f"{hint} has no Doc: every field needs its text")
    kind, doc = typing.get_args(hint)[:2]
    return _schema(_without_none(kind), doc, defaults=defaults)


def _without_none(kind: Any) -> Any:
    if typing.get_origin(kind) not in (Union, types.UnionType):
        return kind
    (inner,) = [arm for arm in typing.get_args(kind) if arm is not type(None)]
    return inner


def _schema(kind: Any, doc: Doc, *, defaults: bool) -> Schema:
    if doc.schema:
        return _described(dict(doc.schema), doc)
    if dataclasses.is_dataclass(kind):
        return object_schema(typing.cast(type, kind), doc, defaults=defaults)
    if typing.get_origin(kind) is not None:
        return _container(kind, doc, defaults=defaults)
    if issubclass(kind, Enum):
        return _described({"type": "string", "enum": [member.value for member in kind]}, doc)
    return _described(dict(_SCALARS[kind]), doc)


def _container(kind: Any, doc: Doc, *, defaults: bool) -> Schema:
    if doc.item is None:
        raise TypeError(f"{kind} has no Doc for its items")
    inner = _schema(
        typing.get_args(kind)[-1 if typing.get_origin(kind) is not tuple else 0], doc.item, defaults=defaults
    )
    if typing.get_origin(kind) is tuple:
        return _described({"type": "array", **_list_type(doc), "items": inner}, doc)
    return _described({"type": "object", "additionalProperties": inner}, doc)


def _list_type(doc: Doc) -> Schema:
    if doc.list_key is None:
        return {"x-kubernetes-list-type": "atomic"}
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [doc.list_key]}


def _described(schema: Schema, doc: Doc, own: tuple[Rule, ...] = ()) -> Schema:
    bounds = {word: getattr(doc, name) for name, word in _BOUNDS.items() if getattr(doc, name) is not None}
    if doc.pattern and doc.help is None:
        bounds["pattern"] = doc.pattern
    pattern = (pattern_rule(doc.pattern, doc.help),) if doc.pattern and doc.help else ()
    rules = [rule_schema(rule) for rule in (*own, *pattern, *doc.rules) if rule.rule]
    described = {"description": doc.text, **schema, **bounds}
    if rules:
        described["x-kubernetes-validations"] = rules
    return described


def rule_schema(rule: Rule) -> Schema:
    """One rule as the API server wants it."""
    schema: Schema = {"rule": rule.rule, "message": rule.message}
    if rule.field_path:
        schema["fieldPath"] = rule.field_path
    if rule.message_expression:
        schema["messageExpression"] = rule.message_expression
    return schema
