"""Whether what is seen is what was expected, and if not, both in one sentence. Pure."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from skipstone_cli.kinds import ResourceKind
from skipstone_cli.reading import JsonObject, field_of
from skipstone_cli.views.standings import judge

from skipstone_local.testing.pairing import pair_up

MAX_SHOWN = 3


def judge_object(kind: ResourceKind, obj: JsonObject | None, wanted: Mapping[str, Any]) -> list[str]:
    """Return the differences of an object from its expectation: state, reason, part of a message, fields of status."""
    if obj is None:
        return ["it does not exist"]
    standing = judge(kind, obj)
    wrong = []
    for name, seen in (("state", str(standing.state)), ("reason", standing.reason)):
        if name in wanted and wanted[name] != seen:
            wrong.append(f"{name} is {seen}, not {wanted[name]} ({standing.message})")
    if "message" in wanted and str(wanted["message"]) not in standing.message:
        wrong.append(f"the message is {standing.message!r}, without {wanted['message']!r}")
    for path, value in (wanted.get("status") or {}).items():
        seen_value = field_of(obj, "status", *str(path).split("."))
        if not is_equal(value, seen_value):
            wrong.append(f"status.{path} is {seen_value!r}, not {value!r}")
    return wrong


def judge_rows(rows: Sequence[Mapping[str, Any]], wanted: Mapping[str, Any]) -> list[str]:
    """Return the differences of a table's rows from their expectation: their number, or the rows in any order."""
    wrong = []
    if "count" in wanted and wanted["count"] != len(rows):
        wrong.append(f"there are {len(rows)} rows, not {wanted['count']}")
    if "rows" in wanted:
        wrong += list(_compare(list(rows), list(wanted["rows"] or ())))
    return wrong


def judge_files(opened: int, total: int, wanted: Mapping[str, Any]) -> list[str]:
    """Return one line if a read opens another number of files than expected."""
    if "files" in wanted and wanted["files"] != opened:
        return [f"{opened} of {total} files are read, not {wanted['files']}"]
    return []


def _compare(rows: list[Mapping[str, Any]], wanted: list[Any]) -> Iterator[str]:
    pairs = pair_up([[place for place, seen in enumerate(rows) if _is_row(row, seen)] for row in wanted])
    met = set(pairs.values())
    left = [row for place, row in enumerate(rows) if place not in pairs]
    missing = [row for place, row in enumerate(wanted) if place not in met]
    for what, these in (("missing", missing), ("not expected", left)):
        if these:
            more = f" and {len(these) - MAX_SHOWN} more" if len(these) > MAX_SHOWN else ""
            yield f"{what}: {', '.join(_shown(row) for row in these[:MAX_SHOWN])}{more}"


def _is_row(wanted: object, seen: Mapping[str, Any]) -> bool:
    """A row has the values of the columns that the expectation names."""
    return isinstance(wanted, dict) and all(name in seen and is_equal(wanted[name], seen[name]) for name in wanted)


def is_equal(wanted: object, seen: object) -> bool:
    """Return whether a value is the one that YAML says, which has no decimals, dates and times. NaN equals NaN."""
    if isinstance(seen, list) and isinstance(wanted, list):
        return len(wanted) == len(seen) and all(map(is_equal, wanted, seen))
    if isinstance(seen, dict) and isinstance(wanted, dict):
        return wanted.keys() == seen.keys() and all(is_equal(wanted[name], seen[name]) for name in wanted)
    try:
        wanted = _read_as(seen, wanted)
    except (InvalidOperation, ValueError, TypeError):
        return False
    if isinstance(seen, float) and isinstance(wanted, float) and math.isnan(seen):
        return math.isnan(wanted)
    return wanted == seen and isinstance(wanted, bool) == isinstance(seen, bool)


def _read_as(seen: object, wanted: object) -> object:
    """Return a YAML value in the type of ``seen``. Raises InvalidOperation, ValueError, TypeError."""
    match seen:
        case Decimal():
            return Decimal(str(wanted))
        case datetime.datetime():
            return datetime.datetime.fromisoformat(str(wanted))
        case datetime.date() | datetime.time():
            return type(seen).fromisoformat(str(wanted))
        case bytes():
            return bytes.fromhex(str(wanted))
        case _:
            return wanted


def _shown(row: object) -> str:
    if not isinstance(row, dict):
        return str(row)
    return "{" + ", ".join(f"{name}: {value}" for name, value in row.items()) + "}"
