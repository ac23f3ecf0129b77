"""Tells at once when nothing can be gained: when no relation has an index, or a bloom filter, that a query could use.

Called by ``rewriting`` before it looks any closer. Says so only when that is certain; whatever is unclear, or fails, is
left to the closer look. Must not judge conditions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from skipstone.indexes.found import first_fields
from skipstone.query.plans.analysis.catalyst import COLUMN, Node, column_ids, expression_id, is_tree, read_tree
from skipstone.query.plans.analysis.relations import OpenTable, QueryTables, RelationRefused
from skipstone.query.plans.analysis.uses import RELATION, Key, Scope
from skipstone.query.plans.explanation import RelationExplanation
from skipstone.query.plans.guarding.conditioned import keeps_ids
from skipstone.query.plans.planning import Site, first_line
from skipstone.query.plans.refusals import Refusal
from skipstone.tables.shaping.writeproperties import bloom_filters_of

logger = logging.getLogger("skipstone.query")

#: Nodes that give out columns as they are where a list of theirs names them.
_LISTS = frozenset({"Project", "Aggregate"})


@dataclass(frozen=True)
class Prospects:
    """What a query's indexes could do at most. ``namespace``: of index tables that are not beside their table."""

    tables: QueryTables
    query: Scope
    namespace: str | None

    def hopeless(self, sites: Mapping[Key, list[Site]]) -> dict[Key, RelationExplanation] | None:
        """Why each relation is read as Spark reads it; None when an index may narrow one, or nobody knows."""
        found: dict[Key, RelationExplanation] = {}
        try:
            for key, (site, *_) in sites.items():
                why = self._why(key, site)
                if why is None:
                    return None
                found[key] = why
        except Exception as error:  # noqa: BLE001 - a closer look says what is wrong
            logger.debug("a query is looked at closely: %s", first_line(error))
            return None
        return found

    def _why(self, key: Key, site: Site) -> RelationExplanation | None:
        name = str(site.java.table().name())
        try:
            opened = self.tables.open(key, site.java)
        except RelationRefused as refused:
            return RelationExplanation(name, refused.refusal, refused.detail)
        if bloom_filters_of(opened.table):
            return None
        firsts = first_fields(opened.table.catalog, opened.table, self.namespace)
        if not firsts:
            return RelationExplanation(name, Refusal.NO_INDEX)
        columns = _names(opened, firsts)
        return None if self._may_serve(site, columns) else RelationExplanation(name, Refusal.INDEX_NOT_USED)

    def _may_serve(self, site: Site, columns: frozenset[str]) -> bool:
        named = _named_ids(self.query)
        outputs = (read_tree(tree) for tree in site.node.fields["output"])
        return named is None or any(
            expression_id(one) in named for one in outputs if str(one.fields["name"]) in columns
        )


def _names(opened: OpenTable, fields: frozenset[int]) -> frozenset[str]:
    """What the columns with these ids are called in any schema of the table."""
    schemas = opened.table.metadata.schemas
    return frozenset(field.name for schema in schemas for field in schema.fields if field.field_id in fields)


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
            yield [one for one in value if not _is_column(one)]
        else:
            yield value


def _is_column(value: object) -> bool:
    return is_tree(value) and read_tree(value).name == COLUMN  # type: ignore[arg-type]
