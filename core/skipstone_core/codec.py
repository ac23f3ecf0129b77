"""Frozen dataclasses to camelCase JSON values and back.

Used by the contract between the planes and by the operator's typed resources.
Must not read files or know any particular type: what a field means is its owner's business.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar, Union, cast

from skipstone_core.errors import ContractViolation

T = TypeVar("T")
JsonObject = dict[str, Any]


def camel(name: str) -> str:
    """Turn ``snake_case`` into ``camelCase``; a trailing underscore (``from_``) is dropped."""
    head, *rest = name.rstrip("_").split("_")
    return head + "".join(part.capitalize() for part in rest)


def encode(value: object) -> Any:
    """Turn a dataclass (or a container of them) into JSON values; fields that are ``None`` are left out."""
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((camel(f.name), getattr(value, f.name)) for f in dataclasses.fields(value))
        return {name: encode(item) for name, item in pairs if item is not None}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [encode(item) for item in value]
    return value


def decode(kind: type[T], value: object, *, path: str = "", strict: bool = True) -> T:
    """Build ``kind`` from JSON values.

    Raises ContractViolation naming the path for a missing field, a wrong type or (when ``strict``) an unknown field.
    """
    return cast(T, _decode_any(kind, value, path or kind.__name__, strict=strict))


def _decode_any(kind: Any, value: object, path: str, *, strict: bool) -> object:
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return _decode_any(typing.get_args(kind)[0], value, path, strict=strict)
    if origin in (Union, types.UnionType):
        return _decode_optional(kind, value, path, strict=strict)
    if origin is not None:
        return _decode_container(kind, value, path, strict=strict)
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(cast(type, kind), value, path, strict=strict)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _decode_enum(kind, value, path)
    return _decode_scalar(kind, value, path)


def _decode_optional(kind: Any, value: object, path: str, *, strict: bool) -> object:
    if value is None:
        return None
    (inner,) = [arm for arm in typing.get_args(kind) if arm is not type(None)]
    return _decode_any(inner, value, path, strict=strict)


def _decode_container(kind: Any, value: object, path: str, *, strict: bool) -> object:
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) in (dict, Mapping, typing.get_origin(Mapping[str, str])):
        if not isinstance(value, Mapping):
            raise ContractViolation(f"{path}: expected an object, got {type(value).__name__}")
        return {str(k): _decode_any(arguments[1], v, f"{path}.{k}", strict=strict) for k, v in value.items()}
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ContractViolation(f"{path}: expected a list, got {type(value).__name__}")
    return tuple(_decode_any(arguments[0], v, f"{path}[{i}]", strict=strict) for i, v in enumerate(value))


@lru_cache(maxsize=256)
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _decode_dataclass(kind: type, value: object, path: str, *, strict: bool) -> object:
    if not isinstance(value, Mapping):
        raise ContractViolation(f"{path}: expected an object, got {type(value).__name__}")
    fields = {camel(f.name): f for f in dataclasses.fields(kind)}
    if strict and (unknown := sorted(set(value) - set(fields))):
        raise ContractViolation(f"{path}: unknown field {unknown[0]!r}")
    found: dict[str, Any] = {}
    for key, field in fields.items():
        if key in value:
            found[field.name] = _decode_any(_hints(kind)[field.name], value[key], f"{path}.{key}", strict=strict)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ContractViolation(f"{path}.{key}: required field is missing")
    return kind(**found)


def _decode_enum(kind: type[Enum], value: object, path: str) -> Enum:
    try:
        return kind(value)
    except ValueError:
        allowed = ", ".join(str(member.value) for member in kind)
        raise ContractViolation(f"{path}: {value!r} is none of {allowed}") from None


def _decode_scalar(kind: Any, value: object, path: str) -> object:
    if kind is Any or kind is object:
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ContractViolation(f"{path}: expected {kind.__name__}, got {type(value).__name__}")
    return value
