"""Text of messages, and what else a column of text takes: numbers of any scale, times of day, values as JSON.

Called by ``columns``. What raises ValueError or TypeError does not fit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

from skipstone.sources.feeds.shapes import Raw
from skipstone.sources.feeds.values.encodings import NotCertain, ReadAs, is_bytes, is_scaled
from skipstone.sources.feeds.values.numbers import is_variable_scale, number_text
from skipstone.sources.feeds.values.times import is_time_of_day, time_text

#: How Java shows an array: Debezium's snapshots have such text in place of the inner lists of two-dimensional arrays.
_JAVA_ARRAY = re.compile(r"\[+([ZBCSIJFD]|L[\w.$]+;)@[0-9a-f]{1,8}", re.ASCII)


def string(value: Raw, of: ReadAs) -> object:
    """Return the text of ``value``. Raises NotCertain for bytes and for arrays that the tool could not read."""
    if _is_number(value, of):
        return number_text(value, of)
    is_json = isinstance(value, Mapping | list)
    if is_json or (of.rules.style.has_json and isinstance(value, bool | int | float | Decimal)):
        return _json_text(value, of)
    if isinstance(value, int) and not isinstance(value, bool) and is_time_of_day(of):
        return time_text(value, of)
    if not isinstance(value, str):
        raise TypeError(value)
    value.encode()  # refuses half a character
    return value


def refuse_java_text(values: Sequence[Raw]) -> None:
    """Raise NotCertain for a list whose items are text that Java shows for arrays."""
    if any(isinstance(value, str) and _JAVA_ARRAY.fullmatch(value) for value in values):
        raise NotCertain(
            "it is an array of more than one dimension, which Debezium cannot write: leave the column out "
            "(column.exclude.list), or keep it as jsonb in the database"
        )


def _is_number(value: Raw, of: ReadAs) -> bool:
    """Return whether ``value`` is a decimal with its scale, and not one of JSON."""
    return is_scaled(of.semantic) or (not of.rules.style.has_json and is_variable_scale(value))


def _json_text(value: Raw, of: ReadAs) -> str:
    inner = ReadAs(of.type, None if of.semantic is None else of.semantic.item, of.rules)
    if _is_number(value, of):
        return number_text(value, of)
    if isinstance(value, str) and is_bytes(of.semantic):
        raise TypeError(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json.dumps(k)}:{_json_text(v, inner)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        refuse_java_text(value)
        return "[" + ",".join(_json_text(part, inner) for part in value) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value)
