"""The drop run: purge a table or one index table, if it is ours. What is not ours is kept, and said to be kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import DropTask, JobRequest, TableRef
from skipstone_core.errors import BadSpec
from skipstone_core.ids import INDEX_UID_PROPERTY, OWNER_PROPERTY
from skipstone_core.reasons import Reason

from skipstone.indexes.tables import index_identifier
from skipstone.runs.registering.purging import purge
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.catalogs import catalog_answers, open_catalog
from skipstone.tables.upkeep.places import own_data_folders


@dataclass(frozen=True)
class _Target:
    """What to drop and by which property it must be ours."""

    identifier: Identifier
    owner_property: str
    owner: str
    table_uuid: str | None = None


def run_drop(request: JobRequest, reporter: Reporter) -> JobReport:
    """Purge the target of the request when its owner property is the resource's uid.

    The reason is DataDeleted (also when it was gone before) or DataRetained, whose message names the place.
    Raises DependencyUnavailable.
    """
    if request.table is None or request.drop is None:
        raise BadSpec(Reason.INVALID_SPEC, "a drop run needs a table.", field="request")
    catalog = open_catalog(request.warehouse)
    target = _target(request, request.table, request.drop)
    with reporter.stage("drop"), catalog_answers(catalog.name):
        reason, message = _drop(catalog, target)
    return replace(reporter.base(), outcome=RunOutcome.COMMITTED, reason=reason, message=message)


def _target(request: JobRequest, ref: TableRef, task: DropTask) -> _Target:
    if task.index is None:
        return _Target(ref.identifier, OWNER_PROPERTY, ref.uid, ref.table_uuid)
    identifier = index_identifier(request.warehouse, ref, task.index)
    return _Target(identifier, INDEX_UID_PROPERTY, task.index.uid)


def _drop(catalog: Catalog, target: _Target) -> tuple[Reason, str]:
    name = ".".join(target.identifier)
    try:
        table = catalog.load_table(target.identifier)
        if not _is_ours(table, target):
            return (
                Reason.DATA_RETAINED,
                f"{name} was not created by this resource; its data is kept at {table.location()}.",
            )
        kept = purge(catalog, table, own_data_folders(table))
    except (NoSuchTableError, NoSuchNamespaceError):
        return Reason.DATA_DELETED, f"{name} is not in the catalog."
    _remove_empty_folders(table.location())
    said = f" {kept} files that lie elsewhere were not written for the table and stay." if kept else ""
    return Reason.DATA_DELETED, f"{name} and its data at {table.location()} were deleted.{said}"


def _is_ours(table: Table, target: _Target) -> bool:
    same_table = target.table_uuid in (None, str(table.metadata.table_uuid))
    return same_table and table.properties.get(target.owner_property) == target.owner


def _remove_empty_folders(location: str) -> None:
    """Take away what a purge leaves on a file system; a folder that holds anything stays."""
    root = Path(location.removeprefix("file://"))
    folders = [folder for folder in root.rglob("*") if folder.is_dir()] if root.is_dir() else []
    for folder in sorted(folders, reverse=True) + ([root] if root.is_dir() else []):
        if not any(folder.iterdir()):
            folder.rmdir()
