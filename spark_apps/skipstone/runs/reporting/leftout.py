"""What of a source nothing used, kept in the snapshot of the commit: later attempts and confirm runs tell it too.

Called by loads and merges with their commit, and by runs that find that an earlier attempt committed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress

from pyiceberg.catalog import Catalog
from skipstone_core.contract.reports import UnusedColumn
from skipstone_core.contract.requests import TableRef
from skipstone_core.errors import UserError
from skipstone_core.history.commits import AlreadyCommitted, Outcome
from skipstone_core.merging.unused import MAX_UNUSED

from skipstone.runs.reporting.report import Reporter
from skipstone.tables.catalogs import load_table

#: In the summary of a snapshot: JSON of the number of columns, and of pairs of names and rows with a value.
UNUSED_SUMMARY = "skipstone.unused-columns"
#: JSON of pairs of names and rows: columns in which the source may have defaults in place of nulls.
DEFAULTED_SUMMARY = "skipstone.defaulted-columns"
#: JSON of a sentence about changes that a merge left out, and of the folder that has them.
REJECTED_SUMMARY = "skipstone.rejected"
#: JSON of names: columns that earlier jobs of the feed had.
GONE_SUMMARY = "skipstone.gone-columns"


def unused_summary(columns: Sequence[UnusedColumn], total: int) -> Mapping[str, str]:
    """Return their properties in the summary of a commit; empty when there are none."""
    if not total:
        return {}
    pairs = [[column.name, column.rows] for column in columns]
    return {UNUSED_SUMMARY: json.dumps({"total": total, "columns": pairs}, ensure_ascii=False)}


def defaulted_summary(columns: Sequence[UnusedColumn]) -> Mapping[str, str]:
    """Return what the summary of a commit says of columns with defaults in place of nulls; nothing without any."""
    pairs = [[column.name, column.rows] for column in columns]
    return {DEFAULTED_SUMMARY: json.dumps(pairs, ensure_ascii=False)} if pairs else {}


def rejected_summary(message: str, path: str | None) -> Mapping[str, str]:
    """Return what the summary of a commit says of changes that are left out; nothing without any.

    ``message``: a sentence; ``path``: where they are kept, None if they are not kept.
    """
    return {REJECTED_SUMMARY: json.dumps({"message": message, "path": path}, ensure_ascii=False)} if message else {}


def gone_summary(names: Sequence[str]) -> Mapping[str, str]:
    """Return what the summary of a commit says of columns that a feed had and has no more; nothing without any."""
    return {GONE_SUMMARY: json.dumps(names[:MAX_UNUSED], ensure_ascii=False)} if names else {}


def recall_unused(catalog: Catalog, ref: TableRef, outcome: Outcome, reporter: Reporter) -> None:
    """Let the report of a run that finds its job committed name what the attempt that committed left out.

    Says nothing once the snapshot has expired, or when the table cannot be read.
    """
    if not isinstance(outcome, AlreadyCommitted):
        return
    with suppress(UserError, OSError, ValueError, KeyError, TypeError):
        snapshot = load_table(catalog, ref.on_main).snapshot_by_id(outcome.record.snapshot_id)
        if snapshot is None or snapshot.summary is None:
            return
        recorded = json.loads(snapshot.summary.get(UNUSED_SUMMARY) or '{"columns": [], "total": 0}')
        pairs = (recorded["columns"], json.loads(snapshot.summary.get(DEFAULTED_SUMMARY) or "[]"))
        unused, defaulted = (tuple(UnusedColumn(name=str(n), rows=rows) for n, rows in listed) for listed in pairs)
        reporter.leave(unused, int(recorded["total"]), defaulted=defaulted)
        rejected = json.loads(snapshot.summary.get(REJECTED_SUMMARY) or '{"message": "", "path": null}')
        reporter.reject(str(rejected["message"]), rejected["path"])
        reporter.miss(tuple(map(str, json.loads(snapshot.summary.get(GONE_SUMMARY) or "[]"))))
