"""The table run: create, adopt or evolve the table that a Table resource declares. PyIceberg only, no JVM."""

from __future__ import annotations

from dataclasses import replace

from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import JobRequest
from skipstone_core.errors import BadSpec
from skipstone_core.reasons import Reason

from skipstone.runs.reporting.report import Reporter
from skipstone.runs.reporting.states import report_state
from skipstone.tables.catalogs import open_catalog
from skipstone.tables.namespaces import mark_namespace
from skipstone.tables.shaping.schemas import Declaration, ensure_table


def run_table(request: JobRequest, reporter: Reporter) -> JobReport:
    """Bring the table into the declared shape; the reason is Created, Adopted or Observed. Raises UserError."""
    if request.table is None or request.table_task is None:
        raise BadSpec(Reason.INVALID_SPEC, "a table run needs a table and a table task.", field="request")
    with reporter.stage("catalog"):
        catalog = open_catalog(request.warehouse)
    with reporter.stage("table"):
        wish = Declaration(warehouse=request.warehouse, ref=request.table, task=request.table_task)
        table, ownership = ensure_table(catalog, wish)
        mark_namespace(catalog, request.table.namespace)
    seen = replace(request.table, table_uuid=str(table.metadata.table_uuid))
    with reporter.stage("state"):
        state = report_state(catalog, request.warehouse, seen, request.indexes)
    return replace(reporter.base(), outcome=RunOutcome.COMMITTED, reason=ownership.value, table_states=(state,))
