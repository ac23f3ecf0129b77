"""What became of covering indexes in the joins of a query, as facts and as text.

Shown by ``skipstone.explain``. Must not know Spark or plans.
"""

from __future__ import annotations

from dataclasses import dataclass

from skipstone_core.coded import CodedSentence
from skipstone_core.contract.reports import MAX_LISTED_SEGMENTS

from skipstone.query.plans.covering.content import CoveredRows


class NotJoined(CodedSentence):
    """Why a covering index of a table that is joined was not used for it."""

    NOT_OFFERED = "NotOffered", "The index lacks a column of the query, or no join compares exactly its keys by =."
    NOT_SHUFFLED = "NotShuffled", "Spark joins the table without a shuffle, or filters it when the query runs."
    NO_GAIN = "NoGain", "Too many rows would have to be read, or shuffled in spite of the index."
    STILL_SHUFFLED = "StillShuffled", "Spark would still shuffle the rows of the index."
    NOT_BUCKETED = "NotBucketed", "Spark does not read the index bucket by bucket."
    UNREADABLE = "Unreadable", "A file of the index is gone or damaged."


@dataclass(frozen=True)
class Unjoined:
    """A covering index that was not used, why, and what there is to say besides."""

    index: str
    reason: NotJoined
    detail: str = ""

    def text(self) -> str:
        """One line for explain."""
        detail = f" ({self.detail})" if self.detail else ""
        return f"covering index {self.index}: not used: {self.reason.value}, {self.reason.sentence}{detail}"


@dataclass(frozen=True, eq=False)
class JoinedByBuckets:
    """A relation whose rows come bucket by bucket from ``rows.index``, joined by columns of these ``names``."""

    table: str
    names: tuple[str, ...]
    rows: CoveredRows

    def lines(self) -> list[str]:
        """For explain."""
        rows, index = self.rows, self.rows.index
        missing = index.files.missing_segments
        synced = f"{index.files.segments - len(missing)}/{index.files.segments} segments"
        lag = ", missing " + ", ".join(map(str, missing[:MAX_LISTED_SEGMENTS])) if missing else ""
        lines = [
            f"joined by {', '.join(self.names)} in {index.index.definition.buckets} buckets",
            f"covering index {index.name}: used, {rows.single:,} entries without a shuffle; {synced}{lag}",
        ]
        if rows.missing or rows.mixed:
            parts = [f"{rows.missing_rows:,} rows of {len(rows.missing)} files"] if rows.missing else []
            parts += [f"{rows.mixed:,} entries of small segments"] if rows.mixed else []
            lines.append(f"shuffled: {' and '.join(parts)}")
        if rows.deleted.num_rows:
            lines.append(f"without {rows.deleted.num_rows:,} rows deleted by position")
        return lines
