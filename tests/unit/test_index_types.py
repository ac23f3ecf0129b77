"""The types of indexes: what is told of them once is what specs, definitions and index tables say."""

from __future__ import annotations

from dataclasses import fields

import pytest
from skipstone.indexes.definition import IndexNames, index_properties, stored_definition, stored_type
from skipstone.indexes.kinds import KINDS
from skipstone_core.contract.indextypes import IndexParameters, IndexType
from skipstone_core.indexing.indexes import IndexColumn, IndexDefinition
from skipstone_operator.resources.secondaryindex import SecondaryIndexSpec


@pytest.mark.parametrize("kind", IndexType)
def test_the_parameters_of_a_type_are_fields_of_a_spec_that_may_be_absent(kind: IndexType) -> None:
    absent = {field.name for field in fields(SecondaryIndexSpec) if field.default is None}
    assert kind.traits.names <= absent


def test_every_type_has_an_engine() -> None:
    assert {*KINDS} == {*IndexType}


def test_no_two_types_take_the_same_parameters() -> None:
    assert len({kind.traits.names for kind in IndexType}) == len(IndexType)
    assert {name for kind in IndexType for name in kind.traits.names} == {part.name for part in fields(IndexParameters)}


@pytest.mark.parametrize("kind", IndexType)
def test_an_index_table_tells_the_type_of_its_index(kind: IndexType) -> None:
    parameters = IndexParameters(**{known.name: known.maximum for known in kind.traits.parameters})
    definition = IndexDefinition((IndexColumn(1, "long"),), (), parameters)
    properties = index_properties(definition, IndexNames(("id",)), table_uuid="t", owner_uid="o")
    assert definition.type is stored_type(properties) is kind
    stored = stored_definition(properties)
    assert stored is not None
    assert stored.definition == definition
