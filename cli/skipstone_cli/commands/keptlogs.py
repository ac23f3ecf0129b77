"""The log of a run that a kept driver has: the lines of the driver's own log that begin with the run's name.

Called by ``logs``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from skipstone_cli.cluster.api import Api
from skipstone_cli.kinds import KEPT_DRIVER_LABEL, RUN_ID_LABEL
from skipstone_cli.output.screen import Screen
from skipstone_cli.reading import JsonObject, text_of
from skipstone_cli.views.pods import has_ended, started_time

#: Seconds between two looks at the log of a run that goes on: the log of its driver never ends.
PAUSE = 1.0


def kept_driver_of(pod: JsonObject) -> str:
    """The kept driver that ran or runs ``pod``; empty for a pod of its own."""
    return text_of(pod, "metadata", "labels", KEPT_DRIVER_LABEL)


def copy_run_log(
    api: Api, screen: Screen, pod: JsonObject, *, tail: int | None, look: Callable[[], JsonObject | None] | None
) -> None:
    """Print the lines of the run that ``pod`` is. ``look``: the pod as it is now, to follow it; None: no more than now.

    Raises NotFound, Forbidden, Unreachable.
    """
    shown = 0
    now: JsonObject | None = pod
    while True:
        is_over = now is None or has_ended(now)
        lines = _lines_of(pod, api.read_log(kept_driver_of(pod), since=started_time(pod)))
        begin = max(0, len(lines) - tail) if tail is not None and shown == 0 else shown
        screen.write("".join(f"{line}\n" for line in lines[begin:]))
        shown = max(shown, len(lines))
        if look is None or is_over:
            return
        time.sleep(PAUSE)
        now = look()


def _lines_of(pod: JsonObject, pieces: Iterable[bytes]) -> list[str]:
    prefix = f"[{text_of(pod, 'metadata', 'labels', RUN_ID_LABEL)}] "
    text = b"".join(pieces).decode(errors="replace")
    return [line.removeprefix(prefix) for line in text.splitlines() if line.startswith(prefix)]
