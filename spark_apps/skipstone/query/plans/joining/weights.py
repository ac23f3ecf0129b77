"""What parts of a query cost to read, and what keys could save of its relations.

Used by ``choosing``. Must not run anything on Spark.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from skipstone_core.indexing.use import FEW_KEYS, ReadCost
from skipstone_core.language import predicates as core

from skipstone.compat.catalyst import LogicalPlan
from skipstone.query.costs import KeyedFiles, plan_keys, planned_cost, whole_cost
from skipstone.query.plans.analysis.catalyst import Node, descend, expression_id
from skipstone.query.plans.analysis.demands import find_used
from skipstone.query.plans.analysis.literals import column_kind
from skipstone.query.plans.analysis.relations import RelationRefused
from skipstone.query.plans.analysis.uses import RELATION, Key, Scope, key_of
from skipstone.query.plans.joining.sides import is_relation
from skipstone.query.plans.planning import RelationPlans, first_line
from skipstone.query.reading import probable_rows

logger = logging.getLogger("skipstone.query")

#: Leaves that are in the driver's memory already.
_HERE = frozenset({"LocalRelation", "OneRowRelation", "Range"})
_NOTHING = ReadCost()
#: Nodes and functions of queries that Iceberg answers from its metadata.
_IN_METADATA = frozenset(
    {
        "Aggregate",
        "AggregateExpression",
        "Alias",
        "AttributeReference",
        "Max",
        "Min",
        "Project",
        "SubqueryAlias",
        RELATION,
    }
)
#: Bytes or rows of what nobody knows anything of.
_UNKNOWN = 1 << 60


@dataclass(frozen=True, eq=False)
class Weights:
    """Weighs relations as they are planned by now."""

    relations: RelationPlans
    _keyed: dict[Key, KeyedFiles | None] = field(default_factory=dict)
    _few: dict[Key, bool] = field(default_factory=dict)

    def savings(self, key: Key) -> ReadCost:
        """What keys could save of a relation at most."""
        keyed = self._keyed_files(key)
        if keyed is None:
            return _NOTHING
        plan = self.relations.judged[key].plan
        return keyed.savings(self._used(key), plan)

    def kind(self, key: Key, column: Node) -> str:
        """The kind of literals of a column whose keys can be looked up; empty for another one."""
        keyed = self._keyed_files(key)
        is_served = keyed is not None and self.name(key, expression_id(column)) in keyed.served
        return self.kind_of_values(key, column) if is_served else ""

    def kind_of_values(self, key: Key, column: Node) -> str:
        """The kind of literals of a column of an opened relation; empty where Spark shows its values otherwise."""
        found = self.relations.opened(key).columns.get(expression_id(column))
        return column_kind(str(column.fields["dataType"]), found[1]) if found else ""

    def is_partitioned(self, key: Key) -> bool:
        """Whether files of a relation are, or were, partitioned."""
        if self._keyed_files(key) is None:
            return False
        return any(spec.fields for spec in self.relations.opened(key).table.specs().values())

    def name(self, key: Key, column: int) -> str:
        """The name of a column of an opened relation, by its id; empty for columns of metadata."""
        return self.relations.opened(key).columns.get(column, ("", ""))[0]

    def cost(self, plan: LogicalPlan, leaves: Iterable[Node]) -> ReadCost:
        """What reading some leaves of a plan costs."""
        return sum((self._cost(plan, leaf) for leaf in leaves), _NOTHING)

    def cost_of_value(self, scope: Scope) -> ReadCost:
        """What a subquery of one value costs; the least and the greatest value are in Iceberg's metadata."""
        if _IN_METADATA.issuperset(_names(scope.tree)) and not scope.inner:
            return ReadCost(files=1)
        costs = (self.cost(one.handle(), _leaves(one.tree)) for one in scope.all())
        return sum(costs, _NOTHING)

    def _cost(self, plan: LogicalPlan, leaf: Node) -> ReadCost:
        if leaf.name in _HERE:
            return _NOTHING
        if not is_relation(leaf) or key_of(leaf) not in self.relations.sites:
            return ReadCost(1, int(descend(plan, leaf.path).stats().sizeInBytes()))
        key = key_of(leaf)
        planned = self.relations.judged[key].plan
        if planned is not None:
            return planned_cost(planned, self._used(key))
        keyed = self._keyed_files(key)
        return ReadCost(1, _UNKNOWN) if keyed is None else whole_cost(keyed.files, self._used(key))

    def rows(self, leaves: Iterable[Node]) -> int:
        """How many rows some leaves have together, where that is known."""
        return sum(self._rows(leaf) for leaf in leaves)

    def are_more(self, leaf: Node, rows: int, conditions: int) -> bool:
        """Whether a leaf is known to give more ``rows``. ``conditions``: how many are above it in the query."""
        if not is_relation(leaf) or key_of(leaf) not in self.relations.sites:
            return False
        plan = self.relations.judged[key_of(leaf)].plan
        if conditions:
            is_all = plan is not None and plan.predicate is not None and conditions <= _narrowing(plan.predicate.root)
            return is_all and plan is not None and plan.at_least > rows
        keyed = self._keyed_files(key_of(leaf))
        return keyed is not None and not keyed.files.delete_files and self._rows(leaf) > rows

    def gives_few(self, leaf: Node) -> bool:
        """Whether a look at some rows of a relation says that few of them fulfil the conditions that narrow it."""
        if not is_relation(leaf) or key_of(leaf) not in self.relations.sites:
            return False
        key = key_of(leaf)
        plan = self.relations.judged[key].plan
        if plan is None:
            return False
        if key not in self._few:
            try:
                rows = probable_rows(self.relations.opened(key).table, plan)
            except Exception as error:  # noqa: BLE001 - what cannot be read here is told by whoever has to
                logger.debug("no rows of a relation are looked at: %s", first_line(error))
                rows = None
            self._few[key] = rows is not None and rows <= FEW_KEYS
        return self._few[key]

    def _rows(self, leaf: Node) -> int:
        keyed = self._keyed_files(key_of(leaf)) if is_relation(leaf) else None
        return _UNKNOWN if keyed is None else int(keyed.files.files["records"].to_numpy().sum())

    def _used(self, key: Key) -> frozenset[str] | None:
        return find_used(self.relations.opened(key), self.relations.uses[key])

    def _keyed_files(self, key: Key) -> KeyedFiles | None:
        """The files of a relation; None when it is read as Spark reads it whatever is known of it."""
        if key not in self.relations.sites:
            return None
        if key not in self._keyed:
            try:
                relation = self.relations.opened(key)
                self._keyed[key] = plan_keys(relation.table, self.relations.options(relation))
            except RelationRefused:
                self._keyed[key] = None
            except Exception as error:  # noqa: BLE001 - a join can always run as Spark runs it
                logger.warning("no keys narrow a relation: %s", first_line(error))
                self._keyed[key] = None
        return self._keyed[key]


def _narrowing(root: core.Node) -> int:
    """How many conditions a predicate has that leave out more rows than those with nulls."""
    parts = root.parts if isinstance(root, core.And) else (root,)
    return sum(not (isinstance(part, core.Not) and isinstance(part.inner, core.IsNull)) for part in parts)


def _leaves(tree: Node) -> Iterable[Node]:
    return (node for node in tree.walk() if not node.children)


def _names(tree: Node) -> Iterable[str]:
    """Names of the nodes of a plan and of their expressions."""
    for node in tree.walk():
        yield node.name
        for expression in node.expressions.values():
            yield from (one.name for one in expression.walk())
