"""Where files are that a table may name as its own: places that every later run, and every other engine, reaches too.

Called by register runs before they open a file. Must not write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePosixPath

from pyiceberg.table import Table
from skipstone_core.contract.requests import WarehouseRef
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.reasons import Reason

from skipstone.sources.listing import SourceListing
from skipstone.storage.opening import open_location
from skipstone.storage.port import Folder, Storage
from skipstone.tables.catalogs import base_location
from skipstone.tables.storage import data_location, plain_location

_PATHS, _LOCATION = "source.paths", "source.location"
#: Characters that end the path in an address.
_SPECIAL = ("#", "?")
#: Folders of formats that have a list of live files, which a listing of the folder is not.
_LOGS = {"_delta_log": "a Delta table", ".hoodie": "a Hudi table"}
_METADATA = "metadata"
#: Requests at the same time, to see what lies beside files.
_LOOKERS = 16


@dataclass(frozen=True)
class SourcePlace:
    """The place that files are registered from, and the table that gets them. ``base``: location of the place."""

    base: str
    table: Table

    def location(self, path: str) -> str:
        """Return the name of the file at ``path`` in manifests. Raises BadSpec (INVALID_SPEC) for a forbidden place.

        Those are files among the table's own, which are deleted with it, and names that engines read differently.
        """
        if special := self._special(path):
            message = f"'{path}' has '{special}' in its name, with which some engines do not find it: rename it"
            raise BadSpec(Reason.INVALID_SPEC, message, field=_PATHS)
        location = f"{self.base}/{path}"
        for folder in self._own_folders():
            if plain_location(location).startswith(f"{plain_location(folder)}/"):
                raise BadSpec(
                    Reason.INVALID_SPEC,
                    f"'{path}' lies in a folder of the table's own files, which are deleted with the table: move it to "
                    "another folder",
                    field=_PATHS,
                )
        return location

    def is_of_table(self, folder: str) -> bool:
        """Return whether ``folder`` is the table's own place."""
        return plain_location(f"{self.base}/{folder}".rstrip("/")) == plain_location(self.table.location().rstrip("/"))

    def _special(self, path: str) -> str:
        """Return characters that engines misread: those that end a path and, for Hadoop on volumes, a colon."""
        characters = [character for character in _SPECIAL if character in path]
        if ":" in path.rpartition("/")[2] and self.base.startswith("file:"):
            characters.append(":")
        return characters[0] if characters else ""

    def _own_folders(self) -> tuple[str, ...]:
        place = self.table.location().rstrip("/")
        return data_location(self.table), f"{place}/data", f"{place}/{_METADATA}"


def source_place(warehouse: WarehouseRef, location: str, table: Table) -> SourcePlace:
    """Where the files of a source are. Raises BadSpec (INVALID_SPEC) for a place that other runs do not reach."""
    if not location:
        return SourcePlace(base_location(warehouse), table)
    open_location(warehouse, location)  # which knows what to say of one that is not there
    place = next(candidate.bucket for candidate in warehouse.locations if candidate.name == location)
    if place is None or warehouse.bucket is None:
        raise BadSpec(
            Reason.INVALID_SPEC,
            f"the files of source location '{location}' cannot be registered: the runs that read the table later do "
            "not mount it. Put the files on the Warehouse's own storage, or use the mode Copy",
            field=_LOCATION,
        )
    if not place.is_reached_like(warehouse.bucket):
        raise BadSpec(
            Reason.INVALID_SPEC,
            f"the files of source location '{location}' cannot be registered: the runs that read the table later have "
            "the endpoint, region and credentials of the Warehouse, and the location has others. Give it the same "
            "ones, or use the mode Copy",
            field=_LOCATION,
        )
    return SourcePlace(place.location(), table)


def require_no_table(listing: SourceListing, place: SourcePlace) -> None:
    """Raise BadData (SOURCE_UNREADABLE) when a file lies in a table whose metadata says which of its files count."""
    folders = sorted(set(_folders_of_tables([file.path for file in listing.files])))
    with ThreadPoolExecutor(_LOOKERS) as pool:
        kinds = pool.map(lambda folder: _kind(listing.storage, folder, place), folders)
        for folder, kind in zip(folders, kinds, strict=True):
            if kind:
                raise BadData(
                    Reason.SOURCE_UNREADABLE,
                    f"'{folder or '.'}' holds {kind}, and only its metadata says which of its files hold live rows: "
                    "read it with an engine that knows it, and write the rows to this table",
                    field=_PATHS,
                )


def require_no_log(listing: SourceListing) -> SourceListing:
    """``listing``. Raises BadData (SOURCE_UNREADABLE) when a file lies in a table whose log says which files count."""
    folders = sorted({next(_folders_above(str(PurePosixPath(file.path).parent))) for file in listing.files})
    places = [(folder, name) for folder in folders for name in _LOGS]
    with ThreadPoolExecutor(_LOOKERS) as pool:
        logs = pool.map(lambda place: next(iter(listing.storage.list(_below(*place))), None), places)
        for (folder, name), file in zip(places, logs, strict=True):
            if file is not None:
                raise BadData(
                    Reason.SOURCE_UNREADABLE,
                    f"'{folder or '.'}' holds {_LOGS[name]}, and only its log says which of its files hold live rows: "
                    "read a Delta table by source.delta, and others with an engine that knows them",
                    field=_PATHS,
                )
    return listing


def _folders_of_tables(paths: Sequence[str]) -> Iterator[str]:
    """The folders in which a table may be that has one of ``paths``: all above it but those that name a value."""
    for folder in {str(PurePosixPath(path).parent) for path in paths}:
        yield from _folders_above(folder)


def _folders_above(folder: str) -> Iterator[str]:
    """``folder`` without folders at its end that name a value, and all above it."""
    parts = [part for part in PurePosixPath(folder).parts if part != "."]
    while parts and "=" in parts[-1]:
        parts.pop()
    for count in range(len(parts), -1, -1):
        yield "/".join(parts[:count])


def _kind(storage: Storage, folder: str, place: SourcePlace) -> str:
    """Return the kind of table in ``folder``; empty for none, and for the table that gets the files."""
    for name, kind in _LOGS.items():
        if storage.is_taken(_below(folder, name)):
            return kind
    entry = storage.look(_below(folder, _METADATA))
    names = [file.path for file in entry.files] if isinstance(entry, Folder) else []
    is_iceberg = any(name.endswith((".metadata.json", "version-hint.text")) for name in names)
    return "an Iceberg table" if is_iceberg and not place.is_of_table(folder) else ""


def _below(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
