"""Rows of a source table as Parquet files of the run, from which loads and merges read them like those of any source.

Called by the intake once a job's rows are chosen. Only files that can hold a row of ``where`` are opened, by
partitions, min/max and indexes; every row that is read is tested. A thread for each core writes a file of its own,
batch by batch.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import UUIDType
from skipstone_core.contract.requests import JobRequest
from skipstone_core.errors import BadSpec, DependencyUnavailable, UserError
from skipstone_core.history.tablereads import CHANGE_COLUMN, Appends, ChangeType
from skipstone_core.ids import RUNS_DIRECTORY
from skipstone_core.language.predicates import Predicate
from skipstone_core.reasons import Reason

from skipstone.files.projections import DataFileDescription, Decoding
from skipstone.files.reader import describe_files, read_data_file
from skipstone.parallel import CORES
from skipstone.query.changing.reading import ChangesPlan, Conditions, changes_schema, plan_changes, read_changes
from skipstone.query.planner import ReadOptions, ReadPlan, checked_predicate, plan_read
from skipstone.query.reading import matching_rows
from skipstone.runs.tablesources.choosing import NO_SNAPSHOT, TableRows
from skipstone.runs.tablesources.zones import find_zone
from skipstone.storage.opening import open_storage
from skipstone.storage.port import Entry, Storage
from skipstone.storage.volume import Volume
from skipstone.tables.arrow import arrow_schema
from skipstone.tables.filesets import known_file_set
from skipstone.tasks.failures import storing

COMPRESSION = "zstd"
#: Rows of a row group: tasks take row groups side by side.
GROUP_ROWS = 256 * 1024
_GROUP_BYTES = 64 << 20
#: What is decoded at once of a file, about.
_BATCH_BYTES = 16 << 20
_WHERE = "spec.source.table.where"


@dataclass(frozen=True, kw_only=True)
class RowsPlan:
    """Files to read with the rows and row groups in them, in ``schema``; ``predicate``: the rows that count."""

    schema: Schema
    predicate: Predicate | None
    reads: tuple[tuple[ReadPlan, tuple[DataFileDescription, ...]], ...]

    @property
    def files(self) -> int:
        """How many files are opened."""
        return sum(len(files) for _, files in self.reads)


@contextmanager
def staged_rows(request: JobRequest, rows: TableRows, progress: Callable[[str], None]) -> Iterator[tuple[Entry, ...]]:
    """Write the rows to files below the records of the job; there is one at least, and all are gone afterwards.

    Raises BadSpec for a ``where`` that does not fit the table, BadData for files and deletes that cannot be read,
    DependencyUnavailable when a storage does not answer.
    """
    storage = open_storage(request.warehouse)
    folder = f"{RUNS_DIRECTORY}/{request.owner_uid}/{request.run_id}-{secrets.token_hex(4)}"
    try:
        yield _staged(request, rows, progress, _Place(storage, folder))
    finally:
        with suppress(UserError):  # what stays goes with the folder of the job
            storage.delete_folder(folder)


@dataclass(frozen=True)
class _Place:
    """A folder for parts, numbered from 0."""

    storage: Storage
    folder: str

    def path(self, number: int) -> str:
        """Where a part is in the storage."""
        return f"{self.folder}/part-{number:05d}.parquet"

    @property
    def disks(self) -> str:
        """What may be full when the rows cannot be written."""
        temporary = tempfile.gettempdir()
        return f"{self.storage.where(self.folder)} or {temporary}" if isinstance(self.storage, Volume) else temporary

    @contextmanager
    def writer(self, number: int, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
        """Write a part, which is in the storage afterwards."""
        with ExitStack() as stack:
            if isinstance(self.storage, Volume):
                file = self.storage.where(self.path(number))
            else:
                file = stack.enter_context(tempfile.NamedTemporaryFile(suffix=".parquet")).name
            with pq.ParquetWriter(file, schema, compression=COMPRESSION, store_schema=False) as writer:
                yield writer
            if not isinstance(self.storage, Volume):
                self.storage.keep_copy(self.path(number), Path(file))

    def entries(self, count: int) -> tuple[Entry, ...]:
        """The parts as the storage describes them. Raises DependencyUnavailable when one is gone."""
        listed = tuple(self.storage.entries([self.path(number) for number in range(count)]))
        entries = tuple(entry for entry in listed if entry is not None)
        if len(entries) != count:
            where = self.storage.where(self.folder)
            message = f"files that this run wrote to '{where}' are gone; the next attempt writes them again"
            raise DependencyUnavailable(Reason.STORAGE_UNAVAILABLE, message)
        return entries


def _staged(request: JobRequest, rows: TableRows, progress: Callable[[str], None], place: _Place) -> tuple[Entry, ...]:
    if isinstance(place.storage, Volume):
        Path(place.storage.where(place.folder)).mkdir(parents=True, exist_ok=True)
    zone = _zone_of(request, rows)
    namespace, name = (request.source_warehouse or request.warehouse).index_namespace, rows.source.name
    with storing(place.disks):
        if rows.source.change_keys:
            changes = _plan_changes(rows, namespace, zone)
            progress(f"comparing {changes.files} files of {name}")
            _write_changes(changes, place)
            return place.entries(1)
        plan = plan_rows(rows, namespace, zone)
        progress(f"reading {plan.files} files of {name}")
        return place.entries(_write_rows(plan, place))


def _zone_of(request: JobRequest, rows: TableRows) -> tzinfo:
    """Of times without offset in conditions: that of the job. Raises BadSpec if it is not known."""
    task = request.merge or request.load
    has_condition = bool(rows.source.where or rows.where_before)
    return find_zone(task.time_zone) if task is not None and has_condition else UTC


def plan_rows(rows: TableRows, index_namespace: str | None = None, zone: tzinfo = UTC) -> RowsPlan:
    """The files to read. ``zone``: of times without offset in ``where``.

    Raises BadSpec (naming ``where``), and BadData (DELETES_UNSUPPORTED).
    """
    table, appends, until = rows.table, rows.appends(), _read_at(rows)
    schema = known_file_set(table, until).schema
    with _naming_where():
        predicate = checked_predicate(rows.source.where, schema, zone)
    options = ReadOptions(snapshot_id=until, index_namespace=index_namespace)
    if appends is None:
        plans = [plan_read(table, predicate, options)]
    else:
        plans = [_plan_appends(rows, run, predicate, schema, options) for run in appends]
    described = (
        (plan, tuple(describe_files(table, plan.files.in_schema(schema), list(plan.ordinals)))) for plan in plans
    )
    return RowsPlan(schema=schema, predicate=predicate, reads=tuple(described))


def _plan_appends(
    rows: TableRows, run: Appends, predicate: Predicate | None, schema: Schema, options: ReadOptions
) -> ReadPlan:
    """The files that some snapshots added, pruned where the snapshot that has them has the schema to read in."""
    at = options.snapshot_id if run.at == rows.until else run.at
    files = known_file_set(rows.table, at)
    added_by = files.files["added_snapshot_id"].to_numpy()
    is_pruned = files.schema.schema_id == schema.schema_id
    among = np.isin(added_by, np.array(sorted(run.added_by), np.int64))
    return plan_read(rows.table, predicate if is_pruned else None, replace(options, snapshot_id=at), None, among)


def _plan_changes(rows: TableRows, index_namespace: str | None, zone: tzinfo) -> ChangesPlan:
    options = ReadOptions(snapshot_id=_read_at(rows), index_namespace=index_namespace)
    where = Conditions(before=rows.where_before or None, after=rows.source.where or None, zone=zone)
    with _naming_where():
        return plan_changes(rows.table, rows.since, options, rows.source.change_keys or (), where)


def _read_at(rows: TableRows) -> int | None:
    """The snapshot as readers take it; None: the current one, which is read in the schema that the table has now."""
    current = rows.table.current_snapshot()
    is_head = rows.until == NO_SNAPSHOT or (current is not None and current.snapshot_id == rows.until)
    return None if is_head else rows.until


@contextmanager
def _naming_where() -> Iterator[None]:
    """Let what is wrong with a condition be told by its field in the job."""
    try:
        yield
    except BadSpec as error:
        if error.field != "filter":
            raise
        raise BadSpec(error.reason, str(error).removeprefix(f"{error.field}: "), field=_WHERE) from error


def _write_changes(plan: ChangesPlan, place: _Place) -> None:
    """Write what becomes of each changed row; the rows that updates replace are left out."""
    with place.writer(0, changes_schema(plan)) as writer:
        for changes in read_changes(plan):
            is_old = pc.equal(changes.column(CHANGE_COLUMN), ChangeType.UPDATE_BEFORE.value)
            writer.write_table(changes.filter(pc.invert(is_old)), row_group_size=GROUP_ROWS)


def _write_rows(plan: RowsPlan, place: _Place) -> int:
    """Write the parts; how many there are."""
    work = [(read, file) for read, files in plan.reads for file in files]
    shares = [work[first::CORES] for first in range(min(CORES, len(work)))] or [[]]
    schema = pa.schema([field.remove_metadata() for field in arrow_schema(plan.schema)])
    uuids = [field.name for field in plan.schema.fields if isinstance(field.field_type, UUIDType)]
    # A file says of them that they are UUIDs, for columns that the target gets from it.
    written = pa.schema([field.with_type(pa.uuid()) if field.name in uuids else field for field in schema])

    def write(number: int) -> None:
        with place.writer(number, written) as writer:
            for read, described in shares[number]:
                for rows in _gathered(_rows_of_file(plan, read, described)):
                    writer.write_table(rows.cast(schema).cast(written), row_group_size=GROUP_ROWS)

    with ThreadPoolExecutor(len(shares)) as threads:
        list(threads.map(write, range(len(shares))))
    return len(shares)


def _rows_of_file(plan: RowsPlan, read: ReadPlan, file: DataFileDescription) -> Iterator[pa.RecordBatch]:
    names = [field.name for field in plan.schema.fields]
    groups, positions = read.row_groups.get(file.file_id), read.positions.get(file.file_id)
    for batch in read_data_file(file, names, groups, positions, Decoding(_BATCH_BYTES)):
        yield matching_rows(batch, plan.predicate)


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches put together until they are a row group, or have as many bytes as one should."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
        if sum(map(len, held)) >= GROUP_ROWS or sum(part.nbytes for part in held) >= _GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)
