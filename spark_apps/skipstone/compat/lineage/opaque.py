"""Types that PyIceberg does not know, or spells otherwise than other engines: they keep their text.

PyIceberg refuses all of a table whose schemas name one, old schemas among them. The text of such a type is read and
written back unchanged, so a commit never changes what a schema says. Must not know Skipstone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, Final

import pyarrow as pa
from pydantic import model_serializer
from pyiceberg.io.pyarrow import _ConvertToArrowSchema
from pyiceberg.schema import Schema, SchemaVisitorPerPrimitiveType
from pyiceberg.types import BinaryType, IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

#: The types by the words that their texts begin with. The words of the spec; parameters follow some.
VARIANT, GEOMETRY, GEOGRAPHY, UNKNOWN = "variant", "geometry", "geography", "unknown"
#: The format version that brought them.
_SINCE: Final = 3
#: How a variant lies in Parquet where it is not shredded: two texts of bytes, none of them null.
_VARIANT_PARTS: Final = ("metadata", "value")


class Opaque(PrimitiveType):
    """A type whose values are moved as they are, and are neither made, compared nor computed with."""

    root: str

    def __init__(self, text: str) -> None:
        """``text``: as the metadata of the table has it."""
        super().__init__(root=text)

    @model_serializer
    def as_text(self) -> str:
        """As it was read."""
        return str(self.root)

    @property
    def word(self) -> str:
        """The name of the type without parameters: one of VARIANT, GEOMETRY, GEOGRAPHY and UNKNOWN."""
        return str(self.root).partition("(")[0]

    @property
    def is_stored(self) -> bool:
        """Return whether data files have the column: one of an unknown type is null everywhere, and in no file."""
        return self.word != UNKNOWN

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of its values as they lie in Parquet."""
        if self.word == VARIANT:
            return pa.struct([pa.field(name, pa.binary(), nullable=False) for name in _VARIANT_PARTS])
        return pa.binary() if self.is_stored else pa.null()

    def holds(self, stored: pa.DataType) -> bool:
        """Return whether the Arrow type ``stored`` of a file holds whole values, not parts of a shredded variant."""
        if self.word != VARIANT:
            return True
        return pa.types.is_struct(stored) and {field.name for field in stored} == {*_VARIANT_PARTS}

    def minimum_format_version(self) -> int:  # type: ignore[override]
        """The format version that brought the type."""
        return _SINCE

    def __repr__(self) -> str:
        """As Python writes it."""
        return f"Opaque(text={self.root!r})"

    def __hash__(self) -> int:
        """Of the text."""
        return hash(self.root)

    def __eq__(self, other: object) -> bool:
        """Return whether the texts are the same."""
        return isinstance(other, Opaque) and bool(self.root == other.root)

    def __getnewargs__(self) -> tuple[str]:
        """For pickle."""
        return (self.root,)


def is_opaque(text: str) -> bool:
    """Return whether ``text`` is that of such a type."""
    return text.partition("(")[0].strip() in (VARIANT, GEOMETRY, GEOGRAPHY, UNKNOWN)


def opaque_fields(kind: Schema | IcebergType) -> Iterator[tuple[int, Opaque]]:
    """The ids of all fields of such types in ``kind``, at every depth, with their types."""
    for field in _below(kind):
        if isinstance(field.field_type, Opaque):
            yield field.field_id, field.field_type
        else:
            yield from opaque_fields(field.field_type)


def holds_opaque(kind: IcebergType) -> bool:
    """Return whether ``kind`` is such a type, or holds one at any depth."""
    return isinstance(kind, Opaque) or next(opaque_fields(kind), None) is not None


def _below(kind: Schema | IcebergType) -> tuple[NestedField, ...]:
    match kind:
        case Schema() | StructType():
            return tuple(kind.fields)
        case ListType():
            return (kind.element_field,)
        case MapType():
            return kind.key_field, kind.value_field
    return ()


_IMPLEMENTATION: FunctionType = IcebergType.handle_primitive_type.__func__
#: PyIceberg's parser of the texts of types.
_parse = FunctionType(
    _IMPLEMENTATION.__code__, _IMPLEMENTATION.__globals__, "handle_primitive_type", _IMPLEMENTATION.__defaults__
)


def parsed_type(cls: type[IcebergType], value: Any, handler: Callable[[Any], IcebergType]) -> IcebergType:
    """The type that ``value`` describes: an Opaque for the text of one, else what PyIceberg makes of it."""
    if isinstance(value, str):
        if cls is Opaque:
            return handler(value)
        if not issubclass(cls, PrimitiveType) and is_opaque(value):
            return Opaque(value)
    parsed: IcebergType = _parse(cls, value, handler)
    return parsed


def _handle_primitive_type(cls: Any, v: Any, handler: Any) -> Any:
    from skipstone.compat.lineage.opaque import parsed_type as parse

    return parse(cls, v, handler)


# pydantic has compiled the parser into the validators of all models that hold a type, and finds it by the function
# object: only its code can be exchanged.
_IMPLEMENTATION.__code__ = _handle_primitive_type.__code__

_visit_primitive = SchemaVisitorPerPrimitiveType.primitive


def _primitive(self: SchemaVisitorPerPrimitiveType[Any], primitive: PrimitiveType) -> Any:
    """What a visitor makes of a type: of an Opaque its Arrow type, or what it makes of bytes."""
    if not isinstance(primitive, Opaque):
        return _visit_primitive(self, primitive)
    return primitive.arrow if isinstance(self, _ConvertToArrowSchema) else self.visit_binary(BinaryType())


SchemaVisitorPerPrimitiveType.primitive = _primitive  # type: ignore[method-assign]
