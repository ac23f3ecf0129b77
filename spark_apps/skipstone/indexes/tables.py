"""The Iceberg table of one index: find it, make it, read what it holds from its own commits.

Called by build, compaction, coverage and lookup. An index table that is gone, of another table UUID or of another
definition counts as absent. Must not read the indexed table.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from skipstone_core.contract.requests import IndexRef, Management, TableRef, WarehouseRef, levels_of
from skipstone_core.contract.stores import HBaseRef
from skipstone_core.errors import BadSpec, DependencyUnavailable
from skipstone_core.ids import index_table_name
from skipstone_core.indexing.indexes import IndexDefinition, SortedRun
from skipstone_core.reasons import Reason

from skipstone.indexes.definition import (
    COVER,
    ENTRY,
    STORE_PROPERTY,
    IndexNames,
    StoredDefinition,
    index_partition_spec,
    index_properties,
    index_schema,
    key_name,
    store_property,
    stored_definition,
)
from skipstone.tables.committing.swaps import wall_clock_ms
from skipstone.tables.filesets import FileSet, read_file_set
from skipstone.tables.namespaces import make_namespace
from skipstone.tables.upkeep.purging import Purged, drop_exactly, purge

#: Rows per row group of index files: small enough for a point lookup, large enough to compress.
ROW_GROUP_ROWS = 64 * 1024
#: Rows per page: what is decoded of a column for a few keys.
PAGE_ROWS = 2048
#: The next free file_id; never reused, so entries that a purge left behind can never mean another file.
NEXT_FILE_ID_PROPERTY = "skipstone.index.next-file-id"
#: When files of killed runs were looked for last, in milliseconds since 1970.
REMAINS_PROPERTY = "skipstone.index.remains-looked-for"
_log = logging.getLogger(__name__)


class IndexFile(NamedTuple):
    """A data file of an index table: its ordinal in the FileSet, kind, level and bucket of its partition.

    ``bucket`` None: of an index without buckets, or of entries of any bucket.
    """

    ordinal: int
    path: str
    size: int
    records: int
    sequence: int
    kind: str
    level: int
    bucket: int | None = None


@dataclass(frozen=True)
class IndexTable:
    """One snapshot of an index table.

    ``cover_rows``: the rows of small ``covers`` after their first read, since each read is a request to the storage.
    """

    table: Table
    stored: StoredDefinition
    files: FileSet
    entries: tuple[IndexFile, ...]
    covers: tuple[IndexFile, ...]
    cover_rows: list[pa.Table] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def definition(self) -> IndexDefinition:
        """Return the columns of the index."""
        return self.stored.definition

    @property
    def name(self) -> str:
        """Name of the index table."""
        return self.table.name()[-1]

    @property
    def identifier(self) -> Identifier:
        """Namespace and name of the index table."""
        return self.table.name()

    def ref(self) -> TableRef:
        """The index table as commits take it."""
        *levels, name = self.identifier
        return TableRef(
            namespace=".".join(levels),
            name=name,
            uid=self.stored.owner_uid,
            management=Management.MANAGED,
            table_uuid=str(self.table.metadata.table_uuid),
        )


def index_identifier(warehouse: WarehouseRef, ref: TableRef, index: IndexRef) -> Identifier:
    """Where the table of ``index`` lives in the catalog."""
    levels = levels_of(warehouse.index_namespace or ref.namespace)
    return (*levels, index_table_name(ref.name, index.name, index.uid))


def open_index(table: Table) -> IndexTable | None:
    """Read an index table's current snapshot; None when its properties are not those of an index of this layout."""
    stored = stored_definition(table.properties)
    if stored is None:
        return None
    files = read_file_set(table)
    index_files = _index_files(files)
    return IndexTable(
        table=table,
        stored=stored,
        files=files,
        entries=tuple(file for file in index_files if file.kind == ENTRY),
        covers=tuple(file for file in index_files if file.kind == COVER),
    )


def _index_files(files: FileSet) -> list[IndexFile]:
    distinct, of_files = files.partitions()
    partitions = [_index_partition(partition.values) for partition in distinct]
    columns = files.files.select(["path", "size", "records", "segment"]).to_pydict()
    rows = zip(of_files.tolist(), *columns.values(), strict=True)
    return [
        IndexFile(ordinal, path, size, records, sequence, *partitions[number])
        for ordinal, (number, path, size, records, sequence) in enumerate(rows)
    ]


def _index_partition(values: Sequence[object]) -> tuple[str, int, int | None]:
    """Kind, level and bucket."""
    kind, level, *bucket = values
    return str(kind), int(str(level)), next((int(str(number)) for number in bucket if number is not None), None)


def load_index_table(catalog: Catalog, identifier: Identifier) -> Table | None:
    """The table under ``identifier`` whatever it is, None when there is none; raises what the catalog raises."""
    try:
        return catalog.load_table(identifier)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None


def find_index(catalog: Catalog, identifier: Identifier, *, table_uuid: str) -> IndexTable | None:
    """The index of the table ``table_uuid``, or None when it is absent or made for another table."""
    table = load_index_table(catalog, identifier)
    index = None if table is None else open_index(table)
    return index if index is not None and index.stored.table_uuid == table_uuid else None


def reopen_index(catalog: Catalog, index: IndexTable) -> IndexTable:
    """The index's newest snapshot. Raises DependencyUnavailable when the index table is gone."""
    newest = find_index(catalog, index.identifier, table_uuid=index.stored.table_uuid)
    if newest is None:
        raise DependencyUnavailable(Reason.CATALOG_UNAVAILABLE, f"the index table {index.name} was dropped meanwhile")
    return newest


@dataclass(frozen=True, kw_only=True)
class NewIndex:
    """The parts of a new index table. ``store``: what holds its entries, None: the table itself."""

    identifier: Identifier
    definition: IndexDefinition
    names: IndexNames
    table_uuid: str
    owner_uid: str
    store: HBaseRef | None = None


#: Removes the entries of an index that are not in its table; why they stay, as a clause, or an empty text.
DropEntries = Callable[[IndexTable], str]


def create_index(catalog: Catalog, new: NewIndex, drop_entries: DropEntries) -> IndexTable:
    """Create an empty index table; one that another run made meanwhile is taken when it is the same index.

    A table of the same owner that was made for another table or definition is purged first: it is derived data.
    Raises BadSpec (RESOURCE_CONFLICT) when the name belongs to a table that is not an index.
    """
    _purge_outdated(catalog, new, drop_entries)
    make_namespace(catalog, new.identifier[:-1])
    opened = open_index(_create_or_load(catalog, new))
    if opened is None:
        message = f"{'.'.join(new.identifier)} exists and is not an index table; rename or drop it"
        raise BadSpec(Reason.RESOURCE_CONFLICT, message)
    return opened


def _create_or_load(catalog: Catalog, new: NewIndex) -> Table:
    try:
        return catalog.create_table(
            new.identifier,
            index_schema(new.definition),
            partition_spec=index_partition_spec(new.definition),
            properties={
                **_storage_properties(new.definition),
                **index_properties(new.definition, new.names, table_uuid=new.table_uuid, owner_uid=new.owner_uid),
                REMAINS_PROPERTY: str(wall_clock_ms()),
                **({} if new.store is None else {STORE_PROPERTY: store_property(new.store)}),
            },
        )
    except TableAlreadyExistsError as error:
        if (table := load_index_table(catalog, new.identifier)) is not None:
            return table
        # SQL catalogs take every refusal of a new row for a table that is there.
        raise DependencyUnavailable(Reason.CATALOG_UNAVAILABLE, "the catalog refused it") from error


def _storage_properties(definition: IndexDefinition) -> dict[str, str]:
    keys = {f"write.metadata.metrics.column.{key_name(i)}": "truncate(64)" for i in range(len(definition.columns))}
    return {
        "write.metadata.metrics.default": "none",
        "write.metadata.metrics.column.file_id": "full",
        "write.parquet.row-group-limit": str(ROW_GROUP_ROWS),
        "write.parquet.page-row-limit": str(PAGE_ROWS),
        "write.parquet.compression-codec": "zstd",
        **keys,
    }


def _purge_outdated(catalog: Catalog, new: NewIndex, drop_entries: DropEntries) -> None:
    table = load_index_table(catalog, new.identifier)
    if table is None:
        return
    stored = stored_definition(table.properties)
    if stored is None or stored.owner_uid != new.owner_uid:
        return
    if (stored.table_uuid, stored.definition) != (new.table_uuid, new.definition):
        _drop_outdated(catalog, table, drop_entries)


def _drop_outdated(catalog: Catalog, table: Table, drop_entries: DropEntries) -> None:
    """Drop an index table; its files stay where others may use them. Raises DependencyUnavailable."""
    name = ".".join(table.name())
    index = open_index(table)
    if index is not None and (kept := drop_entries(index)):
        _log.warning("the outdated index table %s is dropped, but %s", name, kept)
    try:
        done = purge(catalog, table)
    except DependencyUnavailable as error:
        done = Purged(is_dropped=False, why_kept=str(error))
    if done and done.why_kept:
        _log.warning("the files of the outdated index table %s stay: %s", name, done.why_kept)
    if done is None or not (done.is_dropped or drop_exactly(catalog, table)):
        raise DependencyUnavailable(Reason.CONFLICTED, f"the index table {name} was changed while it was replaced")


def sorted_runs(entries: tuple[IndexFile, ...]) -> dict[SortedRun, tuple[IndexFile, ...]]:
    """Entry files by sorted run: what a build wrote is a run per file, what a merge wrote is one run.

    In an index with buckets, the first files of all buckets that a build wrote count as its first run, and so on.
    """
    grouped: dict[tuple[int, int, int], list[IndexFile]] = {}
    written: Counter[tuple[int, int | None]] = Counter()
    for file in entries:
        part = written[file.sequence, file.bucket] if file.level == 0 else 0
        written[file.sequence, file.bucket] += 1
        grouped.setdefault((file.level, file.sequence, part), []).append(file)
    return {
        SortedRun(level, sequence, part, sum(file.records for file in files)): tuple(files)
        for (level, sequence, part), files in grouped.items()
    }
