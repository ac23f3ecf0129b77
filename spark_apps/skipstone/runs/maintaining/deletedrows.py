"""Where the rows are that equality deletes take: by an index where that pays, else by a scan of key columns.

Called by the step that resolves equality deletes. A file that no delete can touch is not opened. An index that cannot
be read costs time, never rows. Must not write.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from pyiceberg.table import Table
from skipstone_core.contract.requests import JobRequest
from skipstone_core.indexing.use import ReadCost
from skipstone_core.merging.merges import pack_by_bytes

from skipstone.files.deletions import EQUALITY_CONTENT, DeleteDescription
from skipstone.files.reader import describe_files
from skipstone.indexes.deletedrows import RowAnswer, RowQuestion, find_by_index
from skipstone.indexes.found import FoundIndex, find_indexes
from skipstone.kernels.canonical import Int64s
from skipstone.kernels.resolving import finding
from skipstone.kernels.resolving.finding import SearchedFile, SearchWork, column_name, pack_positions, unpack_positions
from skipstone.kernels.resolving.keys import DeleteGroup, KeyColumn, deleted_keys
from skipstone.pruning.deletedkeys import may_hold
from skipstone.runs.reporting.progress import task_progress
from skipstone.runs.reporting.report import Reporter
from skipstone.session import spark_session
from skipstone.tables.deletes import Delete
from skipstone.tables.filesets import FileSet, PinnedTable
from skipstone.tables.storage import file_access
from skipstone.tables.upkeep.equality import EqualityGroup, concerned_by, group_deletes, key_schema, key_type_of
from skipstone.tasks.failures import caught, opened
from skipstone.tasks.runner import InProcess, InSpark, Tasks
from skipstone.tasks.share import DriverShare, compacts_here

_log = logging.getLogger(__name__)
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class SearchSite:
    """The site of a search: settings, and where a run reports."""

    request: JobRequest
    reporter: Reporter
    share: DriverShare


@dataclass(frozen=True)
class FileKey:
    """A data file as it is known again at another head."""

    path: str
    data_sequence: int


@dataclass
class KnownRows:
    """Positions of deleted rows by data file, packed; files without such rows have no bytes."""

    by_file: dict[FileKey, bytes] = field(default_factory=dict)


def find_deleted_rows(
    site: SearchSite, pinned: PinnedTable, deletes: Collection[Delete], known_rows: KnownRows
) -> Mapping[str, int]:
    """Add those of each data file that ``deletes`` apply to and that ``known_rows`` lacks; counts of the step.

    Raises BadData for files that cannot be read, OSError.
    """
    with site.reporter.stage("search"):
        search = _Search.of(pinned, deletes, known_rows)
        if not search.has_candidates:
            search.note()
            return {}
        by_index = _ask_indexes(site, search)
    files = search.files_to_scan()
    sizes = search.keyed.column_bytes([column.field_id for column in search.columns])
    scanned = int(sizes[files].sum())
    if len(files):
        with _tasks(site, scanned) as tasks, site.reporter.stage("scan"):
            _scan(tasks, search, files, sizes[files])
    search.note()
    return {"filesScanned": len(files), "bytesScanned": scanned, "filesByIndex": by_index}


@dataclass
class _Search:
    """One search. ``keyed``: the files in a schema of key columns. ``wanted``: of each group, the files still to be
    looked at. ``rows``: positions by ordinal.
    """

    pinned: PinnedTable
    keyed: FileSet
    groups: list[EqualityGroup]
    described: list[DeleteGroup]
    concerned: Int64s
    wanted: list[Mask]
    known_rows: KnownRows
    rows: dict[int, list[Int64s]] = field(default_factory=dict)

    @classmethod
    def of(cls, pinned: PinnedTable, deletes: Collection[Delete], known_rows: KnownRows) -> _Search:
        """With the files that may hold a row by sequence numbers, partitions and bounds."""
        table, files = pinned.table, pinned.files
        groups = group_deletes(table, deletes)
        keyed = files.in_schema(key_schema(groups, column_name))
        described = [_described(table, group) for group in groups]
        new = _not_known(files, known_rows)
        concerned = [concerned_by(table, files, group) & new for group in groups]
        wanted = [
            may_hold(deleted_keys(group), group.field_ids, keyed, mask)
            for group, mask in zip(described, concerned, strict=True)
        ]
        looked = np.flatnonzero(np.logical_or.reduce(concerned))
        return cls(pinned, keyed, groups, described, looked, wanted, known_rows)

    @property
    def has_candidates(self) -> bool:
        """Return whether any file may hold a row."""
        return any(mask.any() for mask in self.wanted)

    @property
    def columns(self) -> list[KeyColumn]:
        """All columns that rows are deleted by."""
        return list({column.field_id: column for group in self.described for column in group.columns}.values())

    def files_to_scan(self) -> Int64s:
        """Ordinals of the files that no index answers for."""
        return np.flatnonzero(np.logical_or.reduce(self.wanted))

    def add(self, ordinal: int, positions: Int64s) -> None:
        """Rows of a file."""
        self.rows.setdefault(ordinal, []).append(positions)

    def note(self) -> None:
        """Keep what is known now of all files that the deletes apply to."""
        for ordinal, key in zip(self.concerned.tolist(), _keys(self.pinned.files, self.concerned), strict=True):
            parts = [part for part in self.rows.get(ordinal, ()) if len(part)]
            self.known_rows.by_file[key] = pack_positions(np.concatenate(parts)) if parts else b""


def _keys(files: FileSet, ordinals: Int64s) -> list[FileKey]:
    entries = files.entries(("path", "data_sequence"), ordinals)
    return [FileKey(*pair) for pair in zip(*(entries.column(n).to_pylist() for n in range(2)), strict=True)]


def rows_of(files: FileSet, known_rows: KnownRows) -> Iterator[tuple[int, Int64s]]:
    """Each of ``files`` with rows in ``known_rows``: its ordinal, and their positions, ascending."""
    for ordinal, key in enumerate(_keys(files, np.arange(len(files)))):
        if packed := known_rows.by_file.get(key):
            yield ordinal, unpack_positions(packed)


def _not_known(files: FileSet, known_rows: KnownRows) -> Mask:
    return np.array([key not in known_rows.by_file for key in _keys(files, np.arange(len(files)))], dtype=bool)


def _described(table: Table, group: EqualityGroup) -> DeleteGroup:
    access = file_access(table)
    kinds = {column.field_id: column.field_type for column in group.fields}
    columns = []
    for column in group.fields:
        kind = key_type_of(column.field_type)
        if kind is None:
            raise TypeError(f"no keys of type {column.field_type}")
        columns.append(KeyColumn(column.field_id, kind))
    ids = tuple(kinds)
    described = (
        (
            DeleteDescription(
                path=delete.file.file_path,
                content=EQUALITY_CONTENT,
                file_format=delete.file.file_format.value,
                equality_ids=ids,
                equality_kinds=tuple(kinds.values()),
                access=access,
            ),
            delete.sequence,
        )
        for delete in group.deletes
    )
    return DeleteGroup(tuple(columns), tuple(described))


# --- by indexes ---


def _ask_indexes(site: SearchSite, search: _Search) -> int:
    """Take what indexes tell; how many files need not be opened for that."""
    pinned = search.pinned
    try:
        namespace = site.request.warehouse.index_namespace
        indexes, _ = find_indexes(pinned.table.catalog, pinned.table.name(), pinned.files, namespace)
    except Exception as error:  # noqa: BLE001 - a catalog that cannot list tables must not stop the step
        _log.info("the indexes cannot be listed: %s", error)
        return 0
    by_index = np.zeros(len(pinned.files), dtype=bool)
    for number in range(len(search.described)):
        for index in indexes:
            if search.wanted[number].any() and (answer := _ask(search, index, number)):
                _take_answer(search, number, answer)
                by_index |= answer.covered
    return int(by_index.sum())


def _ask(search: _Search, index: FoundIndex, number: int) -> RowAnswer | None:
    group, kinds, wanted = search.described[number], search.groups[number].kinds, search.wanted[number]
    covered = wanted & index.covered
    if not covered.any():
        return None
    sizes = search.keyed.column_bytes(group.field_ids)
    question = RowQuestion(
        group=group,
        keys=deleted_keys(group),
        kinds=kinds,
        wanted=wanted,
        sequences=search.pinned.files.files["data_sequence"].to_numpy(),
        savings=ReadCost(int(covered.sum()), int(sizes[covered].sum())),
    )
    try:
        answer = find_by_index(index, question)
    except Exception as error:  # noqa: BLE001 - an unreadable index must cost time, never rows
        _log.warning("index %s is not used: %s", index.name, error)
        return None
    if isinstance(answer, str):
        _log.info("index %s is not used: %s", index.name, answer)
        return None
    return answer


def _take_answer(search: _Search, number: int, answer: RowAnswer) -> None:
    order = np.argsort(answer.ordinals, kind="stable")
    ordinals, first = np.unique(answer.ordinals[order], return_index=True)
    for ordinal, part in zip(ordinals.tolist(), np.split(answer.positions[order], first[1:]), strict=False):
        search.add(ordinal, part)
    search.wanted[number] = search.wanted[number] & ~answer.covered


# --- by scans ---


def _scan(tasks: Tasks, search: _Search, files: Int64s, sizes: Int64s) -> None:
    table = search.pinned.table
    described = describe_files(table, search.keyed, files.tolist(), with_deletes=False)
    searched = [
        SearchedFile(file, tuple(n for n, mask in enumerate(search.wanted) if mask[file.file_id])) for file in described
    ]
    groups = tuple(search.described)
    bins = pack_by_bytes(sizes.tolist(), tasks.parallelism)
    # files of the same groups one after the other: a task keeps the keys of a few groups at a time
    ordered = [sorted(members, key=lambda number: searched[number].groups) for members in bins]
    works = [SearchWork(files=tuple(searched[i] for i in members), groups=groups) for members in ordered]
    for answer in tasks.run(_SearchTask(table.location()), works):
        rows = opened(answer)
        for row in rows if isinstance(rows, tuple) else ():
            search.add(row.file_id, unpack_positions(row.positions))


@dataclass(frozen=True)
class _SearchTask:
    """The kernel, for tables at ``location``."""

    location: str

    def __call__(self, work: SearchWork, _: str) -> bytes:
        """Find the rows of some files."""
        return caught(lambda: finding.find_rows(work), self.location)


@contextmanager
def _tasks(site: SearchSite, size: int) -> Iterator[Tasks]:
    """Where the kernel runs."""
    if compacts_here(site.request, site.share, size):
        yield InProcess(site.request.spark.driver_cores)
        return
    spark = spark_session(site.request)
    with task_progress(spark, site.reporter, f"looking for deleted rows in {size} bytes"):
        yield InSpark(spark)
