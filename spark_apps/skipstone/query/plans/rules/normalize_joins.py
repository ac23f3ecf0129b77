"""Brings a query into its form as joins, in which small sides and covering indexes are looked for.

A rule of ``optimizer``. Must not run anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from skipstone.query.plans.analysis.layouts import has_joins
from skipstone.query.plans.analysis.longlists import with_sets
from skipstone.query.plans.analysis.normalize import normalized, with_joins_of_subqueries
from skipstone.query.plans.analysis.uses import Inner, Scope, open_scope, uses_of_normalized
from skipstone.query.plans.cost import QueryCost
from skipstone.query.plans.joining.form import join_form
from skipstone.query.plans.opening import RECURSIVE
from skipstone.query.plans.state import QueryState

#: Nodes that see how often, or for which rows of another plan, what is below them runs.
_BOUND = frozenset({"CollectMetrics", "LateralJoin", "Sample", *RECURSIVE})
#: Plans inside expressions that are true or false (or null), nodes that may have them, and expressions above them.
_PREDICATES = frozenset({"Exists", "ListQuery"})
_OWNERS = frozenset({"Filter", "Join", "Project"})
_LOGIC = frozenset({"Alias", "And", "InSubquery", "Not", "Or"})


class NormalizeJoins:
    """Brings the query into a form in which small sides of joins are found; without it, no side runs first."""

    @staticmethod
    def apply(state: QueryState, _: QueryCost) -> QueryState:
        """The state with that form; as it was if the query has none, or the session lets no part run first."""
        normal = as_joins(state) if state.sites and state.session.join_rows else None
        if normal is None:
            return state
        return replace(state, joins=join_form(normal), uses=uses_of_normalized(state.session.jvm, state.query, normal))


def as_joins(state: QueryState) -> Scope | None:
    """The query, normalized, with joins in place of subqueries; None when its joins stay as they are."""
    query, session = state.query, state.session
    if not has_joins(query) or not state.facts.is_nothing_cached:
        return None
    if any(node.name in _BOUND for scope in query.all() for node in scope.tree.walk()):
        return None
    plan = query.handle()
    if query.inner and _become_joins(query.inner):
        plan = with_joins_of_subqueries(session.jvm, plan, _depth(query.inner))
    plan = with_sets(session.jvm, normalized(session.jvm, plan, as_joins=True))
    return open_scope(session.jvm, plan) if plan.deterministic() else None


# --- subqueries that become joins ---


def _become_joins(subqueries: Iterable[Inner]) -> bool:
    """Return whether ``normalize.with_joins_of_subqueries`` plans subqueries, nested ones too, as Spark does.

    Where a condition is more than ``and``, ``or`` and ``not``, other rules of Spark's may change what an ``in`` that is
    null means before it becomes a join.
    """
    return all(_becomes_join(subquery) and _become_joins(subquery.scope.inner) for subquery in subqueries)


def _depth(subqueries: Iterable[Inner]) -> int:
    """How deep subqueries are nested."""
    return max((1 + _depth(subquery.scope.inner) for subquery in subqueries), default=0)


def _becomes_join(subquery: Inner) -> bool:
    if subquery.expression.name not in _PREDICATES:
        return True
    node, above = subquery.owner.expressions[subquery.slot], []
    for position in subquery.expression.path:
        above.append(node.name)
        node = node.children[position]
    return subquery.owner.name in _OWNERS and _LOGIC.issuperset(above)
