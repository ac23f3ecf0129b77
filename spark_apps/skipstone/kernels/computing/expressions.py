"""Computes checked expressions on Arrow columns, by the rules of Spark's ANSI SQL: nothing wraps, null stays null.

Called by the clauses for what they assign. A part is computed only for the rows whose value depends on it, so that
``coalesce(a, b / c)`` divides where a is null. Must not parse or check: it takes what the core has checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from skipstone_core.errors import BadData
from skipstone_core.language.expressions import (
    NULL_TYPE,
    Arithmetic,
    Atom,
    Call,
    Cast,
    Negative,
    Term,
    ValueExpression,
    columns_of,
    shown,
)
from skipstone_core.language.predicates import ColumnRef, Constant
from skipstone_core.reasons import Reason

from skipstone.kernels.computing.casts import EXACT, Lossy, arrow_type, cast_values, decimals, local_times

Columns = Mapping[str, pa.Array]
Mask = npt.NDArray[np.bool_]
_CHECKED: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}
_FLOATS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": pc.add,
    "-": pc.subtract,
    "*": pc.multiply,
    "/": pc.divide,
}
_EXACTLY: Mapping[str, Callable[[Decimal, Decimal], Decimal]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "%": lambda a, b: a % b,
}
_SHOWN = 80


class _Fault(Exception):
    """A fault of a part in some row, and the way out."""


def compute(expression: ValueExpression, columns: Columns, rows: int) -> pa.Array:
    """The value of ``expression`` in each of ``rows`` rows; ``columns`` are keyed as ``source.x`` and ``target.y``.

    Raises BadData (BAD_RECORDS), without a value, for a row in which it leaves the range of its type, divides by zero
    or casts with loss.
    """
    try:
        return _Rows(columns, rows, expression).value(expression.root)
    except _Fault as fault:
        text = " ".join(expression.text.split())
        text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        raise BadData(Reason.BAD_RECORDS, f"{text!r} {fault}", field=expression.field) from fault


@dataclass(frozen=True)
class _Rows:
    """Some rows, in which parts of ``expression`` are computed."""

    columns: Columns
    rows: int
    expression: ValueExpression

    def value(self, term: Term) -> pa.Array:
        """A part in all rows."""
        match term:
            case Atom():
                return self._leaf(term)
            case Negative():
                return _negated(self.value(term.inner), term)
            case Arithmetic():
                return self._arithmetic(term)
            case Cast():
                return self._cast(term)
            case Call():
                return self._call(term)

    def _leaf(self, leaf: Atom) -> pa.Array:
        kind = arrow_type(leaf.type)
        match leaf.operand:
            case ColumnRef() as column if leaf.type != NULL_TYPE:
                values = self.columns[str(column)]
                return values if kind is None or values.type == kind else pc.cast(values, kind)
            case Constant() as constant:
                return pa.repeat(pa.scalar(constant.value, kind), self.rows)
            case _:
                return pa.nulls(self.rows)

    def _among(self, term: Term, mask: Mask) -> pa.Array:
        """A part in the rows of ``mask``; null in others."""
        if mask.all():
            return self.value(term)
        picked = np.flatnonzero(mask)
        if not len(picked):
            return pa.nulls(self.rows, arrow_type(term.type) or self.value(term).type)
        names = {str(column) for column in columns_of(term)}
        columns = {name: self.columns[name].take(pa.array(picked)) for name in names}
        computed = _Rows(columns, len(picked), self.expression).value(term)
        places = np.zeros(self.rows, dtype=np.int64)
        places[picked] = np.arange(len(picked))
        return computed.take(pa.array(places, mask=~mask))

    def _arithmetic(self, term: Arithmetic) -> pa.Array:
        """As in Spark, a divisor is looked at first, and the other side where the first is not null."""
        if term.op in ("/", "%"):
            right = self.value(term.right)
            left = self._among(term.left, _valid(right))
            zero = pa.scalar(Decimal(0) if pa.types.is_decimal(right.type) else 0, right.type)
            both = pc.and_(pc.is_valid(left), pc.is_valid(right))
            if pc.any(pc.and_(both, pc.equal(right, zero))).as_py():
                raise _Fault("divides by zero in some row: leave such rows out by a when")
        else:
            left = self.value(term.left)
            right = self._among(term.right, _valid(left))
        try:
            return _computed(term, left, right)
        except (Lossy, pa.ArrowInvalid) as error:
            raise _out_of_range(term) from error

    def _cast(self, term: Cast) -> pa.Array:
        values = self.value(term.inner)
        try:
            return cast_values(values, term.type, self.expression.zone)
        except Lossy as error:
            what = f"casts a value of {shown(term.inner)} that {term.type} does not hold as it is"
            raise _Fault(f"{what}: cast to a wider type, round it, or leave such rows out by a when") from error

    def _call(self, term: Call) -> pa.Array:
        if term.name == "coalesce":
            return self._coalesce(term)
        if term.name == "round":
            return _rounded(self.value(term.args[0]), term)
        if term.name == "to_date":
            values = self.value(term.args[0])
            if pa.types.is_date(values.type):
                return values
            try:
                return pc.cast(local_times(values, self.expression.zone), pa.date32())
            except Lossy as error:
                raise _Fault(
                    "takes the day of a moment before the year 1 or after 9999, when the clocks of the zone are not "
                    "known: use spec.timeZone UTC, or leave such rows out by a when"
                ) from error
        text = self.value(term.args[0])
        for arg in term.args[1:]:
            text = pc.binary_join_element_wise(text, self._among(arg, _valid(text)), "")
        return text

    def _coalesce(self, term: Call) -> pa.Array:
        values = self.value(term.args[0])
        for arg in term.args[1:]:
            if not values.null_count:
                break
            other = self._among(arg, ~_valid(values))
            values = other if pa.types.is_null(values.type) else pc.coalesce(values, other)
        return values


def _valid(values: pa.Array) -> Mask:
    return np.asarray(pc.is_valid(values).to_numpy(zero_copy_only=False), dtype=bool)


def _out_of_range(term: Term) -> _Fault:
    return _Fault(f"leaves the range of {term.type} in some row: cast its numbers to a wider type")


def _negated(values: pa.Array, term: Negative) -> pa.Array:
    try:
        return pc.negate_checked(values)
    except pa.ArrowInvalid as error:
        raise _out_of_range(term) from error


def _computed(term: Arithmetic, left: pa.Array, right: pa.Array) -> pa.Array:
    kind = arrow_type(term.type)
    if pa.types.is_decimal(kind):
        return _decimals(term, left, right, kind)
    if term.op == "%":
        return _remainder(left, right, kind)
    functions = _FLOATS if pa.types.is_floating(kind) else _CHECKED
    return functions[term.op](left, right)


def _remainder(left: pa.Array, right: pa.Array, kind: pa.DataType) -> pa.Array:
    """With the sign of the dividend."""
    valid = pc.and_(pc.is_valid(left), pc.is_valid(right))
    a, b = (pc.fill_null(side, 1).to_numpy(zero_copy_only=False) for side in (left, right))
    b = np.where((b == 0) | (b == -1), 1, b) if pa.types.is_integer(kind) else b  # by -1 as by 1, without overflow
    with np.errstate(invalid="ignore"):  # of an infinity it is NaN
        remainder = np.fmod(a, b)
    return pa.array(remainder.astype(kind.to_pandas_dtype()), kind, mask=~valid.to_numpy(zero_copy_only=False))


def _decimals(term: Arithmetic, left: pa.Array, right: pa.Array, kind: pa.DataType) -> pa.Array:
    """By Arrow where its result has the same type, which then never overflows; else exactly, and rounded once."""
    if term.op in _CHECKED:
        try:
            result = _CHECKED[term.op](left, right)
        except pa.ArrowInvalid:  # the type of the result would have too many digits
            result = None
        if result is not None and result.type == kind:
            return result
    compute_one = _EXACTLY[term.op]
    with localcontext(EXACT):
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        numbers = [None if a is None or b is None else compute_one(a, b) for a, b in pairs]
    return decimals(numbers, kind)


def _rounded(values: pa.Array, term: Call) -> pa.Array:
    digits = _digits_to_keep(term)
    if pa.types.is_decimal(values.type):
        try:
            step = Decimal(1).scaleb(-min(digits, values.type.scale))
            with localcontext(EXACT):
                numbers = [None if value is None else value.quantize(step) for value in values.to_pylist()]
            return decimals(numbers, arrow_type(term.type))
        except Lossy as error:
            raise _out_of_range(term) from error
    return pa.array(
        [None if value is None else _rounded_float(value, digits) for value in values.to_pylist()], pa.float64()
    )


def _digits_to_keep(term: Call) -> int:
    digits = term.args[1]
    assert isinstance(digits, Atom) and isinstance(digits.operand, Constant)  # noqa: S101
    return int(digits.operand.value)  # type: ignore[arg-type]


def _rounded_float(number: float, digits: int) -> float:
    """By the decimal digits of the float, as Spark rounds it."""
    if not np.isfinite(number):
        return number
    with localcontext(EXACT):
        exact = Decimal(repr(number))
        return float(exact.quantize(Decimal(1).scaleb(-digits))) if -int(exact.as_tuple().exponent) > digits else number
