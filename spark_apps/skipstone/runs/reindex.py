"""The reindex run: bring one index in sync, some segments at a time, then merge its files when there are many.

Called by ``spark_apps/reindex.py`` through ``run_app``. What is finished is committed at once, so whatever ends
a run early, the next one goes on where it stopped. Starts a JVM only when there is something to build.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from py4j.protocol import Py4JError
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from pyspark.errors import PySparkException
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import IndexRef, JobRequest, TableRef
from skipstone_core.errors import BadSpec, DependencyUnavailable, OutcomeUnknown
from skipstone_core.history.commits import Committed, Conflicted, Unknown
from skipstone_core.reasons import Reason

from skipstone.causes import is_jvm_lost
from skipstone.indexes.building.build import (
    BuildSite,
    EnteredWave,
    WaveResult,
    commit_entered,
    enter_units,
)
from skipstone.indexes.building.sorting import BUFFER_BYTES
from skipstone.indexes.building.waves import MissingUnit, plan_units, plan_waves, wave_weight
from skipstone.indexes.coverage import (
    UnreadableIndex,
    cover_files,
    failed_segments,
    next_file_id,
    read_covers,
    read_index,
)
from skipstone.indexes.damage import DamagedFile, find_damage
from skipstone.indexes.definition import FAILED_PROPERTY, IndexNames, define_index, definition_problem
from skipstone.indexes.scans import UnreadableIndexFile
from skipstone.indexes.tables import (
    IndexTable,
    NewIndex,
    create_index,
    index_identifier,
    reopen_index,
)
from skipstone.indexes.upkeep.compaction import compact_index, rows_to_merge
from skipstone.indexes.upkeep.quarantine import confirm_damage, quarantine
from skipstone.indexes.upkeep.staleness import stale_file_ids
from skipstone.runs.reporting.report import Reporter
from skipstone.runs.reporting.states import report_state
from skipstone.runs.settled import abort_earlier_uploads
from skipstone.session import spark_session
from skipstone.tables.catalogs import catalog_answers, load_table, open_catalog
from skipstone.tables.committing.commits import CommitPorts
from skipstone.tables.filesets import FileSet, read_file_set
from skipstone.tasks.runner import InProcess, InSpark
from skipstone.tasks.share import USUAL_SHARE, DriverShare, driver_share

logger = logging.getLogger(__name__)

#: A merge of one tier may fill the next one; more rounds than tiers exist are a defect.
MAX_MERGE_ROUNDS = 16
MAX_PLANS = 5
#: Merges read all entries, so each may find a damaged file that the check of footers did not.
MAX_REPAIRS = 5
MAX_FAILURES_REMEMBERED = 50
MAX_FAILURE_TEXT = 500


@dataclass
class _Progress:
    """What this run has done so far. ``entered``: segments of which files were; a large one takes several waves."""

    entered: set[int] = field(default_factory=set)
    files: int = 0
    entries: int = 0
    failed: dict[int, str] = field(default_factory=dict)
    damaged: list[DamagedFile] = field(default_factory=list)
    retryable: bool = False
    snapshot_id: int = 0

    @property
    def segments(self) -> int:
        """How many segments were entered."""
        return len(self.entered)


@dataclass(frozen=True)
class _Work:
    """What a run works on, pinned."""

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
    cannot be indexed or were replaced, DependencyUnavailable when catalog or index table do not answer.
    """
    work = replace(_pin(request, reporter), share=driver_share(request.spark, share), ports=ports)
    progress = _Progress()
    with reporter.stage("check"):
        index = _open(work)
        damage = find_damage(index)
    for _ in range(MAX_REPAIRS):
        with reporter.stage("build"):
            index = _build_all(work, _set_aside(work, index, damage, progress), progress)
        with reporter.stage("merge"):
            index, damage = _merge_runs(work, index, progress)
        if not damage:
            break
    _remember_failures(index, progress.failed)
    return _report(work, progress)


def _pin(request: JobRequest, reporter: Reporter) -> _Work:
    if request.table is None or request.reindex is None:
        raise BadSpec(Reason.INVALID_SPEC, "a reindex run needs a table and an index", field="request.reindex")
    catalog = open_catalog(request.warehouse)
    table = load_table(catalog, request.table)
    with reporter.stage("snapshot"):
        files = read_file_set(table)
    return _Work(request, reporter, catalog, request.table, request.reindex.index, table, files)


def _open(work: _Work) -> IndexTable:
    """The index table, made when absent. A definition that no longer fits the table ends the run."""
    identifier = index_identifier(work.request.warehouse, work.ref, work.index)
    uuid = work.files.table_uuid
    found = _sound_index(work, identifier)
    if found is not None:
        abort_earlier_uploads(work.request, found.table)
        if problem := definition_problem(work.table.schema(), found.stored):
            raise BadSpec(problem.reason, problem.message, field=problem.field)
        return found
    names = IndexNames(work.index.columns, work.index.include)
    new = NewIndex(
        identifier=identifier,
        definition=define_index(work.table.schema(), names, work.index.buckets),
        names=names,
        table_uuid=uuid,
        owner_uid=work.index.uid,
    )
    return _create(work, new)


def _create(work: _Work, new: NewIndex) -> IndexTable:
    """Make the index table, or say where the Warehouse must let us write."""
    name = ".".join(new.identifier)
    way_out = "let the Warehouse's account create tables there, or set spec.indexNamespace of the Warehouse"
    try:
        with catalog_answers(work.catalog.name):
            return create_index(work.catalog, new)
    except DependencyUnavailable as error:
        by_storage = isinstance(error.__cause__, OSError) and error.__cause__.errno is not None
        reason = Reason.STORAGE_UNAVAILABLE if by_storage else error.reason
        message = f"the index table {name} cannot be created; {way_out}. {_first_line(error.__cause__ or error)}"
        raise DependencyUnavailable(reason, message) from error


def _sound_index(work: _Work, identifier: Identifier) -> IndexTable | None:
    """The index, None when there is none. One that is damaged is dropped: all of it can be built again."""
    try:
        return read_index(work.catalog, identifier, work.files.table_uuid)[0]
    except UnreadableIndex as error:
        if not error.is_damaged:
            raise DependencyUnavailable(Reason.STORAGE_UNAVAILABLE, str(error)) from error
        logger.warning("%s; it is dropped and built again", error)
        work.catalog.drop_table(identifier)
        return None


def _set_aside(work: _Work, index: IndexTable, damage: tuple[DamagedFile, ...], progress: _Progress) -> IndexTable:
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
        tasks=InProcess() if work.share.indexes(rows) else InSpark(spark_session(work.request)),
        catalog=work.catalog,
        table=work.table,
        files=work.files,
        run_id=work.request.run_id,
        buffer_bytes=BUFFER_BYTES,
        ports=work.ports,
    )


def _build_all(work: _Work, index: IndexTable, progress: _Progress) -> IndexTable:
    """Build what is missing; plan again when another run changed the index."""
    for _ in range(MAX_PLANS):
        units = _plan(work, index, progress)
        if not units:
            return index
        undisturbed = _build_units(work, index, units, progress)
        index = reopen_index(work.catalog, index)
        if undisturbed:
            return index
    raise DependencyUnavailable(Reason.CONFLICTED, "another run of this index keeps committing; try again later")


def _plan(work: _Work, index: IndexTable, progress: _Progress) -> list[MissingUnit]:
    coverage = cover_files(work.files, read_covers(index))
    units = [unit for unit in plan_units(work.files, coverage) if unit.segment not in progress.failed]
    limit = work.request.reindex.max_segments if work.request.reindex else None
    return units if limit is None else units[: max(0, limit - progress.segments)]


def _build_units(work: _Work, index: IndexTable, units: list[MissingUnit], progress: _Progress) -> bool:
    """Build and commit in waves; False as soon as the index's head is not the one this run made."""
    site = _site(work, sum(unit.rows for unit in units))
    next_id, before = next_file_id(index, read_covers(index)), progress.segments
    for wave in plan_waves(units, wave_weight(site.power, index.definition, units)):
        done = f"{progress.segments - before} of {len(units)} missing segments done"
        work.reporter.progress(f"segment {wave[0].segment}, {done}", _counts(progress))
        for entered in _enter(site, index, wave, next_id, progress):
            result = commit_entered(site, index, entered)
            _take(work, result, progress)
            index = replace(index, table=work.catalog.load_table(index.identifier))
            if not is_ours(result, index):
                return False
        next_id += sum(len(unit.ordinals) for unit in wave)
    return True


def _enter(
    site: BuildSite, index: IndexTable, wave: list[MissingUnit], next_id: int, progress: _Progress
) -> Iterator[EnteredWave]:
    """Enter a wave; when a task of it fails for good, unit by unit, so that only the guilty one is left out."""
    try:
        yield enter_units(site, index, wave, next_id)
        return
    except (PySparkException, Py4JError, OSError) as error:
        if is_jvm_lost(error):
            raise
        if len(wave) == 1:
            _fail(progress, wave[0].segment, f"the build failed: {_first_line(error)}", retryable=True)
            return
    for unit in wave:
        yield from _enter(site, index, [unit], next_id, progress)
        next_id += len(unit.ordinals)


def is_ours(result: WaveResult, index: IndexTable) -> bool:
    """Whether the index's head is still the commit of ``result``."""
    match result.outcome:
        case None:
            return True
        case Committed(snapshot_id=snapshot_id):
            return index.table.metadata.current_snapshot_id == snapshot_id
        case _:
            return False


def _take(work: _Work, result: WaveResult, progress: _Progress) -> None:
    match result.outcome:
        case Committed(snapshot_id=snapshot_id):
            progress.snapshot_id = snapshot_id
            progress.entered |= {*result.entered}
            progress.files += result.files
            progress.entries += result.entries
        case Conflicted(reason=reason, message=message) if reason is not Reason.CONFLICTED:
            for segment in result.entered:
                _fail(progress, segment, message, retryable=True)
        case Unknown(message=message):
            raise OutcomeUnknown(f"segments from {result.entered[0]} to {result.entered[-1]}: {message}")
        case _:
            pass  # planned again on the new head, or nothing of the wave could be entered
    for segment, skipped in result.skipped:
        if not skipped.vanished or _is_live(work, skipped.path):
            said = skipped.message.replace(skipped.path, "it")  # a path may be long, and the text is cut
            gone = "is missing in the storage" if skipped.vanished else f"cannot be indexed: {said}"
            _fail(progress, segment, f"file {skipped.path} {gone}", retryable=False)


def _is_live(work: _Work, path: str) -> bool:
    """Whether the table's head still holds a file; one that a rewrite removed meanwhile is stale, not a failure."""
    head = read_file_set(load_table(work.catalog, work.ref))
    return path in set(head.files["path"].to_pylist())


def _fail(progress: _Progress, segment: int, message: str, *, retryable: bool) -> None:
    progress.failed.setdefault(segment, message[:MAX_FAILURE_TEXT])
    progress.retryable = progress.retryable or retryable


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _merge_runs(work: _Work, index: IndexTable, progress: _Progress) -> tuple[IndexTable, tuple[DamagedFile, ...]]:
    """Merge until no tier is full, or until a file turns out to be damaged; a merge overtaken is left to the next run.

    Raises DependencyUnavailable when entries cannot be read although nothing is damaged.
    """
    for _ in range(MAX_MERGE_ROUNDS):
        dropped = stale_file_ids(work.table, work.files, index, read_covers(index))
        rows = rows_to_merge(index, dropped)
        if rows is None:
            break
        work.reporter.progress("merging index files", _counts(progress))
        try:
            outcome = compact_index(_site(work, rows), index, dropped)
        except UnreadableIndexFile as error:
            if damage := confirm_damage(index, error):
                return index, damage
            raise DependencyUnavailable(Reason.STORAGE_UNAVAILABLE, f"{error}; try again later") from error
        if isinstance(outcome, Unknown):
            raise OutcomeUnknown(f"merge of index files: {outcome.message}")
        if not isinstance(outcome, Committed):
            break
        index = reopen_index(work.catalog, index)
    return index, ()


def _remember_failures(index: IndexTable, failed: dict[int, str]) -> None:
    """Failures of this run replace the older ones, so that status shows what is wrong now."""
    if failed == failed_segments(index):
        return
    kept = dict(sorted(failed.items())[:MAX_FAILURES_REMEMBERED])
    with index.table.transaction() as change:
        change.set_properties({FAILED_PROPERTY: json.dumps(kept)})


def _counts(progress: _Progress) -> dict[str, int]:
    return {"segments": progress.segments, "files": progress.files, "entries": progress.entries}


def _report(work: _Work, progress: _Progress) -> JobReport:
    state = report_state(work.catalog, work.request.warehouse, work.ref, _indexes(work))
    return replace(
        work.reporter.base(),
        outcome=RunOutcome.CONFLICTED if progress.retryable else RunOutcome.COMMITTED,
        reason=Reason.SEGMENTS_FAILED if progress.failed else Reason.COMMITTED,
        message=_failure_text(progress) if progress.failed else _damage_text(progress),
        snapshot_id=str(progress.snapshot_id),
        counts=_counts(progress),
        table_states=(state,),
    )


def _indexes(work: _Work) -> tuple[IndexRef, ...]:
    named = {index.uid for index in work.request.indexes}
    return work.request.indexes if work.index.uid in named else (*work.request.indexes, work.index)


def _failure_text(progress: _Progress) -> str:
    first = min(progress.failed)
    others = f" (and {len(progress.failed) - 1} other segments)" if len(progress.failed) > 1 else ""
    return f"segment {first}: {progress.failed[first]}{others}"


def _damage_text(progress: _Progress) -> str:
    if not progress.damaged:
        return ""
    others = f" (and {len(progress.damaged) - 1} other files)" if len(progress.damaged) > 1 else ""
    return f"{progress.damaged[0]}{others}: its segments were built again"
