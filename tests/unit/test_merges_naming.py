"""Names that differ in case only: the task with exact names, and what a name that is not clear is told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from skipstone_core.contract.columns import MatchNames
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
from skipstone_core.merging.merges import MergeColumn, plan_merge
from skipstone_core.merging.naming import with_exact_names

TARGET = (
    MergeColumn(name="id", type="int"),
    MergeColumn(name="userCode", type="string"),
    MergeColumn(name="n", type="long"),
    MergeColumn(name="s.Aa", type="long", is_field=True),
    MergeColumn(name="s", type="struct<1: Aa: optional long>"),
)
SOURCE = ("ID", "usercode", "N", "seq", "After")
TASK = MergeTask(
    source=SourceSpec(
        format=SourceFormat.JSON,
        paths=("x",),
        columns=(ColumnSpec(name="SEQ", type="long"),),
        match_names=MatchNames.IGNORE_CASE,
    ),
    keys=(MergeKey(target="Id", source="id"),),
    sequence_by="Seq",
    target_where="target.ID > 1 and Source.n % 2 = 0 and source.`after`.x is null and target.S.aA = 1",
    when_matched=(
        MergeClause(action=MergeAction.DELETE, when="source.UserCode like 'Source.n%' or target.usercode = 'x'"),
        MergeClause(
            action=MergeAction.UPDATE, values={"USERCODE": "coalesce(usercode, target.USERCODE)", "N": "default"}
        ),
    ),
    when_not_matched=(MergeClause(action=MergeAction.INSERT),),
)


def test_names_become_those_of_columns() -> None:
    exact = with_exact_names(TASK, TARGET, SOURCE)
    assert exact.keys == (MergeKey(target="id", source="ID"),)
    assert exact.sequence_by == "seq"
    assert exact.source.columns[0].name == "seq"
    assert exact.source.mapping == (
        ColumnMapping(column="id", from_="ID"),
        ColumnMapping(column="userCode", from_="usercode"),
        ColumnMapping(column="n", from_="N"),
    )
    assert exact.target_where == (
        "target.`id` > 1 and source.`N` % 2 = 0 and source.`After`.`x` is null and target.`s`.`Aa` = 1"
    )
    assert exact.when_matched[0].when == "source.`usercode` like 'Source.n%' or target.`userCode` = 'x'"
    assert exact.when_matched[1].values == {"userCode": "coalesce(usercode, target.`userCode`)", "n": "default"}
    types = {"ID": "int", "usercode": "string", "N": "long", "seq": "long", "After.x": "long"}
    plan = plan_merge(exact, TARGET, [MergeColumn(name=name, type=kind) for name, kind in types.items()])
    assert plan.when_not_matched[0].values == {"id": "ID", "userCode": "usercode", "n": "N"}


def test_exact_names_stay_as_they_are() -> None:
    task = replace(TASK, source=replace(TASK.source, match_names=None))
    assert with_exact_names(task, TARGET, SOURCE) is task
    twins = with_exact_names(replace(TASK, sequence_by="seq"), TARGET, (*SOURCE, "SEQ"))
    assert twins.sequence_by == "seq"


def test_a_name_that_may_be_two_columns_is_refused() -> None:
    with pytest.raises(BadSpec, match=r"spec\.source\.matchNames: 'Seq' may be 'seq' or 'SEQ' of the source") as caught:
        with_exact_names(TASK, TARGET, (*SOURCE, "SEQ"))
    assert "set it to Exact" in str(caught.value)
    with pytest.raises(BadSpec, match=r"'userCode' may be 'usercode' or 'USERCODE' of the source"):
        with_exact_names(TASK, TARGET, (*SOURCE, "USERCODE"))
