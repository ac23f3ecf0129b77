"""Key ranges of files against sorted source keys: which files may hold a key.

The scalar definition of key-range pruning. The array version in the data plane gives the same answers for a million
files; both answer "may hold", never "holds". Unknown bounds are always candidates. Values are canonical keys.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from skipstone_core.keys import Canonical


@dataclass(frozen=True)
class Bounds:
    """Least and greatest canonical value of one column in one file, both included."""

    lower: Canonical
    upper: Canonical


def known_bounds(lower: Canonical | None, upper: Canonical | None) -> Bounds | None:
    """Bounds that may be trusted; None (unknown) when one is missing or when they are inverted."""
    if lower is None or upper is None or type(lower) is not type(upper) or _less(upper, lower):
        return None
    return Bounds(lower, upper)


def key_slice(keys: Sequence[Canonical], bounds: Bounds | None) -> tuple[int, int]:
    """The half-open slice of the sorted ``keys`` that lies within ``bounds``; all of them when unknown."""
    if bounds is None:
        return 0, len(keys)
    return bisect_left(keys, bounds.lower), bisect_right(keys, bounds.upper)


def is_candidate(columns: Sequence[Bounds | None], keys: Sequence[tuple[Canonical, ...]]) -> bool:
    """Whether some key has every column within the file's bounds of it. Keys with nulls are left out by the caller."""
    return any(all(_within(value, bounds) for value, bounds in zip(key, columns, strict=True)) for key in keys)


def _within(value: Canonical, bounds: Bounds | None) -> bool:
    return bounds is None or not (_less(value, bounds.lower) or _less(bounds.upper, value))


def _less(left: Canonical, right: Canonical) -> bool:
    return left < right  # type: ignore[operator]
