"""Re-validation: every rule of the schemas again, and what CEL cannot afford.

Called by reconcilers before anything starts, since admission is no boundary for objects older than a rule.
Pure. The podTemplate is judged where pods are built.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from skipstone_core.errors import BadSpec
from skipstone_core.language.parser import parse_predicate
from skipstone_core.language.predicates import SIDES
from skipstone_core.merging.clauses import MATCHED, NOT_MATCHED, NOT_MATCHED_BY_SOURCE, Role, check_assigned
from skipstone_core.reasons import Reason
from skipstone_core.table_properties import find_problems

from skipstone_operator.resources.mergejob import MergeJobSpec
from skipstone_operator.resources.mergeschedule import MergeScheduleSpec
from skipstone_operator.resources.rules.bounds import Violation, find_violations
from skipstone_operator.resources.rules.limits import CATALOG_SETTINGS
from skipstone_operator.resources.table import Column, PartitionField, TableSpec, Transform
from skipstone_operator.resources.warehouse import WarehouseSpec

_NUMBERS = ("int", "long", "decimal")
_DAYS = ("date", "timestamp", "timestamptz")
_EVERY = (*_NUMBERS, *_DAYS, "time", "string", "uuid", "binary", "fixed", "boolean", "float", "double")
#: Types (without parameters) that each transform takes.
TRANSFORM_TYPES = {
    Transform.IDENTITY: _EVERY,
    Transform.YEAR: _DAYS,
    Transform.MONTH: _DAYS,
    Transform.DAY: _DAYS,
    Transform.HOUR: ("timestamp", "timestamptz"),
    Transform.BUCKET: (*_NUMBERS, *_DAYS, "time", "string", "uuid", "binary", "fixed"),
    Transform.TRUNCATE: (*_NUMBERS, "string", "binary"),
}


@dataclass(frozen=True, kw_only=True)
class SpecProblem:
    """Why a spec cannot be used. ``message`` is one sentence that begins with the field's path."""

    reason: Reason
    field: str
    message: str


def validate_spec(kind: str, spec: Any) -> SpecProblem | None:
    """The first thing that is wrong with the typed ``spec`` of ``kind``, or None.

    Reasons are InvalidSpec and ColumnTypeUnsupported.
    """
    violation = next(find_violations(spec, "spec"), None)
    if violation is None and kind in _FURTHER:
        violation = next(_FURTHER[kind](spec), None)
    if violation is None:
        return None
    unsupported = re.fullmatch(r"spec\.(mergeTemplate\.spec\.)?(source\.)?columns\[\d+\]\.type", violation.field)
    reason = Reason.COLUMN_TYPE_UNSUPPORTED if unsupported else Reason.INVALID_SPEC
    return SpecProblem(reason=reason, field=violation.field, message=f"{violation.field}: {violation.message}")


def _table_violations(spec: TableSpec) -> Iterator[Violation]:
    yield from _case_twins(spec.columns)
    yield from _bad_decimals(spec.columns)
    types = {column.name: _base_type(column.type) for column in spec.columns}
    for position, name in enumerate(spec.primary_key):
        if types[name] in ("float", "double"):
            message = f"column {name} is a {types[name]}, which no key may be: use a decimal or leave it out"
            yield Violation(field=f"spec.primaryKey[{position}]", message=message)
    for position, field in enumerate(spec.partitioning):
        if types[field.column] not in TRANSFORM_TYPES[field.transform]:
            yield _wrong_transform(position, field, types[field.column])
    yield from _twice("partitioning", [(field.column, field.transform) for field in spec.partitioning])
    yield from _twice("sortOrder", [field.column for field in spec.sort_order])
    for problem in find_problems(spec.properties, types):
        yield Violation(field=f"spec.properties[{problem.name}]", message=problem.message)


def _case_twins(columns: Sequence[Column]) -> Iterator[Violation]:
    seen: dict[str, str] = {}
    for position, column in enumerate(columns):
        other = seen.setdefault(column.name.lower(), column.name)
        if other != column.name:
            message = f"{column.name!r} and {other!r} differ in case only, which engines confuse: rename one of them"
            yield Violation(field=f"spec.columns[{position}].name", message=message)


def _bad_decimals(columns: Sequence[Column]) -> Iterator[Violation]:
    for position, column in enumerate(columns):
        match = re.fullmatch(r"decimal\((\d+), ?(\d+)\)", column.type)
        if match and int(match[2]) > int(match[1]):
            message = f"{column.type} has more digits after the point than in all: write decimal(p,s) with s <= p"
            yield Violation(field=f"spec.columns[{position}].type", message=message)


def _base_type(name: str) -> str:
    return re.split(r"[(\[]", name)[0]


def _wrong_transform(position: int, field: PartitionField, base: str) -> Violation:
    takes = ", ".join(TRANSFORM_TYPES[field.transform])
    message = f"{field.transform} cannot be made from column {field.column} of type {base}: it takes {takes}"
    return Violation(field=f"spec.partitioning[{position}].transform", message=message)


def _twice(name: str, entries: Sequence[object]) -> Iterator[Violation]:
    for position, entry in enumerate(entries):
        if entry in entries[:position]:
            yield Violation(field=f"spec.{name}[{position}]", message="this entry is listed before: remove one of them")


def _merge_violations(spec: MergeJobSpec) -> Iterator[Violation]:
    for role, clauses in (
        (MATCHED, spec.when_matched),
        (NOT_MATCHED, spec.when_not_matched),
        (NOT_MATCHED_BY_SOURCE, spec.when_not_matched_by_source),
    ):
        for position, clause in enumerate(clauses):
            yield from _bad_clause(role, clause, f"spec.{role.name}[{position}]")
    if spec.target_where is not None:
        yield from _bad_predicate(spec.target_where, "spec.targetWhere", SIDES)


def _schedule_violations(spec: MergeScheduleSpec) -> Iterator[Violation]:
    for violation in _merge_violations(spec.merge_template.spec):
        yield replace(violation, field=violation.field.replace("spec.", "spec.mergeTemplate.spec.", 1))


def _bad_clause(role: Role, clause: Any, path: str) -> Iterator[Violation]:
    if clause.when is not None:
        yield from _bad_predicate(clause.when, f"{path}.when", role.sides)
    for column, text in (getattr(clause, role.assigned) or {}).items():
        try:
            check_assigned(text, role)
        except BadSpec as error:
            yield Violation(field=f"{path}.{role.assigned}.{column}", message=str(error))


def _bad_predicate(text: str, field: str, sides: tuple[str, ...]) -> Iterator[Violation]:
    try:
        predicate = parse_predicate(text)
    except BadSpec as error:
        yield Violation(field=field, message=str(error))
        return
    for column in sorted((candidate for candidate in predicate.columns if candidate.side not in sides), key=str):
        first, _, rest = column.name.partition(".")
        name = rest if not column.side and rest and first.lower() in SIDES else column.name
        written = " or ".join(f"{side}.{name}" for side in sides)
        yield Violation(field=field, message=f"column {column} must be written as {written}")


def _warehouse_violations(spec: WarehouseSpec) -> Iterator[Violation]:
    for name, value in spec.catalog.properties.items():
        if message := CATALOG_SETTINGS[name](value):
            yield Violation(field=f"spec.catalog.properties[{name}]", message=message)


_FURTHER: Mapping[str, Callable[[Any], Iterator[Violation]]] = {
    "Warehouse": _warehouse_violations,
    "Table": _table_violations,
    "MergeJob": _merge_violations,
    "MergeSchedule": _schedule_violations,
}
