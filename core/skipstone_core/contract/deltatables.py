"""A Delta table as the source of a job. Data only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SourceDeltaRef:
    """The Delta table in the folder ``path`` of the source's location: its newest version, or ``version``.

    ``starting_version``: only rows that this version and later ones appended; with ``consume`` New, where the first job
    with this value begins. ``where``: only partitions on which this predicate is true. Versions are text.
    """

    path: str
    version: str | None = None
    starting_version: str | None = None
    where: str | None = None
