"""What the data source reads: its options, read once, with the table pinned as it was at that moment.

Made in a worker of the driver and pickled into every other. Must not plan or read data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from skipstone_core.errors import BadSpec
from skipstone_core.language.parser import parse_predicate
from skipstone_core.language.predicates import Predicate
from skipstone_core.reasons import Reason

from skipstone.query.planner import ReadOptions
from skipstone.tables.catalogs import open_users_catalog
from skipstone.tables.decoding.metadatafiles import read_metadata
from skipstone.tables.filesets import schema_of
from skipstone.tables.storage import storage_io

_CATALOG_PREFIX = "catalog."
_KNOWN = frozenset({"path", "catalog", "filter", "columns", "snapshotid", "indexnamespace", "useindexes", "tasks"})


@dataclass(frozen=True, kw_only=True)
class PinnedSource:
    """One table as of one metadata file, and what to read of it. Picklable; credentials are in the properties."""

    name: str
    metadata_location: str
    catalog_name: str | None
    catalog_properties: Mapping[str, str] = field(repr=False)
    columns: tuple[str, ...] | None
    condition: Predicate | None
    options: ReadOptions
    tasks: int | None

    def table(self) -> Table:
        """The table as pinned. Its catalog is asked how to reach the files, now, and later for the indexes."""
        catalog = open_users_catalog(self.catalog_name, self.catalog_properties)
        identifier = tuple(self.name.split("."))
        try:
            current = catalog.load_table(identifier)
        except (NoSuchTableError, NoSuchNamespaceError):  # dropped since; its files may be there still
            properties = catalog.properties
        else:
            if current.metadata_location == self.metadata_location:
                return current
            properties = current.io.properties
        io = storage_io(properties, self.metadata_location)
        metadata = read_metadata(io.new_input(self.metadata_location))
        return Table(identifier, metadata, self.metadata_location, io, catalog)

    def schema(self, table: Table) -> Schema:
        """The schema of the snapshot that is read."""
        wanted = self.options.snapshot_id
        return schema_of(table, table.snapshot_by_id(wanted) if wanted is not None else None)


def pin_source(options: Mapping[str, str]) -> PinnedSource:
    """Read the data source's ``options`` (names in any case) and pin the table's present metadata.

    Raises BadSpec for an option that is unknown, missing or cannot be read, and what the catalog raises.
    """
    given = {name.lower(): value for name, value in options.items()}
    properties = {
        name[len(_CATALOG_PREFIX) :]: value for name, value in given.items() if name.startswith(_CATALOG_PREFIX)
    }
    _refuse_unknown(given)
    name, catalog_name = given.get("path", ""), given.get("catalog")
    snapshot_id = _integer(given, "snapshotid", "snapshotId")
    location = _metadata_location(name, catalog_name, properties, snapshot_id)
    condition = given.get("filter")
    return PinnedSource(
        name=name,
        metadata_location=location,
        catalog_name=catalog_name,
        catalog_properties=properties,
        columns=_columns(given.get("columns")),
        condition=None if condition is None else parse_predicate(condition, field="filter"),
        options=ReadOptions(
            snapshot_id=snapshot_id,
            index_namespace=given.get("indexnamespace"),
            use_indexes=_switch(given.get("useindexes", "true")),
        ),
        tasks=_integer(given, "tasks", "tasks"),
    )


def _refuse_unknown(given: Mapping[str, str]) -> None:
    for name in given:
        if name not in _KNOWN and not name.startswith(_CATALOG_PREFIX):
            known = "catalog, catalog.<property>, filter, columns, snapshotId, indexNamespace, useIndexes and tasks"
            raise BadSpec(Reason.INVALID_SPEC, f"there is no such option; there are {known}", field=name)


def _metadata_location(
    name: str, catalog_name: str | None, properties: Mapping[str, str], snapshot_id: int | None
) -> str:
    if "." not in name:
        raise BadSpec(Reason.INVALID_SPEC, f"name the table as load('namespace.table'), not {name!r}", field="path")
    try:
        table = open_users_catalog(catalog_name, properties).load_table(tuple(name.split(".")))
    except (NoSuchTableError, NoSuchNamespaceError):
        raise BadSpec(Reason.TABLE_MISSING, f"the catalog holds no table {name}", field="path") from None
    if snapshot_id is not None and table.snapshot_by_id(snapshot_id) is None:
        raise BadSpec(Reason.INVALID_SPEC, f"{name} has no snapshot {snapshot_id}", field="snapshotId")
    return table.metadata_location


def _columns(text: str | None) -> tuple[str, ...] | None:
    """``a, b`` or, for names with commas, a JSON list."""
    if text is None:
        return None
    if not text.lstrip().startswith("["):
        return tuple(part.strip() for part in text.split(","))
    try:
        names = json.loads(text)
    except ValueError:
        raise BadSpec(Reason.INVALID_SPEC, "it is neither a, b, c nor a JSON list of names", field="columns") from None
    return tuple(str(name) for name in names)


def _integer(given: Mapping[str, str], key: str, field: str) -> int | None:
    if key not in given:
        return None
    try:
        return int(given[key])
    except ValueError:
        raise BadSpec(Reason.INVALID_SPEC, f"{given[key]!r} is not a whole number", field=field) from None


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise BadSpec(Reason.INVALID_SPEC, f"{text!r} is neither true nor false", field="useIndexes")
    return text.lower() == "true"
