"""What stands in the place of one relation that is joined by buckets, if that is worth it.

Used by ``planning``. Must not know the other relations of the query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from typing import cast

import numpy as np
from skipstone_core.indexing.use import CostLimits, is_bucketed_faster
from skipstone_core.language.predicates import Predicate

from skipstone.compat.catalyst import Expression, LogicalPlan
from skipstone.compat.java import scala_object, some
from skipstone.compat.partitioning import AND, CAST, LONG_TYPE, CloneableSession, NamedAttribute
from skipstone.indexes.damage import find_damage
from skipstone.indexes.found import FoundIndex
from skipstone.query.planner import ReadPlan, plan_read
from skipstone.query.plans.analysis.catalyst import Node, descend, is_tree, output_ids
from skipstone.query.plans.analysis.demands import find_predicate
from skipstone.query.plans.analysis.uses import ancestors, field_of, use_of
from skipstone.query.plans.covering.candidates import Candidate, Normal
from skipstone.query.plans.covering.content import CoveredRows, plan_rows
from skipstone.query.plans.covering.entries import NeededColumn
from skipstone.query.plans.covering.equalities import Equality, Path, conjuncts
from skipstone.query.plans.covering.offers import CoveringOffer, HeldBy
from skipstone.query.plans.covering.partitions import grouping_session, require_spark_hash
from skipstone.query.plans.covering.refusals import JoinedByBuckets, NotJoined
from skipstone.query.plans.covering.uniting import CoveredRelation, Uniting
from skipstone.query.plans.refusals import RelationRefused
from skipstone.query.plans.state import QueryState

_FLOATS = frozenset({"float", "double"})


class NotChosen(Exception):
    """A covering index is not used."""

    def __init__(self, reason: NotJoined, detail: str = "") -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, eq=False)
class Chosen:
    """A relation that is replaced by ``plan``, if Spark then shuffles it no more."""

    candidate: Candidate
    offer: CoveringOffer
    plan: LogicalPlan
    facts: JoinedByBuckets

    @property
    def widened(self) -> Iterator[tuple[Path, Equality]]:
        """Equalities of integers, whose keys are hashed as longs, with the paths of their joins."""
        return ((self.offer.joined.join, equality) for _, equality in self.offer.keys if equality.kind == "integer")


@dataclass(frozen=True, eq=False)
class Choice:
    """Chooses for the relations of one query."""

    state: QueryState
    query: Normal

    def choose(self, candidate: Candidate, offer: CoveringOffer) -> Chosen:
        """Return the replacement of a relation. Raises NotChosen and NotBucketed."""
        relation, predicate = candidate.relation, self._predicate(candidate)
        options = replace(self.state.options(relation), by_position=False)
        read = plan_read(relation.table, predicate, options)
        rows = _rows(candidate, offer, read, options.limits, only_rows=self.state.facts.only_rows)
        require_spark_hash(self.state.session.jvm)
        _require_sound(offer.index)
        attributes = _attributes(candidate)
        covered = CoveredRelation(
            relation,
            rows,
            [NeededColumn(column, attributes[column.number]) for column in offer.columns],
            [self._hashed(key, attributes[key.number]) for key, _ in offer.keys],
            self._condition(candidate),
            predicate,
        )
        names = tuple(relation.columns[key.number][0] for key, _ in offer.keys)
        return Chosen(candidate, offer, self._uniting().plan(covered), JoinedByBuckets(relation.name, names, rows))

    def widened(self, expression: Expression) -> Expression:
        """An integer as a long, as Spark widens it beside a long. Unions compare even the time zones of casts."""
        jvm, settings = self.state.session.jvm, self.state.session.spark.conf
        is_ansi = str(settings.get("spark.sql.ansi.enabled", "true")).lower() == "true"
        zone = some(jvm, str(settings.get("spark.sql.session.timeZone")))
        return scala_object(jvm, CAST).apply(expression, scala_object(jvm, LONG_TYPE), zone, is_ansi)

    def _hashed(self, key: HeldBy, attribute: NamedAttribute) -> Expression:
        return self.widened(attribute) if key.kind == "int" else attribute

    def _uniting(self) -> Uniting:
        session, java = self.state.session, cast(CloneableSession, self.state.session.java)
        cores = session.limits.driver.parallelism
        return Uniting(session.jvm, session.spark, java, grouping_session(java), session.staging, cores)

    def _predicate(self, candidate: Candidate) -> Predicate | None:
        """Return the query's own condition on the rows of the relation."""
        use = use_of(self.state.session.jvm, self.query.plan, self.query.tree, candidate.node)
        try:
            return find_predicate(candidate.relation, [use])
        except RelationRefused:
            return None

    def _condition(self, candidate: Candidate) -> Expression | None:
        """The condition directly above the relation as far as readers of files may skip by it.

        Iceberg loses rows of floats by the bounds of files, and plans inside expressions would run at once.
        """
        above = ancestors(self.query.tree, candidate.node)
        if not above or above[-1].name != "Filter":
            return None
        jvm, plan = self.state.session.jvm, descend(self.query.plan, above[-1].path)
        parts = [
            descend(field_of(plan, slot), part.path)
            for slot, condition in above[-1].expressions.items()
            for part in conjuncts(condition)
            if _is_plain(part)
        ]
        return reduce(scala_object(jvm, AND).apply, parts) if parts else None


def _is_plain(condition: Node) -> bool:
    nodes = [*condition.walk()]
    has_floats = any(str(node.fields.get("dataType")) in _FLOATS for node in nodes)
    return not has_floats and not any(is_tree(node.fields.get("plan", ())) for node in nodes)


def _attributes(candidate: Candidate) -> Mapping[int, NamedAttribute]:
    """The relation's columns in the JVM, by their ids."""
    outputs = candidate.java.output()
    return {number: outputs.apply(position) for position, number in enumerate(output_ids(candidate.node))}


def _rows(
    candidate: Candidate, offer: CoveringOffer, read: ReadPlan, limits: CostLimits, *, only_rows: bool
) -> CoveredRows:
    """Return the rows to read from index and files. Raises NotChosen when Spark's way costs less."""
    left = np.zeros(len(read.files), np.bool_)
    left[list(read.ordinals)] = True
    rows = plan_rows(candidate.relation.table, read.files, offer.index, left, only_rows=only_rows)
    all_rows = int(read.files.files["records"].to_numpy()[left].sum())
    if is_bucketed_faster(all_rows, rows.single, rows.missing_rows + rows.mixed, limits):
        return rows
    shuffled = rows.missing_rows + rows.mixed
    detail = f"{rows.single:,} entries to read and {shuffled:,} rows to shuffle, of {all_rows:,} rows that may match"
    raise NotChosen(NotJoined.NO_GAIN, detail)


# --- damage ---

#: Entry files that were looked at, by path and size: they never change.
_sound: set[tuple[str, int]] = set()
_LOOKS = 16


def _require_sound(index: FoundIndex) -> None:
    """Raise NotChosen if a file of an index is gone or damaged: the tasks of the query would find that too late."""
    unknown = [file for file in index.index.entries if (file.path, file.size) not in _sound]
    with ThreadPoolExecutor(_LOOKS) as threads:
        damage = [*threads.map(lambda file: find_damage(index.index, [file]), unknown)]
    damaged = [file for some in damage for file in some]
    if damaged:
        raise NotChosen(NotJoined.UNREADABLE, str(damaged[0]))
    _sound.update((file.path, file.size) for file in unknown)
