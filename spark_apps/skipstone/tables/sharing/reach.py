"""What the metadata of a table reaches: manifest lists, manifests, data files, delete files, statistics, old metadata.

Used by expiry and by the search for orphan files, which take everything else for garbage: whatever cannot be read
raises, so that nothing is taken for unreached. Reads only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from skipstone.compat.lineage.reading import read_manifest_list, require_listed
from skipstone.parallel import at_once
from skipstone.tables.decoding.manifests import live_entries, read_data_manifests

#: Manifests whose paths are in memory as decoded at the same time.
_BATCH = 256


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
    """Return the reach of all retained snapshots and the metadata itself. Raises OSError for an unreadable file."""
    metadata = table.metadata
    lists = [snapshot.manifest_list for snapshot in metadata.snapshots]
    read = read_each_list(table.io, lists)
    for snapshot, listed in zip(metadata.snapshots, read, strict=True):
        require_listed(snapshot, listed)
    manifests = {manifest.manifest_path: manifest for listed in read for manifest in listed}
    return Reach(
        lists=set(lists),
        manifests=manifests,
        files={path for path, _ in live_files(table.io, manifests.values())},
        others={*statistics_of(metadata), *metadata_files(table)},
    )


def statistics_of(metadata: TableMetadata, snapshots: Collection[int] | None = None) -> set[str]:
    """Paths of statistics of some snapshots; of all when None."""
    statistics = (*metadata.statistics, *metadata.partition_statistics)
    return {file.statistics_path for file in statistics if snapshots is None or file.snapshot_id in snapshots}


def metadata_files(table: Table) -> set[str]:
    """The metadata file and those before it that it lists."""
    return {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}


def read_lists(io: FileIO, paths: Iterable[str], *, may_be_gone: bool = False) -> dict[str, ManifestFile]:
    """The manifests of manifest lists, by path. ``may_be_gone``: a list that is not there has none."""
    read = read_each_list(io, sorted(paths), may_be_gone=may_be_gone)
    return {manifest.manifest_path: manifest for manifests in read for manifest in manifests}


def read_each_list(io: FileIO, paths: Sequence[str], *, may_be_gone: bool = False) -> list[list[ManifestFile]]:
    """The manifests of each manifest list, by the same rule."""

    def read(path: str) -> list[ManifestFile]:
        try:
            return read_manifest_list(io.new_input(path))
        except FileNotFoundError:
            if may_be_gone:
                return []
            raise

    return at_once(read, paths)


def paths_by_manifest(io: FileIO, manifests: Iterable[ManifestFile]) -> Iterator[tuple[str, list[str]]]:
    """The path of each manifest with those of its live entries. Raises as ``read_reach``."""
    listed = list(manifests)
    for start in range(0, len(listed), _BATCH):
        batch = listed[start : start + _BATCH]
        data = [manifest for manifest in batch if manifest.content == ManifestContent.DATA]
        decoded, _ = read_data_manifests(data, io)
        for manifest, known in zip(data, decoded, strict=True):
            yield manifest.manifest_path, known.entries.column("path").to_pylist()
        for manifest in (manifest for manifest in batch if manifest.content == ManifestContent.DELETES):
            yield manifest.manifest_path, [path for path, _ in _delete_files(io, manifest, may_be_gone=False)]


def live_files(
    io: FileIO, manifests: Iterable[ManifestFile], *, may_be_gone: bool = False
) -> Iterator[tuple[str, int]]:
    """Path and bytes of each live entry of manifests. ``may_be_gone``: a manifest that is not there names nothing."""
    listed = list(manifests)
    for start in range(0, len(listed), _BATCH):
        batch = listed[start : start + _BATCH]
        data = [candidate for candidate in batch if candidate.content == ManifestContent.DATA]
        yield from _data_files(io, data, may_be_gone=may_be_gone)
        for manifest in (candidate for candidate in batch if candidate.content == ManifestContent.DELETES):
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
    for data_manifest in decoded:
        paths, sizes = (data_manifest.entries.column(name).to_pylist() for name in ("path", "size"))
        yield from zip(paths, sizes, strict=True)


def _delete_files(io: FileIO, manifest: ManifestFile, *, may_be_gone: bool) -> Iterator[tuple[str, int]]:
    try:
        files = (entry.data_file for entry in live_entries(manifest, io))
        yield from ((file.file_path, file.file_size_in_bytes) for file in files)
    except FileNotFoundError:
        if not may_be_gone:
            raise
