"""Names of a merge that differ from those of columns in case only, where case does not count.

Called by the merge run once it knows the columns of both sides. What it returns is exact, so whoever comes after it has
exact names only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from skipstone_core.contract.columns import MatchNames
from skipstone_core.contract.requests import ColumnMapping, MergeClause, MergeKey, MergeTask
from skipstone_core.errors import BadSpec
from skipstone_core.language.operands import ColumnRef
from skipstone_core.language.parser import rename_columns
from skipstone_core.language.paths import join_path, split_path
from skipstone_core.merging.clauses import MergeColumn
from skipstone_core.reasons import Reason

Rename = Callable[[str], str]


def with_exact_names(task: MergeTask, target: Sequence[MergeColumn], source: Sequence[str]) -> MergeTask:
    """``task`` with the names that columns have; of fields within columns of the source only the column's.

    Each table column without a source column of its name gets the one that differs in case only, by the mapping.
    Raises BadSpec for a name that several columns may mean. ``source``: the names of its columns.
    """
    if task.source.match_names is not MatchNames.IGNORE_CASE:
        return task
    there, here = _renamer("table", [column.name for column in target]), _source_renamer(source)

    def of_either(column: ColumnRef) -> ColumnRef:
        return ColumnRef(column.side, there(column.name) if column.side == "target" else here(column.name))

    def clauses(listed: Iterable[MergeClause]) -> tuple[MergeClause, ...]:
        return tuple(_clause(clause, there, of_either) for clause in listed)

    pairs = [ColumnMapping(column=there(pair.column), from_=here(pair.from_)) for pair in task.source.mapping]
    mapping = (*pairs, *_likened(target, source, pairs))
    columns = tuple(replace(column, name=here(column.name)) for column in task.source.columns)
    return replace(
        task,
        source=replace(task.source, mapping=mapping, columns=columns),
        keys=tuple(MergeKey(target=there(key.target), source=here(key.source)) for key in task.keys),
        when_matched=clauses(task.when_matched),
        when_not_matched=clauses(task.when_not_matched),
        when_not_matched_by_source=clauses(task.when_not_matched_by_source),
        sequence_by=task.sequence_by and here(task.sequence_by),
        target_sequence=task.target_sequence and there(task.target_sequence),
        target_where=task.target_where and rename_columns(task.target_where, of_either),
    )


def _clause(clause: MergeClause, there: Rename, of_either: Callable[[ColumnRef], ColumnRef]) -> MergeClause:
    values: Mapping[str, str] | None = clause.values and {
        there(name): rename_columns(text, of_either, is_assigned=True) for name, text in clause.values.items()
    }
    return replace(clause, when=clause.when and rename_columns(clause.when, of_either), values=values)


def _likened(
    target: Sequence[MergeColumn], source: Sequence[str], pairs: Sequence[ColumnMapping]
) -> list[ColumnMapping]:
    """The table columns that a source column feeds whose name differs in case only."""
    own = {column.name for column in target}
    taken, fed = {pair.from_ for pair in pairs}, {pair.column for pair in pairs}
    free = [name for name in source if name not in own and name not in taken]
    rename = _renamer("source", free)
    missing = [column.name for column in target if not column.is_field and column.name not in {*source, *fed}]
    return [ColumnMapping(column=name, from_=rename(name)) for name in missing if rename(name) in free]


def _source_renamer(names: Sequence[str]) -> Rename:
    """Of a path it renames the column that holds the field."""
    rename = _renamer("source", names)

    def renamed(name: str) -> str:
        column = rename(name)
        if column in names:
            return column
        first, *rest = split_path(name)
        return join_path([rename(first), *rest])

    return renamed


def _renamer(side: str, names: Sequence[str]) -> Rename:
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(name.lower(), []).append(name)

    def rename(name: str) -> str:
        meant = [name] if name in names else alike.get(name.lower(), [])
        if len(meant) > 1:
            message = f"{name!r} may be {' or '.join(map(repr, meant))} of the {side}, which differ in case only"
            raise BadSpec(Reason.INVALID_SPEC, f"{message}: set it to Exact", field="spec.source.matchNames")
        return meant[0] if meant else name

    return rename
