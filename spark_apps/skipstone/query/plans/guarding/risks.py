"""Relations of a query of whose rows Iceberg itself may lose some: by bounds that are not what it takes them for.

Bounds of floats hold no NaN and order -0.0 below 0.0, those of UUIDs are compared as signed numbers, and manifest lists
of some writers lack bounds. Told by facts that are in memory after a first query. Must not look at what Spark makes of
a query, which ``pushdown`` does for the relations found here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cachetools import LRUCache
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import DoubleType, FloatType, IcebergType, StructType, UUIDType

from skipstone.compat.lineage.reading import read_manifests
from skipstone.query.plans.analysis.catalyst import Node, expression_id, read_tree
from skipstone.query.plans.analysis.relations import QueryTables, Site
from skipstone.query.plans.analysis.uses import Key, Scope
from skipstone.query.plans.fallback import or_else
from skipstone.query.plans.guarding.conditioned import conditioned_ids
from skipstone.query.plans.refusals import RelationRefused
from skipstone.tables.decoding.summaries import without_bounds

#: Manifest lists of which is known whether they lack bounds; lists never change.
_LISTS_KEPT = 4_096
_lists: LRUCache[tuple[str, str], bool] = LRUCache(_LISTS_KEPT)
_UNREAD = "a manifest list cannot be read"
_FLOATS = frozenset({"float", "double"})


@dataclass(frozen=True)
class Risk:
    """The conditions that may make Iceberg lose rows: those on ``columns``; any condition if ``lacks_bounds``."""

    columns: frozenset[str] = frozenset()
    lacks_bounds: bool = False

    def text(self) -> str:
        """Why, for explain."""
        if self.lacks_bounds:
            return "the manifest list lacks bounds of partitions, and Iceberg skips such manifests; compact to repair"
        return f"Iceberg's bounds of {', '.join(sorted(self.columns))} lose rows (NaN, -0.0, UUIDs)"


def find_risks(tables: QueryTables, query: Scope, sites: Mapping[Key, Sequence[Site]]) -> dict[Key, Risk]:
    """The relations of a query of which Iceberg may lose rows, as far as facts in memory say."""
    conditioned = conditioned_ids(query)
    risks: dict[Key, Risk] = {}
    for key, (site, *_) in sites.items():
        risk = _risk(tables, key, site, conditioned)
        if risk != Risk():
            risks[key] = risk
    return risks


def _risk(tables: QueryTables, key: Key, site: Site, conditioned: frozenset[int] | None) -> Risk:
    outputs = [read_tree(tree) for tree in site.node.fields["output"]]
    asked = [column for column in outputs if conditioned is None or expression_id(column) in conditioned]
    if not asked:
        return Risk()
    # of a table that we cannot open, Spark's types tell most
    table = or_else(lambda: _opened(tables, key, site), lambda _: None, "a table is not opened", logging.DEBUG)
    if table is None:
        return Risk(frozenset(_names(asked, frozenset())))
    columns = frozenset(_names(asked, columns_at_risk(table.metadata.schemas)))
    return Risk(columns, lacks_bounds(table, tables.snapshot_id(key, site.java)))


def _opened(tables: QueryTables, key: Key, site: Site) -> Table | None:
    try:
        return tables.open(key, site.java).table
    except RelationRefused:
        return None


def _names(columns: Iterable[Node], known: frozenset[str]) -> Iterator[str]:
    """The columns that are ``known`` to be at risk, or are by the type that Spark has."""
    for column in columns:
        name = str(column.fields["name"])
        if name in known or _has_float(column.fields["dataType"]):
            yield name


def _has_float(kind: object) -> bool:
    """Return whether a type in Spark's JSON is a float, or a struct with one."""
    if isinstance(kind, Mapping):
        return any(_has_float(field["type"]) for field in kind.get("fields", ()))
    return kind in _FLOATS


def columns_at_risk(schemas: Iterable[Schema]) -> frozenset[str]:
    """Names of the columns by whose bounds Iceberg may lose rows."""
    return frozenset(field.name for schema in schemas for field in schema.fields if _is_at_risk(field.field_type))


def _is_at_risk(kind: IcebergType) -> bool:
    if isinstance(kind, StructType):
        return any(_is_at_risk(field.field_type) for field in kind.fields)
    return isinstance(kind, FloatType | DoubleType | UUIDType)


def lacks_bounds(table: Table, snapshot_id: int | None) -> bool:
    """Return whether the manifest list of a snapshot lacks a bound that it has to have."""
    if snapshot_id is None or all(spec.is_unpartitioned() for spec in table.specs().values()):
        return False
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        return False
    place = str(table.metadata.table_uuid), snapshot.manifest_list
    # a list that cannot be read now may lack bounds
    return or_else(lambda: _list_lacks_bounds(place, table, snapshot), lambda _: True, _UNREAD, logging.DEBUG)


def _list_lacks_bounds(place: tuple[str, str], table: Table, snapshot: Snapshot) -> bool:
    if place not in _lists:
        manifests = read_manifests(snapshot, table.io, table.format_version)
        _lists[place] = bool(without_bounds(manifests, table.io))
    return _lists[place]
