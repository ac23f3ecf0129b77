"""Which files a source is, and the proof that they stayed the same.

Called by the runs before and after they read. Paths are relative to the Warehouse's root and never leave it.
Must not read a file's content: identity is path, size and version, and while a run reads also the time at which it was
last touched (on a volume the ctime), which nobody can set: what replaces or rewrites a file has another one.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from pyiceberg.types import IcebergType
from skipstone_core.contract.requests import SourceSpec, WarehouseRef
from skipstone_core.errors import BadData, BadSpec, DependencyUnavailable
from skipstone_core.ids import OWN_DIRECTORY, RUNS_DIRECTORY
from skipstone_core.reasons import Reason

from skipstone.storage.globs import Glob, has_magic
from skipstone.storage.opening import open_location, open_storage
from skipstone.storage.port import Entry, Folder, LeadsOut, NoFile, Storage, StoredFile, is_hidden
from skipstone.storage.volume import Volume

PIN_VERSION = 1
_FIELD = "source.paths"


@dataclass(frozen=True, kw_only=True)
class PathValues:
    """Columns that have one value in all rows of a file, which is not read from the file.

    ``texts``: by the path of the file and the column; None is null. ``types``: of the columns, string if absent.
    ``spec_field`` and ``way_out``: what is said of a file that holds such a column; without a way out, its values are
    left out.
    """

    texts: Mapping[str, Mapping[str, str | None]]
    types: Mapping[str, IcebergType] = field(default_factory=dict)
    spec_field: str
    way_out: str = ""


@dataclass(frozen=True, kw_only=True)
class SourceListing:
    """The files of a source, sorted by path, in ``storage``; ``location``: its name, empty for the Warehouse's own.

    ``left_out``: how many files that the source names are not among them, because the table has them already.
    ``base``: address of the place, where files are remembered by their addresses. ``identity``: what the files stand
    for, where a run made them itself or a log names them. ``values``: what is told of the files beside their content.
    """

    storage: Storage
    files: tuple[Entry, ...]
    location: str = ""
    left_out: int = 0
    base: str = ""
    identity: str = ""
    values: PathValues | None = None

    @property
    def stored(self) -> tuple[StoredFile, ...]:
        """The files with their storage, for readers that open them one by one."""
        return tuple(StoredFile(self.storage, file) for file in self.files)

    @property
    def digest(self) -> str:
        """Identity of the source: hexadecimal SHA-256 over paths, sizes and versions, or over what they stand for."""
        if self.identity:
            return self.identity
        text = json.dumps([[self.name_of(file), file.size, file.version] for file in self.files])
        return hashlib.sha256(text.encode()).hexdigest()

    def name_of(self, file: Entry) -> str:
        """What tells ``file`` from those of the same path in other locations; no path has a colon and two slashes."""
        return f"{self.location}://{file.path}" if self.location else file.path

    def remembered_name(self, file: Entry) -> str:
        """By what ``file`` is remembered as consumed."""
        return f"{self.base}/{file.path}" if self.base else self.name_of(file)

    @property
    def total_bytes(self) -> int:
        """Sum of the sizes."""
        return sum(file.size for file in self.files)


def list_source(warehouse: WarehouseRef, source: SourceSpec, *, deep: bool = False) -> SourceListing:
    """Resolve ``source.paths``: files, directories (their visible files) and glob patterns.

    ``deep``: a directory also stands for the visible files of the directories in it, as it does where names of
    directories hold values.

    Raises BadSpec with PATH_OUTSIDE_WAREHOUSE or INVALID_SPEC, BadData with SOURCE_NOT_FOUND, naming the path.
    """
    return _listed(warehouse, source, _Search(awaits=False, deep=deep))


def list_arrivals(warehouse: WarehouseRef, source: SourceSpec, *, deep: bool = False) -> SourceListing:
    """As ``list_source``, for folders in which files are yet to arrive: an empty folder and a pattern without match
    name no file. On a volume a path whose folder is missing still raises BadData with SOURCE_NOT_FOUND.
    """
    return _listed(warehouse, source, _Search(awaits=True, deep=deep))


@dataclass(frozen=True)
class _Search:
    """How paths are resolved. ``awaits``: files may be yet to arrive. ``deep``: folders stand for all below them."""

    awaits: bool
    deep: bool


def _listed(warehouse: WarehouseRef, source: SourceSpec, search: _Search) -> SourceListing:
    storage = open_location(warehouse, source.location)
    search = replace(search, deep=search.deep or source.hive_partitions is not None)
    by_path = {file.path: file for path in source.paths for file in _list_path(storage, path, search)}
    files = tuple(by_path[path] for path in sorted(by_path))
    return SourceListing(storage=storage, files=files, location=source.location)


def pin_source(listing: SourceListing, warehouse: WarehouseRef, uid: str, *, table: str = "") -> SourceListing:
    """Make ``listing`` the source of all attempts of the job ``uid``; returns the one pinned first.

    The pin is ``.skipstone/runs/<uid>/source.json``; the first that is made counts and never changes. ``table``: uid of
    the Table that the job writes, whose maintenance removes the folder once the job has ended.
    Raises DependencyUnavailable with STORAGE_UNAVAILABLE.
    """
    files = [[file.path, file.size, file.version] for file in listing.files]
    content = {"version": PIN_VERSION, "files": files, "leftOut": listing.left_out, "table": table}
    storage = open_storage(warehouse)
    pin = _decoded(storage, uid, storage.create(pin_path(uid), json.dumps(content).encode()))
    return replace(listing, files=pin.files, left_out=pin.left_out)


def find_pin(warehouse: WarehouseRef, uid: str, location: str = "") -> SourceListing | None:
    """What an earlier attempt of the job ``uid``, whose source is at ``location``, pinned, or None."""
    storage = open_storage(warehouse)
    try:
        pin = _decoded(storage, uid, storage.read(pin_path(uid)))
    except FileNotFoundError:
        return None
    place = open_location(warehouse, location)
    return SourceListing(storage=place, files=pin.files, location=location, left_out=pin.left_out)


def unpin_source(warehouse: WarehouseRef, uid: str) -> None:
    """Forget what the job ``uid`` pinned: no attempt of it reads its source again. Raises as ``Storage`` does."""
    storage, pin = open_storage(warehouse), pin_path(uid)
    storage.delete(pin)
    if isinstance(storage, Volume):
        with suppress(OSError):  # something else of the job is in its folder
            Path(storage.where(pin)).parent.rmdir()


def pinned_table(storage: Storage, uid: str) -> str:
    """The uid of the Table that the job ``uid`` writes, as its pin tells; empty when it does not, or there is none."""
    try:
        pin = json.loads(storage.read(pin_path(uid)))
    except (FileNotFoundError, ValueError):
        return ""
    table = pin.get("table") if isinstance(pin, dict) else None
    return table if isinstance(table, str) else ""


@dataclass(frozen=True)
class _Pin:
    files: tuple[Entry, ...]
    left_out: int


def _decoded(storage: Storage, uid: str, content: bytes) -> _Pin:
    try:
        pin = json.loads(content)
        files = tuple(Entry(path=name, size=size, version=version) for name, size, version in pin["files"])
        return _Pin(files, int(pin.get("leftOut", 0)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(storage, pin_path(uid), error) from error


def pinned_source(
    warehouse: WarehouseRef,
    source: SourceSpec,
    uid: str,
    *,
    table: str = "",
    choose: Callable[[SourceListing], SourceListing] = lambda listing: listing,
) -> SourceListing:
    """The pinned listing of the job ``uid``, listed and pinned now when this is its first attempt, and unchanged.

    What a run calls first. ``choose``: the files of what was listed that are read. Raises as ``list_source``,
    ``pin_source`` and ``witnessed`` do, and DependencyUnavailable (SOURCE_NOT_SETTLED) for files that changed less than
    ``settle_seconds`` ago.
    """
    pinned = find_pin(warehouse, uid, source.location)
    if pinned is None:
        listing = choose(list_source(warehouse, source))
        require_settled(listing, source.settle_seconds)
        pinned = pin_source(listing, warehouse, uid, table=table)
    return witnessed(pinned)


def without_young(listing: SourceListing, seconds: int) -> SourceListing:
    """``listing`` without the files that changed less than ``seconds`` ago: they may still be written."""
    return replace(listing, files=tuple(file for file in listing.files if not _is_young(file, seconds)))


def require_settled(listing: SourceListing, seconds: int) -> None:
    """Raise DependencyUnavailable (SOURCE_NOT_SETTLED) when a file changed less than ``seconds`` ago."""
    if young := [file.path for file in listing.files if _is_young(file, seconds)]:
        raise DependencyUnavailable(
            Reason.SOURCE_NOT_SETTLED,
            f"{len(young)} of {len(listing.files)} files changed less than {seconds} seconds ago and may still be "
            f"written, the first is '{young[0]}'; the next attempt looks again",
            field="source.settleSeconds",
        )


def _is_young(file: Entry, seconds: int) -> bool:
    """A time far in the future was set by somebody and says nothing; that of the last touch cannot be."""
    now, least = time.time_ns(), seconds * 1_000_000_000
    modified = file.version if isinstance(file.version, int) else 0
    return any(abs(now - moment) < least for moment in (modified, file.touched_ns))


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


def _forgotten(files: tuple[Entry, ...]) -> tuple[Entry, ...]:
    return tuple(replace(file, touched_ns=0) for file in files)


def _compared(listing: SourceListing) -> Iterator[Entry]:
    entries = listing.storage.entries([file.path for file in listing.files])
    for file, now in zip(listing.files, entries, strict=True):
        yield _same(file, now)


def _same(file: Entry, now: Entry | None) -> Entry:
    if now != file or now is None:
        raise BadData(
            Reason.SOURCE_CHANGED,
            f"'{file.path}' is not the file that this job began with: leave source files alone while they are "
            "read, and apply a new job for the new content",
            field=_FIELD,
        )
    if file.touched_ns not in (0, now.touched_ns):
        raise DependencyUnavailable(
            Reason.SOURCE_CHANGED,
            f"'{file.path}' was written, moved or replaced while it was read, with the same size and time: leave "
            "source files alone while they are read; the next attempt reads it again",
            field=_FIELD,
        )
    return now


def _list_path(storage: Storage, path: str, search: _Search) -> Iterator[Entry]:
    _require_inside(path)
    place = _looked_up(storage, path)
    matches = _matches(storage, path) if place is None else (place,)
    if search.awaits and (_is_bare(place) or (not matches and storage.may_hold(_arrivals_of(path)))):
        return
    if not matches:
        raise _not_found(path)
    for match in matches:
        for entry in _files_of(storage, match, path, search) if isinstance(match, Folder) else [match]:
            _require_readable(entry)
            yield entry


def _is_bare(entry: Entry | Folder | None) -> bool:
    """Return whether it is a folder without visible entries."""
    return isinstance(entry, Folder) and not (entry.files or entry.folders)


def _arrivals_of(path: str) -> str:
    """The folder in which files that ``path`` names arrive."""
    return Glob(path).fixed if has_magic(path) else path


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


def _looked_up(storage: Storage, path: str) -> Entry | Folder | None:
    """What ``path`` itself names; a name that looks like a pattern is that name when it is there."""
    try:
        return storage.look(path)
    except LeadsOut as error:
        raise _outside(path) from error
    except NoFile as error:
        raise _not_found(path) from error


def _matches(storage: Storage, path: str) -> tuple[Entry | Folder, ...]:
    """What ``path`` matches as a pattern."""
    try:
        return storage.match(path) if has_magic(path) else ()
    except LeadsOut as error:
        raise _outside(path) from error
    except NoFile as error:
        raise _not_found(path) from error


def _files_of(storage: Storage, folder: Folder, path: str, search: _Search) -> tuple[Entry, ...]:
    """The files that a folder stands for."""
    if not search.deep:
        return _visible_files(folder, path)
    below = len(folder.path) + 1 if folder.path not in ("", ".") else 0
    files = tuple(sorted(file for file in storage.list(folder.path) if not is_hidden(file.path[below:])))
    if not files and not search.awaits:
        raise _not_found(path)
    return files


def _visible_files(folder: Folder, path: str) -> tuple[Entry, ...]:
    if folder.folders:
        raise BadSpec(
            Reason.INVALID_SPEC,
            f"'{path}' holds the folder '{folder.folders[0]}', whose files are not read: name the folders to read one "
            f"by one, or write '{path.rstrip('/')}/*.csv' for the files beside it",
            field=_FIELD,
        )
    if not folder.files:
        raise _not_found(path)
    return folder.files


def _require_readable(entry: Entry) -> None:
    try:
        entry.path.encode()
    except UnicodeEncodeError as error:
        shown = os.fsencode(entry.path).decode(errors="backslashreplace")
        raise BadSpec(
            Reason.INVALID_SPEC, f"the name of '{shown}' is not UTF-8: rename the file to read it", field=_FIELD
        ) from error
    if is_hidden(PurePosixPath(entry.path).name):
        raise BadSpec(Reason.INVALID_SPEC, f"'{entry.path}' is hidden by its name: rename it to read it", field=_FIELD)


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


def _damaged(storage: Storage, path: str, error: Exception) -> DependencyUnavailable:
    return DependencyUnavailable(
        Reason.STORAGE_UNAVAILABLE,
        f"'{storage.where(path)}' cannot be used: {error}; fix the Warehouse's storage and try again",
    )


def pin_path(uid: str) -> str:
    """Where the pin of the job ``uid`` is."""
    return f"{RUNS_DIRECTORY}/{uid}/source.json"
