"""Values of one partition field as an array, and which of them pass a test.

Whole numbers stand for everything that is discrete: integers, days, microseconds, unscaled decimals, booleans. Floats
compare as Spark's do: NaN equals itself and is the greatest, and the two zeros are equal; if asked for, a zero also
passes where it does by Iceberg's order, in which they differ. Must not know transforms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal, localcontext
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from skipstone_core.keys import KeyFamily, KeyType
from skipstone_core.language.filters import FilterOperator
from skipstone_core.language.predicates import Value

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64] | npt.NDArray[np.float64] | npt.NDArray[np.object_]
#: A value as it is compared: see ``encode``.
Coded = int | float | str | bytes
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: More digits than any decimal has, scaled or not.
_DIGITS = 120
_TRUE_FOR_NULL: dict[str, FilterOperator] = {"!=": "=", "not-in": "in", "not-starts-with": "starts-with"}


@dataclass(frozen=True)
class CodedTest:
    """``operator values``, the values as ``encode`` gives. ``zeros_differ``: zeros pass by Iceberg's order, too."""

    operator: FilterOperator
    values: tuple[Coded, ...] = ()
    zeros_differ: bool = True


def encode_test(operator: FilterOperator, values: Sequence[Value], kind: KeyType) -> CodedTest:
    """A test on values of type ``kind``. What lies between two whole numbers is brought to the next that counts."""
    if kind.family in (KeyFamily.FLOAT, KeyFamily.STRING, KeyFamily.BINARY):
        return CodedTest(operator, tuple(_plain(value) for value in values))
    exact = [_exact(value, kind) for value in values]
    match operator:
        case "<" | ">=":
            return CodedTest(operator, (math.ceil(exact[0]),))
        case "<=" | ">":
            return CodedTest(operator, (math.floor(exact[0]),))
        case _:
            return CodedTest(operator, tuple(int(number) for number in exact if number == int(number)))


def _plain(value: Value) -> Coded:
    if isinstance(value, str | bytes | float):
        return value
    raise TypeError(f"a {type(value).__name__} is compared with floats, texts or bytes")


def _exact(value: Value, kind: KeyType) -> int | Decimal:
    match value:
        case bool() | int():
            return int(value)
        case datetime():
            moment = value if value.tzinfo else value.replace(tzinfo=UTC)
            since = moment - _EPOCH
            return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        case date():
            return value.toordinal() - _EPOCH_DAY
        case Decimal():
            with localcontext(prec=_DIGITS):
                return value.scaleb(kind.scale)
    raise TypeError(f"a {type(value).__name__} is compared with whole numbers")


class ValueColumn:
    """Values of a partition field of type ``kind``, as Iceberg holds them, None for null."""

    def __init__(self, values: Sequence[object], kind: KeyType) -> None:
        """Encodes the values."""
        self.nulls: Mask = np.fromiter((value is None for value in values), np.bool_, len(values))
        #: The values as numbers, any for null; of discrete types and floats only.
        self.numbers: Numbers = np.empty(0, np.int64)
        self._compare: Callable[[CodedTest], Mask]
        match kind.family:
            case KeyFamily.STRING:
                self._texts = pa.array(values, pa.large_string())
                self._compare = self._compare_texts
            case KeyFamily.BINARY:
                plain = [value.bytes if isinstance(value, UUID) else value for value in values]
                self._texts = pa.array(plain, pa.large_binary())
                self._compare = self._compare_texts
            case KeyFamily.FLOAT:
                self.numbers = np.array([math.nan if value is None else value for value in values], np.float64)
                self._compare = self._compare_floats
            case _:
                self.numbers = _whole_numbers(values, kind)
                self._compare = self._compare_whole

    def passes(self, test: CodedTest) -> Mask:
        """Which values pass ``test``."""
        match test.operator:
            case "is-null":
                return self.nulls
            case "not-null":
                return ~self.nulls
            case "is-nan" | "not-nan":
                is_nan = np.isnan(self.numbers.astype(np.float64)) & ~self.nulls
                return is_nan if test.operator == "is-nan" else ~is_nan
            case "!=" | "not-in" | "not-starts-with":
                opposite = self._compare(replace(test, operator=_TRUE_FOR_NULL[test.operator]))
                return ~opposite | self._other_zeros(test) | self.nulls
            case _:
                return self._compare(test) & ~self.nulls

    def _compare_whole(self, test: CodedTest) -> Mask:
        if test.operator in ("=", "in"):
            info = np.iinfo(np.int64)
            some = [value for value in test.values if isinstance(value, int) and info.min <= value <= info.max]
            wanted = np.array(some if self.numbers.dtype != object else list(test.values), self.numbers.dtype)
            return np.isin(self.numbers, wanted)
        return _ordered(self.numbers, test.operator, test.values[0])

    def _compare_floats(self, test: CodedTest) -> Mask:
        numbers: npt.NDArray[np.float64] = self.numbers.astype(np.float64, copy=False)
        values = np.array(test.values, np.float64)
        if test.operator in ("=", "in"):
            return np.isin(numbers, values) | (np.isnan(numbers) & bool(np.isnan(values).any()))
        greater = np.isnan(numbers) & (test.operator in (">", ">="))
        return _ordered(numbers, test.operator, float(values[0])) | greater | self._other_zeros(test)

    def _other_zeros(self, test: CodedTest) -> Mask | bool:
        """Zeros that pass by Iceberg's order of floats, in which the negative one comes first and is not the other."""
        signs = {math.copysign(1, value) for value in test.values if isinstance(value, float) and value == 0}
        if not signs or not test.zeros_differ or test.operator in ("<=", ">="):
            return False
        is_negative = np.signbit(self.numbers.astype(np.float64))
        if test.operator in ("<", ">"):
            others, ordered = (is_negative, 1.0) if test.operator == "<" else (~is_negative, -1.0)
            has_other: Mask = others & (ordered in signs)
        else:
            has_other = ~np.where(is_negative, -1.0 in signs, 1.0 in signs)
        return np.asarray(has_other & (self.numbers == 0), np.bool_)

    def _compare_texts(self, test: CodedTest) -> Mask:
        texts, kind = self._texts, self._texts.type
        match test.operator:
            case "=" | "in":
                passes = pc.is_in(texts, pa.array(test.values, kind))
            case "starts-with":
                passes = pc.starts_with(texts, test.values[0])
            case operator:
                passes = _ARROW[operator](texts, pa.scalar(test.values[0], kind))
        return np.asarray(pc.fill_null(passes, False).to_numpy(zero_copy_only=False), np.bool_)  # noqa: FBT003


_ARROW = {"<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}
_NUMPY = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


def _ordered(numbers: Numbers, operator: str, value: Coded) -> Mask:
    with np.errstate(invalid="ignore"):
        return np.asarray(_NUMPY[operator](numbers, value), np.bool_)


def _whole_numbers(values: Sequence[object], kind: KeyType) -> Numbers:
    if kind.family is KeyFamily.DECIMAL:
        plain: Iterable[object] = _unscaled(values, kind.scale)
    else:
        plain = (0 if value is None else value for value in values)
    listed = list(plain)
    try:
        return np.array(listed, np.int64)
    except OverflowError:
        return np.array(listed, object)


def _unscaled(values: Sequence[object], scale: int) -> list[int]:
    with localcontext(prec=_DIGITS):
        return [int(value.scaleb(scale)) if isinstance(value, Decimal) else 0 for value in values]
