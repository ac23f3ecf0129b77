"""How what a user asked for by hand ended.

Called by ``--wait``. Pure: an object in, an outcome out, or None while it has not ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from skipstone_core.ids import MAINTAIN_ANNOTATION, REINDEX_ANNOTATION

from skipstone_cli.reading import JsonObject, entries_of, field_of, is_set, number_of, text_of
from skipstone_cli.views.details import last_error

#: So much of the annotation is kept in the status.
KEPT = 256


@dataclass(frozen=True)
class Outcome:
    """The end of what was asked for, in a sentence."""

    succeeded: bool
    message: str


def asked_value(obj: JsonObject, annotation: str) -> str:
    """Return the value of the annotation of a user's request, as the status keeps it."""
    return text_of(obj, "metadata", "annotations", annotation)[:KEPT]


def find_reindex_end(obj: JsonObject, run_before: str) -> Outcome | None:
    """How the reindex that was asked for ended. ``run_before``: the run that had ended when it was asked for."""
    asked = asked_value(obj, REINDEX_ANNOTATION)
    if not asked:
        return _withdrawn(REINDEX_ANNOTATION)
    last, result = text_of(obj, "status", "lastRun", "id"), text_of(obj, "status", "lastRun", "result")
    running = isinstance(field_of(obj, "status", "currentRun"), dict)
    if text_of(obj, "status", "observedReindex") != asked or running or last in ("", run_before) or result == "Lost":
        return None
    if result != "Succeeded":
        retry = text_of(obj, "status", "retryTime")
        again = f"; the operator tries again at {retry}" if retry else ""
        return Outcome(succeeded=False, message=f"the reindex failed: {last_error(obj) or result}{again}")
    synced = text_of(obj, "status", "synced")
    if failed := number_of(obj, "status", "segments", "failed"):
        return Outcome(succeeded=False, message=f"{failed} segments could not be indexed; synced: {synced}")
    if degraded := text_of(obj, "status", "degraded"):
        return Outcome(succeeded=False, message=f"the index is {degraded}: {text_of(obj, 'status', 'degradedMessage')}")
    return Outcome(succeeded=True, message=f"the reindex ended; synced: {synced or 'unknown'}")


def find_maintain_end(obj: JsonObject, run_before: str) -> Outcome | None:
    """How the maintenance that was asked for ended. ``run_before`` as for a reindex."""
    asked = asked_value(obj, MAINTAIN_ANNOTATION)
    if not asked:
        return _withdrawn(MAINTAIN_ANNOTATION)
    last = text_of(obj, "status", "lastMaintainRun", "id")
    if text_of(obj, "status", "observedMaintain") != asked or last in ("", run_before):
        return None
    steps = [entry for entry in entries_of(obj, "status", "lastMaintenance") if text_of(entry, "run") == last]
    undone = [f"{text_of(step, 'step')}: {_why(step)}" for step in steps if not is_set(step, "done")]
    if undone:
        return Outcome(succeeded=False, message=f"not all was done: {'; '.join(undone)}")
    if text_of(obj, "status", "lastMaintainRun", "result") != "Succeeded":
        return Outcome(succeeded=False, message=f"the maintain run failed: {last_error(obj, 'lastMaintainRun')}")
    return Outcome(
        succeeded=True, message="the maintain run ended; " + ("; ".join(_step_lines(steps)) or "nothing was due")
    )


def _why(step: JsonObject) -> str:
    return ": ".join(part for part in (text_of(step, "reason"), text_of(step, "message")) if part)


def _step_lines(steps: list[JsonObject]) -> Iterator[str]:
    for step in steps:
        counts = field_of(step, "counts")
        numbers = [f"{name} {count}" for name, count in counts.items() if count] if isinstance(counts, dict) else []
        yield f"{text_of(step, 'step')}: {', '.join(numbers) or 'nothing to do'}"


def _withdrawn(annotation: str) -> Outcome:
    return Outcome(succeeded=False, message=f"somebody removed the annotation {annotation}: nothing is asked for")
