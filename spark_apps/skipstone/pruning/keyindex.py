"""The stage that asks a lookup index of the table which files hold a source key.

Called by merge runs. Files that the index does not cover stay candidates; an index that cannot be read costs time,
never rows. Must not read data files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt
from skipstone_core.funnel import LeftOut, PruneStage
from skipstone_core.indexing.use import ReadCost, is_worthwhile
from skipstone_core.merging.merges import BoundKey

from skipstone.indexes.asking.keyprobe import KeyProbe, KeySearch, hit_files, key_search, plan_key_probe
from skipstone.indexes.found import FoundIndex, IndexProblem
from skipstone.kernels.canonical import Int64s
from skipstone.kernels.changes import ChangeSlice, read_keys
from skipstone.pruning.funnel import Candidates, SliceRunner, StageRefusal, run_here
from skipstone.tables.filesets import FileSet

_log = logging.getLogger(__name__)
Mask = npt.NDArray[np.bool_]
#: Finds the indexes of the table: usable ones, and others with what is wrong.
FindIndexes = Callable[[], tuple[Sequence[FoundIndex], Sequence[IndexProblem]]]


@dataclass(frozen=True)
class ProbePlanner:
    """Plans the probe of one slice; ``keys`` are those that the index binds, in its order."""

    search: KeySearch
    keys: Sequence[BoundKey]

    def __call__(self, one: ChangeSlice) -> KeyProbe:
        """What to read for the slice."""
        return plan_key_probe(self.search, read_keys(one, self.keys)) if one.keyed else KeyProbe((), ReadCost())


@dataclass(frozen=True)
class Prober:
    """Reads the index for one slice."""

    search: KeySearch
    keys: Sequence[BoundKey]
    probes: dict[str, KeyProbe]

    def __call__(self, one: ChangeSlice) -> Int64s:
        """The wanted files that hold a key of the slice."""
        keys = read_keys(one, self.keys) if self.probes[one.path].parts else []
        return hit_files(self.search, self.probes[one.path], keys) if keys else np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class KeyIndexStage:
    """Keeps files in which every index that covers them finds a source key, and those that none covers.

    An index serves when its first column, at least, is a key column. The one that covers most goes first, the others
    are asked for what it left. An index pays when reading it costs at most half of reading the key columns of the
    candidate files that it covers; up to 16 files and 1 MiB of it are always read.
    """

    files: FileSet
    keys: Sequence[BoundKey]
    slices: Sequence[ChangeSlice]
    find: FindIndexes
    run: SliceRunner = run_here

    @property
    def name(self) -> PruneStage:
        """What the stage is called."""
        return PruneStage.KEY_INDEX

    def prune(self, candidates: Candidates) -> Candidates | StageRefusal:
        """Drop covered files without a hit, by every index that pays on what the others left."""
        try:
            indexes, problems = self.find()
        except Exception as error:  # noqa: BLE001 - a catalog that cannot list tables must not stop a merge
            return StageRefusal(LeftOut.UNREADABLE, f"the indexes cannot be listed: {error}")
        bound = [(index, keys) for index in indexes if (keys := self._bound(index))]
        refusal, left = _none_fits(problems), candidates
        for index, keys in sorted(bound, key=lambda pair: self._order(pair[0], pair[1], candidates)):
            found = self._asked(index, keys, left)
            if isinstance(found, Candidates):
                left = found
                continue
            refusal = StageRefusal(found.code, f"index {index.name}: {found.message}")
            _log.info("%s: %s", refusal.code, refusal.message)
        return refusal if left is candidates else left

    def _order(self, index: FoundIndex, keys: Sequence[BoundKey], candidates: Candidates) -> tuple[int, int, str]:
        """Those that cover more of the candidates' bytes first, of equal ones that which binds more key columns."""
        return -self._savings(self._wanted(index, candidates)).weight, -len(keys), index.name

    def _wanted(self, index: FoundIndex, candidates: Candidates) -> Mask:
        """The candidates that the index covers."""
        wanted = np.zeros(len(self.files), dtype=bool)
        wanted[candidates.files] = True
        return wanted & index.covered

    def _bound(self, index: FoundIndex) -> list[BoundKey]:
        """The keys that are the leading columns of the index, in its order."""
        by_field = {self.files.schema.find_field(key.target).field_id: key for key in self.keys}
        bound: list[BoundKey] = []
        for field_id in index.index.definition.field_ids:
            if field_id not in by_field:
                break
            bound.append(by_field[field_id])
        return bound

    def _asked(self, index: FoundIndex, keys: Sequence[BoundKey], candidates: Candidates) -> Candidates | StageRefusal:
        wanted = self._wanted(index, candidates)
        if not wanted.any():
            return StageRefusal(LeftOut.NOT_COVERED, f"it covers none of {len(candidates.files)} candidate files")
        try:
            search = key_search(index, [key.type for key in keys], wanted, self._savings(wanted))
            hits = self._hits(search, keys)
        except Exception as error:  # noqa: BLE001 - an unreadable index must cost time, never rows
            return StageRefusal(LeftOut.UNREADABLE, str(error))
        if isinstance(hits, StageRefusal):
            return hits
        keep = ~wanted
        keep[hits] = True
        return candidates.among(np.flatnonzero(keep))

    def _savings(self, wanted: Mask) -> ReadCost:
        fields = [self.files.schema.find_field(key.target).field_id for key in self.keys]
        return ReadCost(int(wanted.sum()), int(self.files.column_bytes(fields)[wanted].sum()))

    def _hits(self, search: KeySearch, keys: Sequence[BoundKey]) -> Int64s | StageRefusal:
        probes = self.run(ProbePlanner(search, keys), self.slices)
        cost = reduce(ReadCost.__add__, (probe.cost for probe in probes))
        if not is_worthwhile(cost, search.savings):
            return StageRefusal(LeftOut.NO_GAIN, f"it would read {cost} to save at most {search.savings}")
        by_path = {one.path: probe for one, probe in zip(self.slices, probes, strict=True)}
        return np.unique(np.concatenate(self.run(Prober(search, keys, by_path), self.slices)))


def _none_fits(problems: Sequence[IndexProblem]) -> StageRefusal:
    """No index binds a key column; one that cannot be used may be why."""
    if not problems:
        return StageRefusal(LeftOut.NO_INDEX)
    return StageRefusal(LeftOut.NO_INDEX, "; ".join(f"index {one.name}: {one.refusal.message}" for one in problems))
