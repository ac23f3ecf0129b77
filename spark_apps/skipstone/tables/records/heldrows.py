"""Rows of which merges left out a change, remembered in the commits that left it out.

Used by merges of change feeds. A chain of small files under ``.skipstone/held``; a table property, set in the same
commit as the data, names the newest, which holds all rows. Beside the tables and never under one, as ``ledger`` says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.table import Table
from skipstone_core.contract.requests import WarehouseRef
from skipstone_core.errors import ContractViolation, DependencyUnavailable
from skipstone_core.history.consumption import RecordPointer, decode_pointer, encode_pointer
from skipstone_core.ids import HELD_DIRECTORY, HELD_PROPERTY
from skipstone_core.merging.holds import HeldRow, HoldsRecord, decode_holds, encode_holds
from skipstone_core.reasons import Reason

from skipstone.storage.opening import open_storage
from skipstone.tables.records.histories import was_rolled_back
from skipstone.tables.records.txns import txn_records


@dataclass(frozen=True, kw_only=True)
class HoldsMemory:
    """The memory of one Warehouse's tables."""

    warehouse: WarehouseRef

    def find_head(self, table: Table) -> RecordPointer | None:
        """Return the newest record whose commit is in the history of the head. Raises DependencyUnavailable."""
        pointer = self.find_newest(table)
        while pointer and was_rolled_back(table, int(pointer.snapshot_id), pointer.sequence_number, txn_records(table)):
            pointer = self.read(table, pointer).earlier
        return pointer

    def find_newest(self, table: Table) -> RecordPointer | None:
        """Return the newest record, whatever branch its commit is of. Raises DependencyUnavailable."""
        text = table.properties.get(HELD_PROPERTY)
        try:
            return decode_pointer(text) if text else None
        except ContractViolation as error:
            raise self._unavailable(HELD_PROPERTY, error) from error

    def read(self, table: Table, pointer: RecordPointer) -> HoldsRecord:
        """Return one record. Raises DependencyUnavailable when it is gone or damaged."""
        storage, path = open_storage(self.warehouse), _path(table, pointer.digest)
        try:
            content = storage.read(path)
            if hashlib.sha256(content).hexdigest() != pointer.digest:
                raise ContractViolation("its content is not what was written")
            return decode_holds(content)
        except (FileNotFoundError, DependencyUnavailable, ContractViolation) as error:
            raise self._unavailable(storage.where(path), error) from error

    def keep(self, table: Table, record: HoldsRecord) -> str:
        """Write a record; its digest. Raises DependencyUnavailable."""
        content = encode_holds(record)
        digest = hashlib.sha256(content).hexdigest()
        open_storage(self.warehouse).keep_content(_path(table, digest), content)
        return digest

    def _unavailable(self, place: str, error: Exception) -> DependencyUnavailable:
        return DependencyUnavailable(
            Reason.STORAGE_UNAVAILABLE,
            f"the record of rows of which changes were left out cannot be read at {place}: {error}; restore it from a "
            f"backup of {HELD_DIRECTORY}. Only if all rows are written again, such as by a snapshot: remove the table "
            f"property {HELD_PROPERTY} to forget them",
        )


@dataclass(frozen=True, kw_only=True)
class HeldTable:
    """A table's memory of held rows when a merge was planned. ``keys``: by which names the merge knows rows."""

    memory: HoldsMemory
    keys: str
    head: RecordPointer | None = None
    record: HoldsRecord | None = None

    @staticmethod
    def of(memory: HoldsMemory, table: Table, keys: str) -> HeldTable:
        """Read it. Raises DependencyUnavailable."""
        head = memory.find_head(table)
        return HeldTable(memory=memory, keys=keys, head=head, record=memory.read(table, head) if head else None)

    @property
    def rows(self) -> Mapping[str, HeldRow]:
        """The held rows by the text of their keys."""
        return self.record.rows.get(self.keys, {}) if self.record else {}

    def is_of(self, table: Table) -> bool:
        """Return whether ``table`` remembers the same. Raises DependencyUnavailable."""
        return self.memory.find_head(table) == self.head


def held_pointer(table: Table, held: HeldTable, rows: Mapping[str, HeldRow], snapshot_id: int) -> str:
    """Write what is remembered once ``snapshot_id`` is committed, ``rows`` as they are now; the property's value.

    Raises DependencyUnavailable.
    """
    before = held.record.rows if held.record else {}
    after = {**before, held.keys: {**held.rows, **rows}}
    newest = held.memory.find_newest(table)
    record = HoldsRecord(table_uuid=str(table.metadata.table_uuid), rows=after, earlier=newest)
    pointer = RecordPointer(
        digest=held.memory.keep(table, record),
        number=held.head.number + 1 if held.head else 1,
        snapshot_id=str(snapshot_id),
        sequence_number=table.metadata.next_sequence_number(),
        files=sum(len(row.missing) > 0 for of in after.values() for row in of.values()),
    )
    return encode_pointer(pointer)


def _path(table: Table, digest: str) -> str:
    return f"{HELD_DIRECTORY}/{table.metadata.table_uuid}/{digest}"
