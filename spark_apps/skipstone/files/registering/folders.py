"""What the folders of a file say of its rows: ``country=DE/day=2024-01-31``, as Hive and Spark lay tables out.

Used when files are registered. Values are those of Iceberg's partitions: days, microseconds. Must not read files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from pathlib import PurePosixPath
from typing import Any, cast
from urllib.parse import unquote

from pyiceberg.types import DecimalType, IcebergType
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros
from skipstone_core.errors import BadData
from skipstone_core.reasons import Reason

from skipstone.compat.lineage.primitives import ByPrimitive

#: What stands for null in the name of a folder.
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")


def folder_values(path: str) -> Mapping[str, str | None]:
    """The values that the folders of ``path`` name, as text by column; None for null.

    Raises BadData (SOURCE_UNREADABLE) when one column is named twice.
    """
    values: dict[str, str | None] = {}
    for part in PurePosixPath(path).parent.parts:
        name, equals, value = part.partition("=")
        if not equals or not name:
            continue
        column = unquote(name)
        if column in values:
            message = f"the folders of '{path}' name the column '{column}' twice: move the file to one of them"
            raise BadData(Reason.SOURCE_UNREADABLE, message, field="source.paths")
        values[column] = None if value == HIVE_NULL else unquote(value)
    return values


def as_value(text: str | None, kind: IcebergType) -> Any:
    """A folder's value as ``kind``. Raises ValueError when it is none, or when folders cannot name such values.

    Instants are among the latter: a folder does not say in which time zone it has them.
    """
    if text is None:
        return None
    parse = _PARSERS.find(kind)
    if parse is None:
        raise ValueError(f"a folder cannot name a {kind}")
    return parse(text, kind)


def _whole(text: str, bits: int) -> int:
    number = int(text) if _WHOLE.fullmatch(text) else 1 << bits
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError("it is not a whole number in the range of the type")
    return number


def _decimal(text: str, kind: DecimalType) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError("it is not a decimal") from None
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int) or exponent > 0 or -exponent > kind.scale:
        raise ValueError("it has other digits after the point than the type")
    digits = (*digits, *[0] * (kind.scale + exponent))
    if len(digits) > kind.precision:
        raise ValueError("it has more digits than the type")
    return Decimal((sign, digits, -kind.scale))


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("it is neither true nor false")
    return text.lower() == "true"


def _moment(text: str) -> int:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        raise ValueError("it has a time zone")
    return datetime_to_micros(moment)


#: None: of types whose values folders cannot name.
_PARSERS: ByPrimitive[Callable[[str, IcebergType], Any] | None] = ByPrimitive(
    boolean=lambda text, _kind: _boolean(text),
    integer=lambda text, _kind: _whole(text, bits=32),
    long=lambda text, _kind: _whole(text, bits=64),
    float=None,
    double=None,
    decimal=lambda text, kind: _decimal(text, cast(DecimalType, kind)),
    date=lambda text, _kind: date_to_days(date.fromisoformat(text)),
    time=None,
    timestamp=lambda text, _kind: _moment(text),
    timestamptz=None,
    timestamp_ns=None,
    timestamptz_ns=None,
    string=lambda text, _kind: text,
    uuid=None,
    fixed=None,
    binary=None,
    opaque=None,
)
