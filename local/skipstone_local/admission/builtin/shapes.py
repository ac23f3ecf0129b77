"""The types of fields of Kubernetes' own kinds, as far as they are looked at. Pure."""

from __future__ import annotations

from typing import Any

from skipstone_local.admission.metadata.decoding import DecodingError
from skipstone_local.admission.quantities import parse_quantity

TEXT, NUMBER, FLAG, ANY = "string", "int64", "bool", "any"
TEXTS, AMOUNTS = "map[string]string", "v1.ResourceList"
Shape = Any
_JSON = {str: "string", list: "array", dict: "object", bool: "bool", int: "number", float: "number"}
_FIELD_TYPES: dict[str, type | tuple[type, ...]] = {TEXT: str, FLAG: bool, NUMBER: int}


def check_shape(value: Any, shape: Shape, path: str) -> None:
    """Raise DecodingError for the first field at ``path`` and below that has another type than ``shape`` says."""
    if value is None or shape == ANY:
        return
    if shape == AMOUNTS:
        for item in _typed(value, dict, path, AMOUNTS).values():
            _check_amount(item)
    elif isinstance(shape, str) and shape != TEXTS:
        if not isinstance(value, _FIELD_TYPES[shape]) or (shape == NUMBER and isinstance(value, bool)):
            raise _mismatch(value, path, shape)
    else:
        _check_inner(value, shape, path)


def _check_inner(value: Any, shape: Shape, path: str) -> None:
    if isinstance(shape, list):
        for item in _typed(value, list, path, "array"):
            check_shape(item, shape[0], path)
    elif shape == TEXTS:
        for item in _typed(value, dict, path, TEXTS).values():
            check_shape(item, TEXT, path)
    else:
        for name, item in _typed(value, dict, path, "object").items():
            check_shape(item, shape.get(name, ANY), f"{path}.{name}")


def _typed(value: Any, wanted: type, path: str, called: str) -> Any:
    if not isinstance(value, wanted):
        raise _mismatch(value, path, called)
    return value


def _check_amount(value: Any) -> None:
    try:
        if value is not None:
            parse_quantity(value if isinstance(value, str) else str(value))
    except ValueError as error:
        raise DecodingError(str(error)) from error


def _mismatch(value: Any, path: str, wanted: str) -> DecodingError:
    return DecodingError(f"json: cannot unmarshal {_JSON[type(value)]} into Go struct field {path} of type {wanted}")
