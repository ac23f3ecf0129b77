"""What a Table asks of its maintenance.

Used by both planes: the operator reads it from ``spec.maintenance``, runs judge a table by it. Plain data.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from skipstone_core.errors import ContractViolation

#: Bytes of a data file that compaction aims at, unless the policy says otherwise.
TARGET_FILE_SIZE = 256 * 1024 * 1024
#: A file is small when it has less than this part of the target size.
SMALL_PART = 0.75
MIN_INPUT_FILES = 5
DELETE_PERMILLE = 100
#: So many equality delete files are resolved together, unless the policy says otherwise.
MIN_EQUALITY_DELETES = 10


class MaintenanceStep(StrEnum):
    """The steps of a maintain run, in their order: compaction counts the rows that resolved deletes take."""

    RESOLVE_EQUALITY_DELETES = "ResolveEqualityDeletes"
    COMPACTION = "Compaction"
    MANIFESTS = "Manifests"
    SNAPSHOTS = "Snapshots"
    ORPHAN_FILES = "OrphanFiles"


class OrphanFilesAction(StrEnum):
    """The treatment of files below the table's location that no metadata names."""

    REPORT = "Report"
    DELETE = "Delete"


@dataclass(frozen=True, kw_only=True)
class CompactionPolicy:
    """Rewrite small files, and files with many deleted rows.

    ``target_file_size`` in bytes. ``min_input_files``: so many small files of a partition and of about the same size
    are rewritten together. ``delete_permille``: a file is rewritten when so many of a thousand of its rows are deleted;
    0: never for that. ``sort_by``: columns by which rows are sorted within and across the files that are written
    together; empty: the table's sort order, or the order in which rows lie.
    """

    target_file_size: int = TARGET_FILE_SIZE
    min_input_files: int = MIN_INPUT_FILES
    delete_permille: int = DELETE_PERMILLE
    sort_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise ContractViolation for numbers that no compaction can follow."""
        if self.target_file_size <= 0 or self.min_input_files < 2 or not 0 <= self.delete_permille <= 1000:
            raise ContractViolation("a compaction needs a target size, two input files and a ratio from 0 to 1")

    @property
    def small_below(self) -> int:
        """Files of fewer bytes are small."""
        return int(self.target_file_size * SMALL_PART)


@dataclass(frozen=True, kw_only=True)
class EqualityDeletesPolicy:
    """Equality deletes are resolved when the table has ``min_files`` files of them."""

    min_files: int = MIN_EQUALITY_DELETES

    def __post_init__(self) -> None:
        """Raise ContractViolation for a number that no table falls below."""
        if self.min_files < 1:
            raise ContractViolation("equality deletes are resolved from one file on")


@dataclass(frozen=True, kw_only=True)
class SnapshotPolicy:
    """Snapshots of main that were replaced ``max_age_seconds`` ago expire, but for the newest ``min_to_keep``."""

    max_age_seconds: int
    min_to_keep: int = 1

    def __post_init__(self) -> None:
        """Raise ContractViolation unless the current snapshot is kept."""
        if self.max_age_seconds < 0 or self.min_to_keep < 1:
            raise ContractViolation("snapshots need an age that is not negative, and one of them is always kept")


@dataclass(frozen=True, kw_only=True)
class OrphanFilesPolicy:
    """Files that no metadata names and that were last written ``older_than_seconds`` ago or earlier."""

    action: OrphanFilesAction
    older_than_seconds: int


@dataclass(frozen=True, kw_only=True)
class MaintenancePolicy:
    """The policies of maintenance; steps without one (None) are left out. Compaction rewrites manifests, too."""

    compaction: CompactionPolicy | None = None
    snapshots: SnapshotPolicy | None = None
    orphan_files: OrphanFilesPolicy | None = None
    equality_deletes: EqualityDeletesPolicy | None = None
