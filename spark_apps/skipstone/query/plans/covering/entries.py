"""Entries of a covering index as a plan: the columns that a query needs, under the ids that they have in the query.

Used by ``uniting``. Must not decide what is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyspark.sql import SparkSession

from skipstone.compat.catalyst import DATASETS, OPTIONS, PROJECT, Attribute, Expression, LogicalPlan
from skipstone.compat.icebergjava import SPARK_TABLES, BaseTable
from skipstone.compat.java import EMPTY_SEQ, HASH_MAP, NONE, Jvm, items, java_class, scala_object, scala_seq
from skipstone.compat.partitioning import ALIAS, CAST, FILTER, RELATIONS, CloneableSession, NamedAttribute
from skipstone.compat.pyspark import java_frame, plain_frame
from skipstone.query.plans.covering.offers import HeldBy

#: Columns that say which row of which file an entry is, and their names in plans, which are nobody else's.
_PLACE = ("file_id", "pos")
PLACE = tuple(f"skipstone {name}" for name in _PLACE)
#: A task reads a bucket at least: nothing is gained by cutting files.
_WHOLE_FILES = str(1 << 40)
#: Types that entries hold as wider ones.
_NARROW = ("int", "float", "decimal")
#: Stored values are values of the column: casts back to it need no checks.
_UNCHECKED = False


@dataclass(frozen=True, eq=False)
class NeededColumn:
    """A column of a relation that a query needs: as entries hold it, and its attribute in the JVM."""

    held: HeldBy
    attribute: NamedAttribute


@dataclass(frozen=True, eq=False)
class EntryScan:
    """Which entries are read.

    ``table``: of the index, in the JVM. ``file_ids``: whose entries, ascending; None: all. ``condition``: on the
    attributes of ``columns``: what it is not true of may be left out; None: nothing. ``with_place``: whether PLACE is
    read too.
    """

    table: BaseTable
    columns: Sequence[NeededColumn]
    file_ids: npt.NDArray[np.int32] | None
    condition: Expression | None
    with_place: bool


@dataclass(frozen=True, eq=False)
class Entries:
    """Plans of entries in a session: the columns needed, then PLACE, then what is said."""

    jvm: Jvm
    spark: SparkSession
    session: CloneableSession

    def mixed(self, scan: EntryScan) -> LogicalPlan:
        """The entries in files of all buckets."""
        return self._of(scan, "bucket is null", ())

    def bucketed(self, scan: EntryScan) -> LogicalPlan:
        """The entries in files of one bucket each; the last column is the bucket."""
        return self._of(scan, "bucket is not null", ("bucket",))

    def _of(self, scan: EntryScan, where: str, last: tuple[str, ...]) -> LogicalPlan:
        jvm = self.jvm
        frame = plain_frame(java_class(jvm, DATASETS).ofRows(self.session, self._relation(scan.table)), self.spark)
        chosen = frame.where(" and ".join(["kind = 'entry'", where, *_of_files(scan)]))
        place = zip(_PLACE, PLACE, strict=True) if scan.with_place else ()
        besides = [*(chosen[own].alias(name) for own, name in place), *(chosen[name] for name in last)]
        read = chosen.select(*(chosen[column.held.column.name] for column in scan.columns), *besides)
        plan = java_frame(read).queryExecution().analyzed()
        stored = [*items(plan.output())]
        needed = [self._as_needed(attribute, column) for attribute, column in zip(stored, scan.columns, strict=False)]
        plan = scala_object(jvm, PROJECT).apply(scala_seq(jvm, [*needed, *stored[len(needed) :]]), plan)
        return plan if scan.condition is None else scala_object(jvm, FILTER).apply(scan.condition, plan)

    def _relation(self, table: BaseTable) -> LogicalPlan:
        """The index table as a relation that nothing looks up again."""
        none, options = scala_object(self.jvm, NONE), java_class(self.jvm, HASH_MAP)()
        options.put("split-size", _WHOLE_FILES)
        made = scala_object(self.jvm, RELATIONS).create(java_class(self.jvm, SPARK_TABLES)(table), none, none)
        whole = java_class(self.jvm, OPTIONS)(options)
        return made.copy(made.table(), made.output(), none, none, whole, none)

    def _as_needed(self, stored: Attribute, column: NeededColumn) -> Attribute:
        """Return the values of a column in entries, in its type and under the id of its attribute."""
        expression: Expression = stored
        wanted, none, nothing = column.attribute, scala_object(self.jvm, NONE), scala_object(self.jvm, EMPTY_SEQ)
        if column.held.kind.startswith(_NARROW):
            expression = scala_object(self.jvm, CAST).apply(expression, wanted.dataType(), none, _UNCHECKED)
        return java_class(self.jvm, ALIAS)(
            expression, wanted.name(), wanted.exprId(), wanted.qualifier(), none, nothing
        )


def _of_files(scan: EntryScan) -> list[str]:
    """The condition that an entry is of one of the files: ranges of ids, as those of neighbors follow one another."""
    if scan.file_ids is None:
        return []
    return [f"({' or '.join(_ranges(scan.file_ids))})" if len(scan.file_ids) else "false"]


def _ranges(ids: npt.NDArray[np.int32]) -> Iterator[str]:
    gaps = np.flatnonzero(np.diff(ids) > 1)
    for first, last in zip([0, *(gaps + 1).tolist()], [*gaps.tolist(), len(ids) - 1], strict=True):
        yield f"file_id between {ids[first]} and {ids[last]}"
