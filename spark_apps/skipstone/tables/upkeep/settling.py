"""Sees to branches and tags that somebody made on snapshots while a server removed these.

Called by expiry after its commits, and again before files are deleted: files of a snapshot that was named go only when
it is named no more, or is known to have been named by nobody. Must not delete files of tables.
"""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from skipstone_core.contract.requests import TableRef

from skipstone.tables.catalogs import load_table
from skipstone.tables.committing.restoring import LostRef, find_lost_refs, put_back
from skipstone.tables.committing.swaps import CommitPorts
from skipstone.tables.upkeep.removal import RemovalNotes

_UNSEEN = (
    "Whether somebody made a branch or tag on {count} snapshots while they expired cannot be seen, since the catalog "
    "does not list the metadata before that: their files stay, as orphan files."
)


def settle_removed(catalog: Catalog, ref: TableRef, ports: CommitPorts) -> list[str]:
    """Put back the refs of snapshots that notes of the table ``ref`` call removed; sentences on what was found.

    Raises OSError, DependencyUnavailable when something cannot be read: the next call goes on.
    """
    table = load_table(catalog, ref)
    notes = RemovalNotes(table)
    retained = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    messages: list[str] = []
    for path, removed in notes.all():
        if removed.is_settled or retained & set(removed.snapshots):
            continue
        lost = find_lost_refs(table, removed.snapshots, removed.refs, removed.base)
        if lost is None:
            messages.append(_UNSEEN.format(count=len(removed.snapshots)))
            notes.forget(path)
            continue
        names = {lost_ref.name: put_back(catalog, ref, lost_ref, ports) for lost_ref in lost}
        messages += (_describe(lost_ref, names[lost_ref.name]) for lost_ref in lost)
        if None not in names.values():
            notes.settle(path, removed)
    return messages


def _describe(lost: LostRef, snapshot_id: int | None) -> str:
    message = f"The {lost.kind} {lost.name!r} was made on the snapshot {lost.snapshot.snapshot_id} while that expired"
    if snapshot_id is None:
        return f"{message}, and the catalog does not take it back: its files stay, and the next run tries again."
    return f"{message}; it names the same rows again, in the snapshot {snapshot_id}."
