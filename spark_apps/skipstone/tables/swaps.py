"""One atomic swap of a table's metadata, tried in bounded rounds until it is known to be in or out.

Used by ``commits`` only. Knows nothing of transactions: what to do with a head is the caller's ``prepare``.
Must not use PyIceberg's own retries: they re-apply a change without looking who committed in between.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Barrier
from typing import Protocol

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertTableUUID,
    TableUpdate,
)
from pyiceberg.table.update.snapshot import _SnapshotProducer
from pyiceberg.types import NestedField
from pyiceberg.utils.concurrent import ExecutorFactory
from skipstone_core.commits import Conflicted, Outcome, Unknown
from skipstone_core.contract.requests import TableRef
from skipstone_core.errors import BadSpec, DependencyUnavailable
from skipstone_core.reasons import Reason

from skipstone.tables.catalogs import load_table
from skipstone.tables.evolution import add_columns
from skipstone.tables.rowdeltas import RowDelta

ROUNDS = 12
READ_BACKS = 4
#: Longest wait for threads that write manifests in vain.
_WRITERS_SECONDS = 10.0


class CommitHooks(Protocol):
    """Where tests hold or break a commit; production uses the one that does nothing."""

    def before_swap(self, table: Table) -> None:
        """Called when the change is validated and staged, before the catalog is asked to swap."""

    def after_swap(self, table: Table) -> None:
        """Called after the catalog swapped, before the answer is believed."""


class NoHooks:
    """Does nothing."""

    def before_swap(self, table: Table) -> None:
        """Do nothing."""

    def after_swap(self, table: Table) -> None:
        """Do nothing."""


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def jittered_pause(attempt: int) -> None:
    """Wait 50 ms to 3.2 s, longer with each attempt and never in step with others."""
    time.sleep(0.05 * 2 ** min(attempt, 6) * random.uniform(0.5, 1.0))


@dataclass(frozen=True)
class CommitPorts:
    """The outside world of a commit, for tests to replace."""

    hooks: CommitHooks = field(default_factory=NoHooks)
    now_ms: Callable[[], int] = wall_clock_ms
    pause: Callable[[int], None] = jittered_pause


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What goes into one swap."""

    added: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    deletes: tuple[DataFile, ...] = ()
    replaced: tuple[DataFile, ...] = ()
    columns: tuple[NestedField, ...] = ()
    summary: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Staged:
    """A swap that is written but for the catalog's pointer."""

    table: Table
    transaction: Transaction
    producer: _SnapshotProducer  # type: ignore[type-arg]

    @property
    def snapshot_id(self) -> int:
        """The id that the new snapshot will have: by it our commit is told from everybody else's."""
        return self.producer.snapshot_id

    def set_properties(self, updates: Mapping[str, str], removals: tuple[str, ...] = ()) -> None:
        """Set and remove table properties in the same swap."""
        if updates:
            self.transaction.set_properties(dict(updates))
        if removals:
            self.transaction.remove_properties(*removals)

    def swap(self, catalog: Catalog) -> None:
        """Ask the catalog, once, to replace exactly the metadata this was staged on."""
        metadata = self.table.metadata
        shape = (
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),  # type: ignore[call-arg]
            AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),  # type: ignore[call-arg]
            # A column that was added and dropped again gives back the schema's id but not the ids we gave to ours.
            AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id),  # type: ignore[call-arg]
        )
        kinds = {type(requirement) for requirement in shape}
        staged = tuple(r for r in self.transaction._requirements if type(r) not in kinds)
        response = catalog.commit_table(self.table, staged + shape, self.transaction._updates)
        catalog._delete_old_metadata(self.table.io, metadata, response.metadata)

    def discard(self) -> None:
        """Delete the manifests of a swap that is proven not to have happened."""
        self.producer._clean_all_uncommitted()


class _Transaction(Transaction):
    """PyIceberg's copies all metadata, a snapshot at a time, whenever it is asked for; this one when it changed."""

    _known: tuple[tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata with the updates so far; nobody may change it."""
        if not self._updates:
            return self._table.metadata
        if self._known is None or self._known[0] is not self._updates:
            self._known = self._updates, super().table_metadata
        return self._known[1]


def stage(table: Table, parts: Parts) -> Staged:
    """Write manifests for ``parts`` on the head of ``table``; a change without files is an empty snapshot.

    Raises ValidationException when a removed file is not in the head, OSError when the storage fails.
    """
    transaction = _Transaction(table)
    add_columns(transaction, parts.columns)
    producer = _producer(transaction, parts)
    for file in parts.added:
        producer.append_data_file(file)
    for file in parts.removed:
        producer.delete_data_file(file)
    try:
        producer.commit()
    except (OSError, ValidationException):
        _await_manifest_writers()
        producer._clean_all_uncommitted()
        raise
    return Staged(table, transaction, producer)


def _producer(transaction: Transaction, parts: Parts) -> _SnapshotProducer:  # type: ignore[type-arg]
    if parts.removed or parts.deletes or parts.replaced:
        return RowDelta(transaction, parts.deletes, parts.replaced, parts.summary)
    return transaction.update_snapshot(snapshot_properties=dict(parts.summary)).fast_append()


def _await_manifest_writers() -> None:
    """Wait until PyIceberg's threads are done: when one of them fails, it leaves the others at work.

    Its pool takes tasks in order, so when all workers have met, whatever was begun before has ended.
    """
    pool = ExecutorFactory.get_or_create()
    workers = pool._max_workers if isinstance(pool, ThreadPoolExecutor) else 1
    meeting = Barrier(workers, timeout=_WRITERS_SECONDS)
    wait([pool.submit(meeting.wait) for _ in range(workers)])


#: Given the fresh head and the snapshot ids we tried before: the outcome, or what to swap now.
Prepare = Callable[[Table, frozenset[int]], Outcome | Staged]


@dataclass
class _Rounds:
    """What one ``swap_until_known`` remembers of its rounds. ``refused``: swaps that the catalog said no to."""

    ports: CommitPorts
    tried: set[int] = field(default_factory=set)
    refused: list[Staged] = field(default_factory=list)
    doubt: str = ""

    def note(self, staged: Staged, failure: str) -> None:
        """Remember a swap that did not go through: refused, or nobody knows why."""
        self.doubt = failure or self.doubt
        if not failure:
            self.refused.append(staged)

    def discard_refused(self, table: Table | None) -> None:
        """Delete the manifests of refused swaps that ``table`` (freshly loaded, None: it is gone) does not know."""
        for staged in self.refused:
            if table is None or table.snapshot_by_id(staged.snapshot_id) is None:
                staged.discard()
        self.refused.clear()


def swap_until_known(catalog: Catalog, ref: TableRef, prepare: Prepare, ports: CommitPorts) -> Outcome:
    """Load, prepare, swap; again while others were faster. Every exception of a swap is followed by a fresh look.

    Raises DependencyUnavailable and OSError only while nothing that was sent may still land: else what cannot be read
    is Unknown.
    """
    rounds = _Rounds(ports)
    for attempt in range(ROUNDS):
        step = _next_step(catalog, ref, prepare, rounds)
        if not isinstance(step, Staged):
            return step
        rounds.tried.add(step.snapshot_id)
        failure = _swap_once(catalog, step, ports)
        if failure is not None:
            rounds.note(step, failure)
            ports.pause(attempt)
    return _last_look(ref, _next_step(catalog, ref, prepare, rounds), rounds.doubt)


def _next_step(catalog: Catalog, ref: TableRef, prepare: Prepare, rounds: _Rounds) -> Outcome | Staged:
    table = _fresh_table(catalog, ref, rounds.ports, sent=bool(rounds.tried))
    if isinstance(table, Unknown):
        return table
    rounds.discard_refused(table if isinstance(table, Table) else None)
    if not isinstance(table, Table):
        return table
    try:
        return prepare(table, frozenset(rounds.tried))
    except OSError as error:
        if not rounds.doubt:
            raise
        return Unknown(f"The commit was sent and the storage failed before it could be looked for: {error}")


def _swap_once(catalog: Catalog, staged: Staged, ports: CommitPorts) -> str | None:
    """Try one swap. None: it went through; empty: the catalog said no; else why nobody knows."""
    try:
        ports.hooks.before_swap(staged.table)
        staged.swap(catalog)
        ports.hooks.after_swap(staged.table)
    except CommitFailedException:
        return ""
    except Exception as error:  # noqa: BLE001 - whatever a catalog raises here, only what the table says next counts
        return f"{type(error).__name__}: {error}"
    return None


def _fresh_table(catalog: Catalog, ref: TableRef, ports: CommitPorts, *, sent: bool) -> Table | Outcome:
    for attempt in range(READ_BACKS):
        try:
            return load_table(catalog, ref)
        except BadSpec as error:
            return Conflicted(error.reason, str(error))
        except DependencyUnavailable as error:
            last = error
            ports.pause(attempt + 2)
    if not sent:
        raise last
    return Unknown(f"The commit was sent and the table cannot be read back: {last}")


def _last_look(ref: TableRef, step: Outcome | Staged, doubt: str) -> Outcome:
    if not isinstance(step, Staged):
        return step
    step.discard()
    if doubt:
        return Unknown(f"The last commit may still land: {doubt}")
    message = f"Other writers of {ref.namespace}.{ref.name} were faster {ROUNDS} times; try again."
    return Conflicted(Reason.CONFLICTED, message)
