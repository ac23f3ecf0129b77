"""The rules of a merge: names and types are checked before any data is read, work is divided evenly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone_core.contract.requests import (
    ColumnMapping,
    ColumnSpec,
    MergeAction,
    MergeClause,
    MergeKey,
    MergeTask,
    PruningStrategy,
    SourceFormat,
    SourceSpec,
)
from skipstone_core.errors import BadSpec
from skipstone_core.funnel import (
    EXACT_JOIN,
    NULL_KEYS,
    FunnelStage,
    LeftOut,
    PruneStage,
    false_positive_summary,
    funnel_summary,
    judge_stages,
    left_out_summary,
)
from skipstone_core.keys import KeyFamily
from skipstone_core.merging.merges import MergeColumn, pack_by_bytes, plan_merge, switched_off
from skipstone_core.reasons import Reason

TARGET = (
    MergeColumn(name="id", type="long", required=True),
    MergeColumn(name="name", type="string"),
    MergeColumn(name="price", type="decimal(9, 2)"),
)
SOURCE = (
    MergeColumn(name="key", type="int"),
    MergeColumn(name="name", type="string"),
    MergeColumn(name="op", type="string"),
    MergeColumn(name="seq", type="long"),
    MergeColumn(name="price", type="decimal(9, 2)"),
)
UPDATE = MergeClause(action=MergeAction.UPDATE)
DELETE = MergeClause(action=MergeAction.DELETE)
INSERT = MergeClause(action=MergeAction.INSERT)
TASK = MergeTask(
    source=SourceSpec(format=SourceFormat.PARQUET, paths=("changes",)),
    keys=(MergeKey(target="id", source="key"),),
    when_matched=(replace(DELETE, when="source.op = 'D'"), UPDATE),
    when_not_matched=(INSERT,),
    sequence_by="seq",
)


def refused(task: MergeTask, source: tuple[MergeColumn, ...] = SOURCE) -> BadSpec:
    with pytest.raises(BadSpec) as caught:
        plan_merge(task, TARGET, source)
    return caught.value


def test_plan_binds_keys_clauses_and_the_columns_it_needs() -> None:
    plan = plan_merge(TASK, TARGET, SOURCE)
    assert [(key.target, key.source, key.type.family) for key in plan.keys] == [("id", "key", KeyFamily.INTEGER)]
    assert plan.when_matched[1].values == {"name": "name", "price": "price"}
    assert plan.when_not_matched[0].values == {"name": "name", "price": "price", "id": "key"}
    assert plan.source_columns == ("key", "name", "op", "seq", "price")
    assert plan.target_columns == ("id", "name", "price")


def test_columns_nobody_needs_are_not_read() -> None:
    task = replace(TASK, when_matched=(DELETE,), when_not_matched=(), sequence_by=None)
    assert plan_merge(task, TARGET, SOURCE).source_columns == ("key",)


def test_mapping_feeds_columns_of_other_names() -> None:
    source = SourceSpec(format=SourceFormat.PARQUET, paths=("x",), mapping=(ColumnMapping(column="name", from_="op"),))
    plan = plan_merge(replace(TASK, source=source), TARGET, SOURCE)
    assert plan.when_matched[1].values["name"] == "op"


@pytest.mark.parametrize(
    ("task", "reason", "message"),
    [
        (replace(TASK, keys=()), Reason.INVALID_SPEC, "spec.keys: name 1 to 32 key columns"),
        (
            replace(TASK, keys=(MergeKey(target="nope", source="key"),)),
            Reason.KEY_COLUMN_MISSING,
            r"spec.keys\[0\]: the table has no column 'nope'",
        ),
        (
            replace(TASK, keys=(MergeKey(target="id", source="nope"),)),
            Reason.KEY_COLUMN_MISSING,
            r"spec.keys\[0\]: the source has no column 'nope': name one of",
        ),
        (
            replace(TASK, keys=(MergeKey(target="id", source="name"),)),
            Reason.KEY_TYPE_MISMATCH,
            r"spec.keys\[0\]: 'id' is long in the table but 'name' is string in the source",
        ),
        (
            replace(TASK, keys=(MergeKey(target="id", source="key"), MergeKey(target="id", source="seq"))),
            Reason.INVALID_SPEC,
            "a target column is named twice",
        ),
        (replace(TASK, when_matched=(), when_not_matched=()), Reason.INVALID_SPEC, "at least one clause"),
        (replace(TASK, when_matched=(INSERT,)), Reason.INVALID_SPEC, r"whenMatched\[0\].action: use Update or Delete"),
        (replace(TASK, when_not_matched=(DELETE,)), Reason.INVALID_SPEC, r"whenNotMatched\[0\].action: use Insert"),
        (replace(TASK, when_matched=(UPDATE, DELETE)), Reason.INVALID_SPEC, "takes every row: put it last"),
        (
            replace(TASK, when_matched=(replace(DELETE, when="source.op ="),)),
            Reason.INVALID_SPEC,
            r"spec.whenMatched\[0\].when: at position 12",
        ),
        (
            replace(TASK, when_not_matched=(replace(INSERT, when="target.id = 1"),)),
            Reason.INVALID_SPEC,
            "there is no column target.id",
        ),
        (
            replace(TASK, when_matched=(replace(UPDATE, values={"nope": "name"}),)),
            Reason.COLUMN_NOT_FOUND,
            "spec.whenMatched.*set: the table has no column 'nope'",
        ),
        (
            replace(TASK, when_matched=(replace(UPDATE, values={"name": "nope"}),)),
            Reason.SOURCE_COLUMN_MISSING,
            "set.name: the source has no column 'nope': name one of",
        ),
        (
            replace(TASK, when_matched=(replace(UPDATE, values={"price": "name"}),)),
            Reason.SCHEMA_MISMATCH,
            r"'name' is string in the source and cannot feed 'price', which is decimal\(9, 2\): write cast",
        ),
        (
            replace(TASK, when_matched=(replace(DELETE, values={"name": "name"}),)),
            Reason.INVALID_SPEC,
            "Delete takes no columns",
        ),
        (
            replace(TASK, when_not_matched=(replace(INSERT, values={"name": "name"}),)),
            Reason.SOURCE_COLUMN_MISSING,
            "'id' is required in the table and nothing feeds it",
        ),
        (
            replace(TASK, sequence_by="nope"),
            Reason.SOURCE_COLUMN_MISSING,
            "spec.sequenceBy: the source has no column 'nope': name one of",
        ),
    ],
)
def test_refused_with_reason_and_field(task: MergeTask, reason: Reason, message: str) -> None:
    error = refused(task)
    assert error.reason is reason
    assert pytest.raises(BadSpec, match=message).matches(error)


@pytest.mark.parametrize("form", [SourceFormat.CSV, SourceFormat.JSON])
def test_sequence_of_an_untyped_source_must_be_declared(form: SourceFormat) -> None:
    source = SourceSpec(format=form, paths=("x",))
    error = refused(replace(TASK, source=source))
    assert "declare it in spec.source.columns" in str(error)
    declared = replace(source, columns=(ColumnSpec(name="seq", type="long"),))
    assert plan_merge(replace(TASK, source=declared), TARGET, SOURCE).sequence_by == "seq"


def test_sequence_that_the_table_types_needs_no_declaration() -> None:
    source = SourceSpec(format=SourceFormat.CSV, paths=("x",))
    task = replace(TASK, source=source, sequence_by="price")
    assert plan_merge(task, TARGET, SOURCE).sequence_by == "price"


def test_sequence_needs_an_order() -> None:
    source = (*SOURCE, MergeColumn(name="tags", type="list<string>"))
    assert refused(replace(TASK, sequence_by="tags"), source).reason is Reason.COLUMN_TYPE_UNSUPPORTED


@settings(deadline=None)
@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(1, 8))
def test_packing_uses_every_item_once_and_balances(sizes: list[int], bins: int) -> None:
    packed = pack_by_bytes(sizes, bins)
    assert sorted(index for one in packed for index in one) == list(range(len(sizes)))
    assert len(packed) <= bins
    assert all(packed)
    loads = [sum(max(1, sizes[i]) for i in one) for one in packed]
    if len(packed) == bins:
        assert max(loads) - min(loads) <= max(max(sizes), 1)


def test_funnel_in_one_line() -> None:
    stages = judge_stages(
        [
            FunnelStage(name=NULL_KEYS, files_in=400, files_out=400),
            FunnelStage(name="Partitions", files_in=400, files_out=400, left_out=LeftOut.NOT_PARTITIONED_BY_KEY),
            FunnelStage(name="KeyRanges", files_in=400, files_out=12),
            FunnelStage(name=EXACT_JOIN, files_in=12, files_out=4),
        ],
        4,
    )
    assert funnel_summary(stages) == "total 400 > NullKeys 400 > KeyRanges 12 > ExactJoin 4"
    assert false_positive_summary(stages) == "KeyRanges 66.7 %"
    assert left_out_summary(stages) == "Partitions NotPartitionedByKey"
    assert [stage.untouched for stage in stages] == [396, 396, 8, 0]
    assert funnel_summary([]) == false_positive_summary([]) == left_out_summary([]) == ""


def test_a_stage_that_lets_nothing_through_has_no_false_positives() -> None:
    (stage,) = judge_stages([FunnelStage(name="KeyRanges", files_in=3, files_out=0)], 0)
    assert stage.false_positive_rate == "0.0 %"


def test_stages_are_switched_off_by_strategy_and_by_name() -> None:
    assert switched_off(TASK) == {}
    assert set(switched_off(replace(TASK, pruning=PruningStrategy.NONE))) == set(PruneStage)
    only_bounds = replace(TASK, pruning=PruningStrategy.MIN_MAX, disabled_stages=(PruneStage.PARTITIONS,))
    assert switched_off(only_bounds) == {
        PruneStage.BLOOM: "spec.pruning.strategy is MinMax",
        PruneStage.KEY_INDEX: "spec.pruning.strategy is MinMax",
        PruneStage.PARTITIONS: "spec.pruning.disabledStages names it",
    }


def test_target_where_is_about_rows_that_match() -> None:
    assert plan_merge(TASK, TARGET, SOURCE).target_where is None
    plan = plan_merge(replace(TASK, target_where="target.price > 1 and target.name is not null"), TARGET, SOURCE)
    assert plan.target_where is not None
    for text, hint in (
        ("source.other = 'D'", "there is no column source.other"),
        ("name = 'a'", "write source.name or target.name"),
        ("target.other = 1", "there is no column target.other"),
        ("target.name = 1", "do not compare"),
        ("target.name =", "spec.targetWhere"),
    ):
        error = refused(replace(TASK, target_where=text))
        assert hint in str(error)
        assert "spec.targetWhere" in str(error)


@pytest.mark.parametrize("code", LeftOut)
def test_the_guide_says_why_a_stage_was_left_out(code: LeftOut) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "merging.md").read_text()
    assert f"| `{code}` | {code.sentence} |" in guide
