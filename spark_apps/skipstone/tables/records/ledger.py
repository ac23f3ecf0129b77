"""Which files of a directory a consumer has taken, remembered in the commits that took them.

Used by loads and merges that consume a directory file by file. A chain of small files under ``.skipstone/consumed``
holds hashes; a table property, set in the same commit as the data, points at the newest (core ``consumption``).
Beside the tables and never under one: what a table's folder holds without its metadata knowing, orphan clean-up eats.
Must not read or list sources.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import islice

from pyiceberg.table import Table
from skipstone_core.contract.requests import WarehouseRef
from skipstone_core.errors import ContractViolation, DependencyUnavailable
from skipstone_core.history.commits import Conflicted
from skipstone_core.history.consumption import (
    ConsumptionRecord,
    RecordPointer,
    ReplayRecord,
    consumed_property,
    consumer_hash,
    covered_span,
    decode_pointer,
    decode_record,
    decode_replay,
    encode_pointer,
    encode_record,
    encode_replay,
    replayed_property,
    split_entries,
)
from skipstone_core.ids import CONSUMED_DIRECTORY
from skipstone_core.reasons import Reason

from skipstone.storage.opening import open_storage
from skipstone.tables.records.histories import was_picked, was_rolled_back
from skipstone.tables.records.txns import txn_records


@dataclass(frozen=True, kw_only=True)
class ConsumedFiles:
    """The memory of one consumer of one table."""

    warehouse: WarehouseRef
    consumer: str

    def find_head(self, table: Table) -> RecordPointer | None:
        """The newest record whose commit is in the history of the head; what was rolled back is not consumed.

        What a cherry-pick applied again is consumed. Raises DependencyUnavailable when a record is gone or damaged,
        when a commit was applied again without those before it, or when the history is not known.
        """
        pointer = self.find_newest(table)
        while pointer and _was_rolled_back(table, pointer):
            pointer = self.read(table, pointer).earlier
        if pointer and was_picked(table, int(pointer.snapshot_id)):
            self._require_whole(table, pointer)
        return pointer

    def find_newest(self, table: Table) -> RecordPointer | None:
        """The newest record, whatever branch its commit is of. Raises DependencyUnavailable."""
        text = table.properties.get(consumed_property(self.consumer))
        try:
            return decode_pointer(text) if text else None
        except ContractViolation as error:
            raise self._unavailable(consumed_property(self.consumer), error) from error

    def _require_whole(self, table: Table, picked: RecordPointer) -> None:
        """Raise DependencyUnavailable when a record before ``picked`` was rolled back and not applied again."""
        pointer: RecordPointer | None = picked
        while pointer and was_picked(table, int(pointer.snapshot_id)):
            pointer = self.read(table, pointer).previous
        if pointer and _was_rolled_back(table, pointer):
            raise DependencyUnavailable(
                Reason.STORAGE_UNAVAILABLE,
                f"which files {self.consumer} consumed cannot be told: snapshot {picked.snapshot_id} was cherry-picked "
                f"without snapshot {pointer.snapshot_id}, whose files it took for consumed; cherry-pick that one too, "
                "or roll both back",
            )

    def entries(self, table: Table, head: RecordPointer | None) -> Iterator[tuple[bytes, bytes]]:
        """Name and state of each file that the chain up to ``head`` holds. Raises DependencyUnavailable."""
        while head is not None:
            record = self.read(table, head)
            yield from split_entries(record.entries)
            head = record.rest

    def consumed_since(self, table: Table, names: Set[bytes]) -> Iterator[Set[bytes]]:
        """The names of the files of each job, the newest first, back to the one that took the first of ``names``.

        Raises DependencyUnavailable.
        """
        left, head = set(names), self.find_head(table)
        while left and head is not None:
            record = self.read(table, head)
            count = head.files - (record.previous.files if record.previous else 0)
            own = {name for name, _ in islice(split_entries(record.entries), count)}
            yield own
            left -= own
            head = record.previous

    def was_replayed(self, table: Table, start: str) -> bool:
        """Return whether the replay from ``start`` on was the last, and is in the history of main."""
        try:
            last = decode_replay(table.properties.get(replayed_property(self.consumer)))
        except ContractViolation as error:
            raise self._unavailable(replayed_property(self.consumer), error) from error
        if last is None or last.start != start:
            return False
        return not was_rolled_back(table, int(last.snapshot_id), last.sequence_number, txn_records(table))

    def read(self, table: Table, pointer: RecordPointer) -> ConsumptionRecord:
        """One record. Raises DependencyUnavailable when it is gone or damaged."""
        storage, path = open_storage(self.warehouse), self.path(table, pointer.digest)
        try:
            content = storage.read(path)
            if hashlib.sha256(content).hexdigest() != pointer.digest:
                raise ContractViolation("its content is not what was written")
            return decode_record(content)
        except (FileNotFoundError, DependencyUnavailable, ContractViolation) as error:
            raise self._unavailable(storage.where(path), error) from error

    def path(self, table: Table, digest: str) -> str:
        """Where the record of this digest is in the Warehouse's storage."""
        return f"{CONSUMED_DIRECTORY}/{table.metadata.table_uuid}/{consumer_hash(self.consumer)}/{digest}"

    def extended(self, table: Table, head: RecordPointer | None, entries: bytes) -> ConsumptionRecord:
        """The record that follows ``head``: ``entries``, and what it has to hold again."""
        newest, number = self.find_newest(table), head.number + 1 if head else 1
        floor, rest, parts = number - covered_span(number), head, [entries]
        while rest is not None and rest.number > floor:
            record = self.read(table, rest)
            parts.append(record.entries)
            rest = record.rest
        return ConsumptionRecord(
            table_uuid=str(table.metadata.table_uuid),
            consumer=self.consumer,
            previous=head,
            beside=None if newest == head else newest,
            rest=rest,
            entries=b"".join(parts),
        )

    def _unavailable(self, place: str, error: Exception) -> DependencyUnavailable:
        return DependencyUnavailable(
            Reason.STORAGE_UNAVAILABLE,
            f"the record of files consumed by {self.consumer} cannot be read at {place}: {error}; restore it from "
            f"a backup of {CONSUMED_DIRECTORY}. Only for a feed that may be applied twice: remove the table property "
            f"{consumed_property(self.consumer)} to take every file as new",
        )


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Files that a change applies once more, from ``start`` on. ``head``: what was consumed when it was planned."""

    start: str
    head: RecordPointer | None


@dataclass(frozen=True, kw_only=True)
class Consumption:
    """Files taken by one change: the ledger of its commit. ``taken``: path by the hash of its name.

    ``replay``: files beside these that were consumed before, if it applies some. ``ends_replay``: the same replay may
    come again.
    """

    memory: ConsumedFiles
    taken: Mapping[bytes, str]
    entries: bytes
    replay: Replay | None = None
    ends_replay: bool = False

    def find_conflict(self, table: Table) -> Conflicted | None:
        """Return a conflict if another job of this consumer took one of our files, or any after these that come again.

        Raises DependencyUnavailable.
        """
        if self.replay is not None and self.memory.find_head(table) != self.replay.head:
            message = (
                f"another job of {self.memory.consumer} consumed files meanwhile, which are newer than those to be "
                "replayed; nothing was applied, and the next job replays them too."
            )
            return Conflicted(Reason.SOURCE_ALREADY_APPLIED, message)
        for name, _ in self.memory.entries(table, self.memory.find_head(table)):
            if name in self.taken:
                message = (
                    f"'{self.taken[name]}' was consumed by another job of {self.memory.consumer} meanwhile; nothing "
                    "was applied, and the next job takes what is still new."
                )
                return Conflicted(Reason.SOURCE_ALREADY_APPLIED, message)
        return None

    def properties(self, table: Table, snapshot_id: int) -> Mapping[str, str]:
        """Write the record that follows the head's; the property that points at it. Raises DependencyUnavailable."""
        head = self.memory.find_head(table)
        content = encode_record(self.memory.extended(table, head, self.entries))
        digest = hashlib.sha256(content).hexdigest()
        open_storage(self.memory.warehouse).keep_content(self.memory.path(table, digest), content)
        pointer = RecordPointer(
            digest=digest,
            number=head.number + 1 if head else 1,
            snapshot_id=str(snapshot_id),
            sequence_number=table.metadata.next_sequence_number(),
            files=(head.files if head else 0) + len(self.taken),
        )
        name = replayed_property(self.memory.consumer)
        replayed = {name: ""} if self.ends_replay and table.properties.get(name) else {}
        if self.replay is not None:
            replayed = {
                name: encode_replay(
                    ReplayRecord(
                        start=self.replay.start,
                        snapshot_id=pointer.snapshot_id,
                        sequence_number=pointer.sequence_number,
                    )
                )
            }
        return {consumed_property(self.memory.consumer): encode_pointer(pointer), **replayed}


def _was_rolled_back(table: Table, pointer: RecordPointer) -> bool:
    return was_rolled_back(table, int(pointer.snapshot_id), pointer.sequence_number, txn_records(table))
