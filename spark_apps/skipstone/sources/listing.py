"""Which files a source is, and the proof that they stayed the same.

Called by the runs before and after they read. Paths are relative to the Warehouse's root and never leave it.
Must not open a file's content: identity is path, size and modification time.
"""

from __future__ import annotations

from dataclasses import dataclass

from skipstone_core.jobs import SourceSpec, WarehouseRef


@dataclass(frozen=True, order=True, kw_only=True)
class SourceFile:
    """One file: ``path`` relative to the root with ``/``, ``size`` in bytes, ``mtime_ns`` since 1970."""

    path: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, kw_only=True)
class SourceListing:
    """The files of a source, sorted by path, under the absolute directory ``root``."""

    root: str
    files: tuple[SourceFile, ...]

    @property
    def digest(self) -> str:
        """Identity of the source: hexadecimal SHA-256 over paths, sizes and times."""
        raise NotImplementedError

    @property
    def total_bytes(self) -> int:
        """Sum of the sizes."""
        return sum(file.size for file in self.files)


def list_source(warehouse: WarehouseRef, source: SourceSpec) -> SourceListing:
    """Resolve ``source.paths``: files, directories (their visible files, not deeper) and glob patterns.

    Raises BadSpec with PATH_OUTSIDE_WAREHOUSE or INVALID_SPEC, BadData with SOURCE_NOT_FOUND, naming the path.
    """
    raise NotImplementedError(warehouse, source)


def pin_source(listing: SourceListing, warehouse: WarehouseRef, uid: str) -> SourceListing:
    """Make ``listing`` the source of all attempts of the job ``uid``; returns the one pinned first.

    The pin is ``.skipstone/runs/<uid>/source.json``, made create-exclusive and never changed.
    Raises DependencyUnavailable with STORAGE_UNAVAILABLE.
    """
    raise NotImplementedError(listing, warehouse, uid)


def find_pin(warehouse: WarehouseRef, uid: str) -> SourceListing | None:
    """What an earlier attempt of the job ``uid`` pinned, or None."""
    raise NotImplementedError(warehouse, uid)


def pinned_source(warehouse: WarehouseRef, source: SourceSpec, uid: str) -> SourceListing:
    """The pinned listing of the job ``uid``, listed and pinned now when this is its first attempt, and unchanged.

    What a run calls first. Raises as ``list_source``, ``pin_source`` and ``require_unchanged`` do.
    """
    raise NotImplementedError(warehouse, source, uid)


def require_unchanged(listing: SourceListing) -> None:
    """Raise BadData (SOURCE_CHANGED) naming the first file that differs from ``listing`` or is gone.

    Called when reading begins and again after the last read.
    """
    raise NotImplementedError(listing)
