"""Merges the sorted runs of an index, eight to one, so that a lookup opens few files however many loads there were.

Called by the reindex run after its builds. A merge is one commit that swaps files; entries and coverage stay the same
but for files that no snapshot of the indexed table holds any more. Bounded memory: ranges of keys, one at a time; in a
covering index, bucket by bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from skipstone_core.history.commits import Outcome
from skipstone_core.indexing.indexes import MERGE_FAN_IN, IndexDefinition, plan_run_merge

from skipstone.files.writer import WriteSpec, WrittenFile, to_data_files
from skipstone.indexes.buckets import Buckets
from skipstone.indexes.building.build import BuildSite, index_write_spec, spread, write_covers
from skipstone.indexes.building.sorting import BUFFER_BYTES, EntrySorter, RunWriter
from skipstone.indexes.building.waves import ROWS_PER_TASK
from skipstone.indexes.coverage import read_covers
from skipstone.indexes.definition import entry_schema, key_name
from skipstone.indexes.keys import physical_keys, python_keys, stored_key
from skipstone.indexes.scans import UnreadableIndexFile, scan_entries
from skipstone.indexes.tables import IndexFile, IndexTable, sorted_runs
from skipstone.tables.committing.commits import TableCommit
from skipstone.tables.committing.writing import WrittenFiles, commit_written
from skipstone.tables.filesets import pin_table
from skipstone.tables.parquetfiles import read_metadata

#: Most rows of one merged file; also what one merge task sorts at once.
ROWS_PER_RANGE = 2_000_000
#: How many times larger entries may be in memory than in files.
_PACKED = 16


@dataclass(frozen=True)
class KeyRange:
    """Entries whose first key is in [lower, upper), as ``python_keys`` gives them; None is open.

    The range without upper holds the null keys.
    """

    lower: object | None
    upper: object | None

    def expression(self, storage: pa.DataType) -> pc.Expression | None:
        """The range as an Arrow filter on the first key; None for everything."""
        first = pc.field(key_name(0))
        if self.lower is None and self.upper is None:
            return None
        if self.lower is None:
            return first < stored_key(self.upper, storage)
        above = first >= stored_key(self.lower, storage)
        return first.is_null() | above if self.upper is None else above & (first < stored_key(self.upper, storage))


@dataclass(frozen=True)
class MergedPart:
    """A part that is sorted at once: the entries of ``paths`` in one key range, about so many ``rows``."""

    paths: tuple[str, ...]
    range: KeyRange
    rows: int


@dataclass(frozen=True)
class RunMergeTask:
    """Merge some parts, one after the other, without entries of ``dropped`` file ids; ``buckets``: into a file each."""

    parts: tuple[MergedPart, ...]
    definition: IndexDefinition
    dropped: frozenset[int]
    level: int
    io: FileIO
    spec: WriteSpec
    buffer_bytes: int = BUFFER_BYTES
    buckets: Buckets | None = None


@dataclass(frozen=True)
class MergedRange:
    """The files that a merge task wrote; ``unreadable``: path of an entry file that it could not read, and why."""

    written: tuple[WrittenFile, ...] = ()
    unreadable: tuple[str, str] | None = None


def compact_index(site: BuildSite, index: IndexTable, dropped: frozenset[int]) -> Outcome | None:
    """Merge the lowest tier with enough runs, and cover files likewise; None when nothing is due.

    ``dropped``: file ids of files that no retained snapshot of the indexed table holds; when there are any, the whole
    index is merged without them. Raises UnreadableIndexFile, with nothing changed, when an entry file cannot be read.
    """
    merged, covers = _due(index, dropped)
    if not merged and not covers:
        return None
    removed = tuple(index.files.data_file(file.ordinal) for file in (*merged, *covers))

    def write(written: WrittenFiles) -> TableCommit:
        entries = _merge_entries(site, index, merged, dropped, written)
        added = (*entries, *written.note(_merge_covers(site, index, covers, dropped)))
        summary = {"skipstone.run": site.run_id, "skipstone.merge": str(len(removed))}
        return TableCommit(pinned=pin_table(index.table), added=added, removed=removed, summary=summary)

    return commit_written(site.commit_site(index), index.table, write)


def rows_to_merge(index: IndexTable, dropped: frozenset[int]) -> int | None:
    """How many entries ``compact_index`` would merge; None when it would do nothing."""
    entries, covers = _due(index, dropped)
    return sum(file.records for file in entries) if entries or covers else None


def _due(index: IndexTable, dropped: frozenset[int]) -> tuple[tuple[IndexFile, ...], tuple[IndexFile, ...]]:
    """Entry files and cover files to merge now."""
    if dropped:
        return index.entries, index.covers
    runs = sorted_runs(index.entries)
    entries = tuple(file for run in plan_run_merge(runs) for file in runs[run])
    return entries, index.covers if len(index.covers) >= MERGE_FAN_IN else ()


def _merge_covers(
    site: BuildSite, index: IndexTable, covers: Sequence[IndexFile], dropped: frozenset[int]
) -> list[DataFile]:
    if not covers:
        return []
    rows = read_covers(index)
    keep = pc.invert(pc.is_in(rows["file_id"], value_set=pa.array(sorted(dropped), pa.int32())))
    return write_covers(index, rows.filter(keep), site.run_id, level=max(file.level for file in covers) + 1)


def _merge_entries(
    site: BuildSite, index: IndexTable, files: Sequence[IndexFile], dropped: frozenset[int], written: WrittenFiles
) -> tuple[DataFile, ...]:
    if not files:
        return ()
    level = max(file.level for file in files) + 1
    io, spec, buckets = index.table.io, index_write_spec(index, site.run_id), _buckets(index, files)
    tasks = [
        RunMergeTask(parts, index.definition, dropped, level, io, spec, site.buffer_bytes, buckets)
        for parts in _dealt(list(_parts(site, index, files)), site.tasks.parallelism)
    ]
    entries: list[DataFile] = []

    def take(result: MergedRange) -> None:
        rows = [file.to_row() for file in result.written]
        entries.extend(written.note(to_data_files(rows, index.table)))

    results = site.tasks.run(merge_entries, tasks, take)
    if unreadable := next((result.unreadable for result in results if result.unreadable), None):
        raise UnreadableIndexFile(*unreadable)
    return tuple(entries)


def _buckets(index: IndexTable, files: Sequence[IndexFile]) -> Buckets | None:
    """Over which buckets to spread the entries of some files: those of one bucket stay in it."""
    rows, all_rows = (sum(file.records for file in some) for some in (files, index.entries))
    is_spread_already = any(file.bucket is not None for file in files)
    return spread(index, all_rows if is_spread_already else rows, all_rows)


def _parts(site: BuildSite, index: IndexTable, files: Sequence[IndexFile]) -> Iterator[MergedPart]:
    """Parts of a bucket, or of files for all buckets: ranges of keys that fill about a buffer."""
    most_bytes = site.buffer_bytes // 2
    of_bucket: dict[int | None, list[IndexFile]] = {}
    for file in files:
        of_bucket.setdefault(file.bucket, []).append(file)
    for bucket, some in of_bucket.items():
        paths, rows = tuple(file.path for file in some), sum(file.records for file in some)
        is_small = rows <= ROWS_PER_RANGE and sum(file.size for file in some) * _PACKED <= most_bytes
        # footers are not read for nothing: there may be many buckets
        is_whole = bucket is not None and is_small
        ranges = [KeyRange(None, None)] if is_whole else key_ranges(index, paths, most_bytes)
        yield from (MergedPart(paths, single, rows // len(ranges)) for single in ranges)


def _dealt(parts: Sequence[MergedPart], parallelism: int) -> Iterator[tuple[MergedPart, ...]]:
    """Parts in tasks that are worth starting: small ones together, no more than keep all cores busy."""
    enough = min(ROWS_PER_RANGE, max(ROWS_PER_TASK, sum(part.rows for part in parts) // parallelism))
    taken: list[MergedPart] = []
    for part in parts:
        taken.append(part)
        if sum(member.rows for member in taken) >= enough:
            yield tuple(taken)
            taken = []
    if taken:
        yield tuple(taken)


def merge_entries(task: RunMergeTask, task_id: str) -> MergedRange:
    """The kernel of a merge: read one key range of all files, sort, write; then the next one."""
    with RunWriter(task.spec, task_id, level=task.level) as runs:
        sorter = EntrySorter(runs, task.buffer_bytes, task.buckets)
        for part in task.parts:
            try:
                for batch in _entries_of(task, part):
                    sorter.add(batch)
            except UnreadableIndexFile as error:
                runs.abort()
                return MergedRange(unreadable=(error.path, error.problem))
            sorter.flush()
        return MergedRange(tuple(runs.written))


def _entries_of(task: RunMergeTask, part: MergedPart) -> Iterator[pa.RecordBatch]:
    schema = entry_schema(task.definition)
    keep = pc.invert(pc.field("file_id").isin(pa.array(sorted(task.dropped), pa.int32())))
    limits = part.range.expression(schema.field(0).type)
    condition = keep if limits is None else limits & keep
    for path in part.paths:
        yield from scan_entries(task.io, path, schema, condition, schema.names)


def key_ranges(index: IndexTable, paths: Iterable[str], most_bytes: int) -> list[KeyRange]:
    """Cut the keys of all files into ranges of about ROWS_PER_RANGE entries, by the statistics of row groups.

    Wide keys make smaller ranges, of about ``most_bytes``: a range that fills more than one buffer becomes several
    files with the same keys, all of which a lookup would have to open.
    """
    storage = index.definition.key_storages[0]
    groups = [group for path in paths for group in _row_groups(index.table.io, path, storage)]
    ended = iter(sorted(groups, key=lambda group: group.greatest))  # type: ignore[arg-type,return-value]
    group = next(ended, None)
    cuts: list[object] = []
    rows = nbytes = 0
    for start in sorted({row_group.least for row_group in groups}):  # type: ignore[type-var]
        while group is not None and group.greatest < start:  # type: ignore[operator]
            rows, nbytes, group = rows + group.rows, nbytes + group.nbytes, next(ended, None)
        if rows >= ROWS_PER_RANGE or nbytes >= most_bytes:
            cuts.append(start)
            rows = nbytes = 0
    edges = [None, *cuts, None]
    return [KeyRange(lower, upper) for lower, upper in pairwise(edges)]


@dataclass(frozen=True)
class _RowGroup:
    """Bounds of the first key, as ``python_keys`` gives them, and size of one row group."""

    least: object
    greatest: object
    rows: int
    nbytes: int


def _row_groups(io: FileIO, path: str, storage: str) -> Iterator[_RowGroup]:
    """The row groups of a file but for those of nulls only or without statistics, at which nothing can be cut."""
    try:
        with io.new_input(path).open() as stream:
            metadata = read_metadata(stream)
    except (OSError, pa.ArrowInvalid) as error:
        raise UnreadableIndexFile(path, error) from error
    column = next(i for i in range(metadata.num_columns) if metadata.schema.column(i).path == key_name(0))
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        statistics = group.column(column).statistics
        if statistics is not None and statistics.has_min_max:
            least, greatest = python_keys(physical_keys([statistics.min_raw, statistics.max_raw], storage))
            yield _RowGroup(least, greatest, group.num_rows, group.total_byte_size)
