"""Plan, write, commit, discard: what becomes of the files that an attempt wrote is decided here, and nowhere else.

Called by loads, merges, compactions and index runs. Files are deleted when it is proven that no commit names them: the
attempt ended before it asked the catalog, or ``commit_table`` proved that it did not land. When that is not known, they
stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from skipstone_core.contract.requests import TableRef
from skipstone_core.history.commits import AlreadyCommitted, Committed, Conflicted, Outcome, Unknown
from skipstone_core.indexing.snapshots import Pinned
from skipstone_core.reasons import Reason

from skipstone.tables.catalogs import load_table
from skipstone.tables.committing.changes import TableCommit
from skipstone.tables.committing.commits import CommitPorts, commit_table, discard_files
from skipstone.tables.committing.validation import find_conflicts

#: How often the rest is tried when others get in between again.
MAX_TRIES = 5


@dataclass
class WrittenFiles:
    """Files that an attempt wrote on ``table``; whoever writes one notes it at once, so that no error leaves it."""

    table: Table
    _files: list[DataFile] = field(default_factory=list)

    def note(self, files: Iterable[DataFile]) -> tuple[DataFile, ...]:
        """Remember ``files`` and give them back."""
        noted = tuple(files)
        self._files += noted
        return noted

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All of them."""
        return tuple(self._files)

    def discard(self) -> None:
        """Delete them all."""
        discard_files(self.table, tuple(self._files))
        self._files.clear()


@dataclass(frozen=True, kw_only=True)
class CommitSite:
    """Where an attempt commits. ``stage`` surrounds the commit."""

    catalog: Catalog
    ref: TableRef
    ports: CommitPorts | None = None
    stage: Callable[[], AbstractContextManager[object]] = nullcontext


#: Writes files on the planned table and notes them; the change to commit. What it raises ends the attempt.
Write = Callable[[WrittenFiles], TableCommit]


def commit_written(site: CommitSite, table: Table, write: Write) -> Outcome:
    """Write on ``table`` and commit, once.

    Files that were written are gone when this raises an error, and when it returns anything but Committed and Unknown.
    """
    written = WrittenFiles(table)
    outcome: Outcome | None = None
    try:
        change = write(written)
        with site.stage():
            outcome = commit_table(site.catalog, site.ref, change, site.ports)
    except Exception:
        # A commit raises errors only when nothing of it is in the table or may land; a killed process proves nothing.
        if outcome is None:
            written.discard()
        raise
    if isinstance(outcome, Conflicted | AlreadyCommitted):
        written.discard()
    return outcome


# --- rewrites that consist of independent parts ---


@dataclass(frozen=True, kw_only=True)
class RewrittenPart:
    """Files that were written in the place of others; the rows are the same."""

    removed: tuple[DataFile, ...]
    added: tuple[DataFile, ...]


@dataclass(frozen=True, kw_only=True)
class RewriteOutcome:
    """``committed`` parts, when ``outcome`` is Committed; what became of the others is in ``conflict``."""

    outcome: Outcome
    committed: tuple[RewrittenPart, ...] = ()
    dropped: tuple[RewrittenPart, ...] = ()
    conflict: str = ""


def commit_parts(
    site: CommitSite,
    table: Table,
    write: Callable[[WrittenFiles], Sequence[RewrittenPart]],
    change: Callable[[Sequence[RewrittenPart]], TableCommit],
) -> RewriteOutcome:
    """Write on ``table`` and commit as many parts as no other writer voided. Raises as ``commit_table`` does.

    ``change``: the commit of some parts, whose files are those of the parts. What is not committed is deleted, but when
    that is not known.
    """
    written = WrittenFiles(table)
    rewrite: RewriteOutcome | None = None
    try:
        parts = write(written)
        with site.stage():
            rewrite = _commit_rest(site, parts, change)
    except Exception:
        if rewrite is None:
            written.discard()  # a commit raises errors only when nothing of it is in the table or may land
        raise
    in_doubt = rewrite.committed if isinstance(rewrite.outcome, Committed | Unknown) else ()
    kept = {file.file_path for part in in_doubt for file in part.added}
    discard_files(table, tuple(file for file in written.files if file.file_path not in kept))
    return rewrite


def _commit_rest(
    site: CommitSite, parts: Sequence[RewrittenPart], change: Callable[[Sequence[RewrittenPart]], TableCommit]
) -> RewriteOutcome:
    rest, dropped, message = tuple(parts), [], ""
    outcome: Outcome = Conflicted(Reason.CONFLICTED, "There is nothing to commit.")
    for _ in range(MAX_TRIES):
        planned = change(rest)
        void = _voided(site, rest, planned.pinned, keeps_age=planned.data_sequence is not None)
        dropped += [part for part, conflict in zip(rest, void, strict=True) if conflict]
        message = next((conflict.message for conflict in void if conflict), message)
        rest = tuple(part for part, conflict in zip(rest, void, strict=True) if not conflict)
        if not rest:
            outcome = Conflicted(Reason.CONFLICTED, message)
            break
        outcome = commit_table(site.catalog, site.ref, change(rest) if any(void) else planned, site.ports)
        if not isinstance(outcome, Conflicted) or outcome.reason is not Reason.CONFLICTED:
            break
        message = outcome.message
    if isinstance(outcome, Committed | Unknown):
        return RewriteOutcome(outcome=outcome, committed=rest, dropped=tuple(dropped), conflict=message)
    return RewriteOutcome(outcome=outcome, dropped=(*dropped, *rest), conflict=message)


def _voided(
    site: CommitSite, parts: Sequence[RewrittenPart], pinned: Pinned, *, keeps_age: bool
) -> Sequence[Conflicted | None]:
    head = load_table(site.catalog, site.ref)
    return find_conflicts(head, pinned, [part.removed for part in parts], keeps_age=keeps_age)


def files_of(parts: Iterable[RewrittenPart]) -> tuple[tuple[DataFile, ...], tuple[DataFile, ...]]:
    """All that the parts remove, and all that they add."""
    known = tuple(parts)
    return tuple(file for part in known for file in part.removed), tuple(file for part in known for file in part.added)
