"""The reindex run: bring one index in sync, some segments at a time, then merge its files when there are many.

Called by ``apps/reindex.py`` through ``run_app``. What is finished is committed at once, so whatever ends
a run early, the next one goes on where it stopped. Starts a JVM only when there is something to build.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from functools import partial

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import IndexRef, JobRequest, TableRef
from skipstone_core.errors import BadSpec, DependencyUnavailable, OutcomeUnknown
from skipstone_core.history.commits import Unknown
from skipstone_core.reasons import Reason

from skipstone.indexes.building.build import BuildSite
from skipstone.indexes.building.sorting import BUFFER_BYTES
from skipstone.indexes.building.waves import MissingUnit, plan_units
from skipstone.indexes.coverage import UnreadableIndex, cover_files, failed_segments, read_covers, read_index
from skipstone.indexes.damage import DamagedFile
from skipstone.indexes.definition import (
    FAILED_PROPERTY,
    STORE_PROPERTY,
    UNUSED_BELOW_PROPERTY,
    store_property,
    unused_below_percent,
)
from skipstone.indexes.scans import UnreadableIndexFile
from skipstone.indexes.stores.port import store_of
from skipstone.indexes.tables import IndexTable, index_identifier, reopen_index
from skipstone.indexes.upkeep.expiry import expire_index
from skipstone.indexes.upkeep.quarantine import quarantine
from skipstone.indexes.upkeep.rebuilding import begun, end_rebuild, find_rebuild, newer_coverage, with_properties
from skipstone.indexes.upkeep.remains import clear_remains
from skipstone.indexes.upkeep.staleness import RetainedSnapshots, stale_file_ids
from skipstone.runs.indexing.entering import Entering, Progress, enter_files, make_index, merge_runs, require_fit
from skipstone.runs.reporting.report import Reporter
from skipstone.runs.reporting.states import report_state
from skipstone.runs.settled import abort_earlier_uploads
from skipstone.session import spark_session
from skipstone.tables.catalogs import load_table, open_catalog
from skipstone.tables.committing.commits import CommitPorts
from skipstone.tables.filesets import FileSet, read_file_set
from skipstone.tables.shaping.formats import require_plain
from skipstone.tables.upkeep.purging import drop_damaged
from skipstone.tasks.runner import InProcess, InSpark
from skipstone.tasks.share import USUAL_SHARE, DriverShare, driver_share

logger = logging.getLogger(__name__)

#: Merges read all entries, so each may find a damaged file that the check of footers did not.
MAX_REPAIRS = 5
MAX_FAILURES_REMEMBERED = 50


@dataclass(frozen=True)
class _Work:
    """The pinned objects of a run."""

    request: JobRequest
    reporter: Reporter
    catalog: Catalog
    ref: TableRef
    index: IndexRef
    table: Table
    files: FileSet
    share: DriverShare = USUAL_SHARE
    ports: CommitPorts | None = None


def run_reindex(
    request: JobRequest, reporter: Reporter, ports: CommitPorts | None = None, share: DriverShare = USUAL_SHARE
) -> JobReport:
    """Cover the missing segments of ``request.reindex.index``; the report counts segments, files and entries.

    Segments that fail are reported (SEGMENTS_FAILED), the others are covered: the outcome is Conflicted when one
    failed for a reason that may pass, so that the run is tried again, else Committed. Raises BadSpec for columns that
    cannot be indexed or were replaced, and for encrypted tables; DependencyUnavailable when catalog or index table do
    not answer.
    """
    work = replace(_pin(request, reporter), share=driver_share(request.spark, share), ports=ports)
    progress = Progress()
    with reporter.stage("check"):
        index = _open(work)
        index = _with_settings(work, index)
        damage = store_of(index).find_damage(read_covers(index))
    for _ in range(MAX_REPAIRS):
        with reporter.stage("build"):
            sound = _set_aside(work, index, damage, progress)
            entering = _entering(work, "missing segments" if find_rebuild(sound) is None else "segments to build again")
            index = enter_files(entering, sound, partial(_plan, work, progress), progress)
            index = _without_older(work, index, progress)
        with reporter.stage("merge"):
            index, damage = _merge_runs(work, index, progress)
        if not damage:
            break
    _remember_failures(index, progress.failed)
    expire_index(work.catalog, index, ports)
    clear_remains(work.catalog, request.warehouse, index, request.run_id, ports)
    store_of(index).tidy(read_covers(index))
    return _report(work, progress)


def _pin(request: JobRequest, reporter: Reporter) -> _Work:
    if request.table is None or request.reindex is None:
        raise BadSpec(Reason.INVALID_SPEC, "a reindex run needs a table and an index", field="request.reindex")
    catalog = open_catalog(request.warehouse)
    table = load_table(catalog, request.table)
    require_plain(table)
    with reporter.stage("snapshot"):
        files = read_file_set(table)
    return _Work(request, reporter, catalog, request.table, request.reindex.index, table, files)


def _open(work: _Work) -> IndexTable:
    """The index table, made when absent. A definition that no longer fits the table ends the run."""
    index = _sound_index(work, index_identifier(work.request.warehouse, work.ref, work.index))
    if index is None:
        return make_index(work.catalog, work.request.warehouse, work.ref, work.table, work.index)
    abort_earlier_uploads(work.request, index.table)
    require_fit(work.table, index)
    return index


def _with_settings(work: _Work, index: IndexTable) -> IndexTable:
    """The index with what its resource says about its use, and with the full rebuild that is asked for as begun."""
    task = work.request.reindex
    changed = begun(index, (task.rebuild if task else None) or "")
    least = work.index.unused_below_percent or 0
    if least != unused_below_percent(index.table.properties):
        changed[UNUSED_BELOW_PROPERTY] = str(least)
    if work.index.store is not None and work.index.store != index.stored.store:
        changed[STORE_PROPERTY] = store_property(work.index.store)
    return with_properties(work.catalog, index, changed)


def _without_older(work: _Work, index: IndexTable, progress: Progress) -> IndexTable:
    """The index without what a full rebuild has replaced, if all files are entered again that can be."""
    rebuild = find_rebuild(index)
    if rebuild is None or any(unit.segment not in progress.failed for unit in _plan(work, Progress(), index)):
        return index
    try:
        return end_rebuild(partial(_site, work), index, rebuild)
    except UnreadableIndexFile as error:
        logger.warning("older entries of %s stay beside the new ones until the next reindex: %s", index.name, error)
        return reopen_index(work.catalog, index)


def _sound_index(work: _Work, identifier: Identifier) -> IndexTable | None:
    """The index, None when there is none. One that is damaged is dropped: all of it can be built again."""
    index, damage = _read_index(work, identifier)
    if damage is None:
        return index
    logger.warning("%s; it is dropped and built again", damage)
    drop_damaged(work.catalog, identifier, lambda: _read_index(work, identifier)[1] is not None)
    index, damage = _read_index(work, identifier)
    if damage is not None:
        raise DependencyUnavailable(Reason.STORAGE_UNAVAILABLE, str(damage)) from damage
    return index


def _read_index(work: _Work, identifier: Identifier) -> tuple[IndexTable | None, UnreadableIndex | None]:
    """The index if there is one, or how it is damaged."""
    try:
        return read_index(work.catalog, identifier, work.files.table_uuid)[0], None
    except UnreadableIndex as error:
        if not error.is_damaged:
            raise DependencyUnavailable(Reason.STORAGE_UNAVAILABLE, str(error)) from error
        return None, error


def _set_aside(work: _Work, index: IndexTable, damage: tuple[DamagedFile, ...], progress: Progress) -> IndexTable:
    """Quarantine damaged entry files; what they held is missing afterwards. A run that met another leaves it to it."""
    if not damage:
        return index
    logger.warning("%s; %d damaged files of %s are set aside", damage[0], len(damage), index.name)
    progress.damaged.extend(damage)
    outcome = quarantine(work.catalog, index, damage, work.request.run_id)
    if isinstance(outcome, Unknown):
        raise OutcomeUnknown(f"quarantine of {damage[0]}: {outcome.message}")
    return reopen_index(work.catalog, index)


def _site(work: _Work, rows: int) -> BuildSite:
    return BuildSite(
        tasks=InProcess(work.request.spark.driver_cores)
        if work.share.indexes(rows)
        else InSpark(spark_session(work.request)),
        catalog=work.catalog,
        table=work.table,
        files=work.files,
        run_id=work.request.run_id,
        buffer_bytes=BUFFER_BYTES,
        ports=work.ports,
    )


def _entering(work: _Work, units: str = Entering.units) -> Entering:
    place, tell = partial(_site, work), work.reporter.progress
    return Entering(catalog=work.catalog, ref=work.ref, place=place, tell=tell, units=units)


def _plan(work: _Work, progress: Progress, index: IndexTable) -> list[MissingUnit]:
    coverage = newer_coverage(cover_files(work.files, read_covers(index)), find_rebuild(index))
    units = [unit for unit in plan_units(work.files, coverage) if unit.segment not in progress.failed]
    limit = work.request.reindex.max_segments if work.request.reindex else None
    return units if limit is None else units[: max(0, limit - progress.segments)]


def _merge_runs(work: _Work, index: IndexTable, progress: Progress) -> tuple[IndexTable, tuple[DamagedFile, ...]]:
    """Merge until no tier is full, or until a file turns out to be damaged.

    Raises DependencyUnavailable when entries cannot be read although nothing is damaged.
    """

    def due(head: IndexTable) -> frozenset[int]:
        return stale_file_ids(RetainedSnapshots(work.table), work.files, head, read_covers(head))

    try:
        return merge_runs(_entering(work), index, due, progress), ()
    except UnreadableIndexFile as error:
        newest = reopen_index(work.catalog, index)
        if damage := store_of(newest).confirm_damage(read_covers(newest), error):
            return newest, damage
        raise DependencyUnavailable(Reason.STORAGE_UNAVAILABLE, f"{error}; try again later") from error


def _remember_failures(index: IndexTable, failed: dict[int, str]) -> None:
    """Failures of this run replace the older ones, so that status shows what is wrong now."""
    if failed == failed_segments(index):
        return
    kept = dict(sorted(failed.items())[:MAX_FAILURES_REMEMBERED])
    with index.table.transaction() as change:
        change.set_properties({FAILED_PROPERTY: json.dumps(kept)})


def _report(work: _Work, progress: Progress) -> JobReport:
    state = report_state(work.catalog, work.request.warehouse, work.ref, _indexes(work))
    return replace(
        work.reporter.base(),
        outcome=RunOutcome.CONFLICTED if progress.retryable else RunOutcome.COMMITTED,
        reason=Reason.SEGMENTS_FAILED if progress.failed else Reason.COMMITTED,
        message=_failure_text(progress) if progress.failed else _damage_text(progress),
        snapshot_id=str(progress.snapshot_id),
        counts=progress.counts,
        table_states=(state,),
    )


def _indexes(work: _Work) -> tuple[IndexRef, ...]:
    named = {index.uid for index in work.request.indexes}
    return work.request.indexes if work.index.uid in named else (*work.request.indexes, work.index)


def _failure_text(progress: Progress) -> str:
    first = min(progress.failed)
    others = f" (and {len(progress.failed) - 1} other segments)" if len(progress.failed) > 1 else ""
    return f"segment {first}: {progress.failed[first]}{others}"


def _damage_text(progress: Progress) -> str:
    if not progress.damaged:
        return ""
    others = f" (and {len(progress.damaged) - 1} other files)" if len(progress.damaged) > 1 else ""
    return f"{progress.damaged[0]}{others}: its segments were built again"
