"""The merge run: a change feed applied to a table in one commit, reading only files that a source key can touch.

Called by ``apps/merge.py`` through ``run_app``. Orders the steps; looks for its transaction before it starts a
JVM, and starts none for a small merge of plain files. A conflict that planning again can fix is planned again,
bounded; the source is not read again for it. A dry run takes the same steps up to the changed rows, and ends there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyspark.sql import SparkSession
from skipstone_core.codec import encode
from skipstone_core.contract.columns import UnknownColumns
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import JobRequest, MergeTask, RunKind, TableRef
from skipstone_core.errors import BadSpec, DependencyUnavailable
from skipstone_core.funnel import FunnelStage, false_positive_summary, funnel_summary, left_out_summary
from skipstone_core.history.commits import Committed, Conflicted, Outcome
from skipstone_core.merging.merges import MergeCounts, switched_off
from skipstone_core.merging.unused import describe_skipped
from skipstone_core.reasons import Reason

from skipstone.kernels.changes import verify_slices
from skipstone.pruning.funnel import SliceRunner, run_here
from skipstone.runs.indexing.inlining import InlineSite, enter_commit
from skipstone.runs.intake import (
    NOTHING,
    Intake,
    brought,
    is_unique,
    nothing_new,
    require_managed,
    source_record,
)
from skipstone.runs.merging.feed import read_feed, read_feed_here
from skipstone.runs.merging.leavingout import HoldsUpdate, RowsAbsent
from skipstone.runs.merging.memories.replaying import take_changes
from skipstone.runs.merging.memory import held_bytes
from skipstone.runs.merging.prune import Pruned, PruneSite, prune_files, run_in, touched_by_keys
from skipstone.runs.merging.rewrite import Rewrite, RewriteSite, rewrite_files
from skipstone.runs.merging.slices.scratch import Scratch, open_scratch
from skipstone.runs.merging.source import Changes, Leaves, SourceSite, read_changes, read_changes_here
from skipstone.runs.reporting.leftout import (
    defaulted_summary,
    gone_summary,
    recall_unused,
    rejected_summary,
    unused_summary,
)
from skipstone.runs.reporting.progress import task_progress
from skipstone.runs.reporting.report import Reporter
from skipstone.runs.reporting.states import report_state, reported_with
from skipstone.runs.settled import (
    abort_earlier_uploads,
    forget_committed,
    forget_job,
    load_or_settle,
    reported_once,
    settled,
)
from skipstone.runs.workers import warm_workers
from skipstone.session import spark_session
from skipstone.sources.failures import readable
from skipstone.sources.listing import SourceListing
from skipstone.sources.plain import NotPlainError
from skipstone.sources.rejects import clear_rejects, keep_rejects, reject_place, rejects_kept
from skipstone.tables.catalogs import load_table, open_catalog
from skipstone.tables.committing.commits import CommitPorts, TableCommit
from skipstone.tables.committing.writing import CommitSite, WrittenFiles, commit_written
from skipstone.tables.filesets import FileSet, PinnedTable, read_file_set
from skipstone.tables.namespaces import mark_namespace
from skipstone.tables.records.heldrows import HoldsMemory
from skipstone.tables.shaping.evolution import fits, with_columns
from skipstone.tables.shaping.formats import require_mergeable
from skipstone.tables.shaping.writeproperties import merges_on_read, require_known_values
from skipstone.tasks.failures import storing
from skipstone.tasks.runner import InProcess, InSpark, Tasks
from skipstone.tasks.share import USUAL_SHARE, DriverShare, driver_share, merges_here, rewriting_workers

#: How often a merge is planned when other writers get in between.
MAX_PLANS = 5
_SUMMARY = "skipstone.merge."
FUNNEL_SUMMARY = f"{_SUMMARY}funnel"
#: The outcome of a dry run's attempt.
NOT_COMMITTED = Conflicted(Reason.DRY_RUN, Reason.DRY_RUN.sentence)


@dataclass(frozen=True, kw_only=True)
class _Job:
    """The job of a run."""

    request: JobRequest
    reporter: Reporter
    catalog: Catalog
    ref: TableRef
    task: MergeTask
    ports: CommitPorts | None
    share: DriverShare

    @property
    def is_dry(self) -> bool:
        """Return whether nothing is written."""
        return self.request.kind is RunKind.DRY_RUN

    def session(self) -> SparkSession:
        """The session of this process, started when it is first asked for."""
        with self.reporter.stage("session"):
            return spark_session(self.request)

    def load(self) -> Table:
        """The table as it is now."""
        return load_table(self.catalog, self.ref)

    def end(self, outcome: Outcome, counts: MergeCounts, funnel: tuple[FunnelStage, ...] = ()) -> JobReport:
        """The report of ``outcome`` with the state of the table, once its indexes follow.

        ``funnel``: of the attempt that it judges.
        """
        recall_unused(self.catalog, self.ref, outcome, self.reporter)
        enter_commit(self._inline, outcome)
        forget_committed(self.request, outcome)
        with self.reporter.stage("report"):
            return reported_with(replace(self.reporter.judge(outcome, encode(counts)), funnel=funnel), self._look)

    @property
    def _inline(self) -> InlineSite:
        return InlineSite(
            request=self.request, reporter=self.reporter, catalog=self.catalog, share=self.share, ports=self.ports
        )

    def _look(self, report: JobReport) -> JobReport:
        state = report_state(self.catalog, self.request.warehouse, self.ref, self.request.indexes)
        return replace(report, table_states=(state,))


def run_merge(
    request: JobRequest,
    reporter: Reporter,
    ports: CommitPorts | None = None,
    share: DriverShare = USUAL_SHARE,
) -> JobReport:
    """Apply ``request.merge`` to ``request.table``, once. Raises UserError; ``ports`` let tests hold the commit."""
    return reported_once(request, lambda: _run(request, reporter, ports, share))


def _run(request: JobRequest, reporter: Reporter, ports: CommitPorts | None, share: DriverShare) -> JobReport:
    with reporter.stage("open"):
        job = _open(request, reporter, ports, share)
        intake = _take(job)
    if intake is NOTHING:
        return replace(job.end(NOTHING, MergeCounts()), message=nothing_new(job.task.source))
    if not isinstance(intake, Intake):
        return job.end(intake, MergeCounts())
    with open_scratch(request) as scratch, rejects_kept(request), _brought(job, intake) as files:
        outcome, rewrite = _plan_until_settled(job, files, scratch)
        if isinstance(outcome, Conflicted):
            clear_rejects(request)
    if isinstance(outcome, Committed):
        reporter.reject(rewrite.left_out.message, rewrite.left_out.path)
    return job.end(outcome, rewrite.counts, rewrite.funnel)


def run_dry(request: JobRequest, reporter: Reporter, share: DriverShare = USUAL_SHARE) -> JobReport:
    """Report the effect that ``run_merge`` would have on the table as it is now. Raises UserError as it does.

    Nothing is committed and nothing is written beside the table; what is kept for tasks meanwhile is gone at the end.
    """
    try:
        with reporter.stage("open"):
            job = _open(request, reporter, None, share)
            intake = _take(job)
        if intake is NOTHING:
            return replace(_planned(job, MergeCounts()), message=nothing_new(job.task.source))
        if not isinstance(intake, Intake):
            return reporter.judge(intake, {})
        with open_scratch(request) as scratch, _brought(job, intake) as files:
            _, rewrite = _plan_until_settled(job, files, scratch)
        reporter.reject(rewrite.left_out.message, None)
        return _planned(job, rewrite.counts, rewrite.funnel)
    finally:
        forget_job(request)


def _planned(job: _Job, counts: MergeCounts, funnel: tuple[FunnelStage, ...] = ()) -> JobReport:
    base = replace(job.reporter.base(), outcome=RunOutcome.PLANNED, reason=Reason.DRY_RUN)
    return replace(base, message=Reason.DRY_RUN.sentence, counts=encode(counts), funnel=funnel)


def _open(request: JobRequest, reporter: Reporter, ports: CommitPorts | None, share: DriverShare) -> _Job:
    if request.merge is None or request.table is None:
        raise BadSpec(Reason.INVALID_SPEC, "a merge needs a table and a merge task", field="request")
    return _Job(
        request=request,
        reporter=reporter,
        catalog=open_catalog(request.warehouse),
        ref=request.table,
        task=request.merge,
        ports=ports,
        share=driver_share(request.spark, share),
    )


def _take(job: _Job) -> Intake | Outcome:
    """Return the intake to apply, or the outcome that the table already records."""
    table = load_or_settle(job.catalog, job.ref, job.request.txn)
    if not isinstance(table, Table):
        return table
    if not job.is_dry:
        abort_earlier_uploads(job.request, table)
        if outcome := settled(table, job.request.txn):
            return outcome
    require_mergeable(table)
    require_known_values(table)
    merges_on_read(table)  # refuses a mode that it does not know before the source is read
    if not job.is_dry:
        mark_namespace(job.catalog, job.ref.namespace)
    _refuse_evolution(job)
    return take_changes(job.request, table, job.task.source, job.reporter.note)


def _brought(job: _Job, intake: Intake) -> AbstractContextManager[Intake]:
    return brought(job.request, intake, job.reporter.progress)


def _refuse_evolution(job: _Job) -> None:
    if job.task.adds_columns:
        by_source = job.task.source.unknown_columns is UnknownColumns.ADD
        require_managed(job.ref, "spec.source.unknownColumns" if by_source else "spec.schemaEvolution")


def _tell_left(reporter: Reporter, left: Leaves) -> None:
    unfed = tuple(name for name in left.unfed if name not in left.gone)
    reporter.leave(left.columns, left.total, unfed, left.defaulted)
    reporter.miss(left.gone)
    if left.of_no_row:
        reporter.note(describe_skipped(left.of_no_row))


def _plan_until_settled(job: _Job, intake: Intake, scratch: Scratch) -> tuple[Outcome, Rewrite]:
    """Return the outcome and the rewrite of the changes: Conflicted for a dry run, whose changes are in no table."""
    changes: Changes | None = None
    absent: frozenset[str] = frozenset()
    for number in itertools.count(1):
        table = job.load()
        try:
            with job.reporter.stage("plan"):
                pinned = PinnedTable(table, read_file_set(table))
            schema_id = pinned.files.pinned.schema_id
            if changes is None or changes.schema_id != schema_id or not _still_fits(changes, table):
                if number > 1 and job.task.bad_records is not None:
                    clear_rejects(job.request)
                changes = _accepted(job, _read(job, intake.listing, scratch, pinned, absent))
                _tell_left(job.reporter, changes.leaves)
            outcome, rewrite = _attempt(job, changes, pinned, intake, _Try(scratch, number))
        except RowsAbsent as error:
            changes, absent = None, absent | error.keys
            job.reporter.progress(f"reading the source again: {error}")
            continue
        except (DependencyUnavailable, OSError) as error:
            if number == MAX_PLANS or _head(job.load()) == _head(table):
                raise
            job.reporter.progress(f"planning again: {error}")
            continue
        if not isinstance(outcome, Conflicted) or outcome.reason is not Reason.CONFLICTED or number == MAX_PLANS:
            break
        job.reporter.progress(f"planning again: {outcome.message}")
    return outcome, rewrite


def _still_fits(changes: Changes, table: Table) -> bool:
    """Return whether ``changes`` were read for ``table`` as it is now."""
    return fits(table, changes.columns) and (changes.held is None or changes.held.is_of(table))


def _accepted(job: _Job, changes: Changes) -> Changes:
    """``changes``, whose records that are left out take the place of those that were kept before."""
    left = changes.left_out
    if left.parts:
        changes = replace(changes, left_out=replace(left, path=keep_rejects(job.request, left.parts)))
    return changes


def _head(table: Table) -> int | None:
    return table.metadata.current_snapshot_id


@dataclass(frozen=True)
class _Try:
    """One of the plans of a run. ``scratch``: of all of them."""

    scratch: Scratch
    number: int

    @property
    def token(self) -> str:
        """Return a name that no other plan has, of this run or of another."""
        return f"{self.scratch.name}-{self.number}"


def _attempt(job: _Job, changes: Changes, pinned: PinnedTable, intake: Intake, made: _Try) -> tuple[Outcome, Rewrite]:
    """Prune, rewrite and commit once; a dry run stops before the commit."""
    table, files = pinned.table, pinned.files
    evolved = with_columns(table, changes.columns)
    target = PinnedTable(evolved, files.in_schema(evolved.schema()))
    done: list[Rewrite] = []

    def write(written: WrittenFiles) -> TableCommit:
        done.append(_rewrite(job, changes, target, made, written))
        return _change(job, changes, done[0], files, intake)

    site = CommitSite(catalog=job.catalog, ref=job.ref, ports=job.ports, stage=lambda: job.reporter.stage("commit"))
    with storing(table.location()):
        if job.is_dry:
            rewrite = _rewrite(job, changes, target, made, WrittenFiles(evolved))
            job.reporter.note(f"It was judged on snapshot {_head(table) or 0}.")
            return NOT_COMMITTED, rewrite
        return commit_written(site, evolved, write), done[0]


def _read(
    job: _Job, listing: SourceListing, scratch: Scratch, pinned: PinnedTable, absent: frozenset[str] = frozenset()
) -> Changes:
    job.reporter.progress("reading the source")
    site = SourceSite(
        task=job.task,
        listing=listing,
        scratch=scratch,
        share=job.share,
        memory=HoldsMemory(warehouse=job.request.warehouse),
        rejects=None if job.is_dry else reject_place(job.request, job.task.bad_records),
        absent=absent,
    )
    is_feed = job.task.source.change_format is not None
    try:
        with job.reporter.stage("read"), readable(listing):
            changes = (read_feed_here if is_feed else read_changes_here)(site, pinned.table, pinned.files)
        if changes is not None:
            return changes
    except NotPlainError as error:
        job.reporter.progress(f"reading the source by Spark: {error}")
    spark = job.session()
    warm_workers(spark)
    with job.reporter.stage("read"), readable(listing), task_progress(spark, job.reporter, "reading the source"):
        return (read_feed if is_feed else read_changes)(spark, site, pinned.table, pinned.files)


def _prune(job: _Job, changes: Changes, target: PinnedTable) -> Pruned:
    job.reporter.progress(f"looking for keys of {changes.rows} changes in {len(target.files)} files")
    off, namespace = switched_off(job.task), job.request.warehouse.index_namespace
    with job.reporter.stage("prune"), _search(job, changes) as run:
        site = PruneSite(run=run, off=off, index_namespace=namespace)
        return prune_files(site, changes, target.table, target.files)


@contextmanager
def _search(job: _Job, changes: Changes) -> Iterator[SliceRunner]:
    """Where the funnel looks for keys: one slice per task when the source is large."""
    if job.share.searches(changes.rows):
        yield run_here
        return
    spark = job.session()
    with task_progress(spark, job.reporter, "pruning"):
        yield run_in(InSpark(spark))


def _tell_pruned(job: _Job, changes: Changes, files: FileSet, pruned: Pruned) -> None:
    counts = {"filesTotal": len(files), "filesCandidate": len(pruned.candidates.files), "rowsSource": changes.rows_read}
    job.reporter.learn(counts, pruned.funnel)


def _rewrite(job: _Job, changes: Changes, target: PinnedTable, made: _Try, written: WrittenFiles) -> Rewrite:
    pruned = _prune(job, changes, target)
    _tell_pruned(job, changes, target.files, pruned)
    doing = "matching {} changes in {} of {} files" if job.is_dry else "merging {} changes into {} of {} files"
    doing = doing.format(changes.rows, len(pruned.candidates.files), len(target.files))
    job.reporter.progress(doing)
    with _tasks(job, changes, target, pruned, doing) as (tasks, cores), job.reporter.stage("rewrite"):
        threads = job.request.spark.driver_cores if isinstance(tasks, InProcess) else 1
        if not isinstance(tasks, InProcess):
            changes = replace(changes, slices=made.scratch.shared(changes.slices))
        site = RewriteSite(
            tasks=tasks, cores=cores, token=made.token, written=written, is_dry=job.is_dry, threads=threads
        )
        rewrite = rewrite_files(site, changes, target, pruned)
    verify_slices(changes.slices)
    return rewrite


@contextmanager
def _tasks(job: _Job, changes: Changes, target: PinnedTable, pruned: Pruned, doing: str) -> Iterator[tuple[Tasks, int]]:
    """Where the rewrite's tasks run, and on how many cores."""
    sizes = job.request.spark
    size = int(target.files.files["size"].to_numpy()[pruned.candidates.files].sum())
    source = sum(piece.held for piece in changes.slices)
    if merges_here(job.request, job.share, rows=changes.rows, held=source, size=size):
        held = held_bytes(changes, target, pruned.candidates)
        workers = rewriting_workers(job.request, on_read=merges_on_read(target.table), held=held)
        yield InProcess(workers), workers
        return
    spark = job.session()
    tasks = InSpark(spark)
    with task_progress(spark, job.reporter, doing):
        yield tasks, sizes.instances * sizes.executor_cores or tasks.parallelism


def _change(job: _Job, changes: Changes, rewrite: Rewrite, files: FileSet, intake: Intake) -> TableCommit:
    job.reporter.learn(encode(rewrite.counts), rewrite.funnel)
    job.reporter.progress("committing")
    left = changes.left_out
    return TableCommit(
        pinned=files.pinned,
        added=rewrite.added,
        removed=rewrite.removed,
        marked=rewrite.marked,
        deletes=rewrite.deletes,
        replaced=rewrite.replaced,
        read=rewrite.read,
        columns=changes.columns,
        properties=changes.properties,
        txn=job.request.txn,
        record=replace(source_record(intake, encode(rewrite.counts), job.task.source), rejected_path=left.path),
        summary={
            **intake.summary,
            **_summary(rewrite, job.reporter.stages_ms),
            **unused_summary(changes.leaves.columns, changes.leaves.total),
            **defaulted_summary(changes.leaves.defaulted),
            **rejected_summary(left.message, left.path),
            **gone_summary(changes.leaves.gone),
        },
        guard=lambda table, added: _guard(changes, table, added),
        unique_source=is_unique(job.task.source),
        ledger=HoldsUpdate(held=changes.held, rows=left.rows, other=intake.ledger) if changes.held else intake.ledger,
        is_partial=bool(left.rejected),
    )


def _guard(changes: Changes, table: Table, added: tuple[DataFile, ...]) -> str | None:
    files = read_file_set(table).in_schema(with_columns(table, changes.columns).schema())
    path = touched_by_keys(changes, table, files, [file.file_path for file in added])
    return f"another writer added rows that this merge concerns in {path}" if path else None


def _summary(rewrite: Rewrite, stages_ms: Mapping[str, int]) -> Mapping[str, str]:
    """Return the merge's properties in the snapshot; stage times up to the commit."""
    counts = {f"{_SUMMARY}{name}": str(value) for name, value in encode(rewrite.counts).items()}
    summary = {
        FUNNEL_SUMMARY: funnel_summary(rewrite.funnel),
        f"{_SUMMARY}false-positives": false_positive_summary(rewrite.funnel),
        f"{_SUMMARY}left-out": left_out_summary(rewrite.funnel),
        f"{_SUMMARY}stages-ms": ", ".join(f"{name} {spent}" for name, spent in stages_ms.items()),
    }
    return {name: value for name, value in summary.items() if value} | counts
