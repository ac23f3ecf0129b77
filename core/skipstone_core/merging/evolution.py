"""Which source columns a merge adds to its table when it is asked to.

Called by the merge run before the plan is made. Must not know field ids or commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from skipstone_core.columntypes import OWN_PREFIX, find_name_problem, is_closed_to_spark
from skipstone_core.contract.columns import UnknownColumns
from skipstone_core.contract.requests import MergeAction, MergeClause, MergeTask
from skipstone_core.errors import BadSpec
from skipstone_core.language.parser import parse_predicate
from skipstone_core.language.predicates import ColumnRef
from skipstone_core.merging.clauses import MATCHED, NOT_MATCHED, UNKNOWN, MergeColumn, Role, check_assigned
from skipstone_core.reasons import Reason


def new_columns(
    task: MergeTask, target: Sequence[MergeColumn], source: Sequence[MergeColumn]
) -> tuple[MergeColumn, ...]:
    """The columns to add, in the source's order: those that the clauses would feed if the table had them.

    A clause that chooses columns feeds those to which it gives a source column. One that does not feeds every source
    column of its own name but those that steer the merge: keys, the sequence, columns that a ``when`` names or the
    mapping maps elsewhere.
    Raises BadSpec for a name that no table should have or that differs in case only from one of the table, and for a
    type that would close the table to Spark.
    """
    if not task.adds_columns:
        return ()
    known = {column.name for column in target}
    wanted = {name: origin for name, origin in _fed(task, source).items() if name not in known}
    kinds = {column.name: column.type for column in source}
    added = [
        MergeColumn(name=name, type=kinds[origin])
        for name, origin in wanted.items()
        if kinds.get(origin, UNKNOWN) != UNKNOWN
    ]
    refuse_closed(added, _field(task))
    refuse_names(
        (column.name for column in target if not column.is_field), [column.name for column in added], _field(task)
    )
    return tuple(added)


def _fed(task: MergeTask, source: Sequence[MergeColumn]) -> dict[str, str]:
    """Table column to source column of all clauses."""
    fed: dict[str, str] = {}
    for role, clauses in ((MATCHED, task.when_matched), (NOT_MATCHED, task.when_not_matched)):
        for i, clause in enumerate(clauses):
            if clause.action is MergeAction.DELETE:
                continue
            if clause.values:
                fed |= _chosen(role, clause, f"spec.{role.name}[{i}].{role.assigned}")
            else:
                steering = _steering(task)
                names = (column.name for column in source if not column.is_field)
                fed |= {name: name for name in names if name not in steering}
    return fed


def _chosen(role: Role, clause: MergeClause, path: str) -> dict[str, str]:
    values = {name: check_assigned(text, role, f"{path}.{name}") for name, text in (clause.values or {}).items()}
    return {name: value.name for name, value in values.items() if isinstance(value, ColumnRef)}


def _steering(task: MergeTask) -> frozenset[str]:
    names = {key.source for key in task.keys} | {mapped.from_ for mapped in task.source.mapping}
    names |= {task.sequence_by} if task.sequence_by else set()
    conditions = [clause.when for clause in (*task.when_matched, *task.when_not_matched)]
    for condition in (*conditions, task.target_where):
        if condition is not None:
            names |= {column.name for column in parse_predicate(condition).columns if column.side == "source"}
    return frozenset(names)


def _field(task: MergeTask) -> str:
    return "spec.source.unknownColumns" if task.source.unknown_columns is UnknownColumns.ADD else "spec.schemaEvolution"


def refuse_closed(added: Sequence[MergeColumn], where: str) -> None:
    """Raise BadSpec naming the field ``where`` for a column whose type would close the table to Spark."""
    for column in added:
        if is_closed_to_spark(column.type):
            message = (
                f"a new column {column.name!r} of the type {column.type} would close the table to Spark 4.1 with "
                "Iceberg 1.12: add it to the table as string or long first"
            )
            raise BadSpec(Reason.COLUMN_TYPE_UNSUPPORTED, message, field=where)


def refuse_own_names(names: Iterable[str], where: str) -> None:
    """Raise BadSpec naming the field ``where`` for a column that would be taken for one of Skipstone's own."""
    if own := next((name for name in names if name.startswith(OWN_PREFIX)), None):
        message = f"column {own!r} has a name that Skipstone keeps for columns of its own: rename the column"
        raise BadSpec(Reason.INVALID_SPEC, message, field=where)


def refuse_names(known: Iterable[str], added: Sequence[str], where: str) -> None:
    """Raise BadSpec naming the field ``where`` for a name that no table should get beside its ``known`` columns.

    It is reserved, or differs in case only from another one.
    """
    for name in added:
        if problem := find_name_problem(name):
            message = f"a new column {name!r} {problem}: rename it in the source, or let this job add no columns"
            raise BadSpec(Reason.INVALID_SPEC, message, field=where)
    seen: dict[str, str] = {}
    for name in (*known, *added):
        other = seen.setdefault(name.lower(), name)
        if other != name:
            message = f"{name!r} would differ from column {other!r} in case only, which engines confuse: map it"
            raise BadSpec(Reason.INVALID_SPEC, message, field=where)
