"""Brings a table to the shape that its Table resource declares: create, adopt or evolve.

Called by the table run. Must not touch data files, and never changes what it cannot change without loss.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from enum import Enum

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
)
from skipstone_core.contract.requests import Management, TableRef, TableTask, WarehouseRef, levels_of
from skipstone_core.errors import BadSpec, DependencyUnavailable
from skipstone_core.ids import OWNER_PROPERTY
from skipstone_core.reasons import Reason

from skipstone.storage.opening import open_storage
from skipstone.tables.catalogs import WRITABLE_FORMAT, catalog_answers, load_table, table_location
from skipstone.tables.namespaces import make_namespace
from skipstone.tables.shaping.declarations import (
    checked_properties,
    declared_order,
    declared_schema,
    declared_spec,
    is_declarable,
    refuse_case_twins,
    refuse_reserved_names,
)
from skipstone.tables.shaping.evolution import evolved_columns
from skipstone.tables.shaping.formats import require_mergeable

ROUNDS = 5


class Ownership(Enum):
    """How a table relates to the resource that declares it; the values are the reasons shown."""

    CREATED = Reason.CREATED
    ADOPTED = Reason.ADOPTED
    OBSERVED = Reason.OBSERVED


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """The wished shape of one table."""

    warehouse: WarehouseRef
    ref: TableRef
    task: TableTask


def ensure_table(catalog: Catalog, wish: Declaration) -> tuple[Table, Ownership]:
    """Create, adopt or evolve the table of ``wish``; an observed table is only looked at.

    Raises BadSpec with SCHEMA_MISMATCH, SCHEMA_DRIFT, TABLE_MISSING, TABLE_REPLACED, COLUMN_NOT_FOUND,
    COLUMN_TYPE_UNSUPPORTED or INVALID_SPEC, naming the field; DependencyUnavailable.
    """
    if wish.ref.management is Management.OBSERVED:
        return load_table(catalog, wish.ref), Ownership.OBSERVED
    schema = declared_schema(wish.task)
    for _ in range(ROUNDS):
        table = _find(catalog, wish.ref)
        if table is None:
            table = _create(catalog, wish, schema)
        if table is not None and (evolved := _evolve(table, wish, schema)) is not None:
            is_ours = evolved.properties.get(OWNER_PROPERTY) == wish.ref.uid
            return evolved, Ownership.CREATED if is_ours else Ownership.ADOPTED
    message = f"Others kept changing {wish.ref.namespace}.{wish.ref.name}; try again."
    raise DependencyUnavailable(Reason.CONFLICTED, message)


def _find(catalog: Catalog, ref: TableRef) -> Table | None:
    """The table, or None when it may be created: a table that was seen once is never created again."""
    try:
        return load_table(catalog, ref)
    except BadSpec as error:
        if error.reason is Reason.TABLE_MISSING and ref.table_uuid is None:
            return None
        raise


def _create(catalog: Catalog, wish: Declaration, schema: Schema) -> Table | None:
    """The new table; None when somebody else was faster."""
    refuse_reserved_names(field.name for field in schema.fields)
    properties = checked_properties(wish.task)
    spec = declared_spec(wish.task.partitioning, schema)
    order = declared_order(wish.task.sort_order, schema)
    with catalog_answers(catalog.name):
        make_namespace(catalog, levels_of(wish.ref.namespace))
        try:
            return catalog.create_table(
                wish.ref.identifier,
                schema,
                location=_free_location(wish),
                partition_spec=spec,
                sort_order=order,
                properties={**properties, "format-version": str(WRITABLE_FORMAT), OWNER_PROPERTY: wish.ref.uid},
            )
        except TableAlreadyExistsError:
            return None


def _free_location(wish: Declaration) -> str:
    """A directory of the table's own: data that a former table left behind is never mixed with the new one's."""
    location = table_location(wish.warehouse, wish.ref)
    is_taken = open_storage(wish.warehouse).is_taken(f"{wish.ref.namespace}/{wish.ref.name}")
    return f"{location}-{wish.ref.uid.replace('-', '')[:8]}" if is_taken else location


def _evolve(table: Table, wish: Declaration, wished: Schema) -> Table | None:
    """``table`` in the wished shape; None when somebody else changed it meanwhile."""
    try:
        require_mergeable(table)
    except BadSpec:  # which the state of the table says
        return table
    evolved = set(evolved_columns(table))
    _refuse_drift(table.schema(), wish.task, evolved)
    is_ours = table.properties.get(OWNER_PROPERTY) == wish.ref.uid
    known, names = {field.name for field in table.schema().fields}, {field.name for field in wished.fields}
    refuse_case_twins(known | names)
    refuse_reserved_names(sorted(names - known))
    _refuse_layout(table, wish.task, wished, is_ours=is_ours)
    if is_ours:
        _refuse_removals(table.schema(), wished, evolved)
    properties = checked_properties(wish.task)
    changed = {name: value for name, value in properties.items() if table.properties.get(name) != value}
    try:
        with catalog_answers(table.catalog.name), table.transaction() as transaction:
            with transaction.update_schema() as update:
                for number, field in enumerate(wished.fields):
                    _apply_field(update, table.schema(), field, f"spec.columns[{number}]")
                _apply_keys(update, table.schema(), wish.task)
            if changed:
                transaction.set_properties(changed)
    except CommitFailedException:
        return None
    return table


def _refuse_drift(current: Schema, task: TableTask, evolved: Set[str]) -> None:
    """What status remembers must still hold: same names and field ids; others are declared, or added by merges."""
    ids = {field.name: field.field_id for field in current.fields}
    for name, number in task.field_ids.items():
        if ids.get(name) != number:
            state = "is gone" if name not in ids else "was dropped and added again"
            raise BadSpec(
                Reason.SCHEMA_DRIFT,
                f"column {name!r} {state}; somebody else changed the table's schema. Set spec.reclaimPolicy to Retain, "
                "delete this Table and create it again with the columns that the table has now.",
            )
    declared = {column.name for column in task.columns} | set(task.field_ids) | evolved
    if task.field_ids and (extra := sorted(set(ids) - declared)):
        kind = current.find_type(ids[extra[0]])
        way_out = "declare it in spec.columns"
        if not is_declarable(str(kind)):
            way_out = f"set spec.management to Observed, since spec.columns cannot declare its type {kind},"
        message = f"somebody else added column {extra[0]!r}; {way_out} or drop it."
        raise BadSpec(Reason.SCHEMA_DRIFT, message)


def _refuse_removals(current: Schema, wished: Schema, evolved: Set[str]) -> None:
    names = {field.name for field in wished.fields} | evolved
    for field in current.fields:
        if field.name not in names:
            message = f"column {field.name!r} is in the table and not in the spec; columns are never dropped."
            raise BadSpec(Reason.SCHEMA_MISMATCH, message, field="spec.columns")


def _refuse_layout(table: Table, task: TableTask, wished: Schema, *, is_ours: bool) -> None:
    """Partitioning and sort order cannot be changed; an adopted table may leave them undeclared."""
    if task.partitioning or is_ours:
        declared = _spec_shape(declared_spec(task.partitioning, wished), wished)
        _refuse_difference("spec.partitioning", _spec_shape(table.spec(), table.schema()), declared)
    if task.sort_order or is_ours:
        order = _order_shape(declared_order(task.sort_order, wished), wished)
        _refuse_difference("spec.sortOrder", _order_shape(table.sort_order(), table.schema()), order)


def _refuse_difference(path: str, current: str, wished: str) -> None:
    if current != wished:
        message = f"the table has {current}, the spec asks for {wished}; it cannot be changed."
        raise BadSpec(Reason.SCHEMA_MISMATCH, message, field=path)


def _spec_shape(spec: PartitionSpec, schema: Schema) -> str:
    shown = [f"{field.transform}({schema.find_column_name(field.source_id)})" for field in spec.fields]
    return ", ".join(shown) or "no partitioning"


def _order_shape(order: SortOrder, schema: Schema) -> str:
    shown = [
        f"{field.transform}({schema.find_column_name(field.source_id)}) {field.direction} {field.null_order}"
        for field in order.fields
    ]
    return ", ".join(shown) or "no sort order"


def _apply_field(update: UpdateSchema, current: Schema, wished: NestedField, path: str) -> None:
    existing = next((field for field in current.fields if field.name == wished.name), None)
    if existing is None:
        if wished.required:
            message = f"column {wished.name!r} is new and cannot be required: existing rows have no value for it."
            raise BadSpec(Reason.SCHEMA_MISMATCH, message, field=path)
        update.add_column((wished.name,), wished.field_type, doc=wished.doc)
        return
    if wished.required and existing.optional:
        message = f"column {wished.name!r} is optional in the table and cannot become required."
        raise BadSpec(Reason.SCHEMA_MISMATCH, message, field=path)
    if existing.required and wished.optional:
        update.make_column_optional((wished.name,))
    if existing.field_type != wished.field_type:
        if not is_widening(existing.field_type, wished.field_type):
            message = (
                f"column {wished.name!r} is {existing.field_type} in the table and cannot become {wished.field_type}."
            )
            raise BadSpec(Reason.SCHEMA_MISMATCH, message, field=f"{path}.type")
        update.update_column((wished.name,), field_type=wished.field_type)
    if wished.doc is not None and wished.doc != existing.doc:
        update.update_column((wished.name,), doc=wished.doc)


def is_widening(current: IcebergType, wished: IcebergType) -> bool:
    """Return whether every value of ``current`` is one of ``wished``, by Iceberg's rules for format version 2."""
    match (current, wished):
        case (IntegerType(), LongType()) | (FloatType(), DoubleType()):
            return True
        case (DecimalType(), DecimalType()):
            return bool(current.scale == wished.scale and current.precision <= wished.precision)
    return False


def _apply_keys(update: UpdateSchema, current: Schema, task: TableTask) -> None:
    if set(task.primary_key) != current.identifier_field_names():
        update.set_identifier_fields(*task.primary_key)
