"""What planning a query costs and saves: every limit that rules and scans keep, and the costs of one query's relations.

The rules of ``skipstone_core.indexing.use`` compare costs, in bytes that tasks decode in the same time; what they
compare is counted here. Beside a limit stands why it is there and which benchmark shows what it does; where none is
named, its number is chosen and not measured. Must not run anything on Spark, or change a state.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
from pyiceberg.table import Table
from skipstone_core.indexing.use import FEW_KEYS, ReadCost
from skipstone_core.language import predicates as core

from skipstone.compat.catalyst import LogicalPlan
from skipstone.query.advice import leading_columns
from skipstone.query.plans.analysis.catalyst import Node, descend, expression_id
from skipstone.query.plans.analysis.demands import find_used
from skipstone.query.plans.analysis.literals import column_kind
from skipstone.query.plans.analysis.relations import IcebergRelation
from skipstone.query.plans.analysis.uses import RELATION, Key, Scope, Use, is_relation, key_of
from skipstone.query.plans.fallback import or_else
from skipstone.query.plans.refusals import RelationRefused
from skipstone.query.reading import probable_rows
from skipstone.query.readplan import ReadOptions, ReadPlan
from skipstone.tables.filesets import FileSet, known_file_set

Int64s = npt.NDArray[np.int64]

# --- the driver instead of tasks ---

#: Bytes of an index that the driver reads at most for an answer, which it holds in memory.
DRIVER_ANSWER_BYTES = 64 * 1024 * 1024
#: Entries of an index among which the driver looks at most: tasks go through more of them sooner (`make bench-lookup`).
DRIVER_ANSWER_ROWS = 512 * 1024
#: Values that the driver decodes at most of a table that no index narrows: more take it longer than a job of Spark
#: takes to start (`make bench-joins`).
DRIVER_SCAN_VALUES = 4 * 1024 * 1024
#: Bytes that the driver notes of each row besides when it decodes the columns of a condition: eight of the position,
#: and one for nulls.
DRIVER_NOTED_BYTES = 9
#: Rows of the driver that one task aggregates sooner than Spark starts a second stage (`make bench-lookup`).
ONE_TASK_ROWS = 4096
#: Bytes of rows of the driver that go to the JVM in one call, as text; more of them go there by a file.
SENT_AT_ONCE_BYTES = 256 * 1024

# --- tasks that read an index instead of files ---

#: Deleted rows that are looked up and left out, broadcast to all tasks; files of which more may be deleted are read
#: themselves.
INDEX_SCAN_DELETED = 100_000
#: Files that a condition on entries names: it is a text in the plan.
INDEX_SCAN_NAMED_FILES = 20_000
#: Tasks for each core. The row groups that hold entries follow one another in each file, so tasks of many row groups
#: share them well enough, and those of few are mostly for nothing (`make bench-tpch`).
INDEX_SCAN_TASKS_PER_CORE = 4
#: What a row group of an index costs to skip, in bytes.
INDEX_SCAN_OPEN_BYTES = 64 * 1024
#: Rows deleted by position that a join by buckets takes out at most, broadcast too; files with more are not read from
#: the index.
BUCKET_JOIN_DELETED = 1_000_000

# --- tasks that read files ---

#: What a file costs to open, in bytes, as Iceberg counts it (`read.split.open-file-cost`): for each row group, when it
#: splits a file.
FILE_OPEN_BYTES = 4 * 1024 * 1024
#: Bytes of a task: so few that all cores are busy, but not less than makes a task worth starting, nor more than Iceberg
#: has in one (`read.split.target-size`).
SMALLEST_SPLIT_BYTES = 8 * 1024 * 1024
LARGEST_SPLIT_BYTES = 128 * 1024 * 1024

# --- parts of a query that run first ---

#: Rows of a table that is joined as a whole and still counts as a list of keys.
LISTED_ROWS = 10_000
#: Parts that turn out to be too large before no other part runs first: each may cost as much as the query itself.
MOST_WASTED_PARTS = 1

#: Bytes or rows of what nobody knows anything of.
_UNKNOWN = 1 << 60
_NOTHING = ReadCost()
#: Leaves that are in the driver's memory already.
IN_DRIVER = frozenset({"LocalRelation", "OneRowRelation", "Range"})
#: Nodes and functions of queries that Iceberg answers from its metadata.
_IN_METADATA = frozenset(
    {
        "Aggregate",
        "AggregateExpression",
        "Alias",
        "AttributeReference",
        "Max",
        "Min",
        "Project",
        "SubqueryAlias",
        RELATION,
    }
)


class RelationsByNow(Protocol):
    """The known facts of the relations of a query: a state of its planning."""

    @property
    def sites(self) -> Mapping[Key, object]:
        """The relations that may be planned."""

    @property
    def uses(self) -> Mapping[Key, list[Use]]:
        """Return the uses of each relation in the query."""

    def opened(self, key: Key, /) -> IcebergRelation:
        """A relation with its table. Raises RelationRefused when it is read as Spark reads it."""

    def options(self, relation: IcebergRelation, /) -> ReadOptions:
        """How a relation is read."""

    def plan(self, key: Key, /) -> ReadPlan | None:
        """The files to read of a relation, as far as they were planned."""


@dataclass(frozen=True)
class KeyedFiles:
    """The files of a table, and which of them an index covers that begins with one of the columns ``served``."""

    files: FileSet
    served: frozenset[str]
    covered: npt.NDArray[np.bool_]

    @property
    def rows(self) -> int:
        """Rows of all files, deleted ones among them."""
        return int(self.files.files["records"].to_numpy().sum())

    def savings(self, columns: AbstractSet[str] | None, plan: ReadPlan | None) -> ReadCost:
        """Return the cost of columns (None: all) in the files that keys could leave out of ``plan``."""
        left = self.covered.copy()
        if plan is not None:
            left &= np.isin(np.arange(len(left)), plan.ordinals)
        sizes = _sizes(self.files, columns)[left]
        return ReadCost(len(sizes), int(sizes.sum()))


@dataclass(frozen=True, eq=False)
class QueryCost:
    """Costs of the relations of one query, as they are planned by now. A table is looked at once."""

    _keyed: dict[Key, KeyedFiles | None] = field(default_factory=dict)
    _few: dict[Key, bool] = field(default_factory=dict)

    def savings(self, state: RelationsByNow, key: Key) -> ReadCost:
        """Return the cost that keys could save of a relation at most."""
        keyed = self._keyed_files(state, key)
        return _NOTHING if keyed is None else keyed.savings(_used(state, key), state.plan(key))

    def kind(self, state: RelationsByNow, key: Key, column: Node) -> str:
        """The kind of literals of a column whose keys can be looked up; empty for another one."""
        keyed = self._keyed_files(state, key)
        is_served = keyed is not None and column_name(state, key, expression_id(column)) in keyed.served
        return kind_of_values(state, key, column) if is_served else ""

    def is_partitioned(self, state: RelationsByNow, key: Key) -> bool:
        """Return whether files of a relation are, or were, partitioned."""
        if self._keyed_files(state, key) is None:
            return False
        return any(spec.fields for spec in state.opened(key).table.specs().values())

    def of_leaves(self, state: RelationsByNow, plan: LogicalPlan, leaves: Iterable[Node]) -> ReadCost:
        """Return the cost of reading some leaves of a plan."""
        return sum((self._of_leaf(state, plan, leaf) for leaf in leaves), _NOTHING)

    def of_value(self, state: RelationsByNow, scope: Scope) -> ReadCost:
        """Return the cost of a subquery of one value; minimum and maximum are in Iceberg's metadata."""
        if _IN_METADATA.issuperset(_names(scope.tree)) and not scope.inner:
            return ReadCost(files=1)
        return sum((self.of_leaves(state, part.handle(), _leaves(part.tree)) for part in scope.all()), _NOTHING)

    def rows(self, state: RelationsByNow, leaves: Iterable[Node]) -> int:
        """How many rows some leaves have together, where that is known."""
        return sum(self._rows(state, leaf) for leaf in leaves)

    def are_more(self, state: RelationsByNow, leaf: Node, rows: int, conditions: int) -> bool:
        """Return whether a leaf is known to give more ``rows``. ``conditions``: how many are above it in the query."""
        if not is_relation(leaf) or key_of(leaf) not in state.sites:
            return False
        plan = state.plan(key_of(leaf))
        if conditions:
            is_all = plan is not None and plan.predicate is not None and conditions <= _narrowing(plan.predicate.root)
            return is_all and plan is not None and plan.at_least > rows
        keyed = self._keyed_files(state, key_of(leaf))
        return keyed is not None and not keyed.files.delete_files and keyed.rows > rows

    def gives_few(self, state: RelationsByNow, leaf: Node) -> bool:
        """Return whether, by a sample of its rows, few rows of a relation fulfil the conditions that narrow it."""
        if not is_relation(leaf) or key_of(leaf) not in state.sites:
            return False
        key = key_of(leaf)
        plan = state.plan(key)
        if plan is None:
            return False
        if key not in self._few:
            # what cannot be read here is told by whoever has to
            rows = or_else(
                lambda: probable_rows(state.opened(key).table, plan),
                lambda _: None,
                "no rows of a relation are looked at",
                logging.DEBUG,
            )
            self._few[key] = rows is not None and rows <= FEW_KEYS
        return self._few[key]

    def _of_leaf(self, state: RelationsByNow, plan: LogicalPlan, leaf: Node) -> ReadCost:
        if leaf.name in IN_DRIVER:
            return _NOTHING
        if not is_relation(leaf) or key_of(leaf) not in state.sites:
            return ReadCost(1, int(descend(plan, leaf.path).stats().sizeInBytes()))
        key = key_of(leaf)
        planned = state.plan(key)
        if planned is not None:
            return _planned_cost(planned, _used(state, key))
        keyed = self._keyed_files(state, key)
        return ReadCost(1, _UNKNOWN) if keyed is None else _whole_cost(keyed.files, _used(state, key))

    def _rows(self, state: RelationsByNow, leaf: Node) -> int:
        keyed = self._keyed_files(state, key_of(leaf)) if is_relation(leaf) else None
        return _UNKNOWN if keyed is None else keyed.rows

    def _keyed_files(self, state: RelationsByNow, key: Key) -> KeyedFiles | None:
        """The files of a relation; None when it is read as Spark reads it whatever is known of it."""
        if key not in state.sites:
            return None
        if key not in self._keyed:
            self._keyed[key] = or_else(
                lambda: _find_keyed_files(state, key), lambda _: None, "no keys narrow a relation"
            )
        return self._keyed[key]


def kind_of_values(state: RelationsByNow, key: Key, column: Node) -> str:
    """The kind of literals of a column of an opened relation; empty where Spark shows its values otherwise."""
    known = state.opened(key).columns.get(expression_id(column))
    return column_kind(str(column.fields["dataType"]), known[1]) if known else ""


def column_name(state: RelationsByNow, key: Key, column: int) -> str:
    """The name of a column of an opened relation, by its id; empty for columns of metadata."""
    return state.opened(key).columns.get(column, ("", ""))[0]


def _find_keyed_files(state: RelationsByNow, key: Key) -> KeyedFiles | None:
    try:
        relation = state.opened(key)
    except RelationRefused:
        return None
    return _plan_keys(relation.table, state.options(relation))


def _plan_keys(table: Table, options: ReadOptions) -> KeyedFiles:
    """The columns of ``table`` by whose keys an index can leave files out."""
    files = known_file_set(table, options.snapshot_id)
    return KeyedFiles(files, *leading_columns(table, files, options))


def _used(state: RelationsByNow, key: Key) -> frozenset[str] | None:
    return find_used(state.opened(key), state.uses[key])


def _narrowing(root: core.Node) -> int:
    """How many conditions a predicate has that leave out more rows than those with nulls."""
    parts = root.parts if isinstance(root, core.And) else (root,)
    return sum(not (isinstance(part, core.Not) and isinstance(part.inner, core.IsNull)) for part in parts)


def _leaves(tree: Node) -> Iterable[Node]:
    return (node for node in tree.walk() if not node.children)


def _names(tree: Node) -> Iterable[str]:
    """Names of the nodes of a plan and of their expressions."""
    for node in tree.walk():
        yield node.name
        for expression in node.expressions.values():
            yield from (part.name for part in expression.walk())


# --- bytes of columns ---


def _whole_cost(files: FileSet, columns: AbstractSet[str] | None) -> ReadCost:
    """Return the cost of reading the columns (None: all) of all files."""
    return ReadCost(len(files), int(_sizes(files, columns).sum()))


def _planned_cost(plan: ReadPlan, columns: AbstractSet[str] | None) -> ReadCost:
    """Return the remaining cost of reading the columns (None: all)."""
    answered = set() if plan.answer is None else set(plan.answer.ordinals.tolist())
    ordinals = [ordinal for ordinal in plan.ordinals if ordinal not in answered]
    parts = np.array([plan.part_of(ordinal) for ordinal in ordinals])
    sizes = _sizes(plan.files, columns)[ordinals]
    cost = ReadCost(len(ordinals), int((sizes * parts).sum()))
    return cost if plan.answer is None else cost + plan.answer.probe.cost


def _sizes(files: FileSet, columns: AbstractSet[str] | None) -> Int64s:
    """Bytes of the columns in each file."""
    if columns is None:
        return np.asarray(files.files["size"].to_numpy(), np.int64)
    numbers: Sequence[int] = [column.field_id for column in files.schema.fields if column.name in columns]
    return files.column_bytes(numbers) if numbers else np.zeros(len(files), np.int64)
