"""Statuses that report what was seen of an existing pod: a pass over cached objects may write them.

A cache can be late, but it makes nothing up: a pod that it holds was created, one that it holds as ended has ended,
and neither is ever undone. The resourceVersion of the status proves that the object is the one that was judged. What
follows from the absence of a pod, what starts or stops one, what confirm runs say, and what a status knew better
already is decided on what the API server has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import COMPLETE, PROGRESSING
from skipstone_operator.reconcilers.passes.showing import SHOWN, changes, is_saying, promises
from skipstone_operator.resources.common import RunResult
from skipstone_operator.resources.kinds import TABLE
from skipstone_operator.worlds.steps import PutStatus, Step
from skipstone_operator.worlds.subjects import Raw

#: How far a run is, as its pod shows.
UNDERWAY = frozenset({"launchTime", "runningTime", "progress"})
#: What a status says of the pod of its current run: that it was seen, and what a running merge found so far.
FOLLOWED = SHOWN | {"currentRun", "launched", "startTime", "files", "pruned", "funnel"}
#: What a run that ended counted in the table. Whose the table is and what its columns are is not among it.
COUNTED = frozenset(
    {"snapshotId", "sequenceNumber", "observedTime", "metadata", "rows", "files", "bytes", "segments", "properties"}
) | {"indexes", "indexesInSync", "health"}
#: What a pod waits for that has not started.
UNSTARTED = frozenset(
    {
        Reason.DRIVER_PENDING,
        Reason.UNSCHEDULABLE,
        Reason.VOLUME_UNAVAILABLE,
        Reason.IMAGE_PULL_FAILED,
        Reason.CONTAINER_CONFIG_ERROR,
    }
)
_MAIN = (RunKind.LOAD.value, RunKind.MERGE.value)


def is_cache_safe(step: Step) -> bool:
    """True if the step only reports what was seen, so that a late cache is enough for it."""
    if not isinstance(step, PutStatus):
        return False
    old = _part(step.object, "status")
    if _goes_back(old, step.status):
        return False
    return is_saying(step) or _follows(old, step.status) or _completes(old, step.status) or _counts(step, old)


def _goes_back(old: Raw, new: Raw) -> bool:
    """Return whether the pod of the run shows less than the status knew of it already."""
    before, after = _part(old, "currentRun"), _part(new, "currentRun")
    if not before or before.get("id") != after.get("id"):
        return False
    silent = bool(before.get("progress")) and not after.get("progress")
    return silent or (bool(before.get("runningTime")) and _progressing(new) in UNSTARTED)


def _progressing(status: Raw) -> object:
    listed: Iterable[object] = status.get("conditions") or ()
    conditions = [each for each in listed if isinstance(each, Mapping)]
    return next((each.get("reason") for each in conditions if each.get("type") == PROGRESSING), None)


def _follows(old: Raw, new: Raw) -> bool:
    """The run of the status got on."""
    before, after = _part(old, "currentRun"), _part(new, "currentRun")
    same = bool(after.get("id")) and changes(before, after) <= UNDERWAY
    return same and bool(after.get("launchTime")) and changes(old, new) <= FOLLOWED and promises(new) <= promises(old)


def _completes(old: Raw, new: Raw) -> bool:
    """The attempt of a job committed, as its own driver says."""
    run, last = _part(old, "currentRun"), _part(new, "lastRun")
    ended = bool(run.get("id")) and run.get("id") == last.get("id") and not new.get("currentRun")
    committed = run.get("kind") in _MAIN and last.get("result") == RunResult.SUCCEEDED.value
    return ended and committed and {type_ for type_, _ in promises(new)} == {COMPLETE}


def _counts(step: PutStatus, old: Raw) -> bool:
    """A run told of a table, and who wrote it writes on or leaves it: nobody takes the turn."""
    new = step.status
    writer = _part(new, "writer").get("uid")
    stays = writer is None or writer == _part(old, "writer").get("uid")
    is_shown = changes(old, new) <= SHOWN | COUNTED | {"writer"}
    return step.object.get("kind") == TABLE.name and stays and is_shown and promises(new) == promises(old)


def _part(of: Raw, name: str) -> Raw:
    # Users write statuses too.
    part = of.get(name)
    return part if isinstance(part, Mapping) else {}
