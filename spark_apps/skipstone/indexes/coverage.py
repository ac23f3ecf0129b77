"""What an index covers: the state of an index from its own commits, and which files of a snapshot it knows.

Called by every run at its end, by reindex and by the query planner. PyIceberg and PyArrow only, no Spark.
Must not trust an index table that was made for another table or definition.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from errno import ENOENT
from io import BytesIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.typedef import Identifier
from skipstone_core.contract.reports import MAX_LISTED_SEGMENTS, IndexState, MetadataMark
from skipstone_core.contract.requests import IndexRef, TableRef, WarehouseRef
from skipstone_core.errors import BadSpec, SkipstoneError
from skipstone_core.indexing.indexes import IndexDefinition, SegmentSync, synced_up_to
from skipstone_core.reasons import Reason

from skipstone.caches import ContentCache
from skipstone.indexes.damage import DamagedFile
from skipstone.indexes.definition import (
    FAILED_PROPERTY,
    IndexNames,
    IndexShape,
    Misfit,
    define_index,
    definition_problem,
    unused_below_percent,
)
from skipstone.indexes.stores.port import store_of
from skipstone.indexes.tables import (
    NEXT_FILE_ID_PROPERTY,
    IndexFile,
    IndexTable,
    index_identifier,
    load_index_table,
    open_index,
)
from skipstone.tables.filesets import FileSet
from skipstone.tables.parquetfiles import ParquetSource, WholeFile
from skipstone.tables.states import metadata_mark

COVER_SCHEMA = pa.schema(
    [
        pa.field("file_id", pa.int32()),
        pa.field("path", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("records", pa.int64()),
        pa.field("segment", pa.int64()),
        pa.field("table_uuid", pa.string()),
        pa.field("definition", pa.string()),
    ]
)

#: Of an index whose entries are in a store: which of these are those of the file (``stores.generations``).
GENERATION = pa.field("generation", pa.string())

#: Cover files of up to so many bytes are decoded once in a process, and read once for each loaded index.
_SMALL_BYTES = 4 * 1024 * 1024
#: What a decoded cover file of one row takes, measured with 3,000 of them.
_BASE_BYTES = 8 * 1024
#: What is in them.
_covers: ContentCache[pa.Table] = ContentCache(
    "decoded cover files", 32 * 1024 * 1024, lambda rows: _BASE_BYTES + int(rows.nbytes)
)


class UnreadableIndex(SkipstoneError):
    """Metadata, a manifest or a cover file of an index is gone or damaged."""

    def __init__(self, identifier: Identifier, error: Exception) -> None:
        super().__init__(f"the index table {'.'.join(identifier)} cannot be read: {error}")
        self.is_damaged = not isinstance(error, OSError) or error.errno in (None, ENOENT)


@dataclass(frozen=True)
class Coverage:
    """Which files of one FileSet an index covers.

    ``covered``: one boolean per file. ``file_ids``: the index's number of each file, -1 where not covered.
    """

    covered: npt.NDArray[np.bool_]
    file_ids: npt.NDArray[np.int32]


def read_covers(index: IndexTable) -> pa.Table:
    """The cover rows of an index (``cover_schema``), one for each file: the newest entries count, as of a rebuild.

    Raises OSError or pa.ArrowInvalid when a cover file is unreadable.
    """
    if index.cover_rows:
        return index.cover_rows[0]
    rows = _read_cover_files(index)
    if sum(file.size for file in index.covers) <= _SMALL_BYTES:
        index.cover_rows.append(rows)
    return rows


def _read_cover_files(index: IndexTable) -> pa.Table:
    parts = [_read_cover_file(index, file) for file in index.covers]
    covers = pa.concat_tables([cover_schema(index.definition).empty_table(), *parts]).combine_chunks()
    ours = pc.and_(
        pc.equal(covers["table_uuid"], index.stored.table_uuid),
        pc.equal(covers["definition"], index.definition.digest),
    )
    return _newest(covers.filter(ours))


def cover_schema(definition: IndexDefinition) -> pa.Schema:
    """The columns of cover rows of an index."""
    return COVER_SCHEMA if definition.store is None else COVER_SCHEMA.append(GENERATION)


def _newest(covers: pa.Table) -> pa.Table:
    """The rows with the greatest file id of each path, in their order."""
    if pc.count_distinct(covers["path"]).as_py() == covers.num_rows:
        return covers
    newest = covers.group_by("path").aggregate([("file_id", "max")])["file_id_max"]
    return covers.filter(pc.is_in(covers["file_id"], value_set=newest.combine_chunks()))


def _read_cover_file(index: IndexTable, file: IndexFile) -> pa.Table:
    """Return the rows of a cover file; known content is not decoded again."""
    schema = cover_schema(index.definition)
    with index.table.io.new_input(file.path).open() as stream:
        if file.size > _SMALL_BYTES:
            return _decoded(stream, schema)
        content = stream.read()
    return _covers.get(content, lambda: _decoded(BytesIO(content), schema))


def _decoded(source: ParquetSource, schema: pa.Schema) -> pa.Table:
    return WholeFile(source).read(schema.names).cast(schema)


def read_index(catalog: Catalog, identifier: Identifier, table_uuid: str) -> tuple[IndexTable | None, pa.Table]:
    """The index of the table ``table_uuid`` (None when there is none) and its cover rows.

    Raises UnreadableIndex, and what the catalog raises.
    """
    try:
        table = load_index_table(catalog, identifier)
    except (FileNotFoundError, ValidationError, ValueError) as error:  # metadata that is gone, or no metadata
        raise UnreadableIndex(identifier, error) from error
    try:
        index = None if table is None else open_index(table)
        if index is None or index.stored.table_uuid != table_uuid:
            return None, COVER_SCHEMA.empty_table()
        return index, read_covers(index)
    except Exception as error:
        raise UnreadableIndex(identifier, error) from error


def cover_files(files: FileSet, covers: pa.Table) -> Coverage:
    """Match the files of a snapshot with cover rows by path, size and records."""
    if covers.num_rows == 0 or len(files) == 0:
        return Coverage(np.zeros(len(files), np.bool_), np.full(len(files), -1, np.int32))
    row = pc.index_in(files.files["path"], value_set=covers["path"].combine_chunks())
    known = pc.is_valid(row)
    row = pc.fill_null(row, 0)
    same = [pc.equal(files.files[name], pc.take(covers[name], row)) for name in ("size", "records")]
    covered = _numpy(pc.and_(known, pc.and_(*same))).astype(np.bool_)
    file_ids = np.where(covered, _numpy(pc.take(covers["file_id"], row)), -1).astype(np.int32)
    return Coverage(covered, file_ids)


def _numpy(values: pa.ChunkedArray) -> npt.NDArray[np.generic]:
    array: npt.NDArray[np.generic] = values.to_numpy()
    return array


def next_file_id(index: IndexTable, covers: pa.Table) -> int:
    """The first free file_id."""
    greatest = pc.max(covers["file_id"]).as_py()
    remembered = int(index.table.properties.get(NEXT_FILE_ID_PROPERTY, "0"))
    return max(remembered, 0 if greatest is None else int(greatest) + 1)


@dataclass(frozen=True)
class SeenIndex:
    """How far an index covers a snapshot, as status shows it; and what was read of it, no table when it is none."""

    state: IndexState
    table: IndexTable | None = None
    covers: pa.Table = field(default_factory=COVER_SCHEMA.empty_table)


def see_index(catalog: Catalog, warehouse: WarehouseRef, ref: TableRef, files: FileSet, index: IndexRef) -> SeenIndex:
    """``index`` and how far it covers the snapshot of ``files``, the head of ``ref``.

    An unreadable index counts as covering nothing, files whose entries are damaged as missing, both with a message.
    Raises what the catalog raises.
    """
    identifier = index_identifier(warehouse, ref, index)
    try:
        index_table, covers = read_index(catalog, identifier, files.table_uuid)
        damage = _damage(identifier, index_table, covers)
    except UnreadableIndex as error:
        reason = Reason.INDEX_DAMAGED if error.is_damaged else Reason.STORAGE_UNAVAILABLE
        state = replace(_counts(files, _nothing(files), index), exists=True)
        return SeenIndex(_with_problem(state, Misfit(reason, f"{error}; it counts as empty")))
    if index_table is None:
        return SeenIndex(_with_problem(_counts(files, _nothing(files), index), _spec_problem(files.schema, index)))
    sound = _sound_covers(index_table, covers, damage)
    state = _with_size(_counts(files, cover_files(files, sound), index, index_table), index_table, covers)
    problem = definition_problem(files.schema, index_table.stored) or _damage_problem(damage)
    return SeenIndex(_with_problem(state, problem), index_table, covers)


def _damage(identifier: Identifier, index_table: IndexTable | None, covers: pa.Table) -> tuple[DamagedFile, ...]:
    try:
        return store_of(index_table).find_damage(covers) if index_table else ()
    except OSError as error:
        raise UnreadableIndex(identifier, error) from error


def _sound_covers(index: IndexTable, covers: pa.Table, damage: Sequence[DamagedFile]) -> pa.Table:
    """The cover rows whose entries can be read."""
    return covers.filter(pa.array(store_of(index).plan_withdrawal(covers, damage).is_covered)) if damage else covers


def _damage_problem(damage: Sequence[DamagedFile]) -> Misfit | None:
    if not damage:
        return None
    others = f" (and {len(damage) - 1} other files)" if len(damage) > 1 else ""
    return Misfit(Reason.INDEX_DAMAGED, f"{damage[0]}{others}; the next reindex builds its segments again")


def _nothing(files: FileSet) -> Coverage:
    return cover_files(files, COVER_SCHEMA.empty_table())


def _spec_problem(schema: Schema, index: IndexRef) -> Misfit | None:
    try:
        define_index(schema, IndexNames(index.columns, index.include), IndexShape(index.parameters, index.store))
    except BadSpec as error:
        return Misfit(error.reason, str(error))
    return None


def _with_problem(state: IndexState, problem: Misfit | None) -> IndexState:
    return state if problem is None else replace(state, degraded=problem.reason, message=problem.message)


def _counts(files: FileSet, coverage: Coverage, index: IndexRef, index_table: IndexTable | None = None) -> IndexState:
    segments = segment_coverage(files, coverage)
    missing = [segment.segment for segment in segments if not segment.is_synced]
    failed = {} if index_table is None else failed_segments(index_table)
    shown = [(segment, failed[segment]) for segment in missing if segment in failed]
    records = files.files["records"].to_numpy()
    return IndexState(
        uid=index.uid,
        name=index.name,
        segments_total=len(segments),
        segments_synced=len(segments) - len(missing),
        segments_missing=len(missing),
        segments_failed=len(shown),
        missing_segments=tuple(missing[:MAX_LISTED_SEGMENTS]),
        files_live=len(files),
        files_covered=int(coverage.covered.sum()),
        rows_live=int(records.sum()),
        rows_covered=int(records[coverage.covered].sum()),
        synced_sequence_number=synced_up_to(segments),
        exists=index_table is not None,
        degraded=Reason.SEGMENTS_FAILED if shown else None,
        message=f"segment {shown[0][0]}: {shown[0][1]}" if shown else "",
        metadata=MetadataMark() if index_table is None else metadata_mark(index_table.table),
        unused_below_percent=0 if index_table is None else unused_below_percent(index_table.table.properties),
    )


def _with_size(state: IndexState, index_table: IndexTable, covers: pa.Table) -> IndexState:
    size = store_of(index_table).size(covers)
    nbytes = size.bytes + sum(file.size for file in index_table.covers)
    store = index_table.stored.store
    settings = "" if store is None else store.settings
    return replace(state, entries=size.entries, bytes=nbytes, rows_to_merge=size.rows_to_merge, store=settings)


def segment_coverage(files: FileSet, coverage: Coverage) -> list[SegmentSync]:
    """Every live segment, oldest first."""
    segments, position = np.unique(files.files["segment"].to_numpy(), return_inverse=True)
    live = np.bincount(position, minlength=len(segments))
    covered = np.bincount(position, weights=coverage.covered, minlength=len(segments))
    return [SegmentSync(int(segment), bool(n == c)) for segment, n, c in zip(segments, live, covered, strict=True)]


def failed_segments(index: IndexTable) -> dict[int, str]:
    """Segments that the last reindex could not enter, with the reason."""
    try:
        failed = json.loads(index.table.properties.get(FAILED_PROPERTY, "{}"))
        return {int(segment): str(message) for segment, message in failed.items()}
    except (ValueError, AttributeError):
        return {}
