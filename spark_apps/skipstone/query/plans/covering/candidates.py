"""The relations of a query that are joined by the keys of covering indexes.

Used by ``planning`` and ``bucket_joins``. A relation without such an index costs a look at the names of the tables
beside it. Must not decide which indexes are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

from skipstone_core.contract.requests import levels_of
from skipstone_core.ids import index_table_prefix

from skipstone.compat.catalyst import LogicalPlan, Relation
from skipstone.indexes.definition import stored_type
from skipstone.indexes.found import FoundIndex, find_indexes
from skipstone.indexes.tables import load_index_table
from skipstone.query.plans.analysis.catalyst import Node, descend, output_ids
from skipstone.query.plans.analysis.relations import IcebergRelation
from skipstone.query.plans.analysis.uses import Key, key_of
from skipstone.query.plans.covering.equalities import EquiJoin, Path, equi_joins
from skipstone.query.plans.covering.offers import CoveringOffer, offers
from skipstone.query.plans.refusals import RelationRefused
from skipstone.query.plans.state import QueryState
from skipstone.tables.filesets import known_file_set


@dataclass(frozen=True, eq=False)
class Normal:
    """A plan that ``normalize`` made, with its tree."""

    plan: LogicalPlan
    tree: Node


@dataclass(frozen=True, eq=False)
class Candidate:
    """A relation with its covering indexes, and what these offer for its joins."""

    node: Node
    java: Relation
    relation: IcebergRelation
    indexes: Sequence[FoundIndex]
    offers: Sequence[CoveringOffer]

    @property
    def key(self) -> Key:
        """The key of the relation."""
        return key_of(self.node)

    @property
    def ids(self) -> frozenset[int]:
        """Ids of its columns."""
        return frozenset(output_ids(self.node))

    def best(self, others: Sequence[Candidate]) -> CoveringOffer:
        """The first offer for a join whose other side has one with as many buckets, else the first one."""
        return next(
            (offer for offer in self.offers if any(_fit(offer, two) for two in _offers_of(others))), self.offers[0]
        )


def find_candidates(state: QueryState, query: Normal) -> Iterator[Candidate]:
    """The relations that are joined and have covering indexes, but for those that are read in another way already."""
    joins: dict[Path, list[EquiJoin]] = {}
    for join in equi_joins(query.tree):
        joins.setdefault(join.relation.path, []).append(join)
    for path, at_path in joins.items():
        key = key_of(at_path[0].relation)
        if key in state.sites and key not in state.planned:
            yield from _candidate(state, query, cast(Relation, descend(query.plan, path)), at_path)


def _candidate(state: QueryState, query: Normal, java: Relation, joins: Sequence[EquiJoin]) -> Iterator[Candidate]:
    node = joins[0].relation
    try:
        relation = state.opened(key_of(node))
    except RelationRefused:
        return
    if indexes := covering_indexes(relation, state.session.limits.index_namespace):
        offered = [*offers(query.tree, relation, joins, indexes)]
        yield Candidate(node, java, relation, indexes, offered)


def has_covering_index(state: QueryState) -> bool:
    """Return whether a relation that may be read through indexes has one. Asks the catalog and nothing else."""
    for key in state.sites:
        with suppress(RelationRefused):
            if _is_covered(state.opened(key), state.session.limits.index_namespace):
                return True
    return False


def _is_covered(relation: IcebergRelation, namespace: str | None) -> bool:
    table, catalog = relation.table, relation.table.catalog
    *own, name = table.name()
    levels = levels_of(namespace) if namespace else tuple(own)
    listed = (
        identifier for identifier in catalog.list_tables(levels) if identifier[-1].startswith(index_table_prefix(name))
    )
    tables = (load_index_table(catalog, identifier) for identifier in listed)
    return any(
        index_table is not None and stored_type(index_table.properties).traits.is_bucketed for index_table in tables
    )


def covering_indexes(relation: IcebergRelation, namespace: str | None) -> list[FoundIndex]:
    """The covering indexes of a relation; ``namespace``: of index tables, None: that of the table."""
    if relation.hint.is_none or not _is_covered(relation, namespace):
        return []
    table, catalog = relation.table, relation.table.catalog
    files = known_file_set(table, relation.snapshot_id)
    indexes, _ = find_indexes(catalog, table.name(), files, namespace)
    chosen = relation.hint.chosen(table.name()[-1], (index.name for index in indexes))
    return [
        index
        for index in indexes
        if index.index.definition.type.traits.is_bucketed and (index.name in chosen or not chosen)
    ]


def _offers_of(candidates: Sequence[Candidate]) -> Iterator[CoveringOffer]:
    return (offer for candidate in candidates for offer in candidate.offers)


def _fit(first: CoveringOffer, other: CoveringOffer) -> bool:
    """Return whether two offers are for the two sides of one join, with the same buckets."""
    is_other_side = first.joined.join == other.joined.join and first.joined.side != other.joined.side
    places = [[(equality.slot, equality.path) for _, equality in offer.keys] for offer in (first, other)]
    return is_other_side and first.buckets == other.buckets and places[0] == places[1]
