"""The rules of a schema as a tree: what each says and where it reports; what cannot be judged is refused. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from skipstone_local.admission.failures import DUPLICATE, FORBIDDEN, INVALID, REQUIRED, JsonObject
from skipstone_local.admission.schemas.nodes import Node

_TEXTS = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_OLD = re.compile(r"\boldSelf\b")
_ESCAPED = re.compile(r"__[a-z]+__")
_PLAIN_PATH = re.compile(r"(\.[A-Za-z0-9_-]+)*")
_REASONS = frozenset({DUPLICATE, FORBIDDEN, INVALID, REQUIRED})


class UnsupportedRuleError(ValueError):
    """A rule uses something that this package cannot judge."""


@dataclass(frozen=True, slots=True)
class CelRule:
    """One rule. ``at`` is the path below the value at which it reports, ``title`` what errors call the rule."""

    text: str
    title: str
    message: str
    message_expression: str
    reason: str
    at: str
    uses_old: bool


@dataclass(frozen=True, slots=True)
class Ruled:
    """A schema with rules, or with rules below."""

    node: Node
    rules: tuple[CelRule, ...]
    items: Ruled | None
    additional: Ruled | None
    properties: dict[str, Ruled]

    @property
    def kind(self) -> str:
        """Return the text that failures show in place of the value."""
        return self.node.types[0] if self.node.types else ""


def collect_rules(node: Node | None) -> Ruled | None:
    """Return the part of the schema that has rules, or None; raises UnsupportedRuleError."""
    if node is None:
        return None
    inner = {name: collect_rules(child) for name, child in node.properties.items()}
    properties = {name: ruled for name, ruled in inner.items() if ruled is not None}
    items, additional = collect_rules(node.items), collect_rules(node.additional)
    rules = tuple(map(_parse_rule, node.rules))
    if not rules and not properties and items is None and additional is None:
        return None
    return Ruled(node, rules, items, additional, properties)


def all_rules(ruled: Ruled | None) -> Iterator[CelRule]:
    """Yield every rule of the tree."""
    if ruled is not None:
        yield from ruled.rules
        for child in (ruled.items, ruled.additional, *ruled.properties.values()):
            yield from all_rules(child)


def _parse_rule(entry: JsonObject) -> CelRule:
    text, at, reason = entry["rule"], entry.get("fieldPath", ""), entry.get("reason", INVALID)
    expression, title = entry.get("messageExpression", ""), (entry.get("message") or text).strip()
    _check_supported(entry, text, _TEXTS.sub("''", text + expression))
    return CelRule(
        text=text,
        title=title,
        message=title if entry.get("message") else f"failed rule: {title}",
        message_expression=expression,
        reason=reason,
        at=at,
        uses_old=bool(_OLD.search(_TEXTS.sub("''", text))),
    )


def _check_supported(entry: JsonObject, text: str, names: str) -> None:
    problem = ""
    if entry.get("optionalOldSelf"):
        problem = "has optionalOldSelf"
    elif _ESCAPED.search(names):
        problem = "uses an escaped name of a field"
    elif not _PLAIN_PATH.fullmatch(entry.get("fieldPath", "")):
        problem = f"has the fieldPath {entry['fieldPath']!r}, which is not made of names"
    elif entry.get("reason", INVALID) not in _REASONS:
        problem = f"has the reason {entry['reason']!r}"
    if problem:
        raise UnsupportedRuleError(f"the rule {text!r} {problem}, which admission does not judge")
