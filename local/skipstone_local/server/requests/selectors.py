"""Label and field selectors: parsed as Kubernetes parses them, and asked of objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from skipstone_local.server.answers.refusals import bad_request
from skipstone_local.store import JsonObject

#: Fields by which objects of every kind are selected.
ALWAYS_SELECTABLE = ("metadata.name", "metadata.namespace")
TOKEN = re.compile(r"\s*(?P<token>[(),]|==|!=|=|!|>|<|[^\s(),=!<>]+)")
LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
FIELD_TERM = re.compile(r"(?P<path>[^=!]+?)(?P<operator>==|!=|=)(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True)
class Requirement:
    """One condition on a label. ``values`` are those of In, NotIn, Gt and Lt."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet it."""
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values
            case "exists":
                return value is not None
            case "!":
                return value is None
        return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        (bound,) = self.values
        if value is None or not re.fullmatch(r"[+-]?\d+", value):
            return False
        return int(value) > int(bound) if self.operator == ">" else int(value) < int(bound)


@dataclass(frozen=True)
class FieldTerm:
    """One condition on a field."""

    path: str
    value: str
    equal: bool

    def matches(self, obj: JsonObject) -> bool:
        """Return whether an object meets it; a field that is missing is empty."""
        return (field_text(obj, self.path) == self.value) is self.equal


@dataclass(frozen=True)
class SelectedBy:
    """A selection of a collection."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[FieldTerm, ...] = ()

    def matches(self, obj: JsonObject) -> bool:
        """Return whether an object is selected."""
        labels = obj["metadata"].get("labels") or {}
        return all(each.matches(labels) for each in self.labels) and all(each.matches(obj) for each in self.fields)


def field_text(obj: JsonObject, path: str) -> str:
    """The field at a path as selectors compare it."""
    value: object = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def parse_fields(text: str, selectable: Collection[str]) -> tuple[FieldTerm, ...]:
    """The terms of a field selector. Raises Refusal for one that cannot be parsed or selected by."""
    terms = []
    for part in (part for part in re.split(r"(?<!\\),", text) if part):
        match = FIELD_TERM.fullmatch(part)
        if match is None:
            raise bad_request(f"invalid selector: {text!r}; can't understand {part!r}")
        if match["path"] not in selectable:
            raise bad_request(f"field label not supported: {match['path']}")
        value = re.sub(r"\\([\\,=])", r"\1", match["value"])
        terms.append(FieldTerm(match["path"], value, equal=match["operator"] != "!="))
    return tuple(terms)


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """The requirements of a label selector. Raises Refusal for one that cannot be parsed."""
    if not text.strip():
        return ()
    tokens = _Tokens(text)
    return tuple(tokens.requirements())


class _Tokens:
    """The pieces of a label selector, read from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pieces: list[str] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            match = TOKEN.match(text, at)
            if match is None:
                raise self.refusal(text[at:])
            self.pieces.append(match["token"])
            at = match.end()

    def refusal(self, what: str) -> Exception:
        return bad_request(f"unable to parse requirement: found '{what}' in the selector {self.text!r}")

    def requirements(self) -> Iterator[Requirement]:
        yield self._requirement()
        while self.pieces:
            self._expect(lambda piece: piece == ",")
            yield self._requirement()

    def _requirement(self) -> Requirement:
        if self._peek() == "!":
            self.pieces.pop(0)
            return Requirement(self._key(), "!")
        key = self._key()
        if self._peek() in ("", ","):
            return Requirement(key, "exists")
        operator = self._expect(lambda piece: piece in ("=", "==", "!=", "in", "notin", ">", "<"))
        if operator in ("in", "notin"):
            return Requirement(key, operator, self._set())
        value = self._value()
        if operator in "<>" and not re.fullmatch(r"[+-]?\d+", value):
            raise self.refusal(value)
        return Requirement(key, _SINGLE[operator], frozenset({value}))

    def _set(self) -> frozenset[str]:
        self._expect(lambda piece: piece == "(")
        values = {self._value()}
        while self._peek() == ",":
            self.pieces.pop(0)
            values.add(self._value())
        self._expect(lambda piece: piece == ")")
        return frozenset(values)

    def _key(self) -> str:
        return self._expect(lambda piece: LABEL_KEY.fullmatch(piece) is not None)

    def _value(self) -> str:
        if self._peek() in ("", ",", ")"):
            return ""
        return self._expect(lambda piece: LABEL_VALUE.fullmatch(piece) is not None)

    def _peek(self) -> str:
        return self.pieces[0] if self.pieces else ""

    def _expect(self, fits: Callable[[str], bool]) -> str:
        piece = self._peek()
        if not fits(piece) or not piece:
            raise self.refusal(piece)
        return self.pieces.pop(0)


_SINGLE = {"=": "in", "==": "in", "!=": "notin", ">": ">", "<": "<"}
