"""Adds the files of a source to a table as they are and where they are: one commit, at most once.

Called by the load run for the mode Register, in the driver alone. The files are never written, moved or deleted,
whatever becomes of the commit: they are not ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import NameMapping
from skipstone_core.contract.requests import JobRequest, SourceSpec
from skipstone_core.errors import BadData
from skipstone_core.history.commits import Conflicted
from skipstone_core.merging.unused import MAX_UNUSED
from skipstone_core.reasons import Reason

from skipstone.files.registering.examine import Examination, Examined, ForeignFile, plan_examination
from skipstone.files.registering.namemapping import NAME_MAPPING, plan_mapping
from skipstone.files.writer import data_files
from skipstone.parallel import at_once
from skipstone.runs.intake import Intake, is_unique, source_record
from skipstone.runs.registering.intake import require_unknown
from skipstone.runs.registering.places import require_no_table, source_place
from skipstone.runs.reporting.leftout import unused_summary
from skipstone.runs.reporting.report import Reporter
from skipstone.sources.columns import column_mapping
from skipstone.sources.listing import require_unchanged
from skipstone.sources.typed.filetypes import is_copied
from skipstone.sources.unused import unused_columns
from skipstone.tables.committing.changes import Ledger, TableCommit
from skipstone.tables.filesets import pin_table, read_file_set
from skipstone.tables.storage import plain_location

#: Footers that are read at the same time.
READERS = 8
#: After so many files it is told how far the run is.
_TOLD = 500


@dataclass(frozen=True)
class Registration:
    """How the table remembers the files of a job: as consumed, and by what names in files mean.

    ``mapping`` None: all files have field ids. ``sources``: names in files by column, where they differ.
    """

    consumption: Ledger
    mapping: NameMapping | None
    sources: Mapping[str, str]

    def find_conflict(self, table: Table) -> Conflicted | None:
        """Return a conflict if another job took a file meanwhile, or another writer changed the name mapping."""
        if conflict := self.consumption.find_conflict(table):
            return conflict
        if self.mapping is not None and plan_mapping(table, self.sources) != self.mapping:
            message = f"Since the run planned its change, another writer changed the table property {NAME_MAPPING}."
            return Conflicted(Reason.CONFLICTED, message)
        return None

    def properties(self, table: Table, snapshot_id: int) -> Mapping[str, str]:
        """Return further properties of the commit."""
        properties = dict(self.consumption.properties(table, snapshot_id))
        if self.mapping is not None and self.mapping != table.metadata.name_mapping():
            properties[NAME_MAPPING] = self.mapping.model_dump_json()
        return properties


@dataclass(frozen=True)
class NoneOfThese:
    """The guard of a commit: no other writer added a file of these ``locations``, in plain form."""

    locations: frozenset[str]

    def __call__(self, _: Table, added: tuple[DataFile, ...]) -> str | None:
        """A clause that names the first one."""
        for file in added:
            if plain_location(file.file_path) in self.locations:
                return f"another writer added {file.file_path}"
        return None


def plan_registration(
    request: JobRequest, reporter: Reporter, table: Table, source: SourceSpec, intake: Intake
) -> tuple[TableCommit, Mapping[str, int]]:
    """The commit that adds the files of ``intake``, and its counts.

    Raises BadSpec and BadData that name a file which cannot be the table's as it is, or that the table has already.
    """
    listing = intake.listing
    place = source_place(request.warehouse, source.location, table)
    require_no_table(listing, place)
    foreign = [ForeignFile(file.path, place.location(file.path), file.size) for file in listing.files]
    sources = column_mapping(source, table.schema())
    mapping = plan_mapping(table, sources)
    fresh = _without_live(foreign, table, source)
    with reporter.stage("read"):
        examined = _examine(fresh, plan_examination(table, mapping, sources, is_copied), reporter)
        require_unchanged(listing)
    _tell_unused(examined, reporter)
    added = tuple(data_files((result.file for result in examined), table))
    counts = {
        "rowsLoaded": sum(file.record_count for file in added),
        "filesRegistered": len(added),
        "filesSkipped": listing.left_out + len(foreign) - len(added),
    }
    consumed = intake.consumed
    needs_names = not all(result.has_ids for result in examined)
    change = TableCommit(
        pinned=pin_table(table),
        added=added,
        txn=request.txn,
        record=source_record(intake, counts),
        summary={
            **{f"skipstone.load.{name}": str(value) for name, value in counts.items()},
            **unused_summary(reporter.base().unused_columns, reporter.base().unused_total),
        },
        unique_source=is_unique(source),
        guard=NoneOfThese(frozenset(plain_location(file.file_path) for file in added)),
        ledger=Registration(consumed, mapping if needs_names else None, sources),
    )
    return change, counts


def _tell_unused(examined: Sequence[Examined], reporter: Reporter) -> None:
    """Let the report say which columns that folders name the table does not have, and of how many rows."""
    rows: Counter[str] = Counter()
    for result in examined:
        rows.update(dict.fromkeys(result.unused, result.file.records))
    reporter.leave(unused_columns([*rows][:MAX_UNUSED], rows), len(rows))


def _without_live(files: Sequence[ForeignFile], table: Table, source: SourceSpec) -> list[ForeignFile]:
    """Those that are not files of the table yet, whoever added them, by whatever link.

    Raises BadData (SOURCE_UNREADABLE) for a file that the source names twice, and as ``require_unknown`` does.
    """
    places = [_place(file.location) for file in files]
    first = dict(zip(reversed(places), reversed(files), strict=True))
    for file, place in zip(files, places, strict=True):
        if first[place] is not file:
            message = f"'{first[place].name}' and '{file.name}' are one file, whose rows the table would have twice"
            raise BadData(Reason.SOURCE_UNREADABLE, f"{message}: name one of them only", field="source.paths")
    live = set(at_once(_place, read_file_set(table).files["path"].to_pylist()))
    require_unknown(source, [file.name for file, place in zip(files, places, strict=True) if place in live])
    return [file for file, place in zip(files, places, strict=True) if place not in live]


def _place(location: str) -> str:
    """Return an identity that two names of one file share: on a volume its device and inode, through all links."""
    plain = plain_location(location)
    if not plain.startswith("/"):
        return plain
    try:
        status = Path(plain).stat()
    except OSError:
        return plain
    return f"{status.st_dev}:{status.st_ino}"


def _examine(files: Sequence[ForeignFile], examination: Examination, reporter: Reporter) -> list[Examined]:
    """The files with rows, in order; the first that cannot be registered ends the run."""
    examined = []
    with ThreadPoolExecutor(READERS) as pool:
        for number, result in enumerate(pool.map(examination.examine, files)):
            if number % _TOLD == 0:
                reporter.progress(f"registering: {number} of {len(files)} files looked at")
            if result is not None:
                examined.append(result)
    return examined
