"""Finds the messages that cannot be applied among many that are made into one batch.

Called by ``batches`` and ``dms``. Tries all at once, then halves: a feed without faults costs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from skipstone.sources.feeds.shapes import UnfitRecord


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
            cut = _cut(lines, start, stop)
            if cut is None:
                yield make_faulty(start, stop, error.what)
            else:
                pending += [(cut, stop), (start, cut)]
            continue
        yield batch


def _cut(lines: Sequence[int], start: int, stop: int) -> int | None:
    """Where the rows of another line begin, near the middle; None when all are of one line."""
    middle = (start + stop) // 2
    others = (*range(middle, stop), *range(middle - 1, start, -1))
    return next((at for at in others if at > start and lines[at] != lines[at - 1]), None)
