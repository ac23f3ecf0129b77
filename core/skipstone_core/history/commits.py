"""What a commit can end in and what a table remembers of a transaction.

Used by the data plane's commit loop and by the runs that judge its result. Races are values here, never exceptions.
Must not know catalogs or files: only states and records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from skipstone_core.errors import ContractViolation
from skipstone_core.ids import TXN_PROPERTY_PREFIX
from skipstone_core.reasons import Reason

MAX_RECORD_BYTES = 512
_DERIVED = frozenset({"rowsRead", "rowsMatching", "rowsSuperseded", "rowsUnmatched"})
#: Counts that are zero of most jobs, and left out of records then.
_SPARSE = frozenset({"rowsUnmatchedDeletes", "rowsUnmatchedUpdates", "rowsWaiting"})
#: Counts of merges that say most.
_MOST = frozenset({"rowsSource", "rowsUpdated", "rowsDeleted", "rowsInserted", "rowsRejected", "rowsLoaded", "segment"})
UNREPORTED = (
    "An attempt of this job committed, and whether that was rolled back since cannot be told because its snapshot "
    "expired; look for its rows in the table, and delete the job."
)


@dataclass(frozen=True, kw_only=True)
class TxnRecord:
    """A table's record of one transaction, enough to rebuild the report of its run.

    ``time_ms``: milliseconds since 1970 of the commit. ``snapshot_id`` and ``sequence_number``: of its snapshot, 0 when
    not known. ``counts``: as in JobReport.
    ``source_digest``: identity of the applied source, None when the run had none. ``is_empty``: nothing changed.
    ``is_aborted``: the transaction is fenced off and never committed.
    """

    time_ms: int
    snapshot_id: int = 0
    sequence_number: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    rejected_path: str | None = None
    source_digest: str | None = None
    is_empty: bool = False
    is_aborted: bool = False


@dataclass(frozen=True)
class Committed:
    """Our commit is in the table as ``snapshot_id``."""

    snapshot_id: int
    record: TxnRecord


@dataclass(frozen=True)
class AlreadyCommitted:
    """An earlier attempt's commit is in the table; ``record`` is what it left. Nothing was written now."""

    record: TxnRecord


@dataclass(frozen=True)
class Conflicted:
    """Proven absent: our change did not land and, as planned, must not. ``message`` is one sentence."""

    reason: Reason
    message: str


@dataclass(frozen=True)
class Unknown:
    """The commit may or may not have landed; nothing may be deleted."""

    message: str


Outcome = Committed | AlreadyCommitted | Conflicted | Unknown


@dataclass(frozen=True)
class Absent:
    """The table knows nothing of the transaction."""


@dataclass(frozen=True)
class Present:
    """The transaction's commit is in the history of the head; its snapshot may have expired."""

    record: TxnRecord
    snapshot_id: int


@dataclass(frozen=True)
class RolledBack:
    """The transaction committed once and its commit is no longer in the history of the head."""

    record: TxnRecord


@dataclass(frozen=True)
class Untold:
    """The transaction committed once; whether it was rolled back since, the retained snapshots cannot tell."""

    record: TxnRecord


@dataclass(frozen=True)
class Aborted:
    """The transaction is fenced off: it is not in the table and never will be."""

    snapshot_id: int


TxnState = Absent | Present | RolledBack | Untold | Aborted


def find_outcome(state: TxnState) -> Outcome | None:
    """How a run ends whose transaction the table knows already; None when the table knows nothing of it."""
    match state:
        case Absent():
            return None
        case Present(record):
            return AlreadyCommitted(record)
        case RolledBack():
            message = "The commit of this job was rolled back in the table; create a new job to apply it again."
            return Conflicted(Reason.ROLLED_BACK, message)
        case Untold():
            return Unknown(UNREPORTED)
        case Aborted():
            return Conflicted(Reason.ABORTED, "This job was given up and fenced off before it committed.")


def txn_property(txn: str) -> str:
    """The table property that remembers ``txn``."""
    return TXN_PROPERTY_PREFIX + txn


def encode_record(record: TxnRecord) -> str:
    """Compact JSON of at most 512 bytes.

    What is too long to keep gives way: zero counts, then the rejected path, then counts of bytes, then those of rows
    that follow from others, then all but a few, then these: a commit does not fail for the sake of its counts.
    """
    record = replace(record, counts={name: n for name, n in record.counts.items() if n or name not in _SPARSE})
    short = replace(record, counts={name: value for name, value in record.counts.items() if value})
    bare = replace(short, rejected_path=None)
    lean = replace(bare, counts={name: value for name, value in bare.counts.items() if not name.startswith("bytes")})
    least = replace(lean, counts={name: value for name, value in lean.counts.items() if name not in _DERIVED})
    most = replace(least, counts={name: value for name, value in least.counts.items() if name in _MOST})
    for candidate in (record, short, bare, lean, least, most, replace(most, counts={})):
        text = json.dumps(_short_keys(candidate), separators=(",", ":"), ensure_ascii=False)
        if len(text.encode()) <= MAX_RECORD_BYTES:
            return text
    raise ContractViolation(f"a transaction record is longer than {MAX_RECORD_BYTES} bytes: {text}")


def with_sparse_counts(counts: Mapping[str, int], known: Mapping[str, int]) -> dict[str, int]:
    """``counts`` of a record with those of ``known`` that records leave out where they are zero."""
    return {**dict.fromkeys(_SPARSE.intersection(known), 0), **counts}


def decode_record(text: str) -> TxnRecord:
    """Read what ``encode_record`` wrote. Raises ContractViolation when it is something else."""
    try:
        raw = json.loads(text)
        return TxnRecord(
            time_ms=int(raw["t"]),
            snapshot_id=int(raw.get("s", 0)),
            sequence_number=int(raw.get("q", 0)),
            counts={str(name): int(value) for name, value in raw.get("c", {}).items()},
            rejected_path=raw.get("r"),
            source_digest=raw.get("d"),
            is_empty=bool(raw.get("e")),
            is_aborted=bool(raw.get("a")),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ContractViolation(f"a transaction record cannot be read: {error}") from error


def _short_keys(record: TxnRecord) -> dict[str, object]:
    values: dict[str, object] = {
        "t": record.time_ms,
        "s": str(record.snapshot_id) if record.snapshot_id else None,
        "q": record.sequence_number or None,
        "c": dict(record.counts) or None,
        "r": record.rejected_path,
        "d": record.source_digest,
        "e": 1 if record.is_empty else None,
        "a": 1 if record.is_aborted else None,
    }
    return {key: value for key, value in values.items() if value is not None}
