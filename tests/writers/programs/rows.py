"""The rows that every writer is given. Run in the environments of writers: nothing but the standard library."""

from __future__ import annotations

import json
import math
import os
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

COUNT = 60
_TEXTS = (
    "plain text of more than sixteen characters",
    "日本語日本語日本語日本語日本語日本語",
    "\U0001f600\U0001f601 emoji beyond the basic plane \U0001f602",
    'O\'Brien, "quoted" and 100% like_this',
)
_FLOATS = (math.nan, -0.0, math.inf, -math.inf, 0.0)


def rows(start: int = 0, count: int = COUNT) -> list[dict[str, object]]:
    """``count`` rows with ids from ``start`` on: each type, nulls, long texts, odd floats, times before 1970."""
    return [row(number) for number in range(start, start + count)]


def row(number: int) -> dict[str, object]:
    """The row of one id; every eleventh has nulls."""
    nothing = number % 11 == 5
    moment = datetime(1969, 12, 25) + timedelta(hours=7 * number, microseconds=number)  # noqa: DTZ001 - without a zone
    return {
        "id": number,
        "txt": None if nothing else f"{_TEXTS[number % 4]} {number}",
        "cat": f"c{number % 5}",
        "amount": None if nothing else Decimal(number * 7 - 100).scaleb(-2),
        "price": _FLOATS[number % 13] if number % 13 < len(_FLOATS) else number / 8,
        "day": None if nothing else date(1969, 12, 1) + timedelta(days=number),
        "ts": moment,
        "flag": number % 2 == 0,
        "n": number * 3,
    }


def zoned(number: int) -> datetime:
    """A moment with a zone."""
    return datetime(1969, 12, 30, tzinfo=UTC) + timedelta(hours=number)


def say(case: str, **told: object) -> None:
    """Print what became of a case, a line of JSON."""
    print(json.dumps({"case": case, **told}), flush=True)


def attempt(case: str, write: Callable[[], dict[str, object]]) -> None:
    """Write one table and say where its metadata is, or why the writer refused; only those of CASES if it is set."""
    if (chosen := os.environ.get("CASES")) and case not in chosen.split(","):
        return
    try:
        told = write()
    except Exception as error:  # noqa: BLE001 - whatever the writer raises is its answer
        traceback.print_exc(file=sys.stderr)
        say(
            case,
            refused=f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:300],
        )
    else:
        say(case, **told)


def newest_metadata(folder: str) -> str:
    """The metadata file that was written last below ``folder``."""
    found = Path(folder).rglob("*.metadata.json")
    return str(max(found, key=lambda path: (path.stat().st_mtime_ns, len(path.name), path.name)))
