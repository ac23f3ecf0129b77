"""Plan, write, commit, discard: what becomes of the files that an attempt wrote is decided here, and nowhere else.

Called by loads, merges and index runs. Files are deleted when it is proven that no commit names them: the attempt ended
before it asked the catalog, or ``commit_table`` proved that it did not land. When that is not known, they stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from skipstone_core.contract.requests import TableRef
from skipstone_core.history.commits import AlreadyCommitted, Conflicted, Outcome

from skipstone.tables.committing.changes import TableCommit
from skipstone.tables.committing.commits import CommitPorts, commit_table, discard_files


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
