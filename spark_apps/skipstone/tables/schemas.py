"""Turns a Table resource's declaration into Iceberg schema, spec, sort order, and brings a table to that shape.

Called by the table run. Must not touch data files.
"""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from skipstone_core.jobs import JobRequest


def ensure_table(catalog: Catalog, request: JobRequest) -> tuple[Table, bool]:
    """Create, adopt or evolve the table that ``request`` declares; True when it was created now.

    Raises BadSpec with SCHEMA_MISMATCH, SCHEMA_DRIFT, TABLE_MISSING, TABLE_REPLACED, COLUMN_NOT_FOUND,
    COLUMN_TYPE_UNSUPPORTED or INVALID_SPEC, naming the field.
    """
    raise NotImplementedError(catalog, request)
