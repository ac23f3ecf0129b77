"""The state of a table together with its indexes, as every run reports it at its end."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.catalog import Catalog
from skipstone_core.jobs import IndexRef, TableRef, TableState, WarehouseRef


def report_state(catalog: Catalog, warehouse: WarehouseRef, ref: TableRef, indexes: Sequence[IndexRef]) -> TableState:
    """The head of ``ref`` and how far each of ``indexes`` covers it. Raises DependencyUnavailable."""
    raise NotImplementedError(catalog, warehouse, ref, indexes)
