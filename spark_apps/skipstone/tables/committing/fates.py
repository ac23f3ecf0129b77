"""What became of a swap that was sent to the catalog: judged by a fresh look at the table, never by an error.

Used by ``swaps`` only. Pure: reads metadata that is in hand. When in doubt, a swap is open.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata


class Fate(Enum):
    """``DEAD``: not in the table and never will be. ``OPEN``: may be in the table, or may still arrive."""

    LANDED = "landed"
    DEAD = "dead"
    OPEN = "open"


@dataclass(frozen=True, kw_only=True)
class SentSwap:
    """How a swap is known again. ``parent_id`` None: it was made for a table without snapshots.

    ``is_refused``: the first answer was no. ``is_final``: that answer came from the catalog's own database transaction;
    between us and other catalogs may be somebody who sends a request again after it went through.
    """

    table_uuid: UUID
    snapshot_id: int
    sequence_number: int
    parent_id: int | None
    is_refused: bool = False
    is_final: bool = False

    @property
    def is_refused_for_good(self) -> bool:
        """Return whether no look at the table is needed to know that it did not land."""
        return self.is_refused and self.is_final


def judge(head: TableMetadata, sent: SentSwap) -> Fate:
    """The fate of ``sent`` by ``head``, the current metadata of a table.

    A swap asks for the head that it was made on and for the next sequence number. Once another snapshot has that number
    the catalog takes it no more, but a first snapshot, whose number is not checked.
    """
    if head.table_uuid != sent.table_uuid:
        return Fate.OPEN
    if head.snapshot_by_id(sent.snapshot_id) is not None:
        return Fate.LANDED
    if sent.is_refused_for_good:
        return Fate.DEAD
    if head.format_version == 1 or not sent.sequence_number:
        return Fate.OPEN  # snapshots have no numbers
    if sent.is_refused and head.last_sequence_number < sent.sequence_number:
        return Fate.DEAD
    is_taken = any(snapshot.sequence_number == sent.sequence_number for snapshot in head.snapshots)
    return Fate.DEAD if is_taken and (sent.is_refused or sent.parent_id is not None) else Fate.OPEN
