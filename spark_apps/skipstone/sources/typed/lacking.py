"""Fields that structs of a source lack and those of the table's columns have, by what files say of their types.

Called where a merge binds its clauses. Json, whose records have fields or not, says nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.types import StructType

from skipstone.sources.columns import SourceColumn
from skipstone.sources.groups import ColumnGroup
from skipstone.sources.typed.filetypes import FileType


@dataclass(frozen=True)
class LackingFields:
    """Paths within a column: of fields that no file has, and of those that only some files have."""

    everywhere: frozenset[tuple[str, ...]] = frozenset()
    somewhere: frozenset[tuple[str, ...]] = frozenset()


def lacking_fields(column: SourceColumn, groups: Sequence[ColumnGroup]) -> LackingFields:
    """What the structs of ``column``, whose type is that of the table's column, lack in the files."""
    if not isinstance(column.type, StructType):
        return LackingFields()
    raw = [held for group in groups if (held := group.columns.get(column.name)) is not None]
    kinds = [held.file_type for held in raw if held.file_type is not None and held.file_type.inside]
    lacking = [frozenset(_lacking(kind, column.type, ())) for kind in kinds]
    if not lacking:
        return LackingFields()
    everywhere = frozenset.intersection(*lacking)
    return LackingFields(everywhere, frozenset.union(*lacking) - everywhere)


def _lacking(source: FileType, target: StructType, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    inside = dict(source.inside)
    for field in target.fields:
        here, held = (*path, field.name), inside.get(field.name)
        if field.name not in inside:
            yield here
        elif isinstance(field.field_type, StructType) and held is not None:
            yield from _lacking(held, field.field_type, here)
