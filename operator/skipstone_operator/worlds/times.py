"""Points in time as Kubernetes writes them, and spans for people.

Used by worlds and reconcilers. Reads no clock.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

#: The clocks of two nodes, or of a node and the operator, agree at least this well.
CLOCKS = timedelta(minutes=15)
#: Seconds: no back-off is longer, so a status that asks for more was not written by us.
LONGEST_WAIT = 3600.0


def parse_time(text: str | None) -> datetime | None:
    """The point in time that ``text`` names; None for no or unreadable text, which users may write into a status."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def past_time(text: str | None, now: datetime) -> datetime | None:
    """The point in time that ``text`` names; None for one that cannot have been yet."""
    moment = parse_time(text)
    return moment if moment is None or moment <= now + CLOCKS else None


def seconds_since(text: str | None, now: datetime) -> float | None:
    """Seconds from ``text`` to ``now``, or None when ``text`` names no time, or one that cannot have been yet."""
    moment = past_time(text, now)
    return None if moment is None else (now - moment).total_seconds()


def seconds_until(text: str | None, now: datetime) -> float:
    """Seconds from ``now`` to ``text``; 0 when it is past, names no time, or is later than any wait that was asked."""
    moment = parse_time(text)
    wait = 0.0 if moment is None else max(0.0, (moment - now).total_seconds())
    return wait if wait <= LONGEST_WAIT else 0.0


def add_seconds(now: datetime, seconds: float) -> datetime:
    """``now`` plus ``seconds``."""
    return now + timedelta(seconds=seconds)


def backoff(failures: int, *, base: float, cap: float, factor: float = 2.0) -> float:
    """Seconds to wait after the ``failures``-th failure in a row: from ``base`` up to ``cap``, by ``factor`` each."""
    return 0.0 if failures <= 0 else min(cap, base * factor ** min(failures - 1, 30))


def format_span(seconds: float) -> str:
    """A span as people say it: ``42s``, ``1m12s``, ``2h05m``."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
