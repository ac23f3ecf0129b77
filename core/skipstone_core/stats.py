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


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
