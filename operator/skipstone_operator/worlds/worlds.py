"""The frozen inputs of every decision, one type per kind.

Reconcilers' ``gather`` fills them from fresh reads; ``decide`` reads nothing else. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from skipstone_operator.ports import Key
from skipstone_operator.worlds.keeping import KeptDrivers
from skipstone_operator.worlds.pods import PodFacts
from skipstone_operator.worlds.runs import RunWorld
from skipstone_operator.worlds.subjects import (
    Children,
    ClaimFacts,
    Finding,
    IndexSubject,
    JobSubject,
    LocationClaim,
    MergeJobSubject,
    Place,
    ScheduleSubject,
    ServerFacts,
    Setting,
    TableSubject,
    Unreadable,
    WarehouseSubject,
)


@dataclass(frozen=True, kw_only=True)
class JobWorld:
    """One LoadJob or MergeJob. ``turn`` None means that it may write the table now, else it says who goes first."""

    job: JobSubject
    place: Place
    setting: Setting
    run: RunWorld | None = None
    children: Children = field(default_factory=Children)
    turn: Finding | None = None
    kept: bool = True


@dataclass(frozen=True, kw_only=True)
class TableWorld:
    """A Table with everything that reconciles under its key. ``table`` None: jobs wait for one of that name.

    ``run``: the table change or drop; ``maintain``: the maintain run.
    ``pods``: all driver pods that may tell of the table; ``older_claimant``: the Table that claims the same object;
    ``unreadable``: jobs whose spec cannot be read; ``readers``: what has the table as its source, if its snapshots
    expire.
    """

    key: Key
    setting: Setting
    table: TableSubject | None = None
    place: Place = field(default_factory=Place)
    jobs: tuple[JobWorld, ...] = ()
    run: RunWorld | None = None
    maintain: RunWorld | None = None
    children: Children = field(default_factory=Children)
    pods: tuple[PodFacts, ...] = ()
    older_claimant: TableSubject | None = None
    unreadable: tuple[Unreadable, ...] = ()
    readers: tuple[JobSubject | ScheduleSubject, ...] = ()


@dataclass(frozen=True, kw_only=True)
class IndexWorld:
    """A SecondaryIndex. ``place.indexes`` are all indexes of its table, itself included."""

    index: IndexSubject
    setting: Setting
    place: Place = field(default_factory=Place)
    run: RunWorld | None = None
    children: Children = field(default_factory=Children)
    pods: tuple[PodFacts, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WarehouseWorld:
    """A Warehouse with all Tables and indexes that live in it. ``indexes``: by the name of their Table."""

    warehouse: WarehouseSubject
    setting: Setting
    claim: ClaimFacts | None = None
    location_claims: tuple[LocationClaim, ...] = ()
    tables: tuple[TableSubject, ...] = ()
    indexes: Mapping[str, tuple[IndexSubject, ...]] = field(default_factory=dict)
    dependants: tuple[TableSubject | IndexSubject, ...] = ()
    check: RunWorld | None = None
    observe: RunWorld | None = None
    children: Children = field(default_factory=Children)
    server: ServerFacts = field(default_factory=ServerFacts)
    kept: KeptDrivers = field(default_factory=KeptDrivers)


@dataclass(frozen=True, kw_only=True)
class ScheduleWorld:
    """A MergeSchedule with its MergeJobs. ``taken``: names of MergeJobs here that are not its own."""

    schedule: ScheduleSubject
    setting: Setting
    jobs: tuple[MergeJobSubject, ...] = ()
    taken: frozenset[str] = frozenset()
