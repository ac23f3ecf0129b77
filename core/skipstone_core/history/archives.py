"""The older records of a table's transactions: a few immutable files that grow like the levels of an LSM tree.

Used by the data plane's memory of transactions. The newest records are table properties; older ones move in batches to
a file, and files of one size merge into the next, so that there are few of them and each record is written few times.
A file holds sections by the hash of what is looked for: a lookup reads one section of each file, and checks it.
Must not read files: only names, numbers and bytes.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from skipstone_core.codec import decode, encode
from skipstone_core.errors import ContractViolation

#: How many of the newest records are table properties; up to a batch more wait until it is full.
KEPT_RECORDS = 64
BATCH_RECORDS = 16
RADIX = 4
SECTION_ENTRIES = 32
#: Larger files merge no more: a commit must not hold a million records in memory.
MAX_MERGED_RECORDS = 2**18
MAGIC = b"skipstone-txns-1\n"
_SLOT = struct.Struct(">QII")


@dataclass(frozen=True, kw_only=True)
class ArchiveFile:
    """One file. ``digest``: hexadecimal SHA-256 of its content, by which it is found. ``sections``: for lookups."""

    digest: str
    records: int
    sections: int
    size: int

    @property
    def level(self) -> int:
        """Files of one level merge; each level holds ``RADIX`` times as many records."""
        return level_of(self.records)


@dataclass(frozen=True, order=True)
class ArchivedRecord:
    """A transaction, the digest of its source (empty: none) and its record as the table property had it."""

    txn: str
    digest: str
    text: str


@dataclass(frozen=True, kw_only=True)
class ArchiveContent:
    """The content of one file. ``partial``: segments some rows of which were left out."""

    records: tuple[ArchivedRecord, ...] = ()
    partial: tuple[int, ...] = ()


def level_of(records: int) -> int:
    """The level of a file with so many records."""
    level, size = 0, BATCH_RECORDS * RADIX
    while records >= size:
        level, size = level + 1, size * RADIX
    return level


def plan_merge(files: Sequence[ArchiveFile], records: int) -> tuple[ArchiveFile, ...]:
    """Which of ``files`` the file of a new batch takes in, so that no level holds ``RADIX`` of them."""
    taken: tuple[ArchiveFile, ...] = ()
    level = level_of(records)
    while sum(1 for file in files if file.level == level) >= RADIX - 1:
        more = tuple(file for file in files if file.level <= level)
        total = records + sum(file.records for file in more)
        if total > MAX_MERGED_RECORDS:
            break
        taken, level = more, max(level + 1, level_of(total))
    return taken


def encode_files(files: Sequence[ArchiveFile]) -> str:
    """The value of the table property, newest file first."""
    return json.dumps([encode(file) for file in files], separators=(",", ":"))


def decode_files(text: str) -> tuple[ArchiveFile, ...]:
    """Read what ``encode_files`` wrote. Raises ContractViolation when it is something else."""
    try:
        raw = json.loads(text)
        if not isinstance(raw, list):
            raise ContractViolation("the list of archived transactions is not a list")
        return tuple(decode(ArchiveFile, file) for file in raw)
    except (ValueError, TypeError) as error:
        raise ContractViolation(f"the list of archived transactions cannot be read: {error}") from error


def encode_content(content: ArchiveContent) -> tuple[ArchiveFile, bytes]:
    """The bytes of a file and how it is found again."""
    count = max(1, len(content.records) // SECTION_ENTRIES)
    sections: list[list[list[str]]] = [[] for _ in range(count)]
    for record in sorted(content.records):
        sections[section_of(record.txn, count)].append(["t", record.txn, record.digest, record.text])
        if record.digest:
            sections[section_of(record.digest, count)].append(["d", record.digest, record.txn, ""])
    bodies = [_dump(section) for section in sections] + [_dump(sorted(set(content.partial)))]
    slots, place = [], len(MAGIC) + _SLOT.size * len(bodies)
    for body in bodies:
        slots.append(_SLOT.pack(place, len(body), zlib.crc32(body)))
        place += len(body)
    data = MAGIC + b"".join(slots) + b"".join(bodies)
    digest = hashlib.sha256(data).hexdigest()
    return ArchiveFile(digest=digest, records=len(content.records), sections=count, size=len(data)), data


def decode_content(file: ArchiveFile, data: bytes) -> ArchiveContent:
    """All that a file holds. Raises ContractViolation when it is not what was written."""
    if hashlib.sha256(data).hexdigest() != file.digest:
        raise ContractViolation("its content is not what was written")
    records: list[ArchivedRecord] = []
    partial: tuple[int, ...] = ()
    for number in range(file.sections + 1):
        place, length, checksum = read_slot(data[slot_place(number) :][: _SLOT.size])
        body = data[place : place + length]
        if number == file.sections:
            partial = decode_partial(body, checksum)
        else:
            records += [ArchivedRecord(*row[1:]) for row in decode_section(body, checksum) if row[0] == "t"]
    return ArchiveContent(records=tuple(records), partial=partial)


def section_of(name: str, sections: int) -> int:
    """The section that holds what is looked for under ``name``."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % sections


def slot_place(section: int) -> int:
    """Where a file says where the section is; the last section lists partial segments."""
    return len(MAGIC) + _SLOT.size * section


def slot_size() -> int:
    """How many bytes ``read_slot`` takes."""
    return _SLOT.size


def read_slot(slot: bytes) -> tuple[int, int, int]:
    """Place, length and checksum of a section. Raises ContractViolation."""
    if len(slot) != _SLOT.size:
        raise ContractViolation("it is shorter than it was written")
    return _SLOT.unpack(slot)


def decode_section(body: bytes, checksum: int, name: str | None = None) -> list[list[str]]:
    """The rows of a section, none when nothing in it is under ``name``.

    Raises ContractViolation when it is not what was written.
    """
    _check(body, checksum)
    if name is not None and json.dumps(name).encode() not in body:  # most lookups are of what is new
        return []
    rows: list[list[str]] = _load(body)
    return rows


def decode_partial(body: bytes, checksum: int) -> tuple[int, ...]:
    """The segments of the last section. Raises ContractViolation when it is not what was written."""
    _check(body, checksum)
    return tuple(_load(body))


def find_rows(rows: Iterable[Sequence[str]], kind: str, name: str) -> Iterator[Sequence[str]]:
    """The rows of a section under ``name``: ``t`` transactions, ``d`` digests of sources."""
    return (row for row in rows if row[0] == kind and row[1] == name)


def plan_moves(records: Mapping[str, tuple[int, int]]) -> tuple[str, ...]:
    """Which transactions move to the archive before one more is remembered: the oldest, when a batch is full.

    ``records``: sequence number and time by transaction.
    """
    surplus = len(records) + 1 - KEPT_RECORDS
    if surplus <= BATCH_RECORDS:
        return ()
    return tuple(sorted(records, key=lambda txn: (*records[txn], txn))[:surplus])


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _check(body: bytes, checksum: int) -> None:
    if zlib.crc32(body) != checksum or not body:  # a file of zeros has the checksum of nothing
        raise ContractViolation("a section of it is not what was written")


def _load(body: bytes) -> list:  # type: ignore[type-arg]
    try:
        document = json.loads(body)
    except ValueError as error:
        raise ContractViolation("a section of it is not JSON") from error
    if not isinstance(document, list):
        raise ContractViolation("a section of it is not a list")
    return document
