"""A Table resource's declaration as Iceberg schema, partition spec and sort order.

Used by ``schemas``. Every refusal names the field of the resource. Must not talk to a catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pydantic import ValidationError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import DoubleType, FloatType, IcebergType, NestedField, PrimitiveType
from skipstone_core.columntypes import find_name_problem
from skipstone_core.contract.columns import PartitionFieldSpec, SortFieldSpec
from skipstone_core.contract.requests import ColumnSpec, TableTask
from skipstone_core.errors import BadSpec
from skipstone_core.reasons import Reason
from skipstone_core.table_properties import find_problems

FIRST_PARTITION_ID = 1000
KNOWN_TYPES = (
    "boolean, int, long, float, double, decimal(p,s), date, time, timestamp, timestamptz, string, uuid, fixed[n] "
    "or binary"
)
_REFUSED_TYPES = ("timestamp_ns", "timestamptz_ns", "unknown", "variant", "geometry", "geography")
_PLAIN_TRANSFORMS: dict[str, Callable[[], Transform]] = {  # type: ignore[type-arg]
    "identity": IdentityTransform,
    "year": YearTransform,
    "month": MonthTransform,
    "day": DayTransform,
    "hour": HourTransform,
    "void": VoidTransform,
}


def is_declarable(text: str) -> bool:
    """Return whether a Table can declare a column of the type called ``text``."""
    try:
        parse_type(text, "")
    except BadSpec:
        return False
    return True


def parse_type(text: str, field: str) -> IcebergType:
    """The Iceberg type called ``text``. Raises BadSpec (COLUMN_TYPE_UNSUPPORTED) naming ``field``."""
    try:
        kind = IcebergType.model_validate(text)
    except (ValidationError, ValueError):
        kind = None
    if not isinstance(kind, PrimitiveType) or text.startswith(_REFUSED_TYPES):
        message = f"type {text!r} is not known; use one of {KNOWN_TYPES}."
        raise BadSpec(Reason.COLUMN_TYPE_UNSUPPORTED, message, field=field)
    return kind


def declared_schema(task: TableTask) -> Schema:
    """The schema of ``task`` with ids in declaration order from 1; primary key columns are required.

    Raises BadSpec: INVALID_SPEC, COLUMN_TYPE_UNSUPPORTED, COLUMN_NOT_FOUND.
    """
    if not task.columns:
        raise BadSpec(Reason.INVALID_SPEC, "a managed table needs at least one column.", field="spec.columns")
    refuse_case_twins([column.name for column in task.columns])
    fields = [_declared_field(number, column, task.primary_key) for number, column in enumerate(task.columns)]
    schema = Schema(*fields)
    keys = [_key_id(schema, position, name) for position, name in enumerate(task.primary_key)]
    return Schema(*fields, identifier_field_ids=keys)


def declared_spec(fields: Sequence[PartitionFieldSpec], schema: Schema) -> PartitionSpec:
    """The partition spec of ``fields``. Raises BadSpec: COLUMN_NOT_FOUND, COLUMN_TYPE_UNSUPPORTED, INVALID_SPEC."""
    made: list[PartitionField] = []
    names = {field.name for field in schema.fields}
    for number, given in enumerate(fields):
        path = f"spec.partitioning[{number}]"
        source = _find(schema, given.column, f"{path}.column")
        transform = _transform(given, path)
        if not transform.can_transform(source.field_type):
            message = f"{given.transform} cannot partition column {source.name!r} of type {source.field_type}."
            raise BadSpec(Reason.COLUMN_TYPE_UNSUPPORTED, message, field=f"{path}.transform")
        name = _free_name(given, names)
        names.add(name)
        made.append(PartitionField(source.field_id, FIRST_PARTITION_ID + number, transform, name))
    return PartitionSpec(*made)


def declared_order(fields: Sequence[SortFieldSpec], schema: Schema) -> SortOrder:
    """The sort order of ``fields``. Raises BadSpec: COLUMN_NOT_FOUND, INVALID_SPEC."""
    return SortOrder(*(_sort_field(number, field, schema) for number, field in enumerate(fields)))


def checked_properties(task: TableTask) -> dict[str, str]:
    """The declared table properties. Raises BadSpec (INVALID_SPEC) for one that is not listed or has a wrong value."""
    types = {column.name: column.type for column in task.columns}
    for problem in find_problems(task.properties, types):
        raise BadSpec(Reason.INVALID_SPEC, f"{problem.message}.", field=f"spec.properties[{problem.name}]")
    return dict(task.properties)


def refuse_reserved_names(names: Iterable[str]) -> None:
    """Raise BadSpec (INVALID_SPEC) for a name that no table should get."""
    for name in names:
        if problem := find_name_problem(name):
            message = f"column {name!r} {problem}: choose another name."
            raise BadSpec(Reason.INVALID_SPEC, message, field="spec.columns")


def refuse_case_twins(names: Iterable[str]) -> None:
    """Raise BadSpec (INVALID_SPEC) when two names are equal or differ in case only."""
    seen: dict[str, str] = {}
    for name in names:
        twin = seen.setdefault(name.lower(), name)
        if twin is not name:
            message = f"columns {twin!r} and {name!r} differ in case only; Spark cannot tell them apart."
            raise BadSpec(Reason.INVALID_SPEC, message, field="spec.columns")


def _declared_field(number: int, column: ColumnSpec, keys: tuple[str, ...]) -> NestedField:
    kind = parse_type(column.type, f"spec.columns[{number}].type")
    required = column.required or column.name in keys
    return NestedField(number + 1, column.name, kind, required=required, doc=column.doc or None)


def _key_id(schema: Schema, position: int, name: str) -> int:
    path = f"spec.primaryKey[{position}]"
    field = _find(schema, name, path)
    if isinstance(field.field_type, FloatType | DoubleType):
        message = f"column {name!r} is a {field.field_type}; floating point numbers cannot be keys."
        raise BadSpec(Reason.COLUMN_TYPE_UNSUPPORTED, message, field=path)
    return field.field_id


def _find(schema: Schema, name: str, path: str) -> NestedField:
    for field in schema.fields:
        if field.name == name:
            return field
    raise BadSpec(Reason.COLUMN_NOT_FOUND, f"there is no column {name!r} in spec.columns.", field=path)


def _transform(given: PartitionFieldSpec, path: str) -> Transform:  # type: ignore[type-arg]
    name = given.transform.lower()
    if name in _PLAIN_TRANSFORMS:
        return _PLAIN_TRANSFORMS[name]()
    if name not in ("bucket", "truncate"):
        raise BadSpec(Reason.INVALID_SPEC, f"transform {given.transform!r} is not known.", field=f"{path}.transform")
    if given.width is None or given.width < 1:
        raise BadSpec(Reason.INVALID_SPEC, f"{given.transform} needs a width of at least 1.", field=f"{path}.width")
    return BucketTransform(given.width) if name == "bucket" else TruncateTransform(given.width)


def _free_name(given: PartitionFieldSpec, taken: set[str]) -> str:
    """Iceberg's usual name of a partition field; only identity fields may be called like their column."""
    kind = given.transform.lower()
    if kind == "identity":
        return given.column
    name = f"{given.column}_{kind}" + (f"_{given.width}" if given.width else "")
    while name in taken:
        name += "_part"
    return name


def _sort_field(number: int, given: SortFieldSpec, schema: Schema) -> SortField:
    path = f"spec.sortOrder[{number}]"
    source = _find(schema, given.column, f"{path}.column")
    is_ascending = given.direction.lower().startswith("asc")
    nulls = (given.nulls or ("First" if is_ascending else "Last")).lower()
    return SortField(
        source_id=source.field_id,
        transform=IdentityTransform(),
        direction=SortDirection.ASC if is_ascending else SortDirection.DESC,
        null_order=NullOrder.NULLS_FIRST if nulls.endswith("first") else NullOrder.NULLS_LAST,
    )
