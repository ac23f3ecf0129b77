"""Rules of one table snapshot: which file is which, and which deletes apply to it.

Used by the data plane when it reads manifests and validates commits. Must not read files or know Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class DeleteKind(IntEnum):
    """How a delete file names the rows it deletes."""

    POSITION = 1
    EQUALITY = 2


@dataclass(frozen=True, order=True)
class FileIdentity:
    """By what a data file is known within one table (by UUID): a rewritten file never has all three in common."""

    path: str
    size: int
    records: int


@dataclass(frozen=True, kw_only=True)
class Pinned:
    """The snapshot that a run planned on. ``snapshot_id`` None: the table had no snapshot."""

    table_uuid: str
    snapshot_id: int | None
    schema_id: int
    spec_id: int
    format_version: int = 2


def is_delete_newer(kind: DeleteKind, *, data_sequence: int, delete_sequence: int) -> bool:
    """Return whether a delete may apply to a data file by sequence: equality deletes spare rows of their own commit."""
    if kind is DeleteKind.EQUALITY:
        return data_sequence < delete_sequence
    return data_sequence <= delete_sequence
