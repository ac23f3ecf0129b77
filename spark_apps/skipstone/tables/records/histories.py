"""The history of a table's head: its retained ancestors, and which commits of ours are part of it.

Used by the memories of transactions and of consumed files, and by the validation of commits. Reads metadata; manifests
only when the metadata alone cannot tell. Must not commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from propcache.api import cached_property
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.history.commits import TxnRecord
from skipstone_core.history.lineages import (
    Lineage,
    Link,
    Span,
    Standing,
    decode_lineage,
    encode_lineage,
    plan_corrections,
    plan_lineage,
)
from skipstone_core.ids import LINEAGE_PROPERTY, TXN_SUMMARY
from skipstone_core.reasons import Reason

from skipstone.compat.pyiceberg import summary_of
from skipstone.tables.answers.branches import BranchTable
from skipstone.tables.filesets import read_file_set

#: Which snapshot a cherry-picked one applied again, in its summary.
_PICKED_FROM = "source-snapshot-id"


def ancestors(table: Table, snapshot: Snapshot | None = None) -> Iterator[Snapshot]:
    """``snapshot`` (the head of ``table``) and its ancestors as far as they are retained, newest first."""
    known, snapshot = _by_id(table), snapshot or table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = known.get(parent) if parent is not None else None


def _by_id(table: Table) -> Mapping[int, Snapshot]:
    """The retained snapshots; PyIceberg looks through all of them for each that is asked for."""
    return {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}


def was_rolled_back(table: Table, snapshot_id: int, sequence_number: int, records: Mapping[str, TxnRecord]) -> bool:
    """Return whether a commit of ours, to main or another branch, is not an ancestor of the head of ``table``.

    Sequence numbers only grow along a chain, so this is known for expired snapshots too, unless everything that is
    retained is newer. Then the chain was cut, for which not every engine leaves a sign: what lies behind the cut of
    main counts as an ancestor unless the lineage, told by ``records`` (the newest of the table), knows better. What a
    cherry-pick applied again is not rolled back.
    Raises DependencyUnavailable for a commit behind the cut of another branch of which nothing is left to tell.
    """
    snapshot: Snapshot | None = None
    for snapshot in ancestors(table):
        if snapshot.snapshot_id == snapshot_id:
            return False
        if (snapshot.sequence_number or 0) < sequence_number:
            return not was_picked(table, snapshot_id)
    if snapshot is None:
        return True
    history = History(table, records)
    if isinstance(table, BranchTable):
        commit = TxnRecord(time_ms=0, snapshot_id=snapshot_id, sequence_number=sequence_number)
        return _was_beside(table, history, commit)
    is_gone = history.lineage.standing(sequence_number) is Standing.ROLLED_BACK
    return is_gone and not was_picked(table, snapshot_id)


def _was_beside(table: BranchTable, history: History, commit: TxnRecord) -> bool:
    """Return whether an expired commit is not in the history of a branch, which may have begun before or after it."""
    standing = history.standing(commit)
    if standing is Standing.UNREPORTED:
        raise DependencyUnavailable(
            Reason.STORAGE_UNAVAILABLE,
            f"whether the branch {table.branch!r} has the rows of snapshot {commit.snapshot_id} cannot be told, "
            "because its earlier snapshots expired; drop the branch and create it again at a snapshot of main",
        )
    return standing is Standing.ROLLED_BACK


def was_picked(table: Table, snapshot_id: int) -> bool:
    """Return whether retained ancestors of the head tell that they applied a snapshot again, itself or a pick of it."""
    retained = _by_id(table)
    return any(snapshot_id in _sources(retained, snapshot) for snapshot in ancestors(table))


class History:
    """How the commits of our transactions stand in the history of the head of ``table``."""

    def __init__(self, table: Table, records: Mapping[str, TxnRecord]) -> None:
        """``records``: the newest of the table, as its properties hold them."""
        self._table = table
        self._records = records
        self._retained = _by_id(table)
        self._chain = tuple(ancestors(table))
        self._ids = frozenset(snapshot.snapshot_id for snapshot in self._chain)
        self._picked = frozenset(source for snapshot in self._chain for source in _sources(self._retained, snapshot))

    def standing(self, record: TxnRecord) -> Standing:
        """How the commit of ``record`` stands. Raises OSError when manifests have to be read and cannot be."""
        standing = self._by_metadata(record)
        if standing is not Standing.UNREPORTED:
            return standing
        is_there = record.is_empty or record.snapshot_id in self._snapshots_with_files
        return Standing.APPLIED if is_there else Standing.UNREPORTED

    def properties(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """Return the properties that the next commit sets and removes, so that later ones can tell after expiry too."""
        lineage = Lineage(self._table.metadata.next_sequence_number(), self._corrected.spans)
        if lineage.spans:
            return {LINEAGE_PROPERTY: encode_lineage(lineage)}, ()
        return {}, (LINEAGE_PROPERTY,) if LINEAGE_PROPERTY in self._table.properties else ()

    def properties_beside(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """Return the properties that the next commit sets and removes if it is on another branch than this head.

        The head stays the one by which commits are told, and that commit is not in its history.
        """
        head = self._table.current_snapshot()
        if head is None:
            return {}, ()
        number = self._table.metadata.next_sequence_number()
        lineage = plan_corrections(replace(self._corrected, at=number), {number: Standing.ROLLED_BACK})
        return {LINEAGE_PROPERTY: encode_lineage(replace(lineage, seen_from=head.snapshot_id))}, ()

    def remembered(self) -> dict[str, str]:
        """Return the properties that keep all standings as they are when a commit removes snapshots of this head.

        Nothing when no transaction of ours is known.
        """
        newest, head = self._newest(), self._table.current_snapshot()
        if newest is None or head is None:
            return {}
        lineage = replace(self._corrected, at=newest[0], seen_from=head.snapshot_id)
        return {LINEAGE_PROPERTY: encode_lineage(lineage)}

    def sequence_number(self, record: TxnRecord) -> int:
        """The sequence number of the commit of ``record``, 0 when nothing tells it."""
        snapshot = self._retained.get(record.snapshot_id)
        return record.sequence_number or (snapshot.sequence_number if snapshot else 0) or 0

    def _by_metadata(self, record: TxnRecord) -> Standing:
        """Return how a commit stands as far as the metadata shows it."""
        if record.snapshot_id in self._ids or record.snapshot_id in self._picked:
            return Standing.APPLIED
        number = self.sequence_number(record)
        if not self._chain or (number and number >= (self._chain[-1].sequence_number or 0)):
            return Standing.UNREPORTED if number < self._lost_pick else Standing.ROLLED_BACK
        return self.lineage.standing(number)

    @cached_property
    def _corrected(self) -> Lineage:
        """The lineage as the next commit should remember it.

        What a cherry-pick applied again is in doubt as soon as the picking snapshot expires.
        """
        judged = [record for record in self._records.values() if self.sequence_number(record)]
        standings = {
            self.sequence_number(record): self._by_metadata(record)
            for record in judged
            if self.lineage.standing(self.sequence_number(record)) is Standing.UNREPORTED
        }
        picked = {self.sequence_number(r): Standing.UNREPORTED for r in judged if r.snapshot_id in self._picked}
        picked |= dict.fromkeys(self._picked_numbers(), Standing.UNREPORTED)
        picked |= {
            self.sequence_number(r): Standing.UNREPORTED for r in judged if self._by_metadata(r) is Standing.UNREPORTED
        }
        return plan_corrections(self.lineage, standings | picked)

    def _picked_numbers(self) -> Iterator[int]:
        for snapshot_id in self._picked:
            snapshot = self._retained.get(snapshot_id)
            if snapshot is not None and snapshot.sequence_number:
                yield snapshot.sequence_number

    @cached_property
    def _lost_pick(self) -> int:
        """The sequence number of the newest cherry-pick of which nothing tells what it applied again, 0 without one."""
        ours = {record.snapshot_id for record in self._records.values()}
        for snapshot in self._chain:
            *_, last = (0, *_sources(self._retained, snapshot))
            if last and last not in ours and last not in self._retained:
                return snapshot.sequence_number or 0
        return 0

    @cached_property
    def lineage(self) -> Lineage:
        """How commits of ours stand that nothing else tells of."""
        newest = self._newest()
        if newest is None:
            return Lineage()
        known = self._known(newest[0])
        snapshot = self._retained.get(newest[1] if known.seen_from is None else known.seen_from)
        chain = [_link(ancestor) for ancestor in self._chain]
        known_chain = [_link(ancestor) for ancestor in ancestors(self._table, snapshot)] if snapshot else []
        lineage = plan_lineage(known, chain, known_chain)
        if chain and lineage.standing(newest[0]) is Standing.UNREPORTED:
            lineage = plan_lineage(known, chain, known_chain, frozenset(self._alive()))
        return lineage

    def _newest(self) -> tuple[int, int] | None:
        """Sequence number and snapshot id of our newest commit."""
        commits = [(self.sequence_number(record), record.snapshot_id) for record in self._records.values()]
        commits += [(s.sequence_number or 0, s.snapshot_id) for s in self._table.metadata.snapshots if _is_ours(s)]
        newest = max(commits, default=(0, 0))
        return newest if newest[0] else None

    def _known(self, at: int) -> Lineage:
        """Return the lineage that our newest commit remembered."""
        text = self._table.properties.get(LINEAGE_PROPERTY)
        if text is not None:
            return replace(decode_lineage(text), at=at)
        if all(record.sequence_number for record in self._records.values()):
            return Lineage(at)
        return Lineage(at, (Span(1, at, Standing.UNREPORTED),))  # written by a release that kept no account

    def _alive(self) -> Iterator[int]:
        for record in self._records.values():
            if record.snapshot_id in self._snapshots_with_files:
                yield self.sequence_number(record)

    @cached_property
    def _snapshots_with_files(self) -> frozenset[int]:
        """Ids of the snapshots that added a data or delete file which the head still holds."""
        files = read_file_set(self._table)
        added = frozenset(files.files["added_snapshot_id"].unique().to_pylist())
        return added | {delete.added_snapshot_id for delete in files.delete_files}


def _link(snapshot: Snapshot) -> Link:
    return Link(snapshot.snapshot_id, snapshot.sequence_number or 0, _is_ours(snapshot))


def _is_ours(snapshot: Snapshot) -> bool:
    return TXN_SUMMARY in summary_of(snapshot)


def _sources(retained: Mapping[int, Snapshot], snapshot: Snapshot) -> tuple[int, ...]:
    """Return the snapshots that ``snapshot`` was picked from, one after the other, as far as they are retained."""
    ids: list[int] = []
    picking: Snapshot | None = snapshot
    while picking is not None:
        picked = summary_of(picking).get(_PICKED_FROM)
        if picked is None or not picked.isdecimal() or int(picked) in ids:
            break
        ids.append(int(picked))
        picking = retained.get(ids[-1])
    return tuple(ids)
