"""The kernel that finds the rows of data files that equality deletes take: one scan of the key columns of each file.

Called inside tasks, one per core with many files each. Must not commit and must not know how files were chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap64

from skipstone.files.reader import POSITION_COLUMN, DataFileDescription, read_data_file
from skipstone.kernels.canonical import Int64s
from skipstone.kernels.resolving.keys import DeleteGroup, deleted_keys, exact


@dataclass(frozen=True)
class SearchedFile:
    """A data file, described without deletes in a schema of key columns, and the numbers of groups of deletes."""

    file: DataFileDescription
    groups: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class SearchWork:
    """The work of one task. Picklable. ``groups``: of deletes, by number."""

    files: tuple[SearchedFile, ...]
    groups: tuple[DeleteGroup, ...]


@dataclass(frozen=True)
class FileRows:
    """The rows of a data file that are deleted: a serialized 64-bit bitmap of their positions."""

    file_id: int
    positions: bytes


def column_name(field_id: int) -> str:
    """Return the name of a key column in the schema in which files are read: columns may be renamed, or dropped."""
    return f"key {field_id}"


def pack_positions(positions: Int64s) -> bytes:
    """Positions, ascending or not, as they are kept."""
    return bytes(BitMap64(positions.astype(np.uint64)).serialize())


def unpack_positions(packed: bytes) -> Int64s:
    """What ``pack_positions`` made, ascending."""
    return np.array(BitMap64.deserialize(packed).to_array(), dtype=np.int64)


def find_rows(work: SearchWork) -> tuple[FileRows, ...]:
    """The deleted rows of each file. Raises BadData for a file that cannot be read, OSError."""
    return tuple(
        FileRows(
            searched.file.file_id,
            pack_positions(_deleted(searched.file, [work.groups[number] for number in searched.groups])),
        )
        for searched in work.files
    )


def _deleted(file: DataFileDescription, groups: Sequence[DeleteGroup]) -> Int64s:
    columns = sorted({column for group in groups for column in group.columns}, key=lambda column: column.field_id)
    names = [column_name(column.field_id) for column in columns]
    keys = [deleted_keys(group) for group in groups]
    parts = [np.empty(0, np.int64)]
    for batch in read_data_file(file, [*names, POSITION_COLUMN]):
        values = {column.field_id: exact(batch.column(n), column.kind) for n, column in enumerate(columns)}
        taken = np.zeros(batch.num_rows, dtype=bool)
        for group, named in zip(groups, keys, strict=True):
            taken |= named.takes([values[number] for number in group.field_ids], file.data_sequence)
        if taken.any():
            parts.append(batch.column(len(columns)).to_numpy()[taken])
    return np.concatenate(parts)
