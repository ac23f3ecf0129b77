"""Deletes the files of snapshots that were removed, and exactly those that nothing reaches any more.

Used by expiry after its commit. What is removed is written down before the commit, beside the tables, so that the next
run finishes what a killed one began. Order matters: what leads to other files is deleted after them.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from skipstone_core.errors import ContractViolation
from skipstone_core.maintenance.orphans import name_of

from skipstone.parallel import at_once
from skipstone.storage.opening import storage_of
from skipstone.storage.port import Storage
from skipstone.tables.decoding.metadatafiles import read_old_metadata
from skipstone.tables.sharing.named import NamedFiles
from skipstone.tables.sharing.places import is_below, metadata_folders, own_data_folders
from skipstone.tables.sharing.reach import Reach, live_files, metadata_files, read_lists, read_reach, statistics_of
from skipstone.tables.sharing.uses import find_uses

#: Where it is written down what a commit removes, until its files are deleted.
EXPIRED_DIRECTORY = ".skipstone/expired"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Removed:
    """Snapshots that a commit removes: their ids, manifest lists and files with statistics.

    ``base``: the metadata file on which that was planned; ``refs``: the branches and tags that this named.
    ``is_settled``: after the commit it was seen that nobody had made another one for them, or that one was put back.
    """

    snapshots: tuple[int, ...]
    lists: tuple[str, ...]
    statistics: tuple[str, ...] = ()
    base: str = ""
    refs: tuple[str, ...] = ()
    is_settled: bool = False

    def encode(self) -> bytes:
        """As it is written down."""
        document = {
            "snapshots": [str(snapshot_id) for snapshot_id in self.snapshots],
            "lists": self.lists,
            "statistics": self.statistics,
            "base": self.base,
            "refs": self.refs,
            "settled": self.is_settled,
        }
        return json.dumps(document, sort_keys=True).encode()

    @staticmethod
    def decode(content: bytes) -> Removed:
        """Raises ContractViolation for anything else."""
        try:
            raw = json.loads(content)
            return Removed(
                snapshots=tuple(int(snapshot_id) for snapshot_id in raw["snapshots"]),
                lists=tuple(str(path) for path in raw["lists"]),
                statistics=tuple(str(path) for path in raw["statistics"]),
                base=str(raw.get("base", "")),
                refs=tuple(str(name) for name in raw.get("refs", ())),
                is_settled=bool(raw.get("settled", False)),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ContractViolation(f"a list of removed snapshots cannot be read: {error}") from error


@dataclass(frozen=True)
class Deleted:
    """How many files are gone, and their bytes as far as manifests tell. ``left``: files that could not be deleted.

    ``notes``: sentences on files that stay because another table uses them.
    """

    files: int = 0
    nbytes: int = 0
    left: int = 0
    notes: tuple[str, ...] = ()

    def __add__(self, other: Deleted) -> Deleted:
        """Both."""
        return Deleted(
            self.files + other.files, self.nbytes + other.nbytes, self.left + other.left, self.notes + other.notes
        )


class RemovalNotes:
    """Notes of snapshots that commits to ``table`` removed, or were about to: their files may still be there."""

    def __init__(self, table: Table) -> None:
        """Nothing is read yet."""
        self._storage: Storage = storage_of(table.catalog.properties)
        self._folder = f"{EXPIRED_DIRECTORY}/{table.metadata.table_uuid}"

    def keep(self, removed: Removed) -> None:
        """Write down durably what is about to be removed. Raises DependencyUnavailable."""
        content = removed.encode()
        self._storage.keep_content(f"{self._folder}/{hashlib.sha256(content).hexdigest()}", content)

    def all(self) -> Iterator[tuple[str, Removed]]:
        """Path and content of each note; one that is torn was never followed by a commit, and is deleted."""
        for entry in list(self._storage.list(self._folder)):
            try:
                yield entry.path, Removed.decode(self._storage.read(entry.path))
            except FileNotFoundError:
                continue
            except ContractViolation:
                self._storage.delete(entry.path)

    def settle(self, path: str, removed: Removed) -> None:
        """Write down that no branch or tag names what is ``removed``: its files may go."""
        self.keep(replace(removed, is_settled=True))
        self.forget(path)

    def forget(self, path: str) -> None:
        """All of it is done."""
        self._storage.delete(path)


def removed_of(table: Table, snapshot_ids: Iterable[int]) -> Removed:
    """Return the files that have no name when some snapshots of ``table`` are removed."""
    ids = frozenset(snapshot_ids)
    gone: Sequence[Snapshot] = [snapshot for snapshot in table.metadata.snapshots if snapshot.snapshot_id in ids]
    return Removed(
        snapshots=tuple(sorted(snapshot.snapshot_id for snapshot in gone)),
        lists=tuple(sorted(snapshot.manifest_list for snapshot in gone)),
        statistics=tuple(sorted(statistics_of(table.metadata, ids))),
        base=table.metadata_location,
        refs=tuple(sorted(table.metadata.refs)),
    )


def delete_removed(table: Table) -> Deleted:
    """Delete what notes name and ``table``, freshly loaded, does not reach; all that was done is forgotten.

    A snapshot that is still in the table was not removed: its commit did not land, or not yet. Its note stays until it
    did, and until it is settled where the catalog is a server. Raises OSError, DependencyUnavailable when something
    cannot be read: nothing is taken for unreached then.
    """
    notes = RemovalNotes(table)
    retained = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    done = Deleted()
    kept: Reach | None = None
    for path, removed in notes.all():
        if set(removed.snapshots) <= retained or not (removed.is_settled or isinstance(table.catalog, SqlCatalog)):
            continue
        kept = kept or read_reach(table)
        deleted = _delete_files(table, removed, kept)
        done += deleted
        if not deleted.left and not retained & set(removed.snapshots):
            notes.forget(path)
    return done


def _delete_files(table: Table, removed: Removed, kept: Reach) -> Deleted:
    """Files, then the manifests that name them, then the lists that name these; none that another table uses."""
    io = table.io
    lists = set(removed.lists) - kept.lists
    manifests = read_lists(io, lists, may_be_gone=True)
    unreached = [manifest for path, manifest in manifests.items() if path not in kept.manifests]
    named = dict(live_files(io, unreached, may_be_gone=True))
    data, metadata = own_data_folders(table), metadata_folders(table)
    groups = (
        ({path: size for path, size in named.items() if path not in kept.files}, data),
        ({manifest.manifest_path: manifest.manifest_length for manifest in unreached}, metadata),
        (dict.fromkeys({*lists, *removed.statistics} - kept.others, 0), metadata),
    )
    # What was taken out may have been added again by another form of its path, or by a link
    in_use = NamedFiles(chain.from_iterable(sizes for sizes, _ in groups)).names_meant_by(kept.paths())
    gone = [
        {path: size for path, size in sizes.items() if name_of(path) not in in_use and is_below(path, folders)}
        for sizes, folders in groups
    ]
    uses = find_uses(table, frozenset(chain.from_iterable(gone)))
    deleted = Deleted(notes=uses.sentences())
    for sizes in gone:
        done = delete_files(io, {path: size for path, size in sizes.items() if path not in uses.paths})
        deleted += done
        if done.left:  # what leads to it stays, for the next run
            break
    return deleted


def delete_files(io: FileIO, sizes: Mapping[str, int]) -> Deleted:
    """Delete files of these bytes, many at a time; one that is gone counts for nothing, one that stays is told."""

    return sum(at_once(lambda path: _delete(io, path, sizes[path]), sorted(sizes)), Deleted())


def _delete(io: FileIO, path: str, nbytes: int) -> Deleted:
    try:
        io.delete(path)
    except FileNotFoundError:
        return Deleted()
    except OSError as error:
        _log.warning("%s stays behind: %s", path, error)
        return Deleted(left=1)
    return Deleted(files=1, nbytes=nbytes)


def delete_old_metadata(table: Table) -> Deleted:
    """Delete metadata files that ``table``, freshly loaded, lists no more; without a listing of folders.

    The oldest that is listed lists those before it. They are deleted from the oldest on, so that whoever is killed
    leaves a row of files without gaps. Raises OSError when one cannot be read.
    """
    listed, log = metadata_files(table), table.metadata.metadata_log
    older: list[str] = []
    begin = log[0].metadata_file if log else None
    while begin is not None:
        before = [path for path in _log_of(table.io, begin) if path not in listed and path not in older]
        there = _newest_there(table.io, before)
        older += there
        begin = there[-1] if there and len(there) == len(before) else None
    folders = metadata_folders(table)
    own = [path for path in reversed(older) if is_below(path, folders)]
    return sum((_delete(table.io, path, 0) for path in own), Deleted())


def _log_of(io: FileIO, path: str) -> list[str]:
    """The metadata files before the one at ``path``, newest first; none when it is gone."""
    try:
        return [*reversed(read_old_metadata(io.new_input(path)).log)]
    except FileNotFoundError:
        return []


def _newest_there(io: FileIO, paths: Sequence[str]) -> list[str]:
    """The first of ``paths`` up to one that is gone."""
    there = []
    for path in paths:
        if not io.new_input(path).exists():
            break
        there.append(path)
    return there
