"""Which files a load or merge applies: all that its source names, or those that its consumer has not taken yet.

Called by the load run and the merge run before they start a JVM. What is taken is remembered by the commit (ledger);
here it is only decided and pinned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pyiceberg.table import Table
from skipstone_core.contract.requests import (
    ConsumePolicy,
    DuplicatesPolicy,
    JobRequest,
    Management,
    SourceSpec,
    TableRef,
)
from skipstone_core.errors import BadData, BadSpec, ContractViolation
from skipstone_core.history.commits import Committed, Outcome, TxnRecord
from skipstone_core.history.consumption import NAME_BYTES, entry, is_same_change, is_same_content
from skipstone_core.reasons import Reason

from skipstone.runs.settled import applied_already, settled_meanwhile
from skipstone.runs.tablesources.choosing import TableRows, choose_rows
from skipstone.runs.tablesources.delta import choose_delta
from skipstone.runs.tablesources.folders import choose_folders, require_folders, with_folder_values
from skipstone.runs.tablesources.staging import staged_rows
from skipstone.sources.listing import (
    SourceListing,
    find_pin,
    list_arrivals,
    pin_source,
    pinned_source,
    without_young,
    witnessed,
)
from skipstone.storage.opening import open_storage
from skipstone.storage.port import Entry
from skipstone.tables.committing.changes import Ledger
from skipstone.tables.records.ledger import ConsumedFiles, Consumption

#: The outcome of a job for which there is nothing to do: nothing is committed, not even its transaction.
NOTHING = Committed(0, TxnRecord(time_ms=0, is_empty=True))
NO_NEW_FILES = "There are no new files: all that the source names were consumed before."
NO_NEW_VERSIONS = "There are no new rows: the Delta table has none that was not read before."
NO_NEW_SNAPSHOTS = "There are no new snapshots: the source table was read up to its newest one before."


@dataclass(frozen=True, kw_only=True)
class Intake:
    """The files to apply. ``ledger`` remembers them in the commit, None when only their digest is remembered.

    ``rows``: of a source table, which ``brought`` writes to the files of the listing. ``origin``: of files of a table
    that is not in a catalog, what the commit says of it.
    """

    listing: SourceListing
    ledger: Ledger | None = None
    rows: TableRows | None = None
    origin: Mapping[str, str] = field(default_factory=dict)

    @property
    def summary(self) -> Mapping[str, str]:
        """What the snapshot of the commit says of the source."""
        return self.rows.summary if self.rows is not None else self.origin

    @property
    def consumed(self) -> Consumption:
        """The files one by one, as they are remembered. Raises ContractViolation when only their digest is."""
        if not isinstance(self.ledger, Consumption):
            raise ContractViolation("the files of this intake are remembered by their digest only")
        return self.ledger


def take_source(
    request: JobRequest, table: Table, source: SourceSpec, note: Callable[[str], None] = lambda _: None
) -> Intake | Outcome:
    """Return the intake of the job ``request`` for ``table`` (freshly loaded), one for all attempts; or its outcome.

    ``note`` is told what people should know of files that are left out.

    Raises as ``pinned_source`` does, and BadData (SOURCE_CHANGED) naming a file that changed since it was consumed.
    """
    if source.table is not None:
        return _take_table(request, table, source)
    if source.delta is not None:
        return _take_delta(request, table, source)
    if source.consume is ConsumePolicy.ALL:
        listing = pinned_source(
            request.warehouse,
            source,
            request.owner_uid,
            table=request.table_uid,
            choose=lambda listed: require_folders(choose_folders(listed, source, table), source),
        )
        applied = None if source.only_rejected else applied_already(table, source, listing.digest)
        return applied or Intake(listing=with_folder_values(listing, source))
    if not source.consumer:
        raise BadSpec(Reason.INVALID_SPEC, "consume New needs the name of a consumer", field="request")
    memory = ConsumedFiles(warehouse=request.warehouse, consumer=source.consumer)
    pinned = find_pin(request.warehouse, request.owner_uid, source.location)
    arrived = pinned or choose_folders(settled_arrivals(request, source, note), source, table)
    listing = pinned or new_files(arrived, table, memory, note)
    if not listing.files:
        return settled_meanwhile(request, table) or NOTHING
    listing = pinned or pin_source(listing, request.warehouse, request.owner_uid, table=request.table_uid)
    listing = witnessed(listing)
    taken = replace(consumption(listing, memory), ends_replay=source.replay_from is None)
    return taken.find_conflict(table) or Intake(listing=with_folder_values(listing, source), ledger=taken)


def _take_delta(request: JobRequest, table: Table, source: SourceSpec) -> Intake | Outcome:
    rows = choose_delta(request, table, source)
    if rows is None:
        return settled_meanwhile(request, table) or NOTHING
    void = rows.ledger.find_conflict(table) if rows.ledger else applied_already(table, source, rows.listing.digest)
    return void or Intake(listing=rows.listing, ledger=rows.ledger, origin=rows.summary)


def _take_table(request: JobRequest, table: Table, source: SourceSpec) -> Intake | Outcome:
    rows = choose_rows(table.catalog, request, table, source)
    if rows is None:
        return settled_meanwhile(request, table) or NOTHING
    listing = SourceListing(storage=open_storage(request.warehouse), files=(), identity=rows.digest)
    void = rows.ledger.find_conflict(table) if rows.ledger else applied_already(table, source, rows.digest)
    return void or Intake(listing=listing, ledger=rows.ledger, rows=rows)


@contextmanager
def brought(request: JobRequest, intake: Intake, progress: Callable[[str], None]) -> Iterator[Intake]:
    """``intake`` with files to read: those of rows of a table are written here, and gone afterwards.

    Raises as ``staged_rows``.
    """
    if intake.rows is None:
        yield intake
        return
    with staged_rows(request, intake.rows, progress) as files:
        yield replace(intake, listing=witnessed(replace(intake.listing, files=files)))


def nothing_new(source: SourceSpec) -> str:
    """What people are told of a job that finds nothing new."""
    if source.delta is not None:
        return NO_NEW_VERSIONS
    return NO_NEW_FILES if source.table is None else NO_NEW_SNAPSHOTS


def require_managed(ref: TableRef, where: str) -> None:
    """Raise BadSpec naming the field ``where``, which adds columns, for a table whose schema is not ours to change."""
    if ref.management is Management.OBSERVED:
        message = "the Table is Observed, so its schema is not ours to change: remove it, or make the Table Managed"
        raise BadSpec(Reason.INVALID_SPEC, message, field=where)


def is_unique(source: SourceSpec) -> bool:
    """Return whether the source's digest has to be new to the table; consumed files are checked one by one."""
    is_new = source.consume is ConsumePolicy.ALL and source.duplicates is DuplicatesPolicy.REFUSE
    return is_new and not source.only_rejected


def source_record(intake: Intake, counts: Mapping[str, int], source: SourceSpec | None = None) -> TxnRecord:
    """Return the record of a job that applied ``intake``: without files if ``source`` asks for some changes only."""
    is_part = source is not None and source.only_rejected
    return TxnRecord(time_ms=0, counts=counts, source_digest=None if is_part else intake.listing.digest)


def settled_arrivals(
    request: JobRequest, source: SourceSpec, note: Callable[[str], None], *, deep: bool = False
) -> SourceListing:
    """The files that are there and settled; the others are for the next job. ``deep``: see ``list_source``."""
    listing = list_arrivals(request.warehouse, source, deep=deep)
    arrived = without_young(listing, source.settle_seconds)
    if waiting := len(listing.files) - len(arrived.files):
        note(f"{waiting} files changed less than {source.settle_seconds} seconds ago and are left to the next job.")
    return arrived


def new_files(
    listing: SourceListing, table: Table, memory: ConsumedFiles, note: Callable[[str], None]
) -> SourceListing:
    """Those of ``listing`` that ``memory`` does not know, and how many it knows as ``left_out``.

    Raises BadData (SOURCE_CHANGED) naming a file that changed since it was consumed.
    """
    by_name = {entry_of(listing, file)[:NAME_BYTES]: file for file in listing.files}
    touched = []
    for name, state in memory.entries(table, memory.find_head(table)):
        file = by_name.pop(name, None)
        if file is None:
            continue
        now = entry_of(listing, file)[NAME_BYTES:]
        if not is_same_content(now, state):
            raise BadData(
                Reason.SOURCE_CHANGED,
                f"'{file.path}' changed since {memory.consumer} consumed it: put new content under a new name, and "
                "remove this file or restore it with its size and time",
                field="source.paths",
            )
        if not is_same_change(now, state):
            touched.append(file.path)
    if touched:
        note(
            f"{len(touched)} consumed files have the same size and modification time as before and another time of "
            f"last change; they are not read again, the first is '{min(touched)}'. If it was rewritten, put the new "
            "content under a new name."
        )
    files = tuple(sorted(by_name.values()))
    return replace(listing, files=files, left_out=len(listing.files) - len(files))


def entry_of(listing: SourceListing, file: Entry) -> bytes:
    """Return a consumer's entry of ``file``."""
    return entry(listing.remembered_name(file), file.size, file.version, file.touched_ns)


def consumption(listing: SourceListing, memory: ConsumedFiles) -> Consumption:
    """Return the entries that the files of ``listing`` add to ``memory``."""
    entries = [entry_of(listing, file) for file in listing.files]
    taken = {name[:NAME_BYTES]: file.path for name, file in zip(entries, listing.files, strict=True)}
    return Consumption(memory=memory, taken=taken, entries=b"".join(entries))
