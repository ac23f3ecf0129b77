"""What a field says about itself besides its type: its text, its bounds and its rules.

Used inside ``Annotated[...]`` by the kinds and read by ``publishing``.
Must not know any kind: only OpenAPI and CEL words live here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule, twice: in CEL for the API server and as ``holds`` for the operator, over the typed value.

    ``message`` is a sentence that names the field and the way out. Rules over old and new value have no ``holds``;
    rules that CEL cannot afford have no ``rule``.

    ``field_path`` (such as ``.columns``) is relative to the object that carries the rule.
    ``message_expression`` is CEL that computes a better message; ``message`` stays the fallback.
    """

    rule: str = ""
    holds: Callable[[Any], bool] | None = None
    message: str
    field_path: str = ""
    message_expression: str = ""


@dataclass(frozen=True)
class Doc:
    """Description and bounds of one field. ``item`` describes list items or map values.

    ``schema`` replaces the generated schema (the text is still added); ``rules`` sit on the field itself.
    ``list_key`` makes a list of objects a list-map. ``help`` is the sentence that refuses what
    ``pattern`` does not fit.
    """

    text: str
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    help: str | None = None
    minimum: int | None = None
    maximum: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    max_properties: int | None = None
    format: str | None = None
    list_key: str | None = None
    item: Doc | None = None
    rules: tuple[Rule, ...] = ()
    schema: Mapping[str, Any] = field(default_factory=dict)


def pattern_rule(pattern: str, message: str) -> Rule:
    """A rule for a string: it fits ``pattern``, or ``message`` is shown in place of the pattern."""
    holds = re.compile(pattern).fullmatch
    return Rule(rule=f"self.matches(r'{pattern}')", holds=lambda text: holds(text) is not None, message=message)


def allowed_keys(field_name: str, names: Sequence[str], *, prefixes: Sequence[str] = (), hint: str = "") -> Rule:
    """A rule for a map: only ``names`` and keys that begin with one of ``prefixes`` may occur."""
    known = " || ".join((f"k in {list(names)}", *(f"k.startsWith('{prefix}')" for prefix in prefixes)))
    rest = hint or f"it accepts {', '.join(names)}"
    return Rule(
        rule=f"self.all(k, {known})",
        holds=lambda keys: all(key in names or key.startswith(tuple(prefixes)) for key in keys),
        message=f"{field_name} has a key that is not allowed: {rest}",
        message_expression=f'"{field_name} does not accept \'" + self.filter(k, !({known}))[0] + "\': {rest}"',
    )


def distinct(field_name: str) -> Rule:
    """A rule for a list of strings: no item occurs twice."""
    return Rule(
        rule="self.all(k, self.exists_one(o, o == k))",
        holds=lambda names: len(set(names)) == len(names),
        message=f"{field_name} names a column twice: name each column once",
    )


def time_text(text: str) -> Doc:
    """A point in time as RFC 3339 text in UTC."""
    return Doc(text, format="date-time")


def name_text(text: str, *, max_length: int = 255) -> Doc:
    """A name that may not be empty."""
    return Doc(text, min_length=1, max_length=max_length)


def frozen_required(field_name: str) -> Rule:
    """A rule for the parent: required ``field_name`` never changes after creation."""
    return Rule(
        rule=f"self.{field_name} == oldSelf.{field_name}",
        message=f"{field_name} cannot be changed after creation: create another resource instead",
        field_path=f".{field_name}",
    )


def frozen_optional(field_name: str) -> Rule:
    """A rule for the parent: optional ``field_name`` is never added, changed or removed after creation."""
    return Rule(
        rule=(
            f"has(self.{field_name}) == has(oldSelf.{field_name}) && "
            f"(!has(self.{field_name}) || self.{field_name} == oldSelf.{field_name})"
        ),
        message=f"{field_name} cannot be added, changed or removed after creation: create another resource instead",
        field_path=f".{field_name}",
    )
