"""What calls of a lake give back, read off the status of the object that each of them applied.

Pure, but for a warning of columns that a load or merge left out.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from skipstone_cli.reading import JsonObject, entries_of, number_of, text_of

#: The frame that a warning names: of the program that calls a method of a lake, which calls a function here.
_CALLER = 4


@dataclass(frozen=True, kw_only=True)
class LakeTable:
    """A table as it was seen last. ``name``: as in the catalog; ``resource``: the name of its Table.

    ``snapshot_id`` 0: it has none.
    """

    name: str
    resource: str
    rows: int
    files: int
    snapshot_id: int
    location: str


@dataclass(frozen=True, kw_only=True)
class LakeIndex:
    """An index. ``synced``: covered segments of all, such as ``3/3``; ``resource``: the name of its SecondaryIndex."""

    resource: str
    columns: tuple[str, ...]
    synced: str


@dataclass(frozen=True, kw_only=True)
class LakeLoad:
    """The result of a load. ``rejected_path``: the file of rows that were left out, below the Warehouse's root.

    ``snapshot_id`` 0: nothing changed.
    """

    resource: str
    rows: int
    rejected: int
    rejected_path: str
    snapshot_id: int
    duration: str


@dataclass(frozen=True, kw_only=True)
class LakeMerge:
    """The result of a merge or of its dry run. ``files_pruned``: files that it did not read.

    ``unmatched``: changes that no clause applies to; ``ignored``: those that are older than their row.
    """

    resource: str
    updated: int
    deleted: int
    inserted: int
    ignored: int
    unmatched: int
    rejected: int
    rejected_path: str
    files_total: int
    files_pruned: int
    files_rewritten: int
    snapshot_id: int
    duration: str


def table_state(table: JsonObject) -> LakeTable:
    """Return the state in a Table's status."""
    identifier = ("spec", "identifier")
    return LakeTable(
        name=f"{text_of(table, *identifier, 'namespace')}.{text_of(table, *identifier, 'name')}",
        resource=text_of(table, "metadata", "name"),
        rows=_count(table, "rows"),
        files=_count(table, "files"),
        snapshot_id=_snapshot(table),
        location=text_of(table, "status", "location"),
    )


def index_state(index: JsonObject) -> LakeIndex:
    """Return the state in a SecondaryIndex's status."""
    return LakeIndex(
        resource=text_of(index, "metadata", "name"),
        columns=tuple(index["spec"]["columns"]),
        synced=text_of(index, "status", "synced"),
    )


def load_result(job: JsonObject) -> LakeLoad:
    """Return the result in a LoadJob's status. Warns of columns that were left out."""
    _warn_of_unused(job)
    return LakeLoad(
        resource=text_of(job, "metadata", "name"),
        rows=_count(job, "rowsLoaded"),
        rejected=_count(job, "rowsRejected"),
        rejected_path=text_of(job, "status", "rejectedPath"),
        snapshot_id=_snapshot(job),
        duration=text_of(job, "status", "duration"),
    )


def merge_result(job: JsonObject) -> LakeMerge:
    """Return the result in a MergeJob's status. Warns of columns that were left out."""
    _warn_of_unused(job)
    total = _count(job, "files", "total")
    return LakeMerge(
        resource=text_of(job, "metadata", "name"),
        updated=_count(job, "rows", "updated"),
        deleted=_count(job, "rows", "deleted"),
        inserted=_count(job, "rows", "inserted"),
        ignored=_count(job, "rows", "ignored"),
        unmatched=_count(job, "rows", "unmatched"),
        rejected=_count(job, "rows", "rejected"),
        rejected_path=text_of(job, "status", "rejectedPath"),
        files_total=total,
        files_pruned=total - _count(job, "files", "candidate"),
        files_rewritten=_count(job, "files", "rewritten"),
        snapshot_id=_snapshot(job),
        duration=text_of(job, "status", "duration"),
    )


def _warn_of_unused(job: JsonObject) -> None:
    """Warn of columns of the source that nothing used, unless the call says how they are treated."""
    names = [text_of(column, "name") for column in entries_of(job, "status", "unusedColumns")]
    if not names or text_of(job, "spec", "source", "unknownColumns"):
        return
    named = ", ".join(map(repr, names)) + (" and others" if _count(job, "unusedColumnsTotal") > len(names) else "")
    warnings.warn(
        f"nothing used the source's columns {named}: name them as the table does, leave them out, or pass "
        "fields={'source': {'unknownColumns': 'Ignore'}} if that is meant",
        stacklevel=_CALLER,
    )


def _count(obj: JsonObject, *path: str) -> int:
    return number_of(obj, "status", *path) or 0


def _snapshot(obj: JsonObject) -> int:
    return int(text_of(obj, "status", "snapshotId") or 0)
