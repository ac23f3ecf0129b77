"""Bounds one by one: the plain definition that the data plane's arrays of bounds are tested against.

Both kinds answer "may hold", never "holds", and an unknown bound may hold anything.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.unit.scalar_keys import Canonical


@dataclass(frozen=True)
class Bounds:
    """Inclusive bounds of the values of one column in one file; None is unknown, and unknown may hold anything.

    Order is Spark's: NaN equals NaN and is greater than every other number, -0.0 equals 0.0.
    """

    lower: Any = None
    upper: Any = None

    def may_hold(self, value: Any) -> bool:
        """Whether a file with these bounds may hold ``value`` (not null)."""
        if _is_nan(value):
            return self.upper is None  # NaN is above every upper bound that is known
        return (self.lower is None or self.lower <= value) and (self.upper is None or value <= self.upper)


def trusted_bounds(lower: Any, upper: Any, *, nan_count: int | None, has_nan: bool) -> Bounds:
    """What of the stored bounds holds. ``has_nan``: the type knows NaN; ``nan_count`` None: nobody counted.

    NaN seen, or perhaps seen, makes the upper bound unknown; a bound that is NaN is none; inverted bounds are none.
    """
    if has_nan:
        upper = upper if nan_count == 0 and not _is_nan(upper) else None
        lower = None if _is_nan(lower) else lower
    if lower is not None and upper is not None and lower > upper:
        return Bounds()
    return Bounds(lower, upper)


@dataclass(frozen=True)
class KeyBounds:
    """Least and greatest canonical value of one column in one file, both included."""

    lower: Canonical
    upper: Canonical


def known_bounds(lower: Canonical | None, upper: Canonical | None) -> KeyBounds | None:
    """KeyBounds that may be trusted; None (unknown) when one is missing or when they are inverted."""
    if lower is None or upper is None or type(lower) is not type(upper) or _less(upper, lower):
        return None
    return KeyBounds(lower, upper)


def key_slice(keys: Sequence[Canonical], bounds: KeyBounds | None) -> tuple[int, int]:
    """The half-open slice of the sorted ``keys`` that lies within ``bounds``; all of them when unknown."""
    if bounds is None:
        return 0, len(keys)
    return bisect_left(keys, bounds.lower), bisect_right(keys, bounds.upper)


def is_candidate(columns: Sequence[KeyBounds | None], keys: Sequence[tuple[Canonical, ...]]) -> bool:
    """Whether some key has every column within the file's bounds of it. Keys with nulls are left out by the caller."""
    return any(all(_within(value, bounds) for value, bounds in zip(key, columns, strict=True)) for key in keys)


def _within(value: Canonical, bounds: KeyBounds | None) -> bool:
    return bounds is None or not (_less(value, bounds.lower) or _less(bounds.upper, value))


def _less(left: Canonical, right: Canonical) -> bool:
    return left < right  # type: ignore[operator]


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
