"""Paths of fields: how they are written, which of them a merge names, and what is said of names that do not exist."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone.sources.nested import find_field, struct_types
from skipstone_core.contract.requests import (
    ColumnMapping,
    ColumnSpec,
    MergeAction,
    MergeClause,
    MergeKey,
    MergeTask,
    SourceFormat,
    SourceSpec,
)
from skipstone_core.errors import BadSpec
from skipstone_core.language.paths import is_path, join_path, like_hint, split_path
from skipstone_core.merging.fields import named_fields

parts = st.text("ab.`é ", min_size=1, max_size=4)


@given(st.lists(parts, min_size=2, max_size=3))
def test_a_path_is_split_as_it_was_joined(path: list[str]) -> None:
    assert split_path(join_path(path)) == tuple(path)


@pytest.mark.parametrize("name", ["plain", "a.", ".a", "a..b", "`a", "a`b.c`", ""])
def test_what_is_no_path_is_one_name(name: str) -> None:
    assert not is_path(name)


def test_hints_name_the_likely_column_or_some() -> None:
    assert like_hint("ID", ["id", "name"]) == "write 'id', names are exact"
    assert like_hint("x", [*"gfedcba"]) == "name one of a, b, c, d, e and 2 more"
    assert like_hint("x", []) == "remove it"


def test_a_merge_names_fields_wherever_it_names_source_columns() -> None:
    task = MergeTask(
        source=SourceSpec(
            format=SourceFormat.JSON,
            paths=("x",),
            columns=(ColumnSpec(name="before.id", type="long"),),
            mapping=(ColumnMapping(column="m", from_="meta.m"),),
        ),
        keys=(MergeKey(target="id", source="after.id"), MergeKey(target="k", source="k")),
        sequence_by="source.ts",
        when_matched=(
            MergeClause(
                action=MergeAction.DELETE, when="source.before.id is null and target.n = 1 and source.op = 'd'"
            ),
            MergeClause(
                action=MergeAction.UPDATE, values={"v": "coalesce(after.v, source.x) || target.v", "w": "'a.b'"}
            ),
        ),
        when_not_matched=(
            MergeClause(action=MergeAction.INSERT, values={"id": "after.id", "v": "source.after.`a.b`"}),
        ),
    )
    assert named_fields(task) == {
        "after.id": "spec.keys[0]",
        "source.ts": "spec.sequenceBy",
        "meta.m": "spec.source.mapping[0]",
        "before.id": "spec.whenMatched[0].when",
        "after.v": "spec.whenMatched[1].set.v",
        "after.`a.b`": "spec.whenNotMatched[0].values.v",
    }


@dataclass(frozen=True)
class Node:
    """A column of some file."""

    name: str
    fields: tuple[Node, ...] | None = ()


SOURCE = (Node("op"), Node("a.b"), Node("after", (Node("id"), Node("a.b", (Node("c"),)))), Node("unknown", None))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("op", []),
        ("a.b", []),
        ("after.id", ["after", "id"]),
        ("after.`a.b`.c", ["after", "a.b", "c"]),
        ("unknown.x.y", ["unknown"]),
    ],
)
def test_a_column_as_it_stands_comes_before_a_path(name: str, found: list[str]) -> None:
    assert [one.name for one in find_field(name, "spec.f", SOURCE)] == found


def test_a_field_of_no_struct_is_refused() -> None:
    with pytest.raises(BadSpec, match=r"^spec\.f: 'op' is no struct in the source, so it has no field 'x': name the"):
        find_field("op.x", "spec.f", SOURCE)


def test_only_named_fields_are_read() -> None:
    leaves = {("op",): "string", ("after", "id"): "bigint", ("after", "a.b", "c"): "date"}
    assert struct_types(leaves) == {"op": "string", "after": "struct<`id`: bigint, `a.b`: struct<`c`: date>>"}
