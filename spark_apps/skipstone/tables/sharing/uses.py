"""Which files that are about to be deleted another table of the catalog uses, at a bounded cost.

Called by expiry, which happens often: of tables that name nothing near these files only a small record is read. Must
not delete.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from skipstone_core.ids import INDEX_UID_PROPERTY

from skipstone.compat.avro.whole import NotWholeError
from skipstone.tables.answers.listing import ahead
from skipstone.tables.sharing.folders import FolderRecord, find_paths, folders_of, read_record, update_record
from skipstone.tables.sharing.named import NamedFiles
from skipstone.tables.sharing.places import known_others, unreadable

#: How often a table is read again whose files went while they were read, since it was changed.
_READS = 3
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Uses:
    """Files that are used by others: ``by_table``, for each of the tables that use some."""

    by_table: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def paths(self) -> frozenset[str]:
        """All of them."""
        return frozenset().union(*self.by_table.values())

    def sentences(self) -> tuple[str, ...]:
        """Return a sentence for each table."""
        return tuple(
            f"{name} uses {'1 file' if len(paths) == 1 else f'{len(paths)} files'} of snapshots that expired, such as "
            f"{min(paths)}: what it uses stays."
            for name, paths in sorted(self.by_table.items())
        )


def find_uses(table: Table, paths: Collection[str]) -> Uses:
    """Which of ``paths``, files of ``table``, the snapshots that other tables retain name.

    Of a table without a list or manifest that it should have, what is left counts: nobody reads more of it. No table
    names files of our index tables. Raises DependencyUnavailable when another table cannot be read.
    """
    if not paths or INDEX_UID_PROPERTY in table.properties:
        return Uses()
    files, folders = NamedFiles(paths), folders_of(paths, table.location())
    others = (other for other in known_others(table) if INDEX_UID_PROPERTY not in other.properties)
    uses: dict[str, frozenset[str]] = {}
    for other, record in ahead(lambda other: (other, read_record(other)), others):
        if used := files.meant_by(_paths(other, record, folders)):
            uses[".".join(other.name())] = frozenset(used)
    return Uses(uses)


def _paths(other: Table, record: FolderRecord, folders: Collection[str]) -> set[str]:
    """What ``other`` names that may lie in ``folders``, by a look that no commit made worthless."""
    known = other
    for _ in range(_READS):
        try:
            update_record(known, record)
            return find_paths(known, record, folders)
        except FileNotFoundError as error:
            try:
                now = known.catalog.load_table(other.name())
            except (NoSuchTableError, NoSuchNamespaceError):
                return set()  # dropped
            if now.metadata_location == known.metadata_location:
                _log.warning("%s lacks a file that leads to others: %s", ".".join(other.name()), error)
                break
            known = now
        except (OSError, NotWholeError) as error:
            raise unreadable(".".join(other.name()), error) from error
    try:
        return find_paths(known, record, folders, may_be_gone=True)
    except (OSError, NotWholeError) as error:
        raise unreadable(".".join(other.name()), error) from error
