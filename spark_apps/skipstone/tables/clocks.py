"""The time that a commit carries. Java engines read no table whose history goes back in time by more than a minute.

Used by whoever writes metadata. Clocks of nodes differ, so a commit is at least a millisecond after what it follows: a
table is never further in the future than the fastest clock of those that wrote it. Must not read a clock.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from skipstone_core.history.commits import Conflicted
from skipstone_core.reasons import Reason

#: How far behind its table's last change a clock may be before nobody can say which of the two is wrong.
MOST_AHEAD = timedelta(hours=24)


def commit_time_ms(metadata: TableMetadata, now_ms: int) -> int:
    """The time of a commit that follows ``metadata``, by a clock that says ``now_ms``."""
    return max(now_ms, newest_ms(metadata) + 1)


def find_clock_conflict(table: Table, now_ms: int) -> Conflicted | None:
    """Why a node whose clock says ``now_ms`` must not write ``table``, or None."""
    newest = newest_ms(table.metadata)
    if newest - now_ms <= MOST_AHEAD / timedelta(milliseconds=1):
        return None
    message = (
        f"{'.'.join(table.name())} was last changed at {time_text(newest)} and this node's clock says "
        f"{time_text(now_ms)}: "
        "set the clock right, or, when the table's time is wrong, register the table with an older metadata file."
    )
    return Conflicted(Reason.CLOCK_SKEWED, message)


def in_order(before: TableMetadata, after: TableMetadata) -> TableMetadata:
    """``after``, the metadata that follows ``before``, with times that do not go back."""
    if after.last_updated_ms == before.last_updated_ms:
        return after
    time = commit_time_ms(before, after.last_updated_ms)
    changed: dict[str, object] = {"last_updated_ms": time}
    if len(after.snapshot_log) > len(before.snapshot_log):
        *earlier, last = after.snapshot_log
        changed["snapshot_log"] = [*earlier, last.model_copy(update={"timestamp_ms": time})]
    return after if time == after.last_updated_ms else after.model_copy(update=changed)


def newest_ms(metadata: TableMetadata) -> int:
    """The latest time in ``metadata``: not every writer keeps ``last-updated-ms`` the latest."""
    of_snapshots = (entry.timestamp_ms for entry in metadata.snapshot_log[-1:])
    of_files = (entry.timestamp_ms for entry in metadata.metadata_log[-1:])
    return max(metadata.last_updated_ms, *of_snapshots, *of_files, 0)


def time_text(time_ms: int) -> str:
    """As people read it."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)).isoformat(timespec="seconds")
