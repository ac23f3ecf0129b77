"""What a run answers.

The driver writes a JobReport into its termination message and, with the state of the table, into an annotation of its
own pod. The termination message names the annotation's digest: other accounts may patch annotations. A report is for
people and for status; the truth about a commit is in the table.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from skipstone_core.codec import decode, encode
from skipstone_core.contract import CONTRACT_VERSION
from skipstone_core.contract.requests import RunKind
from skipstone_core.errors import ContractViolation
from skipstone_core.funnel import FunnelStage
from skipstone_core.maintenance.health import TableHealth
from skipstone_core.maintenance.policies import MaintenanceStep
from skipstone_core.reasons import Reason

MAX_TERMINATION_BYTES = 2048
MAX_ANNOTATION_BYTES = 64 * 1024
MAX_LISTED_SEGMENTS = 20
MAX_LISTED_PROPERTIES = 10
#: No number of a report is negative or greater.
MAX_NUMBER = (1 << 63) - 1
#: The escape of one half of a character; two that fit make a whole one.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

EXIT_COMMITTED = 0
EXIT_BAD_SPEC = 64
EXIT_BAD_DATA = 65
EXIT_UNAVAILABLE = 69
EXIT_UNKNOWN = 75


class RunOutcome(StrEnum):
    """How a run ended, as its driver saw it. Planned: a dry run knows what the merge would do, and wrote nothing."""

    RUNNING = "Running"
    COMMITTED = "Committed"
    ALREADY_COMMITTED = "AlreadyCommitted"
    PLANNED = "Planned"
    CONFLICTED = "Conflicted"
    FAILED = "Failed"
    UNKNOWN = "Unknown"
    ABSENT = "Absent"


@dataclass(frozen=True, kw_only=True)
class SegmentCounts:
    """Segments of a table by status; ``latest`` is the newest segment id (file sequence number)."""

    total: int = 0
    valid: int = 0
    partial: int = 0
    updated: int = 0
    latest: int | None = None


@dataclass(frozen=True, kw_only=True)
class MetadataMark:
    """Which metadata of which Iceberg table was read; ``uuid`` empty: none, or a driver that does not say.

    ``version`` is the number in the metadata file's name, which counts commits without a clock; 0 where the catalog
    names files otherwise. ``updated_ms`` is the metadata's last-updated-ms.
    """

    uuid: str = ""
    version: int = 0
    updated_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class IndexState:
    """How far one index covers the table's head. ``missing_segments``: the oldest 20 ids.

    ``rows_to_merge``: entries that a reindex would merge now: those of sorted runs that are many, or all of them where
    it would drop many of files that are gone; 0: none are due.
    ``metadata``: of the index table. ``unused_below_percent``: what the index table says, which readers follow.
    ``store``: likewise, the settings of the store that holds the entries; empty when the table does.
    """

    uid: str
    name: str
    segments_total: int = 0
    segments_synced: int = 0
    segments_missing: int = 0
    segments_failed: int = 0
    missing_segments: tuple[int, ...] = ()
    files_live: int = 0
    files_covered: int = 0
    rows_live: int = 0
    rows_covered: int = 0
    entries: int = 0
    bytes: int = 0
    rows_to_merge: int = 0
    synced_sequence_number: int = 0
    exists: bool = False
    degraded: Reason | None = None
    message: str = ""
    metadata: MetadataMark = MetadataMark()
    unused_below_percent: int = 0
    store: str = ""


@dataclass(frozen=True, kw_only=True)
class PropertyFindings:
    """Table properties, set by anybody, that loads and merges do not follow.

    ``ignored``: the first 10 names of ``ignored_total``. ``refused``: the sentence with which loads or merges refuse a
    value, empty when they refuse none.
    """

    ignored: tuple[str, ...] = ()
    ignored_total: int = 0
    refused: str = ""


@dataclass(frozen=True, kw_only=True)
class TableState:
    """The head of a table as a run saw it at its end. ``snapshot_id`` is a string: JSON numbers lose 64-bit ids.

    ``columns``: name to Iceberg type; ``field_ids``: name to field id. ``problem`` is TableMissing, TableReplaced,
    SchemaDrift or FormatVersionUnsupported when one of them holds. ``evolved_columns``: added by merges, by right.
    ``health``: by the policy of the request; None when it had none. ``caveats``: clauses that say what other engines
    cannot do with the table, and the way out.
    """

    namespace: str
    name: str
    uid: str
    table_uuid: str = ""
    owner: str = ""
    format_version: int = 2
    snapshot_id: str = ""
    sequence_number: int = 0
    rows: int = 0
    files: int = 0
    bytes: int = 0
    segments: SegmentCounts = SegmentCounts()
    columns: Mapping[str, str] = field(default_factory=dict)
    field_ids: Mapping[str, int] = field(default_factory=dict)
    evolved_columns: tuple[str, ...] = ()
    indexes: tuple[IndexState, ...] = ()
    problem: Reason | None = None
    message: str = ""
    location: str = ""
    namespace_id: str = ""
    metadata: MetadataMark = MetadataMark()
    properties: PropertyFindings = PropertyFindings()
    health: TableHealth | None = None
    caveats: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """What became of one step of a maintain run.

    ``is_done``: nothing of the step is left to do; false when the run gave way, met a conflict, or failed in it.
    ``message``: a sentence. ``counts``: Compaction: filesRewritten, filesWritten, bytesRewritten, bytesWritten,
    rowsDropped, commits, conflicts. Manifests: manifestsRewritten, manifestsWritten. Snapshots: snapshotsExpired,
    filesDeleted, bytesDeleted. OrphanFiles: filesFound, bytesFound, filesDeleted, bytesDeleted.
    """

    step: MaintenanceStep
    is_done: bool
    reason: Reason
    message: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class UnusedColumn:
    """A column of a source that the run did not use; ``rows`` have a value in it, None when that was not counted.

    Of ``defaulted_columns``: ``rows`` have the default.
    """

    name: str
    rows: int | None = None


@dataclass(frozen=True, kw_only=True)
class JobReport:
    """What a run says of itself.

    ``counts`` by kind. Load: segment, rowsRead, rowsLoaded, and rowsRejected (the first is the sum of the others), or
    filesRegistered and filesSkipped. Merge: filesTotal, filesCandidate, filesTouched, filesRewritten, filesMarked,
    rowsSource (the sum of rowsMatching, rowsInserted, rowsUnmatched, rowsSuperseded, rowsRejected and rowsWaiting),
    rowsUnmatchedDeletes, rowsUnmatchedUpdates, rowsMatched, rowsUpdated, rowsDeleted, rowsIgnored, rowsCopied,
    bytesCandidate, bytesRemoved, bytesRewritten, bytesInserted, bytesDeletes; a dry run has the same without those of
    files that it would write. Reindex: segments, files, entries.
    ``snapshot_id`` "0" stands for a commit on which nothing changed. ``stages_ms``: milliseconds by stage.
    ``table_states``: one for most runs, several for observe; only in the annotation, never in the termination message.
    ``unused_columns``: the first 20 of the source that nothing used; ``unused_total``: how many there are.
    ``defaulted_columns``: the first 20 in which a change feed may have the source column's default in place of null.
    ``gone_columns``: the first 20 that earlier jobs of the change feed had, and this one has not.
    ``funnel``: of merges and dry runs. ``steps``: of maintain runs. ``annotation_sha256``: digest of the text in the
    annotation; only in the termination message.
    """

    run_id: str
    attempt: int
    kind: RunKind
    outcome: RunOutcome
    reason: Reason
    message: str = ""
    snapshot_id: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    stages_ms: Mapping[str, int] = field(default_factory=dict)
    rejected_path: str | None = None
    progress: str | None = None
    table_states: tuple[TableState, ...] = ()
    funnel: tuple[FunnelStage, ...] = ()
    unused_columns: tuple[UnusedColumn, ...] = ()
    unused_total: int = 0
    defaulted_columns: tuple[UnusedColumn, ...] = ()
    gone_columns: tuple[str, ...] = ()
    steps: tuple[StepReport, ...] = ()
    annotation_sha256: str = ""
    version: int = CONTRACT_VERSION

    def to_json(self) -> str:
        """The full report, as for the annotation."""
        return json.dumps(encode(self), sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> JobReport:
        """Read a report leniently: fields that a newer driver adds are ignored. Raises ContractViolation.

        Numbers are brought into the bounds that a status has, and halves of characters are replaced: anybody may have
        written the text, and the API server would not keep them as they are.
        """
        try:
            raw = json.loads(_with_whole_characters(text), parse_int=_bounded)
        except (ValueError, RecursionError) as error:
            raise ContractViolation(f"report is not JSON that can be read: {error}") from error
        version = raw.get("version") if isinstance(raw, dict) else None
        if version != CONTRACT_VERSION:
            raise ContractViolation(f"report has version {version}, this operator reads version {CONTRACT_VERSION}")
        return decode(JobReport, raw, strict=False)


def _with_whole_characters(text: str) -> str:
    if _SURROGATE.search(text) is None:
        return text
    return json.dumps(json.loads(text), ensure_ascii=False).encode(errors="replace").decode()


def _bounded(digits: str) -> int:
    return min(max(int(digits), 0), MAX_NUMBER)


def report_digest(text: str) -> str:
    """What a termination message says of the annotation ``text``."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
