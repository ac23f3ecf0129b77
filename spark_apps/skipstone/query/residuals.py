"""What clients of planned scans may skip row groups by: their own filter, as wide as SQL means it.

Used by ``scans``. Iceberg's readers order floats totally: they pass by NaN where a file says nothing of it, and tell
-0.0 from 0.0. Some readers filter rows by nothing else, so every part stays that can stay. Must not drop files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from skipstone_core.errors import BadSpec
from skipstone_core.language.icebergjson import FilterColumns
from skipstone_core.reasons import Reason

Json = Any
#: In this header clients tell their name and version.
CLIENT_HEADER = "x-client-version"
_PAIRS = (
    ("eq", "not-eq"),
    ("lt", "gt-eq"),
    ("gt", "lt-eq"),
    ("in", "not-in"),
    ("starts-with", "not-starts-with"),
    ("is-null", "not-null"),
    ("is-nan", "not-nan"),
)
_NEGATED = {**dict(_PAIRS), **{right: left for left, right in _PAIRS}}
_FLOATS = frozenset({"float", "double"})
_ZEROS = [0.0, -0.0]
#: The greatest finite value of each type of floats: JSON has no infinity, and Java does not read the text it writes.
_GREATEST = {"float": 3.4028234663852886e38, "double": 1.7976931348623157e308}
#: The last character that is one unit of UTF-16, and the integers that no usual width truncates to less than the least.
_LAST_OF_ONE_UNIT = 0xFFFF
_LEAST_TRUNCATED = {"int": -(2**30), "long": -(2**62)}
#: A residual is told with every file: of one of more bytes only those get all who filter by nothing else.
_MOST_BYTES = 16 * 1024


class Client(Enum):
    """The client, by its name and by the fields that it always sends. A client without a name is not trusted."""

    SPARK = "Iceberg's Java library in Spark, which filters all rows by itself"
    JAVA = "Iceberg's Java library elsewhere: its own reader filters rows by residuals alone"
    PYICEBERG = "PyIceberg, which filters all rows by itself, and counts all of a file whose residual is true"
    OTHER = "nobody knows: it may filter rows by residuals alone, and read fewer forms of them than Java"

    @staticmethod
    def of(version: str, *, case_sensitive: bool, use_snapshot_schema: bool) -> Client:
        """The client of a request. ``version``: how it calls itself in the header CLIENT_HEADER."""
        if version.startswith("PyIceberg"):
            return Client.PYICEBERG
        if not version.startswith("Apache Iceberg"):
            return Client.OTHER
        return Client.SPARK if use_snapshot_schema and not case_sensitive else Client.JAVA


def reads_null(version: str) -> bool:
    """Return whether a client takes null for a partition value. PyIceberg refuses it, and needs no partition values."""
    return not version.startswith("PyIceberg")


def trusts_lists(version: str) -> bool:
    """Return whether a client counts rows of a partition by the list of files, and takes values of columns from it.

    PyIceberg filters all rows.
    """
    return not version.startswith("PyIceberg")


@dataclass(frozen=True)
class ResidualRules:
    """How residuals are read by the client that asks.

    ``newest``: names of the table's newest schema, by which Java binds residuals of files with partitions, as well as
    by the names that it reads; None: no file has partitions. ``client``: who asks.
    """

    columns: FilterColumns
    newest: Mapping[str, int] | None
    case_sensitive: bool
    client: Client


def residual_of(filter_json: Json, rules: ResidualRules) -> Json:
    """The expression for tasks, for a filter that ``read_filter`` took and that is not true for every row.

    Raises BadSpec when a client that filters by nothing else would get too many rows.
    """
    expression = _Rewriting(rules).rewritten(filter_json, is_negated=False)
    filters_again = rules.client in (Client.SPARK, Client.PYICEBERG)
    if expression is not None and (not filters_again or len(json.dumps(expression)) <= _MOST_BYTES):
        return expression
    if rules.client is Client.SPARK:
        return True
    if expression is not None:
        return _always_true(expression)
    raise BadSpec(
        Reason.INVALID_SPEC,
        "it names columns that have another name in the newest schema, by which this client cannot judge files with "
        "partitions; let the client plan this read (scan-planning-mode client)",
        field="filter",
    )


class _Rewriting:
    def __init__(self, rules: ResidualRules) -> None:
        self._rules = rules
        schemas = rules.columns.schemas
        self._schemas = [self._folded(schema) for schema in schemas]
        self._newest = None if rules.newest is None else self._folded(rules.newest)

    def rewritten(self, node: Json, *, is_negated: bool) -> Json | None:
        """``node``, negations moved into its tests; None for what cannot be said."""
        if isinstance(node, bool):
            return node is not is_negated
        match kind := _kind(node):
            case "literal":
                return node["value"] is not is_negated
            case "true" | "false":
                return (kind == "true") is not is_negated
            case "not":
                return self.rewritten(node["child"], is_negated=not is_negated)
            case "and" | "or":
                joined = kind if not is_negated else "or" if kind == "and" else "and"
                return self._joined(joined, [self.rewritten(part, is_negated=is_negated) for part in _chain(node)])
            case _:
                return self._tested(node, kind, is_negated=is_negated)

    def _joined(self, kind: str, parts: Sequence[Json | None]) -> Json | None:
        known = [part for part in parts if part is not None]
        if not known or (kind == "or" and len(known) < len(parts)):
            return None
        return _balanced(kind, known)

    def _tested(self, node: Json, kind: str, *, is_negated: bool) -> Json | None:
        name = _name(node.get("term"))
        if "term" not in node or not self._is_bound(name):  # forms that no client reads yet have other names for it
            return None
        if kind not in _NEGATED:
            return {"type": "not", "child": node} if is_negated else node
        test = {**node, "type": _NEGATED[kind] if is_negated else kind}
        if isinstance(node["term"], dict) and _kind(node["term"]) == "transform":
            return test
        type_name = self._type_of(name)
        if self._newest is not None and self._rules.client is Client.SPARK and _is_misjudged(test, type_name):
            return None
        return self._widened(test, type_name)

    def _widened(self, test: Json, type_name: str) -> Json:
        if type_name in _FLOATS:
            return _wide_float(test) if _is_finite(test) else _without_infinity(test, _GREATEST[type_name])
        if type_name == "uuid" and self._rules.client in (Client.SPARK, Client.JAVA) and "null" not in test["type"]:
            # Java orders UUIDs as signed numbers: by a transform it judges rows, not row groups
            return {**test, "term": {"type": "transform", "transform": "identity", "term": _name(test["term"])}}
        return test

    def _is_bound(self, name: str) -> bool:
        """Return whether the name means one column in all schemas that Java may bind it in; others bind it once."""
        if self._newest is None or self._rules.client is Client.PYICEBERG:
            return True
        key = self._key(name)
        columns = {schema[key] for schema in self._schemas if key in schema}
        return columns == {self._newest.get(key)}

    def _type_of(self, name: str) -> str:
        key = self._key(name)
        numbers = [schema[key] for schema in self._schemas if key in schema]
        types = {self._rules.columns.types.get(number, "") for number in numbers}
        return next(iter(types & _FLOATS), next(iter(types), ""))

    def _key(self, name: str) -> str:
        return name if self._rules.case_sensitive else name.lower()

    def _folded(self, schema: Mapping[str, int]) -> Mapping[str, int]:
        return {self._key(name): number for name, number in schema.items()}


def _is_misjudged(test: Json, type_name: str) -> bool:
    """Return whether Java may misjudge a truncated partition: it counts prefixes in UTF-16, and integers overflow."""
    if test["type"] in ("starts-with", "not-starts-with"):
        return any(ord(letter) > _LAST_OF_ONE_UNIT for letter in str(_value(test.get("value"))))
    least = _LEAST_TRUNCATED.get(type_name)
    values = (test.get("value"), *_listed(test))
    return least is not None and any(isinstance(plain := _value(each), int) and plain < least for each in values)


def _value(literal: Json) -> Json:
    return literal.get("value") if isinstance(literal, dict) else literal


def _always_true(residual: Json) -> Json:
    """Return an expression that every row passes and is not a literal: it names a column of the filter."""
    leaf = residual
    while "left" in leaf:
        leaf = leaf["left"]
    name = _name(leaf.get("term"))
    return {"type": "or", "left": {"type": "is-null", "term": name}, "right": {"type": "not-null", "term": name}}


def _wide_float(test: Json) -> Json:
    """A test of floats that is true for NaN and for both zeros wherever SQL's is."""
    match kind := test["type"]:
        case "gt":
            return {"type": "or", "left": test, "right": {"type": "is-nan", "term": test["term"]}}
        case "gt-eq":
            least = {**test, "value": -0.0} if _is_zero(test.get("value")) else test
            return {"type": "or", "left": least, "right": {"type": "is-nan", "term": test["term"]}}
        case "lt-eq" if _is_zero(test.get("value")):
            return {**test, "value": 0.0}
        case "eq" if _is_zero(test.get("value")):
            return {"type": "in", "term": test["term"], "values": _ZEROS}
        case "in" if any(_is_zero(value) for value in _listed(test)):
            return {**test, "values": [*(value for value in _listed(test) if not _is_zero(value)), *_ZEROS]}
        case _:
            return {**test, "type": kind}


def _is_finite(test: Json) -> bool:
    return not any(_sign(value) for value in (test.get("value"), *_listed(test)))


def _sign(value: Json) -> int:
    """Of an infinite value; 0 for others."""
    if isinstance(value, dict):
        return _sign(value.get("value"))
    return {"Infinity": 1, "-Infinity": -1}.get(value, 0) if isinstance(value, str) else 0


def _without_infinity(test: Json, greatest: float) -> Json:
    """A test against an infinite value as tests against the greatest finite one."""
    kind, term = test["type"], test["term"]
    if kind in ("in", "not-in"):
        finite = [value for value in _listed(test) if not _sign(value)]
        each, joined = ("eq", "or") if kind == "in" else ("not-eq", "and")
        signs = {_sign(value) for value in _listed(test)} - {0}
        parts = [_beside_infinity(each, term, sign * greatest) for sign in sorted(signs)]
        return _balanced(joined, [*parts, *([_wide_float({**test, "values": finite})] if finite else [])])
    return _beside_infinity(kind, term, _sign(test.get("value")) * greatest)


def _beside_infinity(kind: str, term: Json, most: float) -> Json:
    """``kind`` of test against the infinity of the sign of ``most``, exact for NaN as SQL orders it, and for null."""
    beyond = {"type": "gt" if most > 0 else "lt", "term": term, "value": most}
    within = {"type": "lt-eq" if most > 0 else "gt-eq", "term": term, "value": most}
    is_nan, not_nan, is_null, not_null = (
        {"type": name, "term": term} for name in ("is-nan", "not-nan", "is-null", "not-null")
    )
    equal = _balanced("and", [beyond, not_nan])
    tests: dict[tuple[str, bool], Json] = {
        ("lt", True): within,
        ("lt-eq", True): _balanced("and", [not_null, not_nan]),
        ("gt", True): is_nan,
        ("gt-eq", True): _balanced("or", [beyond, is_nan]),
        ("lt", False): False,
        ("lt-eq", False): equal,
        ("gt", False): _balanced("or", [within, is_nan]),
        ("gt-eq", False): not_null,
    }
    if kind == "eq":
        return equal
    if kind == "not-eq":
        return _balanced("or", [within, is_nan, is_null])
    return tests.get((kind, most > 0), {"type": kind, "term": term})


def _listed(test: Json) -> Sequence[Json]:
    values = test.get("values")
    return values["values"] if isinstance(values, dict) else values or ()


def _is_zero(value: Json) -> bool:
    if isinstance(value, dict):
        return _is_zero(value.get("value"))
    return isinstance(value, int | float) and value == 0


def _kind(node: Mapping[str, Any]) -> str:
    return str(node["type"]).lower().replace("_", "-")


def _name(term: Json) -> str:
    if isinstance(term, dict):
        return _name(term.get("term", term.get("name")))
    return term if isinstance(term, str) else ""


def _chain(node: Json) -> list[Json]:
    """The parts of a tree of pairs of one kind, from left to right."""
    kind, parts, waiting = _kind(node), [], [node]
    while waiting:
        current = waiting.pop()
        if isinstance(current, dict) and _kind(current) == kind:
            waiting += [current["right"], current["left"]]
        else:
            parts.append(current)
    return parts


def _balanced(kind: str, parts: Sequence[Json]) -> Json:
    """Pairs nested as little as can be: readers recurse."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return {"type": kind, "left": _balanced(kind, parts[:middle]), "right": _balanced(kind, parts[middle:])}
