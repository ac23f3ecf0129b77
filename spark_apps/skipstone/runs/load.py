"""The load run: files in, one segment out, committed at most once.

Called by ``spark_apps/load.py`` through ``run_app``. Orders the steps; looks for its transaction before it starts a JVM.
"""

from __future__ import annotations

from skipstone_core.jobs import JobReport, JobRequest

from skipstone.runs.report import Reporter


def run_load(request: JobRequest, reporter: Reporter) -> JobReport:
    """Append the rows of ``request.load.source`` to ``request.table``; raises UserError, OutcomeUnknown never."""
    raise NotImplementedError(request, reporter)
