"""What the bloom filters of one data file say of keys, row group by row group, and what asking them costs.

Used by the funnel of merges and by the query planner. A row group without a filter, or with one that says nothing of
the keys, may hold them all. Must not weigh whether asking pays.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from skipstone_core.filter_sizes import USUAL_BYTES
from skipstone_core.indexing.filters import FilterCost

from skipstone.files.bloom.reading import FilterPlace, read_filter
from skipstone.files.bloom.sealing import PIECE_BYTES
from skipstone.files.bloom.values import HashedKeys, StoredForm, hashed
from skipstone.files.reader import OpenDataFile

Numbers = npt.NDArray[np.int64]


class AskedKeys:
    """Keys of one column, in whatever forms files store it; hashed once for each."""

    def __init__(self, column: str, values: pa.Array, canonical: pa.Array) -> None:
        """``column``: by its name in the schema to read in. ``values``: without nulls; ``canonical``: in that form."""
        self.column = column
        self.values = values
        self.canonical = canonical
        self._forms: dict[StoredForm, HashedKeys | None] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many."""
        return len(self.values)

    def hashed(self, form: StoredForm) -> HashedKeys | None:
        """The keys in a form; None when filters of that form say nothing of them."""
        with self._lock:
            if form not in self._forms:
                self._forms[form] = hashed(self.values, form)
            return self._forms[form]


class FileFilters:
    """The filters of an open data file. ``read``: bytes of them so far. ``rates``: how often each erred, by column."""

    def __init__(self, opened: OpenDataFile) -> None:
        """Nothing is read yet but the footer."""
        self._opened = opened
        self.groups = range(len(opened.group_rows))
        self.read = 0
        self.rates: dict[str, float] = {}

    def cost(self, asked: Sequence[AskedKeys], keys: int | None = None) -> FilterCost | None:
        """Return the cost of asking so many ``keys`` of each column, or all; None when no filter says anything."""
        costs = [cost for group in self.groups for cost in self._costs(asked, group, keys)]
        return FilterCost(1, sum(cost.bytes for cost in costs), sum(cost.asked for cost in costs)) if costs else None

    def within(self, asked: AskedKeys, group: int, rows: Numbers) -> Numbers:
        """Those of ``rows`` (numbers of keys, ascending) whose key is within the bounds of a row group."""
        bounds = self._opened.bounds(asked.column, group)
        if bounds is None or not len(rows):
            return rows
        lower, upper = (pa.scalar(bound, asked.canonical.type) for bound in bounds)
        mine = asked.canonical.take(pa.array(rows))
        inside = pc.and_(pc.greater_equal(mine, lower), pc.less_equal(mine, upper))
        return rows[np.asarray(inside.to_numpy(zero_copy_only=False), np.bool_)]

    def may_hold(self, asked: AskedKeys, group: int, rows: Numbers) -> Numbers:
        """Those of ``rows`` (numbers of keys, ascending) whose key a row group may hold. Raises OSError."""
        place, keys = self._place(asked.column, group), self._hashed(asked)
        if place is None or keys is None or not len(rows):
            return rows
        mine = keys.take(rows)
        answer = read_filter(self._opened.source, place, np.concatenate([mine.hashes, mine.twins]))
        self.read += answer.bytes
        self.rates[asked.column] = max(answer.rate, self.rates.get(asked.column, 0.0))
        holds = answer.holds[: len(rows)]
        holds[mine.twin_rows] |= answer.holds[len(rows) :]
        return rows[(holds | mine.unsure) & ~mine.absent]

    def _costs(self, asked: Sequence[AskedKeys], group: int, keys: int | None) -> Iterator[FilterCost]:
        """Of each filter of a row group that says something."""
        for column_keys in asked:
            place = self._place(column_keys.column, group)
            if place is not None and self._hashed(column_keys) is not None:
                count = len(column_keys) if keys is None else keys
                yield FilterCost(0, min(place.size(USUAL_BYTES), (1 + count) * PIECE_BYTES), count)

    def _place(self, column: str, group: int) -> FilterPlace | None:
        chunk = self._opened.chunk(column, group)
        return None if chunk is None else FilterPlace.of(chunk)

    def _hashed(self, asked: AskedKeys) -> HashedKeys | None:
        stored = self._opened.stored(asked.column)
        return None if stored is None else asked.hashed(StoredForm.of(stored))
