"""Data files that may hold a row which equality deletes take, by the bounds of their columns.

Called by the step that resolves equality deletes. Must not read data files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
from skipstone_core.keys import KeyType

from skipstone.kernels.canonical import Int64s, canonical
from skipstone.kernels.resolving.keys import EqualityKeys
from skipstone.pruning.keyranges import FileRanges, find_candidates
from skipstone.tables.filesets import FileSet

Mask = npt.NDArray[np.bool_]
#: Keys that are looked at for the sequence numbers of files, at most; files of near ones are then judged by the least.
_MOST_LOOKS = 200_000_000


def may_hold(keys: EqualityKeys, field_ids: Sequence[int], files: FileSet, concerned: Mask) -> Mask:
    """Which of the ``concerned`` files may hold a row that a delete after them takes.

    ``files`` in a schema that has the columns ``field_ids`` of ``keys``. Raises OSError.
    """
    chosen = np.flatnonzero(concerned)
    result = np.zeros(len(files), dtype=bool)
    if not len(chosen):
        return result
    files.learn(field_ids)
    ranges = [_ranges(files, *pair) for pair in zip(field_ids, keys.kinds, strict=True)]
    nulls = [_may_be_null(files, number) for number in field_ids]
    for since, mine in _by_age(files.files["data_sequence"].to_numpy()[chosen], len(keys)):
        ordinals = chosen[mine]
        for valid, columns in keys.since(since):
            invalid = [number for number in range(len(field_ids)) if number not in valid]
            may = np.logical_and.reduce(
                [np.ones(len(ordinals), bool), *(nulls[number][ordinals] for number in invalid)]
            )
            if columns and may.any():
                some = [ranges[number].take(ordinals[may]) for number in valid]
                may[np.delete(np.flatnonzero(may), find_candidates(some, columns).files)] = False
            result[ordinals[may]] = True
    return result


def _by_age(sequences: Int64s, keys: int) -> Iterator[tuple[int, Int64s]]:
    """Files, as places in ``sequences``, with a sequence number that is not greater than that of any of them."""
    ages = np.unique(sequences)
    count = int(min(len(ages), max(1, _MOST_LOOKS // max(keys, 1))))
    for part in np.array_split(ages, count):
        yield int(part[0]), np.flatnonzero((sequences >= part[0]) & (sequences <= part[-1]))


def _ranges(files: FileSet, field_id: int, kind: KeyType) -> FileRanges:
    bounds = files.bounds(field_id)
    only_nulls = pc.fill_null(pc.equal(bounds.null_count, bounds.value_count), fill_value=False)
    return FileRanges(
        canonical(bounds.lower, kind),
        canonical(bounds.upper, kind),
        np.asarray(only_nulls.to_numpy(zero_copy_only=False), dtype=bool),
    )


def _may_be_null(files: FileSet, field_id: int) -> Mask:
    none = pc.fill_null(pc.equal(files.bounds(field_id).null_count, 0), fill_value=False)
    return ~np.asarray(none.to_numpy(zero_copy_only=False), dtype=bool)
