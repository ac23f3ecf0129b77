"""Which files a load or merge applies: all that its source names, or those that its consumer has not taken yet.

Called by the load run and the merge run before they start a JVM. What is taken is remembered by the commit (ledger);
here it is only decided and pinned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

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
from skipstone.sources.listing import (
    SourceListing,
    find_pin,
    list_arrivals,
    pin_source,
    pinned_source,
    without_young,
    witnessed,
)
from skipstone.storage.port import Entry
from skipstone.tables.records.ledger import ConsumedFiles, Consumption

#: The outcome of a job for which there is nothing to do: nothing is committed, not even its transaction.
NOTHING = Committed(0, TxnRecord(time_ms=0, is_empty=True))
NO_NEW_FILES = "There are no new files: all that the source names were consumed before."


@dataclass(frozen=True, kw_only=True)
class Intake:
    """The files to apply. ``ledger`` remembers them in the commit, None when only their digest is remembered."""

    listing: SourceListing
    ledger: Consumption | None = None

    @property
    def consumed(self) -> Consumption:
        """The files one by one, as they are remembered. Raises ContractViolation when only their digest is."""
        if self.ledger is None:
            raise ContractViolation("the files of this intake are remembered by their digest only")
        return self.ledger


def take_source(
    request: JobRequest, table: Table, source: SourceSpec, note: Callable[[str], None] = lambda _: None
) -> Intake | Outcome:
    """Return the intake of the job ``request`` for ``table`` (freshly loaded), one for all attempts; or its outcome.

    ``note`` is told what people should know of files that are left out.

    Raises as ``pinned_source`` does, and BadData (SOURCE_CHANGED) naming a file that changed since it was consumed.
    """
    if source.consume is ConsumePolicy.ALL:
        listing = pinned_source(request.warehouse, source, request.owner_uid, table=request.table_uid)
        applied = None if source.only_rejected else applied_already(table, source, listing.digest)
        return applied or Intake(listing=listing)
    if not source.consumer:
        raise BadSpec(Reason.INVALID_SPEC, "consume New needs the name of a consumer", field="request")
    memory = ConsumedFiles(warehouse=request.warehouse, consumer=source.consumer)
    pinned = find_pin(request.warehouse, request.owner_uid, source.location)
    listing = pinned or new_files(settled_arrivals(request, source, note), table, memory, note)
    if not listing.files:
        return settled_meanwhile(request, table) or NOTHING
    listing = pinned or pin_source(listing, request.warehouse, request.owner_uid, table=request.table_uid)
    listing = witnessed(listing)
    taken = replace(consumption(listing, memory), ends_replay=source.replay_from is None)
    return taken.find_conflict(table) or Intake(listing=listing, ledger=taken)


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
