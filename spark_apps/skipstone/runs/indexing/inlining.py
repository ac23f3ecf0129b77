"""Enters what a run committed to a table into the table's Inline indexes, before the run ends.

Called by loads, merges and compactions after each of their commits. The commit of the table comes first and stands
whatever happens here: what could not be entered is missing in the index, is told in a note of the report, and is left
to the next reindex. Work is bounded by what the run added: older segments that are missing, damage, and large merges
of sorted runs are left to the reindex as well. Stale entries of a small index are dropped at once, those of a large one
by the reindex. Must not fail a run.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from propcache.api import cached_property
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from skipstone_core.contract.requests import IndexRef, JobRequest, TableRef
from skipstone_core.history.commits import AlreadyCommitted, Committed, Outcome

from skipstone.causes import first_lines
from skipstone.indexes.building.build import BuildSite
from skipstone.indexes.building.waves import MissingUnit, plan_units
from skipstone.indexes.coverage import Coverage, cover_files, read_covers, read_index
from skipstone.indexes.scans import UnreadableIndexFile
from skipstone.indexes.stores.port import store_of
from skipstone.indexes.tables import IndexTable, index_identifier
from skipstone.indexes.upkeep.expiry import expire_index
from skipstone.indexes.upkeep.remains import clear_remains
from skipstone.indexes.upkeep.staleness import RetainedSnapshots, stale_file_ids
from skipstone.runs.indexing.entering import Entering, Progress, enter_files, make_index, merge_runs, require_fit
from skipstone.runs.reporting.report import Reporter
from skipstone.runs.settled import abort_earlier_uploads, load_or_settle
from skipstone.session import spark_session
from skipstone.tables.catalogs import load_table
from skipstone.tables.committing.commits import CommitPorts
from skipstone.tables.filesets import FileSet, read_file_set
from skipstone.tasks.runner import InProcess, InSpark
from skipstone.tasks.share import DriverShare, enters_here

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class InlineSite:
    """A run that commits to a table. ``token`` is this process's own, so that names of its files never collide."""

    request: JobRequest
    reporter: Reporter
    catalog: Catalog
    share: DriverShare
    ports: CommitPorts | None = None
    token: str = field(default_factory=lambda: secrets.token_hex(4))


@dataclass(frozen=True)
class _Added:
    """The table after a commit, and the snapshot that the commit made."""

    table: Table
    files: FileSet
    snapshot_id: int

    @cached_property
    def retained(self) -> RetainedSnapshots:
        """Of the table."""
        return RetainedSnapshots(self.table)

    @property
    def is_empty(self) -> bool:
        """Return whether the head holds no file that the commit added."""
        return not (self.files.files["added_snapshot_id"].to_numpy() == self.snapshot_id).any()

    def missing(self, index: IndexTable) -> list[MissingUnit]:
        """The files of the commit that ``index`` does not cover."""
        coverage = cover_files(self.files, read_covers(index))
        others = self.files.files["added_snapshot_id"].to_numpy() != self.snapshot_id
        return list(plan_units(self.files, Coverage(np.logical_or(coverage.covered, others), coverage.file_ids)))


def enter_commit(site: InlineSite, outcome: Outcome) -> None:
    """Enter the live files that the commit ``outcome`` added into each Inline index of ``site.request``.

    Nothing when nothing was committed. Whatever fails becomes a note of the reporter; no Exception is raised.
    """
    snapshot_id, ref = _snapshot_of(outcome), site.request.table
    indexes = [index for index in site.request.indexes if index.is_inline]
    if not indexes or not snapshot_id or ref is None:
        return
    with site.reporter.stage("index"):
        try:
            table = _load(site, ref)
            added = _Added(table, read_file_set(table), snapshot_id)
        except Exception as error:  # noqa: BLE001 - the commit stands, and no failure after it may replace it
            _tell_left(site, indexes, error)
            return
        if not added.is_empty:
            for index in indexes:
                _enter_guarded(site, ref, added, index)


def _load(site: InlineSite, ref: TableRef) -> Table:
    """The table with the head that the commit is in: that of main if its branch was published and dropped."""
    table = load_or_settle(site.catalog, ref, site.request.txn)
    return table if isinstance(table, Table) else load_table(site.catalog, ref.on_main)


def _snapshot_of(outcome: Outcome) -> int:
    """The snapshot that a commit made, now or in an earlier attempt; 0: none."""
    match outcome:
        case Committed(_, record) | AlreadyCommitted(record):
            return 0 if record.is_empty else record.snapshot_id
        case _:
            return 0


def _enter_guarded(site: InlineSite, ref: TableRef, added: _Added, index: IndexRef) -> None:
    try:
        progress = _enter(site, ref, added, index)
    except Exception as error:  # noqa: BLE001 - as above
        _tell_left(site, [index], error)
        return
    for message in progress.failed.values():
        site.reporter.note(_left([index], message))


def _enter(site: InlineSite, ref: TableRef, added: _Added, index: IndexRef) -> Progress:
    entering = Entering(catalog=site.catalog, ref=ref, place=partial(_place, site, added), tell=site.reporter.progress)
    progress = Progress()
    table = enter_files(entering, _open(site, ref, added, index), added.missing, progress)
    try:
        table = merge_runs(entering, table, partial(_small_merge, site, added), progress)
    except (UnreadableIndexFile, OSError) as error:
        _log.warning("index files of %s are not merged: %s", table.name, error)  # the next reindex looks for damage
    expire_index(site.catalog, table, site.ports)
    clear_remains(site.catalog, site.request.warehouse, table, site.request.run_id, site.ports)
    return progress


def _open(site: InlineSite, ref: TableRef, added: _Added, index: IndexRef) -> IndexTable:
    """The index table, made when there is none. Raises UnreadableIndex, BadSpec when it does not fit the table."""
    identifier = index_identifier(site.request.warehouse, ref, index)
    table, _ = read_index(site.catalog, identifier, added.files.table_uuid)
    if table is None:
        return make_index(site.catalog, site.request.warehouse, ref, added.table, index)
    abort_earlier_uploads(site.request, table.table)
    require_fit(added.table, table)
    return table


def _place(site: InlineSite, added: _Added, rows: int) -> BuildSite:
    here = enters_here(site.request, site.share, rows)
    return BuildSite(
        tasks=InProcess(site.request.spark.driver_cores) if here else InSpark(spark_session(site.request)),
        catalog=site.catalog,
        table=added.table,
        files=added.files,
        run_id=f"{site.request.run_id}-{site.token}",
        ports=site.ports,
    )


def _small_merge(site: InlineSite, added: _Added, index: IndexTable) -> frozenset[int] | None:
    """Merges that take about as long as entering does are done at once, without stale entries if all of it is small."""
    stale = stale_file_ids(added.retained, added.files, index, read_covers(index))
    for dropped in (stale, frozenset[int]()):
        rows = store_of(index).rows_to_merge(dropped)
        if rows is not None and site.share.merges(rows):
            return dropped
    return None


def _tell_left(site: InlineSite, indexes: list[IndexRef], error: Exception) -> None:
    _log.warning("what was committed is not in all indexes", exc_info=error)
    site.reporter.note(_left(indexes, first_lines(error)))


def _left(indexes: list[IndexRef], why: str) -> str:
    names = ", ".join(index.name for index in indexes)
    return f"Not entered into the index {names}, which is left to its next reindex: {why.rstrip('.')}."
