"""The types of indexes: what is told of them once is what specs, definitions and index tables say."""

from __future__ import annotations

from dataclasses import fields

import pytest
from skipstone.indexes.definition import IndexNames, index_properties, stored_type
from skipstone_core.indexing.indexes import IndexColumn, IndexDefinition
from skipstone_core.indexing.indextypes import IndexType
from skipstone_operator.resources.secondaryindex import SecondaryIndexSpec


@pytest.mark.parametrize("kind", IndexType)
def test_the_parameters_of_a_type_are_fields_of_a_spec_that_may_be_absent(kind: IndexType) -> None:
    absent = {field.name for field in fields(SecondaryIndexSpec) if field.default is None}
    assert {name for name, _ in kind.traits.parameters} <= absent


@pytest.mark.parametrize(("kind", "buckets"), [(IndexType.LOOKUP, 0), (IndexType.COVERING, 16)])
def test_an_index_table_tells_the_type_of_its_index(kind: IndexType, buckets: int) -> None:
    definition = IndexDefinition((IndexColumn(1, "long"),), (), buckets)
    properties = index_properties(definition, IndexNames(("id",)), table_uuid="t", owner_uid="o")
    assert definition.type is stored_type(properties) is kind
