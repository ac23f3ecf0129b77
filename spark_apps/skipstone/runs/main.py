"""The frame of every application: request in, run, report out, exit code.

Called by the thin scripts. The only place that turns exceptions into reports.
"""

from __future__ import annotations

from collections.abc import Callable

from skipstone_core.jobs import JobReport, JobRequest, RunKind

from skipstone.runs.report import Reporter

Run = Callable[[JobRequest, Reporter], JobReport]


def run_app(kind: RunKind, run: Run) -> int:
    """Read the request named by SKIPSTONE_REQUEST, run, report; returns the process's exit code."""
    raise NotImplementedError(kind, run)
