"""What a table remembers of the files that a consumer took from a directory: a chain of records.

Used by the data plane's ledger. Each commit of a consumer adds one record, a file of hashes that never changes; the
table property that the same commit sets points at it. Every 16th record holds again what the fifteen before it hold,
every 256th what the 255 before it hold, and so on: reading a chain takes few files, and no file is written often.
Must not read files: only names, numbers and bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

from skipstone_core.codec import decode, encode
from skipstone_core.errors import ContractViolation
from skipstone_core.ids import CONSUMED_PROPERTY_PREFIX

RECORD_VERSION = 1
RADIX = 16
NAME_BYTES = 16
STATE_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class RecordPointer:
    """The record ``number`` (from 1) of a chain, and the snapshot of the commit that added it.

    ``digest``: hexadecimal SHA-256 of the record, by which it is found. ``snapshot_id`` is text: JSON loses long
    numbers. ``files``: how many files the chain holds up to this record.
    """

    digest: str
    number: int
    snapshot_id: str
    sequence_number: int
    files: int


@dataclass(frozen=True, kw_only=True)
class Record:
    """One record. ``previous`` is the one before it; ``rest`` the one that holds what ``entries`` lack, or None.

    ``entries``: for each file 16 bytes that stand for its path and 8 that stand for its size and time.
    """

    table_uuid: str
    consumer: str
    previous: RecordPointer | None = None
    rest: RecordPointer | None = None
    entries: bytes = b""
    version: int = RECORD_VERSION


def consumed_property(consumer: str) -> str:
    """The table property that points at the newest record of ``consumer``."""
    return CONSUMED_PROPERTY_PREFIX + consumer_hash(consumer)


def consumer_hash(consumer: str) -> str:
    """16 hexadecimal digits that stand for a consumer."""
    return hashlib.sha256(consumer.encode()).hexdigest()[:16]


def encode_pointer(pointer: RecordPointer) -> str:
    """The value of the table property, at most 256 bytes."""
    return json.dumps(encode(pointer), separators=(",", ":"))


def decode_pointer(text: str) -> RecordPointer:
    """Read what ``encode_pointer`` wrote. Raises ContractViolation when it is something else."""
    try:
        return decode(RecordPointer, json.loads(text))
    except ValueError as error:
        raise ContractViolation(f"a pointer to consumed files cannot be read: {error}") from error


def encode_record(record: Record) -> bytes:
    """The bytes of a record: one line of JSON, then the entries."""
    head = encode(record)
    del head["entries"]
    return json.dumps(head, sort_keys=True, separators=(",", ":")).encode() + b"\n" + record.entries


def decode_record(content: bytes) -> Record:
    """Read what ``encode_record`` wrote. Raises ContractViolation when it is something else."""
    head, _, entries = content.partition(b"\n")
    try:
        raw = json.loads(head)
    except ValueError as error:
        raise ContractViolation(f"a record of consumed files cannot be read: {error}") from error
    if not isinstance(raw, dict) or raw.get("version") != RECORD_VERSION or len(entries) % (NAME_BYTES + STATE_BYTES):
        raise ContractViolation("a record of consumed files is damaged or of another version")
    return decode(Record, {**raw, "entries": entries})


def entry(path: str, size: int, mtime_ns: int) -> bytes:
    """What stands for one file in a record."""
    state = json.dumps([size, mtime_ns]).encode()
    return hashlib.sha256(path.encode()).digest()[:NAME_BYTES] + hashlib.sha256(state).digest()[:STATE_BYTES]


def split_entries(entries: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Name and state of each file in ``entries``."""
    width = NAME_BYTES + STATE_BYTES
    for start in range(0, len(entries), width):
        yield entries[start : start + NAME_BYTES], entries[start + NAME_BYTES : start + width]


def covered_span(number: int) -> int:
    """How many records record ``number`` holds, itself included: the greatest power of 16 that divides it."""
    span = 1
    while number % (span * RADIX) == 0:
        span *= RADIX
    return span
