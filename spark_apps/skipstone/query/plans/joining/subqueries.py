"""Which subqueries become joins, as Spark's optimizer makes them.

Used by ``choosing``. Must not change a plan.
"""

from __future__ import annotations

from collections.abc import Iterable

from skipstone.query.plans.analysis.uses import Inner

#: Plans inside expressions that are true or false (or null), nodes that may have them, and expressions above them.
_PREDICATES = frozenset({"Exists", "ListQuery"})
_OWNERS = frozenset({"Filter", "Join", "Project"})
_LOGIC = frozenset({"Alias", "And", "InSubquery", "Not", "Or"})


def become_joins(subqueries: Iterable[Inner]) -> bool:
    """Whether ``normalize.with_joins_of_subqueries`` makes of subqueries, nested ones too, what Spark makes of them.

    Where a condition is more than ``and``, ``or`` and ``not``, other rules of Spark's may change what an ``in`` that is
    null means before it becomes a join.
    """
    return all(_becomes_join(one) and become_joins(one.scope.inner) for one in subqueries)


def depth(subqueries: Iterable[Inner]) -> int:
    """How deep subqueries are nested."""
    return max((1 + depth(one.scope.inner) for one in subqueries), default=0)


def _becomes_join(subquery: Inner) -> bool:
    if subquery.expression.name not in _PREDICATES:
        return True
    node, above = subquery.owner.expressions[subquery.slot], []
    for position in subquery.expression.path:
        above.append(node.name)
        node = node.children[position]
    return subquery.owner.name in _OWNERS and _LOGIC.issuperset(above)
