"""The head of a table as reports show it, without its indexes.

Called through ``runs.states`` at the end of every run. Must not change anything.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from skipstone_core.columntypes import is_closed_to_spark
from skipstone_core.contract.reports import MetadataMark, SegmentCounts, TableState
from skipstone_core.contract.requests import TableRef
from skipstone_core.errors import BadSpec
from skipstone_core.ids import OWNER_PROPERTY
from skipstone_core.indexing.segments import SegmentFacts, count_segments, segment_statuses
from skipstone_core.reasons import Reason

from skipstone.compat.lineage.reading import read_manifests
from skipstone.compat.pyiceberg import field_ids, summary_of
from skipstone.tables.catalogs import load_table
from skipstone.tables.decoding.completing import find_gaps
from skipstone.tables.decoding.summaries import without_bounds
from skipstone.tables.deletes import Delete
from skipstone.tables.filesets import FileSet, PinnedTable, read_file_set
from skipstone.tables.parquetfiles import DamagedFileError, WholeFile
from skipstone.tables.records.txns import partial_segments
from skipstone.tables.shaping.evolution import evolved_columns
from skipstone.tables.shaping.formats import require_mergeable
from skipstone.tables.shaping.writeproperties import property_findings
from skipstone.tables.upkeep.health import table_health

_ADDED_FILES = "added-data-files"
#: Columns that a caveat names; of more, the number.
_NAMED_COLUMNS = 5
#: Positions of one data file that are read to count them.
_COUNTED_DELETES = 1_000_000
#: 00012-<uuid>.metadata.json, or v12.metadata.json.
_VERSIONED = re.compile(r"v?([0-9]{1,12})[-.]")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ObservedHead:
    """The state of a table and, when it could be loaded, the table as it was then."""

    state: TableState
    pinned: PinnedTable | None = None


def table_state(catalog: Catalog, ref: TableRef) -> ObservedHead:
    """The state of ``ref`` and its files.

    ``problem`` is set when the table is missing, replaced or of a format that loads and merges do not write.
    Raises DependencyUnavailable when the catalog does not answer, OSError when its files cannot be read.
    """
    base = TableState(namespace=ref.namespace, name=ref.name, uid=ref.uid)
    try:
        table = load_table(catalog, ref)
    except BadSpec as error:
        return ObservedHead(_with_problem(base, error))
    files = read_file_set(table)
    state = _with_health(_describe(base, table, files), table, files, ref)
    try:
        require_mergeable(table)
    except BadSpec as error:
        state = _with_problem(state, error)
    return ObservedHead(state, PinnedTable(table, files))


def metadata_mark(table: Table) -> MetadataMark:
    """Which metadata of ``table`` is in hand."""
    named = _VERSIONED.match(table.metadata_location.rpartition("/")[2])
    return MetadataMark(
        uuid=str(table.metadata.table_uuid),
        version=int(named.group(1)) if named else 0,
        updated_ms=table.metadata.last_updated_ms,
    )


def segment_counts(table: Table, files: FileSet) -> SegmentCounts:
    """Live segments of ``files`` by status."""
    live = Counter(files.files["segment"].to_pylist())
    touched = (
        {files.files["segment"][ordinal].as_py() for ordinal in range(len(files)) if files.has_deletes(ordinal)}
        if files.delete_files
        else set()
    )
    added = _added_files(table)
    partial = partial_segments(table)
    facts = [
        SegmentFacts(
            segment=segment,
            live_files=count,
            added_files=added.get(segment),
            has_deletes=segment in touched,
            partial=segment in partial,
        )
        for segment, count in live.items()
    ]
    return count_segments(segment_statuses(facts))


def _added_files(table: Table) -> dict[int, int]:
    """Files that each retained snapshot added, by its sequence number; none for format v1, which has none."""
    counts: dict[int, int] = {}
    for snapshot in table.metadata.snapshots:
        added = summary_of(snapshot).get(_ADDED_FILES)
        if added is not None and added.isdigit() and snapshot.sequence_number:
            counts[snapshot.sequence_number] = int(added)
    return counts


def _describe(base: TableState, table: Table, files: FileSet) -> TableState:
    fields = table.schema().fields
    return TableState(
        namespace=base.namespace,
        name=base.name,
        uid=base.uid,
        table_uuid=str(table.metadata.table_uuid),
        owner=table.properties.get(OWNER_PROPERTY, ""),
        format_version=table.metadata.format_version,
        snapshot_id=str(files.snapshot_id) if files.snapshot_id is not None else "",
        sequence_number=files.sequence_number,
        rows=_rows(table, files),
        files=len(files),
        bytes=pc.sum(files.files["size"]).as_py() or 0,
        segments=segment_counts(table, files),
        columns={field.name: str(field.field_type) for field in fields},
        field_ids={field.name: field.field_id for field in fields},
        evolved_columns=evolved_columns(table),
        location=table.location(),
        metadata=metadata_mark(table),
        properties=property_findings(table),
        caveats=tuple(_caveats(table)),
    )


def _caveats(table: Table) -> Iterator[str]:
    """Yield a clause for each limit of other engines with ``table``, with the way out."""
    if gaps := find_gaps(table.metadata):
        yield (
            f"Spark and other engines that use Iceberg's Java library cannot open the table, because its metadata "
            f"lacks {', '.join(gaps)}: let Skipstone load or merge into it or compact it, which completes the metadata"
        )
    if closed := [*_closed_columns(table.schema())]:
        more = f" and {len(closed) - _NAMED_COLUMNS} more" if len(closed) > _NAMED_COLUMNS else ""
        yield (
            "Spark 4.1 with Iceberg 1.12 cannot open the table, whichever columns a query names, because of "
            f"{', '.join(closed[:_NAMED_COLUMNS])}{more}: read it with PyIceberg, or keep such values in another "
            "table, in columns of the type string or long"
        )
    yield from _skipped(table)


def _skipped(table: Table) -> Iterator[str]:
    """That other engines skip files whose manifest list lacks bounds."""
    head = table.current_snapshot()
    manifests = read_manifests(head, table.io, table.format_version) if head else []
    if skipped := without_bounds(manifests, table.io):
        yield (
            f"Spark and PyIceberg skip the files of {len(skipped)} of {len(manifests)} manifests when a query has a "
            "condition on a partition's column, because the manifest list lacks bounds: set "
            "spec.maintenance.compaction, which writes these manifests again"
        )


def _closed_columns(schema: Schema) -> Iterator[str]:
    """Columns whose types, at any depth, close a table to Spark, with these types."""
    for field in schema.fields:
        kinds = [inner.field_type for inner in field_ids(Schema(field)).values()]
        if closed := next((str(kind) for kind in kinds if is_closed_to_spark(str(kind))), None):
            yield f"{field.name} ({closed})"


def _with_health(state: TableState, table: Table, files: FileSet, ref: TableRef) -> TableState:
    """``state`` with the table's health if a policy asks for it. A failure to count it hides no state."""
    if ref.maintenance is None:
        return state
    held = int(pc.sum(files.files["records"]).as_py() or 0)
    try:
        health = table_health(table, files, ref.maintenance, held - state.rows)
    except Exception:  # noqa: BLE001 - the state is known, and no failure to judge it may replace it
        _log.warning("the health of %s.%s is not counted", ref.namespace, ref.name, exc_info=True)
        return state
    return replace(state, health=health)


def _rows(table: Table, files: FileSet) -> int:
    """Rows of live files without those that deletes of one data file name; others cannot be told apart."""
    held = int(pc.sum(files.files["records"]).as_py() or 0)
    named: dict[str, list[Delete]] = defaultdict(list)
    for delete in files.delete_files:
        if delete.only_path:
            named[delete.only_path].append(delete)
    if not named:
        return held
    live = set(files.files["path"].to_pylist())
    return max(0, held - sum(_deleted(table, deletes) for path, deletes in named.items() if path in live))


def _deleted(table: Table, deletes: Sequence[Delete]) -> int:
    """How many rows of a data file its deletes name: several of them may name the same row.

    When there are too many to read, or one is damaged, at least as many as the greatest of them names.
    """
    if vectors := [delete.file.record_count for delete in deletes if delete.is_vector]:
        return max(vectors)
    counts = [delete.file.record_count for delete in deletes]
    if len(deletes) == 1 or not all(delete.is_own for delete in deletes) or sum(counts) > _COUNTED_DELETES:
        return max(counts)
    positions: set[int] = set()
    for delete in deletes:
        try:
            with table.io.new_input(delete.file.file_path).open() as source:
                positions.update(WholeFile(source).read(["pos"]).column(0).to_pylist())
        except DamagedFileError:  # whoever reads rows says so
            return max(counts)
    return len(positions)


def _with_problem(state: TableState, error: BadSpec) -> TableState:
    values = {**vars(state), "problem": Reason(error.reason), "message": str(error)}
    return TableState(**values)
