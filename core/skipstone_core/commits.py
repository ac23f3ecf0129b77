"""What a commit can end in and what a table remembers of a transaction.

Used by the data plane's commit loop and by the runs that judge its result. Races are values here, never exceptions.
Must not know catalogs or files: only states, records and the rule of which records may be forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from skipstone_core.reasons import Reason

MAX_RECORD_BYTES = 512
MAX_RECORDS = 500
YOUNG_MS = 30 * 24 * 3600 * 1000


@dataclass(frozen=True, kw_only=True)
class TxnRecord:
    """What a table remembers of one transaction, enough to rebuild the report of its run.

    ``time_ms``: milliseconds since 1970 of the commit. ``snapshot_id``: of the commit. ``counts``: as in JobReport.
    ``source_digest``: identity of the applied source, None when the run had none.
    """

    time_ms: int
    snapshot_id: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    rejected_path: str | None = None
    source_digest: str | None = None


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
    """The transaction's snapshot is an ancestor of the head, or the record outlived an expired snapshot."""

    record: TxnRecord
    snapshot_id: int


@dataclass(frozen=True)
class RolledBack:
    """The transaction committed once and its snapshot is no longer an ancestor of the head."""

    record: TxnRecord


@dataclass(frozen=True)
class Aborted:
    """The transaction is fenced off: it is not in the table and never will be."""

    snapshot_id: int


TxnState = Absent | Present | RolledBack | Aborted
