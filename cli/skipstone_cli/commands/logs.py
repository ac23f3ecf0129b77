"""``skipstone logs``: the log of a driver, or what the run said when its pod is gone."""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from skipstone_cli.cluster.api import Api
from skipstone_cli.commands.keptlogs import copy_run_log, kept_driver_of
from skipstone_cli.errors import CliError, ExitCode, Forbidden, NotFound
from skipstone_cli.kinds import Target
from skipstone_cli.output.screen import Screen
from skipstone_cli.reading import JsonObject, entries_of, field_of, name_of, number_of, text_of, uid_of
from skipstone_cli.views.pods import (
    ENDED,
    attempt_of,
    choose_driver,
    describe,
    find_obstacle,
    guess_driver,
    has_ended,
    has_started,
    is_awaited,
)
from skipstone_cli.views.standings import conditions_of

#: Seconds between two looks at a pod that has not started.
PAUSE = 1.0


@dataclass(frozen=True)
class LogQuery:
    """Which log. ``attempt``, ``tail`` None: the latest, all lines."""

    attempt: int | None = None
    tail: int | None = None
    follow: bool = False


def run_logs(api: Api, screen: Screen, target: Target, query: LogQuery) -> ExitCode:
    """Print the log of the latest attempt, or of that number. Raises CliError."""
    obj = api.get(target)
    driver = _find(api, target, obj, query.attempt)
    last = ""
    while query.follow and query.attempt is None and is_awaited(target.kind, obj, driver):
        if (message := f"{target} has no driver yet{_progress(obj)}") != last:
            screen.note(message)
        last = message
        time.sleep(PAUSE)
        obj = api.get(target)
        driver = _find(api, target, obj, query.attempt)
    if driver is not None:
        driver = _started(screen, driver, lambda: _find(api, target, obj, query.attempt), follow=query.follow)
    if driver is None:
        return _show_report(screen, target, obj, query.attempt)
    keeper = kept_driver_of(driver)
    screen.note(f"log of driver pod {describe(driver)}{f', which kept driver {keeper} runs' if keeper else ''}")
    try:
        if keeper:
            look = partial(_find, api, target, obj, attempt_of(driver)) if query.follow else None
            copy_run_log(api, screen, driver, tail=query.tail, look=look)
        else:
            copy_log(api, screen, name_of(driver), tail=query.tail, follow=query.follow)
    except NotFound:
        return _show_report(screen, target, api.get(target), attempt_of(driver))
    return ExitCode.FINE


def _find(api: Api, target: Target, obj: JsonObject, attempt: int | None) -> JsonObject | None:
    """The driver pod, or the one that the status names where pods may not be listed."""
    try:
        return choose_driver(target.kind, api.list_drivers(uid_of(obj)), attempt)
    except Forbidden:
        return guess_driver(obj, attempt)


def _progress(obj: JsonObject) -> str:
    progress = conditions_of(obj).get("Progressing")
    return f": {progress.reason}: {progress.message}".removesuffix(": ") if progress is not None else ""


def _started(
    screen: Screen, driver: JsonObject, find: Callable[[], JsonObject | None], *, follow: bool
) -> JsonObject | None:
    """The driver once it has a log; None when it is gone meanwhile. Raises CliError unless it is waited for."""
    last = ""
    pod: JsonObject | None = driver
    while pod is not None and not has_started(pod) and not has_ended(pod):
        message = f"driver pod {describe(pod)} has not started: {find_obstacle(pod) or text_of(pod, 'status', 'phase')}"
        if not follow:
            raise CliError(f"{message}; use --follow to wait for it")
        if message != last:
            screen.note(message)
        last = message
        time.sleep(PAUSE)
        pod = find()
    return pod


def copy_log(api: Api, screen: Screen, pod: str, *, tail: int | None, follow: bool) -> None:
    """Print the log of a pod as it comes. Raises NotFound, Forbidden, Unreachable."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    last = "\n"
    for piece in api.read_log(pod, tail=tail, follow=follow):
        if text := decoder.decode(piece).replace("\r\n", "\n"):
            screen.write(text)
            last = text[-1]
    screen.write(decoder.decode(b"", final=True) + ("" if last == "\n" else "\n"))


def _show_report(screen: Screen, target: Target, obj: JsonObject, attempt: int | None) -> ExitCode:
    """Show the report of the run itself, which outlives its pod."""
    which = f"attempt {attempt} of {target}" if attempt is not None else str(target)
    runs = [run for name in ENDED if isinstance(run := field_of(obj, "status", name), dict)]
    fitting = [run for run in runs if attempt is None or number_of(run, "attempt") == attempt]
    newest = max(fitting, key=lambda run: text_of(run, "completionTime"), default=None)
    if newest is None:
        more = "" if attempt is None else "; leave out --attempt for the latest one"
        raise NotFound(f"no driver pod of {which} exists, and its status holds no report of it{more}")
    screen.note(f"the driver pod of {which} is gone; run {text_of(newest, 'id')} said at its end:")
    ended = " ".join(part for name in ("result", "reason") if (part := text_of(newest, name)))
    screen.write(f"{ended}: {text_of(newest, 'message')}\n")
    for entry in entries_of(obj, "status", "conditions"):
        if text_of(entry, "type") == "Failed" and text_of(entry, "status") == "True" and attempt is None:
            screen.write(f"Failed {text_of(entry, 'reason')}: {text_of(entry, 'message')}\n")
    return ExitCode.FINE
