"""The state of a table together with its indexes, as every run reports it at its end.

Called by all runs. Reads catalog and manifests; must not change anything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from propcache.api import cached_property
from pyiceberg.catalog import Catalog
from skipstone_core.contract.reports import IndexState, JobReport, TableState
from skipstone_core.contract.requests import IndexRef, TableRef, WarehouseRef
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.indexing.indexes import is_purge_worthwhile
from skipstone_core.reasons import Reason

from skipstone.indexes.coverage import SeenIndex, see_index
from skipstone.indexes.upkeep.rebuilding import find_rebuild
from skipstone.indexes.upkeep.staleness import RetainedSnapshots, stale_file_ids
from skipstone.tables.catalogs import catalog_answers
from skipstone.tables.filesets import PinnedTable
from skipstone.tables.namespaces import find_mark
from skipstone.tables.states import table_state

_log = logging.getLogger(__name__)


def reported_with(report: JobReport, look: Callable[[JobReport], JobReport]) -> JobReport:
    """``report`` with what ``look`` adds: how a run ended is told even when the table cannot be looked at then."""
    try:
        return look(report)
    except Exception:  # noqa: BLE001 - the outcome is known, and no failure to describe the table may replace it
        _log.warning("the state of the table is left out of the report", exc_info=True)
        return report


def report_state(catalog: Catalog, warehouse: WarehouseRef, ref: TableRef, indexes: Sequence[IndexRef]) -> TableState:
    """The head of main of ``ref`` and how far each of ``indexes`` covers it.

    Raises DependencyUnavailable: CATALOG_UNAVAILABLE, or STORAGE_UNAVAILABLE when metadata files cannot be read.
    """
    ref = ref.on_main
    try:
        head = table_state(catalog, ref)
    except OSError as error:
        message = f"The metadata of {ref.namespace}.{ref.name} cannot be read: {error}."
        raise DependencyUnavailable(Reason.STORAGE_UNAVAILABLE, message) from error
    if head.pinned is None:
        return head.state
    with catalog_answers(catalog.name):
        place = _Place(catalog, warehouse, ref, head.pinned)
        states = tuple(_index_state(place, index) for index in indexes)
    return replace(head.state, indexes=states, namespace_id=find_mark(catalog, ref.namespace))


@dataclass(frozen=True)
class _Place:
    """Where indexes of a table are looked up, and the table's head."""

    catalog: Catalog
    warehouse: WarehouseRef
    ref: TableRef
    head: PinnedTable

    @cached_property
    def retained(self) -> RetainedSnapshots:
        """Of the table."""
        return RetainedSnapshots(self.head.table)


def _index_state(place: _Place, index: IndexRef) -> IndexState:
    """With all entries to be merged where many belong to files that are gone: a run that commits drops those of small
    indexes only, and an index that nothing else makes due would keep them for ever. Likewise in a full rebuild, which
    any reindex goes on with.
    """
    seen = see_index(place.catalog, place.warehouse, place.ref, place.head.files, index)
    state = seen.state
    if seen.table is not None and find_rebuild(seen.table) is not None:
        return replace(state, rows_to_merge=max(1, state.entries))
    gone = state.entries - state.rows_covered
    if state.degraded is None and is_purge_worthwhile(gone, state.entries) and _has_stale(place, seen):
        return replace(state, rows_to_merge=state.entries)
    return state


def _has_stale(place: _Place, seen: SeenIndex) -> bool:
    """Return whether a reindex would drop entries; no when what tells so cannot be read."""
    try:
        stale = seen.table is not None and stale_file_ids(place.retained, place.head.files, seen.table, seen.covers)
        return bool(stale)
    except OSError:
        _log.warning("it is not known how much of the index %s is stale", seen.state.name, exc_info=True)
        return False
