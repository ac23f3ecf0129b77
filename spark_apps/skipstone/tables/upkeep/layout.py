"""What core's rules of compaction ask of the live files of a table.

Used by the compaction and by the health of a table, so that both count the same. Must not read data files.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import PrimitiveType
from skipstone_core.errors import BadSpec
from skipstone_core.indexing.snapshots import DeleteKind
from skipstone_core.maintenance.compaction import FileFacts, RewriteGroup, plan_groups
from skipstone_core.maintenance.policies import CompactionPolicy
from skipstone_core.reasons import Reason

from skipstone.tables.decoding.manifests import partition_tuple
from skipstone.tables.deletes import Delete
from skipstone.tables.filesets import FileSet, SpecPartition

Numbers = npt.NDArray[np.int64]


def sort_order_of(table: Table, policy: CompactionPolicy) -> SortOrder:
    """The order in which compaction writes rows: ``policy.sort_by``, else the table's own; may be unsorted.

    Raises BadSpec (INVALID_SPEC) for a column that cannot be sorted by.
    """
    if not policy.sort_by:
        return table.sort_order()
    fields = [_sort_field(table.schema(), name) for name in policy.sort_by]
    return SortOrder(*fields, order_id=1)


def _sort_field(schema: Schema, name: str) -> SortField:
    where = "spec.maintenance.compaction.sortBy"
    field = next((column for column in schema.fields if column.name == name), None)
    if field is None:
        known = ", ".join(column.name for column in schema.fields)
        raise BadSpec(Reason.INVALID_SPEC, f"the table has no column {name!r}; name one of {known}", field=where)
    if not isinstance(field.field_type, PrimitiveType):
        message = f"rows cannot be sorted by the column {name!r} of type {field.field_type}; name others"
        raise BadSpec(Reason.INVALID_SPEC, message, field=where)
    return SortField(field.field_id, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST)


def due_groups(table: Table, files: FileSet, policy: CompactionPolicy, max_bytes: int) -> tuple[RewriteGroup, ...]:
    """Return the groups that a compaction of ``files``, the head of ``table``, forms. Raises as ``sort_order_of``."""
    return _planned(table, files, policy, sort_order_of(table, policy), max_bytes)


def count_due(table: Table, files: FileSet, policy: CompactionPolicy, max_bytes: int) -> tuple[int, int]:
    """How many files, and bytes, a compaction would rewrite. By columns that the table lacks nothing is sorted here.

    Files are due all the same, so that a run is asked for them and says what is wrong with the columns.
    """
    try:
        groups = due_groups(table, files, policy, max_bytes)
    except BadSpec:
        groups = _planned(table, files, policy, table.sort_order(), max_bytes)
    return sum(len(group.file_ids) for group in groups), sum(group.size for group in groups)


def _planned(
    table: Table, files: FileSet, policy: CompactionPolicy, order: SortOrder, max_bytes: int
) -> tuple[RewriteGroup, ...]:
    facts = file_facts(table, files, order)
    return plan_groups(facts, policy, is_sorted=bool(order.fields), max_bytes=max_bytes)


def file_facts(table: Table, files: FileSet, order: SortOrder = UNSORTED_SORT_ORDER) -> list[FileFacts]:
    """Facts of all live files. Deletes that may be of several files count for each by its rows.

    Files are near each other by the bounds of the first column of ``order``, else by the commits that added them.
    """
    partitions, numbers = files.partitions()
    spec_ids = files.files["spec_id"].to_numpy()
    outdated = spec_ids != table.spec().spec_id
    columns = (
        np.arange(len(files)),
        np.where(outdated, -1 - spec_ids, numbers),
        files.files["size"].to_numpy(),
        files.files["records"].to_numpy(),
        _deleted_rows(table, files, partitions, numbers),
        outdated,
        _order(files, order, numbers, outdated),
    )
    return [FileFacts(*values) for values in zip(*(column.tolist() for column in columns), strict=True)]


def _order(files: FileSet, order: SortOrder, partitions: Numbers, outdated: npt.NDArray[np.bool_]) -> Numbers:
    sorted_places = _sorted_places(files, order)
    # old files of one partition end up near each other in the new spec, mostly
    keys = np.lexsort((sorted_places, np.where(outdated, partitions, 0)))
    places = np.empty(len(files), np.int64)
    places[keys] = np.arange(len(files))
    return places


def _sorted_places(files: FileSet, order: SortOrder) -> Numbers:
    if not order.fields:
        return np.asarray(files.files["segment"].to_numpy(), np.int64)
    try:
        lower = files.bounds(order.fields[0].source_id).lower
        ranks = pc.rank(lower, sort_keys="ascending", tiebreaker="min")
    except (KeyError, pa.ArrowNotImplementedError):  # a nested column, or a type without an order
        return np.zeros(len(files), np.int64)
    return np.asarray(ranks.to_numpy(zero_copy_only=False), np.int64)


def _deleted_rows(table: Table, files: FileSet, partitions: Sequence[SpecPartition], numbers: Numbers) -> Numbers:
    records = files.files["records"].to_numpy()
    deleted = np.zeros(len(files), np.float64)
    deletes = files.delete_files
    if not deletes:
        return np.zeros(len(files), np.int64)
    own = {delete.only_path: 0 for delete in deletes if delete.only_path}
    for delete in deletes:
        if delete.only_path:
            own[delete.only_path] += delete.file.record_count
    places = pc.index_in(files.files["path"], pa.array(list(own), pa.string())).to_numpy()
    known = ~np.isnan(places) if places.dtype.kind == "f" else np.ones(len(files), bool)
    counts = np.array([*own.values(), 0], np.float64)
    deleted[known] += counts[places[known].astype(np.int64)]
    scopes = {partition: number for number, partition in enumerate(partitions)}
    for delete in deletes:
        if delete.only_path is None:
            concerned = np.flatnonzero(concerned_files(table, files, delete, scopes, numbers))
            rows = max(int(records[concerned].sum()), 1)
            deleted[concerned] += delete.file.record_count * records[concerned] / rows
    return np.asarray(np.minimum(np.ceil(deleted), records), np.int64)


def superfluous_deletes(table: Table, files: FileSet, removed: Set[str]) -> tuple[DataFile, ...]:
    """The delete files that concern no live data file once those at the paths ``removed`` are gone."""
    if not files.delete_files:
        return ()
    partitions, numbers = files.partitions()
    scopes = {partition: number for number, partition in enumerate(partitions)}
    paths = files.files["path"]
    gone = pc.is_in(paths, pa.array(sorted(removed), pa.string())).to_numpy()
    live = set(paths.filter(pa.array(~gone)).to_pylist())
    return tuple(
        delete.file
        for delete in files.delete_files
        if (
            delete.only_path not in live
            if delete.only_path
            else not (concerned_files(table, files, delete, scopes, numbers) & ~gone).any()
        )
    )


def concerned_files(
    table: Table, files: FileSet, delete: Delete, scopes: dict[SpecPartition, int], numbers: Numbers
) -> npt.NDArray[np.bool_]:
    """Of which files ``delete`` may take rows. A position delete names only files that were there before it."""
    if delete.kind is DeleteKind.EQUALITY:
        older = files.files["data_sequence"].to_numpy() < delete.sequence
        if is_everywhere(table, delete):
            return np.asarray(older)
    else:
        older = files.files["segment"].to_numpy() <= delete.sequence
    scope = scopes.get(SpecPartition(delete.file.spec_id, partition_tuple(delete.file)), -1)
    mask = older & (numbers == scope)
    if delete.kind is DeleteKind.POSITION and mask.any():
        paths = files.files["path"]
        at = [row for row in np.flatnonzero(mask).tolist() if delete.may_touch(paths[row].as_py())]
        mask = np.isin(np.arange(len(files)), at)
    return np.asarray(mask)


def is_everywhere(table: Table, delete: Delete) -> bool:
    """Return whether an equality delete applies to files of every partition: its spec has no field, or void ones."""
    return all(str(field.transform) == "void" for field in table.specs()[delete.file.spec_id].fields)
