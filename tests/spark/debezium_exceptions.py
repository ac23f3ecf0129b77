"""The rows of the table of exceptions in docs/guide/feeds.md that the soak of Debezium saw.

Values are the same in each run; of events the soak has seen those that its random history has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.spark.debezium_merges import Told
from tests.spark.debezium_odd_rows import Outcome
from tests.spark.debezium_settings import SETTINGS, Setting
from tests.spark.exceptions_block import Exceptions

_KNOWN_CHANGES = {
    "dropped or renamed column": (
        "`ALTER TABLE … DROP` or `RENAME` of a column",
        "the column keeps its values, the job's message and `status.goneColumns` name it",
        "drop or rename it in the Table",
    ),
    "stored generated column": (
        "a `STORED` generated column for which `source.generated` has `null`",
        "null",
        "an expression of Skipstone, if one says the same",
    ),
    "unchanged large bytea, base64": (
        "a large `bytea` that an update leaves as it is",
        "null",
        "`binary.handling.mode=bytes`, or `REPLICA IDENTITY FULL`",
    ),
    "null in a column with DEFAULT": (
        "null in a column with `DEFAULT`",
        "stored as the default, `status.defaultedColumns` names the column",
        "`value.converter.replace.null.with.default=false`",
    ),
}


def exceptions(told: Told, odd: Sequence[tuple[Setting, Outcome]]) -> Exceptions:
    """Return the table: events first, then values in the order in which the soak tries them."""
    found = Exceptions("debezium")
    _add_events(found, told)
    by_value: dict[str, dict[tuple[str, str], list[str]]] = {}
    for setting, outcome in odd:
        if not outcome.is_right:
            value = f"`{outcome.odd.sql}` `{outcome.odd.literal}` into `{outcome.odd.kind}`"
            places = by_value.setdefault(value, {}).setdefault(_told(outcome), [])
            places.append(f"{setting.name} {outcome.origin}")
    for value, by_outcome in by_value.items():
        for (what, way), places in by_outcome.items():
            found.add(value, _shortened(places), what, way)
    return found


def _add_events(found: Exceptions, told: Told) -> None:
    for event, way, sentence, setting in sorted(told.refusals):
        if event:
            found.add(event, _all_or(setting, _settings_of(told, event)), f"refused: {_general(sentence)}", way)
    for change, setting in sorted(told.changes):
        if change in _KNOWN_CHANGES:
            what, outcome, way = _KNOWN_CHANGES[change]
            found.add(what, _all_or(setting, {name for other, name in told.changes if other == change}), outcome, way)


def _told(outcome: Outcome) -> tuple[str, str]:
    if outcome.sentence:
        sentence = re.sub(r"^column '[^']*': ", "", outcome.sentence)
        return f"refused: {_general(sentence)}", outcome.way_out or "as the sentence says"
    return ("null" if outcome.stored is None else f"stored as `{_shown(outcome.stored)}`"), outcome.odd.way_out


def _shown(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join('null' if item is None else str(item) for item in value)}]"
    return f"x'{value.hex()}'" if isinstance(value, bytes) else str(value)


def _general(sentence: str) -> str:
    """Without names of this soak's tables and columns."""
    sentence = re.sub(r"public\.\w+", "…", sentence)
    return re.sub(r"'(added|renamed|filled|keyless|id|region|code|name)'", "…", sentence)


def _settings_of(told: Told, event: str) -> set[str]:
    return {setting for other, _, _, setting in told.refusals if other == event}


def _all_or(setting: str, settings: set[str]) -> str:
    return "" if len(settings) == len(SETTINGS) else setting


def _shortened(places: Sequence[str]) -> str:
    """Settings by name, without the origin where it is both; empty where it is all."""
    names = [setting.name for setting in SETTINGS]
    whole = [name for name in names if {f"{name} snapshot", f"{name} stream"} <= set(places)]
    parts = [place for place in places if place.split()[0] not in whole]
    if len(whole) == len(names):
        return ""
    origins = {place.split()[1] for place in parts}
    if not whole and len(parts) == len(names) and len(origins) == 1:
        return origins.pop()
    return ", ".join([*whole, *parts])
