"""What a table remembers of the files that a consumer took from a directory: a chain of records.

Used by the data plane's ledger. Each commit of a consumer adds one record, a file of hashes that never changes; the
table property that the same commit sets points at it. Every 16th record holds again what the fifteen before it hold,
every 256th what the 255 before it hold, and so on: reading a chain takes few files, and no file is written often.
Must not read files: only names, numbers and bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from skipstone_core.codec import decode, encode
from skipstone_core.errors import ContractViolation
from skipstone_core.ids import CONSUMED_PROPERTY_PREFIX, REPLAYED_PROPERTY_PREFIX

#: Whose memory of consumed files holds those that were registered in a table, whatever job did it.
REGISTERED = "mode Register"
RECORD_VERSION = 2
RADIX = 16
NAME_BYTES = 16
#: Of the state: what stands for size and time, then what stands for the last change of status.
CONTENT_BYTES = 8
CHANGE_BYTES = 8
STATE_BYTES = CONTENT_BYTES + CHANGE_BYTES
#: Of files whose last change of status is not known, as all in records of version 1, which lack it.
UNKNOWN_CHANGE = bytes(CHANGE_BYTES)
#: Bytes of an entry by the version of its record.
_WIDTHS: Mapping[object, int] = {1: NAME_BYTES + CONTENT_BYTES, RECORD_VERSION: NAME_BYTES + STATE_BYTES}


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
class ReplayRecord:
    """From which file on a consumer replayed (``start``), and the snapshot of the commit that did it."""

    start: str
    snapshot_id: str
    sequence_number: int


@dataclass(frozen=True, kw_only=True)
class ConsumptionRecord:
    """One record. ``previous`` is the one before it in the history of its commit; ``rest`` the one that holds what
    ``entries`` lack, or None.

    ``beside``: the newest record of the consumer when it was written, if that is another one than ``previous``: of a
    commit on another branch, or of one that was rolled back.
    ``entries``: for each file 16 bytes that stand for its path, 8 for its size and time, 8 for its last change
    of status.
    """

    table_uuid: str
    consumer: str
    previous: RecordPointer | None = None
    beside: RecordPointer | None = None
    rest: RecordPointer | None = None
    entries: bytes = b""
    version: int = RECORD_VERSION

    @property
    def earlier(self) -> RecordPointer | None:
        """The record that was written before it, whatever branch it is of."""
        return self.beside or self.previous


def consumed_property(consumer: str) -> str:
    """The table property that points at the newest record of ``consumer``."""
    return CONSUMED_PROPERTY_PREFIX + consumer_hash(consumer)


def replayed_property(consumer: str) -> str:
    """The table property that says from which file on ``consumer`` replayed last."""
    return REPLAYED_PROPERTY_PREFIX + consumer_hash(consumer)


def encode_replay(replay: ReplayRecord) -> str:
    """The value of the table property."""
    return json.dumps(encode(replay), separators=(",", ":"), ensure_ascii=False)


def decode_replay(text: str | None) -> ReplayRecord | None:
    """Return the record that ``encode_replay`` wrote; None without one. Raises ContractViolation for other text."""
    try:
        return decode(ReplayRecord, json.loads(text)) if text else None
    except ValueError as error:
        raise ContractViolation(f"a record of replayed files cannot be read: {error}") from error


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


def encode_record(record: ConsumptionRecord) -> bytes:
    """The bytes of a record: one line of JSON, then the entries."""
    head = encode(record)
    del head["entries"]
    return json.dumps(head, sort_keys=True, separators=(",", ":")).encode() + b"\n" + record.entries


def decode_record(content: bytes) -> ConsumptionRecord:
    """Read what ``encode_record`` wrote. Raises ContractViolation when it is something else."""
    head, _, entries = content.partition(b"\n")
    try:
        raw = json.loads(head)
    except ValueError as error:
        raise ContractViolation(f"a record of consumed files cannot be read: {error}") from error
    version = raw.get("version") if isinstance(raw, dict) else None
    width = _WIDTHS.get(version)
    if width is None or len(entries) % width:
        raise ContractViolation("a record of consumed files is damaged or of another version")
    if version == 1:
        entries = b"".join(entries[at : at + width] + UNKNOWN_CHANGE for at in range(0, len(entries), width))
    return decode(ConsumptionRecord, {**raw, "version": RECORD_VERSION, "entries": entries})


def entry(path: str, size: int, version: int | str, touched_ns: int = 0) -> bytes:
    """Return the entry of one file in a record, as the storage describes it. ``touched_ns`` 0: not known."""
    state = hashlib.sha256(json.dumps([size, version]).encode()).digest()[:CONTENT_BYTES]
    change = hashlib.sha256(str(touched_ns).encode()).digest()[:CHANGE_BYTES] if touched_ns else UNKNOWN_CHANGE
    return hashlib.sha256(path.encode()).digest()[:NAME_BYTES] + state + change


def is_same_content(first: bytes, other: bytes) -> bool:
    """Return whether two states are of files with one size and time."""
    return first[:CONTENT_BYTES] == other[:CONTENT_BYTES]


def is_same_change(first: bytes, other: bytes) -> bool:
    """Return whether two states may be of one file that nobody touched in between."""
    changes = {first[CONTENT_BYTES:], other[CONTENT_BYTES:]} - {UNKNOWN_CHANGE}
    return len(changes) < 2


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
