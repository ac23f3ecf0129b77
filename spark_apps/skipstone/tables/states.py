"""The head of a table as reports show it, without its indexes.

Called through ``runs.states`` at the end of every run. Must not change anything.
"""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from skipstone_core.jobs import TableRef, TableState

from skipstone.tables.filesets import FileSet


def table_state(catalog: Catalog, ref: TableRef) -> tuple[TableState, FileSet | None]:
    """The state of ``ref`` (``problem`` set when it is missing, replaced or of a format we do not write) and its files.

    Raises DependencyUnavailable when the catalog does not answer.
    """
    raise NotImplementedError(catalog, ref)
