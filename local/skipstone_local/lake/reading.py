"""Where a program reads a table of the lake: the Warehouse as a run sees it, with paths of this machine.

The data plane reads; it is given to ``open_lake``, since this package does not import it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from skipstone_cli.reading import JsonObject, name_of, namespace_of, text_of
from skipstone_core.contract.requests import TableRef, WarehouseRef
from skipstone_operator.reconcilers.runs.places import build_warehouse_ref
from skipstone_operator.resources.kinds import KINDS, parse_as
from skipstone_operator.worlds.subjects import Subject

from skipstone_local.places import RootFolder
from skipstone_local.runner.mounts import Mounts


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


class TableReader(Protocol):
    """The data plane, as far as tables of a lake are read. All of it raises LakeError."""

    def read(self, request: ReadRequest) -> Any:
        """The rows as a pyarrow.Table."""

    def explain(self, request: ReadRequest) -> str:
        """Return a text on the files that ``read`` of the request would read, and the indexes it would use."""

    def count_files(self, request: ReadRequest) -> tuple[int, int]:
        """How many files ``read`` of the same request would open, and how many there are."""


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


def table_ref(table: JsonObject) -> TableRef:
    """The table that a Table declares."""
    return TableRef(
        namespace=text_of(table, "spec", "identifier", "namespace"),
        name=text_of(table, "spec", "identifier", "name"),
        uid=text_of(table, "metadata", "uid") or name_of(table),
        table_uuid=text_of(table, "status", "tableUuid") or None,
    )
