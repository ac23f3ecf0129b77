"""Judges an object by the rules of its schema, those that compare it with the object before an update included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from skipstone_local.admission.failures import DUPLICATE, INVALID, Failures, FieldFailure
from skipstone_local.admission.rules.fractions import SENTENCE, has_fraction, stand_ins
from skipstone_local.admission.rules.programs import EvaluationError, bind, evaluate, is_text_valid
from skipstone_local.admission.rules.trees import CelRule, Ruled
from skipstone_local.admission.schemas.correlation import ABSENT, identity, is_same, old_entry, old_items
from skipstone_local.admission.schemas.nodes import Node

_MOST_OF_A_MESSAGE = 5 * 1024


@dataclass
class Judgement:
    """``failures`` refuse an object; ``warnings`` are failures of parts that an update does not change."""

    failures: Failures = field(default_factory=list)
    warnings: Failures = field(default_factory=list)
    has_fractions: bool = False


@dataclass(frozen=True, slots=True)
class _Place:
    """A value, where it is, and its old value; ``holder`` is the nearest place around it that has an old value."""

    value: Any
    path: str
    old: Any = ABSENT
    holder: _Place | None = None

    def is_unchanged(self) -> bool:
        """Return whether an update leaves the value as it was."""
        known = self if self.old is not ABSENT else self.holder
        return known is not None and is_same(known.value, known.old)

    def inner(self, value: Any, path: str, old: Any) -> _Place:
        """A place in this one."""
        return _Place(value, path, old, self if self.old is not ABSENT else self.holder)


def judge(ruled: Ruled | None, obj: Any, old: Any = ABSENT) -> Judgement:
    """Return what the rules say against ``obj``; rules with oldSelf are judged where there is an old value."""
    judgement = Judgement()
    if ruled is not None:
        judgement.has_fractions = has_fraction(obj, ruled.node)
        _judge(ruled, _Place(obj, "", old), judgement)
    return judgement


def _judge(ruled: Ruled, place: _Place, judgement: Judgement) -> None:
    if place.value is None:
        return
    if ruled.rules:
        _judge_rules(ruled, place, judgement)
    for inner, within in _inner_places(ruled, place):
        _judge(inner, within, judgement)


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


def _judge_rules(ruled: Ruled, place: _Place, judgement: Judgement) -> None:
    value, names = place.value, {"self": place.value}
    has_old = place.old is not ABSENT and place.old is not None
    if has_old and any(rule.uses_old for rule in ruled.rules):
        names["oldSelf"] = _in_order(place.old, value, ruled.node)
    outcome = _judge_of(names, ruled.node if judgement.has_fractions else None)
    for rule in ruled.rules:
        if has_old or not rule.uses_old:
            try:
                if not outcome(rule.text):
                    _report(rule, ruled, place, names, judgement)
            except EvaluationError as error:
                judgement.failures.append(FieldFailure(INVALID, place.path, ruled.kind, _of_error(error, rule)))


def _judge_of(names: dict[str, Any], node: Node | None) -> Callable[[str], bool]:
    """Return what says whether a rule holds for a value, or raises EvaluationError; ``node``: look for fractions."""
    value = names["self"]
    if isinstance(value, str) and len(names) == 1:
        return lambda text: is_text_valid(text, value)
    if node is not None and has_fraction(value, node):
        several = [bind({**names, "self": other}) for other in stand_ins(value, node)]
        return lambda text: _agreed(text, several)
    bound = bind(names)
    return lambda text: evaluate(text, bound) is True


def _agreed(text: str, several: list[Any]) -> bool:
    """Return what a rule says whatever is in the place of a fraction."""
    try:
        outcomes = {evaluate(text, bound) is True for bound in several}
    except EvaluationError:
        outcomes = set()
    if len(outcomes) != 1:
        raise EvaluationError(SENTENCE)
    return outcomes.pop()


def _report(rule: CelRule, ruled: Ruled, place: _Place, names: dict[str, Any], judgement: Judgement) -> None:
    at = f"{place.path}{rule.at}".removeprefix(".")
    detail = "" if rule.reason == DUPLICATE else _message(rule, names)
    is_warning = not rule.uses_old and place.is_unchanged()
    (judgement.warnings if is_warning else judgement.failures).append(FieldFailure(rule.reason, at, ruled.kind, detail))


def _of_error(error: EvaluationError, rule: CelRule) -> str:
    if str(error) == "no such overload":
        cause = "call arguments did not match a supported operator, function or macro signature"
        return f"'{error}': {cause} for rule: {rule.title}"
    return f"{error} evaluating rule: {rule.title}"


def _message(rule: CelRule, names: dict[str, Any]) -> str:
    if not rule.message_expression:
        return rule.message
    try:
        result = evaluate(rule.message_expression, bind(names))
    except EvaluationError:
        return rule.message
    text = result.strip() if isinstance(result, str) else ""
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
