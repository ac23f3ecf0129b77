"""Asks the bloom filters of many files: of few first, and of the others as long as that promises to pay.

Used by the funnel of merges and by the query planner, each with a question of its own. Must not know the question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import reduce
from typing import Generic, TypeVar

import numpy as np
from skipstone_core.indexing.filters import (
    FIRST_FILES,
    NEXT_FILES,
    NO_COST,
    FilterCost,
    errs_too_often,
    is_little,
    may_pay,
)
from skipstone_core.indexing.use import ReadCost

from skipstone.files.bloom.probing import Numbers

Item = TypeVar("Item")


class FilterOutcome(Enum):
    """The outcome of asking the filters of a file."""

    NO_FILTER = auto()
    TOO_COSTLY = auto()
    DROPPED = auto()
    KEPT = auto()


@dataclass(frozen=True)
class FileVerdict:
    """One file. ``cost``: of asking, also where that was too much. ``passes``: how often it would pass in vain."""

    file_id: int
    outcome: FilterOutcome
    cost: FilterCost = NO_COST
    passes: float = 1.0


@dataclass
class Rounds:
    """The rounds of asking. ``stopped``: why not all files were, as a sentence without a full stop."""

    verdicts: list[FileVerdict] = field(default_factory=list)
    stopped: str = ""

    def of(self, *outcomes: FilterOutcome) -> list[FileVerdict]:
        """The files of which this became."""
        return [verdict for verdict in self.verdicts if verdict.outcome in outcomes]

    @property
    def cost(self) -> FilterCost:
        """Of all that was asked."""
        return total(verdict.cost for verdict in self.of(FilterOutcome.DROPPED, FilterOutcome.KEPT))

    @property
    def has_filters(self) -> bool:
        """Return whether any file has a filter."""
        return len(self.of(FilterOutcome.NO_FILTER)) < len(self.verdicts)


@dataclass(frozen=True)
class Asking(Generic[Item]):
    """Which files are asked. ``items``: what the question takes for each; ``saves``: what leaving each out saves."""

    items: Sequence[Item]
    saves: Sequence[ReadCost]
    ask: Callable[[Sequence[Item]], list[FileVerdict]]

    def run(self) -> Rounds:
        """Ask in rounds. The first files are chosen from all over the table."""
        rounds, savings = Rounds(), sum(self.saves, ReadCost())
        if is_little(savings):
            rounds.stopped = f"reading {savings} takes no longer"
            return rounds
        done: list[int] = []
        for numbers in _rounds(len(self.items)):
            rounds.stopped = self._futile(rounds, done) if done else ""
            if rounds.stopped:
                break
            rounds.verdicts += self.ask([self.items[number] for number in numbers])
            done += numbers
        if rounds.has_filters and not rounds.of(FilterOutcome.DROPPED, FilterOutcome.KEPT):
            rounds.stopped = (
                f"asking them takes {total(verdict.cost for verdict in rounds.verdicts)} to save at most {savings}"
            )
        return rounds

    def _futile(self, rounds: Rounds, done: Sequence[int]) -> str:
        """Why the others are not asked, or nothing."""
        kept, dropped = rounds.of(FilterOutcome.KEPT), rounds.of(FilterOutcome.DROPPED)
        if not dropped and errs_too_often([verdict.passes for verdict in kept]):
            return f"{100 * min(verdict.passes for verdict in kept):.0f} % of the files without any key would pass"
        if len(done) <= FIRST_FILES:
            return ""
        if not rounds.has_filters:
            return f"none of {len(done)} files that were looked at has one"
        rest = sum((saved for number, saved in enumerate(self.saves) if number not in set(done)), ReadCost())
        cost = _scaled(total(verdict.cost for verdict in rounds.verdicts), rest.files, len(done))
        if may_pay(cost, rest, len(dropped) / len(done)):
            return ""
        return f"{len(dropped)} of {len(done)} files were left out, the others would take {cost} to save at most {rest}"


def total(costs: Iterable[FilterCost]) -> FilterCost:
    """The sum of costs."""
    return reduce(FilterCost.__add__, costs, FilterCost())


def _scaled(cost: FilterCost, files: int, of_files: int) -> FilterCost:
    return FilterCost(*(number * files // of_files for number in (cost.files, cost.bytes, cost.asked)))


def _rounds(count: int) -> Iterator[list[int]]:
    """All numbers below ``count``: a few from all over, some more, the rest."""
    first = np.unique(np.linspace(0, count - 1, min(count, FIRST_FILES), dtype=np.int64))
    sample = np.unique(np.linspace(0, count - 1, min(count, FIRST_FILES + NEXT_FILES), dtype=np.int64))
    rest = np.setdiff1d(np.arange(count), np.union1d(first, sample))
    for numbers in (first, np.setdiff1d(sample, first), rest):
        if len(numbers):
            yield numbers.tolist()


def numbers_of(verdicts: Iterable[FileVerdict]) -> Numbers:
    """The files of verdicts, ascending."""
    return np.unique(np.array([verdict.file_id for verdict in verdicts], dtype=np.int64))
