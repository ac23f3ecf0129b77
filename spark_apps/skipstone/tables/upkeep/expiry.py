"""Removes snapshots that a policy lets go in one commit, then the files that nothing reaches any more.

Called by maintain runs, and for index tables by whoever commits to them. What a table remembers of transactions stands
after it as it did before. Whether the commit landed is judged by a fresh look: nothing is deleted before the snapshots
are gone from the table.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from pydantic import Field
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePartitionStatisticsUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
    ValidatableTableRequirement,
)
from skipstone_core.contract.requests import TableRef
from skipstone_core.errors import BadSpec
from skipstone_core.history.commits import Conflicted
from skipstone_core.maintenance.expiry import ExpiryPlan
from skipstone_core.maintenance.policies import SnapshotPolicy
from skipstone_core.reasons import Reason

from skipstone.tables.answers.refusals import refused_commit
from skipstone.tables.catalogs import NotSentError, load_table
from skipstone.tables.committing.swaps import CommitPorts
from skipstone.tables.records.histories import History
from skipstone.tables.records.txns import txn_records
from skipstone.tables.sharing.places import find_sharing, refused
from skipstone.tables.upkeep.archives import delete_old_archives
from skipstone.tables.upkeep.health import expiry_plan
from skipstone.tables.upkeep.removal import (
    Deleted,
    RemovalNotes,
    delete_old_metadata,
    delete_removed,
    removed_of,
)
from skipstone.tables.upkeep.settling import settle_removed

#: Commits that may fail.
ROUNDS = 12
#: Snapshots that one commit removes at most: what it removes is read.
MOST_AT_ONCE = 1000
_FIELD = "spec.maintenance.snapshots"
_log = logging.getLogger(__name__)


class _AssertRefs(ValidatableTableRequirement):
    """The table has the branches and tags ``names`` and no others: one that is new may name what is removed."""

    type: Literal["skipstone-assert-refs"] = Field(default="skipstone-assert-refs")
    names: list[str]

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        """Raises CommitFailedException."""
        if base_metadata is None or sorted(base_metadata.refs) != self.names:
            raise CommitFailedException("branches or tags were made or dropped meanwhile")


@dataclass(frozen=True, kw_only=True)
class Expired:
    """The outcome of an expiry. ``is_done``: nothing is left that the policy lets go. ``message``: else why.

    ``reason``: then CONFLICTED when others were faster, CLOCK_SKEWED or CATALOG_UNAVAILABLE when the server refused it.
    ``notes``: sentences on branches and tags that others made at the very moment of the commit, and on files of removed
    snapshots that other tables use.
    """

    snapshots: int = 0
    deleted: Deleted = field(default_factory=Deleted)
    is_done: bool = True
    reason: Reason = Reason.COMMITTED
    message: str = ""
    notes: tuple[str, ...] = ()


def expire_snapshots(
    catalog: Catalog,
    ref: TableRef,
    policy: SnapshotPolicy,
    ports: CommitPorts | None = None,
    *,
    in_use_since_ms: int | None = None,
) -> Expired:
    """Remove what ``policy`` lets go of the table ``ref``, and the files that only this reached.

    Raises BadSpec when no file of the table may be deleted or it is not the one of ``ref``, DependencyUnavailable and
    OSError when catalog or storage do not answer: what was begun then is finished by the next call.
    """
    used = ports or CommitPorts()
    table = load_table(catalog, ref)
    if why := find_sharing(table):
        raise refused(table, why, _FIELD)
    return _Expiry(catalog, replace(ref, table_uuid=str(table.metadata.table_uuid)), used).run(policy, in_use_since_ms)


@dataclass
class _Expiry:
    """One expiry of exactly one table, whatever takes its name meanwhile; and what it has done so far."""

    catalog: Catalog
    ref: TableRef
    ports: CommitPorts
    removed: int = 0
    notes: list[str] = field(default_factory=list)

    def run(self, policy: SnapshotPolicy, in_use_since_ms: int | None) -> Expired:
        """See ``expire_snapshots``."""
        tries = 0
        while tries < ROUNDS:
            table = load_table(self.catalog, self.ref)
            plan = expiry_plan(table, policy, self.ports.now_ms(), in_use_since_ms=in_use_since_ms)
            if not plan.snapshots and not plan.refs:
                return self._ended()
            gone = _remove(self.catalog, self.ref, _bounded(plan), table, self.ports)
            if isinstance(gone, Conflicted):
                return self._ended(gone)
            self._settle()
            self.removed += gone
            if not gone:
                self.ports.pause(tries)
                tries += 1
        message = f"Other writers of {self.ref.namespace}.{self.ref.name} were faster; the next run goes on."
        return self._ended(Conflicted(Reason.CONFLICTED, message))

    def _ended(self, why: Conflicted | None = None) -> Expired:
        """Delete what nothing reaches, by a fresh look. ``why``: not all is gone."""
        self._settle()
        table = load_table(self.catalog, self.ref)
        if shared := self._shared(table):
            deleted, why = Deleted(), Conflicted(Reason.RESOURCE_CONFLICT, str(refused(table, shared, _FIELD)))
        else:
            cleaned = delete_removed(table) + delete_old_metadata(table)
            deleted = cleaned + delete_old_archives(table, self.ports.now_ms)
        done = Expired(snapshots=self.removed, deleted=deleted, notes=(*self.notes, *deleted.notes))
        return replace(done, is_done=False, reason=why.reason, message=why.message) if why else done

    def _shared(self, table: Table) -> str | None:
        """Why files must stay after all: commits take time, in which somebody may have made a copy of the table."""
        return find_sharing(table) if next(RemovalNotes(table).all(), None) else None

    def _settle(self) -> None:
        """Put back what a server removed without a word; an SQL catalog refuses the commit then."""
        if not isinstance(self.catalog, SqlCatalog):
            self.notes += settle_removed(self.catalog, self.ref, self.ports)


def _bounded(plan: ExpiryPlan) -> ExpiryPlan:
    """The oldest part of what expires."""
    return ExpiryPlan(snapshots=plan.snapshots[:MOST_AT_ONCE], refs=plan.refs)


def _remove(catalog: Catalog, ref: TableRef, plan: ExpiryPlan, table: Table, ports: CommitPorts) -> int | Conflicted:
    """Ask the catalog once; how many snapshots were removed, as a fresh look tells. Conflicted: the server refused."""
    RemovalNotes(table).keep(removed_of(table, plan.snapshots))
    requirements, updates = _requirements(table), _updates(table, plan)
    refusal: Conflicted | None = None
    try:
        ports.hooks.before_swap(table)
        catalog.commit_table(table, requirements, updates)
        ports.hooks.after_swap(table)
    except NotSentError:
        raise
    except CommitFailedException as error:
        _log.info("the snapshots of %s.%s are looked at again: %s", ref.namespace, ref.name, error)
    except Exception as error:  # noqa: BLE001 - whatever a catalog raises here, only what the table says counts
        _log.warning("whether snapshots of %s.%s expired is looked up: %s", ref.namespace, ref.name, error)
        refusal = refused_commit(error, table, ports.now_ms())
    head = load_table(catalog, ref)
    if head.metadata.table_uuid != table.metadata.table_uuid:
        raise BadSpec(Reason.TABLE_REPLACED, f"{ref.namespace}.{ref.name} is another table now.")
    retained = {snapshot.snapshot_id for snapshot in head.metadata.snapshots}
    return len(set(plan.snapshots) - retained) or refusal or 0


def _requirements(table: Table) -> tuple[TableRequirement, ...]:
    """Nobody moved a ref; and none is new, as far as the catalog can be asked that: a server takes known questions."""
    refs = table.metadata.refs.items()
    moved = tuple(AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in refs)  # type: ignore[call-arg]
    asked: tuple[TableRequirement, ...] = (AssertTableUUID(uuid=table.metadata.table_uuid), *moved)
    if not isinstance(table.catalog, SqlCatalog):
        return asked
    return (*asked, cast(TableRequirement, _AssertRefs(names=sorted(table.metadata.refs))))


def _updates(table: Table, plan: ExpiryPlan) -> tuple[TableUpdate, ...]:
    """Refs go before the snapshots that they name; what the table remembers is brought up to this head."""
    metadata, ids = table.metadata, frozenset(plan.snapshots)
    updates: list[TableUpdate] = [RemoveSnapshotRefUpdate(ref_name=name) for name in plan.refs]  # type: ignore[call-arg]
    if ids:
        updates += _statistics(table, ids)
        updates.append(RemoveSnapshotsUpdate(snapshot_ids=list(plan.snapshots)))  # type: ignore[call-arg]
    if metadata.current_snapshot_id is not None:
        remembered = History(table, txn_records(table)).remembered()
        if any(metadata.properties.get(name) != value for name, value in remembered.items()):
            updates.append(SetPropertiesUpdate(updates=remembered))
    return tuple(updates)


def _statistics(table: Table, ids: Iterable[int]) -> Sequence[TableUpdate]:
    """PyIceberg removes statistics with their snapshot, but for those of partitions."""
    gone = {statistics.snapshot_id for statistics in table.metadata.partition_statistics} & set(ids)
    return [RemovePartitionStatisticsUpdate(snapshot_id=number) for number in sorted(gone)]  # type: ignore[call-arg]
