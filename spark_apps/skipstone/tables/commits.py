"""One atomic table change, committed at most once per transaction id.

Called by every run that writes. Owns the loop: look for the transaction, validate, swap, read back.
Must not retry blindly and must not delete files: who planned the change discards its files, on Conflicted only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from skipstone_core.commits import Outcome, TxnRecord, TxnState
from skipstone_core.jobs import TableRef
from skipstone_core.snapshots import Pinned

#: Given the head's table and the data files added since the plan: a sentence when the plan is void, else None.
Guard = Callable[[Table, tuple[DataFile, ...]], str | None]


@dataclass(frozen=True, kw_only=True)
class TableCommit:
    """A change planned on ``pinned``: add and remove data files, set properties, remember ``txn``.

    ``txn`` empty: nothing is remembered and nothing is fenced (index commits, idempotent by coverage).
    ``record`` goes into the property of the transaction; its time and snapshot id are filled in by the commit.
    ``guard`` None: data added by others since the plan never voids it (appends).
    """

    pinned: Pinned
    added: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    txn: str = ""
    record: TxnRecord | None = None
    summary: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    guard: Guard | None = None


class CommitHooks(Protocol):
    """Where tests hold or break a commit; production uses the one that does nothing."""

    def before_swap(self, table: Table) -> None:
        """Called when the change is validated, before the catalog is asked to swap."""

    def after_swap(self, table: Table) -> None:
        """Called after the catalog swapped, before the answer is believed."""


class NoHooks:
    """Does nothing."""

    def before_swap(self, table: Table) -> None:
        """Do nothing."""

    def after_swap(self, table: Table) -> None:
        """Do nothing."""


def commit_table(catalog: Catalog, ref: TableRef, change: TableCommit, hooks: CommitHooks | None = None) -> Outcome:
    """Commit ``change`` to the table ``ref``; races come back as values.

    Conflicted carries CONFLICTED (plan again), ROLLED_BACK, ABORTED, TABLE_REPLACED, TABLE_MISSING or
    TRANSACTION_LOG_FULL (do not). Raises nothing for what a catalog does; bugs only.
    """
    raise NotImplementedError(catalog, ref, change, hooks)


def find_txn(table: Table, txn: str) -> TxnState:
    """What ``table`` (freshly loaded) knows of ``txn``."""
    raise NotImplementedError(table, txn)


def find_digest(table: Table, digest: str) -> str | None:
    """The transaction id that applied a source of this digest and was not rolled back, or None."""
    raise NotImplementedError(table, digest)


def abort_txn(catalog: Catalog, ref: TableRef, txn: str, hooks: CommitHooks | None = None) -> TxnState | None:
    """Fence ``txn`` off by an empty snapshot unless it is there; the state found or made, None when not known."""
    raise NotImplementedError(catalog, ref, txn, hooks)


def discard_files(table: Table, added: tuple[DataFile, ...]) -> None:
    """Delete files that a Conflicted change wrote. Never call it for any other outcome."""
    raise NotImplementedError(table, added)
