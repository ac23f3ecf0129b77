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
from skipstone_core.errors import BadSpec, DependencyUnavailable
from skipstone_core.ids import INDEX_UID_PROPERTY, OWNER_PROPERTY
from skipstone_core.reasons import Reason

from skipstone.indexes.stores.port import store_of
from skipstone.indexes.tables import index_identifier, open_index
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.catalogs import catalog_answers, open_catalog
from skipstone.tables.storage import plain_location
from skipstone.tables.upkeep.purging import Purged, purge

#: How often a table is judged that others change in between.
ROUNDS = 5


@dataclass(frozen=True)
class _Target:
    """The table to drop, and the property by which it must be ours."""

    identifier: Identifier
    owner_property: str
    owner: str
    table_uuid: str | None = None


def run_drop(request: JobRequest, reporter: Reporter) -> JobReport:
    """Purge the target of the request when its owner property is the resource's uid and no other table uses its files.

    The reason is DataDeleted (also when it was gone before) or DataRetained, whose message names the place and why.
    Raises DependencyUnavailable, also when a table of the catalog that may use the files cannot be read.
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
    """Judge the table and drop what was judged; judged again when others changed it meanwhile."""
    name = ".".join(target.identifier)
    for _ in range(ROUNDS):
        try:
            table = catalog.load_table(target.identifier)
            if not _is_ours(table, target):
                why = "was not created by this resource, or has taken the name of the table that was"
                return Reason.DATA_RETAINED, f"{name} {why}; its data is kept at {table.location()}."
            # first, while the table says where they are: what it says to be covered is looked for before it counts
            kept = _drop_entries(table)
            if done := purge(catalog, table):
                reason, message = _outcome(name, table, done)
                return (Reason.DATA_RETAINED, f"{message} {kept}") if kept else (reason, message)
        except (NoSuchTableError, NoSuchNamespaceError):
            return Reason.DATA_DELETED, f"{name} is not in the catalog."
    message = f"{name} was changed {ROUNDS} times while it was about to be dropped: stop what writes it."
    raise DependencyUnavailable(Reason.CONFLICTED, message)


def _drop_entries(table: Table) -> str:
    """Remove entries of an index that are in a store outside its table; a sentence when they stay."""
    index = open_index(table)
    kept = "" if index is None else store_of(index).drop()
    return f"{kept[:1].upper()}{kept[1:]}." if kept else ""


def _outcome(name: str, table: Table, done: Purged) -> tuple[Reason, str]:
    location = table.location()
    if done.why_kept:
        clause = "was dropped from the catalog, and its" if done.is_dropped else "is kept, and so is its"
        return Reason.DATA_RETAINED, f"{name} {clause} data at {location} was not deleted: {done.why_kept}."
    _remove_empty_folders(location)
    stays = f" {done.elsewhere} files that lie elsewhere were not written for the table and stay." * bool(
        done.elsewhere
    )
    left = f" {done.left} of its files could not be deleted; the log of the run names them." * bool(done.left)
    return Reason.DATA_DELETED, f"{name} and its data at {location} were deleted.{stays}{left}"


def _is_ours(table: Table, target: _Target) -> bool:
    same_table = target.table_uuid in (None, str(table.metadata.table_uuid))
    return same_table and table.properties.get(target.owner_property) == target.owner


def _remove_empty_folders(location: str) -> None:
    """Take away what a purge leaves on a file system; a folder that holds anything stays."""
    root = Path(plain_location(location))
    folders = [folder for folder in root.rglob("*") if folder.is_dir()] if root.is_dir() else []
    for folder in sorted(folders, reverse=True) + ([root] if root.is_dir() else []):
        if not any(folder.iterdir()):
            folder.rmdir()
