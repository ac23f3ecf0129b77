"""Files that a merge applies once more: all that came since one of them, in one job, so that the newest change wins.

Called by the merge run in place of ``take_source``, once for each value of ``source.replayFrom``. A table does not keep
the place of each row's last change in the log. What is left of each row after all changes from some file on is its
newest state whatever the table has, as long as no later file is missing. Must not read files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace

from pyiceberg.table import Table
from skipstone_core.contract.requests import ConsumePolicy, JobRequest, SourceSpec
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.history.commits import Conflicted, Outcome
from skipstone_core.history.consumption import NAME_BYTES
from skipstone_core.reasons import Reason

from skipstone.runs.intake import Intake, consumption, entry_of, new_files, settled_arrivals, take_source
from skipstone.sources.feeds.registry import FileOrder, tool_of
from skipstone.sources.listing import SourceListing, find_pin, pin_source, witnessed
from skipstone.storage.port import Entry
from skipstone.tables.records.ledger import ConsumedFiles, Replay

_FIELD = "spec.source.replayFrom"
Note = Callable[[str], None]


def take_changes(request: JobRequest, table: Table, source: SourceSpec, note: Note) -> Intake | Outcome:
    """Return the intake of the job ``request``, as ``take_source``, with the files that it is to replay.

    Raises as ``take_source``, BadSpec for a replay that names no file, and BadData (SOURCE_CHANGED) for one of which
    later files are gone.
    """
    start = source.replay_from
    if start is None:
        return take_source(request, table, source, note)
    if source.consume is not ConsumePolicy.NEW:
        raise BadSpec(Reason.INVALID_SPEC, "it needs consume New: set source.consume", field=_FIELD)
    memory = ConsumedFiles(warehouse=request.warehouse, consumer=source.consumer)
    if memory.was_replayed(table, start):
        return take_source(request, table, source, note)
    return _Replaying(request, table, source, memory, start).take(note)


@dataclass(frozen=True)
class _Replaying:
    """One replay: all files from ``start`` on, and those that are new."""

    request: JobRequest
    table: Table
    source: SourceSpec
    memory: ConsumedFiles
    start: str

    def take(self, note: Note) -> Intake | Outcome:
        """The files, the same for all attempts; Conflicted when another job consumed some since the first attempt."""
        arrived = settled_arrivals(self.request, self.source, note)
        new = {file.path for file in new_files(arrived, self.table, self.memory, lambda _: None).files}
        wanted = self._wanted(arrived.files)
        pinned = find_pin(self.request.warehouse, self.request.owner_uid, self.source.location)
        listing = pinned or replace(arrived, files=tuple(f for f in arrived.files if f.path in wanted | new))
        if conflict := self._find_later(arrived, wanted - new, {file.path for file in listing.files}):
            return conflict
        warehouse, uid = self.request.warehouse, self.request.owner_uid
        listing = witnessed(pinned or pin_source(listing, warehouse, uid, table=self.request.table_uid))
        again = len(wanted - new)
        note(
            f"All files from '{self.start}' on are merged, as source.replayFrom says: {again} once more, and "
            f"{len(listing.files) - again} new ones."
        )
        fresh = replace(listing, files=tuple(file for file in listing.files if file.path in new))
        replay = Replay(start=self.start, head=self.memory.find_head(self.table))
        taken = replace(consumption(fresh, self.memory), replay=replay)
        return taken.find_conflict(self.table) or Intake(listing=listing, ledger=taken)

    @property
    def _order(self) -> FileOrder | None:
        tool = self.source.change_format
        return None if tool is None else tool_of(tool).order

    def _wanted(self, files: Sequence[Entry]) -> Set[str]:
        """The paths of those from the start on, as feeds are read. Raises BadSpec when there are none."""
        paths = {file.path for file in files if file.path >= self.start}
        if (order := self._order) is not None:  # folders need not be in their order
            places = [order.place(file.path) for file in files if file.path.startswith(self.start)]
            paths = {file.path for file in files if places and order.place(file.path) >= min(places)}
        if not paths:
            raise BadSpec(
                Reason.INVALID_SPEC,
                f"no file of source.paths comes at or after '{self.start}' in the order of their paths: write the path "
                "of the first file to be merged once more, as source.paths has it",
                field=_FIELD,
            )
        return paths

    def _find_later(self, arrived: SourceListing, again: Set[str], taken: Set[str]) -> Conflicted | None:
        """Return a conflict if files consumed since are not ``taken``. Raises BadData for those that are gone."""
        here = {entry_of(arrived, file)[:NAME_BYTES]: file.path for file in arrived.files}
        jobs = list(self.memory.consumed_since(self.table, {name for name, path in here.items() if path in again}))
        gone = sum(len(job - here.keys()) for job in jobs)
        if gone:
            raise BadData(
                Reason.SOURCE_CHANGED,
                f"{gone} files that were consumed with the first file to be replayed or after it are gone, and without "
                "them older values would take the place of newer ones: put them back, or name a later file in "
                "source.replayFrom",
                field=_FIELD,
            )
        paths = [{here[name] for name in job} for job in jobs]
        self._require_order(paths)
        if any(job & again - taken for job in paths):
            return Conflicted(
                Reason.SOURCE_ALREADY_APPLIED,
                f"another job of {self.memory.consumer} consumed files since this one began, which are newer than "
                "those to be replayed; nothing was applied, and the next job replays them too.",
            )
        return None

    def _require_order(self, jobs: Sequence[Set[str]]) -> None:
        """Raise BadData for a full load that was consumed after changes: it counts as older in one job."""
        order = self._order
        if order is None:
            return
        loads = [at for at, job in enumerate(jobs) if any(map(order.is_full_load, job))]
        changes = [at for at, job in enumerate(jobs) if not all(map(order.is_full_load, job))]
        if loads and changes and min(loads) < max(changes):
            raise BadData(
                Reason.SOURCE_CHANGED,
                "a full load was consumed after files of changes, and in one job its rows would count as older than "
                "all changes: move the files of changes from before it out of source.paths, and name the first file of "
                "that full load in source.replayFrom",
                field=_FIELD,
            )
