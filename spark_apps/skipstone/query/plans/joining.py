"""Runs the small sides of joins first: the keys that they turn out to have narrow the relations on the other sides.

Called by ``rewriting``. What a small side gave stays in the query as rows, so nothing is run twice. Must not open
tables.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from pyspark.sql import SparkSession
from skipstone_core.indexing.use import ReadCost, is_small_side
from skipstone_core.language import predicates as core

from skipstone.compat.catalyst import (
    DATASETS,
    EXPRESSION_UTILS,
    LOCAL_RELATION,
    PROJECT,
    Dataset,
    JavaSession,
    LocalRelation,
    LogicalPlan,
    Relation,
)
from skipstone.compat.java import NONE, Jvm, items, java_class, scala_object, scala_seq_of
from skipstone.compat.pyspark import column_values
from skipstone.query.plans.analysis.catalyst import Node, descend, expression_id, plan_tree
from skipstone.query.plans.analysis.expressions import NO_TEXT, are_same_type
from skipstone.query.plans.analysis.joins import JoinedColumn, joined_columns
from skipstone.query.plans.analysis.longlists import with_sets
from skipstone.query.plans.analysis.normalize import normalized, with_joins_of_subqueries
from skipstone.query.plans.analysis.uses import Key, Scope, field_of, key_of
from skipstone.query.plans.explanation import Explanation
from skipstone.query.plans.replacing.rebuild import with_plans

logger = logging.getLogger("skipstone.query")

Path = tuple[int, ...]
_NOT_STREAMING = False
#: Nodes that see how often, or for which rows of another plan, what is below them runs.
_BOUND = frozenset({"CollectMetrics", "LateralJoin", "Sample", "UnionLoop", "UnionLoopRef"})
#: Leaves that are in the driver's memory already.
_HERE = frozenset({"LocalRelation", "OneRowRelation", "Range"})
#: Types of keys whose values PySpark gives as they are.
_KEYS = frozenset({"boolean", "integer", "long", "float", "double", "string", "date", "timestamp_ntz"})


@dataclass(frozen=True)
class Target:
    """A relation that keys could narrow.

    ``columns``: names and Iceberg types of the columns that lead an index and that no condition compares yet, by
    attribute id. ``cost``: of reading what the relation's own conditions leave.
    """

    columns: Mapping[int, tuple[str, str]]
    cost: ReadCost


@dataclass(frozen=True)
class KeysOfJoin:
    """What a join says of a relation's rows: ``condition``; ``keys`` of a side that ran first and gave ``rows``."""

    column: str
    keys: int
    rows: int
    condition: core.InList

    def text(self) -> str:
        """For explain."""
        return f"joined by {self.column}: {self.keys} keys of the other side, which ran first and gave {self.rows} rows"


@dataclass(frozen=True)
class Joined:
    """A query with rows in place of the small sides of its joins. ``sides``: what became of their relations."""

    plan: LogicalPlan
    keys: Mapping[Key, tuple[KeysOfJoin, ...]]
    sides: tuple[Explanation, ...]


@dataclass(frozen=True, eq=False)
class Runner:
    """How sides are run. ``prepare``: the Dataset of a plan, through indexes. ``target``: a relation as keys see it;
    None for one that they cannot narrow. ``most_rows``: of a small side.
    """

    jvm: Jvm
    spark: SparkSession
    java: JavaSession
    prepare: Callable[[LogicalPlan], tuple[Dataset, Explanation]]
    target: Callable[[Node, Relation], Target | None]
    most_rows: int


@dataclass(frozen=True, eq=False)
class _Side:
    """A side that ran."""

    rows: LocalRelation
    count: int
    explanation: Explanation


def with_small_sides(runner: Runner, query: Scope) -> Joined | None:
    """The query with its small sides run, where their keys may narrow an indexed relation; None when none is."""
    plan = query.handle()
    is_nested = any(one.scope.inner for one in query.inner)
    joins = with_joins_of_subqueries(runner.jvm, plan) if query.inner and not is_nested else plan
    ready = normalized(runner.jvm, joins)
    tree = plan_tree(runner.jvm, with_sets(runner.jvm, ready))
    if not ready.deterministic() or any(one.name in _BOUND for one in tree.walk()):
        return None
    sides = _Sides(runner, ready, tree)
    keys = {key: found for key, columns in _by_relation(tree) if (found := tuple(sides.keys_of(columns)))}
    if not sides.done:
        return None
    return Joined(
        _as_before(runner.jvm, plan, sides.plan()), keys, tuple(one.explanation for one in sides.done.values())
    )


def _by_relation(tree: Node) -> Iterator[tuple[Key, list[JoinedColumn]]]:
    """Joined columns of each relation that is used once: what holds for one use need not hold for another."""
    found: dict[Key, list[JoinedColumn]] = {}
    for one in joined_columns(tree):
        found.setdefault(key_of(one.relation), []).append(one)
    uses = Counter(
        key_of(node) for node in tree.walk() if node.name == "DataSourceV2Relation" and node.fields["output"]
    )
    return ((key, columns) for key, columns in found.items() if uses[key] == 1)


def _as_before(jvm: Jvm, before: LogicalPlan, plan: LogicalPlan) -> LogicalPlan:
    """``plan`` with the output of ``before``, whose columns people may name by the aliases of their relations."""
    return scala_object(jvm, PROJECT).apply(before.output(), plan)


@dataclass(frozen=True, eq=False)
class _Sides:
    """The sides of the joins in a normalized plan."""

    runner: Runner
    java: LogicalPlan
    tree: Node
    done: dict[Path, _Side] = field(default_factory=dict)
    refused: set[Path] = field(default_factory=set)

    def plan(self) -> LogicalPlan:
        """The plan with rows in place of the sides that ran."""
        return self._with_rows(())

    def keys_of(self, columns: list[JoinedColumn]) -> Iterator[KeysOfJoin]:
        """What joins say of one relation, the nearest join first; sides that are small are run."""
        relation = columns[0].relation
        target = self.runner.target(relation, cast(Relation, descend(self.java, relation.path)))
        for one in columns if target else ():
            if target is None or self._is_gone(relation.path):
                return
            named = target.columns.get(expression_id(one.column))
            if named is None or not _has_keys(one, named[1]):
                continue
            side = self._run(one.other, target)
            keys = None if side is None else self._keys(one, named[0], side)
            if keys is not None:
                yield keys

    def _is_gone(self, path: Path) -> bool:
        return any(path[: len(done)] == done for done in self.done)

    def _run(self, path: Path, target: Target) -> _Side | None:
        """The side at ``path`` when it is small."""
        if path not in self.done and path not in self.refused:
            side = self._ran(path, target)
            if side is None:
                self.refused.add(path)
            else:
                self.done[path] = side
        return self.done.get(path)

    def _ran(self, path: Path, target: Target) -> _Side | None:
        plan = self._with_rows(path)
        dataset, explanation = self.runner.prepare(plan)
        if not is_small_side(_cost(dataset), target.cost):
            return None
        # as Spark holds them: days of 1582 and bytes that are no text do not survive a way through Java's types
        rows = dataset.limit(self.runner.most_rows + 1).queryExecution().executedPlan().executeCollect()
        count = len(rows)
        if count > self.runner.most_rows:
            logger.info("a side of a join has more than %d rows and is not run first", self.runner.most_rows)
            return None
        jvm = self.runner.jvm
        relations, none = scala_object(jvm, LOCAL_RELATION), scala_object(jvm, NONE)
        local = relations.apply(plan.output(), scala_seq_of(jvm, rows), _NOT_STREAMING, none)
        return _Side(local, count, explanation)

    def _keys(self, one: JoinedColumn, name: str, side: _Side) -> KeysOfJoin | None:
        """The keys of a side that ran, in their order; None when Python does not see some as they are."""
        expression = descend(field_of(descend(self.java, one.join), one.slot), one.path)
        jvm = self.runner.jvm
        dataset = java_class(jvm, DATASETS).ofRows(self.runner.java, side.rows)
        column = scala_object(jvm, EXPRESSION_UTILS).column(expression)
        found = dict.fromkeys(column_values(dataset, self.runner.spark, column))
        found.pop(None, None)
        if any(isinstance(value, str) and NO_TEXT in value for value in found):
            return None
        constants = tuple(core.Constant(cast(core.Value, value)) for value in found)
        return KeysOfJoin(name, len(constants), side.count, core.InList(core.ColumnRef("", name), constants))

    def _with_rows(self, path: Path) -> LogicalPlan:
        """The plan at ``path`` with rows in place of the sides that ran."""
        below = {done[len(path) :]: side.rows for done, side in self.done.items() if done[: len(path)] == path}
        return with_plans(self.runner.jvm, descend(self.java, path), below)


def _has_keys(one: JoinedColumn, iceberg: str) -> bool:
    """Whether values of the other side are values of the column, or of a type into which it is widened."""
    kind = str(one.column.fields["dataType"])
    return (one.kind in _KEYS or one.kind.startswith("decimal")) and are_same_type(kind, iceberg)


def _cost(dataset: Dataset) -> ReadCost:
    """What reading the leaves of a plan costs, as Spark expects it."""
    leaves = [leaf for leaf in items(dataset.queryExecution().optimizedPlan().collectLeaves()) if _is_read(leaf)]
    sizes = (int(leaf.stats().sizeInBytes()) for leaf in leaves)
    return sum((ReadCost(1, size) for size in sizes), ReadCost())


def _is_read(leaf: LogicalPlan) -> bool:
    return leaf.getClass().getSimpleName() not in _HERE
