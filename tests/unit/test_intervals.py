"""Key ranges: never fewer candidates than the files that hold a key."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.scalar_bounds import KeyBounds, is_candidate, key_slice, known_bounds

numbers = st.integers(-20, 20)
bounds = st.none() | st.builds(lambda a, b: KeyBounds(min(a, b), max(a, b)), numbers, numbers)


@settings(deadline=None)
@given(st.lists(numbers).map(sorted), bounds)
def test_slice_holds_exactly_the_keys_within_bounds(keys: list[int], within: KeyBounds | None) -> None:
    start, stop = key_slice(keys, within)
    inside = [key for key in keys if within is None or within.lower <= key <= within.upper]  # type: ignore[operator]
    assert keys[start:stop] == inside


@settings(deadline=None)
@given(st.lists(st.tuples(numbers, numbers)), bounds, bounds)
def test_composite_key_needs_one_row_within_both_columns(
    keys: list[tuple[int, int]], first: KeyBounds | None, second: KeyBounds | None
) -> None:
    def within(value: int, one: KeyBounds | None) -> bool:
        return one is None or one.lower <= value <= one.upper  # type: ignore[operator]

    assert is_candidate((first, second), keys) == any(within(a, first) and within(b, second) for a, b in keys)


def test_bounds_that_cannot_be_trusted_are_unknown() -> None:
    assert known_bounds(None, 3) is None
    assert known_bounds(3, None) is None
    assert known_bounds(3, 2) is None
    assert known_bounds(b"a", 2) is None
    assert known_bounds(b"a", b"a") == KeyBounds(b"a", b"a")


def test_no_key_no_candidate() -> None:
    assert not is_candidate((None,), [])
