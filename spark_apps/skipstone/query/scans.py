"""Plans scans that engines ask for by Iceberg's REST protocol: the files that a client has to read.

Called by ``serving``. The list is never shorter than what matches, and holds no file of a partition that the filter
rules out, since clients answer counts of partitions from the list alone. Must not know HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import DoubleType, FloatType, IcebergType, NestedField
from skipstone_core.language.filterpredicates import predicate_of
from skipstone_core.language.filters import Always, Filter, columns_of
from skipstone_core.language.icebergjson import FilterColumns, read_filter

from skipstone.compat.pyiceberg import field_ids
from skipstone.query.partitioning import partition_mask, require_partitions_read_alike
from skipstone.query.partitions.carried import WantedColumns, require_carried
from skipstone.query.planner import plan_read
from skipstone.query.readplan import IndexUse, ReadOptions, ReadPlan
from skipstone.query.residuals import Client, Json, ResidualRules, residual_of, trusts_lists
from skipstone.tables.filesets import FileSet, known_file_set, schema_of

Mask = npt.NDArray[np.bool_]
#: The filter of those who want every row, as JSON.
EVERYTHING = True
#: Bounds of all columns are sent for so many columns of files at most: an answer is held in memory.
_MOST_BOUNDS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class ScanRequest:
    """The request of a client: the fields of Iceberg's PlanTableScanRequest that a plan depends on.

    ``filter``: the expression as JSON; None: all rows. ``select``: names of the columns that are read; none: all of
    them. ``stats_fields``: names of the columns whose bounds are wanted. ``client``: how the client calls itself.
    """

    snapshot_id: int | None = None
    filter: Json = None
    case_sensitive: bool = True
    use_snapshot_schema: bool = False
    select: tuple[str, ...] = ()
    stats_fields: tuple[str, ...] = ()
    client: str = ""

    @property
    def asked_by(self) -> Client:
        """Who asks, as far as it matters for what is told."""
        return Client.of(self.client, case_sensitive=self.case_sensitive, use_snapshot_schema=self.use_snapshot_schema)


@dataclass(frozen=True)
class PlannedScan:
    """Files of one snapshot to read, ascending ordinals. ``left_out``: how many each proof ruled out, by its name.

    ``residual``: what clients may skip row groups by, as JSON; ``true`` only where every row passes. ``bounds_of``:
    field ids of the columns whose bounds the client can use. ``may_hold``: one boolean per file, whether its partition
    can hold a row that passes.
    """

    files: FileSet
    tree: Filter
    residual: Json
    ordinals: npt.NDArray[np.int64]
    left_out: dict[str, int]
    indexes: tuple[IndexUse, ...]
    bounds_of: tuple[int, ...]
    may_hold: Mask


def plan_scan(table: Table, request: ScanRequest, options: ReadOptions | None = None) -> PlannedScan:
    """Plan a scan of ``table``; of ``options`` only those about indexes count.

    Raises KeyError for a snapshot that the table does not have; BadSpec for a filter that cannot be read, of which a
    part that partitions depend on cannot be judged, or by which the client could not read, for columns that lists of
    files cannot carry, and for a table whose partition values libraries write differently; AssertionError when a file
    is neither kept nor ruled out.
    """
    require_partitions_read_alike(table)
    snapshot = _snapshot(table, request.snapshot_id)
    columns = _columns_of(table, snapshot, is_head=request.snapshot_id is None)
    tree: Filter = Always()
    if request.filter is not None:
        tree = read_filter(request.filter, columns, case_sensitive=request.case_sensitive)
    if trusts_lists(request.client):
        require_carried(table, request.snapshot_id, _wanted(request, tree, schema_of(table, snapshot)))
    is_head = snapshot is None or snapshot == table.current_snapshot()
    chosen = _options(options or ReadOptions(), None if is_head else request.snapshot_id)
    files = known_file_set(table, chosen.snapshot_id, columns_of(tree))
    may_hold = partition_mask(
        tree,
        files,
        table,
        is_trusted=trusts_lists(request.client),
        zeros_differ=request.asked_by is not Client.SPARK,
    ).mask
    names = {field.field_id: field.name for field in files.schema.fields}
    plan = plan_read(table, predicate_of(tree, names), chosen, among=may_hold)
    return PlannedScan(
        files=files,
        tree=tree,
        residual=_residual(table, request, tree, columns),
        ordinals=np.array(plan.ordinals, np.int64),
        left_out=_left_out(plan, may_hold),
        indexes=plan.indexes,
        bounds_of=_bounds_of(tree, request, files),
        may_hold=may_hold,
    )


def _snapshot(table: Table, snapshot_id: int | None) -> Snapshot | None:
    if snapshot_id is None:
        return table.current_snapshot()
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise KeyError(snapshot_id)
    return snapshot


def _wanted(request: ScanRequest, tree: Filter, read_in: Schema) -> WantedColumns:
    """Return the columns that the client reads. Spark names no column when it wants none; others may mean all."""
    names = {name.lower() for name in request.select}
    if not names and request.asked_by in (Client.JAVA, Client.OTHER):
        names = {field.name.lower() for field in read_in.fields}
    return WantedColumns(read_in, names, columns_of(tree))


def _options(options: ReadOptions, snapshot_id: int | None) -> ReadOptions:
    """A client takes whole files, not single rows, and nothing from an index alone."""
    return ReadOptions(
        snapshot_id=snapshot_id,
        index_namespace=options.index_namespace,
        use_indexes=options.use_indexes,
        by_position=False,
        whole_files=True,
        heads=options.heads,
    )


def _columns_of(table: Table, snapshot: Snapshot | None, *, is_head: bool) -> FilterColumns:
    """The columns that a filter may name: of the table's newest schema, of the snapshot's, and of those between.

    A client that reads a branch or the head names columns as the table did when it loaded it, one that travels in time
    as the snapshot did, and neither says which. ``is_head``: the client names no snapshot, so its copy of the table may
    be older than the snapshot.
    """
    newest, older = table.schema(), schema_of(table, snapshot)
    first = 0 if is_head else older.schema_id
    others = [schema for number, schema in sorted(table.schemas().items(), reverse=True) if number >= first]
    schemas = [newest, *(schema for schema in (older, *others) if schema.schema_id != newest.schema_id)]
    types = {number: str(kind) for schema in reversed(schemas) for number, kind in _types_of(schema).items()}
    return FilterColumns(tuple(_names_of(schema) for schema in schemas), types)


def _names_of(schema: Schema) -> Mapping[str, int]:
    return {name: number for number in field_ids(schema) if (name := schema.find_column_name(number))}


def _types_of(schema: Schema) -> Mapping[int, IcebergType]:
    return {number: schema.find_type(number) for number in field_ids(schema)}


def _residual(table: Table, request: ScanRequest, tree: Filter, columns: FilterColumns) -> Json:
    if isinstance(tree, Always):
        return EVERYTHING
    has_partitions = any(not spec.is_unpartitioned() for spec in table.specs().values())
    rules = ResidualRules(
        columns=columns,
        newest=columns.schemas[0] if has_partitions else None,
        case_sensitive=request.case_sensitive,
        client=request.asked_by,
    )
    return residual_of(request.filter, rules)


def _left_out(plan: ReadPlan, may_hold: Mask) -> dict[str, int]:
    """How many files each proof ruled out."""
    total, held = len(plan.files), int(may_hold.sum())
    filtered = plan.filters.dropped if plan.filters is not None else 0
    counts = {
        "partitions": total - held,
        "bounds": held - plan.funnel.min_max,
        "indexes": plan.funnel.min_max - len(plan.ordinals) - filtered,
        "bloom filters": filtered,
    }
    if min(counts.values()) < 0 or sum(counts.values()) + len(plan.ordinals) != total:
        raise AssertionError(f"{len(plan.ordinals)} of {total} files are kept, and {counts} ruled out")
    return counts


def _bounds_of(tree: Filter, request: ScanRequest, files: FileSet) -> tuple[int, ...]:
    """Columns that the client names; all of them where it may want the least and greatest of all rows.

    Java asks for the statistics of all columns as it asks for none. In Spark it wants them while no column has been
    left out yet, and none once it knows what it reads.
    """
    fields: Sequence[NestedField] = files.schema.fields
    if request.asked_by is Client.PYICEBERG or not isinstance(tree, Always) or _reads_less(request, fields):
        wanted = frozenset(request.stats_fields)
        fields = [field for field in fields if field.name in wanted]
    if len(files) * len(fields) > _MOST_BOUNDS:
        return ()
    return tuple(field.field_id for field in fields if not _may_hide_nan(field, files))


def _reads_less(request: ScanRequest, fields: Sequence[NestedField]) -> bool:
    """Return whether the client has left out some of the columns already."""
    return bool(request.select) and not {field.name for field in fields} <= frozenset(request.select)


def _may_hide_nan(field: NestedField, files: FileSet) -> bool:
    """Return whether bounds of floats may leave NaN out: clients take them for the greatest value if nobody counted."""
    if not isinstance(field.field_type, FloatType | DoubleType):
        return False
    return any(count != 0 for count in pc.unique(files.bounds(field.field_id).nan_count).to_pylist())
