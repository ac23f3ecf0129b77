"""In which folders the files of a table lie, written down beside the tables: manifests of most need not be read again.

Used before files of another table are deleted. Manifests and their lists never change, so what was seen of one stays
true; a record that is lost or torn is made again. Must not judge whose a file is.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from urllib.parse import unquote

from pyiceberg.table import Table
from skipstone_core.ids import OWN_DIRECTORY

from skipstone.storage.opening import storage_of
from skipstone.storage.port import Storage
from skipstone.tables.sharing.named import relative_part
from skipstone.tables.sharing.reach import live_files, paths_by_manifest, read_each_list, read_lists
from skipstone.tables.storage import plain_location

#: Where it is written down.
FOLDERS_DIRECTORY = f"{OWN_DIRECTORY}/folders"
#: Manifest lists that are read between two writings, and folders whose links are remembered.
_AT_ONCE, _MOST_FOLDERS = 100, 100_000
#: Folders by the digest of a path.
Seen = dict[str, tuple[str, ...]]


@dataclass
class FolderRecord:
    """A record of a table: the folders that its manifest ``lists`` and ``manifests`` name, by digest.

    ``metadata``: the digest of the metadata file of which all lists were seen. A folder is a plain location that ends
    with a slash, and holds all that lies below; it is empty for paths that say no root.
    """

    metadata: str = ""
    lists: Seen = field(default_factory=dict)
    manifests: Seen = field(default_factory=dict)

    def encode(self) -> bytes:
        """As it is written down."""
        folders = sorted({name for seen in (self.lists, self.manifests) for names in seen.values() for name in names})
        numbers = {folder: number for number, folder in enumerate(folders)}
        fields = {name: {digest: [numbers[folder] for folder in names] for digest, names in seen.items()}
                for name, seen in (("lists", self.lists), ("manifests", self.manifests))}  # fmt: skip
        return json.dumps({"metadata": self.metadata, "folders": folders, **fields}, separators=(",", ":")).encode()

    @staticmethod
    def decode(content: bytes) -> FolderRecord:
        """An empty record of anything else."""
        try:
            raw = json.loads(content)
            folders = [str(folder) for folder in raw["folders"]]
            lists, manifests = (
                {str(digest): tuple(folders[number] for number in members) for digest, members in raw[name].items()}
                for name in ("lists", "manifests")
            )
            return FolderRecord(str(raw["metadata"]), lists, manifests)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            return FolderRecord()


def read_record(table: Table) -> FolderRecord:
    """Return the record of ``table``. Raises DependencyUnavailable."""
    try:
        return FolderRecord.decode(_storage(table).read(_place(table)))
    except FileNotFoundError:
        return FolderRecord()


def update_record(table: Table, record: FolderRecord) -> None:
    """See what ``table`` names by now and ``record`` lacks, and write it down.

    Raises OSError and NotWholeError when a list or manifest cannot be read, DependencyUnavailable.
    """
    digest = digest_of(table.metadata_location)
    if record.metadata == digest:
        return
    named = {digest_of(snapshot.manifest_list): snapshot.manifest_list for snapshot in table.metadata.snapshots}
    missing = [path for key, path in named.items() if key not in record.lists]
    for start in range(0, len(missing), _AT_ONCE):
        if start:
            _write(table, record)
        _see(table, record, missing[start : start + _AT_ONCE])
    record.lists = {key: folders for key, folders in record.lists.items() if key in named}
    record.metadata = digest
    _write(table, record)


def find_paths(table: Table, record: FolderRecord, folders: Collection[str], *, may_be_gone: bool = False) -> set[str]:
    """What ``table`` names in lists and manifests that may name something in ``folders``, or that were not seen.

    ``may_be_gone``: a list or manifest that is not there names nothing. Raises as ``update_record``.
    """
    lists = [snapshot.manifest_list for snapshot in table.metadata.snapshots]
    near = [path for path in lists if _meet(record.lists.get(digest_of(path)), folders)]
    manifests = read_lists(table.io, near, may_be_gone=may_be_gone)
    read = [manifest for path, manifest in manifests.items()
            if _meet(record.manifests.get(digest_of(path)), folders)]  # fmt: skip
    return {*near, *manifests, *(path for path, _ in live_files(table.io, read, may_be_gone=may_be_gone))}


def folders_of(paths: Iterable[str], location: str) -> tuple[str, ...]:
    """The smallest folders that hold all of ``paths`` below ``location``, and all others."""
    own = _folder(f"{location.rstrip('/')}/")
    folders = {folder for path in paths for folder in _folders(path)}
    inside = {folder for folder in folders if folder.startswith(own)}
    groups = (inside, folders - inside)
    return tuple(_common(group) for group in groups if group)


def digest_of(path: str) -> str:
    """Return the digest of a path in records."""
    return hashlib.sha256(path.encode()).hexdigest()[:24]


def _see(table: Table, record: FolderRecord, lists: Sequence[str]) -> None:
    """Add what ``lists`` name to ``record``, which then has the manifests of these only: later lists share them."""
    named = dict(zip(lists, read_each_list(table.io, lists), strict=True))
    manifests = {manifest.manifest_path: manifest for listed in named.values() for manifest in listed}
    seen = {path: record.manifests.get(digest_of(path)) for path in manifests}
    unseen = (manifests[path] for path, folders in seen.items() if folders is None)
    seen |= {path: folders_of(paths, table.location()) for path, paths in paths_by_manifest(table.io, unseen)}
    record.manifests = {digest_of(path): folders or () for path, folders in seen.items()}
    for path, listed in named.items():
        paths = [manifest.manifest_path for manifest in listed]
        inside = {folder for manifest in paths for folder in seen[manifest] or ()}
        record.lists[digest_of(path)] = tuple(sorted({*inside, *folders_of([path, *paths], table.location())}))


def _meet(names: Sequence[str] | None, folders: Collection[str]) -> bool:
    """Return whether something may lie in both; nothing is known of what was not seen."""
    return names is None or any(
        mine.startswith(theirs) or theirs.startswith(mine) for theirs in names for mine in folders
    )


def _folders(path: str) -> set[str]:
    """The folders of what ``path`` may mean, also without the links of a volume."""
    if relative_part(path):
        return {""}
    plain = plain_location(path)
    folders = set()
    for form in {plain, unquote(plain)}:
        folder = form[: form.rfind("/") + 1]
        if not form.startswith("/"):
            folders.add(folder)
            continue
        end = os.path.realpath(form) if Path(form).is_symlink() else f"{_folder(folder)}x"
        folders |= {folder, end[: end.rfind("/") + 1]}
    return folders


@lru_cache(maxsize=_MOST_FOLDERS)
def _folder(folder: str) -> str:
    """A folder without the links on the way."""
    plain = plain_location(folder)
    return f"{os.path.realpath(plain).rstrip('/')}/" if plain.startswith("/") else plain


def _common(folders: Collection[str]) -> str:
    """The smallest folder that holds all: that of the first and the last of them, in order."""
    first, last = min(folders), max(folders)
    length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))
    return first[: first.rfind("/", 0, length) + 1]


def _write(table: Table, record: FolderRecord) -> None:
    storage, place = _storage(table), _place(table)
    storage.delete(place)
    storage.create(place, record.encode())


def _place(table: Table) -> str:
    return f"{FOLDERS_DIRECTORY}/{table.metadata.table_uuid}"


def _storage(table: Table) -> Storage:
    return storage_of(table.catalog.properties)
