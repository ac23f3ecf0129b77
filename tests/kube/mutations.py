"""Valid manifests with random changes: fields dropped, retyped, added and replaced, at any depth."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st
from skipstone_local.admission import load_definitions

from tests.kube.schedule_cases import ACCEPTED, REJECTED

JsonObject = dict[str, Any]
Item = TypeVar("Item")
Holder = dict[str, Any] | list[Any]
SCHEMAS: dict[str, JsonObject] = {
    definition["spec"]["names"]["kind"]: definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for definition in load_definitions()
}
TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["", "a", "A_b", "..", "true", "1", "x" * 300, "<&>", "\u2028\x7f\x00", "2026-01-02T03:04:05Z"]),
)
NUMBERS = st.one_of(
    st.integers(-3, 40),
    st.sampled_from([2**31, 2**63 - 1, 2**63, -(2**63) - 1, 1e21, 1e20, 123456789.5, 1.5e-7, 1.0, 0.0, 0.5]),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda number: number or 0.0),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
VALUES = st.one_of(
    SCALARS, st.lists(SCALARS, max_size=2), st.dictionaries(st.sampled_from(["name", "a", "type"]), SCALARS, max_size=2)
)


def _places(value: Any) -> Iterator[tuple[Holder, str | int]]:
    """Every place of a value in ``value``: what holds it, and its name or number there."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for place, item in inner:
        yield value, place
        yield from _places(item)


def _seen_values() -> dict[str, list[Any]]:
    """For each name of a field, the values that the cases give it."""
    found: dict[str, list[Any]] = {}
    for case in (*ACCEPTED, *REJECTED):
        for holder, place in _places(case.changed):
            if isinstance(holder, dict) and isinstance(place, str):
                values = found.setdefault(place, [])
                if len(values) < 40:
                    values.append(holder[place])
    return found


SEEN = _seen_values()


def _fields(schema: JsonObject) -> list[str]:
    """The names of all fields at ``schema`` and below."""
    names = list(schema.get("properties", {}))
    below = [schema[word] for word in ("items", "additionalProperties") if word in schema]
    for inner in (*schema.get("properties", {}).values(), *below):
        names += _fields(inner)
    return sorted(set(names))


FIELDS = {kind: _fields(schema) for kind, schema in SCHEMAS.items()}


def _known_fields(schema: JsonObject, value: Any, found: list[tuple[JsonObject, str]]) -> None:
    """Collect every object in ``value`` with each field that its schema knows and it lacks."""
    if isinstance(value, dict):
        for name, inner in schema.get("properties", {}).items():
            if name in value:
                _known_fields(inner, value[name], found)
            else:
                found.append((value, name))
        extra = schema.get("additionalProperties")
        for item in value.values() if isinstance(extra, dict) else ():
            _known_fields(extra, item, found)
    elif isinstance(value, list):
        for item in value:
            _known_fields(schema.get("items", {}), item, found)


def _one_of(draw: st.DrawFn, items: Sequence[Item]) -> Item:
    """One of the items, by its place: hypothesis would write all of them into its notes."""
    return items[draw(st.integers(0, len(items) - 1))]


def _value_for(draw: st.DrawFn, name: str | int) -> Any:
    if isinstance(name, str) and name in SEEN and draw(st.integers(0, 3)):
        return copy.deepcopy(_one_of(draw, SEEN[name]))
    return draw(VALUES)


def _change(draw: st.DrawFn, spec: JsonObject, schema: JsonObject, kind: str) -> None:
    holder, place = _one_of(draw, list(_places(spec)) or [(spec, "")])
    action = draw(st.sampled_from(["replace", "replace", "drop", "add", "add", "add-any", "repeat", "turn"]))
    if action == "add":
        lacking: list[tuple[JsonObject, str]] = []
        _known_fields(schema, spec, lacking)
        if lacking:
            taker, name = _one_of(draw, lacking)
            taker[name] = _value_for(draw, name)
    elif action == "add-any" and isinstance(holder, dict):
        name = _one_of(draw, [*FIELDS[kind], "nobody-knows"])
        holder[name] = _value_for(draw, name)
    elif action == "repeat" and isinstance(holder, list):
        holder.append(copy.deepcopy(_one_of(draw, holder)))
    elif action == "turn" and isinstance(holder, list):
        holder.reverse()
    elif action == "drop" and place != "":
        del holder[place]  # type: ignore[arg-type]
    else:
        holder[place] = _value_for(draw, place)  # type: ignore[index]


@st.composite
def changed_parts(draw: st.DrawFn, kind: str, part: str, value: JsonObject) -> JsonObject:
    """The spec or the status of an object of ``kind`` with one to four changes."""
    result = copy.deepcopy(value)
    schema = SCHEMAS[kind]["properties"][part]
    for _ in range(draw(st.integers(1, 4))):
        _change(draw, result, schema, kind)
    return result


BASES = {case.name: case for case in ACCEPTED if len(str(case.changed)) < 3000}
