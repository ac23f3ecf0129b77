"""How a run tells what it does: progress while it works, one report at its end.

Used by every run through ``run_app``. A report that cannot be delivered is a warning: the truth is in the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from skipstone_core.commits import Outcome
from skipstone_core.jobs import JobReport, JobRequest


class Reporter:
    """Collects stage times and progress of one run and delivers its reports."""

    def __init__(self, request: JobRequest) -> None:
        """Deliver to the pod this process runs in, or to a file or stdout outside Kubernetes."""
        self.request = request

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure a stage: its milliseconds appear in the report under ``name`` (added up when entered again)."""
        yield

    def progress(self, text: str, counts: Mapping[str, int] | None = None) -> None:
        """Say how far the run is; delivered at most every five seconds."""

    def base(self) -> JobReport:
        """A report with outcome Running that carries the run's identity; ``dataclasses.replace`` it for the end."""
        raise NotImplementedError

    def judge(self, outcome: Outcome, counts: Mapping[str, int]) -> JobReport:
        """The report of a commit's outcome; an AlreadyCommitted one takes counts from the table's record.

        ``counts`` are put in for Committed and Conflicted. Add ``rejected_path`` and ``table_states`` by ``replace``.
        """
        raise NotImplementedError(outcome, counts)

    def finish(self, report: JobReport) -> None:
        """Deliver the last report: termination message and annotation, or file or stdout."""
        raise NotImplementedError(report)
