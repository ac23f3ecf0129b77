"""One atomic table change, committed at most once per transaction id.

Called by every run that writes. Decides on each fresh head: is the transaction there, is the plan still right?
Must not delete data files: who planned the change discards its files, once it is proven not to be in.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ValidationException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from skipstone_core.contract.requests import TableRef
from skipstone_core.errors import BadSpec, DependencyUnavailable
from skipstone_core.history.commits import (
    Aborted,
    Absent,
    Committed,
    Conflicted,
    Outcome,
    TxnRecord,
    TxnState,
    Unknown,
    find_outcome,
)
from skipstone_core.ids import TXN_SUMMARY, aborted_txn
from skipstone_core.reasons import Reason

from skipstone.tables.catalogs import load_table
from skipstone.tables.clocks import find_clock_conflict
from skipstone.tables.committing.changes import Guard, TableCommit
from skipstone.tables.committing.resolutions import find_resolution_conflict
from skipstone.tables.committing.swaps import (
    CommitHooks,
    CommitPorts,
    NoHooks,
    Parts,
    StagedSwap,
    stage,
    swap_until_known,
)
from skipstone.tables.committing.validation import find_conflict
from skipstone.tables.records.txns import Memory, find_digest, find_source_conflict, find_txn, plan_memory
from skipstone.tables.shaping.evolution import fits
from skipstone.tables.shaping.formats import is_lossless, require_mergeable

#: Why a catalog refuses what it may take later.
PASSING_REFUSALS = frozenset({Reason.CLOCK_SKEWED, Reason.CATALOG_UNAVAILABLE})
_log = logging.getLogger(__name__)
__all__ = [
    "CommitHooks",
    "CommitPorts",
    "Guard",
    "NoHooks",
    "TableCommit",
    "abort_txn",
    "commit_table",
    "discard_files",
    "find_digest",
    "find_txn",
]


def commit_table(catalog: Catalog, ref: TableRef, change: TableCommit, ports: CommitPorts | None = None) -> Outcome:
    """Commit ``change`` to the table ``ref``; races come back as values.

    Conflicted carries CONFLICTED (plan again), or what planning again cannot fix: ROLLED_BACK, ABORTED,
    SOURCE_ALREADY_APPLIED, TABLE_REPLACED, TABLE_MISSING, FORMAT_VERSION_UNSUPPORTED, CLOCK_SKEWED,
    CATALOG_UNAVAILABLE (the server refused it).
    Raises, only while nothing can have landed: DependencyUnavailable when the catalog does not answer or manifests of
    the table are not whole, OSError when the storage cannot be read or cannot take manifests.
    """
    used = ports or CommitPorts()
    return swap_until_known(catalog, ref, lambda table: _prepare(table, change, used), used)


def abort_txn(catalog: Catalog, ref: TableRef, txn: str, ports: CommitPorts | None = None) -> TxnState | None:
    """Fence ``txn`` off by an empty snapshot unless the table knows it; the state found or made.

    None when that is not known. A table that we could not write without loss gets no fence: no attempt
    writes it either. Raises as commit_table does, and DependencyUnavailable (CLOCK_SKEWED, CATALOG_UNAVAILABLE) when
    the server refuses the fence.
    """
    used = ports or CommitPorts()
    table = load_table(catalog, ref)
    if not is_lossless(table) and isinstance(find_txn(table, txn), Absent):
        return Aborted(0)
    states: list[TxnState] = []
    outcome = swap_until_known(catalog, ref, lambda head: _prepare_abort(head, txn, used, states), used)
    if isinstance(outcome, Committed):
        return Aborted(outcome.snapshot_id)
    if isinstance(outcome, Unknown):
        return None
    state = states[-1] if states else find_txn(load_table(catalog, ref), txn)
    if not isinstance(state, Absent):
        return state
    if isinstance(outcome, Conflicted) and outcome.reason in PASSING_REFUSALS:
        raise DependencyUnavailable(outcome.reason, outcome.message)
    return None


def discard_files(table: Table, added: tuple[DataFile, ...]) -> None:
    """Delete files of a change that is proven not to be in: Conflicted, AlreadyCommitted by another, never sent.

    Never call it for other outcomes. A file that cannot be deleted stays, with a warning: no commit names it.
    """
    for file in added:
        try:
            table.io.delete(file.file_path)
        except FileNotFoundError:
            continue
        except OSError as error:
            _log.warning("%s stays behind: %s", file.file_path, error)


def _prepare(table: Table, change: TableCommit, ports: CommitPorts) -> Outcome | StagedSwap:
    return (
        _settled(table, change)
        or find_clock_conflict(table, ports.now_ms())
        or _refused(table, change)
        or _staged(table, change, ports)
    )


def _settled(table: Table, change: TableCommit) -> Outcome | None:
    """The outcome when another attempt of this transaction is decided on the head of ``table``."""
    return find_outcome(find_txn(table, change.txn)) if change.txn else None


def _refused(table: Table, change: TableCommit) -> Conflicted | None:
    try:
        require_mergeable(table)
    except BadSpec as error:
        return Conflicted(error.reason, str(error))
    digest = change.record.source_digest if change.record else None
    if change.unique_source and digest and (applied := find_source_conflict(table, digest)):
        return applied
    if change.ledger and (void := change.ledger.find_conflict(table)):
        return void
    if not fits(table, change.columns):
        return Conflicted(Reason.CONFLICTED, "Since the run planned its change, another writer used its field ids.")
    if change.resolved:
        return find_resolution_conflict(table, change.pinned, change.marked, change.resolved)
    keeps_age = change.data_sequence is not None
    return find_conflict(table, change.pinned, change.relied_on, change.guard, keeps_age=keeps_age)


def _staged(table: Table, change: TableCommit, ports: CommitPorts) -> StagedSwap | Conflicted:
    try:
        staged = stage(table, _parts(change), ports.now_ms())
    except ValidationException as error:
        return Conflicted(Reason.CONFLICTED, f"A file to be rewritten is no longer in the table: {error}.")
    base = replace(change.record or TxnRecord(time_ms=0), is_empty=change.is_empty)
    record = _stamped(base, table, staged)
    with staged.or_discarded():
        updates, memory = _properties(table, change, record), _memory(table, change, record)
        staged.set_properties({**updates, **memory.updates}, memory.removals)
    return replace(staged, record=record)


def _parts(change: TableCommit) -> Parts:
    summary = {**change.summary, **({TXN_SUMMARY: change.txn} if change.txn else {})}
    return Parts(
        added=change.added,
        removed=change.removed,
        deletes=change.deletes,
        replaced=change.replaced,
        columns=change.columns,
        summary=summary,
        is_rewrite=change.is_rewrite,
        data_sequence=change.data_sequence,
    )


def _stamped(record: TxnRecord, table: Table, staged: StagedSwap) -> TxnRecord:
    number = table.metadata.next_sequence_number()
    return replace(record, time_ms=staged.record.time_ms, snapshot_id=staged.snapshot_id, sequence_number=number)


def _memory(table: Table, change: TableCommit, record: TxnRecord) -> Memory:
    if not change.txn:
        return Memory({}, ())
    return plan_memory(table, change.txn, record, is_partial=change.is_partial and not change.is_empty)


def _properties(table: Table, change: TableCommit, record: TxnRecord) -> dict[str, str]:
    properties = dict(change.properties)
    if change.ledger:
        properties |= change.ledger.properties(table, record.snapshot_id)
    return properties


def _prepare_abort(table: Table, txn: str, ports: CommitPorts, states: list[TxnState]) -> Outcome | StagedSwap:
    """Append to ``states`` the state that needs no fence."""
    state = find_txn(table, txn)
    if not isinstance(state, Absent):
        states.append(state)
        return Conflicted(Reason.ABORTED, "The transaction is already decided.")
    staged = stage(table, Parts(summary={TXN_SUMMARY: aborted_txn(txn)}), ports.now_ms())
    record = _stamped(TxnRecord(time_ms=0, is_aborted=True), table, staged)
    with staged.or_discarded():
        memory = plan_memory(table, txn, record)
        staged.set_properties(memory.updates, memory.removals)
    return replace(staged, record=record)
