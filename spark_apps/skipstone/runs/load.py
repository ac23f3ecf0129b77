"""The load run: files in, one segment out, committed at most once.

Called by ``apps/load.py`` through ``run_app``. Orders the steps; looks for its transaction before it starts a
JVM, and starts none for a small load of plain files.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.types import NestedField
from skipstone_core.contract.badrecords import BadRecordPolicy
from skipstone_core.contract.columns import UnknownColumns
from skipstone_core.contract.reports import JobReport
from skipstone_core.contract.requests import JobRequest, LoadMode, LoadTask, TableRef
from skipstone_core.errors import BadData, BadSpec, SkipstoneError, UserError
from skipstone_core.history.commits import Conflicted, Outcome
from skipstone_core.merging.unused import MAX_UNUSED, Names
from skipstone_core.reasons import Reason

from skipstone.files.writer import to_data_files, write_spec
from skipstone.runs.indexing.inlining import InlineSite, enter_commit
from skipstone.runs.intake import (
    NOTHING,
    Intake,
    brought,
    is_unique,
    nothing_new,
    require_managed,
    source_record,
    take_source,
)
from skipstone.runs.load_tasks import (
    ANSWER_DDL,
    LoadSpec,
    TaskAnswer,
    load_here,
    load_kernel,
    opened_answer,
)
from skipstone.runs.registering.intake import NOTHING_TO_REGISTER, take_files
from skipstone.runs.registering.register import plan_registration
from skipstone.runs.reporting.leftout import recall_unused, unused_summary
from skipstone.runs.reporting.progress import task_progress
from skipstone.runs.reporting.report import Reporter
from skipstone.runs.reporting.states import report_state, reported_with
from skipstone.runs.settled import abort_earlier_uploads, forget_committed, load_or_settle, reported_once, settled
from skipstone.runs.workers import warm_workers
from skipstone.session import spark_session
from skipstone.sources.columns import SourceColumn, table_names
from skipstone.sources.failures import readable
from skipstone.sources.listing import SourceListing, require_unchanged
from skipstone.sources.plain import NotPlainError, PlainLimits, find_plain_rows
from skipstone.sources.reading import SourceRead, read_table_rows
from skipstone.sources.rejects import discard_rejects, keep_rejects, reject_place
from skipstone.sources.unused import merged_counts, unused_columns
from skipstone.tables.arrow import arrow_type_of
from skipstone.tables.catalogs import load_table, open_catalog
from skipstone.tables.committing.commits import CommitPorts, TableCommit
from skipstone.tables.committing.writing import CommitSite, WrittenFiles, commit_written
from skipstone.tables.filesets import pin_table
from skipstone.tables.namespaces import mark_namespace
from skipstone.tables.shaping.evolution import plan_columns, with_columns
from skipstone.tables.shaping.formats import require_mergeable
from skipstone.tables.shaping.writeproperties import require_known_values
from skipstone.tasks.failures import storage_failure
from skipstone.tasks.mapping import map_batches
from skipstone.tasks.share import USUAL_SHARE, DriverShare, driver_share

#: How often a load is written again when the table's schema or partitioning changed under it.
MAX_PLANS = 3
#: Source bytes that one task takes on when there are more than cores.
TASK_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class _Job:
    """The job of a run. ``token`` is this process's own."""

    request: JobRequest
    reporter: Reporter
    catalog: Catalog
    ref: TableRef
    task: LoadTask
    token: str
    ports: CommitPorts | None
    share: DriverShare

    @property
    def registers(self) -> bool:
        """Return whether the files of the source become files of the table."""
        return self.task.mode is LoadMode.REGISTER

    def end(self, outcome: Outcome, counts: Mapping[str, int]) -> JobReport:
        """The report of ``outcome`` with the segment it made and the state of the table, once its indexes follow."""
        recall_unused(self.catalog, self.ref, outcome, self.reporter)
        enter_commit(self._inline, outcome)
        forget_committed(self.request, outcome)
        return reported_with(self.reporter.judge(outcome, counts), self._look)

    @property
    def _inline(self) -> InlineSite:
        return InlineSite(
            request=self.request, reporter=self.reporter, catalog=self.catalog, share=self.share, ports=self.ports
        )

    def _look(self, report: JobReport) -> JobReport:
        table = load_table(self.catalog, self.ref.on_main)
        snapshot = table.snapshot_by_id(int(report.snapshot_id)) if report.snapshot_id not in ("", "0") else None
        segment = {"segment": snapshot.sequence_number} if snapshot and snapshot.sequence_number else {}
        state = report_state(self.catalog, self.request.warehouse, self.ref, self.request.indexes)
        return replace(report, counts={**report.counts, **segment}, table_states=(state,))


@dataclass(frozen=True, kw_only=True)
class _Written:
    """The files that the tasks of one plan wrote. ``columns``: fields that the load adds to the table."""

    added: tuple[DataFile, ...]
    answers: tuple[TaskAnswer, ...]
    names: Names
    columns: tuple[NestedField, ...] = ()

    @property
    def read(self) -> int:
        """Rows of the source."""
        return sum(answer.read for answer in self.answers)

    @property
    def loaded(self) -> int:
        """Rows that are in files."""
        return sum(file.record_count for file in self.added)

    @property
    def rejected(self) -> int:
        """Rows left out."""
        return sum(answer.rejected for answer in self.answers)

    @property
    def reject_parts(self) -> list[str]:
        """Files of rows that were left out, in the order of the tasks."""
        return [answer.reject_part for answer in self.answers if answer.reject_part]

    @property
    def counts(self) -> dict[str, int]:
        """As reports and transaction records carry them."""
        return {"rowsRead": self.read, "rowsLoaded": self.loaded, "rowsRejected": self.rejected}


def run_load(
    request: JobRequest,
    reporter: Reporter,
    ports: CommitPorts | None = None,
    share: DriverShare = USUAL_SHARE,
) -> JobReport:
    """Append the rows of ``request.load`` to ``request.table``, once. Raises UserError; ``ports`` are for tests."""
    return reported_once(request, lambda: _run(request, reporter, ports, share))


def _run(request: JobRequest, reporter: Reporter, ports: CommitPorts | None, share: DriverShare) -> JobReport:
    if request.load is None or request.table is None:
        raise BadSpec(Reason.INVALID_SPEC, "a load needs a table and a load task", field="request")
    job = _Job(
        request=request,
        reporter=reporter,
        catalog=open_catalog(request.warehouse),
        ref=request.table,
        task=request.load,
        token=secrets.token_hex(4),
        ports=ports,
        share=driver_share(request.spark, share),
    )
    table = load_or_settle(job.catalog, job.ref, request.txn)
    if not isinstance(table, Table):
        return job.end(table, {})
    abort_earlier_uploads(request, table)
    if outcome := settled(table, request.txn):
        return job.end(outcome, {})
    require_mergeable(table)
    require_known_values(table)
    mark_namespace(job.catalog, job.ref.namespace)
    if job.task.source.unknown_columns is UnknownColumns.ADD:
        require_managed(job.ref, "spec.source.unknownColumns")
    take = take_files if job.registers else take_source
    intake = take(request, table, job.task.source, reporter.note)
    if intake is NOTHING:
        message = NOTHING_TO_REGISTER if job.registers else nothing_new(job.task.source)
        return replace(job.end(NOTHING, {}), message=message)
    if not isinstance(intake, Intake):
        return job.end(intake, {})
    with brought(request, intake, reporter.progress) as files:
        outcome, counts = _load_until_settled(job, files)
    return job.end(outcome, counts)


def _load_until_settled(job: _Job, intake: Intake) -> tuple[Outcome, Mapping[str, int]]:
    outcome: Outcome = Conflicted(Reason.CONFLICTED, "Others kept changing the table's schema or partitioning.")
    counts: Mapping[str, int] = {}
    for number in range(MAX_PLANS):
        outcome, counts = _attempt(job, intake, f"{job.token}{number}")
        if not isinstance(outcome, Conflicted) or outcome.reason is not Reason.CONFLICTED:
            break
        job.reporter.progress(f"loading again: {outcome.message}")
    return outcome, counts


def _attempt(job: _Job, intake: Intake, token: str) -> tuple[Outcome, Mapping[str, int]]:
    """Write and commit once."""
    table = load_table(job.catalog, job.ref)
    counts: dict[str, int] = {}

    def register(_: WrittenFiles) -> TableCommit:
        change, registered = plan_registration(job.request, job.reporter, table, job.task.source, intake)
        counts.update(registered)
        return change

    def write(files: WrittenFiles) -> TableCommit:
        written = _write(job, intake.listing, files, token)
        counts.update(written.counts)
        return _change(job, intake, table, written)

    site = CommitSite(catalog=job.catalog, ref=job.ref, ports=job.ports, stage=lambda: job.reporter.stage("commit"))
    return commit_written(site, table, register if job.registers else write), counts


def _write(job: _Job, listing: SourceListing, files: WrittenFiles, token: str) -> _Written:
    """Read the source and write its rows. Raises BadData when they may not be committed."""
    table = files.table
    job.reporter.progress(f"reading {len(listing.files)} files, {listing.total_bytes} bytes")
    plan = _Plan(job, listing, table, token)
    made = _write_here(plan) or _write_in_spark(plan)
    rows = [row for answer in made.answers for row in answer.written]
    added = files.note(to_data_files(rows, with_columns(table, made.columns)))
    written = _Written(added=added, answers=made.answers, names=made.names, columns=made.columns)
    try:
        require_unchanged(listing)
        _require_allowed(job.task, written)
        _require_all(written)
    except UserError:
        discard_rejects(job.request, written.reject_parts)
        raise
    return written


@dataclass(frozen=True)
class _Plan:
    """The plan of one attempt: source and target."""

    job: _Job
    listing: SourceListing
    table: Table
    token: str

    def columns(self, read: Sequence[SourceColumn]) -> tuple[NestedField, ...]:
        """The fields that the table lacks, of the columns that are ``read`` for it."""
        known = {field.name for field in self.table.schema().fields}
        return plan_columns(self.table, {column.name: column.type for column in read if column.name not in known})

    def spec(self, columns: Sequence[NestedField], counted: tuple[str, ...] = ()) -> LoadSpec:
        """Return the settings of tasks that write into a table that gets ``columns``."""
        job = self.job
        return LoadSpec(
            write=write_spec(with_columns(self.table, columns), job.request.run_id),
            policy=job.task.bad_records.policy,
            token=self.token,
            rejects=reject_place(job.request, job.task.bad_records),
            counted=counted,
        )


@dataclass(frozen=True)
class _Made:
    """The answers of tasks on a source with these ``names``, and the fields that the load adds."""

    answers: tuple[TaskAnswer, ...]
    names: Names
    columns: tuple[NestedField, ...]


def _write_here(plan: _Plan) -> _Made | None:
    """Write the rows in this process; None when the source is not small and plain, or not good throughout."""
    job, listing, table = plan.job, plan.listing, plan.table
    with job.reporter.stage("write"), readable(listing):
        limits = PlainLimits(job.share.rows, job.share.source_bytes, job.share.decoded_bytes)
        try:
            source = find_plain_rows(listing, job.task.source, table.schema(), limits, job.task.time_zone)
            if source is None or not _is_zone(job.task.time_zone):
                return None
            names = table_names(job.task.source, table.schema(), source.groups)
            schema = pa.schema([(column.name, arrow_type_of(column.type)) for column in source.columns])
            columns = plan.columns(source.columns)
            values = source.values(listing, names.unused[:MAX_UNUSED])
            answer = load_here(plan.spec(columns), source.batches(schema))
            _tell(job, names, values)
            return _Made((answer,), names, columns)
        except NotPlainError as error:
            job.reporter.progress(f"reading the source by Spark: {error}")
            return None
        except OSError as error:
            if failure := storage_failure(error, table.location()):
                raise failure from error
            raise


def _is_zone(name: str) -> bool:
    """Return whether the time zone, which plain sources do not need, is known; Spark explains a wrong one."""
    try:
        return bool(ZoneInfo(name).key)
    except (KeyError, ValueError, OSError):
        return False


def _write_in_spark(plan: _Plan) -> _Made:
    job, listing, table = plan.job, plan.listing, plan.table
    with job.reporter.stage("session"):
        spark = spark_session(job.request)
    warm_workers(spark)
    with job.reporter.stage("write"), readable(listing):
        read = read_table_rows(spark, listing, job.task.source, table.schema(), job.task.time_zone)
        frame = read.frame.coalesce(_task_count(job, read))
        columns = plan.columns(read.columns)
        kernel = load_kernel(plan.spec(columns, read.counted))
        with task_progress(spark, job.reporter, "loading"):
            rows = map_batches(frame, kernel, ANSWER_DDL).collect()
    answers = sorted((opened_answer(bytes(row.answer)) for row in rows), key=lambda answer: answer.partition)
    names = table_names(job.task.source, table.schema(), read.groups)
    _tell(
        job, names, merged_counts([read.known, dict.fromkeys(read.counted, 0), *(answer.unused for answer in answers)])
    )
    return _Made(tuple(answers), names, columns)


def _tell(job: _Job, names: Names, values: Mapping[str, int]) -> None:
    """Let the report say what nothing uses, and what of the table nothing feeds."""
    columns = unused_columns(names.unused[:MAX_UNUSED], values)
    job.reporter.leave(columns, len(names.unused), names.unfed)


def _task_count(job: _Job, read: SourceRead) -> int:
    """One task per core, more when each would have too much: starting one costs more than a small file does."""
    sizes = job.request.spark
    cores = sizes.instances * sizes.executor_cores or read.frame.sparkSession.sparkContext.defaultParallelism
    return max(1, cores, -(-read.listing.total_bytes // TASK_BYTES))


def _require_allowed(task: LoadTask, written: _Written) -> None:
    """Raise BadData (BAD_RECORDS) when more rows do not fit than ``badRecords`` allows."""
    allowed = 0 if task.bad_records.policy is BadRecordPolicy.FAIL else task.bad_records.max_count
    if allowed is None or written.rejected <= allowed:
        return
    raise BadData(
        Reason.BAD_RECORDS,
        f"{written.rejected} rows do not fit and {allowed} are allowed; {_first_examples(written.answers)}. Fix the "
        "rows, or leave them out: the policy Redirect, with a large enough maxCount, writes them to "
        ".skipstone/rejected of the Warehouse",
        field="spec.badRecords",
    )


def _require_all(written: _Written) -> None:
    """Refuse a source whose rows feed no column, and prove that no row was lost on the way."""
    if written.loaded and not any(file.names for file in written.names.files):
        raise BadData(
            Reason.SOURCE_COLUMNS_UNUSED,
            f"the {written.loaded} rows of the source have no column, so they would be rows of nulls: correct the "
            "files, or source.format",
            field="spec.source",
        )
    if written.read != written.loaded + written.rejected:
        lost = f"{written.read} rows were read, {written.loaded} written and {written.rejected} left out"
        raise SkipstoneError(f"{lost}: nothing is committed, because a load must account for every row")


def _first_examples(answers: Sequence[TaskAnswer], limit: int = 3) -> str:
    examples = [example for answer in answers for example in answer.examples][:limit]
    return "; ".join(f"'{example.file}': {example.reason}" for example in dict.fromkeys(examples))


def _change(job: _Job, intake: Intake, table: Table, written: _Written) -> TableCommit:
    job.reporter.progress("committing", written.counts)
    report = job.reporter.base()
    rejected_path = keep_rejects(job.request, written.reject_parts) if written.reject_parts else None
    return TableCommit(
        pinned=pin_table(table),
        added=written.added,
        txn=job.request.txn,
        record=replace(source_record(intake, written.counts), rejected_path=rejected_path),
        summary={
            **intake.summary,
            **{f"skipstone.load.{name}": str(value) for name, value in written.counts.items()},
            **unused_summary(report.unused_columns, report.unused_total),
        },
        columns=written.columns,
        unique_source=is_unique(job.task.source),
        ledger=intake.ledger,
        is_partial=written.rejected > 0,
    )
