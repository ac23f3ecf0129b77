"""What a process remembers of tables: enough to tell that a query of them gains nothing.

Noted by the rule ``no_index_applies`` when it has looked closely, and used by ``decision`` before anything is looked
at. What a metadata file says never changes; which columns indexes begin with does, so that counts for some seconds
only: a new index is used a little later, and an answer never depends on it. Must not ask a catalog or the JVM.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from cachetools import LRUCache
from pyiceberg.table import Table

from skipstone.query.plans.guarding.risks import columns_at_risk, lacks_bounds
from skipstone.tables.shaping.writeproperties import bloom_filters_of

#: Snapshots and tables of which facts are kept.
_KEPT = 4_096


class CatalogTable(NamedTuple):
    """A table of a catalog, and the namespace of its indexes if they are not beside it."""

    catalog: str
    table: str
    uuid: str
    index_namespace: str | None


@dataclass(frozen=True)
class MetadataFacts:
    """The facts of a snapshot in a metadata file. ``columns``: the ids of top-level fields by the names that they have
    in any schema. ``at_risk``: names of columns by whose bounds Iceberg may lose rows; ``lacks_bounds``: it may lose
    some by any condition. ``has_filters``: files may have bloom filters.
    """

    columns: tuple[tuple[str, int], ...]
    at_risk: frozenset[str]
    lacks_bounds: bool
    has_filters: bool

    def names(self, fields: Collection[int]) -> frozenset[str]:
        """Names of the columns with these ids in any schema."""
        return frozenset(name for name, number in self.columns if number in fields)


class _Fields(NamedTuple):
    """Ids of the columns that indexes begin with, and when the catalog was asked for the indexes."""

    fields: frozenset[int]
    asked: float


_snapshots: LRUCache[tuple[str, int | None], MetadataFacts] = LRUCache(_KEPT)
_fields: LRUCache[CatalogTable, _Fields] = LRUCache(_KEPT)
_lock = threading.Lock()


def read_facts(table: Table, snapshot_id: int | None) -> MetadataFacts:
    """The facts of a snapshot, remembered or told by the table's metadata and the snapshot's manifest list."""
    place = table.metadata_location, snapshot_id
    known = known_facts(*place)
    if known is None:
        schemas = table.metadata.schemas
        columns = {(field.name, field.field_id) for schema in schemas for field in schema.fields}
        known = MetadataFacts(
            tuple(sorted(columns)),
            columns_at_risk(schemas),
            lacks_bounds(table, snapshot_id),
            bool(bloom_filters_of(table)),
        )
        with _lock:
            _snapshots[place] = known
    return known


def known_facts(location: str, snapshot_id: int | None) -> MetadataFacts | None:
    """The facts of a snapshot in the metadata file at ``location``, if they are remembered."""
    with _lock:
        return _snapshots.get((location, snapshot_id))


def note_fields(name: CatalogTable, fields: frozenset[int]) -> None:
    """Remember the ids of the columns that the indexes of a table begin with, as its catalog says now."""
    with _lock:
        _fields[name] = _Fields(fields, time.monotonic())


def known_fields(name: CatalogTable, seconds: float) -> frozenset[int] | None:
    """Ids of the columns that the indexes of a table begin with, if the catalog was asked within so many seconds."""
    with _lock:
        known = _fields.get(name)
    return known.fields if known is not None and time.monotonic() - known.asked < seconds else None
