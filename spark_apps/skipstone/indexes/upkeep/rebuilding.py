"""A full rebuild of an index in place: every live file is entered again, and older entries serve until it is.

Called by the reindex run. A rebuild is a property of the index table: the request that asked for it, and the first
file id of new entries. Each wave of the build adds newer entries of some files, whose coverage then counts
(``read_covers``); older ones leave in one commit at the end. So whatever ends a run, each file is covered by its older
entries or by its newer ones, and the next run goes on. Must not change the indexed table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from skipstone_core.errors import DependencyUnavailable, OutcomeUnknown
from skipstone_core.history.commits import Committed, Conflicted, Outcome, Unknown
from skipstone_core.reasons import Reason

from skipstone.indexes.building.build import BuildSite, nobody_else_entered, write_covers
from skipstone.indexes.coverage import Coverage, cover_files, next_file_id, read_covers
from skipstone.indexes.definition import FILE_ID_FIELD
from skipstone.indexes.stores.port import store_of
from skipstone.indexes.tables import IndexTable, reopen_index
from skipstone.tables.committing.changes import TableCommit
from skipstone.tables.committing.writing import WrittenFiles, commit_written
from skipstone.tables.filesets import pin_table

#: The full rebuild that was asked for last: a JSON object of its request, and of the first new file id while it lasts.
REBUILD_PROPERTY = "skipstone.index.rebuild"
_REQUEST, _FIRST_ID = "request", "firstFileId"


@dataclass(frozen=True)
class Rebuild:
    """A full rebuild that has not ended. ``first_id``: the first file id of entries that are not entered again."""

    request: str
    first_id: int


def _stored(index: IndexTable) -> dict[str, object]:
    try:
        stored = json.loads(index.table.properties.get(REBUILD_PROPERTY, "{}"))
    except ValueError:
        return {}
    return stored if isinstance(stored, dict) else {}


def find_rebuild(index: IndexTable) -> Rebuild | None:
    """The full rebuild that an index is in; None when it is in none."""
    stored = _stored(index)
    first_id = stored.get(_FIRST_ID)
    return Rebuild(str(stored.get(_REQUEST, "")), first_id) if isinstance(first_id, int) else None


def begun(index: IndexTable, request: str) -> dict[str, str]:
    """Properties with which the rebuild ``request`` begins; none if it is empty, or was begun or done already.

    An index without entries has nothing to build again.
    """
    if not request or _stored(index).get(_REQUEST) == request:
        return {}
    if not index.entries and not index.covers:
        return _ended(request)
    value = {_REQUEST: request, _FIRST_ID: next_file_id(index, read_covers(index))}
    return {REBUILD_PROPERTY: json.dumps(value)}


def _ended(request: str) -> dict[str, str]:
    return {REBUILD_PROPERTY: json.dumps({_REQUEST: request})}


def with_properties(catalog: Catalog, index: IndexTable, properties: Mapping[str, str]) -> IndexTable:
    """The index with other properties. Raises what the catalog raises."""
    if not properties:
        return index
    with index.table.transaction() as change:
        change.set_properties(dict(properties))
    return reopen_index(catalog, index)


def newer_coverage(coverage: Coverage, rebuild: Rebuild | None) -> Coverage:
    """What an index covers by entries that a rebuild need not enter again."""
    if rebuild is None:
        return coverage
    return Coverage(coverage.covered & (coverage.file_ids >= rebuild.first_id), coverage.file_ids)


def end_rebuild(place: Callable[[int], BuildSite], index: IndexTable, rebuild: Rebuild) -> IndexTable:
    """The index without older entries, but for those of live files that could not be entered again.

    ``place``: where so many entries are gone through. Files with older entries only go without being read. Raises
    UnreadableIndexFile with nothing changed when an entry file that must be read cannot be; OutcomeUnknown;
    DependencyUnavailable when another run committed meanwhile.
    """
    site = place(0)
    covers = read_covers(index)
    live = cover_files(site.files, covers)
    kept = {int(number) for number in live.file_ids[live.covered] if number < rebuild.first_id}
    first, last = _file_ids(index)
    older = tuple(file for file, end in zip(index.entries, last, strict=True) if end < rebuild.first_id)
    is_mixed = any(begin < rebuild.first_id <= end for begin, end in zip(first, last, strict=True))
    if kept or is_mixed:
        dropped = frozenset(range(rebuild.first_id)) - kept
        store = store_of(index)
        site = place(store.size(covers).entries)
        _require(store.compact(site, dropped), index)
        return with_properties(site.catalog, reopen_index(site.catalog, index), _ended(rebuild.request))
    newer = covers.filter(pc.greater_equal(covers["file_id"], pa.scalar(rebuild.first_id, pa.int32())))
    level = max((file.level for file in index.covers), default=0)
    removed = tuple(index.files.data_file(file.ordinal) for file in (*older, *index.covers))

    def write(written: WrittenFiles) -> TableCommit:
        return TableCommit(
            pinned=pin_table(index.table),
            added=written.note(write_covers(index, newer, site.run_id, level)),
            removed=removed,
            summary={"skipstone.run": site.run_id, "skipstone.rebuild": rebuild.request},
            properties=_ended(rebuild.request),
            guard=nobody_else_entered,
        )

    _require(commit_written(site.commit_site(index), index.table, write), index)
    return reopen_index(site.catalog, index)


def _file_ids(index: IndexTable) -> tuple[list[int], list[int]]:
    """The least and greatest file id in each entry file by its bounds; of a file without bounds it may be any."""
    bounds = index.files.bounds(FILE_ID_FIELD)
    ordinals = [file.ordinal for file in index.entries]
    first = bounds.lower.fill_null(0).take(pa.array(ordinals, pa.int64())).to_pylist()
    last = bounds.upper.fill_null(np.iinfo(np.int32).max).take(pa.array(ordinals, pa.int64())).to_pylist()
    return first, last


def _require(outcome: Outcome | None, index: IndexTable) -> None:
    match outcome:
        case Committed() | None:
            return
        case Unknown(message=message):
            raise OutcomeUnknown(f"the end of the rebuild of {index.name}: {message}")
        case Conflicted(message=message):
            raise DependencyUnavailable(Reason.CONFLICTED, f"{message}; the rebuild goes on with the next attempt")
        case _:
            raise DependencyUnavailable(Reason.CONFLICTED, f"the end of the rebuild of {index.name} was not committed")
