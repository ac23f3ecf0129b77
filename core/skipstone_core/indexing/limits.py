"""Limits of the cost rule that a session moves: the names of its settings, their usual values, and what they may be.

Read from Spark's settings by the data plane; ``use`` compares costs by them. Must not know where settings stand.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from skipstone_core.indexing import use
from skipstone_core.indexing.use import CostLimits

_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_BYTES = re.compile(r"(\d{1,18})\s*([kmgt]?)i?b?", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class LimitSetting:
    """A setting of a session. ``field``: the limit that it moves. ``is_part``: a number from 0 to 1, else bytes."""

    name: str
    field: str
    usual: float
    is_part: bool = True

    def read(self, text: str) -> float | int | None:
        """The value that a text names; None if it names none. Bytes may have a unit, such as ``64m``, as in Spark."""
        return _part(text) if self.is_part else _bytes(text)

    def problem(self, text: str) -> str:
        """One sentence on a text that is not a value of the setting."""
        kind = "a number from 0 to 1" if self.is_part else "a number of bytes, such as 64m"
        return f"{self.name} is {text!r}, not {kind}: it counts as {self.usual}, the default"


SETTINGS: tuple[LimitSetting, ...] = (
    LimitSetting("skipstone.worthwhilePart", "worthwhile", use.WORTHWHILE_PART),
    LimitSetting("skipstone.narrowPart", "narrow", use.NARROW_PART),
    LimitSetting("skipstone.scanRowsPart", "scan_rows", use.SCAN_ROWS_PART),
    LimitSetting("skipstone.smallSidePart", "small_side", use.SMALL_SIDE_PART),
    LimitSetting("skipstone.joinBytes", "join_bytes", use.WORTH_A_JOB_BYTES, is_part=False),
    LimitSetting("skipstone.coveringPart", "covering", use.COVERING_PART),
    LimitSetting("skipstone.runtimeFilterPart", "runtime_filter", use.RUNTIME_FILTER_PART),
    LimitSetting("skipstone.driverBytes", "driver_bytes", use.DRIVER_BYTES, is_part=False),
)


def read_limits(settings: Mapping[str, str]) -> tuple[CostLimits, tuple[str, ...]]:
    """The limits that ``settings`` name, and a sentence on each value that is not one."""
    given = [(setting, settings[setting.name]) for setting in SETTINGS if setting.name in settings]
    values = {setting.field: setting.read(text) for setting, text in given}
    problems = tuple(setting.problem(text) for setting, text in given if values[setting.field] is None)
    return CostLimits(**values), problems  # type: ignore[arg-type]


def _part(text: str) -> float | None:
    try:
        part = float(text)
    except ValueError:
        part = math.nan
    return part if 0 <= part <= 1 else None


def _bytes(text: str) -> int | None:
    match = _BYTES.fullmatch(text.strip())
    return int(match[1]) * _UNITS[match[2].lower()] if match else None
