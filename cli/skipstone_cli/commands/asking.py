"""``skipstone reindex`` and ``skipstone maintain``: ask the operator by an annotation, and wait for the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from skipstone_core.ids import MAINTAIN_ANNOTATION, REINDEX_ANNOTATION
from skipstone_core.indexing.asked import reindex_mark
from skipstone_core.maintenance.asked import maintain_request
from skipstone_core.maintenance.policies import MaintenanceStep

from skipstone_cli.cluster.api import Api
from skipstone_cli.commands.waiting import Waiter
from skipstone_cli.errors import CliError, ExitCode, OutcomeFailed
from skipstone_cli.kinds import Target
from skipstone_cli.output.screen import Screen
from skipstone_cli.reading import JsonObject, field_of, is_set, text_of
from skipstone_cli.views.outcomes import Outcome, find_maintain_end, find_reindex_end
from skipstone_cli.views.standings import is_deleting

#: The part of spec.maintenance by which a Table asks for a step.
PART_OF = {
    MaintenanceStep.RESOLVE_EQUALITY_DELETES: "resolveEqualityDeletes",
    MaintenanceStep.COMPACTION: "compaction",
    MaintenanceStep.MANIFESTS: "compaction",
    MaintenanceStep.SNAPSHOTS: "snapshots",
    MaintenanceStep.ORPHAN_FILES: "orphanFiles",
}


@dataclass(frozen=True)
class Waiting:
    """Whether to wait for the end, and for how many seconds; None is without bound."""

    wanted: bool
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request: the annotation, its value, and a function that finds its end in the object."""

    target: Target
    annotation: str
    value: str
    last_run: str
    find_end: Callable[[JsonObject, str], Outcome | None]


def run_reindex(api: Api, screen: Screen, target: Target, waiting: Waiting, *, full: bool = False) -> ExitCode:
    """Ask for a reindex, or for a full one. Raises CliError."""
    request = Request(
        target=target,
        annotation=REINDEX_ANNOTATION,
        value=reindex_mark(_mark(), full=full),
        last_run="lastRun",
        find_end=find_reindex_end,
    )
    return _ask(api, screen, request, api.get(target), waiting)


def run_maintain(
    api: Api, screen: Screen, target: Target, steps: Sequence[MaintenanceStep], waiting: Waiting
) -> ExitCode:
    """Ask for maintenance of a Table, all that its spec asks for or only ``steps``. Raises CliError."""
    table = api.get(target)
    _require_parts(target, table, steps)
    request = Request(
        target=target,
        annotation=MAINTAIN_ANNOTATION,
        value=maintain_request(_mark(), steps),
        last_run="lastMaintainRun",
        find_end=find_maintain_end,
    )
    return _ask(api, screen, request, table, waiting)


def _require_parts(target: Target, table: JsonObject, steps: Sequence[MaintenanceStep]) -> None:
    """Raise CliError for a step that the Table does not ask for: the operator would never do it."""
    wanted = steps or tuple(MaintenanceStep)
    present = [step for step in wanted if isinstance(field_of(table, "spec", "maintenance", PART_OF[step]), dict)]
    if not present:
        raise CliError(f"{target} asks for no maintenance of this kind: add {_parts(wanted)} to spec.maintenance first")
    if steps and (lacking := [step for step in steps if step not in present]):
        raise CliError(
            f"{target} does not ask for {', '.join(lacking)}: add {_parts(lacking)} to spec.maintenance first"
        )


def _parts(steps: Sequence[MaintenanceStep]) -> str:
    return " or ".join(dict.fromkeys(PART_OF[step] for step in steps))


def _mark() -> str:
    """A value that no annotation had before."""
    return str(time.time_ns())


def _ask(api: Api, screen: Screen, request: Request, before: JsonObject, waiting: Waiting) -> ExitCode:
    if is_deleting(before):
        raise CliError(f"{request.target} is being deleted: nothing more is done for it")
    asked = api.annotate(request.target, request.annotation, request.value)
    screen.note(f"asked for by {request.annotation}={request.value} on {request.target}")
    if is_set(asked, "spec", "suspend"):
        screen.note("spec.suspend is true: nothing starts until it is false")
    if not waiting.wanted:
        return ExitCode.FINE
    run_before = text_of(asked, "status", request.last_run, "id")
    waiter = Waiter(api, screen, request.target, waiting.seconds)
    outcome = waiter.wait(asked, lambda obj: request.find_end(obj, run_before))
    if not outcome.succeeded:
        raise OutcomeFailed(f"{request.target}: {outcome.message}")
    screen.write(f"{request.target}: {outcome.message}\n")
    return ExitCode.FINE
