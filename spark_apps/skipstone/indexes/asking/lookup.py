"""Looks a condition up in all indexes of a table: which to ask is weighed first, then their hits are combined.

Called by the query planner in the driver, without Spark. Exact about what it does not know: a file that no asked index
covers is never reported as without hits. Must not read the indexed table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np
import numpy.typing as npt
from skipstone_core.indexing.choice import Offer, plan_next
from skipstone_core.indexing.use import USUAL_LIMITS, CostLimits, NotUsed, ReadCost, is_worthwhile

from skipstone.indexes.asking.candidates import WeighedFiles
from skipstone.indexes.asking.estimates import entries_at_least
from skipstone.indexes.asking.hits import IndexHits, both, either, no_hits
from skipstone.indexes.asking.probes import Probe, ProbeColumns, WholeProbe, entry_files, plan_probe, read_hits
from skipstone.indexes.asking.sampling import Sample, looks_of, sample_of
from skipstone.indexes.found import FoundIndex, IndexRefusal
from skipstone.indexes.keytests import AllTests, AnyTest, Test, narrowed_columns, tested_columns
from skipstone.indexes.kinds import kind_of
from skipstone.indexes.stores.port import ProbeTerms, store_of

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Conjunction:
    """Every part narrows the hits."""

    parts: tuple[IndexQuestion, ...]

    @property
    def cost(self) -> ReadCost:
        """Of the cheapest part: the others are weighed against what it leaves."""
        return min((part.cost for part in self.parts), key=lambda cost: cost.weight)

    @property
    def covered(self) -> Mask:
        """One boolean per file: whether some part covers it."""
        return reduce(np.logical_or, (part.covered for part in self.parts))


@dataclass(frozen=True)
class Disjunction:
    """All parts have to be asked."""

    parts: tuple[IndexQuestion, ...]

    @property
    def cost(self) -> ReadCost:
        """Of all parts."""
        return reduce(ReadCost.__add__, (part.cost for part in self.parts))

    @property
    def covered(self) -> Mask:
        """One boolean per file: whether every part covers it."""
        return reduce(np.logical_and, (part.covered for part in self.parts))


IndexQuestion = Probe | Conjunction | Disjunction


@dataclass(frozen=True)
class LookUp:
    """The result of a look-up; ``hits`` None when no index was asked.

    ``refusals``: why the indexes that were not used were not, ``costs``: what was read of the others, by name.
    ``rows``: that pass the test in the files that an index covers, as far as one told, used or not. Rows with a null in
    another column may be among them.
    """

    hits: IndexHits | None
    refusals: Mapping[str, IndexRefusal]
    costs: Mapping[str, ReadCost]
    rows: int = 0


def look_up(test: Test, indexes: Sequence[FoundIndex], candidates: WeighedFiles) -> LookUp:
    """Look a test up in ``indexes``. An index that cannot be read covers nothing and is named."""
    weighing = _Weighing(indexes, candidates)
    question = weighing.question(test)
    asking = _Asking(candidates, weighing)
    hits = None if question is None else asking.ask(question)
    if hits is not None and not candidates.are_narrowed_by(hits, weighing.least_covered()):
        everywhere = _everywhere(hits, candidates, len(weighing.asked))
        weighing.refusals |= {name: replace(everywhere, cost=cost) for name, cost in weighing.asked.items()}
        hits = None
    if hits is None:
        wasted = IndexRefusal(NotUsed.NO_GAIN, "another arm of the OR has hits nearly everywhere")
        refused = {name: replace(wasted, cost=cost) for name, cost in weighing.asked.items()}
        weighing.refusals = {**refused, **weighing.refusals}
        weighing.asked = {}
    for index in indexes:
        weighing.refusals.setdefault(index.name, _unasked(index, test))
    refusals = {name: refusal for name, refusal in weighing.refusals.items() if name not in weighing.asked}
    return LookUp(hits, refusals, weighing.asked, asking.rows_of(test))


def _everywhere(hits: IndexHits, candidates: WeighedFiles, asked: int = 1) -> IndexRefusal:
    """Refusal of an index, or of several that were ``asked`` together, by where their hits are."""
    within, covered = candidates.hit_cost(hits), candidates.cost(hits.covered)
    if asked > 1:
        message = f"the hits of {asked} indexes together are in {within} of the {covered} that they cover"
    else:
        message = f"its hits are in {within} of the {covered} that it covers"
    return IndexRefusal(NotUsed.NO_GAIN, message)


def _nearly_everywhere(sample: Sample) -> IndexRefusal:
    sampled = f"{sample.count:,} hits of a sample of its entries"
    return IndexRefusal(
        NotUsed.NO_GAIN, f"by {sampled}, {sample.times:.0f} times as many are in too many pages or files"
    )


def _unasked(index: FoundIndex, test: Test) -> IndexRefusal:
    if index.replaced:
        return IndexRefusal(NotUsed.COLUMN_REPLACED, index.replaced)
    store = index.index.definition.store
    if store is not None:
        message = f"an index in {store} serves only conditions that name values of all its columns"
    elif index.serves_part(test):
        message = "the condition narrows its first column in some arms of an OR, and no index serves all others"
    else:
        message = "the condition does not narrow its first column"
    return IndexRefusal(NotUsed.LEADING_COLUMN_NOT_BOUND, message)


def weighed_probe(index: FoundIndex, test: Test, candidates: WeighedFiles) -> Probe | IndexRefusal:
    """Return the part to read of an index that serves ``test``, or why it is not asked.

    Included values narrow the hits further; where reading them costs too much, keys alone are looked at.
    """
    savings = candidates.cost(index.covered)
    if savings.files == 0 and candidates.mask.any():
        message = f"it covers none of the {int(candidates.mask.sum())} files that may match"
        return IndexRefusal(NotUsed.NOT_COVERED, message)
    store = store_of(index.index)
    probe = store.probe(index, test, savings, ProbeTerms(ProbeColumns(index.columns), candidates.limits))
    if isinstance(probe, Probe) or index.columns == index.keys:
        return probe
    return store.probe(index, test, savings, ProbeTerms(ProbeColumns(index.keys), candidates.limits))


def worthwhile_probe(
    index: FoundIndex, test: Test, savings: ReadCost, columns: ProbeColumns, limits: CostLimits = USUAL_LIMITS
) -> Probe | IndexRefusal:
    """Return the part to read of ``columns`` for ``test``, or why that is not worth ``savings`` at most."""
    definition = index.index.definition
    try:
        test = kind_of(definition).entry_test(test, definition)
        files = entry_files(index, test)
        to_open = ReadCost(files=len(files))
        if not is_worthwhile(to_open, savings, limits):
            return no_gain(to_open, savings)
        probe = plan_probe(index, test, files, columns)
        cost = probe.cost + ReadCost(rows=entries_at_least(index, test))
    except Exception as error:  # noqa: BLE001 - an unreadable index must cost time, never an answer
        return unreadable(error)
    return probe if is_worthwhile(cost, savings, limits) else no_gain(cost, savings)


@dataclass
class _Weighing:
    """Decides which indexes are worth asking. ``asked``: cost of those that were by name, filled while asking."""

    indexes: Sequence[FoundIndex]
    candidates: WeighedFiles
    refusals: dict[str, IndexRefusal] = field(default_factory=dict)
    asked: dict[str, ReadCost] = field(default_factory=dict)

    def question(self, test: Test) -> IndexQuestion | None:
        """Return the question for a test; None when no index serves it or none is worth it."""
        return self._question(test, self.indexes)

    def _question(self, test: Test, indexes: Sequence[FoundIndex]) -> IndexQuestion | None:
        probes = [self._probe(index, test) for index in indexes if index.serves(test)]
        unions = test.parts if isinstance(test, AllTests) else (test,)
        arms = [self._any(union, indexes) for union in unions if isinstance(union, AnyTest)]
        asked = [part for part in (*probes, *arms) if part is not None]
        if len(asked) < 2:
            return asked[0] if asked else None
        return Conjunction(tuple(asked))

    def _any(self, test: AnyTest, indexes: Sequence[FoundIndex]) -> IndexQuestion | None:
        """Arm by arm, by the indexes that do not serve all arms at once: these are asked for them at once."""
        others = [index for index in indexes if not index.serves(test)]
        known = [arm for part in test.parts if (arm := self._question(part, others)) is not None]
        if len(known) < len(test.parts):
            return None
        question = Disjunction(tuple(known))
        savings = self.candidates.cost(question.covered)
        if is_worthwhile(question.cost, savings, self.candidates.limits):
            return question
        nothing = "no file is covered for every arm of the OR"
        self.refuse_all(question, no_gain(question.cost, savings, nothing, _TOGETHER))
        return None

    def _probe(self, index: FoundIndex, test: Test) -> Probe | None:
        if not index.serves(test):
            return None
        probe = weighed_probe(index, test, self.candidates)
        if isinstance(probe, Probe):
            return probe
        self.refuse(index, probe)
        return None

    def least_covered(self) -> int:
        """Bytes of the candidates that the asked index covers which covers least.

        What is left out is judged by these: the files of another index never make its hits seem to be everywhere.
        """
        asked = (index.covered for index in self.indexes if index.name in self.asked)
        return min((self.candidates.cost(covered).bytes for covered in asked), default=0)

    def refuse_all(self, question: IndexQuestion, refusal: IndexRefusal) -> None:
        """Refuse the indexes of a question."""
        for probe in probes_of(question):
            self.refuse(probe.index, refusal)

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


#: Which indexes have the cost of a question with arms.
_TOGETHER = "the indexes of all arms of the OR together"


def no_gain(
    cost: ReadCost, savings: ReadCost, nothing: str = "min/max leaves no file", who: str = "it"
) -> IndexRefusal:
    """Refusal by cost, with the numbers; ``nothing``: why there is no file to save. ``who``: what would be read."""
    if savings.files == 0:
        return IndexRefusal(NotUsed.NO_GAIN, nothing)
    decoded = f", decode {cost.values:,} values" if cost.values else ""
    finding = f" and find at least {cost.rows:,} rows" if cost.rows else ""
    message = f"{who} would read {cost}{decoded}{finding}, to save at most {savings}"
    return IndexRefusal(NotUsed.NO_GAIN, message, cost)


def unreadable(error: Exception) -> IndexRefusal:
    """Refusal of an index that cannot be read."""
    return IndexRefusal(NotUsed.UNREADABLE, f"it cannot be read: {error}")


def probes_of(question: IndexQuestion) -> list[Probe]:
    """All probes of a question."""
    if isinstance(question, Probe):
        return [question]
    return [probe for part in question.parts for probe in probes_of(part)]


@dataclass
class _Asked:
    """The columns that indexes were asked for. Of the same files, another index on these tells nothing more."""

    parts: list[tuple[frozenset[int], Mask]] = field(default_factory=list)

    def take(self, part: IndexQuestion, hits: IndexHits) -> None:
        """Remember the columns of ``part``, and the files that its ``hits`` cover."""
        if isinstance(part, Probe):
            self.parts.append((_asked_for(part), hits.covered))

    def files(self, part: IndexQuestion) -> Mask:
        """One boolean per file: whether nothing more can be told of it by ``part``."""
        none = np.zeros_like(part.covered)
        if not isinstance(part, Probe):
            return none
        columns = _asked_for(part)
        same = (files for known, files in self.parts if columns <= known and np.array_equal(files, part.covered))
        return reduce(np.logical_or, same, none)


def _asked_for(probe: Probe) -> frozenset[int]:
    return tested_columns(probe.test) & probe.tested.keys()


@dataclass(frozen=True)
class _Asking:
    """``read``: the probes that were read to their end, with the number of hits."""

    candidates: WeighedFiles
    weighing: _Weighing
    read: list[tuple[Probe, int]] = field(default_factory=list)

    def rows_of(self, test: Test) -> int:
        """How many rows pass a test, but for nulls, where a probe tested all of it."""
        columns = narrowed_columns(test)
        return max(
            (hits for probe, hits in self.read if probe.test is test and columns <= probe.tested.keys()), default=0
        )

    def ask(self, question: IndexQuestion) -> IndexHits | None:
        """The hits of a question; None when they turn out to be nearly everywhere."""
        match question:
            case Probe():
                return self._ask_index(question)
            case Conjunction():
                return self._ask_all(question)
            case Disjunction():
                answers = [self.ask(part) for part in question.parts]
                known = [hits for hits in answers if hits is not None]
                return reduce(either, known) if len(known) == len(answers) else None

    def _ask_index(self, probe: Probe) -> IndexHits | None:
        index = probe.index
        try:
            if isinstance(probe, WholeProbe):
                hits = probe.read()  # of equal hashes: they do not tell how many rows pass
                self.weighing.take(probe)
                return hits
            if (everywhere := self._everywhere_at_once(probe)) is not None:
                self.weighing.refuse(index, replace(_everywhere(everywhere, self.candidates), cost=probe.cost))
                return None
            sample = sample_of(probe)
            if sample is not None and self.candidates.will_be_everywhere(sample.halves, sample.times):
                self.weighing.refuse(index, replace(_nearly_everywhere(sample), cost=probe.cost))
                return None
            hits, is_whole = read_hits(probe, self.candidates.are_narrowed_so_far)
        except Exception as error:  # noqa: BLE001 - an unreadable index must cost time, never an answer
            self.weighing.asked.pop(index.name, None)
            self.weighing.refuse(index, unreadable(error))
            return no_hits(np.zeros_like(index.covered))
        if not is_whole:
            self.weighing.refuse(index, replace(_everywhere(hits, self.candidates), cost=probe.cost))
            return None
        self.weighing.take(probe)
        self.read.append((probe, len(hits.rows.keys)))
        return hits

    def _everywhere_at_once(self, probe: Probe) -> IndexHits | None:
        """The hits of a few entries that are in nearly all files already, where these are read as a whole.

        Single rows, or row groups, may be a gain all the same. Raises UnreadableIndexFile.
        """
        for look in looks_of(probe) if self.candidates.whole_files else ():
            hits, _ = read_hits(look, lambda _: True)
            if not self.candidates.are_narrowed_so_far(hits):
                return hits
        return None

    def _ask_all(self, question: Conjunction) -> IndexHits | None:
        """The best part first, then the best for what it left, until none pays; None when no part leaves out much."""
        hits: IndexHits | None = None
        waiting, asked = list(question.parts), _Asked()
        limits = self.candidates.limits
        while (place := plan_next([self._offer(part, hits, asked) for part in waiting], limits)) is not None:
            answer = self.ask(part := waiting.pop(place))
            if answer is not None:
                hits = answer if hits is None else both(hits, answer)
                asked.take(part, answer)
        for part in waiting:
            offer = self._offer(part, hits, asked)
            who = "it" if isinstance(part, Probe) else _TOGETHER
            refusal = no_gain(offer.cost, offer.savings, "the others leave no file it covers", who)
            self.weighing.refuse_all(part, refusal)
        return hits

    def _offer(self, part: IndexQuestion, hits: IndexHits | None, asked: _Asked) -> Offer:
        open_files = part.covered if hits is None else part.covered & hits.left & ~asked.files(part)
        columns = len(part.columns) if isinstance(part, Probe) else 1
        return Offer(self.candidates.cost(open_files), part.cost, columns)
