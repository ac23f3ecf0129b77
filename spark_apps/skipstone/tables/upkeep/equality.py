"""The equality deletes of a snapshot: by which columns, of which data files, and which are resolved together.

Used by the step that resolves them, and by the health of a table. Must not read delete files or data files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, NestedField, PrimitiveType
from skipstone_core.indexing.snapshots import DeleteKind
from skipstone_core.keys import KeyFamily, KeyType, key_type

from skipstone.tables.deletes import Delete, DeleteScope
from skipstone.tables.filesets import FileSet, SpecPartition
from skipstone.tables.upkeep.layout import concerned_files, is_everywhere

Mask = npt.NDArray[np.bool_]
#: Columns by which one delete takes rows, at most.
_MOST_COLUMNS = 60
WAY_OUT = (
    "rewrite the data files with Spark's rewrite_data_files and the options delete-file-threshold=1 and "
    "remove-dangling-deletes=true"
)


@dataclass(frozen=True)
class EqualityGroup:
    """Deletes by the same columns, of the same files. ``fields``: their columns, by field id, ascending."""

    fields: tuple[NestedField, ...]
    deletes: tuple[Delete, ...]

    @property
    def kinds(self) -> tuple[IcebergType, ...]:
        """Types of the columns."""
        return tuple(field.field_type for field in self.fields)

    @property
    def rows(self) -> int:
        """Rows of all delete files."""
        return sum(delete.file.record_count for delete in self.deletes)


@dataclass(frozen=True)
class Unresolvable:
    """An equality delete that stays as it is, and why: a sentence without a full stop."""

    delete: Delete
    message: str


def equality_deletes(files: FileSet) -> list[Delete]:
    """The live equality deletes, those of a place together, the oldest first."""
    equality = (delete for delete in files.delete_files if delete.kind is DeleteKind.EQUALITY)
    return sorted(equality, key=lambda delete: (_place(delete), delete.sequence, delete.file.file_path))


def first_of(deletes: Sequence[Delete], most_rows: int) -> tuple[Delete, ...]:
    """The first of ``deletes`` that have so many rows together at most, or one that has more."""
    rows = np.cumsum([delete.file.record_count for delete in deletes])
    return tuple(deletes[: max(1, int(np.searchsorted(rows, most_rows, side="right")))])


def split_resolvable(table: Table, deletes: Iterable[Delete]) -> tuple[list[Delete], list[Unresolvable]]:
    """Those that can be resolved, and the others."""
    known, others = list[Delete](), list[Unresolvable]()
    live = tuple(deletes)
    times = Counter(delete.file.file_path for delete in live)
    for delete in live:
        is_single = times[delete.file.file_path] == 1
        problem = _find_problem(table, delete) if is_single else f"is in the table more than once: {WAY_OUT}"
        if problem is None:
            known.append(delete)
        else:
            others.append(Unresolvable(delete, f"the equality delete file {delete.file.file_path} {problem}"))
    return known, others


def group_deletes(table: Table, deletes: Iterable[Delete]) -> list[EqualityGroup]:
    """``deletes``, which can be resolved, by what they apply to and by their columns."""
    groups: dict[tuple[tuple[int, ...], DeleteScope | None], list[Delete]] = {}
    for delete in deletes:
        ids = tuple(sorted(delete.file.equality_ids or ()))
        scope = None if is_everywhere(table, delete) else delete.scope
        groups.setdefault((ids, scope), []).append(delete)
    return [
        EqualityGroup(tuple(_require_field(table, number) for number in ids), tuple(some))
        for (ids, _), some in groups.items()
    ]


def concerned_by(table: Table, files: FileSet, group: EqualityGroup) -> Mask:
    """Of which files some delete of ``group`` may take rows, by sequence numbers and partitions."""
    partitions, numbers = files.partitions()
    scopes: Mapping[SpecPartition, int] = {partition: number for number, partition in enumerate(partitions)}
    newest = max(group.deletes, key=lambda delete: delete.sequence)
    return concerned_files(table, files, newest, dict(scopes), numbers)


def key_schema(groups: Iterable[EqualityGroup], name: Callable[[int], str]) -> Schema:
    """A schema of the columns of all groups alone, each under the name that is made of its field id."""
    fields = {field.field_id: field for group in groups for field in group.fields}
    return Schema(
        *(
            NestedField(number, name(number), field.field_type, required=False, initial_default=field.initial_default)
            for number, field in sorted(fields.items())
        )
    )


def key_type_of(kind: IcebergType) -> KeyType | None:
    """Return how values of a type compare; None for a type whose values do not."""
    return key_type(str(kind)) if isinstance(kind, PrimitiveType) else None


def _place(delete: Delete) -> tuple[int, str]:
    return delete.file.spec_id, repr(delete.scope.partition)


def _find_problem(table: Table, delete: Delete) -> str | None:
    """Why a delete cannot be resolved, as the rest of a sentence."""
    ids = delete.file.equality_ids or ()
    if not 0 < len(set(ids)) <= _MOST_COLUMNS:
        return (
            f"deletes by {len(set(ids))} columns, and by 1 to {_MOST_COLUMNS} columns it could be resolved: {WAY_OUT}"
        )
    for number in ids:
        field = _field(table, number)
        if field is None:
            return f"deletes by the field {number}, which is inside another column or in no schema: {WAY_OUT}"
        if key_type_of(field.field_type) is None or _has_turned(table, number):
            return f"deletes by the column {field.name!r} of type {field.field_type}: {WAY_OUT}"
    return None


def _field(table: Table, number: int) -> NestedField | None:
    """A top-level column; one that was dropped as the last schema that had it has it."""
    older = sorted(table.metadata.schemas, key=lambda schema: schema.schema_id, reverse=True)
    for schema in (table.schema(), *older):
        for field in schema.fields:
            if field.field_id == number:
                return field
    return None


def _require_field(table: Table, number: int) -> NestedField:
    field = _field(table, number)
    if field is None:
        raise KeyError(number)
    return field


def _has_turned(table: Table, number: int) -> bool:
    """Return whether the values of a column were of another kind once: bounds of old files say nothing of them then."""
    kinds = {
        key_type_of(field.field_type)
        for schema in table.metadata.schemas
        for field in schema.fields
        if field.field_id == number
    }
    families: set[KeyFamily | None] = {None if kind is None else kind.family for kind in kinds}
    return len(families) > 1
