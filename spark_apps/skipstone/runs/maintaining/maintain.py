"""The maintain run: the steps that are due, in their order, each with a report of its own.

Called by ``apps/maintain.py`` through ``run_app``. A step that fails does not keep the next one from running, and
when one ends the run, those before it are told. Killed at any point, the run loses only what it did not commit: nothing
is remembered of it but what is in the table.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace

from skipstone_core.contract.reports import JobReport, RunOutcome, StepReport
from skipstone_core.contract.requests import JobRequest
from skipstone_core.errors import BadSpec, DependencyUnavailable, SkipstoneError, UserError
from skipstone_core.maintenance.policies import MaintenanceStep
from skipstone_core.reasons import Reason

from skipstone.causes import find_cause, first_lines
from skipstone.runs.maintaining import upkeep
from skipstone.runs.maintaining.compacting import compact
from skipstone.runs.maintaining.resolving import resolve
from skipstone.runs.maintaining.site import GivingWay, MaintainSite, Step
from skipstone.runs.reporting.report import Reporter
from skipstone.runs.reporting.states import report_state, reported_with
from skipstone.tables.catalogs import open_catalog
from skipstone.tables.committing.commits import CommitPorts
from skipstone.tasks.share import USUAL_SHARE, DriverShare, driver_share

_log = logging.getLogger(__name__)

#: What each step does.
STEPS: Mapping[MaintenanceStep, Step] = {
    MaintenanceStep.RESOLVE_EQUALITY_DELETES: resolve,
    MaintenanceStep.COMPACTION: compact,
    MaintenanceStep.MANIFESTS: upkeep.rewrite,
    MaintenanceStep.SNAPSHOTS: upkeep.expire,
    MaintenanceStep.ORPHAN_FILES: upkeep.clean,
}


def run_maintain(
    request: JobRequest,
    reporter: Reporter,
    ports: CommitPorts | None = None,
    share: DriverShare = USUAL_SHARE,
    gives_way: GivingWay | None = None,
) -> JobReport:
    """Do the steps of ``request.maintain``. Raises BadSpec, DependencyUnavailable; ``ports`` let tests hold commits."""
    if request.maintain is None or request.table is None:
        raise BadSpec(Reason.INVALID_SPEC, "a maintain run needs a table and a maintain task", field="request")
    with reporter.stage("open"):
        site = MaintainSite(
            request=request,
            reporter=reporter,
            catalog=open_catalog(request.warehouse),
            ref=request.table,
            task=request.maintain,
            ports=ports or CommitPorts(),
            share=driver_share(request.spark, share),
            gives_way=gives_way or GivingWay(),
        )
        site.load()
    for step in _done(site):
        reporter.ended(step)
    return _report(site, reporter.base())


def _done(site: MaintainSite) -> Iterator[StepReport]:
    for number, step in enumerate(site.task.steps):
        if site.gives_way():
            message = "The run gave way to another before this step."
            yield StepReport(step=step, is_done=False, reason=Reason.GIVING_WAY, message=message)
            continue
        site.reporter.progress(f"{step} ({number + 1} of {len(site.task.steps)} steps)")
        with site.reporter.stage(step.value):
            yield _attempted(site, step)


def _attempted(site: MaintainSite, step: MaintenanceStep) -> StepReport:
    """Return the report of ``step``. Raises DependencyUnavailable, and errors that are not the step's own."""
    try:
        return STEPS[step](site)
    except KeyError:
        if step in STEPS:
            raise
        return StepReport(step=step, is_done=False, reason=Reason.INVALID_SPEC, message=f"This image does no {step}.")
    except UserError as error:
        if isinstance(error, DependencyUnavailable):
            raise
        return _failed(step, error.reason, str(error))
    except Exception as error:
        if isinstance(error, SkipstoneError | OSError) or find_cause(error):
            raise
        return _failed(step, Reason.INTERNAL_ERROR, f"{type(error).__name__}: {first_lines(error)}")


def _failed(step: MaintenanceStep, reason: Reason, message: str) -> StepReport:
    _log.warning("%s failed", step, exc_info=True)
    return StepReport(step=step, is_done=False, reason=reason, message=message)


def _report(site: MaintainSite, base: JobReport) -> JobReport:
    """The report of all steps. What one of them could not do is its own affair: the run itself has ended well."""
    failed = [f"{step.step}: {step.message}" for step in base.steps if not step.is_done and step.message]
    report = replace(base, outcome=RunOutcome.COMMITTED, reason=Reason.COMMITTED, message=" ".join(failed))
    return reported_with(report, lambda ended: _with_state(site, ended))


def _with_state(site: MaintainSite, report: JobReport) -> JobReport:
    with site.reporter.stage("report"):
        state = report_state(site.catalog, site.request.warehouse, site.ref, site.request.indexes)
    return replace(report, table_states=(state,), snapshot_id=state.snapshot_id)
