"""Files of a table enter an index: in waves, each of which is a commit of the index, planned again when others commit.

Called by the reindex run for all that is missing, and by runs that committed to a table for what they added (inlining).
What is finished is committed at once, so whatever ends a run early, the next one goes on where it stopped. What to
enter is the caller's to say. Must not change the indexed table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from py4j.protocol import Py4JError
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.errors import PySparkException
from skipstone_core.contract.requests import IndexRef, TableRef, WarehouseRef
from skipstone_core.errors import BadSpec, DependencyUnavailable, OutcomeUnknown
from skipstone_core.history.commits import Committed, Conflicted, Outcome, Unknown
from skipstone_core.reasons import Reason

from skipstone.causes import is_jvm_lost
from skipstone.indexes.building.build import BuildSite, EnteredWave, WaveResult, commit_entered, enter_units
from skipstone.indexes.building.waves import MissingUnit, plan_waves
from skipstone.indexes.coverage import next_file_id, read_covers
from skipstone.indexes.damage import DamagedFile
from skipstone.indexes.definition import IndexNames, IndexShape, define_index, definition_problem
from skipstone.indexes.stores.port import store_of
from skipstone.indexes.tables import IndexTable, NewIndex, create_index, index_identifier, reopen_index
from skipstone.tables.catalogs import catalog_answers, load_table
from skipstone.tables.filesets import read_file_set

#: A merge of one tier may fill the next one; more rounds than tiers exist are a defect.
MAX_MERGE_ROUNDS = 16
MAX_PLANS = 5
MAX_FAILURE_TEXT = 500
_log = logging.getLogger(__name__)


@dataclass
class Progress:
    """The progress of a run. ``entered``: segments of which files were; a large one takes several waves."""

    entered: set[int] = field(default_factory=set)
    files: int = 0
    entries: int = 0
    failed: dict[int, str] = field(default_factory=dict)
    damaged: list[DamagedFile] = field(default_factory=list)
    retryable: bool = False
    snapshot_id: int = 0

    @property
    def segments(self) -> int:
        """How many segments were entered."""
        return len(self.entered)

    @property
    def counts(self) -> dict[str, int]:
        """As reports carry them."""
        return {"segments": self.segments, "files": self.files, "entries": self.entries}

    def fail(self, segment: int, message: str, *, retryable: bool) -> None:
        """Remember why a segment was not entered; the first reason counts."""
        self.failed.setdefault(segment, message[:MAX_FAILURE_TEXT])
        self.retryable = self.retryable or retryable


def _silent(_text: str, _counts: Mapping[str, int]) -> None:
    """Tell nobody how far a run is."""


@dataclass(frozen=True, kw_only=True)
class Entering:
    """Where files enter an index. ``ref``: of the indexed table. ``place``: where so many rows are gone through.

    ``units``: what they are, for people.
    """

    catalog: Catalog
    ref: TableRef
    place: Callable[[int], BuildSite]
    tell: Callable[[str, Mapping[str, int]], None] = _silent
    units: str = "missing segments"


def make_index(catalog: Catalog, warehouse: WarehouseRef, ref: TableRef, table: Table, index: IndexRef) -> IndexTable:
    """Make the empty table of ``index``.

    Raises BadSpec for columns that cannot be indexed, DependencyUnavailable that says where we must be let write.
    """
    names = IndexNames(index.columns, index.include)
    new = NewIndex(
        identifier=index_identifier(warehouse, ref, index),
        definition=define_index(table.schema(), names, IndexShape(index.parameters, index.store)),
        names=names,
        table_uuid=str(table.metadata.table_uuid),
        owner_uid=index.uid,
        store=index.store,
    )
    name = ".".join(new.identifier)
    way_out = "let the Warehouse's account create tables there, or set spec.indexNamespace of the Warehouse"
    try:
        with catalog_answers(catalog.name):
            return create_index(catalog, new, lambda outdated: store_of(outdated).drop())
    except DependencyUnavailable as error:
        by_storage = isinstance(error.__cause__, OSError) and error.__cause__.errno is not None
        reason = Reason.STORAGE_UNAVAILABLE if by_storage else error.reason
        message = f"the index table {name} cannot be created; {way_out}. {first_line(error.__cause__ or error)}"
        raise DependencyUnavailable(reason, message) from error


def require_fit(table: Table, index: IndexTable) -> None:
    """Raise BadSpec when the definition of ``index`` no longer fits its table."""
    if problem := definition_problem(table.schema(), index.stored):
        raise BadSpec(problem.reason, problem.message, field=problem.field)


def enter_files(
    site: Entering, index: IndexTable, plan: Callable[[IndexTable], list[MissingUnit]], progress: Progress
) -> IndexTable:
    """Enter what ``plan`` says; plan again when another run changed the index. The index afterwards.

    Raises DependencyUnavailable when others keep committing, OutcomeUnknown, and what fails all tasks.
    """
    for _ in range(MAX_PLANS):
        units = plan(index)
        if not units:
            return index
        undisturbed = _enter_units(site, index, units, progress)
        index = reopen_index(site.catalog, index)
        if undisturbed:
            return index
    raise DependencyUnavailable(Reason.CONFLICTED, "another run of this index keeps committing; try again later")


def _enter_units(site: Entering, index: IndexTable, units: list[MissingUnit], progress: Progress) -> bool:
    """Enter and commit in waves; False as soon as the index's head is not the one this run made."""
    place = site.place(sum(unit.rows for unit in units))
    next_id, before = next_file_id(index, read_covers(index)), progress.segments
    for wave in plan_waves(units, store_of(index).wave_weight(place.power, units)):
        done = f"{progress.segments - before} of {len(units)} {site.units} done"
        site.tell(f"segment {wave[0].segment}, {done}", progress.counts)
        for entered in _enter(place, index, wave, next_id, progress):
            result = commit_entered(place, index, entered)
            _take(site, result, progress)
            index = replace(index, table=site.catalog.load_table(index.identifier))
            if not is_ours(result, index):
                return False
        next_id += sum(len(unit.ordinals) for unit in wave)
    return True


def _enter(
    place: BuildSite, index: IndexTable, wave: list[MissingUnit], next_id: int, progress: Progress
) -> Iterator[EnteredWave]:
    """Enter a wave; when a task of it fails for good, unit by unit, so that only the guilty one is left out."""
    try:
        yield enter_units(place, index, wave, next_id)
        return
    except (PySparkException, Py4JError, OSError) as error:
        if is_jvm_lost(error):
            raise
        if len(wave) == 1:
            progress.fail(wave[0].segment, f"the build failed: {first_line(error)}", retryable=True)
            return
    for unit in wave:
        yield from _enter(place, index, [unit], next_id, progress)
        next_id += len(unit.ordinals)


def is_ours(result: WaveResult, index: IndexTable) -> bool:
    """Return whether the index's head is still the commit of ``result``."""
    match result.outcome:
        case None:
            return True
        case Committed(snapshot_id=snapshot_id):
            return index.table.metadata.current_snapshot_id == snapshot_id
        case _:
            return False


def _take(site: Entering, result: WaveResult, progress: Progress) -> None:
    match result.outcome:
        case Committed(snapshot_id=snapshot_id):
            progress.snapshot_id = snapshot_id
            progress.entered |= {*result.entered}
            progress.files += result.files
            progress.entries += result.entries
        case Conflicted(reason=reason, message=message) if reason is not Reason.CONFLICTED:
            for segment in result.entered:
                progress.fail(segment, message, retryable=True)
        case Unknown(message=message):
            raise OutcomeUnknown(f"segments from {result.entered[0]} to {result.entered[-1]}: {message}")
        case _:
            pass  # planned again on the new head, or nothing of the wave could be entered
    for segment, skipped in result.skipped:
        if not skipped.vanished or _is_live(site, skipped.path):
            text = skipped.message.replace(skipped.path, "it")  # a path may be long, and the text is cut
            gone = "is missing in the storage" if skipped.vanished else f"cannot be indexed: {text}"
            progress.fail(segment, f"file {skipped.path} {gone}", retryable=False)


def _is_live(site: Entering, path: str) -> bool:
    """Return whether the table's head still has a file; one that a rewrite removed is stale, not a failure."""
    head = read_file_set(load_table(site.catalog, site.ref))
    return path in set(head.files["path"].to_pylist())


def merge_runs(
    site: Entering, index: IndexTable, due: Callable[[IndexTable], frozenset[int] | None], progress: Progress
) -> IndexTable:
    """Merge sorted runs until no tier is full; a merge that is overtaken is left to the next run. The index afterwards.

    ``due``: file ids to drop in the next merge; None: end here. Raises UnreadableIndexFile with nothing changed by the
    merge that met it, OutcomeUnknown.
    """
    for _ in range(MAX_MERGE_ROUNDS):
        dropped = due(index)
        rows = None if dropped is None else store_of(index).rows_to_merge(dropped)
        if dropped is None or rows is None:
            break
        site.tell("merging index files", progress.counts)
        outcome = store_of(index).compact(site.place(rows), dropped)
        if isinstance(outcome, Unknown):
            raise OutcomeUnknown(f"merge of index files: {outcome.message}")
        if not isinstance(outcome, Committed):
            _log.warning("index files of %s are not merged, which the next run does: %s", index.name, _why(outcome))
            break
        index = reopen_index(site.catalog, index)
    return index


def _why(outcome: Outcome | None) -> str:
    return outcome.message if isinstance(outcome, Conflicted) else "none is due any more"


def first_line(error: BaseException) -> str:
    """Return the short message of an error."""
    return next(iter(str(error).splitlines()), type(error).__name__)
