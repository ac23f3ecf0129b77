"""Text as values of Iceberg types with Arrow's kernels: what ``text.values`` has Spark make of it, value for value.

Called by ``reading``. Knows the usual form of each type; any other text, also one that does not fit, is left to Spark,
which takes more forms and words what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import DecimalType, FloatType, IcebergType, IntegerType

from skipstone.compat.lineage.primitives import ByPrimitive
from skipstone.kernels.computing.casts import FIRST_MOMENT, LAST_MOMENT
from skipstone.sources.text.driver.patterns import pattern_regex
from skipstone.sources.text.driver.sparkonly import SparkNeeded, SparkOnly
from skipstone.sources.text.options import TextForms, TextOptions

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_TRUE, _FALSE = pa.array(["t", "true", "y", "yes", "1"]), pa.array(["f", "false", "n", "no", "0"])
_INTEGER = r"^[+-]?0*[0-9]{1,19}\z"
_FLOAT = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?\z"
_EXPONENT = re.compile(
    r"[+-]?(?=\.?[0-9])(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?[eE](?P<exponent>[+-]?[0-9]{1,3})"
)
_NOT_FINITE = r"^([+-]?inf(inity)?|nan)\z"
_DATE = r"(?P<y>[0-9]{4})-(?P<mo>[0-9]{1,2})-(?P<d>[0-9]{1,2})"
_SECONDS = r":(?P<s>[0-9]{2})(?:\.(?P<f>[0-9]{1,6})0*)?"
_MINUTES = r"(?P<h>[0-9]{1,2}):(?P<mi>[0-9]{2})"
_CLOCK = rf"{_MINUTES}(?:{_SECONDS})?"
#: Spark takes an offset behind seconds only.
_ZONED = rf"^{_DATE}[ T]{_MINUTES}{_SECONDS} ?(?:Z|UTC|GMT|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)\z"
_UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\z"
#: Forms that Arrow reads as they are.
_DATE_AS_IS = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}\z"
_MOMENT_AS_IS = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.([0-9]{3}|[0-9]{6}))?)?\z"
#: Folders of zones that Java does not have.
_PYTHON_ONLY = ("posix/", "right/")
_MINUTE = 60 * 1_000_000
_MOST_OFFSET = 18 * 60
#: Microseconds of the first and the last moment of the years 1970 to 2037.
_ZONED_FIRST, _ZONED_LAST = 0, 2_145_916_799_999_999
_MOMENT, _INSTANT = pa.timestamp("us"), pa.timestamp("us", tz="UTC")


def require_patterns(options: TextOptions) -> None:
    """Raise SparkNeeded for a pattern that is not known, used or not: Spark says which are none."""
    if options.date_format is not None:
        _known_pattern(options.date_format, is_date=True)
    if options.timestamp_format is not None:
        _known_pattern(options.timestamp_format, is_date=False)


def require_zone(name: str) -> None:
    """Raise SparkNeeded for a name that may mean no time zone to Spark, or another one."""
    if name != "UTC" and ("/" not in name or name.startswith(_PYTHON_ONLY)):
        raise SparkNeeded(SparkOnly.ZONE)


def require_cast(kind: IcebergType) -> None:
    """Raise SparkNeeded for a type that no text is cast to."""
    _rule_of(kind)


def cast_text(values: pa.ChunkedArray, kind: IcebergType, forms: TextForms) -> pa.ChunkedArray:
    """``values`` (string) as ``kind``, uuid as 16 bytes. Raises SparkNeeded."""
    try:
        return _rule_of(kind)(values, kind, forms)
    except MemoryError:
        raise  # which is one of Arrow's exceptions too
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SparkNeeded(SparkOnly.VALUE) from error


def _rule_of(kind: IcebergType) -> _Rule:
    rule = _RULES.find(kind)
    if rule is None:
        raise SparkNeeded(SparkOnly.TYPE)
    return rule


def null_text(values: pa.ChunkedArray, text: str | None) -> pa.ChunkedArray:
    """``values`` with null for each that is ``text``."""
    return values if text is None else pc.if_else(pc.equal(values, text), pa.scalar(None, pa.string()), values)


def _known_pattern(pattern: str, *, is_date: bool) -> str:
    regex = pattern_regex(pattern, is_date=is_date)
    if regex is None:
        raise SparkNeeded(SparkOnly.PATTERN)
    return regex


def _matches(values: pa.ChunkedArray, regex: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(values, regex), min_count=0).as_py())


def _require(values: pa.ChunkedArray, regex: str) -> None:
    if not _matches(values, regex):
        raise SparkNeeded(SparkOnly.VALUE)


def _trimmed(values: pa.ChunkedArray, blanks: str = " ") -> pa.ChunkedArray:
    return pc.utf8_trim(values, characters=blanks)


def _string(values: pa.ChunkedArray, _kind: IcebergType, _forms: TextForms) -> pa.ChunkedArray:
    if pc.any(pc.match_substring(values, _REPLACEMENT), min_count=0).as_py():
        raise SparkNeeded(SparkOnly.TEXT)
    return values


def _boolean(values: pa.ChunkedArray, _kind: IcebergType, _forms: TextForms) -> pa.ChunkedArray:
    text = pc.ascii_lower(_trimmed(values, " \t"))
    is_true, is_false = pc.is_in(text, value_set=_TRUE), pc.is_in(text, value_set=_FALSE)
    if not pc.all(pc.or_(pc.or_(is_true, is_false), pc.is_null(values)), min_count=0).as_py():
        raise SparkNeeded(SparkOnly.VALUE)
    return pc.if_else(pc.is_null(values), pa.scalar(None, pa.bool_()), is_true)


def _integer(values: pa.ChunkedArray, kind: IcebergType, _forms: TextForms) -> pa.ChunkedArray:
    text = _trimmed(values, " \t")
    _require(text, _INTEGER)
    return pc.replace_substring_regex(text, r"^\+", "").cast(
        pa.int32() if isinstance(kind, IntegerType) else pa.int64()
    )


def _floating(values: pa.ChunkedArray, kind: IcebergType, _forms: TextForms) -> pa.ChunkedArray:
    text = _trimmed(values)
    is_number = pc.match_substring_regex(text, _FLOAT)
    if not pc.all(is_number, min_count=0).as_py():
        text = pc.replace_substring_regex(pc.ascii_lower(text), r"^\+(inf)", r"\1")
        is_special = pc.match_substring_regex(text, _NOT_FINITE)
        if not pc.all(pc.or_(is_number, is_special), min_count=0).as_py():
            raise SparkNeeded(SparkOnly.VALUE)
    floats = text.cast(pa.float32() if isinstance(kind, FloatType) else pa.float64())
    if not pc.all(pc.or_(pc.is_finite(floats), pc.invert(is_number)), min_count=0).as_py():
        raise SparkNeeded(SparkOnly.VALUE)
    return floats


def _decimal(values: pa.ChunkedArray, kind: IcebergType, _forms: TextForms) -> pa.ChunkedArray:
    precision, scale = cast(DecimalType, kind).precision, cast(DecimalType, kind).scale
    text = _trimmed(values)
    has_exponent = pc.fill_null(pc.match_substring_regex(text, "[eE]"), fill_value=False).combine_chunks()
    if has_exponent.true_count:
        few = [_without_exponent(number, scale) for number in text.filter(has_exponent).to_pylist()]
        text = pc.replace_with_mask(text.combine_chunks(), has_exponent, pa.array(few, pa.string()))
    _require(text, rf"^[+-]?0*[0-9]{{0,{precision - scale}}}(\.[0-9]{{0,{scale}}}0*)?\z")
    _require(text, "[0-9]")
    cut = pc.replace_substring_regex(text, rf"^([+-]?[0-9]*\.[0-9]{{0,{scale}}})0*\z", r"\1")
    return pc.replace_substring_regex(cut, r"^([+-]?)\.", r"\10.").cast(pa.decimal128(precision, scale))


def _without_exponent(text: str, scale: int) -> str:
    """A decimal without its exponent, judged by the digits that it is written with, as ``text.values`` does."""
    match = _EXPONENT.fullmatch(text)
    if match is None:
        raise SparkNeeded(SparkOnly.VALUE)
    fraction = (match["fraction"] or "").rstrip("0")
    if not (match["whole"] + fraction).strip("0"):
        return "0"
    if len(fraction) - int(match["exponent"]) > scale:
        raise SparkNeeded(SparkOnly.VALUE)
    return format(Decimal(text), "f")


def _date(values: pa.ChunkedArray, _kind: IcebergType, forms: TextForms) -> pa.ChunkedArray:
    pattern = forms.options.date_format
    if pattern is not None:
        return _moments(values, _known_pattern(pattern, is_date=True)).cast(pa.date32())
    text = _trimmed(values)
    if _matches(text, _DATE_AS_IS):
        return _in_range(text.cast(pa.date32()).cast(_MOMENT)).cast(pa.date32())
    return _moments(text, rf"^{_DATE}\z").cast(pa.date32())


def _timestamp(values: pa.ChunkedArray, _kind: IcebergType, forms: TextForms) -> pa.ChunkedArray:
    pattern = forms.options.timestamp_format
    if pattern is not None:
        return _moments(values, _known_pattern(pattern, is_date=False))
    return _plain_moments(_trimmed(values))


def _timestamptz(values: pa.ChunkedArray, _kind: IcebergType, forms: TextForms) -> pa.ChunkedArray:
    pattern = forms.options.timestamp_format
    if pattern is not None:
        return _in_zone(_moments(values, _known_pattern(pattern, is_date=False)), forms.time_zone)
    text = _trimmed(values)
    has_offset = pc.match_substring_regex(text, _ZONED)
    if not pc.any(has_offset, min_count=0).as_py():
        return _in_zone(_plain_moments(text), forms.time_zone)
    none = pa.scalar(None, pa.string())
    local = _in_zone(_plain_moments(pc.if_else(has_offset, none, text)), forms.time_zone)
    return pc.coalesce(local, _with_offset(pc.if_else(has_offset, text, none)))


def _with_offset(text: pa.ChunkedArray) -> pa.ChunkedArray:
    local = _moments(text, _ZONED)
    parts = pc.extract_regex(text, r"(?P<sign>[+-])(?P<h>[0-9]{2}):?(?P<mi>(?:[0-9]{2})?)\z")
    hours, minutes = (_number(pc.struct_field(parts, name)) for name in ("h", "mi"))
    offset = pc.fill_null(pc.add(pc.multiply(hours, 60), minutes), 0)
    if not pc.all(pc.and_(pc.less_equal(offset, _MOST_OFFSET), pc.less(pc.fill_null(minutes, 0), 60)),
                  min_count=0).as_py():  # fmt: skip
        raise SparkNeeded(SparkOnly.VALUE)
    is_west = pc.fill_null(pc.equal(pc.struct_field(parts, "sign"), "-"), fill_value=False)
    signed = pc.if_else(is_west, pc.negate(offset), offset)
    instants = pc.subtract(local.cast(pa.int64()), pc.multiply(signed, _MINUTE))
    return _in_range(instants.cast(_MOMENT)).cast(_INSTANT)


def _number(digits: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.equal(digits, ""), "0", digits).cast(pa.int64())


def _plain_moments(text: pa.ChunkedArray) -> pa.ChunkedArray:
    if _matches(text, _MOMENT_AS_IS):
        return _in_range(text.cast(_MOMENT))
    return _moments(text, rf"^{_DATE}(?:[ T]{_CLOCK})?\z")


def _moments(text: pa.ChunkedArray, regex: str) -> pa.ChunkedArray:
    """Moments of the parts that ``regex`` names; what it does not name is the first."""
    extracted = pc.extract_regex(text, regex)
    if extracted.null_count != text.null_count:
        raise SparkNeeded(SparkOnly.VALUE)
    names = {extracted.type.field(at).name for at in range(extracted.type.num_fields)}

    def part(name: str) -> pa.ChunkedArray | str:
        return pc.utf8_lpad(pc.struct_field(extracted, name), width=2, padding="0") if name in names else "00"

    fraction = pc.utf8_rpad(pc.struct_field(extracted, "f"), width=6, padding="0") if "f" in names else "000000"
    pieces = [pc.struct_field(extracted, "y"), "-", part("mo"), "-", part("d"), " ", part("h"), ":", part("mi"), ":",
              part("s"), ".", fraction, ""]  # fmt: skip
    return _in_range(pc.binary_join_element_wise(*pieces).cast(_MOMENT))


def _in_range(moments: pa.ChunkedArray) -> pa.ChunkedArray:
    """``moments``, which are of the years 1 to 9999."""
    return _between(moments, FIRST_MOMENT, LAST_MOMENT, SparkOnly.VALUE)


def _between(moments: pa.ChunkedArray, first: int, last: int, why: SparkOnly) -> pa.ChunkedArray:
    ends = pc.min_max(moments.cast(pa.int64()))
    if ends["min"].is_valid and not first <= ends["min"].as_py() <= ends["max"].as_py() <= last:
        raise SparkNeeded(why)
    return moments


def _in_zone(moments: pa.ChunkedArray, zone: str) -> pa.ChunkedArray:
    """The instants at which clocks of ``zone`` show ``moments``, the earlier of two."""
    if zone == "UTC":
        return moments.cast(_INSTANT)
    _between(moments, _ZONED_FIRST, _ZONED_LAST, SparkOnly.ZONE)
    try:
        return pc.assume_timezone(moments, zone, ambiguous="earliest", nonexistent="raise").cast(_INSTANT)
    except pa.ArrowInvalid as error:
        raise SparkNeeded(SparkOnly.ZONE) from error


def _time(values: pa.ChunkedArray, _kind: IcebergType, _forms: TextForms) -> pa.ChunkedArray:
    text = _trimmed(values)
    days = pc.binary_join_element_wise("1970-01-01", text, " ")
    return _moments(days, rf"^{_DATE} {_CLOCK}\z").cast(pa.int64()).cast(pa.time64("us"))


def _uuid(values: pa.ChunkedArray, _kind: IcebergType, _forms: TextForms) -> pa.ChunkedArray:
    text = _trimmed(values)
    _require(text, _UUID)
    digits = pc.fill_null(pc.replace_substring(text, "-", ""), "0" * 32)
    content = bytes.fromhex("".join(digits.to_pylist()))
    array = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(text), [None, pa.py_buffer(content)])
    return pa.chunked_array([pc.if_else(text.combine_chunks().is_valid(), array, pa.scalar(None, pa.binary(16)))])


_Rule = Callable[[pa.ChunkedArray, IcebergType, TextForms], pa.ChunkedArray]
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
