"""What a run asks a commit to do. Plain data; knows neither catalogs nor how a commit is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.types import NestedField
from skipstone_core.history.commits import Conflicted, TxnRecord
from skipstone_core.indexing.snapshots import Pinned

#: Given the head's table and the data files added since the plan: a clause (no full stop) that says why the plan is
#: void, or None.
Guard = Callable[[Table, tuple[DataFile, ...]], str | None]


class Ledger(Protocol):
    """Further memory of a change that the table keeps in the same commit."""

    def find_conflict(self, table: Table) -> Conflicted | None:
        """Why the head of ``table`` makes the change void, or None."""

    def properties(self, table: Table, snapshot_id: int) -> Mapping[str, str]:
        """The table properties to set when ``snapshot_id`` is committed on the head of ``table``. Raises OSError."""


@dataclass(frozen=True, kw_only=True)
class TableCommit:
    """A change planned on ``pinned``: add and remove data files, set properties, remember ``txn``.

    ``deletes``: new position delete files, each for one of the data files ``marked``, which stay; ``replaced``: delete
    files that these make superfluous.
    ``resolved``: equality deletes among ``replaced`` whose rows ``deletes`` name. New ones of other writers stay beside
    them; a data file that one applies to and that was not there in the plan voids the change.
    ``read``: data files that it leaves as they are because of what their rows say.
    ``txn`` empty: nothing is remembered and nothing is fenced (index commits, idempotent by coverage).
    ``record`` goes into the property of the transaction; its time, snapshot id and emptiness are filled in.
    ``guard`` None: data added by others since the plan never voids it (appends).
    ``unique_source``: refuse when another transaction applied ``record.source_digest`` (SOURCE_ALREADY_APPLIED).
    ``columns``: fields that the same swap adds to the schema, as ``evolution.plan_columns`` made them.
    ``is_partial``: with ``txn``, the new segment is remembered as partial (rows of its source were left out).
    ``ledger``: what is remembered beside the transaction, and the rule by which it may void the change.
    ``is_rewrite``: the table has the same rows afterwards. ``data_sequence``: those of the added files are as old as
    that snapshot, in the very partitions of the removed files, so that equality deletes that others add meanwhile
    apply to them; None: they are new, and such deletes void the change.
    """

    pinned: Pinned
    added: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    marked: tuple[DataFile, ...] = ()
    deletes: tuple[DataFile, ...] = ()
    replaced: tuple[DataFile, ...] = ()
    resolved: tuple[DataFile, ...] = ()
    read: tuple[DataFile, ...] = ()
    columns: tuple[NestedField, ...] = ()
    txn: str = ""
    record: TxnRecord | None = None
    summary: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    guard: Guard | None = None
    unique_source: bool = False
    is_partial: bool = False
    ledger: Ledger | None = None
    is_rewrite: bool = False
    data_sequence: int | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether it changes no row."""
        return not (self.added or self.removed or self.deletes)

    @property
    def relied_on(self) -> tuple[DataFile, ...]:
        """The data files whose rows it judged: nobody else may have taken any of them since the plan."""
        return self.removed + self.marked + self.read
