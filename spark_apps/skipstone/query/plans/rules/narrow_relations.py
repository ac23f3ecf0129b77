"""Plans the read of each relation by what the query asks of it: the files, or why it is read as Spark reads it.

A rule of ``optimizer``; rules about joins use it for relations of which they learn more. Each relation is judged by
itself; what is refused, or fails, stays as it was. Must not change a plan of Spark's.
"""

from __future__ import annotations

from dataclasses import replace

from skipstone.query.plans.analysis.demands import find_predicate, find_used
from skipstone.query.plans.analysis.uses import Key, uses_of
from skipstone.query.plans.cost import QueryCost
from skipstone.query.plans.explanation import RelationExplanation
from skipstone.query.plans.fallback import or_else
from skipstone.query.plans.joining.form import Known
from skipstone.query.plans.refusals import Refusal, RelationRefused
from skipstone.query.plans.replacing.choice import Demand, choose_reading
from skipstone.query.plans.replacing.driver import driver_columns
from skipstone.query.plans.state import Decision, Planned, PlanRefused, QueryState, name_of


class NarrowRelations:
    """Chooses the files of each table by the conditions of the query."""

    @staticmethod
    def apply(state: QueryState, _: QueryCost) -> QueryState:
        """The state with a decision on each relation."""
        if not state.sites:
            return state
        uses = state.uses or uses_of(state.session.jvm, state.query)
        state = replace(state, uses={key: uses[key] for key in state.sites})
        return state.with_decisions({key: _decision(state, key, ()) for key in state.sites})


def narrowed(state: QueryState, key: Key, known: tuple[Known, ...]) -> QueryState:
    """The state with a new decision on a relation of which more is ``known``."""
    return state.with_decisions({key: _decision(state, key, known)})


def _decision(state: QueryState, key: Key, known: tuple[Known, ...]) -> Decision:
    name = name_of(state.decisions[key])

    def unless_refused() -> Decision:
        try:
            return _plan(state, key, known)
        except PlanRefused as refused:
            return RelationExplanation(name, refused.refusal, refused.detail, refused.plan)
        except RelationRefused as refused:
            return RelationExplanation(name, refused.refusal, refused.detail)

    def failed(text: str) -> Decision:
        return RelationExplanation(name, Refusal.FAILED, text)

    return or_else(unless_refused, failed, f"{Refusal.FAILED.value}: {name} is read without indexes")


def _plan(state: QueryState, key: Key, known: tuple[Known, ...]) -> Planned:
    uses, site = state.uses[key], state.sites[key][0]
    state.facts.require_stable(key, state.sites[key])
    if not known and (unconditional := [use for use in uses if use.condition is None]):
        raise RelationRefused(unconditional[0].refusal)
    relation = state.opened(key)
    if relation.hint.is_none:
        raise RelationRefused(Refusal.HINTED)
    predicate = find_predicate(relation, uses, [fact.condition for fact in known])
    columns = driver_columns(state.session.jvm, site.java, relation.schema, find_used(relation, uses))
    demand = Demand(relation, predicate, columns, state.session.limits, state.facts.only_rows)
    planned = Planned(demand, choose_reading(demand), len(uses) > 1, known)
    plan, is_narrowing = planned.plan, planned.plan.funnel.read < planned.files_of_spark
    if not plan.indexes and not known and not (plan.filters and plan.filters.dropped):
        raise PlanRefused(Refusal.NO_INDEX, plan)
    if not is_narrowing and not any(use.used for use in plan.indexes):
        raise PlanRefused(Refusal.INDEX_NOT_USED if plan.indexes else Refusal.NO_INDEX, plan)
    if not is_narrowing and planned.reading.driver is None:
        raise PlanRefused(Refusal.NOT_NARROWING, plan)
    return planned
