"""Whether a value is as its schema says; sentences and their order are those of Kubernetes' OpenAPI library. Pure."""

from __future__ import annotations

import datetime
import re
from typing import Any

from skipstone_local.admission.failures import (
    INVALID,
    REQUIRED,
    TYPE_INVALID,
    Failures,
    FieldFailure,
    too_long,
    too_many,
    unsupported,
)
from skipstone_local.admission.gotext import print_value, quote, to_json
from skipstone_local.admission.schemas.correlation import ABSENT, is_same, old_entry, old_items
from skipstone_local.admission.schemas.nodes import Bounds, Node

_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))")
_EXACT = 2**53 - 1
#: Part of a number that counts as nothing.
_SMALL = 1e-9
Count = int | float


def check(value: Any, node: Node, path: str = "", old: Any = ABSENT, under: str = "") -> Failures:
    """Return what is wrong with ``value``, which stands at ``path`` below ``under``.

    Nothing is wrong with a part that equals its old value, which a schema of today may not allow.
    """
    failures = _check_null(node, path, under) if value is None else _check_value(value, node, path, old, under)
    return [] if failures and old is not ABSENT and is_same(value, old) else failures


def _check_null(node: Node, path: str, under: str) -> Failures:
    failures = [] if node.nullable or not node.types else [_type_failure(path, under, ",".join(node.types), "null")]
    return failures + _check_enum(None, node, _at(path, under))


def _check_value(value: Any, node: Node, path: str, old: Any, under: str) -> Failures:
    failures = _check_type(value, node, path, under)
    if isinstance(value, str):
        failures += _check_text(value, node, path, under)
    elif isinstance(value, list):
        failures += _check_list(value, node, path, old, under)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        failures += _check_number(value, node.number, path, under)
    failures += _check_enum(value, node, _at(path, under))
    return failures + (_check_object(value, node, path, old, under) if isinstance(value, dict) else [])


def _at(path: str, under: str) -> str:
    return f"{under}.{path}" if under and path else under or path


def _type_failure(path: str, under: str, wanted: str, given: str) -> FieldFailure:
    return FieldFailure(
        TYPE_INVALID, _at(path, under), given, f"{path} in body must be of type {wanted}: {quote(given)}"
    )


def _check_type(value: Any, node: Node, path: str, under: str) -> Failures:
    given, given_format = _type_of(value)
    is_number = given == "number" and "integer" in node.types and is_whole(value)
    fits = given in node.types or is_number or (given == "integer" and "number" in node.types)
    if node.format:
        if not fits and not isinstance(value, str | list):
            return [_type_failure(path, under, node.format, given_format)]
        if isinstance(value, str | list):
            return []
    return [] if fits or not node.types else [_type_failure(path, under, ",".join(node.types), given)]


def is_whole(number: float) -> bool:
    """Return whether Kubernetes' OpenAPI library takes a float for an integer: its fraction is small."""
    if number.is_integer() or number < 0:
        return number.is_integer() and abs(number) <= _EXACT
    below = float(int(number))
    return number <= _EXACT and below > 0 and (number - below) / (number + below) < _SMALL


def _type_of(value: Any) -> tuple[str, str]:
    if isinstance(value, bool):
        return "boolean", ""
    if isinstance(value, int):
        return "integer", "int64"
    if isinstance(value, float):
        return "number", "float64"
    if isinstance(value, str):
        return "string", ""
    return "array" if isinstance(value, list) else "object", ""


def _check_text(text: str, node: Node, path: str, under: str) -> Failures:
    failures: Failures = []
    low, high, at = node.length.low, node.length.high, _at(path, under)
    if high is not None and len(text) > high:
        failures.append(too_long(at, int(high)))
    elif low is not None and len(text) < low:
        failures.append(FieldFailure(INVALID, at, text, f"{path} in body should be at least {low} chars long"))
    if node.format == "date-time" and not is_time(text):
        failures.append(_type_failure(path, under, node.format, text))
    return failures


def is_time(text: str) -> bool:
    """Return whether ``text`` is a date and a time with a zone, as Kubernetes' OpenAPI library sees it."""
    date, *rest = text.lower().split("t")
    match = _TIME.fullmatch(rest[0]) if rest else None
    try:
        datetime.date.fromisoformat(date if len(date) == 10 else "")
    except ValueError:
        return False
    return match is not None and match[1] <= "23" and match[2] <= "59" and match[3] <= "59"


def _check_number(value: Count, bounds: Bounds, path: str, under: str) -> Failures:
    broken = []
    if bounds.low is not None and value < bounds.low:
        broken.append(("greater", bounds.low))
    if bounds.high is not None and value > bounds.high:
        broken.append(("less", bounds.high))
    failures: Failures = []
    for word, limit in broken:
        shown = print_value(float(limit) if isinstance(value, float) else int(limit))
        detail = f"{path} in body should be {word} than or equal to {shown}"
        failures.append(FieldFailure(INVALID, _at(path, under), value, detail))
    return failures


def _check_list(items: list[Any], node: Node, path: str, old: Any, under: str) -> Failures:
    failures: Failures = []
    if node.items is not None:
        for index, (item, before) in enumerate(zip(items, old_items(old, items, node), strict=True)):
            failures += check(item, node.items, f"{path}[{index}]", before, under)
    low, high, at = node.size.low, node.size.high, _at(path, under)
    if low is not None and len(items) < low:
        failures.append(FieldFailure(INVALID, at, len(items), f"{path} in body should have at least {low} items"))
    if high is not None and len(items) > high:
        failures.append(too_many(at, len(items), int(high)))
    return failures


def _check_enum(value: Any, node: Node, at: str) -> Failures:
    if not node.enum or any(_is_enumerated(value, allowed) for allowed in node.enum):
        return []
    supported = tuple(allowed if isinstance(allowed, str) else to_json(allowed) for allowed in node.enum)
    return [unsupported(at, value, supported)]


def _is_enumerated(value: Any, allowed: Any) -> bool:
    are_numbers = {type(value), type(allowed)} <= {int, float}
    return bool(value == allowed) if are_numbers else is_same(value, allowed)


def _check_object(value: dict[str, Any], node: Node, path: str, old: Any, under: str) -> Failures:
    failures: Failures = []
    low, high, at = node.width.low, node.width.high, _at(path, under)
    if low is not None and len(value) < low:
        detail = f"{path} in body should have at least {low} properties"
        failures.append(FieldFailure(INVALID, at, len(value), detail))
    if high is not None and len(value) > high:
        failures.append(too_many(at, len(value), int(high)))
    if node.additional is not None:
        for name in [name for name in value if name not in node.properties]:
            failures += check(value[name], node.additional, f"{path}.{name}", old_entry(old, name), under)
    for name, inner in node.properties.items():
        if name in value:
            failures += check(value[name], inner, f"{path}.{name}" if path else name, old_entry(old, name), under)
    missing = (name for name in node.required if name not in value)
    return failures + [FieldFailure(REQUIRED, _at(f"{path}.{name}" if path else name, under)) for name in missing]
