"""Which files a source is, and the proof that they stayed the same.

Called by the runs before and after they read. Paths are relative to the Warehouse's root and never leave it.
Must not read a file's content: identity is path, size and modification time, and while a run reads also the time of the
last change of status (ctime), which nobody can set: what replaces a file, or is written into it, has another one.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path, PurePosixPath

from skipstone_core.contract.requests import SourceSpec, WarehouseRef
from skipstone_core.errors import BadData, BadSpec, DependencyUnavailable
from skipstone_core.ids import RUNS_DIRECTORY
from skipstone_core.reasons import Reason

from skipstone.durable import keep_first, read_first
from skipstone.sources.beneath import Beneath

PIN_VERSION = 1
OWN_DIRECTORY = ".skipstone"
_MAGIC = frozenset("*?[")
_FIELD = "source.paths"


@dataclass(frozen=True, order=True, kw_only=True)
class SourceFile:
    """One file: ``path`` relative to the root with ``/``, ``size`` in bytes, ``mtime_ns`` since 1970.

    ``ctime_ns``: of the last change of status, as this process saw it first; 0: not looked at.
    """

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int = field(default=0, compare=False)


@dataclass(frozen=True, kw_only=True)
class SourceListing:
    """The files of a source, sorted by path, under the absolute directory ``root``."""

    root: str
    files: tuple[SourceFile, ...]

    @property
    def digest(self) -> str:
        """Identity of the source: hexadecimal SHA-256 over paths, sizes and times."""
        text = json.dumps([[file.path, file.size, file.mtime_ns] for file in self.files])
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def total_bytes(self) -> int:
        """Sum of the sizes."""
        return sum(file.size for file in self.files)


def list_source(warehouse: WarehouseRef, source: SourceSpec) -> SourceListing:
    """Resolve ``source.paths``: files, directories (their visible files) and glob patterns.

    Raises BadSpec with PATH_OUTSIDE_WAREHOUSE or INVALID_SPEC, BadData with SOURCE_NOT_FOUND, naming the path.
    """
    root = Path(warehouse.root).resolve()
    found = {file.path: file for path in source.paths for file in _list_path(root, path)}
    return SourceListing(root=str(root), files=tuple(found[path] for path in sorted(found)))


def list_arrivals(warehouse: WarehouseRef, source: SourceSpec) -> SourceListing:
    """As ``list_source``, for folders in which files are yet to arrive: an empty folder and a pattern without match
    name no file. A path whose folder is missing still raises BadData with SOURCE_NOT_FOUND.
    """
    root = Path(warehouse.root).resolve()
    awaited = [path for path in source.paths if not _is_bare(root, path)]
    return list_source(warehouse, replace(source, paths=tuple(awaited)))


def _is_bare(root: Path, path: str) -> bool:
    """Whether ``path`` is a folder without visible entries, or a pattern below a folder that matches nothing."""
    _require_inside(path)
    if (root / path).is_dir():
        return not any(not _is_hidden(Path(item.name)) for item in (root / path).iterdir())
    if (root / path).exists() or not _MAGIC & set(path):
        return False
    fixed = list(takewhile(lambda part: not _MAGIC & set(part), PurePosixPath(path).parts))
    return root.joinpath(*fixed).is_dir() and not _find_matches(root, path)


def pin_source(listing: SourceListing, warehouse: WarehouseRef, uid: str) -> SourceListing:
    """Make ``listing`` the source of all attempts of the job ``uid``; returns the one pinned first.

    The pin is ``.skipstone/runs/<uid>/source.json``; the first that is made counts and never changes.
    Raises DependencyUnavailable with STORAGE_UNAVAILABLE.
    """
    content = {"version": PIN_VERSION, "files": [[f.path, f.size, f.mtime_ns] for f in listing.files]}
    path = _pin_path(warehouse, uid)
    try:
        keep_first(path, json.dumps(content).encode())
    except OSError as error:
        raise _unavailable(path, error) from error
    return find_pin(warehouse, uid) or listing


def find_pin(warehouse: WarehouseRef, uid: str) -> SourceListing | None:
    """What an earlier attempt of the job ``uid`` pinned, or None."""
    path = _pin_path(warehouse, uid)
    try:
        content = json.loads(read_first(path))
        files = tuple(SourceFile(path=name, size=size, mtime_ns=time) for name, size, time in content["files"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unavailable(path, error) from error
    return SourceListing(root=str(Path(warehouse.root).resolve()), files=files)


def pinned_source(warehouse: WarehouseRef, source: SourceSpec, uid: str) -> SourceListing:
    """The pinned listing of the job ``uid``, listed and pinned now when this is its first attempt, and unchanged.

    What a run calls first. Raises as ``list_source``, ``pin_source`` and ``witnessed`` do, and DependencyUnavailable
    (SOURCE_NOT_SETTLED) for files that changed less than ``settle_seconds`` ago.
    """
    pinned = find_pin(warehouse, uid)
    if pinned is None:
        listing = list_source(warehouse, source)
        _require_settled(listing, source.settle_seconds)
        pinned = pin_source(listing, warehouse, uid)
    return witnessed(pinned)


def without_young(listing: SourceListing, seconds: int) -> SourceListing:
    """``listing`` without the files that changed less than ``seconds`` ago: they may still be written."""
    return replace(listing, files=tuple(file for file in listing.files if not _is_young(file, seconds)))


def _require_settled(listing: SourceListing, seconds: int) -> None:
    if young := [file.path for file in listing.files if _is_young(file, seconds)]:
        raise DependencyUnavailable(
            Reason.SOURCE_NOT_SETTLED,
            f"{len(young)} of {len(listing.files)} files changed less than {seconds} seconds ago and may still be "
            f"written, the first is '{young[0]}'; the next attempt looks again",
            field="source.settleSeconds",
        )


def _is_young(file: SourceFile, seconds: int) -> bool:
    """A time far in the future was set by somebody and says nothing; that of the last change of status cannot be."""
    now, least = time.time_ns(), seconds * 1_000_000_000
    return any(abs(now - moment) < least for moment in (file.mtime_ns, file.ctime_ns))


def witnessed(listing: SourceListing) -> SourceListing:
    """``listing`` with what tells its files from others while this process reads them. Raises as ``require_unchanged``.

    Called when reading begins; ``require_unchanged`` of the result is called after the last read.
    """
    return replace(listing, files=tuple(_compared(replace(listing, files=_forgotten(listing.files)))))


def require_unchanged(listing: SourceListing) -> None:
    """Raise BadData (SOURCE_CHANGED) naming the first file that differs from ``listing`` or is gone.

    One that has its size and time but was changed since ``witnessed`` is DependencyUnavailable (SOURCE_CHANGED):
    another attempt reads it as it is then.
    """
    deque(_compared(listing), maxlen=0)


def _forgotten(files: tuple[SourceFile, ...]) -> tuple[SourceFile, ...]:
    return tuple(replace(file, ctime_ns=0) for file in files)


def _compared(listing: SourceListing) -> Iterator[SourceFile]:
    with Beneath(listing.root) as root:
        for file in listing.files:
            yield _same(file, _seen(root, file.path))


def _same(file: SourceFile, found: os.stat_result | None) -> SourceFile:
    if found is None or (found.st_size, found.st_mtime_ns) != (file.size, file.mtime_ns):
        raise BadData(
            Reason.SOURCE_CHANGED,
            f"'{file.path}' is not the file that this job began with: leave source files alone while they are "
            "read, and apply a new job for the new content",
            field=_FIELD,
        )
    if file.ctime_ns not in (0, found.st_ctime_ns):
        raise DependencyUnavailable(
            Reason.SOURCE_CHANGED,
            f"'{file.path}' was written, moved or replaced while it was read, with the same size and time: leave "
            "source files alone while they are read; the next attempt reads it again",
            field=_FIELD,
        )
    return replace(file, ctime_ns=found.st_ctime_ns)


def _seen(root: Beneath, name: str) -> os.stat_result | None:
    """The state of a regular file; None when there is none (a link put in its place, or on its way, is none)."""
    try:
        found = root.status(name)
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _list_path(root: Path, path: str) -> Iterator[SourceFile]:
    _require_inside(path)
    for match in _matches(root, path):
        resolved = _resolve(root, match, path)
        if resolved.is_dir():
            yield from (_describe(root, _resolve(root, item, path), path) for item in _visible_files(resolved, path))
        else:
            yield _describe(root, resolved, path)


def _require_inside(path: str) -> None:
    parts = PurePosixPath(path).parts
    if not parts or "\x00" in path:
        raise BadSpec(Reason.INVALID_SPEC, "a path is empty: name a file, a folder or a pattern", field=_FIELD)
    if path.startswith("/") or "://" in path or ".." in parts:
        raise _outside(path)
    if parts[0] == OWN_DIRECTORY:
        raise BadSpec(
            Reason.INVALID_SPEC, f"'{path}' lies in '{OWN_DIRECTORY}', which holds records of runs: use another folder",
            field=_FIELD,
        )  # fmt: skip


def _matches(root: Path, path: str) -> list[Path]:
    """What ``path`` names: itself when it exists, else what it matches as a pattern."""
    if (root / path).exists():
        return [root / path]
    visible = _find_matches(root, path) if _MAGIC & set(path) else []
    if not visible:
        raise _not_found(path)
    return visible


def _find_matches(root: Path, pattern: str) -> list[Path]:
    return [match for match in sorted(root.glob(pattern)) if not _is_hidden(match.relative_to(root))]


def _visible_files(directory: Path, path: str) -> list[Path]:
    visible = [item for item in sorted(directory.iterdir()) if not _is_hidden(Path(item.name))]
    if folders := [item.name for item in visible if item.is_dir()]:
        raise BadSpec(
            Reason.INVALID_SPEC,
            f"'{path}' holds the folder '{folders[0]}', whose files are not read: name the folders to read one by one, "
            f"or write '{path.rstrip('/')}/*.csv' for the files beside it",
            field=_FIELD,
        )
    if not visible:
        raise _not_found(path)
    return visible


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _resolve(root: Path, path: Path, named: str) -> Path:
    """Follow links; raises BadSpec (PATH_OUTSIDE_WAREHOUSE) when they lead out of ``root`` or into our records."""
    try:
        resolved = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise _not_found(named) from error
    if not resolved.is_relative_to(root) or resolved.is_relative_to(root / OWN_DIRECTORY):
        raise _outside(named)
    return resolved


def _describe(root: Path, path: Path, named: str) -> SourceFile:
    name = path.relative_to(root).as_posix()
    _require_text(name)
    with Beneath(root) as opened:
        found = _seen(opened, name)
    if found is None:
        raise _not_found(named)
    if _is_hidden(Path(path.name)):
        raise BadSpec(
            Reason.INVALID_SPEC, f"'{name}' is hidden by its first character: rename it to read it", field=_FIELD
        )
    return SourceFile(path=name, size=found.st_size, mtime_ns=found.st_mtime_ns, ctime_ns=found.st_ctime_ns)


def _require_text(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        shown = os.fsencode(name).decode(errors="backslashreplace")
        raise BadSpec(
            Reason.INVALID_SPEC, f"the name of '{shown}' is not UTF-8: rename the file to read it", field=_FIELD
        ) from error


def _outside(path: str) -> BadSpec:
    return BadSpec(
        Reason.PATH_OUTSIDE_WAREHOUSE,
        f"'{path}' leads out of the Warehouse: name files below its root, relative to it, without '..' or links out",
        field=_FIELD,
    )


def _not_found(path: str) -> BadData:
    return BadData(
        Reason.SOURCE_NOT_FOUND,
        f"'{path}' names no file below the root of the Warehouse: put the file there or fix the path",
        field=_FIELD,
    )


def _unavailable(path: Path, error: Exception) -> DependencyUnavailable:
    return DependencyUnavailable(
        Reason.STORAGE_UNAVAILABLE, f"'{path}' cannot be used: {error}; fix the Warehouse's storage and try again"
    )


def _pin_path(warehouse: WarehouseRef, uid: str) -> Path:
    return Path(warehouse.root).resolve() / RUNS_DIRECTORY / uid / "source.json"
