"""Lets no rows be grouped that find no partner afterwards: Spark pushes no join below what groups rows.

A rule of ``optimizer``. By keys that are columns: an expression may fail on rows of a part that are left out before
they are joined. Must not run anything.
"""

from __future__ import annotations

from dataclasses import replace

from skipstone.query.plans.analysis.uses import ancestors, key_of
from skipstone.query.plans.cost import QueryCost
from skipstone.query.plans.joining.columns import JoinedColumn
from skipstone.query.plans.rules.early_results import with_early_results
from skipstone.query.plans.state import QueryState

#: Nodes that take much more time for a row than a join with few rows does.
_GROUPING = frozenset({"Aggregate", "Window"})


class MatchBeforeGrouping:
    """Removes rows without a join partner before they are grouped."""

    @staticmethod
    def apply(state: QueryState, _: QueryCost) -> QueryState:
        """The state of the query in which rows without a partner are left out below what groups them."""
        if state.joins is None or not state.joins.done:
            return state
        for column in (column for columns in state.joins.columns.values() for column in columns):
            state = _matched(state, column)
        return with_early_results(state) if state.form.matched else state


def _matched(state: QueryState, column: JoinedColumn) -> QueryState:
    form, key = state.form, key_of(column.relation)
    ran = [source for source in column.sources if source.path in form.done and form.is_column(source.place)]
    above = [node for node in ancestors(form.tree, column.relation) if len(node.path) > len(column.join)]
    if not ran or not any(node.name in _GROUPING for node in above) or form.is_gone(key):
        return state
    place, name = column.relation.path, column.column.fields["name"]
    matched = {**form.matched, place: (*form.matched.get(place, ()), (column, ran[0]))}
    text = f"matched by {name} before its rows are grouped: with {form.done[ran[0].path].count} rows of the other side"
    return replace(state, joins=replace(form, matched=matched)).noted(key, [text])
