"""The time zone of a job, in which its conditions place times without offset. Called by what parses conditions."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from skipstone_core.errors import BadSpec
from skipstone_core.reasons import Reason


def find_zone(name: str) -> ZoneInfo:
    """The time zone called ``name``. Raises BadSpec for one that is not known."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        message = f"{name!r} is not a time zone of the IANA database, such as Europe/Madrid"
        raise BadSpec(Reason.INVALID_SPEC, message, field="spec.timeZone") from None
