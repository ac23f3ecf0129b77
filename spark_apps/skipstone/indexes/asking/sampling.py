"""A look at a few of many keys first: from where their hits are follows what looking up all of them will leave.

Called by lookup, which the sample saves from reading an index for nothing. Must not weigh what it finds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from skipstone_core.indexing.use import MANY_KEYS, SAMPLE_KEYS

from skipstone.indexes.asking.hits import IndexHits
from skipstone.indexes.asking.probes import Probe, ProbeColumns, plan_probe, read_hits
from skipstone.indexes.keytests import AllOf, Points, Test


@dataclass(frozen=True)
class Sample:
    """The hits of some keys, and how many ``times`` as many all keys are."""

    hits: IndexHits
    times: float


def sample_of(probe: Probe) -> Sample | None:
    """What a few keys of a probe for many hit; None when it is for few, or for others than single keys.

    Raises UnreadableIndexFile.
    """
    index = probe.index
    found = _sampled(probe.test, index.index.definition.field_ids[0])
    if found is None:
        return None
    test, times = found
    files = tuple(part.file for part in probe.parts)
    columns = ProbeColumns(probe.tested, tuple(name for name in probe.columns if name not in _tested(probe)))
    hits, _ = read_hits(plan_probe(index, test, files, columns), lambda _: True)
    return Sample(hits, times)


def _tested(probe: Probe) -> frozenset[str]:
    return frozenset(column.name for column in probe.tested.values())


def _sampled(test: Test, first: int) -> tuple[Test, float] | None:
    """The test with fewer keys of the ``first`` column of an index, and how many times as many there were."""
    if isinstance(test, Points):
        return _fewer(test) if test.field_id == first and len(test.values) >= MANY_KEYS else None
    if not isinstance(test, AllOf):
        return None
    for place, part in enumerate(test.parts):
        if isinstance(part, Points) and (found := _sampled(part, first)) is not None:
            return replace(test, parts=(*test.parts[:place], found[0], *test.parts[place + 1 :])), found[1]
    return None


def _fewer(test: Points) -> tuple[Test, float]:
    """Keys from all over the range: neighbors may stand together."""
    chosen = np.linspace(0, len(test.values) - 1, SAMPLE_KEYS).astype(np.int64)
    return replace(test, values=test.values.take(pa.array(chosen))), len(test.values) / SAMPLE_KEYS
