"""What stands in the place of a relation that is joined through a covering index: its rows, by the hash of its keys.

Used by ``choosing``. Entries come bucket by bucket and are not shuffled; the rows of missing files, and entries in
files of all buckets, are shuffled to them. Rows deleted after they were entered are taken out by file and position.
Must not decide what is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import SparkSession
from skipstone_core.language.predicates import Predicate

from skipstone.compat.catalyst import DATASETS, PROJECT, UNION, Attribute, Expression, LogicalPlan
from skipstone.compat.java import Jvm, java_class, scala_object, scala_seq
from skipstone.compat.partitioning import REPARTITION, CloneableSession
from skipstone.compat.pyspark import java_frame, plain_frame
from skipstone.query.plans.analysis.relations import IcebergRelation
from skipstone.query.plans.catalogs import SparkCatalogView
from skipstone.query.plans.covering.content import CoveredRows
from skipstone.query.plans.covering.entries import PLACE, Entries, EntryScan, NeededColumn
from skipstone.query.plans.covering.partitions import Partitioner
from skipstone.query.plans.replacing.residuals import residual_of
from skipstone.query.plans.replacing.staging import Staging, with_table
from skipstone.query.readplan import Funnel, ReadPlan


@dataclass(frozen=True, eq=False)
class CoveredRelation:
    """A relation, what of it is read from where, and how.

    ``keys``: the expressions by which it is joined, in the order of the index. ``condition``: that is true of every row
    of the query, for entries; ``predicate``: one that is, for files.
    """

    relation: IcebergRelation
    rows: CoveredRows
    columns: Sequence[NeededColumn]
    keys: Sequence[Expression]
    condition: Expression | None
    predicate: Predicate | None


@dataclass(frozen=True, eq=False)
class Uniting:
    """Makes plans for a session; ``grouping``: one for planning scans of indexes. ``parallelism``: cores of tasks."""

    jvm: Jvm
    spark: SparkSession
    session: CloneableSession
    grouping: CloneableSession
    staging: Staging
    parallelism: int

    def plan(self, covered: CoveredRelation) -> LogicalPlan:
        """The rows of a relation, with the columns needed, partitioned by its keys. Raises NotBucketed."""
        rows, scan = covered.rows, self._scan(covered)
        buckets = rows.index.index.definition.buckets
        entries = Entries(self.jvm, self.spark, self.grouping).bucketed(scan)
        partitioner = Partitioner(self.jvm, self.session, self.grouping)
        partitioned = partitioner.partitioned(entries, covered.keys, buckets)
        others = [*self._mixed(covered, scan), *self._missing(covered)]
        whole = self._needed(covered, self._live(covered, partitioned))
        if not others:
            return whole
        union = scala_object(self.jvm, UNION)
        shuffled = scala_object(self.jvm, REPARTITION).apply(
            scala_seq(self.jvm, list(covered.keys)), reduce(union.apply, others), buckets
        )
        return union.apply(whole, shuffled)

    def _scan(self, covered: CoveredRelation) -> EntryScan:
        index = covered.rows.index.index
        catalog = covered.relation.table.catalog
        if not isinstance(catalog, SparkCatalogView):
            raise TypeError(f"a table of {type(catalog).__name__} has no indexes in Spark")
        table = catalog.frozen(index.identifier, index.table.metadata_location)
        has_deletes = covered.rows.deleted.num_rows > 0
        return EntryScan(table, covered.columns, covered.rows.file_ids, covered.condition, with_place=has_deletes)

    def _mixed(self, covered: CoveredRelation, scan: EntryScan) -> list[LogicalPlan]:
        if not covered.rows.mixed:
            return []
        rows = Entries(self.jvm, self.spark, self.session).mixed(scan)
        return [self._needed(covered, self._live(covered, rows))]

    def _missing(self, covered: CoveredRelation) -> list[LogicalPlan]:
        """The files that are read themselves."""
        rows = covered.rows
        if not rows.missing:
            return []
        funnel = Funnel(len(rows.files), len(rows.missing), len(rows.missing))
        plan = ReadPlan(rows.files, covered.predicate, rows.missing, {}, funnel, ())
        residual = None if covered.predicate is None else residual_of(covered.predicate)
        scan = self.staging.scan(covered.relation, plan, residual, self.parallelism)
        return [self._needed(covered, with_table(self.jvm, covered.relation.java, scan))]

    def _live(self, covered: CoveredRelation, entries: LogicalPlan) -> LogicalPlan:
        """Entries without those of deleted rows. A broadcast of these leaves the others in their partitions."""
        if not covered.rows.deleted.num_rows:
            return entries
        frame = plain_frame(java_class(self.jvm, DATASETS).ofRows(self.session, entries), self.spark)
        deleted = self.spark.createDataFrame(covered.rows.deleted.rename_columns(PLACE))
        live = frame.join(deleted.hint("broadcast"), [*PLACE], "left_anti")
        return java_frame(live).queryExecution().analyzed()

    def _needed(self, covered: CoveredRelation, plan: LogicalPlan) -> LogicalPlan:
        attributes: list[Attribute] = [column.attribute for column in covered.columns]
        return scala_object(self.jvm, PROJECT).apply(scala_seq(self.jvm, attributes), plan)
