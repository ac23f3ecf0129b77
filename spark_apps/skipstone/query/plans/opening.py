"""Opens a query to be planned: as it will run, with its relations and what is known of them before any rule.

Called by ``optimizer``. Raises RelationRefused when such queries are never rewritten. Must not plan reads.
"""

from __future__ import annotations

from skipstone.compat.catalyst import LogicalPlan, QueryExecution
from skipstone.query.plans.analysis.normalize import with_fixed_time, with_inlined_ctes, with_needed_columns
from skipstone.query.plans.analysis.relations import QueryTables, sites_of
from skipstone.query.plans.analysis.uses import Scope, open_scope
from skipstone.query.plans.explanation import RelationExplanation
from skipstone.query.plans.guarding.risks import find_risks
from skipstone.query.plans.refusals import Refusal, RelationRefused
from skipstone.query.plans.state import QueryFacts, QueryState, Session

RECURSIVE = frozenset({"UnionLoop", "UnionLoopRef"})
#: The expression that numbers rows with gaps.
_NUMBERS = "MonotonicallyIncreasingID"


def open_query(
    session: Session, analyzed: LogicalPlan, execution: QueryExecution | None, *, in_full: bool
) -> QueryState:
    """The state of an analyzed plan, of which Spark has run the commands, before the first rule.

    ``execution``: what runs it as it is, and knows what Spark's cache answers; None: nothing is cached. ``in_full``:
    relations are explained even if no index can serve them. Raises RelationRefused.
    """
    query, tables = _opened(session, analyzed), QueryTables(session.jvm)
    sites = sites_of(session.jvm, query)
    names = {key: tables.name(key, site.java) for key, (site, *_) in sites.items()}
    is_recursive = bool(_names(query) & RECURSIVE)
    refusal = Refusal.RECURSIVE if is_recursive else Refusal.NOT_PLANNED
    risks = find_risks(tables, query, sites)
    decisions = {key: RelationExplanation(name, refusal) for key, name in names.items()}
    facts = QueryFacts(session, tables, analyzed, execution, query, sites, risks, is_recursive, in_full)
    return QueryState(facts, query, {} if is_recursive else sites, decisions=decisions)


def _opened(session: Session, analyzed: LogicalPlan) -> Scope:
    """The query as it will run: common table expressions inlined, the current time fixed, long lists as sets."""
    if analyzed.isStreaming():
        raise RelationRefused(Refusal.STREAMING)
    jvm, fixed = session.jvm, with_fixed_time(session.jvm, analyzed)

    def opened(plan: LogicalPlan) -> Scope:
        # Spark finds what is cached by the plan that it was cached with
        return open_scope(jvm, plan, may_change=lambda: session.is_nothing_cached)

    query = opened(analyzed if fixed.fastEquals(analyzed) else fixed)
    names, numbers_rows = _names(query), _numbers_rows(query)
    if "CommandResult" in names:
        raise RelationRefused(Refusal.COMMAND)
    if query.tree.name == "LocalRelation":
        raise RelationRefused(Refusal.LOCAL_ROWS)
    if names & RECURSIVE:  # as Spark's own rules inline and fold it
        return query
    if not (numbers_rows or "WithCTE" in names) or not any(scope.relations for scope in query.all()):
        return query
    final = with_inlined_ctes(jvm, fixed) if "WithCTE" in names else fixed
    return opened(with_needed_columns(jvm, final) if numbers_rows else final)


def _names(query: Scope) -> frozenset[str]:
    """The names of all nodes."""
    return frozenset(node.name for scope in query.all() for node in scope.tree.walk())


def _numbers_rows(query: Scope) -> bool:
    """Return whether rows are numbered by their place, as those of all frames of pandas on Spark are."""
    nodes = (node for scope in query.all() for node in scope.tree.walk())
    return any(
        node.name == "AttachDistributedSequence" or (node.name == "Project" and _NUMBERS in str(node.fields))
        for node in nodes
    )
