"""The clock on the wall. Handed to reconcilers by ``__main__``; nothing else in the operator reads the time."""

from __future__ import annotations

from datetime import UTC, datetime


class SystemClock:
    """Implements ``ports.Clock``."""

    def now(self) -> datetime:
        """The current time in UTC."""
        return datetime.now(UTC)
