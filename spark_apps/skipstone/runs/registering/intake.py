"""Which files a job of the mode Register adds to its table: those that no job has registered in it before.

Called by the load run. A table remembers every file that was registered in it (ledger), also when a merge has replaced
it since: registered again, it would bring back rows that were changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pyiceberg.table import Table
from skipstone_core.contract.requests import ConsumePolicy, DuplicatesPolicy, JobRequest, SourceSpec
from skipstone_core.errors import BadData
from skipstone_core.history.commits import Conflicted, Outcome
from skipstone_core.history.consumption import REGISTERED
from skipstone_core.reasons import Reason

from skipstone.runs.intake import NOTHING, Intake, consumption, new_files, settled_arrivals
from skipstone.runs.registering.places import source_place
from skipstone.runs.settled import applied_already, settled_meanwhile
from skipstone.sources.listing import (
    SourceListing,
    find_pin,
    list_source,
    pin_source,
    require_settled,
    witnessed,
)
from skipstone.tables.records.ledger import ConsumedFiles
from skipstone.tables.storage import plain_location

NOTHING_TO_REGISTER = "There are no files to register: the table has all that the source names."


def take_files(
    request: JobRequest, table: Table, source: SourceSpec, note: Callable[[str], None] = lambda _: None
) -> Intake | Outcome:
    """Return the files that the job ``request`` registers in ``table`` (freshly loaded); or its outcome.

    ``note`` is told what people should know of files that are left out. Raises as ``take_source`` does.
    """
    memory = ConsumedFiles(warehouse=request.warehouse, consumer=REGISTERED)
    base = plain_location(source_place(request.warehouse, source.location, table).base)
    listing = find_pin(request.warehouse, request.owner_uid, source.location)
    if listing is None:
        listed = replace(_listed(request, source, note), base=base)
        listing = new_files(listed, table, memory, note)
        if listing.left_out and refuses_known_files(source):
            return Conflicted(Reason.SOURCE_ALREADY_APPLIED, f"{_already_there(listing.left_out)}.")
        if not listing.files:
            return settled_meanwhile(request, table) or NOTHING
        listing = pin_source(listing, request.warehouse, request.owner_uid, table=request.table_uid)
    listing = witnessed(replace(listing, base=base))
    if refuses_known_files(source) and (applied := applied_already(table, source, listing.digest)):
        return applied
    taken = consumption(listing, memory)
    return taken.find_conflict(table) or Intake(listing=listing, ledger=taken)


def refuses_known_files(source: SourceSpec) -> bool:
    """Return whether a file that the table has already ends the job; else it is left out."""
    return source.consume is ConsumePolicy.ALL and source.duplicates is DuplicatesPolicy.REFUSE


def require_unknown(source: SourceSpec, known: Sequence[str]) -> None:
    """Raise BadData (SOURCE_ALREADY_APPLIED) when files of the source, ``known``, are in the table and may not be."""
    if known and refuses_known_files(source):
        message = f"{_already_there(len(known))}; the first is '{known[0]}'"
        raise BadData(Reason.SOURCE_ALREADY_APPLIED, message, field="source.paths")


def _already_there(count: int) -> str:
    return (
        f"{count} files of the source are or were files of the table: set source.consume to New, or source.duplicates "
        "to Allow, to leave them out and register the others"
    )


def _listed(request: JobRequest, source: SourceSpec, note: Callable[[str], None]) -> SourceListing:
    if source.consume is ConsumePolicy.NEW:
        return settled_arrivals(request, source, note, deep=True)
    listing = list_source(request.warehouse, source, deep=True)
    require_settled(listing, source.settle_seconds)
    return listing
