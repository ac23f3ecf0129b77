"""The stage that asks the bloom filters of candidate files which of them may hold a source key.

Called by merge runs. A file goes when each source row that it may hold is refused by a filter of some key column, in
every row group. Files of which filters say nothing stay candidates; so do those that cannot be read, of which the merge
says what is wrong. Must not read rows of data files.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table
from skipstone_core.funnel import LeftOut, PruneStage
from skipstone_core.indexing.filters import FilterCost, may_pay, pass_rate
from skipstone_core.indexing.use import ReadCost
from skipstone_core.merging.merges import BoundKey

from skipstone.files.bloom.probing import AskedKeys, FileFilters, Numbers
from skipstone.files.bloom.rounds import Asking, FileVerdict, FilterOutcome, Rounds, numbers_of, total
from skipstone.files.reader import DataFileDescription, OpenDataFile, describe_files, open_data_file
from skipstone.kernels.changes import ChangeSlice, SlicePart, read_key_rows, source_keys
from skipstone.parallel import at_once
from skipstone.pruning.funnel import Candidates, Narrowed, Pieces, SliceRunner, StageRefusal, run_here
from skipstone.pruning.keyfields import key_field, whole_columns
from skipstone.pruning.keyindex import FindIndexes, bound_keys
from skipstone.tables.filesets import FileSet

_log = logging.getLogger(__name__)
#: No piece of the source: file, slice, start and stop of each.
_NOTHING = np.empty((0, 4), dtype=np.int64)


@dataclass(frozen=True)
class AskedFile:
    """A candidate file. ``parts``: what of each slice it may hold, by the slice's path."""

    file: DataFileDescription
    saves: ReadCost
    parts: Mapping[str, SlicePart]


@dataclass(frozen=True)
class FoundRows:
    """The verdict of filters on a file and one slice: it may hold rows in ``part`` only, which may be empty."""

    verdict: FileVerdict
    part: SlicePart


@dataclass(frozen=True)
class FilterProber:
    """Asks the filters of files for the keys of one slice. Picklable."""

    keys: Sequence[BoundKey]
    files: Sequence[AskedFile]

    def __call__(self, change_slice: ChangeSlice) -> list[FoundRows]:
        """One element for each file that may hold rows of the slice."""
        files = [file for file in self.files if change_slice.path in file.parts]
        if not files:
            return []
        keys = _SliceKeys(change_slice, self.keys)
        return at_once(lambda file: keys.ask(file, file.parts[change_slice.path]), files)


class _SliceKeys:
    """The keys of a slice."""

    def __init__(self, change_slice: ChangeSlice, keys: Sequence[BoundKey]) -> None:
        rows = read_key_rows(change_slice, keys)
        columns = [_in_one_piece(rows.column(key.source)) for key in keys]
        given = zip(keys, columns, source_keys(rows, keys), strict=True)
        self._asked = [AskedKeys(key.target, column, canonical) for key, column, canonical in given]

    def ask(self, asked: AskedFile, part: SlicePart) -> FoundRows:
        """Return the verdict of a file's filters on the rows in ``part``."""
        try:
            with open_data_file(asked.file) as opened:
                return self._ask_opened(opened, asked, part)
        except Exception as error:  # noqa: BLE001 - the merge reads the file and says what is wrong with it
            _log.info("the bloom filters of %s cannot be read: %s", asked.file.path, error)
            return FoundRows(FileVerdict(asked.file.file_id, FilterOutcome.NO_FILTER), part)

    def _ask_opened(self, opened: OpenDataFile, asked: AskedFile, part: SlicePart) -> FoundRows:
        filters, rows = FileFilters(opened), part.stop - part.start
        cost = filters.cost(self._asked, rows)
        verdict = FileVerdict(asked.file.file_id, FilterOutcome.NO_FILTER)
        if cost is None:
            return FoundRows(verdict, part)
        if not may_pay(cost, asked.saves):
            return FoundRows(replace(verdict, outcome=FilterOutcome.TOO_COSTLY, cost=cost), part)
        left = [row for group in filters.groups for row in self._left(filters, group, part)]
        verdict = replace(
            verdict,
            outcome=FilterOutcome.KEPT if left else FilterOutcome.DROPPED,
            cost=replace(cost, bytes=filters.read),
            passes=pass_rate(float(np.prod(list(filters.rates.values()))), rows),
        )
        return FoundRows(
            verdict, replace(part, start=min(left), stop=max(left) + 1) if left else replace(part, stop=part.start)
        )

    def _left(self, filters: FileFilters, group: int, part: SlicePart) -> tuple[int, ...]:
        """The first and the last of the rows that a row group may hold; nothing when it holds none."""
        rows = np.arange(part.start, part.stop)
        if len(filters.groups) > 1:  # the bounds of a file with one are those of the file, which were looked at
            for asked in self._asked:
                rows = filters.within(asked, group, rows)
        for asked in self._asked:
            rows = filters.may_hold(asked, group, rows)
        return (int(rows[0]), int(rows[-1])) if len(rows) else ()


def _in_one_piece(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


@dataclass(frozen=True)
class BloomStage:
    """Keeps files whose bloom filters may hold a source key, and narrows what of the source they may hold.

    Files that an index on all key columns covers are left to it: it finds keys exactly, and costs less. Filters pay
    when asking them costs at most half of reading the key columns of the files that they leave out; a few files are
    asked first to see how many these are.
    """

    table: Table
    files: FileSet
    keys: Sequence[BoundKey]
    slices: Sequence[ChangeSlice]
    find: FindIndexes
    run: SliceRunner = run_here

    @property
    def name(self) -> PruneStage:
        """Return the name of the stage."""
        return PruneStage.BLOOM

    def prune(self, candidates: Candidates) -> Narrowed | StageRefusal:
        """Drop files in which no filter leaves a key, and narrow the slices of the others that were asked."""
        if not whole_columns(self.files.schema, self.keys):
            return StageRefusal(LeftOut.NO_FILTERS, "the keys are fields within columns, whose filters are not read")
        uncovered = np.setdiff1d(candidates.files, self._left_to_indexes())
        if not len(uncovered):
            return StageRefusal(LeftOut.LEFT_TO_INDEX, f"it covers all {len(candidates.files)} candidate files")
        found_rows: dict[tuple[int, int], FoundRows] = {}
        items = list(self._asked_files(candidates.among(uncovered)))
        rounds = Asking(items, [item.saves for item in items], partial(self._ask, found_rows)).run()
        dropped = numbers_of(rounds.of(FilterOutcome.DROPPED))
        if not len(dropped) and (rounds.stopped or not rounds.has_filters):
            return _refused(rounds)
        return Narrowed(self._narrowed(candidates, dropped, found_rows), _summary(rounds, len(items)))

    def _left_to_indexes(self) -> Numbers:
        """The files that an index covers which begins with all key columns."""
        try:
            indexes, _ = self.find()
        except Exception:  # noqa: BLE001 - the next stage tells
            return np.empty(0, np.int64)
        exact = [index for index in indexes if len(bound_keys(index, self.keys, self.files.schema)) == len(self.keys)]
        covered = [np.flatnonzero(index.covered) for index in exact]
        return np.unique(np.concatenate([np.empty(0, np.int64), *covered]))

    def _asked_files(self, candidates: Candidates) -> Iterator[AskedFile]:
        fields = [key_field(self.files.schema, key).field_id for key in self.keys]
        sizes, parts = self.files.column_bytes(fields), candidates.parts(self.slices)
        mine = [number for number in parts if self.files.are_parquet[number]]
        for file in describe_files(self.table, self.files, mine, with_deletes=False):
            by_slice = {self.slices[part.slice].path: part for part in parts[file.file_id]}
            yield AskedFile(file, ReadCost(1, int(sizes[file.file_id])), by_slice)

    def _ask(self, found_rows: dict[tuple[int, int], FoundRows], files: Sequence[AskedFile]) -> list[FileVerdict]:
        keys = whole_columns(self.files.schema, self.keys)
        answers = self.run(FilterProber(keys, files), self.slices)
        mine = [row for rows in answers for row in rows]
        found_rows |= {(rows.verdict.file_id, rows.part.slice): rows for rows in mine}
        by_file: dict[int, list[FileVerdict]] = {}
        for rows in mine:
            by_file.setdefault(rows.verdict.file_id, []).append(rows.verdict)
        return [_verdict_of_all(verdicts) for verdicts in by_file.values()]

    def _narrowed(
        self, candidates: Candidates, dropped: Numbers, found_rows: Mapping[tuple[int, int], FoundRows]
    ) -> Candidates:
        """Return ``candidates`` without the files ``dropped``, and without the rows that filters refuse."""
        left = candidates.among(np.setdiff1d(candidates.files, dropped))
        pieces = [_NOTHING]
        for file, parts in left.parts(self.slices).items():
            asked = [found_rows[file, part.slice].part if (file, part.slice) in found_rows else part for part in parts]
            pieces += [
                np.array([[file, part.slice, part.start, part.stop]]) for part in asked if part.start < part.stop
            ]
        return Candidates(left.files, Pieces(*np.concatenate(pieces).T))


def _verdict_of_all(verdicts: Sequence[FileVerdict]) -> FileVerdict:
    """One verdict of a file from those for each slice: it goes only when no slice leaves it anything."""
    kept = [verdict for verdict in verdicts if verdict.outcome is not FilterOutcome.DROPPED]
    cost: FilterCost = total(verdict.cost for verdict in verdicts)
    passes = 1 - float(np.prod([1 - verdict.passes for verdict in verdicts]))
    return replace(kept[0] if kept else verdicts[0], cost=cost, passes=passes)


def _summary(rounds: Rounds, files: int) -> str:
    """Return a text on the filters that were asked, and why not more were."""
    asked, dropped = len(rounds.of(FilterOutcome.DROPPED, FilterOutcome.KEPT)), len(rounds.of(FilterOutcome.DROPPED))
    text = f"filters of {asked} of {files} files: {dropped} left out, reading {rounds.cost}"
    return f"{text}; {rounds.stopped}" if rounds.stopped else text


def _refused(rounds: Rounds) -> StageRefusal:
    if rounds.verdicts and not rounds.has_filters:
        count = len(rounds.verdicts)
        return StageRefusal(LeftOut.NO_FILTERS, f"none of {count} candidate files that were looked at has one")
    return StageRefusal(LeftOut.NO_GAIN, rounds.stopped)
