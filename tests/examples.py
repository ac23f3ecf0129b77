"""How many tests and cases a run takes: a few in ``make test``, all of them in the other targets and in the soaks.

`SKIPSTONE_ALL_CASES=1` asks for all cases of random tests in any test run. `SKIPSTONE_SHARE=1` asks for a share of the
tests: the commit decides which. Parts of what is alike take turns by it, so that each is tested every few commits.
"""

from __future__ import annotations

import os
import subprocess
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

ALL_CASES = os.environ.get("SKIPSTONE_ALL_CASES", "") not in ("", "0")
SHARE = os.environ.get("SKIPSTONE_SHARE", "") not in ("", "0")
#: Cases of one test from which on they are several, and from which on they are many.
SEVERAL, MANY = 2, 6
#: A commit takes one of so many parts of the tests of a module.
PARTS = 3
ROOT = Path(__file__).resolve().parents[1]


def cases(few: int, many: int) -> int:
    """``few`` in ``make test``, ``many`` in the soak targets."""
    return many if ALL_CASES else few


@cache
def _commit() -> str:
    """The commit that is checked out, in hexadecimal digits; 0 without git."""
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "0"


def turn(of: int, kin: str = "") -> int:
    """A number below ``of`` that changes with the commit and stays the same for one: which part of a set has its turn.

    ``kin`` names the set. The turns of sets with different names do not depend on each other, nor on those of the sets
    without a name. Without git it is the same for all commits.
    """
    return (zlib.crc32(f"{_commit()} {kin}".encode()) if kin else int(_commit(), 16)) % of


def cases_without_turn(tests: Iterable[str]) -> Iterator[int]:
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


def with_turn(module: str, tests: Sequence[str]) -> Sequence[str]:
    """The tests of a module that have their turn: every PARTS-th, and one at least.

    ``tests``: their names in the order of the module, each once.
    """
    parts = max(1, min(PARTS, len(tests)))
    return tests[turn(parts, module) :: parts]
