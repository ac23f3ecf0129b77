"""Tables by primitive type: each class of PyIceberg has a case, and a table cannot lack one."""

from __future__ import annotations

from dataclasses import fields

import pytest
from pyiceberg import types
from pyiceberg.schema import SchemaVisitorPerPrimitiveType
from pyiceberg.types import IcebergType, ListType, PrimitiveType
from skipstone.compat.lineage.primitives import ByPrimitive

TEXTS = {
    "boolean": ("boolean",),
    "integer": ("int",),
    "long": ("long",),
    "float": ("float",),
    "double": ("double",),
    "decimal": ("decimal(9, 2)", "decimal(38, 0)"),
    "date": ("date",),
    "time": ("time",),
    "timestamp": ("timestamp",),
    "timestamptz": ("timestamptz",),
    "timestamp_ns": ("timestamp_ns",),
    "timestamptz_ns": ("timestamptz_ns",),
    "string": ("string",),
    "uuid": ("uuid",),
    "fixed": ("fixed[3]",),
    "binary": ("binary",),
    "opaque": ("variant", "unknown", "geometry(srid:4326)", "geography"),
}
NAMES: ByPrimitive[str] = ByPrimitive(**{name: name for name in TEXTS})
CLASSES = [
    kind
    for kind in vars(types).values()
    if isinstance(kind, type) and issubclass(kind, PrimitiveType) and kind is not PrimitiveType
]


@pytest.mark.parametrize("name", TEXTS)
def test_a_type_in_a_schema_has_its_case(name: str) -> None:
    kinds = [IcebergType.model_validate(text) for text in TEXTS[name]]
    assert {NAMES.find(kind) for kind in kinds} == {name}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_type_that_pyiceberg_has_is_known(kind: type[PrimitiveType]) -> None:
    made = {types.FixedType: lambda: types.FixedType(3), types.DecimalType: lambda: types.DecimalType(9, 2)}
    assert NAMES.of(made.get(kind, kind)()) in TEXTS


def test_every_type_that_pyiceberg_visits_has_a_class_here() -> None:
    visits = [name for name in SchemaVisitorPerPrimitiveType.__abstractmethods__ if name.startswith("visit_")]
    assert len(visits) == len(CLASSES)


def test_nested_types_have_no_case() -> None:
    assert NAMES.find(ListType(1, types.LongType())) is None


@pytest.mark.parametrize("missing", TEXTS)
def test_a_table_without_a_case_is_not_made(missing: str) -> None:
    with pytest.raises(TypeError, match=missing):
        ByPrimitive(**{part.name: 0 for part in fields(ByPrimitive) if part.init and part.name != missing})
