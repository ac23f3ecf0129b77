"""A look at a few of many hits first: from where they are follows what looking up all of them will leave.

Called by lookup, which the sample saves from reading an index for nothing. Must not weigh what it finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from skipstone_core.indexing.use import (
    FIRST_LOOK,
    LOOK_GROWTH,
    MANY_GROUPS,
    MANY_KEYS,
    SAMPLE_GROUPS,
    SAMPLE_KEYS,
)

from skipstone.indexes.asking.entryreads import EntryPart
from skipstone.indexes.asking.hits import IndexHits
from skipstone.indexes.asking.keypages import keys_of, with_pages
from skipstone.indexes.asking.probes import Probe, ProbeColumns, plan_probe, read_hits
from skipstone.indexes.keytests import AllTests, Points, Test

#: Into so many files of an index a look is at most: each has to be opened.
_LOOKED_FILES = 16


@dataclass(frozen=True)
class Sample:
    """The hits of two samples, and how many ``times`` as much as both of them all there is to look up."""

    halves: tuple[IndexHits, IndexHits]
    times: float

    @property
    def count(self) -> int:
        """Hits in both."""
        return sum(len(half.rows.keys) for half in self.halves)


def sample_of(probe: Probe) -> Sample | None:
    """What a few keys of a probe for many hit, or a few row groups of one that reads many; None when it is for few.

    Raises UnreadableIndexFile.
    """
    first = probe.index.index.definition.field_ids[0]
    count = keys_of(probe.test, first)
    if count >= MANY_KEYS:
        halves = tuple(_with_test(probe, _fewer(probe.test, first, half)) for half in range(2))
        return _sampled(halves, count / SAMPLE_KEYS)
    groups = sum(len(part.groups) for part in probe.parts)
    if groups >= MANY_GROUPS:
        return _sampled(tuple(_with_groups(probe, half) for half in range(2)), groups / SAMPLE_GROUPS)
    return None


def looks_of(probe: Probe) -> Iterator[Probe]:
    """Probes for a few of the entries from all over, then for more of them; the last for far fewer than there are.

    Each file of the index may hold the entries of other data files, so a look is into all of them, or into many.
    """
    groups = sum(len(part.groups) for part in probe.parts)
    is_by_pages = all(part.footer.by_pages for part in probe.parts)
    size = FIRST_LOOK if is_by_pages else max(FIRST_LOOK, probe.rows // max(1, groups))
    while size * LOOK_GROWTH <= probe.rows:
        parts = [probe.parts[place] for place in _chosen(len(probe.parts), _LOOKED_FILES)]
        count = max(size * groups // probe.rows, SAMPLE_GROUPS if is_by_pages else 1)
        each = -(-count // len(parts))
        chosen = [
            replace(part, groups=(part.groups[place],)) for part in parts for place in _chosen(len(part.groups), each)
        ]
        yield _with_entries(probe, chosen, size // len(chosen))
        size *= LOOK_GROWTH


def probable_rows(probe: Probe) -> int:
    """About how many entries pass, by a sample of many keys; 0 where there is no sample. Raises UnreadableIndexFile."""
    sample = sample_of(probe)
    return 0 if sample is None else int(sample.count * sample.times)


def _sampled(halves: tuple[Probe, ...], times: float) -> Sample:
    first, second = (read_hits(half, lambda _: True)[0] for half in halves)
    return Sample((first, second), times)


def _chosen(count: int, wanted: int) -> npt.NDArray[np.int64]:
    """Up to ``wanted`` places below ``count``, from all over: neighbors may stand together."""
    return np.linspace(0, count - 1, min(count, wanted)).astype(np.int64)


def _with_groups(probe: Probe, half: int) -> Probe:
    """The probe with a few of its row groups: a run of an index may hold the entries of a few files only."""
    places = [(part, group) for part in probe.parts for group in part.groups]
    chosen = [places[place] for place in _chosen(len(places), SAMPLE_GROUPS)[half::2]]
    return replace(probe, parts=tuple(replace(part, groups=(group,)) for part, group in chosen))


def _with_entries(probe: Probe, parts: list[EntryPart], most: int) -> Probe:
    """The probe with up to ``most`` entries of each of some row groups, in pages in which one may pass."""
    index = probe.index.index
    paged = with_pages(index.table.io, parts, probe.test, index.definition.field_ids[0])
    return replace(probe, parts=tuple(_cut(part, most) for part in paged))


def _cut(part: EntryPart, most: int) -> EntryPart:
    """``part`` with up to ``most`` entries of each row group whose pages are known, of its longest stretch of pages."""
    return replace(part, spans={group: _middle(stretches, most) for group, stretches in part.spans.items()})


def _middle(spans: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.int64]:
    begin, end = spans[np.argmax(spans[:, 1] - spans[:, 0])].tolist()
    begin += max(0, end - begin - most) // 2
    return np.array([[begin, min(end, begin + most)]], np.int64)


def _with_test(probe: Probe, test: Test) -> Probe:
    files = tuple(part.file for part in probe.parts)
    tested = {column.name for column in probe.tested.values()}
    columns = ProbeColumns(probe.tested, tuple(name for name in probe.columns if name not in tested))
    return plan_probe(probe.index, test, files, columns)


def _fewer(test: Test, first: int, half: int) -> Test:
    """The test with half of a sample of its keys of the ``first`` column."""
    if isinstance(test, Points):
        if test.field_id != first or len(test.values) < MANY_KEYS:
            return test
        return replace(test, values=test.values.take(pa.array(_chosen(len(test.values), SAMPLE_KEYS)[half::2])))
    if isinstance(test, AllTests):
        return replace(test, parts=tuple(_fewer(part, first, half) for part in test.parts))
    return test
