"""How much of a merge its driver does by itself: what is done sooner than a JVM starts and its tasks begin.

Called by the merge run. Plain data.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DriverMergeLimits:
    """A merge beyond any of these uses Spark for that part of it; all zero: for every part.

    ``rows``: source rows; ``source_bytes``: of plain source files, unpacked; ``candidate_bytes``: of the data files
    that may have to be rewritten; ``searched_rows``: source rows whose keys are looked for in bounds and indexes.
    """

    rows: int = 1_000_000
    source_bytes: int = 128 * 1024 * 1024
    candidate_bytes: int = 128 * 1024 * 1024
    searched_rows: int = 4_000_000


DRIVER_LIMITS = DriverMergeLimits()
