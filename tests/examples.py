"""How many cases a test with many of them takes: a few in ``make test``, all of them in the soak targets.

`SKIPSTONE_ALL_CASES=1` asks for all of them in any test run.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ALL_CASES = os.environ.get("SKIPSTONE_ALL_CASES", "") not in ("", "0")
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
