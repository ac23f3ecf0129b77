"""Files below a table's location that no metadata names: found in one run, deleted in a later one.

Called by maintain runs. Lists by the Warehouse's storage, which follows no links. What is found is written down beside
the tables; a later run deletes what is still an orphan and has not changed. Refuses where a file below the location may
belong to somebody else. Must not delete what an earlier run did not write down.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

from pyiceberg.catalog import Catalog
from skipstone_core.contract.requests import TableRef, WarehouseRef
from skipstone_core.errors import ContractViolation
from skipstone_core.ids import OWN_DIRECTORY, is_run_of
from skipstone_core.maintenance.orphans import (
    MOST_RECORDED,
    FileMark,
    FoundFile,
    OrphanRecord,
    Reached,
    name_of,
    names_meant,
    plan_orphans,
)
from skipstone_core.maintenance.policies import OrphanFilesAction, OrphanFilesPolicy

from skipstone.storage.opening import open_storage
from skipstone.storage.port import Entry, Storage
from skipstone.tables.catalogs import base_location, load_table
from skipstone.tables.sharing.named import NamedFiles
from skipstone.tables.sharing.places import find_overlap, find_sharing, other_tables, refused
from skipstone.tables.sharing.reach import read_reach
from skipstone.tables.storage import DurableFileIO, plain_location

#: Where it is written down what is about to be deleted.
ORPHANS_DIRECTORY = f"{OWN_DIRECTORY}/orphans"
#: A file there that tells what time it is for the storage.
_CLOCK = "clock"
#: Files that are deleted between two looks at what the table reaches.
_AT_ONCE = 1000
_FIELD = "spec.maintenance.orphanFiles"


@dataclass(frozen=True, kw_only=True)
class Spared:
    """Whose files are left alone: runs of resources with these uids, and the run that looks."""

    run_id: str
    owners: tuple[str, ...] = ()

    def has(self, path: str) -> bool:
        """Return whether one of their runs wrote the file."""
        name = name_of(path)
        return name.startswith(f"{self.run_id}-") or any(is_run_of(name, uid) for uid in self.owners)


@dataclass(frozen=True, kw_only=True)
class OrphanSite:
    """Where a search looks. ``now_ms``: what the clock says."""

    catalog: Catalog
    warehouse: WarehouseRef
    ref: TableRef
    spared: Spared
    now_ms: Callable[[], int]


@dataclass(frozen=True, kw_only=True)
class Orphans:
    """The result of a search. ``first``: the first paths of those that were found and stay."""

    count: int = 0
    total_bytes: int = 0
    deleted: int = 0
    deleted_bytes: int = 0
    first: tuple[str, ...] = ()


#: How many paths a report names.
_FIRST = 5


def clean_orphans(site: OrphanSite, policy: OrphanFilesPolicy) -> Orphans:
    """Delete the orphans that an earlier run wrote down, if the policy says so, and write down those that are left.

    Raises BadSpec when a file below the location may belong to somebody else, DependencyUnavailable and OSError when
    something cannot be read: nothing is taken for an orphan then.
    """
    search = _Search(site, policy)
    records = OrphanRecords(search.storage, search.records_folder)
    orphans = search.find()
    deleted: list[FileMark] = []
    if policy.action is OrphanFilesAction.DELETE:
        known = records.marks(but_of=site.spared.run_id)
        deleted = search.delete([mark for mark in orphans if mark in known])
        search.abort_uploads()
    gone = set(deleted)
    left = [mark for mark in orphans if mark not in gone]
    records.replace(OrphanRecord(run_id=site.spared.run_id, marks=tuple(left[:MOST_RECORDED])))
    return Orphans(
        count=len(left),
        total_bytes=sum(mark.size for mark in left),
        deleted=len(deleted),
        deleted_bytes=sum(mark.size for mark in deleted),
        first=tuple(mark.path for mark in left[:_FIRST]),
    )


def delete_remains(site: OrphanSite, policy: OrphanFilesPolicy, is_ours: Callable[[str], bool]) -> int:
    """Delete the orphans whose names only our runs give (``is_ours``), without another look; how many files went.

    Raises as ``clean_orphans``, but files of other tables may lie between them.
    """
    search = _Search(site, policy, is_ours)
    return len(search.delete(search.find()))


class _Search:
    """One look below the location of a table. ``is_ours``: the names of files that may be deleted; None: all."""

    def __init__(
        self, site: OrphanSite, policy: OrphanFilesPolicy, is_ours: Callable[[str], bool] | None = None
    ) -> None:
        """Raises as ``clean_orphans``."""
        self._site, self._spared, self._is_ours = site, site.spared, is_ours
        self.storage: Storage = open_storage(site.warehouse)
        self.table = load_table(site.catalog, site.ref)
        self._ref = replace(site.ref, table_uuid=str(self.table.metadata.table_uuid))  # whatever takes its name
        self._base = f"{plain_location(base_location(site.warehouse)).rstrip('/')}/"
        self._folder = self._require_own()
        self.records_folder = f"{ORPHANS_DIRECTORY}/{self.table.metadata.table_uuid}"
        self._oldest_ms = oldest_ms(site, policy, self.storage, self.records_folder)

    def find(self) -> list[FileMark]:
        """Listed first, then looked up: what is committed meanwhile is known."""
        listed = [found_file(entry) for entry in self.storage.list(self._folder)]
        return self._without_markers(self._orphans([file for file in listed if self._may_go(file)]))

    def _without_markers(self, marks: list[FileMark]) -> list[FileMark]:
        """Those that can be looked at: an empty object that marks a folder is listed by a name that is not its own."""
        empty = [mark.path for mark in marks if mark.size == 0]
        looked = zip(empty, self.storage.entries(empty), strict=True) if empty else ()
        markers = {path for path, entry in looked if entry is None}
        return [mark for mark in marks if mark.path not in markers]

    def delete(self, marks: Sequence[FileMark]) -> list[FileMark]:
        """Those that were deleted: each is looked at again, and what this table reaches, and others, too."""
        deleted: list[FileMark] = []
        unused = self._unused(marks)
        for start in range(0, len(unused), _AT_ONCE):
            part = unused[start : start + _AT_ONCE]
            there = self.storage.entries([mark.path for mark in part])
            wanted = set(part)
            same = [file for entry in there if entry is not None and (file := found_file(entry)).mark in wanted]
            for mark in self._orphans(same):
                self.storage.delete(mark.path)
                deleted.append(mark)
        return deleted

    def _unused(self, marks: Sequence[FileMark]) -> Sequence[FileMark]:
        """Those whose names no file has that another table uses: it may have taken them over, as by ``add_files``."""
        if not marks:
            return ()
        files = NamedFiles(f"{self._base}{mark.path}" for mark in marks)
        names = {name for other in other_tables(self.table) for name in files.names_used_by(other)}
        return [mark for mark in marks if name_of(mark.path) not in names]

    def abort_uploads(self) -> None:
        """Abort uploads that runs left which write no more."""
        if isinstance(self.table.io, DurableFileIO):
            self.table.io.abort_uploads(self.table.location().rstrip("/"), lambda key: self._is_left(key))

    def _is_left(self, key: str) -> bool:
        """Return whether one of our runs began the file, and none that is spared."""
        parts = name_of(key).split("-")
        is_ours = len(parts) > 3 and all(len(part) == 8 for part in parts[:2]) and parts[2].isdecimal()
        return is_ours and not self._spared.has(key)

    def _orphans(self, files: list[FoundFile]) -> list[FileMark]:
        """Those that the table, freshly loaded, does not reach."""
        if not files:
            return []
        table = load_table(self._site.catalog, self._ref)
        reached = self._reached(read_reach(table).paths())
        return plan_orphans(files, reached, self._oldest_ms, self._spared.owners, (self._spared.run_id,))

    def _reached(self, paths: set[str]) -> Reached:
        plain = {form for path in paths for form in (plain_location(path), unquote(plain_location(path)))}
        relative = (path.removeprefix(self._base) for path in plain if path.startswith(self._base))
        names = {name for path in plain for name in names_meant(path)}
        return Reached(frozenset(relative), frozenset(names | {name_of(path) for path in _led_to(plain)}))

    def _may_go(self, file: FoundFile) -> bool:
        """Return whether a file is old enough: the others need not be held while metadata is read."""
        if self._is_ours is not None and not self._is_ours(name_of(file.mark.path)):
            return False
        return file.touched_ms < self._oldest_ms and OWN_DIRECTORY not in file.mark.path.split("/")

    def _require_own(self) -> str:
        """The table's folder, relative to the root. Raises BadSpec when not everything in it is the table's."""
        location = f"{plain_location(self.table.location()).rstrip('/')}/"
        if ".." in location.split("/") or not location.startswith(self._base):
            why = f"its location {self.table.location()} is not below the Warehouse's root {self._base}"
        elif location == self._base:
            why = f"its location {self.table.location()} is the Warehouse's root, which other files share"
        else:
            why = "" if self._is_ours else find_sharing(self.table) or find_overlap(self.table) or ""
        if why:
            raise refused(self.table, why, _FIELD)
        return location.removeprefix(self._base).rstrip("/")


def _led_to(paths: Iterable[str]) -> Iterator[str]:
    """The files to which links among some plain locations lead; links on the way to a file change no name."""
    return (os.path.realpath(path) for path in paths if path.startswith("/") and Path(path).is_symlink())


class OrphanRecords:
    """The records of runs in ``folder``."""

    def __init__(self, storage: Storage, folder: str) -> None:
        """Nothing is read yet."""
        self._storage = storage
        self._folder = folder

    def marks(self, *, but_of: str) -> frozenset[FileMark]:
        """All that earlier runs wrote down."""
        return frozenset(mark for _, record in self._all() if record.run_id != but_of for mark in record.marks)

    def replace(self, record: OrphanRecord) -> None:
        """Write down ``record`` in the place of all others."""
        content = record.encode()
        path = f"{self._folder}/{hashlib.sha256(content).hexdigest()}"
        before = [known for known, _ in self._all()]
        if record.marks:
            self._storage.keep_content(path, content)
        for known in before:
            if known != path or not record.marks:
                self._storage.delete(known)

    def _all(self) -> Iterator[tuple[str, OrphanRecord]]:
        for entry in list(self._storage.list(self._folder)):
            try:
                yield entry.path, OrphanRecord.decode(self._storage.read(entry.path))
            except FileNotFoundError:
                continue
            except ContractViolation:
                self._storage.delete(entry.path)  # torn: a run that is killed while it writes leaves one


def oldest_ms(site: OrphanSite, policy: OrphanFilesPolicy, storage: Storage, folder: str) -> int:
    """Files that changed before this moment (since 1970, by the storage's clock) are old enough to be orphans.

    ``folder``: a place among our records for a file that tells the storage's time.
    """
    return site.now_ms() - _clock_behind_ms(storage, folder) - policy.older_than_seconds * 1000


def _clock_behind_ms(storage: Storage, folder: str) -> int:
    """By how much the clock that dates files is behind ours; 0 when it is ahead: files look younger then."""
    path = f"{folder}/{_CLOCK}"
    storage.delete(path)
    storage.keep_content(path, b"now")
    written = next(storage.entries([path]), None)
    storage.delete(path)
    return max(0, time.time_ns() // 1_000_000 - found_file(written).touched_ms) if written else 0


def found_file(entry: Entry) -> FoundFile:
    """``entry`` as it is judged: of the times that a volume knows the later one counts."""
    written_ns = entry.version if isinstance(entry.version, int) else 0
    mark = FileMark(path=entry.path, size=entry.size, version=str(entry.version))
    return FoundFile(mark=mark, touched_ms=max(entry.touched_ns, written_ns) // 1_000_000)
