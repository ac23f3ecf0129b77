"""The window in which maintain runs may start and run: whether it is open, and when that changes.

Used by the decider of maintain runs. Reads no clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from skipstone_core.errors import BadSpec
from skipstone_core.reasons import Reason

from skipstone_operator.resources.maintenance.spec import Window
from skipstone_operator.resources.rules.amounts import read_seconds
from skipstone_operator.resources.rules.bounds import find_violations
from skipstone_operator.worlds.cron import read_cron
from skipstone_operator.worlds.subjects import Finding

PATH = "spec.maintenance.window"


@dataclass(frozen=True)
class Opening:
    """The window at one moment: ``closes`` None: it is closed; ``opens``: when it opens next, None: never again."""

    closes: datetime | None
    opens: datetime | None


def find_opening(window: Window, now: datetime) -> Opening | Finding:
    """Return the opening of the window at ``now``, or why the window cannot be understood."""
    if (violation := next(find_violations(window, PATH), None)) is not None:
        return Finding(Reason.INVALID_SPEC, f"{violation.field}: {violation.message}")
    try:
        cron = read_cron(window.schedule, window.time_zone)
    except BadSpec as error:
        # Which field is wrong is known by its name in a schedule's own spec.
        return Finding(error.reason, str(error).replace("spec.", f"{PATH}.", 1))
    duration = timedelta(seconds=read_seconds(window.duration))
    last = cron.latest(now - duration, now)
    return Opening(closes=None if last is None else last + duration, opens=cron.next_after(now))
