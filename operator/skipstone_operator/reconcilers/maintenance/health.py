"""The health of a table as its status tells it, and as the core judges it.

Called by the status of the Table when a run told of it. Pure.
"""

from __future__ import annotations

from datetime import UTC, datetime

from skipstone_core.codec import decode, encode
from skipstone_core.maintenance.health import TableHealth

from skipstone_operator.conditions import format_time
from skipstone_operator.resources.maintenance.status import Health
from skipstone_operator.worlds.times import parse_time

_MOMENTS = {"oldestSnapshotMs": "oldestSnapshotTime", "nextExpiryMs": "nextExpiryTime"}
#: Milliseconds of the year 9999, which no datetime goes beyond.
_LATEST_MS = 253_000_000_000_000


def show(health: TableHealth, time: datetime) -> Health:
    """What ``status.health`` says of counts that a run made of a head that it read at ``time``."""
    fields = encode(health)
    moments = {name: _moment(fields.pop(key, None)) for key, name in _MOMENTS.items()}
    # A map with more entries than the schema takes would make the API server refuse the whole status.
    ages = dict(sorted(health.bytes_by_age.items())[:16])
    return decode(Health, {**fields, **moments, "bytesByAge": ages, "time": format_time(time)})


def count(shown: Health | None) -> TableHealth | None:
    """The counts behind ``status.health``, its moments to the second."""
    if shown is None:
        return None
    fields = encode(shown)
    fields.pop("time", None)
    moments = {key: _milliseconds(fields.pop(name, None)) for key, name in _MOMENTS.items()}
    return decode(TableHealth, {**fields, **moments})


def _moment(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    return format_time(datetime.fromtimestamp(min(milliseconds, _LATEST_MS) / 1000, UTC))


def _milliseconds(text: str | None) -> int | None:
    moment = parse_time(text)
    return None if moment is None else round(moment.timestamp() * 1000)
