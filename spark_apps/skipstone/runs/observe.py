"""The observe run: the state of all due tables of one Warehouse. PyIceberg only, changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pyiceberg.catalog import Catalog
from skipstone_core.contract.reports import JobReport, RunOutcome, TableState
from skipstone_core.contract.requests import JobRequest, ObservedTable
from skipstone_core.errors import BadSpec, DependencyUnavailable
from skipstone_core.reasons import Reason

from skipstone.runs.reporting.report import Reporter
from skipstone.runs.reporting.states import report_state
from skipstone.tables.catalogs import open_catalog


def run_observe(request: JobRequest, reporter: Reporter) -> JobReport:
    """Report every table of the request; one whose files cannot be read does not hide the others.

    Raises BadSpec, DependencyUnavailable when the catalog does not answer.
    """
    if request.observe is None:
        raise BadSpec(Reason.INVALID_SPEC, "an observe run needs tables.", field="request")
    catalog = open_catalog(request.warehouse)
    states = tuple(_states(catalog, request, reporter))
    return replace(reporter.base(), outcome=RunOutcome.COMMITTED, reason=Reason.OBSERVED, table_states=states)


def _states(catalog: Catalog, request: JobRequest, reporter: Reporter) -> Iterator[TableState]:
    tables = request.observe.tables if request.observe else ()
    for number, observed in enumerate(tables):
        reporter.progress(f"table {number + 1} of {len(tables)}")
        yield _state(catalog, request, observed)


def _state(catalog: Catalog, request: JobRequest, observed: ObservedTable) -> TableState:
    try:
        return report_state(catalog, request.warehouse, observed.table, observed.indexes)
    except DependencyUnavailable as error:
        if error.reason is not Reason.STORAGE_UNAVAILABLE:
            raise
        ref = observed.table
        return TableState(namespace=ref.namespace, name=ref.name, uid=ref.uid, problem=error.reason, message=str(error))
