"""Tells at once when nothing can be gained: when no relation has an index, or a bloom filter, that a query could use.

The first rule of ``optimizer``. Says so only when that is certain; whatever is unclear is left to the closer look. Must
not judge conditions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from skipstone.indexes.found import first_fields
from skipstone.query.plans.analysis.catalyst import COLUMN, Node, column_ids, expression_id, is_tree, read_tree
from skipstone.query.plans.analysis.relations import OpenTable, Site
from skipstone.query.plans.analysis.uses import RELATION, Key, Scope
from skipstone.query.plans.cost import QueryCost
from skipstone.query.plans.explanation import RelationExplanation
from skipstone.query.plans.guarding.conditioned import keeps_ids
from skipstone.query.plans.leaving.facts import CatalogTable, known_fields, note_fields, read_facts
from skipstone.query.plans.refusals import Refusal, RelationRefused
from skipstone.query.plans.replacing.choice import ReadLimits
from skipstone.query.plans.state import Decision, QueryState, name_of

#: Nodes that give out columns as they are where a list of theirs names them.
_LISTS = frozenset({"Project", "Aggregate"})


class NoIndexApplies:
    """Ends planning at once if no table has an index or a bloom filter that the query could use."""

    @staticmethod
    def apply(state: QueryState, _: QueryCost) -> QueryState:
        """The state without relations to plan, and with a reason for each; as it was if an index may serve one."""
        if not state.sites or state.facts.in_full:
            return state
        decisions: dict[Key, Decision] = {}
        for key, (site, *_others) in state.sites.items():
            reason = _reason(state, key, site)
            if reason is None:
                return state
            decisions[key] = reason
        return replace(state.with_decisions(decisions), sites={})


def _reason(state: QueryState, key: Key, site: Site) -> RelationExplanation | None:
    """Why a relation is read as Spark reads it; None when an index may narrow it."""
    name, tables = name_of(state.decisions[key]), state.facts.tables
    try:
        opened = tables.open(key, site.java)
        facts = read_facts(opened.table, tables.snapshot_id(key, site.java))
    except RelationRefused as refused:
        return RelationExplanation(name, refused.refusal, refused.detail)
    if facts.has_filters:
        return None
    firsts = _first_fields(state.session.limits, opened)
    if not firsts:
        return RelationExplanation(name, Refusal.NO_INDEX)
    columns = facts.names(firsts)
    return None if _may_serve(state.query, site, columns) else RelationExplanation(name, Refusal.INDEX_NOT_USED)


def _first_fields(limits: ReadLimits, opened: OpenTable) -> frozenset[int]:
    """Ids of the columns that indexes of a table begin with, as the catalog said not long ago."""
    table = opened.table
    name = CatalogTable(opened.catalog, opened.name, str(table.metadata.table_uuid), limits.index_namespace)
    fields = known_fields(name, limits.remembers)
    if fields is None:
        fields = first_fields(table.catalog, table, limits.index_namespace)
        note_fields(name, fields)
    return fields


def _may_serve(query: Scope, site: Site, columns: frozenset[str]) -> bool:
    named = _named_ids(query)
    outputs = (read_tree(tree) for tree in site.node.fields["output"])
    return named is None or any(
        expression_id(column) in named for column in outputs if str(column.fields["name"]) in columns
    )


def _named_ids(query: Scope) -> frozenset[int] | None:
    """Ids of the columns that expressions name, except where the query gives them out; None where ids tell nothing."""
    if not keeps_ids(query):
        return None
    own = (value for node in query.tree.walk() for value in _values(node))
    inner = (
        value
        for scope in query.all()
        if scope is not query
        for node in scope.tree.walk()
        if node.name != RELATION
        for value in node.fields.values()
    )
    return frozenset(number for values in (own, inner) for value in values for number in column_ids(value))


def _values(node: Node) -> Iterator[object]:
    """The fields of a node of the query itself, without columns that it gives out as they are."""
    if node.name == RELATION:
        return
    for value in node.fields.values():
        if node.name in _LISTS and isinstance(value, list):
            yield [tree for tree in value if not _is_column(tree)]
        else:
            yield value


def _is_column(value: object) -> bool:
    return is_tree(value) and read_tree(value).name == COLUMN  # type: ignore[arg-type]
