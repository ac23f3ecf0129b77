"""How many cases a test with many of them takes: a few in ``make test``, all of them in the soak targets.

`SKIPSTONE_ALL_CASES=1` asks for all of them in any test run, `SKIPSTONE_SHARE=1` for a share of the cases of each test
that has several: half of them, and a quarter of many.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

ALL_CASES = os.environ.get("SKIPSTONE_ALL_CASES", "") not in ("", "0")
SHARE = os.environ.get("SKIPSTONE_SHARE", "") not in ("", "0")
#: Cases of one test from which on they are several, and from which on they are many.
SEVERAL, MANY = 2, 6
ROOT = Path(__file__).resolve().parents[1]


def cases(few: int, many: int) -> int:
    """``few`` in ``make test``, ``many`` in the soak targets."""
    return many if ALL_CASES else few


def turn(of: int) -> int:
    """A number below ``of`` that changes with the commit and stays the same for one: which part of a set has its turn.

    Without git it is 0.
    """
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(commit.strip(), 16) % of


def without_turn(tests: Iterable[str]) -> Iterator[int]:
    """The places of cases that leave their turn to others: half of those of a test that has SEVERAL, and three of four
    of one that has MANY.

    ``tests``: for each case in order, the test that it belongs to.
    """
    places: dict[str, list[int]] = {}
    for place, test in enumerate(tests):
        places.setdefault(test, []).append(place)
    now = turn(4)
    for cases_of_one in places.values():
        parts = 4 if len(cases_of_one) >= MANY else 2 if len(cases_of_one) >= SEVERAL else 1
        yield from (place for number, place in enumerate(cases_of_one) if number % parts != now % parts)
