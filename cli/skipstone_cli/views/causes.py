"""Why an object stands as it does, what to do about it, and what it waits for.

Called by ``why``. Pure: objects in, sentences out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from skipstone_core.reasons import Reason
from skipstone_core.remedies import find_remedy

from skipstone_cli.kinds import JOB_KINDS, KINDS, SCHEDULE, TABLE, Item, ResourceKind, Target
from skipstone_cli.reading import JsonObject, is_dry_run, is_set, name_of, number_of, text_of, texts_of, uid_of
from skipstone_cli.views.pods import find_obstacle, has_ended, has_started, is_ready
from skipstone_cli.views.standings import FINISHED, NEW, Assessment, conditions_of, is_stale, judge

_BY_KIND_NAME = {kind.name: kind for kind in KINDS}
#: Reasons of a wait for whoever writes the table.
FOR_THE_TABLE = (Reason.WAITING_FOR_TABLE, Reason.WAITING_FOR_TURN, Reason.GIVING_WAY)
MAX_LISTED = 5


@dataclass(frozen=True)
class Neighbor:
    """An object that another one names. ``obj`` None: it does not exist."""

    target: Target
    obj: JsonObject | None


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Other objects that decide how an object stands. None and empty: there is none, or it could not be read.

    ``jobs``: those of the same Table. ``slots``: live driver pods of the Warehouse. ``servers``: pods of its planning
    server. ``driver``: the newest driver pod of the object.
    """

    warehouse: Neighbor | None = None
    table: Neighbor | None = None
    jobs: Sequence[Item] = ()
    slots: Sequence[JsonObject] = ()
    servers: Sequence[JsonObject] = ()
    driver: JsonObject | None = None


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Why an object stands as it does. ``progress``: what goes on beside that, in words.

    ``left_out``: records of its source that a job did not apply, and what to do about them.
    """

    target: Target
    namespace: str
    standing: Assessment
    meaning: str
    remedy: str
    progress: str
    stale: bool
    waits: tuple[str, ...]
    left_out: str = ""


def explain(target: Target, obj: JsonObject, around: Surroundings) -> Explanation:
    """Why ``obj`` stands as it does."""
    standing = judge(target.kind, obj)
    progress = conditions_of(obj).get("Progressing")
    beside = progress is not None and progress.reason not in (standing.reason, Reason.IDLE)
    return Explanation(
        target=target,
        namespace=text_of(obj, "metadata", "namespace"),
        standing=standing,
        meaning=_meaning(standing.reason),
        remedy=_remedy(standing),
        progress=f"{progress.reason}: {progress.message}".removesuffix(": ") if progress and beside else "",
        stale=is_stale(obj) and standing.message != NEW,
        waits=tuple(dict.fromkeys(find_waits(target, obj, around))),
        left_out=_left_out(obj) if target.kind in JOB_KINDS else "",
    )


def _left_out(obj: JsonObject) -> str:
    rejected = number_of(obj, "status", "rowsRejected") or number_of(obj, "status", "rows", "rejected") or 0
    waiting = number_of(obj, "status", "rows", "waiting") or 0
    if not rejected + waiting:
        return ""
    counts = f"{rejected} rows that do not fit" + (f", {waiting} that wait for a missing change" if waiting else "")
    path = text_of(obj, "status", "rejectedPath")
    where = f"{path} of the Warehouse has them, with file, line and reason" if path else "they are not kept"
    is_feed = bool(text_of(obj, "spec", "source", "changeFormat"))
    remedy = "merge the files again with source.onlyRejected" if is_feed else "apply them by another job"
    return f"{counts}: {where}. Set or correct what the reason names, then {remedy}."


def _meaning(reason: str) -> str:
    try:
        return Reason(reason).sentence
    except ValueError:
        return ""


def _remedy(standing: Assessment) -> str:
    if standing.message == NEW:
        return "Wait a moment; if it stays so, check that the operator runs and watches this namespace."
    return find_remedy(standing.reason)


def find_waits(target: Target, obj: JsonObject, around: Surroundings) -> Iterator[str]:
    """Yield a sentence for each event that the object waits for."""
    if target.kind in JOB_KINDS and judge(target.kind, obj).state in FINISHED:
        return
    if is_set(obj, "spec", "suspend"):
        yield "spec.suspend is true"
    for neighbor in (around.warehouse, around.table):
        if neighbor is not None:
            yield from _unready(neighbor)
    yield from _others(target, obj, around)
    yield from _listed(list(_servers(around.servers)))
    yield from _own_times(target.kind, obj)
    if around.driver is not None and not has_started(around.driver) and not has_ended(around.driver):
        obstacle = find_obstacle(around.driver) or "it has not started"
        yield f"driver pod {name_of(around.driver)}: {obstacle}"


def _others(target: Target, obj: JsonObject, around: Surroundings) -> Iterator[str]:
    """Who is in the way: the writer of the table, older jobs, runs that fill the Warehouse."""
    reasons = {
        condition.reason
        for condition in conditions_of(obj).values()
        if condition.type in ("Progressing", "Ready", "Healthy")
    }
    if reasons & set(FOR_THE_TABLE):
        yield from _writer(obj, around.table if target.kind is not TABLE else Neighbor(target, obj))
    if Reason.WAITING_FOR_TURN in reasons:
        yield from _older(obj, around.jobs)
    if Reason.WAITING_FOR_QUOTA in reasons:
        yield from _slots(around)


def _unready(neighbor: Neighbor) -> Iterator[str]:
    if neighbor.obj is None:
        yield f"{neighbor.target} does not exist"
        return
    ready = conditions_of(neighbor.obj).get("Ready")
    if ready is None or ready.status != "True":
        text = f"{ready.reason}: {ready.message}".removesuffix(": ") if ready is not None else NEW
        yield f"{neighbor.target} is not ready: {text}"


def _writer(obj: JsonObject, table: Neighbor | None) -> Iterator[str]:
    if table is None or table.obj is None:
        return
    writer = ("status", "writer")
    name, uid = text_of(table.obj, *writer, "name"), text_of(table.obj, *writer, "uid")
    if not name or uid == uid_of(obj):
        return
    kind = _BY_KIND_NAME.get(text_of(table.obj, *writer, "kind"))
    who = f"{kind.short if kind else text_of(table.obj, *writer, 'kind')}/{name}"
    since = text_of(table.obj, *writer, "since")
    yield f"{who} writes {table.target}" + (f" since {since}" if since else "")


def _older(obj: JsonObject, jobs: Sequence[Item]) -> Iterator[str]:
    mine = _turn(obj)
    older = sorted(
        (
            (_turn(job.obj), f"{job.kind.short}/{name_of(job.obj)}")
            for job in jobs
            if _turn(job.obj) < mine and judge(job.kind, job.obj).state not in FINISHED and not is_dry_run(job.obj)
        ),
    )
    yield from _listed([f"{name} is older and goes first" for _, name in older])


def _turn(job: JsonObject) -> tuple[str, str]:
    return text_of(job, "metadata", "creationTimestamp"), name_of(job)


def _slots(around: Surroundings) -> Iterator[str]:
    if around.warehouse is not None and around.warehouse.obj is not None:
        limit = number_of(around.warehouse.obj, "spec", "maxConcurrentRuns")
        if limit is not None:
            yield f"spec.maxConcurrentRuns of {around.warehouse.target} is {limit}"
    live = [pod for pod in around.slots if not has_ended(pod)]
    yield from _listed([f"driver pod {name_of(pod)} runs" for pod in live])


def _servers(pods: Sequence[JsonObject]) -> Iterator[str]:
    for pod in pods:
        if not is_ready(pod) and not text_of(pod, "metadata", "deletionTimestamp"):
            obstacle = find_obstacle(pod) or "it has started and is not ready; its log says why"
            yield f"pod {name_of(pod)} of the planning server: {obstacle}"


def _own_times(kind: ResourceKind, obj: JsonObject) -> Iterator[str]:
    """Times before which nothing happens."""
    healthy = conditions_of(obj).get("Healthy")
    if healthy is not None and healthy.reason == Reason.WINDOW_CLOSED:
        yield healthy.message or "spec.maintenance.window is closed"
    for path, what in (
        (("status", "retryTime"), "the next attempt starts"),
        (("status", "maintainRetryTime"), "the next maintain run starts"),
        (("status", "confirm", "nextTime"), "the next confirm run starts"),
        (("status", "planning", "retryTime"), "the refused object of the planning server is tried again"),
    ):
        if time := text_of(obj, *path):
            yield f"{what} at {time} or later"
    if kind is SCHEDULE:
        yield from _listed([f"mj/{name} has not ended" for name in texts_of(obj, "status", "activeJobs")])
        if time := text_of(obj, "status", "nextScheduleTime"):
            yield f"the next MergeJob is created at {time}"


def _listed(sentences: Sequence[str]) -> Iterator[str]:
    yield from sentences[:MAX_LISTED]
    if (more := len(sentences) - MAX_LISTED) > 0:
        yield f"{more} more like these"
