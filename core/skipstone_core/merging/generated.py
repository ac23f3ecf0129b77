"""Columns that the source database generates and its change feed leaves out: what computes them, bound to the table.

Called when a feed is read. Every refusal is one sentence that names the field. Must not know rows or files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import tzinfo

from skipstone_core.contract.requests import MergeTask
from skipstone_core.errors import BadSpec
from skipstone_core.merging.clauses import BoundClause, MergeColumn, Role, Sides, bind_values
from skipstone_core.reasons import Reason

_WHERE = "spec.source.generated"
_ROLE = Role(name="source", sides=("source",), actions=(), assigned="generated")


def bind_generated(task: MergeTask, target: Sequence[MergeColumn], zone: tzinfo) -> BoundClause | None:
    """Return what computes the generated columns of ``task`` from other columns of the same row; None without any.

    Raises BadSpec naming the field: columns that the table does not have, keys, expressions that do not parse, do not
    fit, or name another generated column.
    """
    generated = task.source.generated
    if not generated:
        return None
    if keys := [key.target for key in task.keys if key.target in generated]:
        raise _refused(keys[0], "it is a key, which changes must have themselves: remove it, or choose other keys")
    bound = bind_values(_WHERE, generated, _ROLE, Sides(target, target, (), zone))
    for column, names in inputs_of(bound).items():
        if chained := [name for name in names if name in generated]:
            message = f"it names '{chained[0]}', which is generated itself: write the expression of '{chained[0]}'"
            raise _refused(column, message)
    return bound


def inputs_of(bound: BoundClause) -> Mapping[str, Sequence[str]]:
    """Return the columns from which each generated column is computed, in the order of their names."""
    copied = {column: [origin] for column, origin in bound.values.items()}
    literals: dict[str, list[str]] = {column: [] for column in bound.literals}
    computed = {
        column: sorted({part.name for part in expression.columns}) for column, expression in bound.expressions.items()
    }
    return {**copied, **literals, **computed}


def left_out(bound: BoundClause) -> frozenset[str]:
    """Return the generated columns that are null in every row."""
    return frozenset(column for column, value in bound.literals.items() if value is None)


def _refused(column: str, message: str) -> BadSpec:
    return BadSpec(Reason.INVALID_SPEC, message, field=f"{_WHERE}.{column}")
