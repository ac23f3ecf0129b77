"""Judges an object by the rules of its schema, those that compare it with the object before an update included."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from skipstone_local.admission.failures import DUPLICATE, INVALID, Failures, FieldFailure
from skipstone_local.admission.rules.programs import EvaluationError, evaluate, is_text_valid
from skipstone_local.admission.rules.trees import CelRule, Ruled
from skipstone_local.admission.schemas.correlation import ABSENT, identity, is_same, old_entry, old_items
from skipstone_local.admission.schemas.nodes import Node

_MOST_OF_A_MESSAGE = 5 * 1024


@dataclass
class Judgement:
    """``failures`` refuse an object; ``warnings`` are failures of parts that an update does not change."""

    failures: Failures = field(default_factory=list)
    warnings: Failures = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Place:
    """A value, where it is, and its old value; ``holder`` is the nearest place around it that has an old value."""

    value: Any
    path: str
    old: Any = ABSENT
    holder: _Place | None = None

    def is_unchanged(self) -> bool:
        """Whether an update leaves the value as it was."""
        known = self if self.old is not ABSENT else self.holder
        return known is not None and is_same(known.value, known.old)

    def inner(self, value: Any, path: str, old: Any) -> _Place:
        """A place in this one."""
        return _Place(value, path, old, self if self.old is not ABSENT else self.holder)


def judge(ruled: Ruled | None, obj: Any, old: Any = ABSENT) -> Judgement:
    """Return what the rules say against ``obj``; rules with oldSelf are judged where there is an old value."""
    found = Judgement()
    if ruled is not None:
        _judge(ruled, _Place(obj, "", old), found)
    return found


def _judge(ruled: Ruled, place: _Place, found: Judgement) -> None:
    if place.value is None:
        return
    for rule in ruled.rules:
        _judge_rule(rule, ruled, place, found)
    for inner, within in _inner_places(ruled, place):
        _judge(inner, within, found)


def _inner_places(ruled: Ruled, place: _Place) -> Iterator[tuple[Ruled, _Place]]:
    value, path = place.value, place.path
    if isinstance(value, dict):
        for name, item in value.items():
            is_field = name in ruled.node.properties
            inner = ruled.properties.get(name) if is_field else ruled.additional
            if inner is not None:
                at = f"{path}[{name}]" if not is_field else f"{path}.{name}" if path else name
                yield inner, place.inner(item, at, old_entry(place.old, name))
    elif isinstance(value, list) and ruled.items is not None:
        for index, (item, old) in enumerate(zip(value, old_items(place.old, value, ruled.node), strict=True)):
            yield ruled.items, place.inner(item, f"{path}[{index}]", old)


def _judge_rule(rule: CelRule, ruled: Ruled, place: _Place, found: Judgement) -> None:
    names = {"self": place.value}
    if rule.uses_old:
        if place.old is ABSENT or place.old is None:
            return
        names["oldSelf"] = _in_order(place.old, place.value, ruled.node)
    try:
        if _holds(rule, names):
            return
    except EvaluationError as error:
        found.failures.append(FieldFailure(INVALID, place.path, ruled.kind, _of_error(error, rule)))
        return
    at = f"{place.path}{rule.at}".removeprefix(".")
    value = "" if rule.reason == DUPLICATE else _message(rule, names)
    failure = FieldFailure(rule.reason, at, ruled.kind, value)
    is_warning = not rule.uses_old and place.is_unchanged()
    (found.warnings if is_warning else found.failures).append(failure)


def _holds(rule: CelRule, names: dict[str, Any]) -> bool:
    value = names["self"]
    if isinstance(value, str) and not rule.uses_old:
        return is_text_valid(rule.text, value)
    return evaluate(rule.text, names) is True


def _of_error(error: EvaluationError, rule: CelRule) -> str:
    if str(error) == "no such overload":
        said = "call arguments did not match a supported operator, function or macro signature"
        return f"'{error}': {said} for rule: {rule.message}"
    return f"{error} evaluating rule: {rule.message}"


def _message(rule: CelRule, names: dict[str, Any]) -> str:
    if not rule.message_expression:
        return rule.message
    try:
        said = evaluate(rule.message_expression, names)
    except EvaluationError:
        return rule.message
    text = said.strip() if isinstance(said, str) else ""
    fits = text and len(text.encode()) <= _MOST_OF_A_MESSAGE and "\n" not in text
    return text if fits else rule.message


def _in_order(old: Any, value: Any, node: Node | None) -> Any:
    """Return ``old`` with the items of sets and maps in the order of ``value``, since their order means nothing."""
    if node is None:
        return old
    if isinstance(old, dict) and isinstance(value, dict):
        return {name: _in_order(item, value.get(name), node.child(name)) for name, item in old.items()}
    if not isinstance(old, list) or not isinstance(value, list):
        return old
    if node.list_type in ("set", "map"):
        places = {identity(item, node): index for index, item in reversed(list(enumerate(value)))}
        old = sorted(old, key=lambda item: places.get(identity(item, node), len(places)))
    if len(old) != len(value):
        return old
    return [_in_order(item, other, node.items) for item, other in zip(old, value, strict=True)]
