"""The keys of equality deletes, each with the last delete that names it: which rows they take.

Used by the kernel that finds rows in data files, and by what looks for them in bounds and indexes. Must not read data
files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from skipstone_core.keys import KeyFamily, KeyType

from skipstone.files.deletions import DeleteDescription, equality_rows
from skipstone.kernels.canonical import Int64s, canonical
from skipstone.kernels.matching import UNMATCHED, KeyMatcher
from skipstone.tables.arrow import arrow_type_of

Mask = npt.NDArray[np.bool_]
_SEQUENCE = "sequence"
_NAN = np.int64(0x7FF8000000000000)


@dataclass(frozen=True)
class KeyColumn:
    """A column by which rows are deleted: its field id, and how its values compare."""

    field_id: int
    kind: KeyType


@dataclass(frozen=True)
class DeleteGroup:
    """Equality deletes by the same columns, of the same files. Picklable.

    ``columns``: by field id, ascending. ``deletes`` with the data sequence number of each: it takes rows of data files
    with a smaller one.
    """

    columns: tuple[KeyColumn, ...]
    deletes: tuple[tuple[DeleteDescription, int], ...]

    @property
    def field_ids(self) -> tuple[int, ...]:
        """Field ids of the columns, ascending."""
        return tuple(column.field_id for column in self.columns)


@dataclass(frozen=True)
class _Part:
    """Keys with nulls in the same columns: the others' values, exact and without nulls, ascending by the first."""

    valid: tuple[int, ...]
    columns: tuple[pa.Array, ...]
    sequences: Int64s
    matcher: KeyMatcher | None

    def newest(self, columns: Sequence[pa.Array]) -> Int64s:
        """The sequence number of the last delete of each row; -1 of rows that none names."""
        if self.matcher is None:
            return np.full(len(columns[0]), self.sequences[0], np.int64)
        places = self.matcher.match([columns[number] for number in self.valid])
        return np.where(places == UNMATCHED, -1, self.sequences[places])


class EqualityKeys:
    """The keys of a group of equality deletes. A null equals a null; floats are equal when their bits are, or both NaN.

    Source: "Equality Delete Files" of the table specification of Apache Iceberg, and the comparators of its Java
    library for floats.
    """

    def __init__(self, kinds: Sequence[KeyType], columns: Sequence[pa.Array], sequences: Int64s) -> None:
        """``columns``: exact values of each key (see ``exact``); ``sequences``: of the delete of each."""
        self.kinds = tuple(kinds)
        names = [str(number) for number in range(len(columns))]
        table = pa.table([*columns, pa.array(sequences)], names=[*names, _SEQUENCE])
        distinct = table.group_by(names, use_threads=False).aggregate([(_SEQUENCE, "max")]).sort_by(names[0])
        keys = [distinct.column(name).combine_chunks() for name in names]
        newest = distinct.column(f"{_SEQUENCE}_max").to_numpy().astype(np.int64)
        patterns = _null_patterns(keys)
        self._parts = {
            int(pattern): _part(int(pattern), keys, newest, patterns == pattern) for pattern in np.unique(patterns)
        }

    def __len__(self) -> int:
        """How many keys there are."""
        return sum(len(part.sequences) for part in self._parts.values())

    def takes(self, columns: Sequence[pa.Array], data_sequence: int | Int64s) -> Mask:
        """Which rows are deleted. ``columns``: exact values; ``data_sequence``: of the file of all rows, or of each."""
        newest = np.full(len(columns[0]), -1, np.int64)
        patterns = _null_patterns(columns)
        for pattern, part in self._parts.items():
            rows = np.flatnonzero(patterns == pattern)
            if len(rows) == len(patterns):
                newest = part.newest(columns)
            elif len(rows):
                newest[rows] = part.newest([column.take(pa.array(rows)) for column in columns])
        return np.asarray(newest > data_sequence)

    def since(self, data_sequence: int) -> Iterator[tuple[tuple[int, ...], list[pa.Array]]]:
        """The keys that deletes after a sequence number name, by the columns that are not null in them.

        Numbers of these columns, and their values as they order (``canonical``), ascending by the first.
        """
        for part in self._parts.values():
            wanted = part.sequences > data_sequence
            if wanted.any():
                kept = part.columns if wanted.all() else [column.filter(pa.array(wanted)) for column in part.columns]
                yield part.valid, _ordered(kept, [self.kinds[number] for number in part.valid])


def exact(values: pa.Array | pa.ChunkedArray, kind: KeyType) -> pa.Array:
    """Values as int64 or large_binary that are the same where equality deletes take values for equal."""
    if kind.family is not KeyFamily.FLOAT:
        return canonical(values, kind)
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    doubles = pc.fill_null(pc.cast(whole, pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    bits = np.where(np.isnan(doubles), _NAN, doubles.view(np.int64))
    mask = pc.is_null(whole).to_numpy(zero_copy_only=False) if whole.null_count else None
    return pa.array(bits, pa.int64(), mask=mask)


@lru_cache(maxsize=8)
def deleted_keys(group: DeleteGroup) -> EqualityKeys:
    """The keys of ``group``, read from its delete files. Raises BadData for a file that is damaged."""
    parts = list(key_rows(group))
    columns = [
        pa.concat_arrays([exact(columns[number], column.kind) for columns, _ in parts])
        for number, column in enumerate(group.columns)
    ]
    sequences = np.concatenate([np.full(len(columns[0]), sequence, np.int64) for columns, sequence in parts])
    return EqualityKeys([column.kind for column in group.columns], columns, sequences)


def key_rows(group: DeleteGroup) -> Iterator[tuple[list[pa.Array], int]]:
    """The columns of each delete file, in the order of the group's, and its sequence number."""
    for delete, sequence in group.deletes:
        kinds = dict(zip(delete.equality_ids, delete.equality_kinds, strict=True))
        rows = equality_rows(delete, {number: arrow_type_of(kind) for number, kind in kinds.items()})
        by_id = dict(zip(delete.equality_ids, rows, strict=True))
        yield [by_id[number] for number in group.field_ids], sequence


def _part(pattern: int, keys: Sequence[pa.Array], newest: Int64s, mine: Mask) -> _Part:
    valid = tuple(number for number in range(len(keys)) if not pattern >> number & 1)
    chosen = [keys[number].filter(pa.array(mine)) for number in valid]
    order = pc.sort_indices(chosen[0]) if chosen else pa.array([0])
    columns = tuple(column.take(order) for column in chosen)
    sequences = newest[mine][order.to_numpy()]
    return _Part(valid, columns, sequences, KeyMatcher(columns) if columns else None)


def _null_patterns(columns: Sequence[pa.Array]) -> Int64s:
    """Which columns are null in each row, a bit for each."""
    patterns = np.zeros(len(columns[0]), np.int64)
    for number, column in enumerate(columns):
        if column.null_count:
            patterns |= pc.is_null(column).to_numpy(zero_copy_only=False).astype(np.int64) << number
    return patterns


def _ordered(columns: Sequence[pa.Array], kinds: Sequence[KeyType]) -> list[pa.Array]:
    """Exact values without nulls in the form in which bounds are compared, ascending by the first column."""
    ordered = [
        canonical(pa.array(column.to_numpy().view(np.float64)), kind) if kind.family is KeyFamily.FLOAT else column
        for column, kind in zip(columns, kinds, strict=True)
    ]
    if kinds and kinds[0].family is KeyFamily.FLOAT:
        order = pc.sort_indices(ordered[0])
        return [column.take(order) for column in ordered]
    return ordered
