"""Spark's own SQL tests over indexed tables give what Spark gives, through ``skipstone.sql`` and in enabled sessions.

`make soak-sparksql` runs all inputs and tells in build/soak/sparksql.jsonl what became of each query. Each run takes
another state of the indexes for an input (SKIPSTONE_SOAK_SEED). `make test` runs one of a few inputs, another one for
each commit.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest
import skipstone
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from skipstone.query.plans.refusals import Refusal
from skipstone_core.indexing import use as index_use

from tests.examples import ALL_CASES, turn
from tests.spark.sparksql_bed import STATES, Sides, open_sides
from tests.spark.sparksql_inputs import input_names, read_input

SEED = int(os.environ.get("SKIPSTONE_SOAK_SEED", str(int(time.time()))))
REPORT = Path(__file__).parents[2] / "build" / "soak" / "sparksql.jsonl"
#: Inputs of few queries, of which `make test` takes one.
SHORT = (
    "except-all",
    "natural-join",
    "subquery/exists-subquery/exists-within-and-or",
    "subquery/in-subquery/in-multiple-columns",
    "subquery/in-subquery/in-nullability",
    "subquery/in-subquery/nested-not-in",
    "subquery/in-subquery/not-in-joins",
    "union",
)
LEAST_QUERIES = 500


@dataclass(frozen=True)
class Answer:
    """What a query gives: rows in no order and their type, or the error that it ends with."""

    rows: Counter[str] = field(default_factory=Counter)
    schema: str = ""
    error: str = ""

    def beside(self, expected: Answer) -> str:
        """What is different, for people."""
        more, less = (sorted((a.rows - b.rows).elements())[:5] for a, b in ((self, expected), (expected, self)))
        kind = f", {self.schema} for {expected.schema}" if self.schema != expected.schema else ""
        return self.error or f"has {more}, lacks {less}{kind}"


@dataclass
class Outcome:
    """What became of one query.

    ``verdict``: same; fails, in Spark too; unordered: it depends on the order of rows; of Spark: as plain Spark answers
    it on Iceberg tables, though not on rows in memory; different. ``rewritten``: relations read through indexes.
    ``joined``: relations narrowed by keys of joins. ``refusals``: codes of the other relations. ``warnings``: of both
    runs.
    """

    input: str
    state: str
    query: str
    verdict: str = "same"
    rewritten: int = 0
    joined: int = 0
    refusals: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    detail: str = ""


def answer_of(df: DataFrame) -> Answer:
    """Run a query."""
    try:
        return Answer(Counter(shown(row) for row in df.collect()), df.schema.simpleString())
    except (PySparkException, Py4JJavaError, ValueError, TypeError, OverflowError) as error:
        return Answer(error=str(error).splitlines()[0][:300])


def shown(value: object) -> str:
    """A value as text; digits of floats that depend on the order in which they were added are left out."""
    match value:
        case float():
            return f"{value:.10g}"
        case dict():
            return "{" + ", ".join(sorted(f"{shown(key)}: {shown(item)}" for key, item in value.items())) + "}"
        case tuple() | list():
            return "(" + ", ".join(shown(one) for one in value) + ")"
        case _:
            return repr(value)


@dataclass(frozen=True)
class Check:
    """Runs the queries of one input on all sides."""

    name: str
    sides: Sides
    caplog: pytest.LogCaptureFixture

    def queries(self) -> Iterator[Outcome]:
        """What becomes of each query that reads a table."""
        for statement in read_input(self.name).statements:
            if not statement.is_query:
                self.sides.command(statement.text)
                continue
            self.sides.prepare()
            found = self._query(statement.text)
            if found is not None:
                yield found

    def _query(self, text: str) -> Outcome | None:
        try:
            df, memory = (session.sql(text) for session in (self.sides.indexed, self.sides.memory))
        except (PySparkException, Py4JJavaError):
            return None
        self.caplog.clear()
        rewritten = skipstone.rewrite(df)
        explanation = skipstone.explain(rewritten)
        if not explanation.relations and explanation.refusal in (None, Refusal.COMMAND, Refusal.LOCAL_ROWS):
            return None
        outcome = Outcome(self.name, self.sides.state.name, text)
        codes = (one.refusal for one in (explanation, *explanation.relations))
        outcome.refusals = [code.value for code in codes if code is not None]
        outcome.rewritten = sum(one.is_rewritten for one in explanation.relations)
        self._compare(outcome, df, answer_of(rewritten), answer_of(memory))
        messages = [record.getMessage() for record in self.caplog.records]
        outcome.joined = sum("which ran first" in message for message in messages)
        outcome.warnings = [one.getMessage()[:300] for one in self.caplog.records if one.levelno >= logging.WARNING]
        return outcome

    def _compare(self, outcome: Outcome, df: DataFrame, found: Answer, expected: Answer) -> None:
        answers = {"found": found, "enabled": answer_of(self.sides.enabled.sql(outcome.query))}
        if expected.error:
            outcome.verdict, outcome.detail = "fails", expected.error
        elif any(one != expected for one in answers.values()):
            self._judge(outcome, df, answers, expected)

    def _judge(self, outcome: Outcome, df: DataFrame, answers: Mapping[str, Answer], expected: Answer) -> None:
        plain = answer_of(skipstone.no_index(df))
        others = [answer_of(session.sql(outcome.query)) for session in self.sides.shuffled]
        outcome.verdict = verdict(list(answers.values()), plain, [expected, *others])
        outcome.detail = "; ".join(
            f"{name} {answer.beside(expected)}" for name, answer in {**answers, "plain": plain}.items()
        )


def verdict(answers: list[Answer], plain: Answer, orders: list[Answer]) -> str:
    """Of a difference. ``orders``: the answers on rows in memory in several orders; an error is never one of order."""
    if any(one.error for one in answers):
        return "different"
    if any(one != orders[0] for one in orders):
        return "unordered"
    return "of Spark" if all(one in (plain, orders[0]) for one in answers) and plain != orders[0] else "different"


def cases() -> list[Any]:
    """All inputs, each with a state of the indexes; all but one are for a soak."""
    now = SHORT[turn(len(SHORT))]
    found = []
    for number, name in enumerate(input_names()):
        state = STATES[(number + (SEED if ALL_CASES else turn(len(STATES)))) % len(STATES)]
        marks = [] if name == now else [pytest.mark.soak, pytest.mark.timeout(0)]
        found.append(pytest.param(name, state, marks=marks, id=f"{name}-{state.name}"))
    return found


@pytest.fixture(scope="module")
def outcomes(spark: SparkSession) -> Iterator[list[Outcome]]:
    """What became of all queries."""
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.unlink(missing_ok=True)
    spark.sparkContext.setLogLevel("OFF")
    yield []
    spark.sparkContext.setLogLevel("WARN")


@pytest.fixture(autouse=True)
def _small_tables_are_worth_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_use, "FEW_ROWS_PART", 0.4)
    monkeypatch.setattr(index_use, "SMALL_SIDE_PART", 1.0)
    monkeypatch.setattr(index_use, "WORTH_A_JOB_BYTES", 0)


@pytest.mark.parametrize(("name", "state"), cases())
def test_the_answers_are_those_of_spark(  # noqa: PLR0917 - fixtures
    name: str,
    state: Any,
    spark: SparkSession,
    outcomes: list[Outcome],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, "SQLQueryContextLogger")  # half of the statements fail as they shall
    caplog.set_level(logging.INFO, "skipstone.query")  # the last one is that of the handler, too
    sides = open_sides(spark, tmp_path, read_input(name), state)
    found = []
    try:
        for outcome in Check(name, sides, caplog).queries():
            found.append(outcome)
            with REPORT.open("a") as report:
                report.write(json.dumps(asdict(outcome)) + "\n")
    finally:
        sides.close()
    outcomes.extend(found)
    if name in SHORT:
        assert any(one.rewritten for one in found)
    assert [one for one in found if one.verdict == "different"] == []
    assert [one for one in found if one.verdict != "fails" and Refusal.FAILED.value in one.refusals] == []


@pytest.mark.soak
def test_so_many_queries_were_run_through_indexes(outcomes: list[Outcome]) -> None:
    codes = Counter(code for one in outcomes for code in one.refusals)
    rewritten = [one for one in outcomes if one.rewritten]
    print(f"\n{len(outcomes)} queries: {dict(Counter(one.verdict for one in outcomes))}")
    print(f"{len(rewritten)} read relations through indexes; relations that did not: {dict(codes.most_common())}")
    print(f"{sum(one.joined > 0 for one in outcomes)} were narrowed by keys of joins in an enabled session")
    assert len(rewritten) >= LEAST_QUERIES
