"""Several changes of one key: what they come to is what applying them to a dictionary, one by one, makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone.kernels.histories.composing import compose
from skipstone.kernels.histories.finding import Histories
from skipstone.kernels.partial import pack_bits
from skipstone_core.contract.requests import MergeAction, MergeClause, MergeKey, MergeTask, SourceFormat, SourceSpec
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.merging.merges import KEPT_COLUMN, MergeColumn, MergePlan, RepeatedKeys, plan_merge

PRESENT = MergeClause(action=MergeAction.UPDATE, present=True)
DELETE, INSERT = MergeClause(action=MergeAction.DELETE), MergeClause(action=MergeAction.INSERT)
MATCHED = (
    MergeClause(action=MergeAction.DELETE, when="source.op = 'D' or (source.op = 'G' and target.a > 1)"),
    MergeClause(action=MergeAction.UPDATE, when="source.op = 'F'"),
    MergeClause(action=MergeAction.UPDATE, when="source.op = 'L'", values={"b": "'literal'", "a": "a"}),
    PRESENT,
)
LIVES = MergeClause(action=MergeAction.INSERT, when="source.op != 'D' and source.op != 'N'")
TARGET = [MergeColumn(name=name, type=kind) for name, kind in (("id", "long"), ("a", "long"), ("b", "string"))]
VERSION = MergeColumn(name="version", type="long")
SOURCE = [
    MergeColumn(name=name, type=kind)
    for name, kind in (("id", "long"), ("a", "long"), ("b", "string"), ("op", "string"), ("seq", "long"))
]
KINDS = {"long": pa.int64(), "string": pa.string(), "binary": pa.binary()}
Row = dict[str, Any]


def plan_of(**fields: Any) -> MergePlan:
    source = SourceSpec(format=SourceFormat.PARQUET, paths=("x",))
    keys = (MergeKey(target="id", source="id"),)
    fields = {"when_matched": MATCHED, "when_not_matched": (LIVES,), "sequence_by": "seq", **fields}
    target = [*TARGET, VERSION] if "target_sequence" in fields else TARGET
    return plan_merge(MergeTask(source=source, keys=keys, **fields), target, SOURCE)


def composed(plan: MergePlan, histories: Sequence[list[Row]], rows: Sequence[Row] | None) -> list[Row | None]:
    """What ``compose`` makes of rows, None where one is gone. ``rows`` None: the table does not have them."""
    changes = [row for history in histories for row in history]
    assert plan.partial is not None
    bits = pack_bits(np.array([[name not in row for name in plan.partial.columns] for row in changes]))
    table = pa.Table.from_pylist(changes, schema=pa.schema([(one.name, KINDS[one.type]) for one in SOURCE]))
    table = table.append_column(KEPT_COLUMN, bits)
    stops = np.cumsum([len(history) for history in histories])
    starts = stops - [len(history) for history in histories]
    kinds = {one.name: KINDS[one.type] for one in (*TARGET, VERSION)}
    required = {"id"} if rows is not None else set()  # as files hold it
    schema = pa.schema([pa.field(name, kinds[name], nullable=name not in required) for name in plan.target_columns])
    given_rows = rows if rows is not None else [dict.fromkeys(plan.target_columns) for _ in histories]
    batch = pa.RecordBatch.from_pylist(list(given_rows), schema=schema)
    found = compose(plan, Histories(table, starts, stops), batch, exist=rows is not None)
    return [row if alive else None for row, alive in zip(found.rows.to_pylist(), found.alive, strict=True)]


def replayed(row: Row | None, history: list[Row], *, stored: bool) -> Row | None:
    """The same by a dictionary."""
    for change in history:
        op, seq = change["op"], {"version": change["seq"]} if stored else {}
        if row is None:
            if op not in ("D", "N"):
                row = {"id": change["id"], "a": change.get("a"), "b": change.get("b"), **seq}
        elif stored and change["seq"] < row["version"]:
            continue
        elif op == "D" or (op == "G" and (row["a"] or 0) > 1):
            row = None
        elif op == "F":
            row |= {"a": change.get("a"), "b": change.get("b"), **seq}
        elif op == "L":
            row |= {"a": change.get("a"), "b": "literal", **seq}
        else:
            row |= {name: change[name] for name in ("a", "b") if name in change} | seq
    return row


values = st.fixed_dictionaries(
    {"op": st.sampled_from(["U", "U", "U", "D", "F", "G", "L", "N"])},
    optional={"a": st.none() | st.integers(0, 3), "b": st.none() | st.sampled_from(["x", "y"])},
)
histories_of = st.lists(st.lists(values, min_size=1, max_size=6), min_size=1, max_size=5)


@settings(deadline=None, max_examples=60)
@given(histories_of, st.booleans(), st.booleans(), st.integers(0, 7))
def test_changes_come_to_what_a_dictionary_comes_to(
    drawn: list[list[Row]], exist: bool, stored: bool, version: int
) -> None:
    histories = [[{**row, "id": key, "seq": at} for at, row in enumerate(one)] for key, one in enumerate(drawn)]
    told = {"version": version} if stored else {}
    rows = [{"id": key, "a": 2, "b": "old", **told} for key in range(len(drawn))] if exist else None
    plan = plan_of(**({"target_sequence": "version"} if stored else {}))
    expected = [
        replayed(dict(rows[key]) if rows else None, history, stored=stored) for key, history in enumerate(histories)
    ]
    assert composed(plan, histories, rows) == expected


def test_a_change_of_a_row_that_left_the_match_is_refused() -> None:
    rows, leaving = [{"id": 1, "a": 1, "b": "x"}], {"id": 1, "seq": 1, "op": "U", "a": 9}
    plan = plan_of(target_where="target.a < 5")
    assert composed(plan, [[leaving]], rows) == [{"id": 1, "a": 9, "b": "x"}]
    with pytest.raises(BadData, match=r"moves it out of spec\.targetWhere, and the source has a later change"):
        composed(plan, [[leaving, {"id": 1, "seq": 2, "op": "U", "b": "y"}]], rows)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, RepeatedKeys.COMPOSED),
        ({"when_matched": (DELETE,)}, RepeatedKeys.LAST),
        ({"sequence_by": None}, RepeatedKeys.REFUSED),
        ({"sequence_by": None, "when_matched": (DELETE,)}, RepeatedKeys.EACH),
        ({"sequence_by": None, "when_matched": (DELETE,), "when_not_matched": ()}, RepeatedKeys.ANY),
        (
            {"sequence_by": None, "when_matched": (MergeClause(action=MergeAction.DELETE, when="source.a = 1"),)},
            RepeatedKeys.REFUSED,
        ),
        ({"sequence_by": None, "when_matched": (), "when_not_matched": (INSERT,)}, RepeatedKeys.EACH),
        ({"sequence_by": None, "when_matched": (), "when_not_matched_by_source": (DELETE,)}, RepeatedKeys.REFUSED),
    ],
)
def test_which_merges_take_several_rows_of_one_key(fields: dict[str, Any], expected: RepeatedKeys) -> None:
    assert plan_of(**fields).repeated_keys is expected


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"when_matched": (MergeClause(action=MergeAction.UPDATE, present=True, values={"a": "a"}),)},
         r"spec\.whenMatched\[0\]\.columns: Present takes columns by their names"),
        ({"when_matched": (MergeClause(action=MergeAction.DELETE, present=True),)},
         r"spec\.whenMatched\[0\]\.columns: Present is for the action Update"),
        ({"when_not_matched": (MergeClause(action=MergeAction.INSERT, present=True),)},
         r"spec\.whenNotMatched\[0\]\.columns: Present is for the action Update"),
    ],
)  # fmt: skip
def test_present_is_refused_where_it_means_nothing(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(BadSpec, match=said):
        plan_of(**fields)
