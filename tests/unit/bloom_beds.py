"""Bloom filters in random tables, asked whatever that costs.

Used by the random tests of queries and merges only.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from random import Random
from unittest import mock

from skipstone_core.indexing import filters
from skipstone_core.table_properties import BLOOM_BYTES, BLOOM_FILTER_OF, BLOOM_RATE_OF

#: Names that columns get later, as random tables grow.
_LATER = tuple(f"{kind}{number}" for kind in ("late", "renamed") for number in range(6))


def filter_properties(seed: int, columns: Iterable[str]) -> dict[str, str]:
    """Filters of some columns, often of all, of several sizes; drawn apart from all else that a seed decides."""
    random = Random(f"filters {seed}")
    names = [*columns, *_LATER]
    part = random.choice([0.0, 0.6, 1.0, 1.0])
    found = {f"{BLOOM_FILTER_OF}{name}": "true" for name in names if random.random() < part}
    found |= {f"{BLOOM_RATE_OF}{name}": random.choice(["0.5", "0.1", "0.001"]) for name in names}
    return found | {BLOOM_BYTES: random.choice(["32", "1024", "1048576"])}


@contextmanager
def written_by_pyiceberg() -> Iterator[None]:
    """PyIceberg writes no filters, and warns of it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Parquet writer option")
        yield


def eager_filters() -> AbstractContextManager[object]:
    """Filters are asked of any file that has some."""
    return mock.patch.multiple(filters, LITTLE_BYTES=-1, WORTHWHILE_PART=1e12, PASSED_ANYWAY=2.0)
