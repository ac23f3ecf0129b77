"""The step ResolveEqualityDeletes: rows that equality deletes take are deleted by position, and data files stay.

A step of the maintain run. It resolves the equality deletes that it saw at its start, some to a commit, and leaves
those that others add meanwhile. What another writer changes is planned again; rows that were rows are not looked for
again then. Must not find rows by itself: an index does, or the kernel that scans key columns.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from skipstone_core.contract.reports import StepReport
from skipstone_core.errors import DependencyUnavailable, OutcomeUnknown, UserError
from skipstone_core.history.commits import Committed, Conflicted, Outcome, Unknown
from skipstone_core.ids import RESOLVED_SUMMARY
from skipstone_core.maintenance.policies import MaintenanceStep
from skipstone_core.reasons import Reason

from skipstone.runs.maintaining.deletedrows import KnownRows, SearchSite, find_deleted_rows
from skipstone.runs.maintaining.site import MaintainSite
from skipstone.runs.maintaining.vectors import Marking, mark_rows
from skipstone.runs.settled import abort_earlier_uploads
from skipstone.tables.committing.changes import TableCommit
from skipstone.tables.committing.writing import CommitSite, WrittenFiles, commit_written
from skipstone.tables.deletes import Delete
from skipstone.tables.filesets import PinnedTable, read_file_set
from skipstone.tables.shaping.formats import require_mergeable
from skipstone.tables.upkeep.equality import Unresolvable, equality_deletes, first_of, split_resolvable
from skipstone.tasks.failures import storage_failure

#: Rounds, one after the other, in which another writer got in the way; what is left then is left to the next run.
MAX_CONFLICTS = 5
#: Rows of delete files that one commit resolves: their keys are in memory together.
MAX_KEYS = 4_000_000
_COUNTS = (
    "equalityDeletesResolved",
    "filesMarked",
    "rowsDeleted",
    "filesScanned",
    "bytesScanned",
    "filesByIndex",
    "bytesWritten",
    "commits",
    "conflicts",
)


@dataclass
class _Tally:
    """The tally of the step. ``seen``: paths of the equality deletes that were there at its start.

    ``rows``: rows of ``batch``, the deletes that are resolved together, for the next plan if this one is void.
    """

    counts: Counter[str] = field(default_factory=Counter)
    seen: frozenset[str] | None = None
    batch: frozenset[str] = frozenset()
    rows: KnownRows = field(default_factory=KnownRows)
    others: list[Unresolvable] = field(default_factory=list)
    in_a_row: int = 0
    conflict: str = ""

    def known_rows_of(self, deletes: Collection[Delete]) -> KnownRows:
        """The rows that are known of a batch of deletes."""
        paths = frozenset(delete.file.file_path for delete in deletes)
        if paths != self.batch:
            self.batch, self.rows = paths, KnownRows()
        return self.rows

    def meet(self, conflict: str) -> None:
        """Another writer got in the way."""
        self.in_a_row += 1
        self.conflict = conflict
        self.counts["conflicts"] += 1

    def report(self, *, is_done: bool, reason: Reason, message: str = "") -> StepReport:
        """The report of the step."""
        return StepReport(
            step=MaintenanceStep.RESOLVE_EQUALITY_DELETES,
            is_done=is_done,
            reason=reason,
            message=message,
            counts={name: self.counts[name] for name in _COUNTS},
        )


@dataclass(frozen=True)
class _Round:
    """One commit's worth: equality deletes of ``pinned`` that are resolved together."""

    pinned: PinnedTable
    deletes: tuple[Delete, ...]
    token: str


def resolve(site: MaintainSite) -> StepReport:
    """Resolve what was there at the start. Raises BadSpec, BadData, DependencyUnavailable, OutcomeUnknown, OSError."""
    tally = _Tally()
    if site.task.policy.equality_deletes is None:
        return tally.report(is_done=True, reason=Reason.IDLE)
    abort_earlier_uploads(site.request, site.load())
    token = f"{site.request.run_id}-{secrets.token_hex(4)}"
    while tally.in_a_row <= MAX_CONFLICTS:
        work = _plan(site, tally, f"{token}-{tally.counts['commits'] + tally.counts['conflicts']}")
        if work is None:
            return _ended(tally)
        if site.gives_way():
            return tally.report(is_done=False, reason=Reason.GIVING_WAY, message="The run gave way to another.")
        _do(site, work, tally)
    message = f"Other writers kept changing the data files; the next run tries again. {tally.conflict}"
    return tally.report(is_done=False, reason=Reason.CONFLICTED, message=message)


def _ended(tally: _Tally) -> StepReport:
    if tally.others:
        more = f" (and {len(tally.others) - 1} other files)" if len(tally.others) > 1 else ""
        message = f"{tally.others[0].message}{more}"
        return tally.report(is_done=False, reason=Reason.DELETES_UNSUPPORTED, message=message)
    return tally.report(is_done=True, reason=Reason.COMMITTED if tally.counts["commits"] else Reason.IDLE)


def _plan(site: MaintainSite, tally: _Tally, token: str) -> _Round | None:
    """Return the next round; None when no equality delete is left that can be resolved."""
    table = site.load()
    require_mergeable(table)
    files = read_file_set(table)
    live = equality_deletes(files)
    if tally.seen is None:
        tally.seen = frozenset(delete.file.file_path for delete in live)
    known, tally.others = split_resolvable(table, (delete for delete in live if delete.file.file_path in tally.seen))
    return _Round(PinnedTable(table, files), first_of(known, MAX_KEYS), token) if known else None


def _do(site: MaintainSite, work: _Round, tally: _Tally) -> None:
    """Find rows, write and commit one round."""
    table = work.pinned.table
    site.reporter.progress(f"resolving {len(work.deletes)} equality deletes", dict(tally.counts))
    commit = CommitSite(
        catalog=site.catalog, ref=site.ref, ports=site.ports, stage=lambda: site.reporter.stage("commit")
    )
    marking = Marking()
    try:
        outcome = commit_written(commit, table, lambda written: _change(site, work, tally, marking, written))
    except OSError as error:
        if failure := storage_failure(error, table.location()):
            _raise_unless_changed(site, work, tally, failure)
            return
        raise
    except UserError as error:
        _raise_unless_changed(site, work, tally, error)
        return
    _take(work, tally, marking, outcome)


def _raise_unless_changed(site: MaintainSite, work: _Round, tally: _Tally, error: UserError) -> None:
    """Plan again where another writer may have taken away what could not be read."""
    if site.load().metadata.current_snapshot_id == work.pinned.table.metadata.current_snapshot_id:
        raise error
    tally.meet(str(error))


def _take(work: _Round, tally: _Tally, marking: Marking, outcome: Outcome) -> None:
    match outcome:
        case Unknown(message=message):
            raise OutcomeUnknown(message)
        case Committed():
            tally.counts.update(_counts_of(work, marking), commits=1)
            tally.in_a_row = 0
        case Conflicted(reason=reason, message=message) if reason is not Reason.CONFLICTED:
            raise DependencyUnavailable(reason, message)
        case Conflicted(message=message):
            tally.meet(message)


def _counts_of(work: _Round, marking: Marking) -> dict[str, int]:
    return {
        "equalityDeletesResolved": len(work.deletes),
        "filesMarked": len(marking.marked),
        "rowsDeleted": marking.rows,
        "bytesWritten": marking.nbytes,
    }


def _change(site: MaintainSite, work: _Round, tally: _Tally, marking: Marking, written: WrittenFiles) -> TableCommit:
    rows = tally.known_rows_of(work.deletes)
    search = SearchSite(request=site.request, reporter=site.reporter, share=site.share)
    tally.counts.update(find_deleted_rows(search, work.pinned, work.deletes, rows))
    with site.reporter.stage("write"):
        mark_rows(work.pinned, rows, work.token, written, marking)
    resolved = tuple(delete.file for delete in work.deletes)
    return TableCommit(
        pinned=work.pinned.files.pinned,
        marked=tuple(marking.marked),
        deletes=tuple(marking.deletes),
        replaced=(*marking.replaced, *resolved),
        resolved=resolved,
        summary={f"{RESOLVED_SUMMARY}{name}": str(count) for name, count in _counts_of(work, marking).items()},
        # With new deletes it is no Iceberg `replace`: other writers do not look for deletes in those, and would commit
        # rewritten files without them.
        is_rewrite=not marking.deletes,
    )
