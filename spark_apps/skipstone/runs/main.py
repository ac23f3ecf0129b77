"""The frame of every application: request in, run, report out, exit code.

Called by the thin scripts. The only place that turns exceptions into reports.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from skipstone_core.contract.reports import (
    EXIT_BAD_DATA,
    EXIT_BAD_SPEC,
    EXIT_COMMITTED,
    EXIT_UNAVAILABLE,
    EXIT_UNKNOWN,
    JobReport,
    RunOutcome,
)
from skipstone_core.contract.requests import JobRequest, RunKind
from skipstone_core.errors import (
    BadData,
    ContractViolation,
    DependencyUnavailable,
    OutcomeUnknown,
    SkipstoneError,
    UserError,
)
from skipstone_core.reasons import Reason

from skipstone.causes import find_cause, first_lines
from skipstone.peek import request_path
from skipstone.runs.reporting.eventlogs import keep_event_log
from skipstone.runs.reporting.report import Reporter, ReportSink, fit_report
from skipstone.runs.reporting.sinks import choose_sink
from skipstone.scrubbing import ScrubbingFormatter, scrubbed
from skipstone.tables.catalogs import CatalogLockedError

Run = Callable[[JobRequest, Reporter], JobReport]
#: What Linux knows of this process.
_KERNEL = Path("/proc/self/stat")
_log = logging.getLogger(__name__)

_EXITS = {
    RunOutcome.COMMITTED: EXIT_COMMITTED,
    RunOutcome.ALREADY_COMMITTED: EXIT_COMMITTED,
    RunOutcome.PLANNED: EXIT_COMMITTED,
    RunOutcome.ABSENT: EXIT_COMMITTED,
    RunOutcome.FAILED: EXIT_BAD_SPEC,
    RunOutcome.CONFLICTED: EXIT_UNAVAILABLE,
    RunOutcome.UNKNOWN: EXIT_UNKNOWN,
}


def run_app(
    kind: RunKind, run: Run, environment: Mapping[str, str] | None = None, sink: ReportSink | None = None
) -> int:
    """Read the request named by SKIPSTONE_REQUEST, run, report; returns the process's exit code."""
    known = os.environ if environment is None else environment
    _start_logging()
    used = sink or choose_sink(known)
    try:
        request = read_request(kind, known)
    except (ContractViolation, OSError, ValueError) as error:
        return _refuse(kind, str(error), used)
    reporter = Reporter(request, used)
    if environment is None:
        _tell_start(reporter)
    report, code = _guarded(run, request, reporter)
    reporter.finish(report)
    keep_event_log(request)
    return code


def _start_logging() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(ScrubbingFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # PyIceberg says for each file access what it loaded, which buries what a run says at its end.
    logging.getLogger("pyiceberg").setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)  # a library's warning may quote what it was given


def _tell_start(reporter: Reporter) -> None:
    """Note the time of interpreter and imports as the stage ``start``, in a process that is this run's own."""
    age = process_age()
    _log.info("run %s begins, %.3f s after its process", reporter.request.run_id, age)
    reporter.spent("start", age)


def process_age() -> float:
    """Seconds since this process was started, in steps of the kernel's clock (10 ms); 0.0 where no kernel tells."""
    if not _KERNEL.exists():
        return 0.0
    # Everything after the name, which may hold blanks and brackets; the start is the 22nd field of all.
    fields = _KERNEL.read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")


def read_request(kind: RunKind, environment: Mapping[str, str]) -> JobRequest:
    """The request of this process. Raises ContractViolation when it is unreadable or for another kind, OSError."""
    text = request_path(environment).read_text()
    try:
        request = JobRequest.from_json(text)
    except json.JSONDecodeError as error:
        raise ContractViolation(f"the request is not JSON: {error}") from error
    if request.kind is not kind:
        raise ContractViolation(f"the request asks for {request.kind}, this application does {kind}")
    return request


def _refuse(kind: RunKind, message: str, sink: ReportSink) -> int:
    """Report a request that cannot be read; whose run it was is not known."""
    report = JobReport(
        run_id="",
        attempt=0,
        kind=kind,
        outcome=RunOutcome.FAILED,
        reason=Reason.INVALID_SPEC,
        message=scrubbed(message),
    )
    try:
        sink.finish(*fit_report(report))
    except OSError as error:
        _log.warning("a report could not be delivered: %s", error)
    return EXIT_BAD_SPEC


def _guarded(run: Run, request: JobRequest, reporter: Reporter) -> tuple[JobReport, int]:
    try:
        report = run(request, reporter)
        return report, _EXITS[report.outcome]
    except Exception as error:  # noqa: BLE001 - the process's edge: every failure must end in a report
        _log.exception("the run failed")
        return _failure(reporter.base(), error)


def _failure(base: JobReport, error: Exception) -> tuple[JobReport, int]:
    if isinstance(error, DependencyUnavailable | OutcomeUnknown) or not isinstance(error, SkipstoneError):
        return _passing_failure(replace(base, outcome=RunOutcome.UNKNOWN), error)
    failed = replace(base, outcome=RunOutcome.FAILED, message=str(error))
    match error:
        case BadData():
            return replace(failed, reason=error.reason), EXIT_BAD_DATA
        case UserError():
            return replace(failed, reason=error.reason), EXIT_BAD_SPEC
    return replace(failed, reason=Reason.INVALID_SPEC), EXIT_BAD_SPEC


def _passing_failure(unknown: JobReport, error: Exception) -> tuple[JobReport, int]:
    """Nobody's fault: another attempt may get past it, and whether this one committed has to be looked for."""
    if isinstance(error, OutcomeUnknown):
        return replace(unknown, reason=Reason.OUTCOME_UNKNOWN, message=str(error)), EXIT_UNKNOWN
    if cause := find_cause(error):
        return replace(unknown, reason=cause.reason, message=cause.message), EXIT_UNAVAILABLE
    match error:
        case DependencyUnavailable():
            return replace(unknown, reason=error.reason, message=str(error)), EXIT_UNAVAILABLE
        case CatalogLockedError():
            return replace(unknown, reason=Reason.CATALOG_UNAVAILABLE, message=str(error)), EXIT_UNAVAILABLE
        case OSError():
            return replace(unknown, reason=Reason.STORAGE_UNAVAILABLE, message=first_lines(error)), EXIT_UNAVAILABLE
    message = f"{type(error).__name__}: {first_lines(error)}"
    return replace(unknown, reason=Reason.DRIVER_FAILED, message=message), EXIT_UNKNOWN
