"""Objects as ``kubectl describe`` prints those of kinds that it does not know, with their Events."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from skipstone_cli.reading import JsonObject, field_of, name_of, namespace_of, number_of, text_of

from skipstone_local.client.merging import LAST_APPLIED
from skipstone_local.commands.output.columns import Columns

MINIMUM, PADDING = 0, 2
#: Of an annotation's value, on the line of its name.
LONGEST = 140
SKIPPED = frozenset(
    {"metadata.managedFields", "metadata.name", "metadata.namespace", "metadata.labels", "metadata.annotations"}
)
ACRONYMS = frozenset({"API", "URL", "UID", "OSB", "GUID"})
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^A-Za-z]+")
Line = list[str]


def description_lines(obj: JsonObject, events: Sequence[JsonObject], now: datetime) -> list[str]:
    """The lines about an object."""
    lines = [["Name:", name_of(obj)], ["Namespace:", namespace_of(obj)]]
    lines += _labels(_mapping(obj, "metadata", "labels"))
    lines += _annotations(_mapping(obj, "metadata", "annotations"))
    lines += _fields(obj, 0, "")
    lines += list(_events(events, now))
    return Columns(MINIMUM, PADDING).set(lines)


def _mapping(obj: JsonObject, *path: str) -> dict[str, str]:
    mapping = field_of(obj, *path)
    return {name: str(mapping[name]) for name in sorted(mapping)} if isinstance(mapping, dict) else {}


def _labels(labels: Mapping[str, str]) -> list[Line]:
    texts = [f"{name}={value}" for name, value in labels.items()] or ["<none>"]
    return [["" if place else "Labels:", text] for place, text in enumerate(texts)]


def _annotations(annotations: Mapping[str, str]) -> list[Line]:
    texts: list[str] = []
    for name, value in annotations.items():
        if name == LAST_APPLIED:
            continue
        value = value.removesuffix("\n")
        if len(value) + len(name) + 2 > LONGEST or "\n" in value:
            texts += [f"{name}:", *(f"  {_shortened(line)}" for line in value.split("\n"))]
        else:
            texts.append(f"{name}: {value}")
    return [["" if place else "Annotations:", text] for place, text in enumerate(texts or ["<none>"])]


def _shortened(line: str) -> str:
    return line if len(line) <= LONGEST - 2 else f"{line[: LONGEST - 2]}..."


def _fields(content: Mapping[str, object], level: int, path: str) -> list[Line]:
    lines: list[Line] = []
    for name in sorted(content):
        value, inner = content[name], f"{path}.{name}".removeprefix(".")
        if inner in SKIPPED:
            continue
        label = f"{'  ' * level}{label_of(name)}:"
        if isinstance(value, dict):
            lines += [[label], *_fields(value, level + 1, inner)]
        elif isinstance(value, list):
            lines.append([label])
            for item in value:
                lines += (
                    _fields(item, level + 1, inner) if isinstance(item, dict) else [["  " * (level + 1) + _go(item)]]
                )
        else:
            lines.append([label, _go(value)])
    return lines


def label_of(name: str) -> str:
    """A field's name in words, such as ``Observed Generation``."""
    if not all(character.isalpha() or character == "-" for character in name):
        return name
    words = [word for word in _WORDS.findall(name) if word != "_"]
    return " ".join(word.upper() if word.upper() in ACRONYMS else word[:1].upper() + word[1:] for word in words)


def _go(value: object) -> str:
    """A value as Go prints it."""
    if value is None:
        return "<nil>"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _events(events: Sequence[JsonObject], now: datetime) -> Iterator[Line]:
    if not events:
        yield ["Events:", "<none>"]
        return
    yield ["Events:"]
    yield ["  Type", "Reason", "Age", "From", "Message"]
    yield ["  ----", "------", "----", "----", "-------"]
    for event in sorted(events, key=lambda event: text_of(event, "lastTimestamp")):
        source = text_of(event, "source", "component") or text_of(event, "reportingComponent")
        message = " ".join(text_of(event, "message").split("\n")).strip()
        yield [f"  {text_of(event, 'type')}", text_of(event, "reason"), _interval(event, now), source, message]


def _interval(event: JsonObject, now: datetime) -> str:
    first = _age(text_of(event, "eventTime") or text_of(event, "firstTimestamp"), now)
    if isinstance(event.get("series"), dict):
        latest = _age(text_of(event, "series", "lastObservedTime"), now)
        return f"{latest} (x{number_of(event, 'series', 'count') or 0} over {first})"
    if (count := number_of(event, "count") or 0) > 1:
        return f"{_age(text_of(event, 'lastTimestamp'), now)} (x{count} over {first})"
    return first


def _age(time: str, now: datetime) -> str:
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        return "<unknown>"
    return human_duration(int((now - moment.replace(tzinfo=moment.tzinfo or UTC)).total_seconds()))


#: Up to so many seconds, in which units: the larger one, and the smaller one beside it (0: none).
_SCALES = (
    (2 * 60, "s", 1, "", 0),
    (10 * 60, "m", 60, "s", 1),
    (3 * 3600, "m", 60, "", 0),
    (8 * 3600, "h", 3600, "m", 60),
    (48 * 3600, "h", 3600, "", 0),
    (8 * 86400, "d", 86400, "h", 3600),
    (2 * 365 * 86400, "d", 86400, "", 0),
    (8 * 365 * 86400, "y", 365 * 86400, "d", 86400),
)


def human_duration(seconds: int) -> str:
    """A time in the two largest units that say something, as kubectl writes it."""
    if seconds < 0:
        return "<invalid>" if seconds < -1 else "0s"
    for below, unit, size, smaller, part in _SCALES:
        if seconds < below:
            rest = seconds % size // part if part else 0
            return f"{seconds // size}{unit}" + (f"{rest}{smaller}" if rest else "")
    return f"{seconds // (365 * 86400)}y"
