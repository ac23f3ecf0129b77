"""What a status holds of one kind of run, and what the end of a run makes of it: the policy of retries, all of it.

Called by the life cycle, and by the deciders when a run of theirs ended. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import datetime

from skipstone_core.contract.reports import JobReport
from skipstone_core.contract.requests import RunKind

from skipstone_operator.conditions import format_time, shorten
from skipstone_operator.ports import Timing
from skipstone_operator.reconcilers.runs.statuses import T
from skipstone_operator.resources.common import CurrentRun, LastRun, RunResult
from skipstone_operator.worlds.runs import REQUESTED_STOPS, Ending, Verdict
from skipstone_operator.worlds.times import add_seconds, backoff, seconds_until

#: Seconds: the longest back-off after a maintain run. Each costs a driver with Spark.
MAINTAIN_CAP = 3600.0
#: Seconds after an observe run in which tables and indexes take over what it found.
SETTLE = 10.0
_RESULTS = {
    Ending.SUCCEEDED: RunResult.SUCCEEDED,
    Ending.REFUSED: RunResult.FAILED,
    Ending.ABSENT: RunResult.SUCCEEDED,
    Ending.UNKNOWN: RunResult.UNKNOWN,
    Ending.LOST: RunResult.LOST,
}


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What is known of the runs of one kind and owner.

    ``failures``: ends in a row that count; ``losses``: ends that do not. ``retry_time``: not before this the next run
    starts. ``refused_hash``: what the runs were given that are not tried again; empty for none.
    """

    current: CurrentRun | None = None
    last: LastRun | None = None
    failures: int = 0
    losses: int = 0
    retry_time: str | None = None
    refused_hash: str = ""

    def wait(self, now: datetime) -> float:
        """Seconds until the next run may start."""
        return seconds_until(self.retry_time, now)

    def attempt_at(self, inputs_hash: str) -> int:
        """The number of the last attempt at these inputs; 0 for none."""
        return self.last.attempt if self.last is not None and self.last.inputs_hash == inputs_hash else 0


@dataclass(frozen=True, kw_only=True)
class RecordFields:
    """Under which names a status holds a record; an empty name says that it does not hold that part."""

    current: str = "current_run"
    last: str = "last_run"
    failures: str = "failed_attempts"
    losses: str = ""
    retry_time: str = "retry_time"
    refused_hash: str = ""

    def read(self, status: object) -> RunRecord:
        """The record that ``status`` holds."""
        return RunRecord(**{part: getattr(status, name) for part, name in self._names().items()})

    def lay(self, status: T, record: RunRecord) -> T:
        """``status`` with all of ``record`` that it has room for."""
        return self._lay(status, record, *self._names())

    def lay_current(self, status: T, current: CurrentRun | None) -> T:
        """``status`` with this current run, or without any."""
        return self._lay(status, RunRecord(current=current), "current")

    def lay_due(self, status: T) -> T:
        """``status`` with a run that waits no longer."""
        return self._lay(status, RunRecord(), "retry_time")

    def _lay(self, status: T, record: RunRecord, *parts: str) -> T:
        names = self._names()
        return replace(status, **{names[part]: getattr(record, part) for part in parts if part in names})

    def _names(self) -> dict[str, str]:
        """The name of each part of a record that the status has."""
        names = {part.name: str(getattr(self, part.name)) for part in fields(self)}
        return {part: name for part, name in names.items() if name}


@dataclass(frozen=True, kw_only=True)
class RetryRule:
    """How often and how long after each other the runs of one kind are tried; times in seconds.

    The first failure waits ``base``, each further one ``factor`` times as long, up to ``cap``. ``settle``: the least
    wait after any end. ``counts_lost``: a run that the cluster lost is a failure too. ``limit``: how many failures are
    followed by another attempt; None is any number.
    """

    base: float
    cap: float
    factor: float = 2.0
    settle: float = 0.0
    counts_lost: bool = False
    limit: int | None = None

    def delay(self, failures: int) -> float:
        """Seconds to wait after the ``failures``-th failure in a row."""
        return max(self.settle, backoff(failures, base=self.base, cap=self.cap, factor=self.factor))


def find_rule(kind: RunKind, timing: Timing) -> RetryRule:
    """The rule for runs of this kind."""
    rule = RetryRule(base=timing.backoff_base, cap=timing.backoff_cap)
    match kind:
        case RunKind.CHECK:
            return replace(rule, cap=timing.check_retry_cap, counts_lost=True)
        case RunKind.OBSERVE:
            return replace(rule, cap=timing.check_retry_cap, counts_lost=True, settle=SETTLE)
        case RunKind.DROP | RunKind.CONFIRM:
            return replace(rule, counts_lost=True)
        case RunKind.MAINTAIN:
            return replace(rule, cap=MAINTAIN_CAP)
        case _:
            return rule


@dataclass(frozen=True, kw_only=True)
class RunEnd:
    """The end of ``current``. ``verdict``: how it is told; ``ending``: how it counts.

    ``inputs_hash``: what is remembered as given up should it be refused; empty: a refusal is tried again.
    """

    current: CurrentRun
    verdict: Verdict
    ending: Ending
    inputs_hash: str = ""


def after(record: RunRecord, end: RunEnd, rule: RetryRule, now: datetime) -> RunRecord:
    """The record once a run of it ended: what failed is tried again after a back-off, or given up.

    A run that was stopped on request may follow at once, one that was lost waits and does not count.
    """
    ended = replace(record, current=None, last=record_end(end.current, end.verdict, now), retry_time=None)
    if end.ending is Ending.SUCCEEDED:
        return replace(ended, failures=0, refused_hash="", retry_time=_later(now, rule.settle))
    if end.ending is Ending.REFUSED and end.inputs_hash:
        return replace(ended, failures=0, refused_hash=end.inputs_hash)
    if end.ending is Ending.LOST and not rule.counts_lost:
        losses, stopped = record.losses + 1, end.current.stop_reason in REQUESTED_STOPS
        return replace(ended, losses=losses, retry_time=None if stopped else _later(now, rule.delay(losses)))
    failures = record.failures + 1
    if rule.limit is not None and failures > rule.limit:
        return replace(ended, failures=failures, refused_hash=end.inputs_hash or end.current.inputs_hash)
    return replace(ended, failures=failures, retry_time=_later(now, rule.delay(failures)))


def _later(now: datetime, seconds: float) -> str | None:
    return format_time(add_seconds(now, seconds)) if seconds > 0 else None


def record_end(current: CurrentRun, verdict: Verdict, now: datetime) -> LastRun:
    """The run that ended last, as a status holds it."""
    report = verdict.report
    return LastRun(
        id=current.id,
        kind=current.kind,
        attempt=current.attempt,
        result=_RESULTS[verdict.ending],
        reason=verdict.reason.value,
        message=shorten(verdict.message),
        inputs_hash=current.inputs_hash,
        generation=current.generation,
        snapshot_id=report.snapshot_id if report else "",
        start_time=current.start_time,
        completion_time=format_time(now),
        counts=_bounded(report, "counts"),
        stages_ms=_bounded(report, "stages_ms"),
    )


def _bounded(report: JobReport | None, name: str) -> dict[str, int]:
    """A map of numbers in the report, at most as many as the schema takes."""
    numbers: dict[str, int] = dict(getattr(report, name)) if report is not None else {}
    return dict(sorted(numbers.items())[:32])


def last_end(last: LastRun | None) -> str:
    """Why the last run is followed by another."""
    return f"the last run ended with {last.reason}: {last.message}" if last is not None else "the last run failed"
