"""What a query asks of one relation: the rows by a predicate, and the columns.

Called by ``rewriting`` with all uses of the relation. Must not plan reads.
"""

from __future__ import annotations

from skipstone_core.language import predicates as core

from skipstone.query.plans.analysis.expressions import Translator, is_narrowing, shown, why_not
from skipstone.query.plans.analysis.relations import IcebergRelation, RelationRefused
from skipstone.query.plans.analysis.uses import Use


def find_predicate(relation: IcebergRelation, uses: list[Use]) -> core.Predicate:
    """What holds for every row that some use takes. Raises RelationRefused."""
    found = [_translated(relation, use) for use in uses]
    root = core.Or(tuple(found)) if len(found) > 1 else found[0]
    return core.Predicate(root, shown(root))


def _translated(relation: IcebergRelation, use: Use) -> core.Node:
    if use.condition is None:
        raise RelationRefused(use.refusal)
    translator = Translator(relation.columns, use.hidden)
    node = translator.may_be_true(use.condition)
    if node is None or not is_narrowing(node):
        raise RelationRefused(translator.refusal or why_not(use.condition) or use.refusal)
    return node


def find_used(relation: IcebergRelation, uses: list[Use]) -> frozenset[str] | None:
    """Names of the columns that some use takes; None: maybe all."""
    found: set[str] = set()
    for use in uses:
        if use.columns is None:
            return None
        found.update(relation.columns[number][0] for number in use.columns if number in relation.columns)
    return frozenset(found)
