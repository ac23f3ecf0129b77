"""The records of transactions that are not table properties any more: small immutable files under ``.skipstone/txns``.

Used by the memory of transactions (``txns``) and by the state of a table. A table property, set in the same commit as
the data, lists the files (core ``archives``). Beside the tables and never under one, as the ledger's records are.
A file that is gone or damaged makes the table's memory unreadable: nothing is taken for absent then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO, TypeVar

from propcache.api import cached_property
from pyiceberg.table import Table
from skipstone_core.errors import ContractViolation, DependencyUnavailable
from skipstone_core.history.archives import (
    ArchiveContent,
    ArchivedRecord,
    ArchiveFile,
    decode_content,
    decode_files,
    decode_partial,
    decode_section,
    encode_content,
    encode_files,
    find_rows,
    plan_merge,
    read_slot,
    section_of,
    slot_place,
    slot_size,
)
from skipstone_core.history.commits import TxnRecord, decode_record, encode_record
from skipstone_core.ids import ARCHIVE_DIRECTORY, ARCHIVE_PROPERTY
from skipstone_core.reasons import Reason

from skipstone.storage.opening import storage_of
from skipstone.storage.port import Storage

_Rows = TypeVar("_Rows")


class TxnArchive:
    """The archive of ``table`` (freshly loaded). Every method raises DependencyUnavailable for an unreadable file."""

    def __init__(self, table: Table) -> None:
        """Read the list of files."""
        self._table = table
        text = table.properties.get(ARCHIVE_PROPERTY)
        try:
            self._files = decode_files(text) if text else ()
        except ContractViolation as error:
            raise self._unavailable(f"the table property {ARCHIVE_PROPERTY}", error) from error

    def find(self, txn: str) -> TxnRecord | None:
        """The record of a transaction, or None."""
        for file in self._files:
            for row in find_rows(self._section(file, txn), "t", txn):
                return decode_record(row[3])
        return None

    def find_sources(self, digest: str) -> Iterator[tuple[str, TxnRecord]]:
        """The transactions that applied a source of this digest, with their records."""
        for file in self._files:
            for row in list(find_rows(self._section(file, digest), "d", digest)):
                record = self.find(row[2])
                if record is not None:
                    yield row[2], record

    def partial_segments(self) -> frozenset[int]:
        """Segments of which rows were left out, as far as archived records made them."""
        return frozenset(segment for file in self._files for segment in self._partial(file))

    def extended(self, records: Mapping[str, TxnRecord], partial: tuple[int, ...]) -> str:
        """Write a file with these records by transaction; the property that lists it."""
        merged = plan_merge(self._files, len(records))
        contents = [self._content(file) for file in merged]
        new = [
            ArchivedRecord(txn, record.source_digest or "", encode_record(record)) for txn, record in records.items()
        ]
        file, data = encode_content(
            ArchiveContent(
                records=(*new, *(record for content in contents for record in content.records)),
                partial=(*partial, *(segment for content in contents for segment in content.partial)),
            )
        )
        self._storage.keep_content(self._path(file), data)
        return encode_files((file, *(known for known in self._files if known not in merged)))

    def _content(self, file: ArchiveFile) -> ArchiveContent:
        try:
            return decode_content(file, self._storage.read(self._path(file)))
        except (FileNotFoundError, DependencyUnavailable, ContractViolation) as error:
            raise self._unavailable(self._storage.where(self._path(file)), error) from error

    def _section(self, file: ArchiveFile, name: str) -> list[list[str]]:
        return self._read(
            file, section_of(name, file.sections), lambda body, checksum: decode_section(body, checksum, name)
        )

    def _partial(self, file: ArchiveFile) -> tuple[int, ...]:
        return self._read(file, file.sections, decode_partial)

    def _read(self, file: ArchiveFile, section: int, decode: Callable[[bytes, int], _Rows]) -> _Rows:
        try:
            with self._storage.open(self._path(file), buffering=0) as source:
                slot = _part(source, slot_place(section), slot_size())
                if source.seek(0, os.SEEK_END) != file.size:
                    raise ContractViolation("its size is not what was written")
                place, length, checksum = read_slot(slot)
                if place + length > file.size:
                    raise ContractViolation("a section of it is not where it was written")
                return decode(_part(source, place, length), checksum)
        except (OSError, DependencyUnavailable, ContractViolation) as error:
            raise self._unavailable(self._storage.where(self._path(file)), error) from error

    @cached_property
    def _storage(self) -> Storage:
        return storage_of(self._table.catalog.properties)

    def _path(self, file: ArchiveFile) -> str:
        return f"{ARCHIVE_DIRECTORY}/{self._table.metadata.table_uuid}/{file.digest}"

    def _unavailable(self, place: str, error: Exception) -> DependencyUnavailable:
        return DependencyUnavailable(
            Reason.STORAGE_UNAVAILABLE,
            f"the record of earlier transactions of {'.'.join(self._table.name())} cannot be read at {place}: {error}; "
            f"restore it, or remove the table property {ARCHIVE_PROPERTY} to forget which old jobs committed",
        )


def _part(source: BinaryIO, place: int, length: int) -> bytes:
    source.seek(place)
    return source.read(length)
