"""What a query asks of one relation: the rows by a predicate, and the columns.

Called by ``state`` and the rules with all uses of the relation. Must not plan reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from skipstone_core.language import predicates as core

from skipstone.query.plans.analysis.expressions import Translator, find_moments, is_narrowing, without_binary_collation
from skipstone.query.plans.analysis.relations import IcebergRelation
from skipstone.query.plans.analysis.texts import shown
from skipstone.query.plans.analysis.uses import Use
from skipstone.query.plans.refusals import RelationRefused


def find_predicate(relation: IcebergRelation, uses: list[Use], known: Sequence[core.Node] = ()) -> core.Predicate:
    """Return the condition of every row that some use takes. ``known``: another one. Raises RelationRefused."""
    parts = [*known, *_of_conditions(relation, uses, is_needed=not known)]
    flat = [conjunct for part in parts for conjunct in (part.parts if isinstance(part, core.And) else (part,))]
    root = core.And(tuple(flat)) if len(flat) > 1 else flat[0]
    return core.Predicate(root, shown(root))


def _of_conditions(relation: IcebergRelation, uses: list[Use], *, is_needed: bool) -> list[core.Node]:
    """Return the predicates of the conditions; none where they do not narrow, unless one ``is_needed``."""
    try:
        conditions = [_translated(relation, use) for use in uses]
    except RelationRefused:
        if is_needed:
            raise
        return []
    return [core.Or(tuple(conditions)) if len(conditions) > 1 else conditions[0]]


def _translated(relation: IcebergRelation, use: Use) -> core.Node:
    if use.condition is None:
        raise RelationRefused(use.refusal)
    condition = without_binary_collation(use.condition)
    translator = Translator(relation.columns, use.hidden, find_moments(condition))
    node = translator.may_be_true(condition)
    if node is None or not is_narrowing(node):
        raise RelationRefused(translator.why_not(condition) or use.refusal)
    return node


def find_used(relation: IcebergRelation, uses: list[Use]) -> frozenset[str] | None:
    """Names of the columns that some use takes; None: maybe all."""
    names: set[str] = set()
    for use in uses:
        if use.columns is None:
            return None
        names.update(relation.columns[number][0] for number in use.columns if number in relation.columns)
    return frozenset(names)
