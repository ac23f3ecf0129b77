"""The keys in rows of a part of a plan that ran, as values of the columns that they narrow.

Used by ``choosing``. Values are taken as Catalyst holds them: not all of them have a form in Python. Must not run
anything but a projection of rows that are here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from skipstone_core.language import predicates as core

from skipstone.compat.catalyst import DATASETS, EXPRESSION_UTILS, Expression, LiteralSeq, LogicalPlan
from skipstone.compat.java import java_class, scala_object, scala_seq_of
from skipstone.compat.pyspark import with_null_marks
from skipstone.query.plans.analysis.literals import UUID_TYPE, held, uuid_of
from skipstone.query.plans.analysis.longlists import texts_of_rows
from skipstone.query.plans.planning import Session

_BINARY = "binary"


@dataclass(frozen=True)
class Keys:
    """Different keys, and whether null is among them besides."""

    values: tuple[core.Constant, ...]
    has_null: bool


def keys_of(session: Session, rows: LogicalPlan, expression: Expression, kind: str) -> Keys | None:
    """The values of an ``expression`` on some rows, for a column of a ``kind`` of literals; None when Python has no
    form of some.
    """
    jvm = session.jvm
    column = scala_object(jvm, EXPRESSION_UTILS).column(expression)
    dataset = java_class(jvm, DATASETS).ofRows(session.java, rows)
    execution = with_null_marks(dataset, session.spark, column, in_digits=kind == _BINARY).queryExecution()
    found = cast(LiteralSeq, scala_seq_of(jvm, execution.executedPlan().executeCollect()))
    texts = texts_of_rows(jvm, found, execution.analyzed().schema())
    values = [held(text, kind) for is_null, text in texts if is_null == "false" and _may_be(text, kind)]
    known = tuple(value for value in values if value is not None)
    has_null = any(is_null == "true" for is_null, _ in texts)
    return Keys(known, has_null) if len(known) == len(values) else None


def _may_be(text: str, kind: str) -> bool:
    """Whether a value may be one of the column: Spark shows UUIDs in one form only."""
    return kind != UUID_TYPE or uuid_of(text) is not None
