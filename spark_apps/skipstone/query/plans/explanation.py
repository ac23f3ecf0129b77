"""What became of each relation of a query: the files it reads and why, as facts and as text.

Made by ``session``; shown to people and logged. Must not know Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from skipstone.query.planner import ReadPlan
from skipstone.query.plans.refusals import Refusal
from skipstone.query.plans.replacing.driver import DriverRead
from skipstone.query.plans.replacing.indexscan import IndexScan


@dataclass(frozen=True)
class RelationExplanation:
    """One relation. ``refusal`` None: its files are chosen by ``plan``, else it is read as Spark reads it.

    ``driver``: what of the plan the driver reads itself. ``scan``: what tasks read of an index. ``joined``: what joins
    say of its rows, a line each. ``guard``: why Iceberg chooses no files although no index does, and who does.
    """

    table: str
    refusal: Refusal | None = None
    detail: str = ""
    plan: ReadPlan | None = None
    driver: DriverRead | None = None
    scan: IndexScan | None = None
    joined: tuple[str, ...] = ()
    guard: str = ""

    @property
    def is_rewritten(self) -> bool:
        """Return whether the relation is read through indexes."""
        return self.refusal is None

    def line(self) -> str:
        """One line for logs."""
        return "; ".join(line.strip() for line in self.text().splitlines())

    def text(self) -> str:
        """The facts for people."""
        if self.refusal is None:
            head = f"{self.table}: read through indexes"
        else:
            how = "read without an index" if self.guard else "not rewritten"
            detail = f" ({self.detail})" if self.detail else ""
            head = f"{self.table}: {how}, {self.refusal.value}: {self.refusal.sentence}{detail}"
        lines = [
            *([self.guard] if self.guard else []),
            *self.joined,
            *(self.plan.text(is_followed=self._is_followed).splitlines() if self.plan else []),
        ]
        lines += [part.text() for part in (self.driver, self.scan) if part]
        lines += self._of_spark()
        return "\n".join([head, *(f"  {line}" for line in lines)])

    @property
    def _is_followed(self) -> bool:
        """Return whether the plan says which files are read."""
        return self.is_rewritten or bool(self.guard)

    def _of_spark(self) -> list[str]:
        """What Spark reads by itself: it prunes by min/max too, but does not know the keys of joins."""
        if self.plan is None or self.plan.costs is None or not self.plan.indexes:
            return []
        costs = self.plan.costs
        cost = costs.whole if self.joined else costs.min_max
        chosen = "" if self._is_followed else ", chosen"
        return [f"cost of Spark alone: {cost.in_tasks:,} ({cost}){chosen}"]


class RuleOutcome(StrEnum):
    """The outcome of a rule of planning."""

    CHANGED = "changed the plan"
    UNCHANGED = "changed nothing"
    DISABLED = "disabled"
    FAILED = "failed"


@dataclass(frozen=True)
class RuleReport:
    """A rule of planning, what became of it, and the seconds that it took. ``detail``: why it failed."""

    name: str
    outcome: RuleOutcome
    seconds: float = 0.0
    detail: str = ""

    def text(self) -> str:
        """The facts for people."""
        if self.outcome is RuleOutcome.DISABLED:
            return f"rule {self.name}: disabled, skipstone.rules.{self.name} is false"
        detail = f", the query is planned without it ({self.detail})" if self.outcome is RuleOutcome.FAILED else ""
        return f"rule {self.name}: {self.outcome.value}{detail}, {self.seconds * 1000:.1f} ms"


@dataclass(frozen=True)
class Explanation:
    """A query: its relations, or why none of them was looked at. Its text is what ``print`` shows.

    ``rules``: what became of each rule of planning, in their order; the text shows those that are disabled or failed.
    ``problems``: a sentence on each setting or hint that does not count.
    """

    relations: tuple[RelationExplanation, ...] = ()
    refusal: Refusal | None = None
    detail: str = ""
    rules: tuple[RuleReport, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def is_rewritten(self) -> bool:
        """Return whether any relation is read through indexes."""
        return any(relation.is_rewritten for relation in self.relations)

    def __str__(self) -> str:
        """The facts for people."""
        without = [rule.text() for rule in self.rules if rule.outcome in (RuleOutcome.DISABLED, RuleOutcome.FAILED)]
        return "\n".join([self._relations_text(), *without, *(f"warning: {problem}" for problem in self.problems)])

    def _relations_text(self) -> str:
        if self.refusal is not None:
            detail = f" ({self.detail})" if self.detail else ""
            return f"not rewritten, {self.refusal.value}: {self.refusal.sentence}{detail}"
        return "\n".join(relation.text() for relation in self.relations) or "the query reads no Iceberg table"
