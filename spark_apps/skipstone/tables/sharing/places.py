"""Which files of a table are its own to delete, and whether another table of the catalog may use them too.

Used by whatever deletes files of tables. Reads the catalog only.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator

from pydantic import ValidationError as PydanticValidationError
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import ValidationError
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from requests import RequestException
from skipstone_core.errors import BadSpec, DependencyUnavailable
from skipstone_core.history.consumption import REGISTERED, consumed_property
from skipstone_core.ids import INDEX_UID_PROPERTY
from skipstone_core.reasons import Reason
from sqlalchemy import select
from sqlalchemy.orm import Session

from skipstone.tables.answers.listing import load_others
from skipstone.tables.answers.reading import first_line
from skipstone.tables.catalogs import catalog_answers
from skipstone.tables.storage import data_location, metadata_folder, plain_location

#: Says, with any value but true, that files of the table are not to be deleted because others use them.
GC_ENABLED = "gc.enabled"
#: Names that Iceberg's Java library still follows where ``write.data.path`` is not set.
_OLD_DATA_PATHS = ("write.object-storage.path", "write.folder-storage.path")
#: Ways out of sharing: nothing that is left loses a file by them.
_DROP_ONE = "drop the table that nobody needs, and keep its files: DROP TABLE without PURGE"
_GC_WAY_OUT = "set it to true if none does"
_log = logging.getLogger(__name__)


def own_data_folders(table: Table) -> tuple[str, ...]:
    """Folders in which only data files lie that were written for ``table``, as plain locations that end with a slash.

    The property that names another folder for data may have been set after files of that folder were registered.
    """
    if consumed_property(REGISTERED) in table.properties:
        return _plain(f"{table.location().rstrip('/')}/data")
    return data_folders(table)


def data_folders(table: Table) -> tuple[str, ...]:
    """Where data files of ``table`` are or will be, as plain locations that end with a slash."""
    return _plain(data_location(table), f"{table.location().rstrip('/')}/data")


def metadata_folders(table: Table) -> tuple[str, ...]:
    """Where its metadata is."""
    return _plain(metadata_folder(table), f"{table.location().rstrip('/')}/metadata")


def is_below(path: str, folders: tuple[str, ...]) -> bool:
    """Return whether a file is below one of some plain locations."""
    plain = plain_location(path)
    return ".." not in plain.split("/") and plain.startswith(folders)


def find_sharing(table: Table) -> str | None:
    """Why files of ``table`` must not be deleted: it says so, or another table has its metadata or its place.

    That is a table that was registered again under another name. Raises DependencyUnavailable.
    """
    if why := find_told_sharing(table):
        return why
    is_sql = isinstance(table.catalog, SqlCatalog)
    if is_sql and INDEX_UID_PROPERTY in table.properties:  # ours alone; there are many, and they expire often
        return None
    return next((why for other in known_others(table) if (why := find_sharing_with(table, other))), None)


def find_told_sharing(table: Table) -> str | None:
    """Why files of ``table`` must not be deleted, if it or the rows of an SQL catalog say so: no other file is read."""
    if (enabled := table.properties.get(GC_ENABLED, "true")).lower() != "true":  # as Java reads it
        return f"its property {GC_ENABLED} is {enabled!r}, which says that other tables use its files; {_GC_WAY_OUT}"
    return _named_below(table)


def find_sharing_with(table: Table, other: Table) -> str | None:
    """Why files of ``table`` must not be deleted, because of ``other``, by what the metadata of both says."""
    folders = _forms(table.location())
    if _is_in(other.metadata_location, folders):
        return _metadata_below(table, other.name())
    if other.metadata.table_uuid == table.metadata.table_uuid:
        return f"{'.'.join(other.name())} is a copy of it with the same files; {_DROP_ONE}"
    if set(folders) & set(_forms(other.location())):
        return f"{'.'.join(other.name())} has the same location {table.location()}; {_DROP_ONE}"
    return None


def _named_below(table: Table) -> str | None:
    """Why files stay if the rows of an SQL catalog tell it, which needs no file."""
    if not isinstance(table.catalog, SqlCatalog):
        return None
    folders = _forms(table.location())
    below = (name for name, place in _metadata_places(table, table.catalog) if _is_in(place, folders))
    return next((_metadata_below(table, name) for name in below), None)


def _is_in(place: str, folders: tuple[str, ...]) -> bool:
    return any(form.startswith(folders) for form in _forms(place))


def _metadata_below(table: Table, identifier: Identifier) -> str:
    return f"{'.'.join(identifier)} has its metadata below {table.location()}; {_DROP_ONE}"


def find_overlap(table: Table) -> str | None:
    """Why a file below the location of ``table`` may be that of another one. Raises DependencyUnavailable."""
    mine = _forms(table.location())
    for other in other_tables(table):
        above = _forms(other.location())
        for place in (other.location(), *_all_folders(other)):
            if any(form.startswith(mine) for form in _forms(place)) or any(form.startswith(above) for form in mine):
                return f"its location {table.location()} overlaps with {place} of {'.'.join(other.name())}"
    return None


def _all_folders(table: Table) -> tuple[str, ...]:
    """Where any engine may write files of ``table``."""
    old = (table.properties.get(name) for name in _OLD_DATA_PATHS)
    return (*data_folders(table), *_plain(*filter(None, old)), *metadata_folders(table))


def _forms(place: str) -> tuple[str, ...]:
    """A place as it is named, and on a volume also without the links on the way; each ends with a slash."""
    plain = f"{plain_location(place).rstrip('/')}/"
    return tuple(dict.fromkeys((plain, f"{os.path.realpath(plain).rstrip('/')}/"))) if plain[0] == "/" else (plain,)


def refused(table: Table, why: str, field: str) -> BadSpec:
    """The error that says why files of ``table`` stay."""
    message = f"no file of {'.'.join(table.name())} is deleted: {why}"
    return BadSpec(Reason.RESOURCE_CONFLICT, message, field=field)


def other_tables(table: Table) -> Iterator[Table]:
    """The other tables of the catalog. Raises DependencyUnavailable when one of them cannot be read."""

    def load(identifier: Identifier) -> Table:
        try:
            return table.catalog.load_table(identifier)
        except RequestException:
            raise  # the catalog's
        except (OSError, ValidationError, PydanticValidationError) as error:
            raise unreadable(".".join(identifier), error) from error

    yield from _others(table, load)


def unreadable(name: str, error: Exception) -> DependencyUnavailable:
    """The error that says why it is not known which files the table ``name`` uses."""
    problem = (
        f"which files {name} uses cannot be seen, since one that leads to them cannot be read ({first_line(error)})"
    )
    message = f"{problem}: restore that file, or drop that table from the catalog."
    return DependencyUnavailable(Reason.STORAGE_UNAVAILABLE, message)


def known_others(table: Table) -> Iterator[Table]:
    """The other tables of the catalog, of an SQL catalog but those whose metadata file is not there.

    Nobody can read such a table. Raises DependencyUnavailable when another one cannot be read.
    """
    yield from _readable_others(table) if isinstance(table.catalog, SqlCatalog) else other_tables(table)


def _readable_others(table: Table) -> Iterator[Table]:

    def load(identifier: Identifier) -> Table | None:
        name = ".".join(identifier)
        try:
            return table.catalog.load_table(identifier)
        except (ValidationError, PydanticValidationError) as error:
            raise unreadable(name, error) from error
        except OSError as error:
            _log.warning("%s cannot be read: %s", name, error)
        return None

    yield from _others(table, load)


def _others(table: Table, load: Callable[[Identifier], Table | None]) -> Iterator[Table]:
    with catalog_answers(table.catalog.name):
        yield from load_others(table.catalog, table.name(), load)


def _metadata_places(table: Table, catalog: SqlCatalog) -> Iterator[tuple[Identifier, str]]:
    """Where the metadata of all other tables is, those of other catalogs in the same database too, by one question.

    Names of tables of another catalog begin with its own.
    """
    asked = select(
        IcebergTables.table_namespace,
        IcebergTables.table_name,
        IcebergTables.metadata_location,
        IcebergTables.catalog_name,
    )
    with catalog_answers(catalog.name), Session(catalog.engine) as session:
        for namespace, name, place, owner in session.execute(asked).all():
            identifier = (*namespace.split("."), name)
            if owner != catalog.name:
                yield (owner, *identifier), place or ""
            elif identifier != table.name():
                yield identifier, place or ""


def _plain(*places: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{plain_location(place).rstrip('/')}/" for place in places))
