"""Which names of a merge may be fields within columns of its source, so that only these are looked for in files.

Called by the merge run before it reads its source. Must not know what the source holds.
"""

from __future__ import annotations

from collections.abc import Iterator

from skipstone_core.contract.requests import MergeTask
from skipstone_core.language.expressions import columns_of
from skipstone_core.language.operands import DefaultValue
from skipstone_core.language.parser import Assigned, parse_predicate
from skipstone_core.language.paths import is_path
from skipstone_core.language.predicates import ColumnRef, Constant
from skipstone_core.merging.clauses import MATCHED, NOT_MATCHED, check_assigned


def named_fields(task: MergeTask) -> dict[str, str]:
    """Names that are paths, such as ``after.id``, with the field of the resource that names each first.

    Raises BadSpec for clauses that do not parse.
    """
    fields: dict[str, str] = {}
    for name, where in _named(task):
        if is_path(name):
            fields.setdefault(name, where)
    return fields


def _named(task: MergeTask) -> Iterator[tuple[str, str]]:
    yield from ((key.source, f"spec.keys[{i}]") for i, key in enumerate(task.keys))
    if task.sequence_by is not None:
        yield task.sequence_by, "spec.sequenceBy"
    yield from ((pair.from_, f"spec.source.mapping[{i}]") for i, pair in enumerate(task.source.mapping))
    for role, clauses in ((MATCHED, task.when_matched), (NOT_MATCHED, task.when_not_matched)):
        for i, clause in enumerate(clauses):
            path = f"spec.{role.name}[{i}]"
            if clause.when is not None:
                columns = parse_predicate(clause.when, field=f"{path}.when").columns
                yield from sorted((column.name, f"{path}.when") for column in columns if column.side == "source")
            for target, text in (clause.values or {}).items():
                where = f"{path}.{role.assigned}.{target}"
                value = check_assigned(text, role, where)
                yield from ((column.name, where) for column in _columns(value) if column.side == "source")
    if task.target_where is not None:
        columns = parse_predicate(task.target_where, field="spec.targetWhere").columns
        yield from sorted((column.name, "spec.targetWhere") for column in columns if column.side == "source")
    yield from ((column.name, "spec.source.columns") for column in task.source.columns)


def _columns(value: Assigned) -> Iterator[ColumnRef]:
    if isinstance(value, ColumnRef):
        yield value
    elif value is not None and not isinstance(value, Constant | DefaultValue):
        yield from columns_of(value)
