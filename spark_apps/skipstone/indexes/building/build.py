"""Builds an index: the missing files of some segments become entries and cover rows in one commit.

Called by the reindex run, wave by wave, so that a run that is killed keeps every finished wave. What a
commit covers is decided by the index table alone: files that another run covered meanwhile are not entered twice.
Must not change the indexed table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import TOTAL_RECORDS
from skipstone_core.errors import UserError
from skipstone_core.history.commits import Conflicted, Outcome
from skipstone_core.indexing.indexes import is_spread

from skipstone.files.reader import DataFileDescription, describe_files, is_read_whole
from skipstone.files.writer import DataFileWriter, WriteSpec, to_data_files, write_spec
from skipstone.indexes.buckets import Buckets
from skipstone.indexes.building.entries import (
    BuildTask,
    EntryColumns,
    EntrySource,
    SkippedFile,
    entry_encodings,
)
from skipstone.indexes.building.sorting import BUFFER_BYTES, SortLimits, with_partition
from skipstone.indexes.building.waves import BuildPower, MissingUnit, task_count
from skipstone.indexes.coverage import COVER_SCHEMA, GENERATION, cover_schema
from skipstone.indexes.definition import COVER
from skipstone.indexes.stores.port import StoredEntries, store_of
from skipstone.indexes.tables import NEXT_FILE_ID_PROPERTY, IndexTable
from skipstone.tables.committing.commits import CommitPorts, TableCommit
from skipstone.tables.committing.writing import CommitSite, WrittenFiles, commit_written
from skipstone.tables.filesets import FileSet, pin_table
from skipstone.tasks.runner import Tasks

#: What a task hands to its file at a time, in bytes of Arrow data: several row groups, of bounded rows each.
WRITE_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class BuildSite:
    """Where a build reads and writes. ``files`` is the pinned snapshot of ``table``."""

    tasks: Tasks
    catalog: Catalog
    table: Table
    files: FileSet
    run_id: str
    buffer_bytes: int = BUFFER_BYTES
    ports: CommitPorts | None = None

    @property
    def power(self) -> BuildPower:
        """Return the power of this build."""
        return BuildPower(self.tasks.parallelism, self.buffer_bytes)

    def commit_site(self, index: IndexTable) -> CommitSite:
        """Where what is built is committed."""
        return CommitSite(catalog=self.catalog, ref=index.ref(), ports=self.ports)


@dataclass(frozen=True)
class WaveResult:
    """How the build of a wave ended. ``outcome`` None: no file of it could be entered, nothing was committed.

    ``entered``: segments of which files were entered; ``skipped``: files that could not be, each with its segment.
    """

    outcome: Outcome | None
    entered: tuple[int, ...]
    files: int
    entries: int
    skipped: tuple[tuple[int, SkippedFile], ...]


@dataclass(frozen=True)
class PlannedSource:
    """A readable file of a wave and its segment."""

    segment: int
    source: EntrySource


@dataclass(frozen=True)
class EnteredWave:
    """Units whose entries are written and not committed yet. ``sources`` are the files that could be read."""

    sources: tuple[PlannedSource, ...]
    next_file_id: int
    stored: StoredEntries
    skipped: tuple[tuple[int, SkippedFile], ...]


def enter_units(site: BuildSite, index: IndexTable, units: Sequence[MissingUnit], first_file_id: int) -> EnteredWave:
    """Write the entries of some units, with file ids from ``first_file_id`` on. Raises what a failing task raises."""
    files = [(unit.segment, ordinal) for unit in units for ordinal in unit.ordinals]
    described = _described(site, [ordinal for _, ordinal in files])
    planned: list[PlannedSource] = []
    skipped: list[tuple[int, SkippedFile]] = []
    for file_id, (segment, ordinal) in enumerate(files, first_file_id):
        description = described[ordinal]
        if isinstance(description, UserError):
            path = site.files.files["path"][ordinal].as_py()
            skipped.append((segment, SkippedFile(file_id, path, str(description), vanished=False)))
        else:
            planned.append(PlannedSource(segment, EntrySource(file_id, description)))
    stored = store_of(index).enter(site, [plan.source for plan in planned])
    segment_of = {plan.source.file_id: plan.segment for plan in planned}
    lost = {file.file_id: file for file in stored.skipped}
    return EnteredWave(
        sources=tuple(plan for plan in planned if plan.source.file_id not in lost),
        next_file_id=first_file_id + len(files),
        stored=stored,
        skipped=(*skipped, *((segment_of[number], file) for number, file in lost.items())),
    )


def _described(site: BuildSite, ordinals: Sequence[int]) -> dict[int, DataFileDescription | UserError]:
    """The files as tasks take them, by ordinal; the error of those that our reader cannot take.

    All at once: descriptions of one call share their schema, which is then pickled once per task.
    """
    try:
        return {file.file_id: file for file in describe_files(site.table, site.files, ordinals, with_deletes=False)}
    except UserError as error:
        if len(ordinals) == 1:
            return {ordinals[0]: error}
    return {number: description for ordinal in ordinals for number, description in _described(site, [ordinal]).items()}


def entry_columns_of(site: BuildSite, index: IndexTable) -> EntryColumns:
    """The columns of the table that entries of ``index`` hold."""
    names = {field.field_id: field.name for field in site.table.schema().fields}
    return EntryColumns(
        index.definition,
        tuple(names[column.field_id] for column in (*index.definition.columns, *index.definition.included)),
    )


def build_tasks(site: BuildSite, index: IndexTable, sources: Sequence[EntrySource]) -> list[BuildTask]:
    """The tasks that write the entries of ``sources`` into files of the index table."""
    columns = entry_columns_of(site, index)
    spec = index_write_spec(index, site.run_id)
    rows = sum(source.file.records for source in sources)
    count, buckets = task_count(rows, site.tasks.parallelism), spread(index, rows, rows + _rows_of(index.table))
    parts = balanced([part for source in sources for part in split(source, count)], count)
    limits = SortLimits(site.buffer_bytes, buckets)
    return [BuildTask(tuple(part), columns, spec, limits) for part in parts if part]


def spread(index: IndexTable, rows: int, all_rows: int) -> Buckets | None:
    """The buckets over which a run of so many rows is spread; None: it is one file. ``all_rows``: these and others."""
    definition = index.definition
    if not definition.type.traits.is_bucketed or not is_spread(rows, all_rows, definition.buckets):
        return None
    return Buckets(definition.buckets, definition.key_storages)


def _rows_of(table: Table) -> int:
    snapshot = table.current_snapshot()
    return 0 if snapshot is None or snapshot.summary is None else int(snapshot.summary[TOTAL_RECORDS] or 0)


def index_write_spec(index: IndexTable, run_id: str) -> WriteSpec:
    """How to write files for a commit planned on the head ``index``; a run that plans again gives them other names."""
    spec = write_spec(index.table, f"{run_id}-{index.table.metadata.next_sequence_number()}")
    encodings = entry_encodings(index.definition)
    return replace(spec, encodings=encodings, row_group_bytes=min(spec.row_group_bytes, WRITE_BYTES))


def split(source: EntrySource, count: int) -> list[EntrySource]:
    """A file with enough rows for several tasks is read by several tasks, each a share of its row groups."""
    if is_read_whole(source.file):
        return [source]
    shares = min(count, task_count(source.file.records, count))
    return [replace(source, share=number, shares=shares) for number in range(shares)]


def balanced(sources: Sequence[EntrySource], count: int) -> list[list[EntrySource]]:
    """Deal sources out so that the parts have about as many rows; within a part the order is kept."""
    parts: list[list[EntrySource]] = [[] for _ in range(count)]
    rows = [0.0] * count
    for source in sorted(sources, key=lambda candidate: -candidate.rows):
        least = rows.index(min(rows))
        parts[least].append(source)
        rows[least] += source.rows
    return [sorted(part, key=lambda entry_source: (entry_source.file_id, entry_source.share)) for part in parts]


def commit_entered(site: BuildSite, index: IndexTable, entered: EnteredWave) -> WaveResult:
    """Commit a wave: its entries and their coverage at once. The plan was made on the head ``index.table``."""
    entries = to_data_files([written.to_row() for written in entered.stored.written], index.table)
    if not entered.sources:
        store_of(index).discard(entered.stored)
        return WaveResult(None, (), 0, 0, entered.skipped)
    segments = tuple(sorted({source.segment for source in entered.sources}))

    def write(written: WrittenFiles) -> TableCommit:
        added = written.note(entries)
        covers = written.note(write_covers(index, cover_rows(index, entered), site.run_id))
        return TableCommit(
            pinned=pin_table(index.table),
            added=(*added, *covers),
            summary={"skipstone.run": site.run_id, "skipstone.segments": str(len(segments))},
            properties={NEXT_FILE_ID_PROPERTY: str(entered.next_file_id)},
            guard=nobody_else_entered,
        )

    outcome = commit_written(site.commit_site(index), index.table, write)
    if isinstance(outcome, Conflicted):
        store_of(index).discard(entered.stored)
    return WaveResult(outcome, segments, len(entered.sources), entered.stored.entries, entered.skipped)


def nobody_else_entered(_head: Table, added: tuple[DataFile, ...]) -> str | None:
    """Guard of index commits: file ids and coverage were planned on a head without these files."""
    return "another run of this index entered files meanwhile" if added else None


def cover_rows(index: IndexTable, entered: EnteredWave) -> pa.Table:
    """Cover rows (``cover_schema``) of the files entered."""
    sources, count = entered.sources, len(entered.sources)
    rows = pa.table(
        {
            "file_id": [source.source.file_id for source in sources],
            "path": [source.source.file.path for source in sources],
            "size": [source.source.file.size for source in sources],
            "records": [source.source.file.records for source in sources],
            "segment": [source.segment for source in sources],
            "table_uuid": [index.stored.table_uuid] * count,
            "definition": [index.definition.digest] * count,
        },
        schema=COVER_SCHEMA,
    )
    if cover_schema(index.definition) == COVER_SCHEMA:
        return rows
    return rows.append_column(GENERATION, pa.array([entered.stored.generation] * count, pa.string()))


def write_covers(index: IndexTable, covers: pa.Table, run_id: str, level: int = 0) -> list[DataFile]:
    """Write cover rows as one file of the index table."""
    if covers.num_rows == 0:
        return []
    writer = DataFileWriter(index_write_spec(index, run_id), f"cover-{covers['file_id'][0].as_py()}-{level}")
    writer.write(with_partition(covers, COVER, level))
    return to_data_files([written.to_row() for written in writer.close()], index.table)
