"""Text to typed columns: what each Iceberg type accepts as text, and null for all that does not fit.

Called for the columns of Csv and Json. Pure column expressions; nothing is rounded, cut or wrapped around.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from pyiceberg.types import DecimalType, IcebergType, IntegerType
from pyspark.sql import Column
from pyspark.sql import functions as F
from skipstone_core.errors import BadSpec
from skipstone_core.reasons import Reason

from skipstone.compat.lineage.primitives import ByPrimitive
from skipstone.sources.text.options import TextForms

_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_NOT_A_NUMBER = r"^(?i)([+-]?inf(inity)?|nan)$"
_CLOCK = r"\d{1,2}:\d{2}(:\d{2}(\.\d{1,6}0*)?)?"
_DATE = r"^\d{4}-\d{1,2}-\d{1,2}"
_OFFSET = r" ?(Z|UTC|GMT|[+-]\d{1,2}(:?\d{2})?|[A-Za-z_]+(/[A-Za-z_-]+)+)"
_UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
#: What decoders put where bytes are not valid in the encoding.
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Conversion:
    """``value``: null where the raw value does not fit. ``what`` completes the sentence "'abc' is not …"."""

    value: Column
    what: str


_Rule = Callable[[Column, IcebergType, TextForms], Conversion]


def from_text(raw: Column, kind: IcebergType, forms: TextForms) -> Conversion | None:
    """``raw`` (string) as ``kind``; None when text cannot carry ``kind`` (fixed, binary and nested types)."""
    rule = _RULES.find(kind)
    return rule(raw, kind, forms) if rule is not None else None


def _string(raw: Column, _kind: IcebergType, forms: TextForms) -> Conversion:
    return Conversion(F.when(~raw.contains(_REPLACEMENT), raw), f"valid {forms.options.encoding} text")


def _boolean(raw: Column, _kind: IcebergType, _forms: TextForms) -> Conversion:
    return Conversion(raw.try_cast("boolean"), "a boolean (true or false)")


def _integer(raw: Column, kind: IcebergType, _forms: TextForms) -> Conversion:
    return Conversion(raw.try_cast("int" if isinstance(kind, IntegerType) else "bigint"), f"of type {kind}")


def _floating(raw: Column, kind: IcebergType, _forms: TextForms) -> Conversion:
    value = raw.try_cast(str(kind))
    text = F.trim(raw)
    is_finite = text.rlike(_NUMBER) & (F.abs(value) != F.lit("Infinity").cast(str(kind)))
    return Conversion(F.when(is_finite | text.rlike(_NOT_A_NUMBER), value), f"of type {kind}")


def _decimal(raw: Column, kind: IcebergType, _forms: TextForms) -> Conversion:
    precision, scale = cast(DecimalType, kind).precision, cast(DecimalType, kind).scale
    text = F.trim(raw)
    plain = rf"^[+-]?(\d+(\.\d{{0,{scale}}}0*)?|\.(?=\d)\d{{0,{scale}}}0*|0*\.?0*[eE][+-]?\d+)$"
    fits = text.rlike(plain) | (text.rlike(_NUMBER) & (_decimal_places(text) <= scale))
    return Conversion(F.when(fits, raw.try_cast(f"decimal({precision},{scale})")), f"of type {kind} without loss")


def _decimal_places(text: Column) -> Column:
    """Digits behind the point that a number with exponent needs; at times more than enough, never too few."""
    written = F.length(F.regexp_extract(text, r"\.(\d*?)0*[eE]", 1))
    return written - F.regexp_extract(text, r"[eE]([+-]?\d+)$", 1).try_cast("int")


def _date(raw: Column, _kind: IcebergType, forms: TextForms) -> Conversion:
    pattern = forms.options.date_format
    if pattern is not None:
        moment = F.try_to_timestamp(raw, F.lit(pattern))
        return Conversion(F.when(moment == F.date_trunc("day", moment), moment.cast("date")), f"a date like {pattern}")
    return Conversion(F.when(F.trim(raw).rlike(_DATE + "$"), raw.try_cast("date")), "a date like 2013-01-31")


def _timestamptz(raw: Column, _kind: IcebergType, forms: TextForms) -> Conversion:
    pattern = forms.options.timestamp_format
    if pattern is not None:
        value = F.try_to_timestamp(raw, F.lit(pattern))
        zoned = value if forms.options.timestamps_have_zone else in_zone(value, forms.time_zone)
        return Conversion(zoned, f"a timestamp like {pattern}")
    value, text = raw.try_cast("timestamp"), F.trim(raw)
    plain = F.when(text.rlike(_plain_timestamp()), in_zone(value, forms.time_zone))
    return Conversion(
        plain.when(text.rlike(rf"{_DATE}[ T]{_CLOCK}{_OFFSET}$"), value), "a timestamp like 2013-01-31T10:00:00Z"
    )


def _timestamp(raw: Column, _kind: IcebergType, forms: TextForms) -> Conversion:
    pattern = forms.options.timestamp_format
    if pattern is not None and forms.options.timestamps_have_zone:
        message = (
            "reads an offset or a zone, which columns of type timestamp would lose: use timestamptz, or leave it out"
        )
        raise BadSpec(Reason.INVALID_SPEC, message, field="source.options.timestampFormat")
    if pattern is not None:
        return Conversion(F.try_to_timestamp(raw, F.lit(pattern)).cast("timestamp_ntz"), f"a timestamp like {pattern}")
    value = F.when(F.trim(raw).rlike(_plain_timestamp()), raw.try_cast("timestamp_ntz"))
    return Conversion(value, "a timestamp without offset like 2013-01-31T10:00:00")


def _time(raw: Column, _kind: IcebergType, _forms: TextForms) -> Conversion:
    moment = F.concat(F.lit("1970-01-01 "), F.trim(raw)).try_cast("timestamp")
    return Conversion(F.when(F.trim(raw).rlike(f"^{_CLOCK}$"), F.unix_micros(moment)), "a time like 10:00:00")


def _uuid(raw: Column, _kind: IcebergType, _forms: TextForms) -> Conversion:
    return Conversion(F.when(F.trim(raw).rlike(_UUID), F.lower(F.trim(raw))), "a UUID")


def in_zone(wall_clock: Column, time_zone: str) -> Column:
    """The instant at which clocks of ``time_zone`` show what ``wall_clock`` (a timestamp in UTC) shows."""
    return wall_clock if time_zone == "UTC" else F.to_utc_timestamp(wall_clock, time_zone)


def _plain_timestamp() -> str:
    return rf"{_DATE}([ T]{_CLOCK})?$"


_RULES: ByPrimitive[_Rule | None] = ByPrimitive(
    boolean=_boolean,
    integer=_integer,
    long=_integer,
    float=_floating,
    double=_floating,
    decimal=_decimal,
    date=_date,
    time=_time,
    timestamp=_timestamp,
    timestamptz=_timestamptz,
    timestamp_ns=None,
    timestamptz_ns=None,
    string=_string,
    uuid=_uuid,
    fixed=None,
    binary=None,
    opaque=None,
)
