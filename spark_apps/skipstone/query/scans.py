"""Plans scans that engines ask for by Iceberg's REST protocol: the files that a client has to read.

Called by ``serving``. The list is never shorter than what matches, and holds no file of a partition that the filter
rules out, since clients answer counts of partitions from the list alone. Must not know HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pyiceberg.table import Table
from skipstone_core.language.filters import Always, Filter

from skipstone.query.readplan import IndexUse
from skipstone.tables.filesets import FileSet


@dataclass(frozen=True, kw_only=True)
class ScanRequest:
    """What a client asks for: the fields of Iceberg's PlanTableScanRequest that a plan depends on.

    ``filter``: the expression as JSON; None: all rows. ``stats_fields``: names of the columns whose bounds are wanted.
    """

    snapshot_id: int | None = None
    filter: Any = None
    case_sensitive: bool = True
    use_snapshot_schema: bool = False
    stats_fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlannedScan:
    """Files of one snapshot to read, ascending ordinals. ``left_out``: how many each proof ruled out, by its name.

    ``residual``: what clients may skip row groups by, as JSON; ``true`` only where every row passes.
    """

    files: FileSet
    tree: Filter
    residual: Any
    ordinals: npt.NDArray[np.int64]
    left_out: dict[str, int]
    indexes: tuple[IndexUse, ...]
    has_bounds: bool


def plan_scan(table: Table, request: ScanRequest, index_namespace: str | None = None) -> PlannedScan:
    """Plan a scan of ``table``.

    Raises KeyError for a snapshot that the table does not have, BadSpec for a filter that cannot be read, or of which
    a part that partitions depend on cannot be judged.
    """
    raise NotImplementedError((table, request, index_namespace, Always()))
