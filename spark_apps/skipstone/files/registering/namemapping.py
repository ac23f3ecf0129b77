"""The name mapping by which readers find the columns of files that have no field ids.

Used when files are registered. Made by Iceberg's specification, "Column Projection": of the table's fields by id, each
with the names that stand for it. Must not write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pyiceberg.table import Table
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType
from skipstone_core.errors import BadSpec
from skipstone_core.reasons import Reason

#: The table property that holds the name mapping.
NAME_MAPPING = "schema.name-mapping.default"


def plan_mapping(table: Table, sources: Mapping[str, str]) -> NameMapping:
    """The table's name mapping with all of its columns in it; what it maps already stays.

    ``sources``: names in files by column, where they differ. Raises BadSpec (INVALID_SPEC) when a name would stand for
    two columns.
    """
    known = table.metadata.name_mapping()
    return NameMapping(_merged(table.schema().fields, [] if known is None else known.root, sources))


def _merged(
    fields: Sequence[NestedField], known: Sequence[MappedField], sources: Mapping[str, str] | None = None
) -> list[MappedField]:
    before = {mapped.field_id: mapped for mapped in known}
    merged = [_mapped(field, before.pop(field.field_id, None), (sources or {}).get(field.name)) for field in fields]
    merged += before.values()  # of columns that were dropped: their values stay theirs
    _require_one_meaning(merged)
    return merged


def _mapped(field: NestedField, known: MappedField | None, source: str | None) -> MappedField:
    # one without fields below it is false
    before, known_below = ([], []) if known is None else (known.names, known.fields)
    names = dict.fromkeys([*before, field.name, *([source] if source else ())])
    below = _merged(_below(field.field_type), known_below)
    return MappedField.model_validate({"field-id": field.field_id, "names": list(names), "fields": below})


def _below(kind: IcebergType) -> Sequence[NestedField]:
    match kind:
        case StructType():
            return kind.fields
        case ListType():
            return [kind.element_field]
        case MapType():
            return [kind.key_field, kind.value_field]
        case _:
            return []


def _require_one_meaning(fields: Sequence[MappedField]) -> None:
    counts = Counter(name for field in fields for name in field.names)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        ids = " and ".join(str(field.field_id) for field in fields if twice[0] in field.names)
        raise BadSpec(
            Reason.INVALID_SPEC,
            f"the name '{twice[0]}' would stand for the fields {ids} of the table, in files without field ids: rename "
            f"the column in the files, or change the table property {NAME_MAPPING}",
            field="source.mapping",
        )
