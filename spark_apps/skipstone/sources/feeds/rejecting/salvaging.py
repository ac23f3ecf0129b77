"""Finds the messages that cannot be applied among many that are made into one batch.

Called by ``batches`` and ``dms``. Tries all at once, then pieces, then halves of these: a feed without
faults costs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import pyarrow as pa

from skipstone.sources.feeds.shapes import UnfitRecord

#: Rows of a piece of those among which one cannot be applied.
_PIECE = 256


def salvaged(
    lines: Sequence[int],
    make: Callable[[int, int], pa.RecordBatch],
    make_faulty: Callable[[int, int, str], pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Make batches of rows that stand in ``lines``, in their order; rows of one line stay together.

    ``make`` takes the first row and the one behind the last, and raises UnfitRecord for one that cannot be applied;
    ``make_faulty`` also takes what is wrong with it.
    """
    pending = [(0, len(lines))]
    while pending:
        start, stop = pending.pop()
        try:
            batch = make(start, stop)
        except UnfitRecord as error:
            cuts = [start, *_cuts(lines, start, stop), stop]
            if len(cuts) > 2:
                pending += list(pairwise(cuts))[::-1]
                continue
            batch = make_faulty(start, stop, error.what)
        yield batch


def _cuts(lines: Sequence[int], start: int, stop: int) -> list[int]:
    """Where pieces of rows begin: many of a long range, two of a short one; none when all rows are of one line."""
    count = max(2, (stop - start) // _PIECE)
    wanted = (start + (stop - start) * at // count for at in range(1, count))
    cuts = sorted({_beginning(lines, at) for at in wanted} - {start})
    return cuts or [at for at in range(start + 1, stop) if lines[at] != lines[at - 1]][:1]


def _beginning(lines: Sequence[int], at: int) -> int:
    """The first row of the line of the row ``at``."""
    while at and lines[at] == lines[at - 1]:
        at -= 1
    return at
