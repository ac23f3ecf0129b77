"""How a run tells what it does: progress while it works, one report at its end.

Used by every run through ``run_app``. A report that cannot be delivered is a warning: the truth is in the table.
Must not decide what the outcome is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol, assert_never

from skipstone_core.contract.reports import (
    MAX_ANNOTATION_BYTES,
    MAX_TERMINATION_BYTES,
    JobReport,
    RunOutcome,
    StepReport,
    UnusedColumn,
    report_digest,
)
from skipstone_core.contract.requests import JobRequest
from skipstone_core.funnel import FunnelStage
from skipstone_core.history.commits import (
    AlreadyCommitted,
    Committed,
    Conflicted,
    Outcome,
    TxnRecord,
    Unknown,
    with_sparse_counts,
)
from skipstone_core.merging.unused import (
    MAX_UNUSED,
    describe_defaulted,
    describe_gone,
    describe_unfed,
    describe_unmatched,
    describe_unused,
)
from skipstone_core.reasons import Reason

from skipstone.scrubbing import scrubbed

PROGRESS_SECONDS = 5.0
#: Conflicts that another attempt may get past; all others end the job.
PASSING_CONFLICTS = frozenset({Reason.CONFLICTED, Reason.CLOCK_SKEWED, Reason.CATALOG_UNAVAILABLE})
_log = logging.getLogger(__name__)


class ReportSink(Protocol):
    """Where reports go."""

    def show(self, report: str) -> None:
        """Deliver a report on the way; losing one is fine. Raises OSError."""

    def finish(self, report: str, short: str) -> None:
        """Deliver the last report in full and in at most 2048 bytes. Raises OSError."""


class _Nowhere:
    def show(self, report: str) -> None:
        """Deliver nothing."""

    def finish(self, report: str, short: str) -> None:
        """Deliver nothing."""


class Reporter:
    """Collects stage times and progress of one run and delivers its reports."""

    def __init__(
        self, request: JobRequest, sink: ReportSink | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``sink`` None keeps reports to the caller. ``clock`` gives seconds."""
        self.request = request
        self._sink = sink or _Nowhere()
        self._clock = clock
        self._stages: dict[str, float] = {}
        self._shown: float | None = None
        self._counts: dict[str, int] = {}
        self._funnel: tuple[FunnelStage, ...] = ()
        self._notes: dict[str, None] = {}
        self._steps: tuple[StepReport, ...] = ()
        self._unused: tuple[UnusedColumn, ...] = ()
        self._unused_total = 0
        self._unfed: tuple[str, ...] = ()
        self._defaulted: tuple[UnusedColumn, ...] = ()
        self._rejected_path: str | None = None
        self._gone: tuple[str, ...] = ()

    def note(self, text: str) -> None:
        """Add a sentence to the message of the last report."""
        self._notes[text] = None

    def leave(
        self,
        unused: tuple[UnusedColumn, ...],
        total: int,
        unfed: tuple[str, ...] = (),
        defaulted: tuple[UnusedColumn, ...] = (),
    ) -> None:
        """Let all reports from now on name columns of the source that nothing uses, ``total`` in number.

        ``unfed``: columns of the table that the source does not have. ``defaulted``: columns in which it may have
        defaults in place of nulls. Takes the place of what was said before.
        """
        self._unused, self._unused_total, self._unfed, self._defaulted = unused, total, unfed, defaulted

    def reject(self, message: str, path: str | None) -> None:
        """Let the last report tell of records that are left out, and where they are kept."""
        if message:
            self.note(message)
        self._rejected_path = path

    def miss(self, gone: tuple[str, ...]) -> None:
        """Let all reports from now on name columns that earlier jobs of the feed had and this one has not."""
        self._gone = gone

    def ended(self, step: StepReport) -> None:
        """Let all reports from now on tell of a step that has ended, also that of a failure of a later one."""
        self._steps = (*self._steps, replace(step, message=scrubbed(step.message)))

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure a stage: its milliseconds appear in the report under ``name`` (added up when entered again)."""
        start = self._clock()
        try:
            yield
        finally:
            self.spent(name, self._clock() - start)

    def spent(self, name: str, seconds: float) -> None:
        """Take in a stage that was measured elsewhere, as ``stage`` does."""
        self._stages[name] = self._stages.get(name, 0.0) + seconds

    def learn(self, counts: Mapping[str, int], funnel: tuple[FunnelStage, ...] = ()) -> None:
        """Let all reports on the way carry these facts from now on, in place of earlier ones; the next goes at once."""
        self._counts, self._funnel = dict(counts), funnel
        self._shown = None

    def progress(self, text: str, counts: Mapping[str, int] | None = None) -> None:
        """Say how far the run is; delivered at most every five seconds."""
        _log.info("%s %s", text, dict(counts or {}))
        now = self._clock()
        if self._shown is not None and now - self._shown < PROGRESS_SECONDS:
            return
        self._shown = now
        all_counts = {**self._counts, **(counts or {})}
        report = replace(self.base(), progress=scrubbed(text), counts=all_counts, funnel=self._funnel)
        self._deliver(lambda: self._sink.show(fit_annotation(report)))

    @property
    def stages_ms(self) -> dict[str, int]:
        """Milliseconds of the stages that have ended, by name."""
        return {name: round(seconds * 1000) for name, seconds in self._stages.items()}

    def base(self) -> JobReport:
        """A report with outcome Running that carries the run's identity and the steps that have ended.

        ``dataclasses.replace`` it for the end.
        """
        return JobReport(
            run_id=self.request.run_id,
            attempt=self.request.attempt,
            kind=self.request.kind,
            outcome=RunOutcome.RUNNING,
            reason=Reason.DRIVER_RUNNING,
            stages_ms=self.stages_ms,
            steps=self._steps,
            unused_columns=self._unused,
            unused_total=self._unused_total,
            defaulted_columns=self._defaulted,
            gone_columns=self._gone[:MAX_UNUSED],
        )

    def judge(self, outcome: Outcome, counts: Mapping[str, int]) -> JobReport:
        """The report of a commit's outcome; an AlreadyCommitted one takes counts from the table's record.

        ``counts`` are put in for all other outcomes. Add ``table_states`` by ``replace``.
        """
        match outcome:
            case Committed(_, record):
                return self._committed(RunOutcome.COMMITTED, Reason.COMMITTED, replace(record, counts=dict(counts)))
            case AlreadyCommitted(record):
                record = replace(record, counts=with_sparse_counts(record.counts, counts))
                return self._committed(RunOutcome.ALREADY_COMMITTED, Reason.ALREADY_COMMITTED, record)
            case Conflicted(reason, message):
                ended = RunOutcome.CONFLICTED if reason in PASSING_CONFLICTS else RunOutcome.FAILED
                return replace(self.base(), outcome=ended, reason=reason, message=message, counts=dict(counts))
            case Unknown(message):
                return replace(self.base(), outcome=RunOutcome.UNKNOWN, reason=Reason.OUTCOME_UNKNOWN, message=message)
            case _:
                assert_never(outcome)

    def finish(self, report: JobReport) -> None:
        """Deliver the last report: termination message and annotation, or file or stdout."""
        left = (
            describe_unused(self._unused, self._unused_total),
            describe_unfed(self._unfed),
            describe_gone(self._gone),
            describe_defaulted(self._defaulted),
            describe_unmatched(*(report.counts.get(f"rowsUnmatched{kind}", 0) for kind in ("Deletes", "Updates"))),
        )
        message = " ".join(text for text in (report.message, *left, *self._notes) if text)
        last = _without_secrets(replace(report, message=message, stages_ms=self.stages_ms))
        self._deliver(lambda: self._sink.finish(*fit_report(last)))

    def _committed(self, outcome: RunOutcome, reason: Reason, record: TxnRecord) -> JobReport:
        return replace(
            self.base(),
            outcome=outcome,
            reason=reason,
            snapshot_id="0" if record.is_empty else str(record.snapshot_id),
            counts=dict(record.counts),
            rejected_path=record.rejected_path or self._rejected_path,
        )

    def _deliver(self, send: Callable[[], None]) -> None:
        try:
            send()
        except OSError as error:
            _log.warning("a report could not be delivered: %s", error)


def fit_report(report: JobReport) -> tuple[str, str]:
    """``report`` for the annotation and for the termination message, which vouches for the annotation."""
    full = fit_annotation(report)
    return full, fit_termination(replace(report, annotation_sha256=report_digest(full)))


def _without_secrets(report: JobReport) -> JobReport:
    """Scrub a report: messages of catalogs and storages may quote credentials."""
    states = tuple(
        replace(
            state,
            message=scrubbed(state.message),
            properties=replace(state.properties, refused=scrubbed(state.properties.refused)),
            indexes=tuple(replace(index, message=scrubbed(index.message)) for index in state.indexes),
        )
        for state in report.table_states
    )
    return replace(report, message=scrubbed(report.message), table_states=states)


def fit_termination(report: JobReport) -> str:
    """``report`` without table states as JSON of at most 2048 bytes; the message is cut when it must be.

    Before that, steps give up their messages.
    """
    short = replace(report, table_states=(), progress=None)
    bare = replace(short, funnel=())
    least = replace(
        bare,
        stages_ms={},
        unused_columns=(),
        defaulted_columns=(),
        gone_columns=(),
        steps=tuple(replace(step, message="") for step in bare.steps),
    )
    return _fit(
        least,
        [
            short,
            bare,
            replace(bare, stages_ms={}),
            replace(bare, stages_ms={}, unused_columns=(), defaulted_columns=(), gone_columns=()),
        ],
        MAX_TERMINATION_BYTES,
    )


def fit_annotation(report: JobReport) -> str:
    """``report`` as JSON of at most 64 KiB: what gives way first are column lists, then lists of missing segments."""
    slim = tuple(replace(state, columns={}) for state in report.table_states)
    bare = tuple(
        replace(state, field_ids={}, indexes=tuple(replace(index, missing_segments=()) for index in state.indexes))
        for state in slim
    )
    candidates = [report, replace(report, table_states=slim), replace(report, table_states=bare)]
    return _fit(replace(report, table_states=()), candidates, MAX_ANNOTATION_BYTES)


def _fit(last_resort: JobReport, candidates: list[JobReport], limit: int) -> str:
    for candidate in candidates:
        if len(text := candidate.to_json().encode()) <= limit:
            return text.decode()
    bare, message = replace(last_resort, stages_ms={}), last_resort.message
    while message and len(bare.to_json().encode()) > limit:
        message = message[: len(message) * 3 // 4]
        bare = replace(bare, message=message + "…")
    return bare.to_json()
