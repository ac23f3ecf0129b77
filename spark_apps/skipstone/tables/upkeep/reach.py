"""What the metadata of a table reaches: manifest lists, manifests, data files, delete files, statistics, old metadata.

Used by expiry and by the search for orphan files, which take everything else for garbage: whatever cannot be read
raises, so that nothing is taken for unreached. By it, ``NamedFiles`` tells whether another table names files that are
about to be deleted, wherever its own files lie. Reads only.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from skipstone_core.maintenance.orphans import name_of, names_meant

from skipstone.compat.avro.whole import NotWholeError
from skipstone.compat.lineage.reading import read_manifest_list
from skipstone.parallel import at_once
from skipstone.tables.decoding.manifests import live_entries, read_data_manifests
from skipstone.tables.storage import plain_location
from skipstone.tables.upkeep.places import unreadable

#: Manifests whose paths are in memory as decoded at the same time.
_BATCH = 256
#: How often a table is read again whose files went while they were read, since it was changed.
_READS = 3


@dataclass
class Reach:
    """Paths as metadata has them. ``manifests`` by path; ``files``: data and delete files that are live somewhere."""

    lists: set[str] = field(default_factory=set)
    manifests: dict[str, ManifestFile] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)

    def paths(self) -> set[str]:
        """All of them."""
        return self.lists | self.manifests.keys() | self.files | self.others


def read_reach(table: Table) -> Reach:
    """What all retained snapshots and the metadata itself reach. Raises OSError when something cannot be read."""
    metadata = table.metadata
    lists = {snapshot.manifest_list for snapshot in metadata.snapshots}
    manifests = read_lists(table.io, lists)
    return Reach(
        lists=lists,
        manifests=manifests,
        files={path for path, _ in live_files(table.io, manifests.values())},
        others={*statistics_of(metadata), *metadata_files(table)},
    )


def statistics_of(metadata: TableMetadata, snapshots: Collection[int] | None = None) -> set[str]:
    """Paths of statistics of some snapshots; of all when None."""
    told = (*metadata.statistics, *metadata.partition_statistics)
    return {one.statistics_path for one in told if snapshots is None or one.snapshot_id in snapshots}


def metadata_files(table: Table) -> set[str]:
    """The metadata file and those before it that it lists."""
    return {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}


def read_lists(io: FileIO, paths: Iterable[str], *, may_be_gone: bool = False) -> dict[str, ManifestFile]:
    """The manifests of manifest lists, by path. ``may_be_gone``: a list that is not there has none."""

    def read(path: str) -> list[ManifestFile]:
        try:
            return read_manifest_list(io.new_input(path))
        except FileNotFoundError:
            if may_be_gone:
                return []
            raise

    return {one.manifest_path: one for found in at_once(read, sorted(paths)) for one in found}


def live_files(
    io: FileIO, manifests: Iterable[ManifestFile], *, may_be_gone: bool = False
) -> Iterator[tuple[str, int]]:
    """Path and bytes of each live entry of manifests. ``may_be_gone``: a manifest that is not there names nothing."""
    found = list(manifests)
    for start in range(0, len(found), _BATCH):
        batch = found[start : start + _BATCH]
        data = [one for one in batch if one.content == ManifestContent.DATA]
        yield from _data_files(io, data, may_be_gone=may_be_gone)
        for manifest in (one for one in batch if one.content == ManifestContent.DELETES):
            yield from _delete_files(io, manifest, may_be_gone=may_be_gone)


def _data_files(io: FileIO, manifests: Sequence[ManifestFile], *, may_be_gone: bool) -> Iterator[tuple[str, int]]:
    try:
        decoded, _ = read_data_manifests(manifests, io)
    except FileNotFoundError:
        if not may_be_gone:
            raise
        if len(manifests) > 1:
            for manifest in manifests:
                yield from _data_files(io, [manifest], may_be_gone=True)
        return
    for one in decoded:
        paths, sizes = (one.entries.column(name).to_pylist() for name in ("path", "size"))
        yield from zip(paths, sizes, strict=True)


def _delete_files(io: FileIO, manifest: ManifestFile, *, may_be_gone: bool) -> Iterator[tuple[str, int]]:
    try:
        files = (entry.data_file for entry in live_entries(manifest, io))
        yield from ((file.file_path, file.file_size_in_bytes) for file in files)
    except FileNotFoundError:
        if not may_be_gone:
            raise


# --- files that another table names ---


class NamedFiles:
    """Files that are about to be deleted, to be looked for in what tables name."""

    def __init__(self, paths: Iterable[str]) -> None:
        """``paths``: as metadata has them."""
        self._ours = _by_name(paths)

    def find_use(self, other: Table) -> str | None:
        """A clause that says which of the files the table ``other`` names in a snapshot that it retains; else None.

        Raises DependencyUnavailable when the metadata, a manifest list or a manifest of ``other`` cannot be read.
        """
        used = sorted(path for path in self.named_by(other) if self._is_one(path))
        if not used:
            return None
        more = f" and {len(used) - 1} more of its files" if len(used) > 1 else ""
        return f"{'.'.join(other.name())} uses its file {used[0]}{more}"

    def named_by(self, other: Table) -> set[str]:
        """Paths that ``other`` names and that may mean a file with the name of one of these. Raises as ``find_use``."""
        found = _reached(other) if self._ours else set()
        return {path for path in found if not names_meant(path).isdisjoint(self._ours)}

    def _is_one(self, path: str) -> bool:
        """Whether ``path`` may mean one of the files."""
        folder = path[: path.rfind("/") + 1]
        meant = _forms(path).union(*(_forms(f"{folder}{name}") for name in names_meant(path)))
        return any(not meant.isdisjoint(self._ours.get(name, ())) for name in names_meant(path))


def _by_name(paths: Iterable[str]) -> Mapping[str, set[str]]:
    """All forms of the places of files, by the name of the file."""
    found: dict[str, set[str]] = {}
    for path in paths:
        forms = _forms(path)
        for name in {name_of(form) for form in forms}:
            found.setdefault(name, set()).update(forms)
    return found


def _forms(path: str) -> set[str]:
    """The places that ``path`` may mean; on a volume also without the links on the way."""
    plain = {plain_location(path), unquote(plain_location(path))}
    return plain | {os.path.realpath(one) for one in plain if one.startswith("/")}


def _reached(table: Table) -> set[str]:
    """All paths that ``table`` names now, or named a moment ago. Raises DependencyUnavailable."""
    name, known = table.name(), table
    for attempt in range(_READS):
        try:
            return read_reach(known).paths()
        except (OSError, NotWholeError) as error:
            try:
                now = table.catalog.load_table(name)
            except (NoSuchTableError, NoSuchNamespaceError):
                return set()  # dropped
            if now.metadata_location == known.metadata_location or attempt == _READS - 1:
                raise unreadable(".".join(name), error) from error
            known = now
    raise AssertionError(_READS)
