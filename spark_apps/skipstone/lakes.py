"""``skipstone.open``: a folder as a lake, on this machine and without a cluster.

The package skipstone-local serves the folder; it is found by its entry point. What is here reads for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.types import UUIDType
from skipstone_core.contract.requests import TableRef, WarehouseRef
from skipstone_core.errors import BadData, BadSpec, DependencyUnavailable, LakeError, way_to_install
from skipstone_core.history.tablereads import FIELD
from skipstone_core.remedies import find_remedy

from skipstone.query.changing.reading import Between, ChangesPlan, changes_schema, plan_points, read_changes
from skipstone.query.planner import ReadOptions, plan_read
from skipstone.query.reading import explain, read
from skipstone.tables.catalogs import load_table, open_known_catalog

if TYPE_CHECKING:
    from skipstone_local.lake import Lake
    from skipstone_local.lake.reading import ChangesRequest, ReadRequest

#: What to do about an error of a read, by its field: a call has arguments, and no manifest to correct.
_WAYS_OUT = {
    "filter": "correct the argument where of the call",
    "columns": "name columns of the table in the argument columns of the call",
}
#: Fields of errors about keys and points of changes.
_FIELDS_OF_CHANGES = frozenset({"spec.keys", "spec.source.table.changes", "since", "until"})
#: What to do if the columns of a table are others at the two points.
_OTHER_POINTS = "name two points between which the column is the same"
#: Of the entry point that opens a folder.
GROUP, NAME = "skipstone.local", "lake"


def open_lake(path: str | os.PathLike[str], *, warehouse: str = "", namespace: str = "default") -> Lake:
    """Open the lake in a folder, which is made if it is not there, and serve it until it is closed.

    ``warehouse``: the name of a Warehouse in the folder, or the path of a manifest with one, its claim and Secrets;
    without it, the only Warehouse, or a new one with an SQLite catalog. Raises LakeError.
    """
    entries = entry_points(group=GROUP, name=NAME)
    if not entries:
        raise LakeError("PackageMissing", "skipstone.open needs the extra local", way_to_install("local"))
    try:
        opening = next(iter(entries)).load()
    except ModuleNotFoundError as error:  # the wheel has all of our packages, and each extra has what some of them need
        lacks = f"skipstone.open needs {error.name}, which is not installed"
        raise LakeError("PackageMissing", lacks, way_to_install("local")) from error
    opened: Lake = opening(path, LakeReader(), warehouse=warehouse, namespace=namespace)
    return opened


class LakeReader:
    """Reads tables for one lake. All calls raise LakeError for what goes wrong."""

    def __init__(self) -> None:
        """Open no catalog yet."""
        self._opened: tuple[WarehouseRef, Catalog] | None = None

    def read(self, request: ReadRequest) -> pa.Table:
        """The rows."""
        with _lake_errors():
            return read(self._load_for(request), request.columns, request.where, _options(request))

    def explain(self, request: ReadRequest) -> str:
        """Return a text on the files that ``read`` would read, and the indexes it would use."""
        with _lake_errors():
            return explain(self._load_for(request), request.where, _options(request), request.columns)

    def changes(self, request: ChangesRequest) -> pa.RecordBatchReader:
        """What changed between two points of the table's history."""
        with _lake_errors():
            table = self._load(request.warehouse, request.table)
            keys = _identifier(table) if request.keys is None else request.keys
            options = ReadOptions(index_namespace=request.warehouse.index_namespace)
            plan = plan_points(table, Between(request.since, request.until), options, keys, request.where)
        return pa.RecordBatchReader.from_batches(_naming_uuids(plan), _batches(plan))

    def count_files(self, request: ReadRequest) -> tuple[int, int]:
        """How many files ``read`` would open, and how many there are."""
        with _lake_errors():
            plan = plan_read(self._load_for(request), request.where, _options(request), request.columns)
            return plan.funnel.read, plan.funnel.total

    def _load_for(self, request: ReadRequest) -> Table:
        """The table, which must have the snapshot that is asked for."""
        table = self._load(request.warehouse, request.table)
        if request.snapshot is not None and table.snapshot_by_id(request.snapshot) is None:
            name = f"{request.table.namespace}.{request.table.name}"
            raise LakeError(
                "InvalidSpec",
                f"the table {name} does not have the snapshot {request.snapshot}",
                "name one that is in its history, such as the snapshot_id of lake.table(name)",
            )
        return table

    def _load(self, warehouse: WarehouseRef, table: TableRef) -> Table:
        if self._opened is None or self._opened[0] != warehouse:
            self._opened = warehouse, open_known_catalog(warehouse)
        return load_table(self._opened[1], table)


def _identifier(table: Table) -> tuple[str, ...]:
    """The columns by which the table itself names its rows."""
    return tuple(sorted(table.schema().identifier_field_names()))


def _naming_uuids(plan: ChangesPlan) -> pa.Schema:
    """The columns of changes, with a mark at those of the type uuid, which Arrow has as bytes."""
    uuids = {column.name for column in plan.schema.fields if isinstance(column.field_type, UUIDType)}
    mark = {"iceberg.type": "uuid"}
    return pa.schema([field.with_metadata(mark) if field.name in uuids else field for field in changes_schema(plan)])


def _batches(plan: ChangesPlan) -> Iterator[pa.RecordBatch]:
    schema = changes_schema(plan)
    with _lake_errors():
        for part in read_changes(plan):
            yield from part.cast(schema).to_batches()


def _options(request: ReadRequest) -> ReadOptions:
    return ReadOptions(
        snapshot_id=request.snapshot,
        index_namespace=request.warehouse.index_namespace,
        use_indexes=request.indexes,
    )


@contextmanager
def _lake_errors() -> Iterator[None]:
    try:
        yield
    except (BadSpec, BadData, DependencyUnavailable) as error:
        sentence, way_out = str(error), _WAYS_OUT.get(error.field, find_remedy(error.reason))
        if error.field in _FIELDS_OF_CHANGES:
            # The sentence names the way out itself, and the field of a manifest, which no call has.
            sentence, _, way_out = sentence.removeprefix(f"{error.field}: ").rpartition(": ")
        elif error.field == FIELD:
            # The way out of a job, which continues from a snapshot, is not one of a call.
            sentence, way_out = sentence.removeprefix(f"{error.field}: ").partition("; ")[0], _OTHER_POINTS
        raise LakeError(error.reason, sentence, way_out) from error
