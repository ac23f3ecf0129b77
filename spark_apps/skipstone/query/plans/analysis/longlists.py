"""Long lists in plans: kept out of a plan's JSON, and fetched as one text.

Used by ``uses``. Catalyst writes the JSON of a node in a time that grows with the square of its children, and a list of
literals is a node of as many children. Spark's own rules turn such lists into sets, of which the JSON shows nothing.
Must not touch the plan that is run.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from skipstone.compat.catalyst import SCALA_BUILDER, InSet, LogicalPlan, Rule, most_leaves, rule_everywhere
from skipstone.compat.java import Jvm, java_class, text_in_pieces
from skipstone.query.plans.analysis.relations import RelationRefused
from skipstone.query.plans.refusals import Refusal

#: Leaves of an expression above which its lists are made sets.
LONG = 100
#: Leaves of an expression that no rule makes smaller; its JSON takes about a second.
MAX_LEAVES = 4_000
#: Values of a list that are looked up.
MAX_VALUES = 50_000
_RULES = (Rule.CONSTANT_FOLDING, Rule.OPTIMIZE_IN)


def with_sets(jvm: Jvm, plan: LogicalPlan) -> LogicalPlan:
    """``plan`` with sets of literals in place of long lists, in the plans of its subqueries too.

    Nodes and expressions keep their places. Raises RelationRefused when an expression stays too large.
    """
    if most_leaves(jvm, plan) <= LONG:
        return plan
    for rule in _RULES:
        plan = plan.transformDownWithSubqueries(rule_everywhere(jvm, rule))
    if most_leaves(jvm, plan) > MAX_LEAVES:
        raise RelationRefused(Refusal.LIST_TOO_LONG, f"an expression has more than {MAX_LEAVES:,} terms")
    return plan


def members(jvm: Jvm, in_set: InSet) -> Sequence[str] | None:
    """The values of a set of literals but null, as texts of what Catalyst holds; None when they are too many."""
    found = in_set.hset()
    if found.size() > MAX_VALUES:
        return None
    if found.contains(None):
        found = found.excl(None)
    if found.isEmpty():
        return ()
    # nobody can have written it into a value
    separator = secrets.token_hex(16)
    builder = java_class(jvm, SCALA_BUILDER)()
    return text_in_pieces(found.addString(builder, separator).underlying()).split(separator)
