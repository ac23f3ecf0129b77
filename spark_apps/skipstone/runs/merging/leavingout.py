"""Changes that a merge leaves out: whether it may, where they are kept, and what the table remembers of them.

Called by the merge run and by the reading of feeds. Which changes these are is decided where they are resolved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.table import Table
from skipstone_core.contract.badrecords import FAIL_ON_BAD_RECORDS, BadRecordPolicy, BadRecordsSpec
from skipstone_core.errors import BadData
from skipstone_core.history.commits import Conflicted
from skipstone_core.ids import HELD_PROPERTY
from skipstone_core.merging.holds import HeldRow
from skipstone_core.reasons import Reason

from skipstone.sources.feeds.rejecting.sifting import Rejected
from skipstone.tables.committing.changes import Ledger
from skipstone.tables.records.heldrows import HeldTable, held_pointer

_EXAMPLES = 3


class RowsAbsent(Exception):
    """The table has no row for changes that leave a value out as unchanged: they are left out, with the source read
    again. ``keys``: theirs, as text.
    """

    def __init__(self, keys: frozenset[str]) -> None:
        super().__init__(f"{len(keys)} rows that are not in the table lack a value")
        self.keys = keys


@dataclass(frozen=True, kw_only=True)
class RejectedChanges:
    """The changes that a merge leaves out. ``rejected``: changes, in the order of the feed.

    ``skipped``: changes that are obsolete; ``passed``: those that the task does not ask for. ``files``: paths by their
    numbers. ``rows``: what is to be remembered of rows. ``parts``: files of rejected records, in the storage; ``path``:
    their folder, once they are accepted.
    """

    rejected: tuple[Rejected, ...] = ()
    skipped: int = 0
    passed: int = 0
    files: tuple[str, ...] = ()
    rows: Mapping[str, HeldRow] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    path: str | None = None

    @staticmethod
    def merged(parts: Sequence[RejectedChanges], files: Sequence[str]) -> RejectedChanges:
        """The sum of what was taken out of parts of a feed."""
        rejected = [change for part in parts for change in part.rejected]
        return RejectedChanges(
            rejected=tuple(sorted(rejected, key=lambda change: (change.file, change.line))),
            skipped=sum(part.skipped for part in parts),
            passed=sum(part.passed for part in parts),
            files=tuple(files),
            rows={key: row for part in parts for key, row in part.rows.items()},
        )

    @property
    def reasons(self) -> Mapping[int, Mapping[int, str]]:
        """Why messages are left out, by the numbers of their files and their lines; of two changes the graver one."""
        by_file: dict[int, dict[int, str]] = {}
        for change in sorted(self.rejected, key=lambda change: change.is_fault):
            by_file.setdefault(change.file, {})[change.line] = change.reason
        return {number: by_file[number] for number in sorted(by_file)}

    @property
    def faults(self) -> int:
        """Changes that cannot be applied."""
        return sum(change.is_fault for change in self.rejected)

    @property
    def waiting(self) -> int:
        """Changes that could be applied and wait for another one."""
        return len(self.rejected) - self.faults

    def described(self, change: Rejected) -> str:
        """Where a change is, and why it is left out."""
        line = f", line {change.line}" if change.line else ""
        return f"'{self.files[change.file]}'{line}: {change.reason}"

    @property
    def message(self) -> str:
        """Return sentences on the changes that are left out; empty when nothing was."""
        passed = f"{self.passed} changes that are not missing are passed over." if self.passed else ""
        return " ".join(text for text in (self._rejected_message, passed) if text)

    @property
    def _rejected_message(self) -> str:
        if not self.rejected:
            return ""
        causes = [change for change in self.rejected if change.is_fault] or list(self.rejected)
        kinds = Counter(change.reason for change in causes)
        where = "status.rejectedPath has them" if self.path else "they are dropped"
        waiting = f", and {self.waiting} later changes of their rows wait for them" if self.faults else ""
        many = f" (and {len(kinds) - 1} other causes)" if len(kinds) > 1 else ""
        summary = f"{self.faults} changes cannot be applied{waiting}" if self.faults else f"{self.waiting} changes wait"
        return f"{summary}: {where}. The first: {self.described(causes[0])}{many}."


def require_allowed(spec: BadRecordsSpec | None, left: RejectedChanges) -> None:
    """Raise BadData (BAD_RECORDS) when more changes are left out than ``badRecords`` allows."""
    spec = spec or FAIL_ON_BAD_RECORDS
    allowed = 0 if spec.policy is BadRecordPolicy.FAIL else spec.max_count
    if allowed is None or len(left.rejected) <= allowed:
        return
    causes = [change for change in left.rejected if change.is_fault] or list(left.rejected)
    examples = "; ".join(dict.fromkeys(left.described(change) for change in causes[:_EXAMPLES]))
    raise BadData(
        Reason.BAD_RECORDS,
        f"{left.faults} changes cannot be applied and {left.waiting} wait for them or for changes that earlier merges "
        f"left out, and {allowed} are allowed; {examples}. Merge what was left out (source.onlyRejected), or leave "
        "these out too: the policy Redirect, with a large enough maxCount, writes them to .skipstone/rejected of the "
        "Warehouse",
        field="spec.badRecords",
    )


@dataclass(frozen=True, kw_only=True)
class HoldsUpdate:
    """The update of held rows by a merge: the ledger of its commit, together with ``other``."""

    held: HeldTable
    rows: Mapping[str, HeldRow] = field(default_factory=dict)
    other: Ledger | None = None

    def find_conflict(self, table: Table) -> Conflicted | None:
        """Return why the head of ``table`` voids the change: another merge left out changes. Raises as the memory."""
        if self.other and (void := self.other.find_conflict(table)):
            return void
        if not self.held.is_of(table):
            return Conflicted(Reason.CONFLICTED, "Another merge left out changes of the table meanwhile.")
        return None

    def properties(self, table: Table, snapshot_id: int) -> Mapping[str, str]:
        """Write what is remembered from now on; the property that names it. Raises DependencyUnavailable."""
        properties = dict(self.other.properties(table, snapshot_id)) if self.other else {}
        return (
            {**properties, HELD_PROPERTY: held_pointer(table, self.held, self.rows, snapshot_id)}
            if self.rows
            else properties
        )
