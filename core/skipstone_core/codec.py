"""Frozen dataclasses to camelCase JSON values and back.

Used by the contract between the planes and by the operator's typed resources.
Must not read files or know any particular type: what a field means is its owner's business.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar, Union, cast

from skipstone_core.errors import ContractViolation

T = TypeVar("T")
JsonObject = dict[str, Any]


class _Mode(Enum):
    """The treatment of unknown fields, and of values that cannot be read."""

    STRICT = "both are refused"
    LENIENT = "unknown fields are ignored"
    SALVAGE = "both are ignored"


@cache
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
    return cast(T, _build_reader(kind)(value, path or kind.__name__, _Mode.STRICT if strict else _Mode.LENIENT))


def salvage(kind: type[T], value: object) -> T:
    """Build ``kind`` from JSON values that others may have written, or another release: what cannot be read is absent.

    A field takes its default, an item of a list or map is left out. Raises ContractViolation when nothing can be made
    of ``value``.
    """
    return cast(T, _build_reader(kind)(value, kind.__name__, _Mode.SALVAGE))


#: Builds a value from JSON at this path.
Reader = Callable[[object, str, _Mode], object]


@dataclass(frozen=True)
class _Field:
    """One field of a dataclass: its JSON key, its name, whether it may be missing, and how its value is read."""

    key: str
    name: str
    optional: bool
    read: Reader


def _build_reader(kind: Any) -> Reader:
    """How values of ``kind`` are read. Types are looked into once, values are read millions of times."""
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return _build_reader(typing.get_args(kind)[0])
    if origin in (Union, types.UnionType):
        (inner,) = [arm for arm in typing.get_args(kind) if arm is not type(None)]
        return partial(_read_optional, _build_reader(inner))
    if origin is not None:
        return _build_container_reader(kind)
    if dataclasses.is_dataclass(kind):
        return partial(_read_dataclass, cast(type, kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return partial(_read_enum, kind)
    return partial(_read_scalar, kind)


def _build_container_reader(kind: Any) -> Reader:
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) in (dict, Mapping, typing.get_origin(Mapping[str, str])):
        return partial(_read_map, _build_reader(arguments[1]))
    return partial(_read_list, _build_reader(arguments[0]))


def _read_optional(read: Reader, value: object, path: str, mode: _Mode) -> object:
    return None if value is None else read(value, path, mode)


def _read_map(read: Reader, value: object, path: str, mode: _Mode) -> object:
    if not isinstance(value, Mapping):
        raise ContractViolation(f"{path}: expected an object, got {type(value).__name__}")
    return dict(_readable(read, (_Item(str(k), f"{path}.{k}", v) for k, v in value.items()), mode))


def _read_list(read: Reader, value: object, path: str, mode: _Mode) -> object:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ContractViolation(f"{path}: expected a list, got {type(value).__name__}")
    items = (_Item(str(i), f"{path}[{i}]", v) for i, v in enumerate(value))
    return tuple(item for _, item in _readable(read, items, mode))


class _Item(NamedTuple):
    """One value of a list or an object, with its place in the document."""

    key: str
    path: str
    value: object


def _readable(read: Reader, items: Iterable[_Item], mode: _Mode) -> Iterator[tuple[str, object]]:
    for item in items:
        try:
            yield item.key, read(item.value, item.path, mode)
        except ContractViolation:
            if mode is not _Mode.SALVAGE:
                raise


@cache
def _fields_of(kind: type) -> dict[str, _Field]:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = [
        _Field(
            key=camel(field.name),
            name=field.name,
            optional=field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING,
            read=_build_reader(hints[field.name]),
        )
        for field in dataclasses.fields(kind)
    ]
    return {field.key: field for field in fields}


def _read_dataclass(kind: type, value: object, path: str, mode: _Mode) -> object:
    if not isinstance(value, Mapping):
        raise ContractViolation(f"{path}: expected an object, got {type(value).__name__}")
    fields = _fields_of(kind)
    if mode is _Mode.STRICT and (unknown := sorted(set(value) - set(fields))):
        raise ContractViolation(f"{path}: unknown field {unknown[0]!r}")
    values: dict[str, Any] = {}
    for key, field in fields.items():
        if key in value and not (field.optional and value[key] is None and mode is not _Mode.STRICT):
            try:
                values[field.name] = field.read(value[key], f"{path}.{key}", mode)
            except ContractViolation:
                if not (field.optional and mode is _Mode.SALVAGE):
                    raise
        elif not field.optional:
            raise ContractViolation(f"{path}.{key}: required field is missing")
    return kind(**values)


def _read_enum(kind: type[Enum], value: object, path: str, _mode: _Mode) -> Enum:
    try:
        return kind(value)
    except ValueError:
        allowed = ", ".join(str(member.value) for member in kind)
        raise ContractViolation(f"{path}: {value!r} is none of {allowed}") from None


def _read_scalar(kind: Any, value: object, path: str, _mode: _Mode) -> object:
    if kind is Any or kind is object:
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ContractViolation(f"{path}: expected {kind.__name__}, got {type(value).__name__}")
    return value
