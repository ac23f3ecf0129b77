"""The state of a table together with its indexes, as every run reports it at its end.

Called by all runs. Reads catalog and manifests; must not change anything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from pyiceberg.catalog import Catalog
from skipstone_core.contract.reports import JobReport, TableState
from skipstone_core.contract.requests import IndexRef, TableRef, WarehouseRef
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.reasons import Reason

from skipstone.indexes.coverage import index_state
from skipstone.tables.catalogs import catalog_answers
from skipstone.tables.namespaces import find_mark
from skipstone.tables.states import table_state

_log = logging.getLogger(__name__)


def told_with(report: JobReport, look: Callable[[JobReport], JobReport]) -> JobReport:
    """``report`` with what ``look`` adds: how a run ended is told even when the table cannot be looked at then."""
    try:
        return look(report)
    except Exception:  # noqa: BLE001 - the outcome is known, and no failure to describe the table may replace it
        _log.warning("the state of the table is left out of the report", exc_info=True)
        return report


def report_state(catalog: Catalog, warehouse: WarehouseRef, ref: TableRef, indexes: Sequence[IndexRef]) -> TableState:
    """The head of ``ref`` and how far each of ``indexes`` covers it.

    Raises DependencyUnavailable: CATALOG_UNAVAILABLE, or STORAGE_UNAVAILABLE when metadata files cannot be read.
    """
    try:
        head = table_state(catalog, ref)
    except OSError as error:
        message = f"The metadata of {ref.namespace}.{ref.name} cannot be read: {error}."
        raise DependencyUnavailable(Reason.STORAGE_UNAVAILABLE, message) from error
    if head.files is None:
        return head.state
    with catalog_answers(catalog.name):
        states = tuple(index_state(catalog, warehouse, ref, head.files, index) for index in indexes)
    return replace(head.state, indexes=states, namespace_id=find_mark(catalog, ref.namespace))
