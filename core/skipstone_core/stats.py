"""When a data file's column bounds may be believed.

The scalar definition; the data plane's array version is tested against it. Must not know how bounds are stored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


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


def upper_bound(value: str | bytes, length: int | None) -> str | bytes | None:
    """An upper bound of ``value`` in at most ``length`` characters (None: as many as it has); None when there is none.

    Text is ordered by its code points, as its UTF-8 is.
    """
    if length is None or len(value) <= length:
        return value
    return least_above(value[:length]) if isinstance(value, str) else _least_bytes_above(value[:length])


def least_above(prefix: str) -> str | None:
    """The least text greater than all texts that begin with ``prefix``, None when there is none.

    Surrogates are no characters: what follows U+D7FF is U+E000. Nothing follows U+10FFFF.
    """
    for end in range(len(prefix), 0, -1):
        point = ord(prefix[end - 1])
        if point < 0x10FFFF:
            return prefix[: end - 1] + chr(0xE000 if point == 0xD7FF else point + 1)
    return None


def _least_bytes_above(prefix: bytes) -> bytes | None:
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
