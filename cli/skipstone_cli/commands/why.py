"""``skipstone why``: the reason, the way out, what is waited for, Events and the end of the driver's log."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from skipstone_core.reasons import Reason

from skipstone_cli.cluster.api import Api
from skipstone_cli.errors import CliError, ExitCode, Forbidden, NotFound
from skipstone_cli.kinds import JOB_KINDS, TABLE, WAREHOUSE, Item, ResourceKind, Target, can_exist
from skipstone_cli.output.reports import LogTail, Report, report_json, report_lines
from skipstone_cli.output.screen import Screen
from skipstone_cli.reading import JsonObject, name_of, text_of, uid_of
from skipstone_cli.views.causes import Neighbor, Surroundings, explain
from skipstone_cli.views.details import last_error
from skipstone_cli.views.pods import attempt_of, choose_driver, describe, guess_driver, has_started
from skipstone_cli.views.standings import conditions_of
from skipstone_cli.views.tree import table_name

LOG_LINES = 10
DOCUMENT = {"apiVersion": "cli.skipstone.dev/v1", "kind": "Why"}
Value = TypeVar("Value")


@dataclass
class Rights:
    """Reads what the user may read, and keeps the rights that were lacking."""

    lacking: list[Forbidden] = field(default_factory=list)

    def attempt(self, read: Callable[[], Value]) -> Value | None:
        """Return the result of ``read``, or None without the right to it."""
        try:
            return read()
        except Forbidden as error:
            self.lacking.append(error)
            return None


def run_why(api: Api, screen: Screen, target: Target, *, as_json: bool = False) -> ExitCode:
    """Explain one object. Raises CliError."""
    obj, rights = api.get(target), Rights()
    pods = rights.attempt(lambda: api.list_drivers(uid_of(obj)))
    driver = choose_driver(target.kind, pods) if pods is not None else guess_driver(obj)
    explanation = explain(target, obj, _surroundings(api, target, obj, rights, driver))
    events = rights.attempt(lambda: api.list_events(uid_of(obj)))
    log = _read_tail(api, rights, obj, driver)
    lacking = [str(refusal.right) for refusal in rights.lacking]
    report = Report(explanation=explanation, events=events, log=log, lacking=lacking)
    if as_json:
        screen.show_json({**DOCUMENT, **_prefixed(report_json(report))})
    else:
        screen.show(report_lines(report))
    for refusal in rights.lacking:
        screen.note(f"not all is shown: {refusal}")
    return ExitCode.FAILED if explanation.standing.failed else ExitCode.FINE


def _prefixed(report: dict[str, object]) -> dict[str, object]:
    """The report with the object's kind under a name of its own: ``kind`` is that of the document."""
    return {"objectKind": report["kind"], **{name: value for name, value in report.items() if name != "kind"}}


def _surroundings(api: Api, target: Target, obj: JsonObject, rights: Rights, driver: JsonObject | None) -> Surroundings:
    """The objects that the target names, and those that may be in its way."""
    table = None
    if target.kind not in (TABLE, WAREHOUSE):
        table = _neighbor(api, rights, TABLE, table_name(target.kind, obj))
    holder = obj if target.kind is TABLE else table.obj if table is not None else None
    warehouse = None
    if holder is not None:
        warehouse = _neighbor(api, rights, WAREHOUSE, text_of(holder, "spec", "warehouseRef", "name"))
    reasons = {condition.reason for condition in conditions_of(obj).values()}
    jobs: Sequence[Item] = ()
    if Reason.WAITING_FOR_TURN in reasons and table is not None:
        jobs = _jobs_of(api, rights, table.target.name)
    slots: Sequence[JsonObject] = ()
    if Reason.WAITING_FOR_QUOTA in reasons and warehouse is not None and warehouse.obj is not None:
        uid = uid_of(warehouse.obj)
        slots = rights.attempt(lambda: api.list_runs(uid)) or ()
    servers: Sequence[JsonObject] = ()
    planning = conditions_of(obj).get("PlanningReady")
    if planning is not None and planning.reason != Reason.SERVING:
        servers = rights.attempt(lambda: api.list_servers(uid_of(obj))) or ()
    return Surroundings(warehouse=warehouse, table=table, jobs=jobs, slots=slots, servers=servers, driver=driver)


def _neighbor(api: Api, rights: Rights, kind: ResourceKind, name: str) -> Neighbor | None:
    if not name:
        return None
    target = Target(kind, name)
    if not can_exist(name):
        return Neighbor(target, None)
    try:
        obj = rights.attempt(lambda: api.get(target))
    except NotFound:
        return Neighbor(target, None)
    return Neighbor(target, obj) if obj is not None else None


def _jobs_of(api: Api, rights: Rights, table: str) -> list[Item]:
    field_path = f"spec.tableRef.name={table}"
    items: list[Item] = []
    for kind in JOB_KINDS:
        listed = rights.attempt(partial(api.list_kind, kind, field=field_path)) or ()
        items += [Item(kind, obj) for obj in listed]
    return items


def _read_tail(api: Api, rights: Rights, obj: JsonObject, driver: JsonObject | None) -> LogTail:
    """The end of the driver's log, or why there is none."""
    if driver is None:
        return _gone(obj)
    tail = LogTail(pod=name_of(driver), title=describe(driver), attempt=attempt_of(driver))
    if not has_started(driver):
        return replace(tail, note="the driver has not started")
    try:
        lines = rights.attempt(lambda: _tail_lines(api, name_of(driver)))
    except NotFound:
        return _gone(obj)
    except CliError as error:
        return replace(tail, note=f"the log cannot be read: {error}")
    return replace(tail, lines=lines or (), note="" if lines else "no lines are shown")


def _gone(obj: JsonObject) -> LogTail:
    error = last_error(obj)
    return LogTail(note="no driver pod is left" + (f"; the last run said: {error}" if error else ""))


def _tail_lines(api: Api, pod: str) -> tuple[str, ...]:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    text = "".join(decoder.decode(piece) for piece in api.read_log(pod, tail=LOG_LINES))
    return tuple(line.rstrip("\r") for line in text.split("\n") if line.strip())[-LOG_LINES:]
