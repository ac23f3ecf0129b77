"""What a merge refuses and tells of the names of its source, by the rules alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone.sources.columns import file_names
from skipstone.sources.groups import ColumnGroup, RawColumn
from skipstone_core.contract.reports import UnusedColumn
from skipstone_core.contract.requests import (
    ColumnMapping,
    MergeAction,
    MergeClause,
    MergeKey,
    MergeTask,
    SourceFormat,
    SourceSpec,
)
from skipstone_core.errors import BadData
from skipstone_core.merging.merges import MergeColumn, plan_merge
from skipstone_core.merging.unused import (
    Names,
    SourceNames,
    describe_unfed,
    describe_unused,
    merge_names,
    plain_name,
    refuse_twins,
    require_delimiter,
    require_used,
)

TARGET = tuple(MergeColumn(name=name, type="string") for name in ("id", "UserCode", "city"))
TASK = MergeTask(
    source=SourceSpec(format=SourceFormat.PARQUET, paths=("changes",)),
    keys=(MergeKey(target="id", source="id"),),
    when_matched=(MergeClause(action=MergeAction.UPDATE),),
)


def judged(*source: str, task: MergeTask = TASK) -> Names:
    plan = plan_merge(task, TARGET, [MergeColumn(name=name, type="string") for name in source])
    return merge_names(task, plan, [SourceNames("f", source)])


def test_columns_in_conditions_and_mappings_are_used() -> None:
    clause = MergeClause(action=MergeAction.UPDATE, when="source.op != 'x'")
    mapped = replace(TASK.source, mapping=(ColumnMapping(column="UserCode", from_="usercode"),))
    found = judged("id", "op", "usercode", "more", task=replace(TASK, source=mapped, when_matched=(clause,)))
    assert (found.unused, found.unknown, found.unfed) == (("more",), ("more",), ("city",))


def test_a_key_under_another_name_is_no_slip() -> None:
    task = replace(TASK, keys=(MergeKey(target="UserCode", source="usercode"),))
    assert judged("usercode", "id", "city", task=task).unused == ()


@pytest.mark.parametrize(
    "source",
    [
        ("id", "usercode", "city"),
        ("id", " city", "UserCode"),
        ("id", "city\ufeff"),
        ("id", "ci\u00adty"),
        ("id", "\u200e \u00a0city"),
    ],
)
def test_twins_are_refused(source: tuple[str, ...]) -> None:
    with pytest.raises(BadData, match="names are exact"):
        judged(*source)


@pytest.mark.parametrize("names", [("sep=;",), ("sep=", "_c1"), ("_c1", "sep=")])
def test_a_line_for_spreadsheets_is_not_taken_for_a_header(names: tuple[str, ...]) -> None:
    with pytest.raises(BadData, match="remove that line"):
        require_delimiter([SourceNames("f", names)], ",", {"id"})


def test_a_clause_that_finds_no_column_but_keys_is_refused() -> None:
    with pytest.raises(BadData, match=r"2 columns \('a', 'b'\) beside its keys"):
        judged("id", "a", "b")


@given(st.text(max_size=5), st.sampled_from(["", " ", "\t", "\ufeff", "\u00a0 "]))
def test_blanks_around_a_name_and_its_case_do_not_count(name: str, blank: str) -> None:
    assert plain_name(blank + name + blank) == plain_name(name)
    assert plain_name(plain_name(name)) == plain_name(name)


@given(st.lists(st.text("abAB ;", min_size=1, max_size=3), unique=True), st.lists(st.sampled_from("abAB"), unique=True))
def test_what_is_neither_refused_nor_unused_is_fed(source: list[str], table: list[str]) -> None:
    """Whatever the names are: a column feeds, is told, or the load is refused."""
    names = Names(files=[SourceNames("f", tuple(source))], table=table, fed={name: name for name in table})
    try:
        refuse_twins(names)
        require_used(names)
    except BadData:
        return
    assert set(source) == set(names.unused) | (set(source) & set(table))
    assert not {plain_name(name) for name in names.unfed} & {plain_name(name) for name in names.unused}


def test_a_feed_of_which_fields_are_named_is_used() -> None:
    """In Json, fields that are named stand in the place of their column."""
    task = replace(
        TASK,
        keys=(MergeKey(target="id", source="after.id"),),
        when_matched=(MergeClause(action=MergeAction.UPDATE, values={"city": "source.after.city"}),),
    )
    columns = [MergeColumn(name=name, type="string", is_field=True) for name in ("after.id", "after.city")]
    raw = {"before": RawColumn("b"), "after.id": RawColumn("i", is_field=True), "op": RawColumn("o")}
    raw |= {"after.city": RawColumn("c", is_field=True), "source": RawColumn("s")}
    files = file_names([ColumnGroup(columns=raw, example="f")])
    assert files == (SourceNames("f", ("before", "after", "op", "source")),)
    assert merge_names(task, plan_merge(task, TARGET, columns), files).unused == ("before", "op", "source")


def test_headers_that_only_look_cut_are_left_alone() -> None:
    require_delimiter([SourceNames("f", ("id", "id;name"))], ",", {"id", "name"})
    require_delimiter([SourceNames("f", ("id", "first, last"))], ";", {"id"})
    require_delimiter([SourceNames("f", ("a;b",))], ",", {"a;b"})
    with pytest.raises(BadData, match=r"set source.options.delimiter to ';'"):
        require_delimiter([SourceNames("f", ("a;b",))], ",", {"id"})


def test_sentences_are_bounded_and_show_what_is_not_seen() -> None:
    columns = [UnusedColumn(name=f"c{n}", rows=n) for n in range(20)]
    said = describe_unused(columns, 40)
    assert said.startswith(
        "Nothing uses 40 columns of the source: 'c0' (no row has a value), 'c1' (1 row has a value), "
    )
    assert said.endswith("'c4' (4 rows have a value) and 35 more.")
    assert describe_unused([UnusedColumn(name="a\x00" + "x" * 300)], 1).count("x") == 98
    assert describe_unfed(["n"]) == "The source has no value for 1 column of the table: 'n'."
    assert describe_unused((), 0) == describe_unfed(()) == ""
