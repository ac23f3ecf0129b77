"""The check run: can the catalog be opened and written, and the storage used as commits and sources need it?"""

from __future__ import annotations

import os
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

from skipstone.runs.report import Reporter
from skipstone.tables.catalogs import catalog_answers, open_catalog

STATE_FOLDER = ".skipstone"
RACERS = 8
_PROBE = b"skipstone"


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


def _probe(path: Path) -> None:
    """Exactly one of several racing creators may win: sources are pinned by exclusive creation."""
    path.unlink(missing_ok=True)
    with ThreadPoolExecutor(RACERS) as pool:
        wins = list(pool.map(_create_exclusively, [path] * RACERS))
    if sum(wins) != 1:
        raise OSError(f"{sum(wins)} of {RACERS} exclusive creations of one file succeeded instead of one")
    if path.read_bytes() != _PROBE:
        raise OSError("a file that was just written reads differently")
    path.unlink()
    if path.exists():
        raise OSError("a file that was deleted is still there")


def _create_exclusively(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
    except FileExistsError:
        return False
    with os.fdopen(handle, "wb") as file:
        file.write(_PROBE)
        file.flush()
        os.fsync(file.fileno())
    return True


def _probe_writes(catalog: SqlCatalog) -> None:
    """Insert a row and roll back."""
    row = {"namespace": "skipstone.probe", "property_key": "probe", "property_value": "probe"}
    with catalog.engine.connect() as connection:
        connection.execute(insert(IcebergNamespaceProperties).values(catalog_name=catalog.name, **row))
        connection.rollback()
