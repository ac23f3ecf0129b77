"""Resolves a table by its UUID: under its known name, or under any other name in the catalog.

Called by confirm runs, for which "not found" needs proof. Reads the catalog only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from skipstone_core.contract.requests import TableRef
from skipstone_core.errors import BadSpec, DependencyUnavailable
from skipstone_core.reasons import Reason

from skipstone.tables.answers.listing import TooMany, list_tables_up_to, load_all
from skipstone.tables.catalogs import catalog_answers, load_table
from skipstone.tables.namespaces import find_mark

#: How many tables are looked through for one that is not under its name.
MAX_TABLES = 2000
_GONE = frozenset({Reason.TABLE_MISSING, Reason.TABLE_REPLACED})


@dataclass(frozen=True)
class Lost:
    """The table was not found. ``is_proven``: this is the catalog that held it, and it holds it no more."""

    reason: Reason
    message: str
    is_proven: bool = False


def find_table(catalog: Catalog, ref: TableRef) -> TableRef | Lost:
    """``ref``, with the name that its table has now, or why there is none.

    The table under the known name counts, unless it is elsewhere on the storage and another one has its UUID too.
    Raises DependencyUnavailable when catalog or storage do not answer, for another table too.
    """
    try:
        table = load_table(catalog, ref)
    except BadSpec as error:
        if error.reason not in _GONE:
            raise
        return _search(catalog, ref, None, Lost(Reason(error.reason), str(error)))
    if not ref.table_uuid or ref.location in (None, table.location()):
        return ref
    return _search(catalog, ref, table, Lost(Reason.TABLE_MISSING, ""))


def _search(catalog: Catalog, ref: TableRef, named: Table | None, lost: Lost) -> TableRef | Lost:
    if not ref.table_uuid:
        return _unproven(f"{lost.message} Its UUID is not known, so it cannot be looked for under another name.")
    identifiers = _listed(catalog)
    if isinstance(identifiers, TooMany):
        return _unproven(f"{lost.message} The catalog has more than {MAX_TABLES} tables, too many to look through all.")
    matches = [table for table in _load_all(catalog, identifiers) if str(table.metadata.table_uuid) == ref.table_uuid]
    if _listed(catalog) != identifiers:
        return _unproven(f"{lost.message} Tables were renamed or dropped while it was looked for.")
    if not matches:
        return _judge(catalog, ref, lost)
    at_place = [table for table in matches if ref.location in (None, table.location())]
    if len(matches) == 1 and named is not None:
        at_place = matches
    if len(at_place) != 1:
        names = ", ".join(".".join(table.name()) for table in matches)
        return _unproven(
            f"The UUID {ref.table_uuid} is that of {names}; drop the copies from the catalog and keep their files, or "
            f"give the table its name {ref.namespace}.{ref.name} back."
        )
    return _renamed(ref, at_place[0])


def _judge(catalog: Catalog, ref: TableRef, lost: Lost) -> Lost:
    """Return how the table is lost; proven only if the catalog is known: a fresh or foreign one lacks our mark."""
    mark = find_mark(catalog, ref.namespace)
    if ref.namespace_id and mark == ref.namespace_id:
        return replace(lost, is_proven=True)
    return _unproven(
        f"{lost.message} Nothing proves that this catalog held it: its namespace {ref.namespace!r} does not carry "
        "the mark that Skipstone knows. Restore the catalog, or delete the job."
    )


def _renamed(ref: TableRef, table: Table) -> TableRef | Lost:
    *levels, name = table.name()
    if any("." in level for level in levels):
        return _unproven(f"The table is now in {levels}, a namespace with a dot in a level's name; rename it back.")
    return replace(ref, namespace=".".join(levels), name=name, location=None)


def _unproven(message: str) -> Lost:
    return Lost(Reason.CATALOG_UNPROVEN, message.strip())


def _load_all(catalog: Catalog, identifiers: Sequence[Identifier]) -> Iterator[Table]:
    def load(identifier: Identifier) -> Table:
        try:
            return catalog.load_table(identifier)
        except FileNotFoundError as error:
            message = f"{'.'.join(identifier)} cannot be read, and may be the table that is looked for: {error}."
            raise DependencyUnavailable(Reason.STORAGE_UNAVAILABLE, message) from error

    with catalog_answers(catalog.name):
        yield from load_all(catalog, identifiers, load)  # of those that are gone, the second listing tells


def _listed(catalog: Catalog) -> tuple[Identifier, ...] | TooMany:
    with catalog_answers(catalog.name):
        return list_tables_up_to(catalog, MAX_TABLES)
