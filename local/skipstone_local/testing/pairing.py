"""Pairs expectations with the rows that fit them, as many as can be. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def pair_up(fitting: Sequence[Sequence[int]]) -> dict[int, int]:
    """The expectation that each paired row gets. ``fitting``: for each expectation, the rows that fit it.

    A largest set of pairs, by augmenting paths: what fits several expectations is left to the one that needs it.
    """
    owners: dict[int, int] = {}
    for expectation in range(len(fitting)):
        _add_pair(expectation, fitting, owners)
    return owners


def _add_pair(expectation: int, fitting: Sequence[Sequence[int]], owners: dict[int, int]) -> None:
    """Give a row to ``expectation``; others may have to take another row for that."""
    takers: dict[int, int] = {}
    pending = [expectation]
    for taker in pending:
        for row in fitting[taker]:
            if row in takers:
                continue
            takers[row] = taker
            if row not in owners:
                _hand_on(row, takers, owners)
                return
            pending.append(owners[row])


def _hand_on(row: int, takers: dict[int, int], owners: dict[int, int]) -> None:
    """Give a free row to its taker, the row that this one had to the taker of that, and so on."""
    had = {owner: owned for owned, owner in owners.items()}
    free: int | None = row
    while free is not None:
        taker = takers[free]
        owners[free] = taker
        free = had.get(taker)
