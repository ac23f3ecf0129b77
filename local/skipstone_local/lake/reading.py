"""Where a program reads a table of the lake: the Warehouse as a run sees it, with paths of this machine.

The data plane reads; it is given to ``open_lake``, since this package does not import it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

from skipstone_cli.errors import CliError
from skipstone_cli.reading import JsonObject, name_of, namespace_of, text_of, texts_of
from skipstone_core.contract.requests import TableRef, WarehouseRef
from skipstone_core.errors import way_to_install
from skipstone_core.history.points import Point
from skipstone_operator.reconcilers.runs.places import build_warehouse_ref
from skipstone_operator.resources.kinds import KINDS, parse_as
from skipstone_operator.worlds.subjects import Subject

from skipstone_local.places import RootFolder
from skipstone_local.runner.mounts import Mounts

#: Of the entry point of the data plane that reads tables.
GROUP, READER = "skipstone.local", "reader"


@dataclass(frozen=True, kw_only=True)
class ReadRequest:
    """A request to read: ``where`` and ``columns`` as ``skipstone.query.read`` takes them.

    ``snapshot`` None: the current one. ``indexes`` False: by min/max only.
    """

    warehouse: WarehouseRef
    table: TableRef
    where: str | None = None
    columns: tuple[str, ...] | None = None
    snapshot: int | None = None
    indexes: bool = True


@dataclass(frozen=True, kw_only=True)
class ChangesRequest:
    """A request for the changes of a table between two points of its history, as ``skipstone.query.changes`` has it.

    ``keys`` None: those that the table itself names, if it does; empty: none.
    """

    warehouse: WarehouseRef
    table: TableRef
    since: Point
    until: Point | None = None
    keys: tuple[str, ...] | None = None
    where: str | None = None


class TableReader(Protocol):
    """The data plane, as far as tables of a lake are read. All of it raises LakeError."""

    def read(self, request: ReadRequest) -> Any:
        """The rows as a pyarrow.Table."""

    def explain(self, request: ReadRequest) -> str:
        """Return a text on the files that ``read`` of the request would read, and the indexes it would use."""

    def changes(self, request: ChangesRequest) -> Any:
        """The changes as a pyarrow.RecordBatchReader, which raises LakeError too."""

    def count_files(self, request: ReadRequest) -> tuple[int, int]:
        """How many files ``read`` of the same request would open, and how many there are."""


def find_reader() -> TableReader:
    """The data plane's reader of tables. Raises CliError."""
    entries = entry_points(group=GROUP, name=READER)
    if not entries:
        raise CliError(f"this command reads tables with the data plane of Skipstone: {way_to_install('local')}")
    reader: TableReader = next(iter(entries)).load()()
    return reader


def claim_folder(warehouse: JsonObject, root: RootFolder) -> Path | None:
    """The folder of the Warehouse's claim; None if it lives in a bucket."""
    claim = text_of(warehouse, "spec", "storage", "pvc", "claimName")
    return root.claim(namespace_of(warehouse), claim) if claim else None


def local_warehouse(warehouse: JsonObject, root: RootFolder) -> WarehouseRef:
    """The Warehouse as a run sees it on this machine. Raises ContractViolation."""
    reference = build_warehouse_ref(Subject(warehouse, parse_as(KINDS["Warehouse"], warehouse)))
    folder = claim_folder(warehouse, root)
    if folder is None:
        return reference
    mounts = Mounts({reference.root: str(folder)}, str(root.path))
    catalog = replace(reference.catalog, uri=mounts.map_text(reference.catalog.uri))
    return replace(reference, root=str(folder), catalog=catalog)


def primary_key(table: JsonObject) -> tuple[str, ...] | None:
    """The columns of the primary key that a Table declares; None if it declares none."""
    return tuple(texts_of(table, "spec", "primaryKey")) or None


def table_ref(table: JsonObject) -> TableRef:
    """The table that a Table declares."""
    return TableRef(
        namespace=text_of(table, "spec", "identifier", "namespace"),
        name=text_of(table, "spec", "identifier", "name"),
        uid=text_of(table, "metadata", "uid") or name_of(table),
        table_uuid=text_of(table, "status", "tableUuid") or None,
    )
