"""Frozen dataclasses to camelCase JSON values and back.

Used by the contract between the planes and by the operator's typed resources.
Must not read files or know any particular type: what a field means is its owner's business.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar, Union, cast

from skipstone_core.errors import ContractViolation

T = TypeVar("T")
JsonObject = dict[str, Any]


class _Mode(Enum):
    """What becomes of fields that are unknown, and of values that cannot be read."""

    STRICT = "both are refused"
    LENIENT = "unknown fields are ignored"
    SALVAGE = "both are ignored"


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
    return cast(T, _decode_any(kind, value, path or kind.__name__, mode=_Mode.STRICT if strict else _Mode.LENIENT))


def salvage(kind: type[T], value: object) -> T:
    """Build ``kind`` from JSON values that others may have written, or another release: what cannot be read is absent.

    A field takes its default, an item of a list or map is left out. Raises ContractViolation when nothing can be made
    of ``value``.
    """
    return cast(T, _decode_any(kind, value, kind.__name__, mode=_Mode.SALVAGE))


def _decode_any(kind: Any, value: object, path: str, *, mode: _Mode) -> object:
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return _decode_any(typing.get_args(kind)[0], value, path, mode=mode)
    if origin in (Union, types.UnionType):
        return _decode_optional(kind, value, path, mode=mode)
    if origin is not None:
        return _decode_container(kind, value, path, mode=mode)
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(cast(type, kind), value, path, mode=mode)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _decode_enum(kind, value, path)
    return _decode_scalar(kind, value, path)


def _decode_optional(kind: Any, value: object, path: str, *, mode: _Mode) -> object:
    if value is None:
        return None
    (inner,) = [arm for arm in typing.get_args(kind) if arm is not type(None)]
    return _decode_any(inner, value, path, mode=mode)


def _decode_container(kind: Any, value: object, path: str, *, mode: _Mode) -> object:
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) in (dict, Mapping, typing.get_origin(Mapping[str, str])):
        if not isinstance(value, Mapping):
            raise ContractViolation(f"{path}: expected an object, got {type(value).__name__}")
        return dict(_readable(arguments[1], ((str(k), f"{path}.{k}", v) for k, v in value.items()), mode))
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ContractViolation(f"{path}: expected a list, got {type(value).__name__}")
    items = ((str(i), f"{path}[{i}]", v) for i, v in enumerate(value))
    return tuple(item for _, item in _readable(arguments[0], items, mode))


def _readable(kind: Any, items: Iterable[tuple[str, str, object]], mode: _Mode) -> Iterator[tuple[str, object]]:
    for key, path, value in items:
        try:
            yield key, _decode_any(kind, value, path, mode=mode)
        except ContractViolation:
            if mode is not _Mode.SALVAGE:
                raise


@lru_cache(maxsize=256)
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _decode_dataclass(kind: type, value: object, path: str, *, mode: _Mode) -> object:
    if not isinstance(value, Mapping):
        raise ContractViolation(f"{path}: expected an object, got {type(value).__name__}")
    fields = {camel(f.name): f for f in dataclasses.fields(kind)}
    if mode is _Mode.STRICT and (unknown := sorted(set(value) - set(fields))):
        raise ContractViolation(f"{path}: unknown field {unknown[0]!r}")
    found: dict[str, Any] = {}
    for key, field in fields.items():
        optional = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if key in value and not (optional and value[key] is None and mode is not _Mode.STRICT):
            try:
                found[field.name] = _decode_any(_hints(kind)[field.name], value[key], f"{path}.{key}", mode=mode)
            except ContractViolation:
                if not (optional and mode is _Mode.SALVAGE):
                    raise
        elif not optional:
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
