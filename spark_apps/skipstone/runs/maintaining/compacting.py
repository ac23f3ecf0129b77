"""The step Compaction: due files are rewritten, some groups to a commit, until nothing is due.

A step of the maintain run. What another writer changed meanwhile is left out of a commit and planned again a few times.
Indexes that are kept inline learn of each commit before the next one. Must not judge which files are due.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pyiceberg.table import Table
from skipstone_core.contract.reports import StepReport
from skipstone_core.errors import DependencyUnavailable, OutcomeUnknown, UserError
from skipstone_core.history.commits import Committed, Conflicted, Unknown
from skipstone_core.maintenance.compaction import RewriteGroup, plan_commits
from skipstone_core.maintenance.policies import CompactionPolicy, MaintenanceStep
from skipstone_core.merging.merges import pack_by_bytes
from skipstone_core.reasons import Reason

from skipstone.files.reader import describe_files
from skipstone.files.writer import WriteSpec, to_data_files, write_spec
from skipstone.kernels.compacting import CompactWork, GroupProblem, GroupResult, GroupWork, compact_groups
from skipstone.runs.indexing.inlining import InlineSite, enter_commit
from skipstone.runs.maintaining.site import MaintainSite
from skipstone.runs.reporting.progress import task_progress
from skipstone.runs.settled import abort_earlier_uploads
from skipstone.session import spark_session
from skipstone.tables.arrow import with_lineage
from skipstone.tables.committing.changes import TableCommit
from skipstone.tables.committing.writing import (
    CommitSite,
    RewriteOutcome,
    RewrittenPart,
    WrittenFiles,
    commit_parts,
    files_of,
)
from skipstone.tables.filesets import PinnedTable, read_file_set
from skipstone.tables.shaping.formats import has_lineage, require_mergeable
from skipstone.tables.shaping.writeproperties import require_known_values
from skipstone.tables.upkeep.layout import due_groups, sort_order_of, superfluous_deletes
from skipstone.tasks.failures import caught, opened, storing
from skipstone.tasks.runner import InProcess, InSpark, Tasks
from skipstone.tasks.share import compacts_here

#: Rounds in which another writer got in the way of something; what is due then is left to the next run.
MAX_CONFLICTS = 3
#: Sorted groups have so many target files at most: the rows of one are sorted by one task.
SORTED_TARGETS = 4
#: A new file may become larger than planned before another is begun.
_SLACK = 2
_SUMMARY = "skipstone.compaction."


@dataclass
class _Tally:
    """The tally of the step. ``left``: paths of files that this run leaves alone: it wrote them, or failed on them."""

    counts: Counter[str] = field(default_factory=Counter)
    left: set[str] = field(default_factory=set)
    problems: list[GroupProblem] = field(default_factory=list)
    conflicts: int = 0
    conflict: str = ""

    def meet(self, conflict: str, groups: int = 1) -> None:
        """Another writer got in the way of some groups."""
        self.conflicts += 1
        self.conflict = conflict
        self.counts["conflicts"] += groups

    def report(self, *, is_done: bool, reason: Reason, message: str = "") -> StepReport:
        """The report of the step."""
        return StepReport(
            step=MaintenanceStep.COMPACTION,
            is_done=is_done,
            reason=reason,
            message=message,
            counts={name: self.counts[name] for name in _COUNTS},
        )


_COUNTS = (
    "filesRewritten",
    "filesWritten",
    "bytesRewritten",
    "bytesWritten",
    "rowsDropped",
    "commits",
    "conflicts",
)


@dataclass(frozen=True, kw_only=True)
class _Round:
    """One commit's worth: ``groups`` of ``pinned``, all of the table's spec or none."""

    pinned: PinnedTable
    groups: tuple[RewriteGroup, ...]
    policy: CompactionPolicy
    token: str
    are_kept: bool

    @property
    def size(self) -> int:
        """Bytes that it reads."""
        return sum(group.size for group in self.groups)


def compact(site: MaintainSite) -> StepReport:
    """Rewrite what is due. Raises BadSpec, DependencyUnavailable, OutcomeUnknown, OSError."""
    policy, tally = site.task.policy.compaction, _Tally()
    if policy is None:
        return tally.report(is_done=True, reason=Reason.IDLE)
    abort_earlier_uploads(site.request, site.load())
    token = f"{site.request.run_id}-{secrets.token_hex(4)}"
    while tally.conflicts <= MAX_CONFLICTS:
        work = _plan(site, policy, tally, f"{token}-{tally.counts['commits'] + tally.conflicts}")
        if work is None:
            return _ended(tally)
        if site.gives_way():
            return tally.report(is_done=False, reason=Reason.GIVING_WAY, message="The run gave way to another.")
        _do(site, work, tally)
    message = f"Other writers kept changing the files to be rewritten; the next run tries again. {tally.conflict}"
    return tally.report(is_done=False, reason=Reason.CONFLICTED, message=message)


def _ended(tally: _Tally) -> StepReport:
    if tally.problems:
        first = tally.problems[0]
        others = f" (and {len(tally.problems) - 1} other groups)" if len(tally.problems) > 1 else ""
        return tally.report(is_done=False, reason=first.reason, message=f"{first.message}{others}")
    return tally.report(is_done=True, reason=Reason.COMMITTED if tally.counts["commits"] else Reason.IDLE)


def _plan(site: MaintainSite, policy: CompactionPolicy, tally: _Tally, token: str) -> _Round | None:
    """Return the next round; None when nothing is due."""
    table = site.load()
    require_mergeable(table)
    require_known_values(table)
    files = read_file_set(table)
    most = min(site.task.max_commit_bytes, SORTED_TARGETS * policy.target_file_size)
    paths = files.files["path"]
    left = {row for row in range(len(files)) if paths[row].as_py() in tally.left} if tally.left else set()
    due = [group for group in due_groups(table, files, policy, most) if left.isdisjoint(group.file_ids)]
    if not due:
        return None
    specs = files.files["spec_id"].to_numpy()
    kept = [group for group in due if (specs[list(group.file_ids)] == table.spec().spec_id).all()]
    first = plan_commits(kept or due, site.task.max_commit_bytes)[0]
    return _Round(pinned=PinnedTable(table, files), groups=first, policy=policy, token=token, are_kept=bool(kept))


def _do(site: MaintainSite, work: _Round, tally: _Tally) -> None:
    """Write and commit one round."""
    count = sum(len(group.file_ids) for group in work.groups)
    site.reporter.progress(f"compacting {count} files of {work.size} bytes", dict(tally.counts))
    commit = CommitSite(
        catalog=site.catalog, ref=site.ref, ports=site.ports, stage=lambda: site.reporter.stage("commit")
    )
    table = work.pinned.table
    with storing(table.location()):
        result = commit_parts(
            commit,
            table,
            lambda written: _write(site, work, tally, written),
            lambda parts: _change(work, parts),
        )
    _take(site, result, tally)


def _take(site: MaintainSite, result: RewriteOutcome, tally: _Tally) -> None:
    match result.outcome:
        case Unknown(message=message):
            raise OutcomeUnknown(message)
        case Committed():
            _count(tally, result.committed)
            enter_inline(site, result.outcome)
        case Conflicted(reason=reason, message=message) if reason is not Reason.CONFLICTED:
            raise DependencyUnavailable(reason, message)
    if result.dropped:
        tally.meet(result.conflict, len(result.dropped))


def _count(tally: _Tally, parts: Sequence[RewrittenPart]) -> None:
    tally.left |= {file.file_path for file in files_of(parts)[1]}
    tally.counts.update(_counts_of(parts), commits=1)


def _counts_of(parts: Sequence[RewrittenPart]) -> dict[str, int]:
    removed, added = files_of(parts)
    return {
        "filesRewritten": len(removed),
        "filesWritten": len(added),
        "bytesRewritten": sum(file.file_size_in_bytes for file in removed),
        "bytesWritten": sum(file.file_size_in_bytes for file in added),
        "rowsDropped": sum(file.record_count for file in removed) - sum(file.record_count for file in added),
    }


def _change(work: _Round, parts: Sequence[RewrittenPart]) -> TableCommit:
    files = work.pinned.files
    removed, added = files_of(parts)
    return TableCommit(
        pinned=files.pinned,
        added=added,
        removed=removed,
        replaced=superfluous_deletes(work.pinned.table, files, {file.file_path for file in removed}),
        summary={f"{_SUMMARY}{name}": str(count) for name, count in _counts_of(parts).items()},
        is_rewrite=True,
        data_sequence=files.sequence_number if work.are_kept else None,
    )


def _write(site: MaintainSite, work: _Round, tally: _Tally, written: WrittenFiles) -> list[RewrittenPart]:
    table, files = work.pinned.table, work.pinned.files
    groups = dict(enumerate(work.groups))
    described = list(_described(work, tally))
    with _tasks(site, work) as tasks, site.reporter.stage("rewrite"):
        bins = pack_by_bytes([groups[group.number].size for group in described], tasks.parallelism)
        spec = _write_spec(table, work)
        tasks_of = [CompactWork(write=spec, groups=tuple(described[i] for i in members)) for members in bins]
        taken = _Answers(written)
        tasks.run(_compact_task, tasks_of, taken.take)
    parts = []
    for result in taken.results():
        if result.problem and result.problem.vanished and _has_changed(site, work):
            tally.meet(result.problem.message)  # the files of the head are planned again
        elif result.problem:
            _give_up(work, groups[result.number], result.problem, tally)
        else:
            removed = tuple(files.data_file(file_id) for file_id in groups[result.number].file_ids)
            parts.append(RewrittenPart(removed=removed, added=tuple(to_data_files(result.written, table))))
    return parts


def _has_changed(site: MaintainSite, work: _Round) -> bool:
    return site.load().metadata.current_snapshot_id != work.pinned.table.metadata.current_snapshot_id


def _described(work: _Round, tally: _Tally) -> Iterator[GroupWork]:
    table, files = work.pinned.table, work.pinned.files
    if has_lineage(table):
        files = files.in_schema(with_lineage(files.schema))
    for number, group in enumerate(work.groups):
        try:
            described = describe_files(table, files, group.file_ids)
        except UserError as error:
            _give_up(work, group, GroupProblem(error.reason, str(error)), tally)
            continue
        yield GroupWork(number=number, files=tuple(described), outputs=group.outputs, is_kept=work.are_kept)


def _give_up(work: _Round, group: RewriteGroup, problem: GroupProblem, tally: _Tally) -> None:
    """Leave the files of a group alone in this run."""
    paths = work.pinned.files.files["path"]
    tally.left |= {paths[file_id].as_py() for file_id in group.file_ids}
    tally.problems.append(problem)


def _write_spec(table: Table, work: _Round) -> WriteSpec:
    return replace(
        write_spec(table, work.token, lineage=has_lineage(table)),
        target_file_bytes=_SLACK * work.policy.target_file_size,
        sort_json=sort_order_of(table, work.policy).model_dump_json(),
    )


@dataclass
class _Answers:
    """The answers of tasks. Written files are noted in ``written`` at once, for other tasks may fail."""

    written: WrittenFiles
    _done: list[GroupResult] = field(default_factory=list)
    _failed: list[UserError] = field(default_factory=list)

    def take(self, answer: bytes) -> None:
        """The answer of one task."""
        try:
            answers = opened(answer)
        except UserError as error:
            self._failed.append(error)
            return
        for result in answers if isinstance(answers, tuple) else ():
            self.written.note(to_data_files(result.written, self.written.table))
            self._done.append(result)

    def results(self) -> list[GroupResult]:
        """All results; raises the first user's error that a task met."""
        if self._failed:
            raise self._failed[0]
        return sorted(self._done, key=lambda result: result.number)


def _compact_task(work: CompactWork, task: str) -> bytes:
    return caught(lambda: compact_groups(work, f"compact-{task}"), work.write.location)


@contextmanager
def _tasks(site: MaintainSite, work: _Round) -> Iterator[Tasks]:
    """Where the kernels run."""
    if compacts_here(site.request, site.share, work.size):
        yield InProcess(site.request.spark.driver_cores)
        return
    spark = spark_session(site.request)
    with task_progress(spark, site.reporter, f"compacting {work.size} bytes"):
        yield InSpark(spark)


def enter_inline(site: MaintainSite, outcome: Committed) -> None:
    """Enter the files of a commit into the indexes that are kept inline."""
    inline = InlineSite(
        request=site.request, reporter=site.reporter, catalog=site.catalog, share=site.share, ports=site.ports
    )
    enter_commit(inline, outcome)
