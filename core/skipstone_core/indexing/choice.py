"""Which index to ask next: the one that can save most of what the others left to read, less what asking it costs.

The one rule of merges and queries. Whoever asks offers every index that fits, asks the one that the rule names, and
offers the others again for what is left, until none pays. The order never matters to the result: a file leaves only
when an index that covers it finds nothing in it, so what several indexes leave is what each of them leaves.

Because an index is turned away only for what asking it costs, one index more never adds a file that is read, unless
reading the ones before it has made another one not worth its cost. Must not know how an index is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skipstone_core.indexing.use import USUAL_LIMITS, CostLimits, ReadCost, is_worthwhile


@dataclass(frozen=True, slots=True)
class Offer:
    """An index that can be asked. ``savings``: what reading the files costs that are left and that it covers.

    ``cost``: of asking it. ``columns``: how many of its columns are asked for; more of them find fewer files.
    """

    savings: ReadCost
    cost: ReadCost
    columns: int = 1

    @property
    def gain(self) -> int:
        """Bytes that it saves at most."""
        return self.savings.weight - self.cost.weight


def plan_next(offers: Sequence[Offer], limits: CostLimits = USUAL_LIMITS) -> int | None:
    """The place in ``offers`` of the index to ask next; None when none is worth its cost.

    The greatest gain comes first, of equal ones the index with more columns, then the first offered.
    """
    paying = [place for place, offer in enumerate(offers) if is_worthwhile(offer.cost, offer.savings, limits)]
    return max(paying, key=lambda place: (offers[place].gain, offers[place].columns, -place), default=None)
