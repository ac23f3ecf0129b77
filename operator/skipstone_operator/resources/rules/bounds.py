"""What is wrong with a typed value, by the Docs and Rules of its type.

Called by ``resources.checks``: the operator re-validates what the API server should have refused. Pure.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

from skipstone_core.codec import camel

from skipstone_operator.resources.rules.markers import Doc, Rule


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One field that cannot be used as written. ``field`` is its path, such as ``spec.columns[1].type``."""

    field: str
    message: str


def find_violations(value: Any, path: str) -> Iterator[Violation]:
    """Everything that is wrong with ``value`` (a dataclass of this room) and below, innermost first."""
    kind: type = type(value)
    for name, doc in _docs(kind):
        inner = getattr(value, name)
        if inner is not None:
            yield from _field_violations(inner, doc, f"{path}.{camel(name)}")
    yield from _broken_rules(value, getattr(kind, "RULES", ()), path)


@lru_cache(maxsize=64)
def _docs(kind: type) -> tuple[tuple[str, Doc], ...]:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = ((field.name, hints[field.name]) for field in dataclasses.fields(kind))
    return tuple((name, typing.get_args(hint)[1]) for name, hint in fields if typing.get_origin(hint) is Annotated)


def _field_violations(value: Any, doc: Doc, path: str) -> Iterator[Violation]:
    if dataclasses.is_dataclass(value):
        yield from find_violations(value, path)
        return
    yield from (Violation(field=path, message=message) for message in _unfit(value, doc))
    yield from _broken_rules(value, doc.rules, path)
    if doc.item is None:
        return
    for place, item in _items(value, path):
        yield from _field_violations(item, doc.item, place)


def _broken_rules(value: Any, rules: tuple[Rule, ...], path: str) -> Iterator[Violation]:
    for rule in rules:
        if rule.holds is not None and not rule.holds(value):
            yield Violation(field=path + rule.field_path, message=rule.message)


def _items(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f"{path}[{key}]", item) for key, item in value.items())
    elif isinstance(value, tuple):
        yield from ((f"{path}[{position}]", item) for position, item in enumerate(value))


def _unfit(value: Any, doc: Doc) -> Iterator[str]:
    if isinstance(value, str):
        yield from _unfit_text(value, doc)
    elif isinstance(value, int):
        yield from _outside(value, doc.minimum, doc.maximum, "the value must be")
    elif isinstance(value, Mapping):
        yield from _outside(len(value), None, doc.max_properties, "the number of entries must be")
    elif isinstance(value, tuple):
        yield from _outside(len(value), doc.min_items, doc.max_items, "the number of items must be")
        yield from _repeated(value, doc.list_key)


def _unfit_text(value: str, doc: Doc) -> Iterator[str]:
    yield from _outside(len(value), doc.min_length, doc.max_length, "the number of characters must be")
    if doc.pattern and not re.fullmatch(doc.pattern, value):
        yield doc.help or f"the value must match {doc.pattern}"


def _outside(number: int, low: int | None, high: int | None, what: str) -> Iterator[str]:
    if low is not None and number < low:
        yield f"{what} at least {low}, it is {number}"
    if high is not None and number > high:
        yield f"{what} at most {high}, it is {number}"


def _repeated(items: tuple[Any, ...], key: str | None) -> Iterator[str]:
    names = [getattr(item, key) for item in items] if key else []
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        yield f"{twice[0]!r} is listed twice: list each {key} once"
