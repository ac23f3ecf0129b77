"""All tables of a catalog, or as many as are asked for: whoever gets a part of them is told so by its type.

Used where something may be deleted only if no table of the catalog needs it. Reads the catalog only; names are what is
kept in memory. Raises what the catalog raises, and DependencyUnavailable (CATALOG_UNAVAILABLE) when the catalog lists
what it says not to have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeVar
from uuid import UUID

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

from skipstone.tables.answers.absence import require_namespace_unlisted, require_table_unlisted

#: Tables whose metadata is loaded at the same time.
AT_ONCE = 64
#: How often all tables are loaded at most while names change meanwhile.
_LOOKS = 3
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class TooMany:
    """The catalog has more tables than ``most``; which ones is not told, for a part of them proves nothing."""

    most: int


def all_tables(catalog: Catalog) -> Iterator[Identifier]:
    """The name of every table, once, in all namespaces and on all pages of their lists."""
    namespaces = [tuple(levels) for levels in catalog.list_namespaces()]
    seen = set(namespaces)
    while namespaces:
        namespace = namespaces.pop()
        try:
            names = {tuple(name) for name in catalog.list_tables(namespace)}
        except NoSuchNamespaceError as error:
            require_namespace_unlisted(catalog, namespace, error)
            continue  # dropped a moment ago
        yield from sorted(names)
        with suppress(NoSuchNamespaceError):  # dropped now, or namespaces of this catalog have one level
            below = [tuple(levels) for levels in catalog.list_namespaces(namespace) if tuple(levels) not in seen]
            seen.update(below)
            namespaces += below


def list_tables_up_to(catalog: Catalog, most: int) -> tuple[Identifier, ...] | TooMany:
    """The names of all tables, sorted, if there are at most ``most``."""
    names = tuple(islice(all_tables(catalog), most + 1))
    return TooMany(most) if len(names) > most else tuple(sorted(names))


def load_others(catalog: Catalog, but: Identifier, load: Callable[[Identifier], Table | None]) -> Iterator[Table]:
    """Every table but the one named ``but``, as it is now, some of them loaded ahead; one that changes maybe twice.

    ``load`` gives None for a table that is left out. What is renamed while it is looked for may be missed by one list:
    the catalog is asked for its tables again until it names no other ones. And it may take a name that was looked at
    before: all are loaded again if a name was gone by then, or if two names had one table.
    """
    given, twins = set[str](), frozenset[frozenset[Identifier]]()
    for _ in range(_LOOKS):
        names, is_one_gone = dict[UUID, set[Identifier]](), False
        for name, table in _each_other(catalog, but, load):
            if isinstance(table, _Gone):
                is_one_gone = True
            elif table is not None:
                names.setdefault(table.metadata.table_uuid, set()).add(name)
                if table.metadata_location not in given:
                    given.add(table.metadata_location)
                    yield table
        known, twins = twins, frozenset(frozenset(group) for group in names.values() if len(group) > 1)
        if twins == known and not is_one_gone:
            return


class _Gone:
    """In the place of a table that was listed: it has another name now, or was dropped."""


_GONE = _Gone()
_Load = Callable[[Identifier], Table | None]


def _each_other(catalog: Catalog, but: Identifier, load: _Load) -> Iterator[tuple[Identifier, Table | _Gone | None]]:
    """Yield the tables of all names but one, until a list names no others."""
    looked = {but}
    while names := [name for name in all_tables(catalog) if name not in looked]:
        looked.update(names)
        yield from ahead(lambda name: (name, _unless_gone(catalog, load, name)), names)


def load_all(catalog: Catalog, names: Iterable[Identifier], load: _Load) -> Iterator[Table]:
    """Those of some tables that were listed which are still there."""
    tables = ahead(partial(_unless_gone, catalog, load), names)
    yield from (table for table in tables if table is not None and not isinstance(table, _Gone))


def _unless_gone(catalog: Catalog, load: _Load, name: Identifier) -> Table | _Gone | None:
    try:
        return load(name)
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        require_table_unlisted(catalog, name, error)
        return _GONE


def ahead(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield the results of ``work`` for ``items``, in their order; at most AT_ONCE of them are begun ahead."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        begun: deque[Future[Result]] = deque()
        try:
            for item in items:
                begun.append(pool.submit(work, item))
                if len(begun) >= AT_ONCE:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for future in begun:
                future.cancel()
