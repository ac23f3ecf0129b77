"""Tables with a case for every primitive type of Iceberg.

Used wherever code branches over types. A table that lacks a case is an error of mypy, and of the import of its module.
Must not know Skipstone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from pyiceberg import types
from pyiceberg.types import IcebergType, PrimitiveType

from skipstone.compat.lineage.opaque import Opaque

_Case = TypeVar("_Case")
#: The field of a table for each class that PyIceberg or ``opaque`` has for a primitive type.
_FIELDS: Final[Mapping[type[IcebergType], str]] = {
    types.BooleanType: "boolean",
    types.IntegerType: "integer",
    types.LongType: "long",
    types.FloatType: "float",
    types.DoubleType: "double",
    types.DecimalType: "decimal",
    types.DateType: "date",
    types.TimeType: "time",
    types.TimestampType: "timestamp",
    types.TimestamptzType: "timestamptz",
    types.TimestampNanoType: "timestamp_ns",
    types.TimestamptzNanoType: "timestamptz_ns",
    types.StringType: "string",
    types.UUIDType: "uuid",
    types.FixedType: "fixed",
    types.BinaryType: "binary",
    types.UnknownType: "opaque",
    types.GeometryType: "opaque",
    types.GeographyType: "opaque",
    Opaque: "opaque",
}


@dataclass(frozen=True, kw_only=True)
class ByPrimitive(Generic[_Case]):
    """What holds for each primitive type. ``opaque``: for all types whose values are moved as they are."""

    boolean: _Case
    integer: _Case
    long: _Case
    float: _Case
    double: _Case
    decimal: _Case
    date: _Case
    time: _Case
    timestamp: _Case
    timestamptz: _Case
    timestamp_ns: _Case
    timestamptz_ns: _Case
    string: _Case
    uuid: _Case
    fixed: _Case
    binary: _Case
    opaque: _Case
    _by_class: Mapping[type[IcebergType], _Case] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Keep the cases by class, so that finding one does not depend on the number of types."""
        by_class = {kind: getattr(self, name) for kind, name in _FIELDS.items()}
        object.__setattr__(self, "_by_class", by_class)

    def of(self, kind: PrimitiveType) -> _Case:
        """Return the case of ``kind``. Raises KeyError for a class that no field stands for."""
        return self._by_class[type(kind)]

    def find(self, kind: IcebergType) -> _Case | None:
        """Return the case of ``kind``; None for a struct, list or map."""
        return self.of(kind) if isinstance(kind, PrimitiveType) else None
