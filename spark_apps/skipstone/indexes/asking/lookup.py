"""Looks a condition up in all indexes of a table: which to ask is weighed first, then their hits are combined.

Called by the query planner in the driver, without Spark. Exact about what it does not know: a file that no asked index
covers is never reported as without hits. Must not read the indexed table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
from skipstone_core.indexing.use import NotUsed, ReadCost, is_worthwhile

from skipstone.indexes.asking.candidates import WeighedFiles
from skipstone.indexes.asking.hits import IndexHits, both, either, no_hits
from skipstone.indexes.asking.probes import Probe, entry_files, plan_probe, read_hits
from skipstone.indexes.found import FoundIndex, IndexRefusal
from skipstone.indexes.keytests import AllOf, AnyOf, Test


@dataclass(frozen=True)
class Conjunction:
    """Every part narrows the hits."""

    parts: tuple[IndexQuestion, ...]

    @property
    def cost(self) -> ReadCost:
        """Of the cheapest part: the others are weighed against what it leaves."""
        return min((part.cost for part in self.parts), key=lambda cost: cost.weight)


@dataclass(frozen=True)
class Disjunction:
    """All parts have to be asked."""

    parts: tuple[IndexQuestion, ...]

    @property
    def cost(self) -> ReadCost:
        """Of all parts."""
        return reduce(ReadCost.__add__, (part.cost for part in self.parts))


IndexQuestion = Probe | Conjunction | Disjunction


@dataclass(frozen=True)
class LookUp:
    """What a look-up found; ``hits`` None when no index was asked.

    ``refusals``: why the indexes that were not used were not, ``costs``: what was read of the others, by name.
    """

    hits: IndexHits | None
    refusals: Mapping[str, IndexRefusal]
    costs: Mapping[str, ReadCost]


def look_up(test: Test, indexes: Sequence[FoundIndex], candidates: WeighedFiles) -> LookUp:
    """What ``indexes`` together say of a test. An index that cannot be read covers nothing and is named."""
    weighing = _Weighing(indexes, candidates)
    question = weighing.question(test)
    hits = None if question is None else _Asking(candidates, weighing).ask(question)
    if hits is not None and not candidates.are_narrowed_by(hits):
        weighing.refusals |= dict.fromkeys(weighing.asked, _everywhere(hits, candidates))
        hits = None
    if hits is None:
        wasted = IndexRefusal(NotUsed.NO_GAIN, "another arm of the OR has hits nearly everywhere")
        weighing.refusals = {**dict.fromkeys(weighing.asked, wasted), **weighing.refusals}
        weighing.asked = {}
    for index in indexes:
        weighing.refusals.setdefault(index.name, _unasked(index, test))
    refusals = {name: refusal for name, refusal in weighing.refusals.items() if name not in weighing.asked}
    return LookUp(hits, refusals, weighing.asked)


def _everywhere(hits: IndexHits, candidates: WeighedFiles) -> IndexRefusal:
    covered = candidates.cost(hits.covered)
    return IndexRefusal(NotUsed.NO_GAIN, f"its hits are in {candidates.hit_cost(hits)} of the {covered} that it covers")


def _unasked(index: FoundIndex, test: Test) -> IndexRefusal:
    if index.replaced:
        return IndexRefusal(NotUsed.COLUMN_REPLACED, index.replaced)
    message = "the condition does not narrow its first column"
    if index.serves_part(test):
        message += " in every arm of an OR that other indexes serve"
    return IndexRefusal(NotUsed.LEADING_COLUMN_NOT_BOUND, message)


def weighed_probe(index: FoundIndex, test: Test, candidates: WeighedFiles) -> Probe | IndexRefusal:
    """What to read of an index that serves ``test``, or why it is not asked."""
    savings = candidates.cost(index.covered)
    if savings.files == 0 and candidates.mask.any():
        message = f"it covers none of the {int(candidates.mask.sum())} files that may match"
        return IndexRefusal(NotUsed.NOT_COVERED, message)
    try:
        files = entry_files(index, test)
        to_open = ReadCost(files=len(files))
        if not is_worthwhile(to_open, savings):
            return _no_gain(to_open, savings)
        probe = plan_probe(index, test, files)
    except Exception as error:  # noqa: BLE001 - an unreadable index must cost time, never an answer
        return _unreadable(error)
    return probe if is_worthwhile(probe.cost, savings) else _no_gain(probe.cost, savings)


@dataclass
class _Weighing:
    """Decides which indexes are worth asking. ``asked``: cost of those that were by name, filled while asking."""

    indexes: Sequence[FoundIndex]
    candidates: WeighedFiles
    refusals: dict[str, IndexRefusal] = field(default_factory=dict)
    asked: dict[str, ReadCost] = field(default_factory=dict)

    def question(self, test: Test) -> IndexQuestion | None:
        """What to ask for a test; None when no index serves it or none is worth it."""
        found: list[IndexQuestion] = [
            probe for index in self.indexes if (probe := self._probe(index, test)) is not None
        ]
        if isinstance(test, AllOf):
            below = [self.question(part) for part in test.parts if isinstance(part, AnyOf) and not self._serves(part)]
            found.extend(one for one in below if one is not None)
        if found:
            return found[0] if len(found) == 1 else Conjunction(tuple(found))
        return self._any(test) if isinstance(test, AnyOf) else None

    def _serves(self, test: Test) -> bool:
        return any(index.serves(test) for index in self.indexes)

    def _any(self, test: AnyOf) -> IndexQuestion | None:
        arms = [self.question(part) for part in test.parts]
        known = [arm for arm in arms if arm is not None]
        if len(known) < len(arms):
            return None
        question = Disjunction(tuple(known))
        everywhere = np.ones_like(self.candidates.mask)
        if not self.is_gain(question, self.candidates.cost(everywhere)):
            return None
        return question

    def _probe(self, index: FoundIndex, test: Test) -> Probe | None:
        if not index.serves(test):
            return None
        found = weighed_probe(index, test, self.candidates)
        if isinstance(found, Probe):
            return found
        self.refuse(index, found)
        return None

    def is_gain(self, question: IndexQuestion, savings: ReadCost) -> bool:
        """Whether to ask; the indexes of a question that is not worth it are refused."""
        if is_worthwhile(question.cost, savings):
            return True
        for probe in probes_of(question):
            self.refuse(probe.index, _no_gain(question.cost, savings))
        return False

    def take(self, probe: Probe) -> None:
        """Remember that it was asked; an index that could not be read once stays unreadable."""
        name = probe.index.name
        known = self.refusals.get(name)
        if known is None or known.code is not NotUsed.UNREADABLE:
            self.asked[name] = self.asked.get(name, ReadCost()) + probe.cost

    def refuse(self, index: FoundIndex, refusal: IndexRefusal) -> None:
        """Remember why; an index that could not be read stays unreadable."""
        known = self.refusals.get(index.name)
        if known is None or known.code is not NotUsed.UNREADABLE:
            self.refusals[index.name] = refusal


def _no_gain(cost: ReadCost, savings: ReadCost) -> IndexRefusal:
    """Refusal by cost, with the numbers."""
    if savings.files == 0:
        return IndexRefusal(NotUsed.NO_GAIN, "min/max leaves no file")
    return IndexRefusal(NotUsed.NO_GAIN, f"it would read {cost} to save at most {savings}")


def _unreadable(error: Exception) -> IndexRefusal:
    return IndexRefusal(NotUsed.UNREADABLE, f"it cannot be read: {error}")


def probes_of(question: IndexQuestion) -> list[Probe]:
    """All probes of a question."""
    if isinstance(question, Probe):
        return [question]
    return [probe for part in question.parts for probe in probes_of(part)]


@dataclass(frozen=True)
class _Asking:
    candidates: WeighedFiles
    weighing: _Weighing

    def ask(self, question: IndexQuestion) -> IndexHits | None:
        """The hits of a question; None when they turn out to be nearly everywhere."""
        match question:
            case Probe():
                return self._ask_index(question)
            case Conjunction():
                return self._ask_all(question)
            case Disjunction():
                found = [self.ask(part) for part in question.parts]
                known = [hits for hits in found if hits is not None]
                return reduce(either, known) if len(known) == len(found) else None

    def _ask_index(self, probe: Probe) -> IndexHits | None:
        index = probe.index
        try:
            hits, is_whole = read_hits(probe, self.candidates.are_narrowed_by)
        except Exception as error:  # noqa: BLE001 - an unreadable index must cost time, never an answer
            self.weighing.asked.pop(index.name, None)
            self.weighing.refuse(index, _unreadable(error))
            return no_hits(np.zeros_like(index.covered))
        if not is_whole:
            self.weighing.refuse(index, _everywhere(hits, self.candidates))
            return None
        self.weighing.take(probe)
        return hits

    def _ask_all(self, question: Conjunction) -> IndexHits | None:
        """Cheapest first; each further part has to be worth what the ones before leave to read."""
        hits: IndexHits | None = None
        for part in sorted(question.parts, key=lambda part: part.cost.weight):
            left = np.ones_like(self.candidates.mask) if hits is None else hits.left
            if hits is None or self.weighing.is_gain(part, self.candidates.cost(left)):
                found = self.ask(part)
                hits = found if hits is None or found is None else both(hits, found)
        return hits
