"""Runs parts of a query first: their rows take their place, and hold the keys that narrow other parts.

Used by the rules about joins. Must not choose what runs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import cast

from skipstone_core.language import predicates as core

from skipstone.compat.catalyst import (
    EXPRESSION_UTILS,
    JOIN,
    JOIN_HINTS,
    LEFT_SEMI,
    LOCAL_RELATION,
    ONE_ROW,
    PROJECT,
    Attribute,
    Expression,
    LiteralSeq,
    LogicalPlan,
    Relation,
)
from skipstone.compat.java import NONE, Seq, java_class, scala_object, scala_seq_of, some
from skipstone.compat.pyspark import with_null_marks, with_partners
from skipstone.query.plans.analysis.catalyst import Node, descend, expression_id, output_ids
from skipstone.query.plans.analysis.literals import UUID_TYPE, held, uuid_of
from skipstone.query.plans.analysis.longlists import texts_of_rows
from skipstone.query.plans.analysis.uses import Inner, Key, is_relation, key_of, open_scope
from skipstone.query.plans.cost import IN_DRIVER
from skipstone.query.plans.joining.columns import ExpressionPlace, JoinedColumn, KeySource, Path
from skipstone.query.plans.joining.form import EarlyRows
from skipstone.query.plans.replacing.rebuild import Rebuilder, with_inner, with_plans
from skipstone.query.plans.replacing.replacement import Replacements
from skipstone.query.plans.state import QueryState, Session
from skipstone.query.plans.substitution import PlanOf, as_it_is, node_of, read, runnable, scan

logger = logging.getLogger("skipstone.query")

_NOT_STREAMING = False
_MORE_THAN_ONE = 2
_BINARY = "binary"


@dataclass(frozen=True)
class Partner:
    """A part that ran, whose keys a row must have for its own part to matter: by the ``equality`` of a join."""

    path: Path
    equality: ExpressionPlace


@dataclass(frozen=True)
class Keys:
    """Different keys, and whether null is among them besides."""

    values: tuple[core.Constant, ...]
    has_null: bool


def with_early_results(state: QueryState) -> QueryState:
    """The state of the query in which the rows of the parts that ran stand in their place."""
    jvm, facts = state.session.jvm, state.facts
    # people may name columns by the aliases of their relations
    rows = scala_object(jvm, PROJECT).apply(facts.query.handle().output(), _plan(state, ()))
    state = state.with_query(open_scope(jvm, rows))
    return replace(state, ran=tuple(key for key in facts.relations if key not in state.sites))


def run_part(state: QueryState, path: Path, partners: Sequence[Partner]) -> QueryState:
    """The state after a part ran, without rows that have none of the ``partners``' keys: its rows are in ``done``, or
    its path is in ``refused`` because they are too many.
    """
    form, most = state.form, state.session.join_rows
    keys = frozenset(key_of(leaf) for leaf in form.leaves(path) if is_relation(leaf))

    def limited(replaced: Replacements) -> LogicalPlan:
        return _limited(state, path, partners, replaced)

    state, early = _run(state, keys, limited, descend(form.plan, path).output())
    if early.count > most:
        logger.info("a side of a join has more than %d rows and is not run first", most)
        return replace(state, joins=replace(form, refused=form.refused | {path}))
    return replace(state, joins=replace(form, done={**form.done, path: early}))


def run_value(state: QueryState, subquery: Inner) -> QueryState:
    """The state after a subquery of one value ran, whose row is in the plan; in that it is not if it gave more rows."""
    form, session, scope = state.form, state.session, subquery.scope
    keys = frozenset(key_of(leaf) for part in scope.all() for leaf in part.relations) & state.sites.keys()

    def limited(replaced: Replacements) -> LogicalPlan:
        rebuilder = Rebuilder(session.jvm, keys, lambda key, java: node_of(session, replaced, key, java))
        return session.dataset(rebuilder.plan(scope)).limit(_MORE_THAN_ONE).queryExecution().analyzed()

    state, early = _run(state, keys, limited, scope.handle().output())
    if early.count >= _MORE_THAN_ONE:
        return state
    owner = with_inner(session.jvm, descend(form.plan, subquery.owner.path), subquery, early.rows)
    return replace(state, joins=replace(form, plan=with_plans(form.plan, {subquery.owner.path: owner})))


def one_row(session: Session) -> LogicalPlan:
    """A row without columns."""
    return java_class(session.jvm, ONE_ROW)()


def _run(
    state: QueryState, keys: frozenset[Key], plan_of: PlanOf, output: Seq[Attribute]
) -> tuple[QueryState, EarlyRows]:
    """The rows of a plan with these relations, and the state with what was decided on them meanwhile."""
    ready = read(state, keys)
    ready = runnable(replace(ready, replaced={**ready.replaced, **scan(ready, keys)}), plan_of)
    if ready.dataset is None:
        ready = as_it_is(ready, plan_of)
    # as Spark holds them: days of 1582 and bytes that are not text do not survive a way through Java's types
    rows, jvm = ready.runs.queryExecution().executedPlan().executeCollect(), state.session.jvm
    local, none = scala_object(jvm, LOCAL_RELATION), scala_object(jvm, NONE)
    early = EarlyRows(local.apply(output, scala_seq_of(jvm, rows), _NOT_STREAMING, none), len(rows))
    return replace(state, decisions=ready.decisions), early


# --- plans ---


def _plan(state: QueryState, path: Path, replaced: Replacements | None = None) -> LogicalPlan:
    """The plan at ``path`` with rows in place of the parts that ran, and what was ``replaced`` of relations."""
    form = state.form
    below = {done: early.rows for done, early in form.done.items() if done[: len(path)] == path}
    plans: dict[Path, LogicalPlan] = {place[len(path) :]: rows for place, rows in below.items()}
    for leaf in form.leaves(path) if replaced is not None else ():
        if is_relation(leaf) and key_of(leaf) in state.sites:
            java = cast(Relation, descend(form.plan, leaf.path))
            plans[leaf.path[len(path) :]] = node_of(state.session, replaced or {}, key_of(leaf), java)
    for place, columns in form.matched.items():
        if place[: len(path)] == path and not form.has_run(place):
            relation = plans.get(place[len(path) :]) or descend(form.plan, place)
            plans[place[len(path) :]] = reduce(lambda plan, pair: _matched(state, plan, *pair), columns, relation)
    return with_plans(descend(form.plan, path), plans)


def _limited(state: QueryState, path: Path, partners: Sequence[Partner], replaced: Replacements) -> LogicalPlan:
    plan = reduce(lambda left, partner: _with_partner(state, left, partner), partners, _plan(state, path, replaced))
    limited = state.session.dataset(plan).limit(state.session.join_rows + 1)
    if not all(_is_in_driver(leaf, replaced) for leaf in state.form.leaves(path)):
        # a limit at the end would let Spark try some tasks after the other
        limited = limited.coalesce(1)
    return limited.queryExecution().analyzed()


def _matched(state: QueryState, plan: LogicalPlan, column: JoinedColumn, source: KeySource) -> LogicalPlan:
    """The rows of a relation whose value in a joined column is a key of a part that ran."""
    session, form = state.session, state.form
    position = output_ids(column.relation).index(expression_id(column.column))
    expressions = scala_object(session.jvm, EXPRESSION_UTILS)
    own, theirs = plan.output().apply(position), form.expression(source.place)
    columns = expressions.column(own), expressions.column(theirs)
    frames = session.dataset(plan), session.dataset(form.done[source.path].rows)
    matched = with_partners(*frames, columns, session.spark, takes_null=column.takes_null)
    return matched.queryExecution().analyzed()


def _with_partner(state: QueryState, plan: LogicalPlan, partner: Partner) -> LogicalPlan:
    jvm, form = state.session.jvm, state.form
    rows, equality = form.done[partner.path].rows, form.expression(partner.equality)
    kind, hint = scala_object(jvm, LEFT_SEMI), scala_object(jvm, JOIN_HINTS).NONE()
    return scala_object(jvm, JOIN).apply(plan, rows, kind, some(jvm, equality), hint)


def _is_in_driver(leaf: Node, replaced: Replacements) -> bool:
    """Return whether the rows of a leaf are in the driver's memory."""
    return leaf.name in IN_DRIVER or (
        is_relation(leaf) and key_of(leaf) in replaced and replaced[key_of(leaf)].is_local
    )


# --- keys ---


def keys_of(session: Session, rows: LogicalPlan, expression: Expression, kind: str) -> Keys | None:
    """The values of an ``expression`` on some rows, for a column of a ``kind`` of literals; None when Python has no
    form of some.
    """
    jvm = session.jvm
    column = scala_object(jvm, EXPRESSION_UTILS).column(expression)
    execution = with_null_marks(
        session.dataset(rows), session.spark, column, in_digits=kind == _BINARY
    ).queryExecution()
    literals = cast(LiteralSeq, scala_seq_of(jvm, execution.executedPlan().executeCollect()))
    texts = texts_of_rows(jvm, literals, execution.analyzed().schema())
    values = [held(text, kind) for is_null, text in texts if is_null == "false" and _may_be(text, kind)]
    known = tuple(value for value in values if value is not None)
    has_null = any(is_null == "true" for is_null, _ in texts)
    return Keys(known, has_null) if len(known) == len(values) else None


def _may_be(text: str, kind: str) -> bool:
    """Return whether a value may be one of the column: Spark shows UUIDs in one form only."""
    return kind != UUID_TYPE or uuid_of(text) is not None
