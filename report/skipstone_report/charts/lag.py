"""How long after they were due jobs ended, over time, and when indexes were last synced: one chart per table.

Called by the section of lag. Drawn is only what statuses tell: a job that has ended, an index with a last sync.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from skipstone_report.charts.drawing import percent
from skipstone_report.markup import NOTHING, Content, Grid, Markup, fallback, format_seconds, tag, when
from skipstone_report.reading import Entity, read_time

SCHEDULED_TIME = "skipstone.dev/scheduled-time"
#: Newest jobs of one chart.
MAX_POINTS = 60
HEIGHT = 150
_TOP, _BOTTOM = 14, HEIGHT - 34
_MARKS = {"MergeJob": "mark-merge", "LoadJob": "mark-load"}
_TICKS = (1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400)


@dataclass(frozen=True, kw_only=True)
class Landing:
    """A job that has ended: when it was due (scheduled, else created), and when it ended."""

    job: Entity
    due: datetime
    ended: datetime

    @property
    def seconds(self) -> float:
        """The lag."""
        return (self.ended - self.due).total_seconds()

    @property
    def has_failed(self) -> bool:
        """Return whether the job ended without a commit."""
        return self.job.is_so("Failed")


def find_landings(jobs: Sequence[Entity], now: datetime) -> tuple[Landing, ...]:
    """The jobs that have ended by ``now``, oldest first; the newest ``MAX_POINTS`` of them."""
    landings: list[Landing] = []
    for job in jobs:
        due, ended = _due(job), job.moment("status.completionTime")
        if due is not None and ended is not None and due <= ended <= now:
            landings.append(Landing(job=job, due=due, ended=ended))
    return tuple(sorted(landings, key=lambda landing: (landing.ended, landing.job.key))[-MAX_POINTS:])


def find_syncs(indexes: Sequence[Entity], now: datetime) -> tuple[Entity, ...]:
    """The indexes with a last sync by ``now``."""
    return tuple(index for index in indexes if (at := index.moment("status.lastSyncTime")) is not None and at <= now)


def _due(job: Entity) -> datetime | None:
    notes = job.look("metadata.annotations")
    scheduled = read_time(notes.get(SCHEDULED_TIME)) if isinstance(notes, Mapping) else None
    return scheduled or job.created


@dataclass(frozen=True, kw_only=True)
class _Scales:
    """From times to percent across, and from seconds to pixels down, by their logarithm."""

    first: datetime
    last: datetime
    low: float
    high: float

    def across(self, moment: datetime) -> str:
        span = (self.last - self.first).total_seconds()
        return f"{14 + 0.85 * percent((moment - self.first).total_seconds(), span):.2f}%"

    def down(self, seconds: float) -> float:
        part = (math.log10(max(1.0, seconds)) - self.low) / (self.high - self.low)
        return round(_BOTTOM - part * (_BOTTOM - _TOP), 1)


def draw_lag(table: str, landings: Sequence[Landing], syncs: Sequence[Entity], now: datetime) -> Markup:
    """The chart of one table; nothing without jobs that have ended."""
    if not landings:
        return NOTHING
    scales = _scales(landings, syncs)
    drawn = tag(
        "svg",
        *_axes(scales),
        *(_point(landing, scales) for landing in landings),
        *(_sync(sync, scales) for sync in syncs),
        class_="lag",
        height=HEIGHT,
        role="img",
        aria_label=f"Lag of {len(landings)} jobs of table {table}, the last one {format_seconds(landings[-1].seconds)}",
    )
    return tag("div", drawn, fallback(_grid(table, landings, syncs, now)))


def _scales(landings: Sequence[Landing], syncs: Sequence[Entity]) -> _Scales:
    first = landings[0].ended
    last = max(landings[-1].ended, *filter(None, (sync.moment("status.lastSyncTime") for sync in syncs)), first)
    if last - first < timedelta(minutes=1):
        first -= timedelta(minutes=1)
    lags = [max(1.0, landing.seconds) for landing in landings]
    low, high = math.floor(math.log10(min(lags))), math.ceil(math.log10(max(lags)) + 0.01)
    return _Scales(first=first, last=last, low=float(low), high=float(max(high, low + 1)))


def _axes(scales: _Scales) -> list[Content]:
    lines = list[Content]()
    for seconds in _TICKS:
        if scales.low <= math.log10(seconds) <= scales.high:
            y = scales.down(seconds)
            lines.append(tag("line", x1="0", x2="100%", y1=str(y), y2=str(y), class_="tick"))
            lines.append(tag("text", format_seconds(seconds), x="0", y=str(y - 2)))
    bottom = HEIGHT - 4
    lines.append(tag("text", scales.first.strftime("%m-%d %H:%M"), x="14%", y=bottom))
    lines.append(tag("text", scales.last.strftime("%m-%d %H:%M UTC"), x="100%", y=bottom, text_anchor="end"))
    return lines


def _point(landing: Landing, scales: _Scales) -> Markup:
    ended = "failed" if landing.has_failed else "ended"
    title = f"{landing.job.kind} {landing.job.name}: {ended} {format_seconds(landing.seconds)} after it was due"
    mark = "mark-failed" if landing.has_failed else _MARKS.get(landing.job.kind, "mark-load")
    use = tag("use", href=f"#{mark}", x=scales.across(landing.ended), y=str(scales.down(landing.seconds)))
    return tag("g", tag("title", title), use)


def _sync(index: Entity, scales: _Scales) -> Markup:
    at = index.moment("status.lastSyncTime")
    if at is None or not scales.first <= at <= scales.last:
        return NOTHING
    title = f"Index {index.name} was last synced {at:%Y-%m-%d %H:%M:%S} UTC"
    return tag("g", tag("title", title), tag("use", href="#mark-sync", x=scales.across(at), y=str(_BOTTOM + 10)))


def _grid(table: str, landings: Sequence[Landing], syncs: Sequence[Entity], now: datetime) -> Grid:
    rows: list[tuple[Content, ...]] = [
        (
            f"{landing.job.kind} {landing.job.name}",
            when(landing.due, now),
            when(landing.ended, now),
            format_seconds(landing.seconds),
            "Failed" if landing.has_failed else "Complete" if landing.job.is_so("Complete") else "",
        )
        for landing in reversed(landings)
    ]
    rows += [
        (f"Index {sync.name}", "", when(sync.moment("status.lastSyncTime"), now), "", "Last sync") for sync in syncs
    ]
    return Grid(caption=f"Lag of table {table}", head=("What", "Due", "Ended", "Lag", "How"), rows=rows)
