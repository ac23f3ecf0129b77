"""One atomic swap of a table's metadata, tried in bounded rounds until it is known to be in or out.

Used by ``commits`` only. Knows nothing of transactions: what to do with a head is the caller's ``prepare``.
Must not use PyIceberg's own retries: they re-apply a change without looking who committed in between.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Barrier
from typing import Literal, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    ValidatableTableRequirement,
)
from pyiceberg.types import NestedField
from skipstone_core.contract.requests import TableRef
from skipstone_core.errors import BadSpec, DependencyUnavailable
from skipstone_core.history.commits import AlreadyCommitted, Committed, Conflicted, Outcome, TxnRecord, Unknown
from skipstone_core.reasons import Reason

from skipstone.compat.avro.doubles import read_doubles_exactly
from skipstone.compat.avro.naming import read_named_types
from skipstone.compat.lineage.reading import read_manifests, refuse_cut_lists
from skipstone.compat.lineage.writing import LineageDelta
from skipstone.compat.pyiceberg import (
    CachingTransaction,
    SnapshotProducer,
    change_updates,
    delete_old_metadata,
    discard_manifests,
    manifest_workers,
    staged_requirements,
    staged_updates,
    transaction_table,
)
from skipstone.compat.rowdelta import DeleteFiles, FastAppend, RowDelta
from skipstone.tables.answers.branches import BranchTable, branch_of
from skipstone.tables.answers.reading import first_line
from skipstone.tables.answers.refusals import is_conflict, refused_commit
from skipstone.tables.catalogs import NotSentError, load_table, refuses_for_good
from skipstone.tables.clocks import commit_time_ms
from skipstone.tables.committing.fates import Fate, SentSwap, judge
from skipstone.tables.decoding.manifests import read_data_manifests
from skipstone.tables.shaping.evolution import add_columns
from skipstone.tables.shaping.formats import has_lineage

ROUNDS = 12
READ_BACKS = 4
#: Longest wait for threads that write manifests in vain.
_WRITERS_SECONDS = 10.0
_log = logging.getLogger(__name__)


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
    """The parts of one swap."""

    added: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    deletes: tuple[DataFile, ...] = ()
    replaced: tuple[DataFile, ...] = ()
    columns: tuple[NestedField, ...] = ()
    summary: Mapping[str, str] = field(default_factory=dict)
    is_rewrite: bool = False
    data_sequence: int | None = None


class _AssertFormatVersion(ValidatableTableRequirement):
    """The table has still the format version that manifests were written for: an upgrade commits no snapshot."""

    type: Literal["skipstone-assert-format-version"] = Field(default="skipstone-assert-format-version")
    version: int

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        """Raises CommitFailedException."""
        if base_metadata is None or base_metadata.format_version != self.version:
            raise CommitFailedException("the format version changed meanwhile")


def _own_requirements(catalog: Catalog, metadata: TableMetadata) -> tuple[TableRequirement, ...]:
    """What a server cannot be asked, which knows Iceberg's requirements only; it refuses by itself such a snapshot."""
    if not isinstance(catalog, SqlCatalog):
        return ()
    return (cast(TableRequirement, _AssertFormatVersion(version=metadata.format_version)),)


@dataclass(frozen=True)
class StagedSwap:
    """A swap that is written but for the catalog's pointer. ``record``: what is told of it once it landed."""

    table: Table
    transaction: Transaction
    producer: SnapshotProducer  # type: ignore[type-arg]
    record: TxnRecord

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

    def swap(self, catalog: Catalog) -> TableMetadata:
        """Ask the catalog, once, to replace exactly the metadata this was staged on; the metadata after that."""
        metadata = self.table.metadata
        shape = (
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),  # type: ignore[call-arg]
            AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),  # type: ignore[call-arg]
            # A column that was added and dropped again gives back the schema's id but not the ids we gave to ours.
            AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id),  # type: ignore[call-arg]
        )
        kinds = {type(requirement) for requirement in shape}
        staged = tuple(
            _of_new_branch(self.table, requirement)
            for requirement in staged_requirements(self.transaction)
            if type(requirement) not in kinds
        )
        asked = (*staged, *shape, *_own_requirements(catalog, metadata))
        return catalog.commit_table(self.table, asked, staged_updates(self.transaction)).metadata

    def sent(self) -> SentSwap:
        """How it is known again."""
        metadata = self.table.metadata
        return SentSwap(
            table_uuid=metadata.table_uuid,
            snapshot_id=self.snapshot_id,
            sequence_number=metadata.next_sequence_number(),
            parent_id=metadata.current_snapshot_id,
        )

    @contextmanager
    def or_discarded(self) -> Iterator[None]:
        """Delete the manifests when the block fails."""
        try:
            yield
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Delete the manifests of a swap that is proven not to have happened."""
        discard_manifests(self.producer)


def _of_new_branch(table: Table, requirement: TableRequirement) -> TableRequirement:
    """``requirement``, which says of a branch that the commit creates that it is not there yet."""
    is_of_branch = isinstance(requirement, AssertRefSnapshotId) and requirement.ref == branch_of(table)
    if not is_of_branch or not isinstance(table, BranchTable) or not table.is_new:
        return requirement
    return AssertRefSnapshotId(snapshot_id=None, ref=table.branch)  # type: ignore[call-arg]


def stage(table: Table, parts: Parts, now_ms: int) -> StagedSwap:
    """Write manifests for ``parts`` on the head of ``table``; a change without files is an empty snapshot.

    ``now_ms``: what the clock says. Raises ValidationException when a removed file is not in the head, OSError when the
    storage fails, DependencyUnavailable when manifests of the head are not whole.
    """

    def produce(transaction: Transaction) -> SnapshotProducer:  # type: ignore[type-arg]
        add_columns(transaction, parts.columns)
        producer = _producer(transaction, parts)
        for file in parts.added:
            producer.append_data_file(file)
        for file in parts.removed:
            producer.delete_data_file(file)
        return producer

    return stage_producer(table, produce, now_ms)


#: Makes what writes a snapshot for a transaction.
Produce = Callable[[Transaction], SnapshotProducer]  # type: ignore[type-arg]


def stage_producer(table: Table, produce: Produce, now_ms: int) -> StagedSwap:
    """Write what a snapshot producer writes on the head of ``table``. ``now_ms`` and what it raises: as ``stage``."""
    read_doubles_exactly()
    read_named_types()
    refuse_cut_lists()
    transaction = CachingTransaction(table)
    producer = produce(transaction)
    try:
        producer.commit()
    except Exception:
        _await_manifest_writers()
        discard_manifests(producer)
        raise
    time_ms = commit_time_ms(table.metadata, now_ms)
    change_updates(transaction, partial(_timed, time_ms=time_ms))
    change_updates(transaction, partial(_retained, refs=table.metadata.refs))
    return StagedSwap(table, transaction, producer, TxnRecord(time_ms=time_ms, snapshot_id=producer.snapshot_id))


def _timed(update: TableUpdate, time_ms: int) -> TableUpdate:
    if not isinstance(update, AddSnapshotUpdate):
        return update
    return AddSnapshotUpdate(snapshot=update.snapshot.model_copy(update={"timestamp_ms": time_ms}))


def _retained(update: TableUpdate, refs: Mapping[str, SnapshotRef]) -> TableUpdate:
    """Keep what a branch says of its retention, which PyIceberg leaves out when it moves the branch."""
    ref = refs.get(update.ref_name) if isinstance(update, SetSnapshotRefUpdate) else None
    if ref is None:
        return update
    kept = ("min_snapshots_to_keep", "max_snapshot_age_ms", "max_ref_age_ms")
    return update.model_copy(update={name: getattr(ref, name) for name in kept})


def _producer(transaction: Transaction, parts: Parts) -> SnapshotProducer:  # type: ignore[type-arg]
    table = transaction_table(transaction)
    if has_lineage(table) or parts.removed or parts.deletes or parts.replaced:
        named = _naming(table, frozenset(file.file_path for file in parts.removed))
        producer = (LineageDelta if has_lineage(table) else RowDelta)(
            transaction,
            DeleteFiles(parts.deletes, parts.replaced),
            parts.summary,
            lambda manifest: manifest.manifest_path in named,
            branch_of(table),
        )
        if parts.is_rewrite:
            producer.as_rewrite(parts.data_sequence)
        return producer
    summary = dict(parts.summary)
    return FastAppend(Operation.APPEND, transaction, table.io, snapshot_properties=summary, branch=branch_of(table))


def _naming(table: Table, removed: frozenset[str]) -> frozenset[str]:
    """The manifests of the head that name one of these data files, as decodes know that are kept.

    To be asked before PyIceberg's threads run: they decode too, and must not wait for each other.
    """
    head = table.current_snapshot()
    if head is None or not removed:
        return frozenset()
    listed = read_manifests(head, table.io, table.metadata.format_version)
    manifests = [manifest for manifest in listed if manifest.content == ManifestContent.DATA]
    decoded, _ = read_data_manifests(manifests, table.io)
    paths = pa.chunked_array([manifest.entries.column("path") for manifest in decoded], pa.string())
    places = pc.indices_nonzero(pc.is_in(paths, pa.array(sorted(removed), pa.string()))).to_numpy()
    ends = np.cumsum([manifest.count for manifest in decoded])
    return frozenset(manifests[at].manifest_path for at in np.searchsorted(ends, places, side="right").tolist())


def _await_manifest_writers() -> None:
    """Wait until PyIceberg's threads are done: when one of them fails, it leaves the others running.

    Its pool takes tasks in order, so when all workers have met, whatever was begun before has ended.
    """
    pool, workers = manifest_workers()
    meeting = Barrier(workers, timeout=_WRITERS_SECONDS)
    wait([pool.submit(meeting.wait) for _ in range(workers)])


#: Given the fresh head: the outcome, or what to swap now.
Prepare = Callable[[Table], Outcome | StagedSwap]


def swap_until_known(catalog: Catalog, ref: TableRef, prepare: Prepare, ports: CommitPorts) -> Outcome:
    """Load, prepare, swap; again while others were faster. What was sent is judged by fresh looks (``fates``).

    While the fate of anything that was sent is open, whatever else is found is Unknown. Conflicted, AlreadyCommitted
    and every exception of ``prepare`` and of the catalog come only when nothing of ours is in the table or may land.
    Conflicted is CLOCK_SKEWED or CATALOG_UNAVAILABLE when the server refused the change and a fresh look agrees.
    """
    rounds = _Rounds(catalog, ref, prepare, ports)
    try:
        return rounds.run()
    except Exception as error:
        if not rounds.is_open:
            raise
        return rounds.unknown(f"{type(error).__name__}: {error}")


@dataclass
class _Rounds:
    """One ``swap_until_known``: what it was given, and what it sent that is neither in the table nor dead.

    ``refusal``: why the server refused what was sent last, other than for a change of the table; it would refuse again.
    """

    catalog: Catalog
    ref: TableRef
    prepare: Prepare
    ports: CommitPorts
    sent: list[tuple[SentSwap, StagedSwap]] = field(default_factory=list)
    doubt: str = "others were faster"
    refusal: Conflicted | None = None

    @property
    def is_open(self) -> bool:
        """Return whether something that was sent may be in the table, or may still arrive."""
        return any(not swap.is_refused_for_good for swap, _ in self.sent)

    def run(self) -> Outcome:
        """Swap until the outcome is known, or there are no rounds left."""
        for attempt in range(ROUNDS):
            step = self._look()
            if not isinstance(step, StagedSwap):
                return step
            if self.refusal and not self.is_open:
                step.discard()
                return self.refusal
            if landed := self._send(step):
                return landed
            self.ports.pause(attempt)
        step = self._look()
        if not isinstance(step, StagedSwap):
            return step
        step.discard()
        if self.is_open:
            return self.unknown("no round is left")
        if self.refusal:
            return self.refusal
        message = f"Other writers of {self.ref.namespace}.{self.ref.name} were faster {ROUNDS} times; try again."
        return Conflicted(Reason.CONFLICTED, message)

    def unknown(self, why: str) -> Unknown:
        """The outcome while something is open."""
        return Unknown(f"The commit was sent and it is not known whether it landed ({self.doubt}): {why}")

    def _send(self, staged: StagedSwap) -> Committed | None:
        """Try one swap; None when the next look decides. Raises what kept it from being sent."""
        self.sent.append((staged.sent(), staged))
        self.refusal = None
        try:
            self.ports.hooks.before_swap(staged.table)
            metadata = staged.swap(self.catalog)
            self.ports.hooks.after_swap(staged.table)
        except NotSentError:
            self.sent.pop()
            staged.discard()
            raise
        except CommitFailedException as error:
            if is_conflict(error):
                self._note_refused(is_final=refuses_for_good(self.catalog))
            else:
                self.doubt = first_line(error)
            return None
        except Exception as error:  # noqa: BLE001 - whatever a catalog raises here, only what the table says counts
            self.doubt = f"{type(error).__name__}: {error}"
            if refusal := refused_commit(error, staged.table, self.ports.now_ms()):
                self.refusal = refusal
                self._note_refused()
            return None
        if landed := self._settle(metadata):
            _delete_old_metadata(self.catalog, staged.table, metadata)
        return landed

    def _note_refused(self, *, is_final: bool = False) -> None:
        """The answer to what was sent last was no."""
        swap, staged = self.sent.pop()
        self.sent.append((replace(swap, is_refused=True, is_final=is_final), staged))

    def _look(self) -> Outcome | StagedSwap:
        """Look at the table: the outcome, or what to swap now."""
        step = self._step()
        if isinstance(step, Conflicted | AlreadyCommitted) and self.is_open:
            return self.unknown(step.message if isinstance(step, Conflicted) else "another attempt committed")
        return step

    def _step(self) -> Outcome | StagedSwap:
        table = self._fresh_table()
        if not isinstance(table, Table):
            return table
        if any(swap.table_uuid != table.metadata.table_uuid for swap, _ in self.sent):
            return Conflicted(Reason.TABLE_REPLACED, f"{'.'.join(table.name())} is another table now.")
        return self._settle(table.metadata) or self.prepare(table)

    def _settle(self, head: TableMetadata) -> Committed | None:
        """Judge what was sent: Committed when one landed; the manifests of those that are dead are deleted."""
        fates = [(judge(head, swap), swap, staged) for swap, staged in self.sent]
        for fate, _, staged in fates:
            if fate is Fate.DEAD:
                staged.discard()
        self.sent = [(swap, staged) for fate, swap, staged in fates if fate is not Fate.DEAD]
        landed = [staged for fate, _, staged in fates if fate is Fate.LANDED]
        return Committed(landed[0].snapshot_id, landed[0].record) if landed else None

    def _fresh_table(self) -> Table | Conflicted:
        """The table as it is now. What may pass is looked at again, and so is everything while a swap is open."""
        for attempt in range(READ_BACKS):
            try:
                return load_table(self.catalog, self.ref)
            except BadSpec as error:
                if not self.is_open or attempt == READ_BACKS - 1:
                    return Conflicted(error.reason, str(error))
            except DependencyUnavailable:
                if attempt == READ_BACKS - 1:
                    raise
            self.ports.pause(attempt + 2)
        raise AssertionError(READ_BACKS)


def _delete_old_metadata(catalog: Catalog, base: Table, metadata: TableMetadata) -> None:
    """As the table's properties ask; what stays behind harms nobody."""
    try:
        delete_old_metadata(catalog, base, metadata)
    except Exception as error:  # noqa: BLE001 - the commit is in, whatever clean-up says
        _log.warning("old metadata of %s stays behind: %s", ".".join(base.name()), error)
