"""The stage that asks a lookup index of the table which files hold a source key.

Called by merge runs. Files that the index does not cover stay candidates; an index that cannot be read costs time,
never rows. Must not read data files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import numpy.typing as npt
from pyiceberg.schema import Schema
from skipstone_core.funnel import LeftOut, PruneStage
from skipstone_core.indexing.choice import Offer, plan_next
from skipstone_core.indexing.use import ReadCost
from skipstone_core.merging.merges import BoundKey

from skipstone.indexes.asking.keyprobe import KeyProbe
from skipstone.indexes.found import FoundIndex, IndexProblem
from skipstone.indexes.stores.port import KeyFinder, store_of
from skipstone.kernels.canonical import Int64s
from skipstone.kernels.changes import ChangeSlice, read_keys
from skipstone.pruning.funnel import Candidates, Narrowed, SliceRunner, StageRefusal, run_here
from skipstone.pruning.keyfields import key_field
from skipstone.tables.filesets import FileSet

_log = logging.getLogger(__name__)
Mask = npt.NDArray[np.bool_]
#: Finds the indexes of the table: usable ones, and others with what is wrong.
FindIndexes = Callable[[], tuple[Sequence[FoundIndex], Sequence[IndexProblem]]]


@dataclass(frozen=True)
class ProbePlanner:
    """Plans the probe of one slice; ``keys`` are those that the index binds, in its order."""

    search: KeyFinder
    keys: Sequence[BoundKey]

    def __call__(self, change_slice: ChangeSlice) -> KeyProbe:
        """Return the part of the index to read for the slice."""
        return self.search.plan(read_keys(change_slice, self.keys)) if change_slice.keyed else KeyProbe((), ReadCost())


@dataclass(frozen=True)
class Prober:
    """Reads the index for one slice."""

    search: KeyFinder
    keys: Sequence[BoundKey]
    probes: dict[str, KeyProbe]

    def __call__(self, change_slice: ChangeSlice) -> Int64s:
        """The wanted files that hold a key of the slice."""
        keys = read_keys(change_slice, self.keys) if self.probes[change_slice.path].parts else []
        return self.search.hits(self.probes[change_slice.path], keys) if keys else np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class PlannedProbe:
    """The parts of ``index`` to read for each slice, by the slice's path; ``keys``: bound by it, in its order."""

    index: FoundIndex
    keys: Sequence[BoundKey]
    probes: dict[str, KeyProbe]

    @property
    def cost(self) -> ReadCost:
        """Of all slices."""
        return reduce(ReadCost.__add__, (probe.cost for probe in self.probes.values()), ReadCost())


@dataclass(frozen=True)
class KeyIndexStage:
    """Keeps files in which every index that covers them finds a source key, and those that none covers.

    An index serves when its first column, at least, is a key column. Which one is asked, and in which order, is the
    rule of ``skipstone_core.indexing.choice``: reading an index is weighed against reading the key columns of the files
    that it covers and that the ones before it left.
    """

    files: FileSet
    keys: Sequence[BoundKey]
    slices: Sequence[ChangeSlice]
    find: FindIndexes
    run: SliceRunner = run_here

    @property
    def name(self) -> PruneStage:
        """Return the name of the stage."""
        return PruneStage.KEY_INDEX

    def prune(self, candidates: Candidates) -> Narrowed | StageRefusal:
        """Drop covered files without a hit, by every index that pays on what the others left."""
        try:
            indexes, problems = self.find()
        except Exception as error:  # noqa: BLE001 - a catalog that cannot list tables must not stop a merge
            return StageRefusal(LeftOut.UNREADABLE, f"the indexes cannot be listed: {error}")
        bound = [(index, keys) for index in indexes if (keys := bound_keys(index, self.keys, self.files.schema))]
        asking = _Asking(self, candidates, _none_fits(problems))
        waiting = [probe for index, keys in bound if (probe := asking.plan(index, keys))]
        while (place := plan_next([asking.offer(probe) for probe in waiting])) is not None:
            asking.ask(waiting.pop(place))
        for probe in waiting:
            asking.refuse(probe.index, asking.no_gain(probe))
        return asking.answer()

    def wanted(self, index: FoundIndex, left: Candidates) -> Mask:
        """The files of ``left`` that the index covers, as one boolean per file."""
        wanted = np.zeros(len(self.files), dtype=bool)
        wanted[left.files] = True
        return wanted & index.covered

    def savings(self, wanted: Mask) -> ReadCost:
        """Return the cost of reading the key columns of some files."""
        fields = [key_field(self.files.schema, key).field_id for key in self.keys]
        return ReadCost(int(wanted.sum()), int(self.files.column_bytes(fields)[wanted].sum()))


@dataclass
class _Asking:
    """The indexes of one merge, asked in turn. ``outcomes``: one sentence per index; ``is_asked``: any was read."""

    stage: KeyIndexStage
    left: Candidates
    refusal: StageRefusal
    outcomes: list[str] = field(default_factory=list)
    is_asked: bool = False

    def plan(self, index: FoundIndex, keys: Sequence[BoundKey]) -> PlannedProbe | None:
        """Return the parts of the index to read; None when it covers nothing or cannot be read."""
        wanted = self.stage.wanted(index, self.left)
        if not wanted.any():
            self.refuse(index, self._not_covered())
            return None
        try:
            planner = ProbePlanner(self._search(index, keys, wanted), keys)
            probes = self.stage.run(planner, self.stage.slices)
        except Exception as error:  # noqa: BLE001 - an unreadable index must cost time, never rows
            self.refuse(index, StageRefusal(LeftOut.UNREADABLE, str(error)))
            return None
        by_path = {change_slice.path: probe for change_slice, probe in zip(self.stage.slices, probes, strict=True)}
        return PlannedProbe(index, keys, by_path)

    def offer(self, probe: PlannedProbe) -> Offer:
        """Return the offer of the index for the files that are left."""
        return Offer(self.stage.savings(self.stage.wanted(probe.index, self.left)), probe.cost, len(probe.keys))

    def ask(self, probe: PlannedProbe) -> None:
        """Drop what the index finds no key in; nothing when it cannot be read."""
        wanted, before = self.stage.wanted(probe.index, self.left), len(self.left.files)
        try:
            prober = Prober(self._search(probe.index, probe.keys, wanted), probe.keys, probe.probes)
            hits = self.stage.run(prober, self.stage.slices)
        except Exception as error:  # noqa: BLE001 - an unreadable index must cost time, never rows
            self.refuse(probe.index, StageRefusal(LeftOut.UNREADABLE, str(error)))
            return
        keep = ~wanted
        keep[np.concatenate(hits)] = True
        self.left, self.is_asked = self.left.among(np.flatnonzero(keep)), True
        self.outcomes.append(
            f"index {probe.index.name}: {before} files to {len(self.left.files)}, reading {probe.cost}"
        )

    def no_gain(self, probe: PlannedProbe) -> StageRefusal:
        """Why it is not asked for what is left."""
        offer = self.offer(probe)
        if not offer.savings.files:
            return self._not_covered()
        return StageRefusal(LeftOut.NO_GAIN, f"it would read {offer.cost} to save at most {offer.savings}")

    def refuse(self, index: FoundIndex, refusal: StageRefusal) -> None:
        """Tell why an index is not used."""
        self.refusal = StageRefusal(refusal.code, f"index {index.name}: {refusal.message}")
        self.outcomes.append(self.refusal.message)
        _log.info("%s: %s", self.refusal.code, self.refusal.message)

    def answer(self) -> Narrowed | StageRefusal:
        """Return the files that are left, with a text on each index."""
        message = "; ".join(self.outcomes) or self.refusal.message
        return Narrowed(self.left, message) if self.is_asked else StageRefusal(self.refusal.code, message)

    def _search(self, index: FoundIndex, keys: Sequence[BoundKey], wanted: Mask) -> KeyFinder:
        kinds = [key.type for key in keys]
        return store_of(index.index).search(index, kinds, wanted, self.stage.savings(wanted))

    def _not_covered(self) -> StageRefusal:
        return StageRefusal(LeftOut.NOT_COVERED, f"it covers none of {len(self.left.files)} candidate files")


def bound_keys(index: FoundIndex, keys: Sequence[BoundKey], schema: Schema) -> list[BoundKey]:
    """Those of ``keys`` that are the leading columns of an index, in its order; none if it is not searched by them."""
    by_field = {key_field(schema, key).field_id: key for key in keys}
    of_columns = [by_field.get(field_id) for field_id in index.index.definition.field_ids]
    count = store_of(index.index).bound([None if key is None else key.type for key in of_columns])
    return [key for key in of_columns[:count] if key is not None]


def _none_fits(problems: Sequence[IndexProblem]) -> StageRefusal:
    """No index binds a key column; one that cannot be used may be why."""
    return StageRefusal(
        LeftOut.NO_INDEX, "; ".join(f"index {problem.name}: {problem.refusal.message}" for problem in problems)
    )
