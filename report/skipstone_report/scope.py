"""All objects of a page by kind and by table, and the time at which they are looked at.

Used by the page and its sections.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from skipstone_report.problems import OpenProblem, find_problems
from skipstone_report.reading import JOB_KINDS, PLURALS, Entity

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class TableKey:
    """A Table by namespace and name, whether or not it is there."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """As the page names it."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The subject of the page. ``by_kind`` has every kind of ours; jobs are newest first."""

    now: datetime
    by_kind: Mapping[str, tuple[Entity, ...]]
    problems: Sequence[OpenProblem]

    @property
    def jobs(self) -> tuple[Entity, ...]:
        """Loads and merges, the newest first."""
        return newest_first([job for kind in JOB_KINDS for job in self.by_kind[kind]])

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Those that any object is in."""
        return tuple(
            sorted({entity.namespace for entities in self.by_kind.values() for entity in entities if entity.namespace})
        )


def look_at(entities: Iterable[Entity], now: datetime) -> Scope:
    """The scope of these objects, without dry runs: a page about what merges did must not show what none has done."""
    shown = tuple(
        entity for entity in entities if not (entity.kind == "MergeJob" and entity.look("spec.dryRun") is True)
    )
    by_kind = {kind: tuple(entity for entity in shown if entity.kind == kind) for kind in PLURALS}
    return Scope(now=now, by_kind=by_kind, problems=find_problems(shown))


def newest_first(entities: Iterable[Entity]) -> tuple[Entity, ...]:
    """By the time of creation; those without one last."""
    return tuple(sorted(entities, key=lambda entity: (-(entity.created or _LONG_AGO).timestamp(), entity.key)))


def by_table(entities: Iterable[Entity]) -> Mapping[TableKey, list[Entity]]:
    """The objects of each table, in their order."""
    tables: defaultdict[TableKey, list[Entity]] = defaultdict(list)
    for entity in entities:
        if entity.table:
            tables[TableKey(namespace=entity.namespace, name=entity.table)].append(entity)
    return tables


def job_state(job: Entity) -> str:
    """Complete, Failed, or what Progressing gives as reason; empty when nothing is known."""
    if job.is_so("Failed"):
        return "Failed"
    if job.is_so("Complete"):
        return "Complete"
    progress = job.condition("Progressing")
    return (progress.reason if progress is not None else "") or job.text("status.reason")
