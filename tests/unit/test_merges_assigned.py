"""What clauses assign: source columns and literals that fit, the stored sequence, and columns that merges add."""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from skipstone_core.contract.requests import (
    ColumnMapping,
    MergeAction,
    MergeClause,
    MergeKey,
    MergeTask,
    SchemaEvolution,
    SourceFormat,
    SourceSpec,
)
from skipstone_core.errors import BadSpec
from skipstone_core.language.expressions import check_expression, with_sides
from skipstone_core.language.literals import Unfit, fit_literal
from skipstone_core.language.parser import parse_assigned
from skipstone_core.language.predicates import ColumnRef, Constant
from skipstone_core.merging.evolution import new_columns
from skipstone_core.merging.merges import MergeColumn, MergePlan, plan_merge
from skipstone_core.reasons import Reason

TARGET = (
    MergeColumn(name="id", type="long", required=True),
    MergeColumn(name="name", type="string"),
    MergeColumn(name="price", type="decimal(9, 2)"),
    MergeColumn(name="day", type="date"),
    MergeColumn(name="version", type="long"),
    MergeColumn(name="tags", type="list<string>"),
)
SOURCE = (
    MergeColumn(name="id", type="long"),
    MergeColumn(name="name", type="string"),
    MergeColumn(name="old name", type="string"),
    MergeColumn(name="op", type="string"),
    MergeColumn(name="seq", type="int"),
    MergeColumn(name="extra", type="date"),
)
TASK = MergeTask(
    source=SourceSpec(format=SourceFormat.PARQUET, paths=("changes",)),
    keys=(MergeKey(target="id", source="id"),),
    when_matched=(MergeClause(action=MergeAction.UPDATE),),
    when_not_matched=(MergeClause(action=MergeAction.INSERT),),
)
EUROPE = timezone(timedelta(hours=2))


def update(**values: str) -> MergeTask:
    return replace(TASK, when_matched=(MergeClause(action=MergeAction.UPDATE, values=values),))


def by_source(action: MergeAction, when: str | None = None, **values: str) -> MergeTask:
    clause = MergeClause(action=action, when=when, values=values or None)
    return replace(TASK, when_not_matched_by_source=(clause,))


def inserting(**values: str) -> MergeTask:
    return replace(TASK, when_not_matched=(MergeClause(action=MergeAction.INSERT, values=values),))


def plan(task: MergeTask) -> MergePlan:
    return plan_merge(task, TARGET, SOURCE)


def test_a_column_or_a_literal_is_assigned() -> None:
    task = update(name="`old name`", price="1.5", day="date '2024-02-29'", version="source.seq", tags="null")
    (clause,) = plan(task).when_matched
    assert clause.values == {"name": "old name", "version": "seq"}
    assert clause.literals == {"price": Decimal("1.50"), "day": date(2024, 2, 29), "tags": None}


def test_columns_of_literals_need_no_source_column() -> None:
    assert plan(update(name="'x'")).source_columns == ("id", "name")
    assert plan(replace(update(name="'x'"), when_not_matched=())).source_columns == ("id",)


def test_an_expression_is_assigned_in_the_type_of_its_column() -> None:
    task = update(version="seq + target.version", price="target.price * 2", tags="target.tags", name="`old name` || op")
    bound = plan(replace(task, when_not_matched=()))
    (clause,) = bound.when_matched
    assert clause.assigned == {"version", "price", "tags", "name"}
    assert {name: one.type for name, one in clause.expressions.items()} == {
        "version": "long",
        "price": "decimal(9,2)",
        "tags": "list<string>",
        "name": "string",
    }
    assert clause.computed_from("target") == {"version", "price", "tags"}
    assert bound.source_columns == ("id", "old name", "op", "seq")
    assert pickle.loads(pickle.dumps(clause)) == clause


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("seq + 1", "int"),
        ("seq + id", "long"),
        ("seq / 2", "double"),
        ("seq * 1.5", "decimal(13,1)"),
        ("target.price + 1", "decimal(10,2)"),
        ("target.price + target.version", "decimal(23,2)"),
        ("target.price * target.price", "decimal(19,4)"),
        ("target.price / 3", "decimal(13,6)"),
        ("target.price / target.price", "decimal(21,12)"),
        ("target.price % 3", "decimal(3,2)"),
        ("coalesce(seq, 0)", "int"),
        ("coalesce(null, target.price, seq)", "decimal(12,2)"),
        ("coalesce(extra, timestamp '2024-01-01 00:00:00')", "timestamp"),
        ("coalesce(target.price, 1e0)", "double"),
        ("round(target.price, 1)", "decimal(9,1)"),
        ("9223372036854775808 - 1", "decimal(20,0)"),
        ("- seq", "int"),
        ("cast(name as decimal( 5 , 1 ))", "decimal(5,1)"),
    ],
)
def test_the_type_of_an_expression_is_that_of_spark(text: str, kind: str) -> None:
    types = {f"target.{one.name}": one.type for one in TARGET} | {f"source.{one.name}": one.type for one in SOURCE}
    term = parse_assigned(text)
    assert not isinstance(term, ColumnRef | Constant | None)
    assert check_expression(with_sides(term), types, text=text, field="f").type == kind


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("x", ColumnRef("", "x")),
        ("source.x", ColumnRef("source", "x")),
        ("`a b`", ColumnRef("", "a b")),
        ("'it''s'", Constant("it's")),
        ("-1.50", Constant(Decimal("-1.50"))),
        ("true", Constant(value=True)),
        ("NULL", None),
        ("nullable", ColumnRef("", "nullable")),
        ("(source.after.id)", ColumnRef("source", "after.id")),
        ("after.`a.b`", ColumnRef("", "after.`a.b`")),
        ("source.source.ts", ColumnRef("source", "source.ts")),
        ("cast", ColumnRef("", "cast")),
        ("- 5", Constant(-5)),
    ],
)
def test_assigned_text(text: str, meaning: object) -> None:
    assert parse_assigned(text) == meaning


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (update(name="a b"), r"spec.whenMatched\[0\].set.name: at position 3: 'b' is not expected here"),
        (
            update(name="op + 1"),
            r"set.name: \+ needs numbers and source.op is string: cast it, as in cast",
        ),
        (
            update(name="upper(name)"),
            r"at position 1: upper\(…\) is not known: use coalesce, concat, round, to_date or cast",
        ),
        (update(name=""), "set.name: at position 1: the text ends too early"),
        (update(name="date 'never'"), r"at position 6: 'never' is not like date '2024-12-31'"),
        (
            update(name="target.nope + 1"),
            "no column target.nope: name one of day, id, name, price, tags and 1 more",
        ),
        (update(name="Name || 'x'"), "there is no column source.Name: write source.name, names are exact"),
        (
            update(name="coalesce(name, seq)"),
            "coalesce takes values of one type, and source.name is string",
        ),
        (
            update(name="concat(name, seq)"),
            r"source.seq is int: write cast\(source.seq as string\)",
        ),
        (update(name="cast(seq as uuid)"), "cast to uuid is not possible: cast to boolean, int"),
        (update(name="cast(target.tags as string)"), "target.tags is list<string>, which is not cast to string"),
        (
            update(name="round(target.price)"),
            r"round takes a number and the digits to keep after",
        ),
        (update(name="seq * 2"), r"set.name: 'seq \* 2' is int and cannot feed 'name', which is string: write cast"),
        (update(price="seq / 2"), r"'seq / 2' is double and cannot feed 'price', which is decimal\(9, 2\): write cast"),
        (update(tags="name || 'x'"), "cannot feed 'tags', which is list<string>: give it a value of type list<string>"),
        (update(name="'a' ||" + " name ||" * 70 + " 'b'"), "an expression has at most 64 columns, literals"),
        (update(name="(" * 40 + "name" + ")" * 40), "parentheses are nested more than 32 deep"),
        (inserting(id="id", name="target.name"), "target.name is a column of the table, and these rows"),
        (
            by_source(MergeAction.UPDATE, name="coalesce(op, 'x')"),
            "source.op is a column of the source, and",
        ),
        (
            update(name="1"),
            "set.name: 1 does not fit 'name', which is string: it is of another type; write it in single quotes",
        ),
        (update(price="1.234"), r"1.234 does not fit 'price', which is decimal\(9, 2\): it has more than 2 digits"),
        (update(version="1.5"), "1.5 does not fit 'version', which is long: it is not a whole number"),
        (update(version="9223372036854775808"), "does not fit 'version', which is long: it is out of range"),
        (update(tags="'x'"), "which is list<string>: only null can be written there"),
        (update(id="null"), "set.id: 'id' is required in the table and cannot be null"),
        (update(nope="1"), "the table has no column 'nope'"),
        (by_source(MergeAction.UPDATE), r"spec.whenNotMatchedBySource\[0\].set: an Update of rows that the source"),
        (by_source(MergeAction.UPDATE, name="op"), "set.name: op is a column, and these rows have no source row"),
        (by_source(MergeAction.DELETE, name="'x'"), "Delete takes no columns"),
        (by_source(MergeAction.INSERT), "action: use Update or Delete"),
        (by_source(MergeAction.DELETE, when="source.op = 'D'"), "there is no column source.op"),
        (by_source(MergeAction.DELETE, when="target.id ="), r"spec.whenNotMatchedBySource\[0\].when: at position 12"),
    ],
)
def test_what_cannot_be_assigned_is_refused(task: MergeTask, message: str) -> None:
    with pytest.raises(BadSpec, match=message):
        plan(task)


def test_rows_without_a_source_row_get_literals() -> None:
    (clause,) = plan(by_source(MergeAction.UPDATE, when="target.price > 1", name="'gone'")).when_not_matched_by_source
    assert (clause.values, clause.literals) == ({}, {"name": "gone"})
    assert clause.when is not None


def test_a_merge_may_only_tidy_up() -> None:
    task = replace(by_source(MergeAction.DELETE), when_matched=(), when_not_matched=())
    assert [clause.action for clause in plan(task).target_clauses] == [MergeAction.DELETE]


def test_inserts_take_the_defaults_of_columns_that_nothing_feeds() -> None:
    target = (*TARGET, MergeColumn(name="state", type="string", required=True, default="new"))
    (clause,) = plan_merge(TASK, target, SOURCE).when_not_matched
    assert clause.literals == {"state": "new"}
    chosen = MergeClause(action=MergeAction.INSERT, values={"id": "id", "state": "'mine'"})
    (clause,) = plan_merge(replace(TASK, when_not_matched=(chosen,)), target, SOURCE).when_not_matched
    assert clause.literals == {"state": "mine"}


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (True, "boolean", True),
        (2**31 - 1, "int", 2**31 - 1),
        (-(2**63), "long", -(2**63)),
        (1, "double", 1.0),
        (Decimal("0.1"), "double", 0.1),
        (Decimal("0.1"), "float", 0.10000000149011612),
        (1e300, "double", 1e300),
        (7, "decimal(9,2)", Decimal("7.00")),
        (Decimal("9999999999999999999999999999.9999999999"), "decimal(38, 10)", None),
        ("x", "string", "x"),
        (date(2024, 1, 1), "date", date(2024, 1, 1)),
        (date(2024, 1, 1), "timestamp", datetime(2024, 1, 1)),  # noqa: DTZ001
        (datetime(2024, 1, 1), "timestamptz", datetime(2024, 1, 1, tzinfo=EUROPE)),  # noqa: DTZ001
        (datetime(2024, 1, 1, tzinfo=UTC), "timestamptz", datetime(2024, 1, 1, tzinfo=UTC)),
    ],
)
def test_literals_that_fit(value: Any, kind: str, expected: object) -> None:
    assert fit_literal(value, kind, EUROPE) == (value if expected is None else expected)


@pytest.mark.parametrize(
    ("value", "kind", "why"),
    [
        (1, "boolean", "another type"),
        (True, "int", "another type"),
        (2**31, "int", "out of range"),
        (Decimal("1.0"), "long", "not a whole number"),
        (1e39, "float", "out of range"),
        (10**400, "double", "out of range"),
        (10**7, "decimal(9,2)", "too many digits"),
        (Decimal("0.001"), "decimal(9,2)", "more than 2 digits after the point"),
        (1e2, "decimal(9,2)", "exponent"),
        (date(2024, 1, 1), "string", "another type"),
        ("2024-01-01", "date", "another type"),
        (datetime(2024, 1, 1), "date", "another type"),  # noqa: DTZ001
        (datetime(2024, 1, 1, tzinfo=UTC), "timestamp", "offset"),
        ("00000000-0000-0000-0000-000000000001", "uuid", "only null"),
        (1, "time", "only null"),
        ("x", "struct<1: a: optional int>", "only null"),
    ],
)
def test_literals_that_do_not_fit(value: Any, kind: str, why: str) -> None:
    with pytest.raises(Unfit, match=why):
        fit_literal(value, kind, UTC)


# --- the sequence that the table keeps ---

SEQUENCED = replace(TASK, sequence_by="seq", target_sequence="version")


def test_every_written_row_keeps_its_sequence() -> None:
    task = replace(SEQUENCED, when_matched=(MergeClause(action=MergeAction.UPDATE, values={"name": "name"}),))
    bound = plan(task)
    assert bound.stored_sequence is not None
    assert (bound.stored_sequence.target, bound.stored_sequence.source) == ("version", "seq")
    assert bound.when_matched[0].values == {"name": "name", "version": "seq"}
    assert bound.when_not_matched[0].values["version"] == "seq"


@pytest.mark.parametrize(
    ("task", "reason", "message"),
    [
        (replace(SEQUENCED, sequence_by=None), Reason.INVALID_SPEC, "spec.targetSequence: it needs sequenceBy"),
        (replace(SEQUENCED, target_sequence="nope"), Reason.COLUMN_NOT_FOUND, "the table has no column 'nope'"),
        (replace(SEQUENCED, sequence_by="nope"), Reason.SOURCE_COLUMN_MISSING, "the source has no column 'nope'"),
        (
            replace(SEQUENCED, target_sequence="name"),
            Reason.SCHEMA_MISMATCH,
            "spec.targetSequence: 'name' is string in the table but 'seq' is int in the source",
        ),
        (
            replace(SEQUENCED, when_matched=(MergeClause(action=MergeAction.UPDATE, values={"version": "7"}),)),
            Reason.INVALID_SPEC,
            r"spec.whenMatched\[0\].set.version: 'version' keeps the sequence of each row's last change",
        ),
    ],
)
def test_a_stored_sequence_that_cannot_work_is_refused(task: MergeTask, reason: Reason, message: str) -> None:
    with pytest.raises(BadSpec, match=message) as caught:
        plan(task)
    assert caught.value.reason is reason


# --- columns that the source has and the table has not ---

EVOLVING = replace(TASK, schema_evolution=SchemaEvolution.ADD_COLUMNS)


def added(task: MergeTask) -> list[tuple[str, str]]:
    return [(column.name, column.type) for column in new_columns(task, TARGET, SOURCE)]


def test_columns_are_added_only_when_asked_for() -> None:
    assert added(TASK) == []
    assert added(replace(EVOLVING, sequence_by="seq")) == [
        ("old name", "string"), ("op", "string"), ("extra", "date")
    ]  # fmt: skip


def test_columns_that_steer_the_merge_are_not_added() -> None:
    clauses = (MergeClause(action=MergeAction.DELETE, when="source.op = 'D'"), *TASK.when_matched)
    mapping = (ColumnMapping(column="name", from_="old name"),)
    source = replace(TASK.source, mapping=mapping)
    assert added(replace(EVOLVING, when_matched=clauses, source=source, sequence_by="seq")) == [("extra", "date")]


def test_clauses_that_choose_add_what_they_name() -> None:
    chosen = MergeClause(action=MergeAction.INSERT, values={"id": "id", "operation": "op", "note": "'x'"})
    task = replace(EVOLVING, when_matched=(MergeClause(action=MergeAction.DELETE),), when_not_matched=(chosen,))
    assert added(task) == [("operation", "string")]


def test_a_name_in_another_case_is_refused() -> None:
    with pytest.raises(BadSpec, match=r"spec\.schemaEvolution: 'NAME' would differ from column 'name' in case only"):
        new_columns(EVOLVING, TARGET, (*SOURCE, MergeColumn(name="NAME", type="string")))


@pytest.mark.parametrize("name", ["_pos", "_skipstone_order", ""])
def test_a_name_that_no_table_should_get_is_refused(name: str) -> None:
    with pytest.raises(BadSpec, match=rf"spec\.schemaEvolution: a new column '{name}' has .*: rename it in the source"):
        new_columns(EVOLVING, TARGET, (*SOURCE, MergeColumn(name=name, type="string")))


def test_what_is_made_of_a_column_of_no_known_type_feeds_any_column() -> None:
    source = (*SOURCE, MergeColumn(name="empty", type="unknown"))
    update = MergeClause(action=MergeAction.UPDATE, values={"price": "round(empty, 2)", "day": "to_date(source.empty)"})
    (bound,) = plan_merge(replace(TASK, when_matched=(update,)), TARGET, source).when_matched
    assert {name: one.type for name, one in bound.expressions.items()} == {"price": "decimal(9,2)", "day": "date"}


def test_a_literal_may_be_longer_than_an_expression() -> None:
    text = "x" * 5_000
    assert parse_assigned(f"'{text}'") == Constant(text)
    with pytest.raises(BadSpec, match="an expression has at most 4096 bytes"):
        parse_assigned(f"'{text}' || 'y'")
