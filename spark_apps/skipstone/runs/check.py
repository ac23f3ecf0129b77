"""The check run: can the catalog be opened and written, and the storage used as commits and sources need it?"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergNamespaceProperties, SqlCatalog
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import JobRequest
from skipstone_core.errors import BadSpec, DependencyUnavailable
from skipstone_core.reasons import Reason
from sqlalchemy import insert

from skipstone.durable import keep_first, read_first
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.catalogs import catalog_answers, open_catalog

STATE_FOLDER = ".skipstone"
RACERS = 8


def run_check(request: JobRequest, reporter: Reporter) -> JobReport:
    """Probe storage, then catalog; the reason is Checked.

    Raises BadSpec (PATH_OUTSIDE_WAREHOUSE, INVALID_SPEC), DependencyUnavailable (STORAGE_UNAVAILABLE,
    CATALOG_UNAVAILABLE).
    """
    with reporter.stage("storage"):
        check_storage(Path(request.warehouse.root), request.run_id)
    with reporter.stage("catalog"):
        catalog = open_catalog(request.warehouse)
        check_catalog(catalog)
    message = f"The catalog {catalog.name!r} and the storage at {request.warehouse.root} answered."
    return replace(reporter.base(), outcome=RunOutcome.COMMITTED, reason=Reason.CHECKED, message=message)


def check_storage(root: Path, run_id: str) -> None:
    """Write, create exclusively, read and delete a probe below ``root``. Raises BadSpec, DependencyUnavailable."""
    folder = root / STATE_FOLDER
    if folder.is_symlink() or not folder.resolve().is_relative_to(root.resolve()):
        message = f"{folder} is a symbolic link; replace it by a folder of the volume."
        raise BadSpec(Reason.PATH_OUTSIDE_WAREHOUSE, message, field="spec.storage")
    try:
        folder.mkdir(exist_ok=True)
        _probe(folder / f"probe-{run_id}")
    except OSError as error:
        message = f"The storage at {root} cannot be used: {error.strerror or error}."
        raise DependencyUnavailable(Reason.STORAGE_UNAVAILABLE, message) from error


def check_catalog(catalog: Catalog) -> None:
    """List namespaces and, for an Sql catalog, prove that it takes writes. Raises DependencyUnavailable."""
    with catalog_answers(catalog.name):
        catalog.list_namespaces()
        if isinstance(catalog, SqlCatalog):
            _probe_writes(catalog)


def _probe(folder: Path) -> None:
    """Exactly one of several racing creators may win and all must read what it wrote: so sources are pinned."""
    _remove(folder)
    offers = [f"skipstone {number}".encode() for number in range(RACERS)]
    with ThreadPoolExecutor(RACERS) as pool:
        found = set(pool.map(lambda offer: _offer(folder / "first", offer), offers))
    if len(found) != 1:
        raise OSError(f"{RACERS} creators of one file at once left {len(found)} contents instead of one")
    if not found <= set(offers):
        raise OSError("a file that was just written reads differently")
    _remove(folder)
    if folder.exists():
        raise OSError("a folder that was deleted is still there")


def _offer(path: Path, content: bytes) -> bytes:
    keep_first(path, content)
    return read_first(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _probe_writes(catalog: SqlCatalog) -> None:
    """Insert a row and roll back."""
    row = {"namespace": "skipstone.probe", "property_key": "probe", "property_value": "probe"}
    with catalog.engine.connect() as connection:
        connection.execute(insert(IcebergNamespaceProperties).values(catalog_name=catalog.name, **row))
        connection.rollback()
