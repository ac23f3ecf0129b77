"""The check run: can the catalog be opened and written, and the storage used as commits and sources need it?"""

from __future__ import annotations

from dataclasses import replace

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergNamespaceProperties, SqlCatalog
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import JobRequest, WarehouseRef
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.reasons import Reason
from sqlalchemy import insert

from skipstone.runs.reporting.report import Reporter
from skipstone.storage.opening import open_location, open_storage
from skipstone.storage.port import Storage
from skipstone.tables.catalogs import catalog_answers, open_catalog


def run_check(request: JobRequest, reporter: Reporter) -> JobReport:
    """Probe storage, then catalog; the reason is Checked.

    Raises BadSpec (PATH_OUTSIDE_WAREHOUSE, INVALID_SPEC), DependencyUnavailable (STORAGE_UNAVAILABLE,
    CATALOG_UNAVAILABLE).
    """
    storage = open_storage(request.warehouse)
    with reporter.stage("storage"):
        check_storage(storage, request.run_id)
        for location in request.warehouse.locations:
            check_location(request.warehouse, location.name)
    with reporter.stage("catalog"):
        catalog = open_catalog(request.warehouse)
        check_catalog(catalog)
    message = f"The catalog {catalog.name!r} and the storage at {storage.where()} answered."
    return replace(reporter.base(), outcome=RunOutcome.COMMITTED, reason=Reason.CHECKED, message=message)


def check_storage(storage: Storage, run_id: str) -> None:
    """Prove with a probe that ``storage`` does what runs need. Raises BadSpec, DependencyUnavailable."""
    storage.probe(f"probe-{run_id}")


def check_location(warehouse: WarehouseRef, name: str) -> None:
    """Prove that sources can be listed and read. Raises DependencyUnavailable, naming the location."""
    try:
        open_location(warehouse, name).probe_reading()
    except DependencyUnavailable as error:
        raise DependencyUnavailable(error.reason, f"the source location '{name}': {error}") from error


def check_catalog(catalog: Catalog) -> None:
    """List namespaces and, for an Sql catalog, prove that it takes writes. Raises DependencyUnavailable."""
    with catalog_answers(catalog.name):
        catalog.list_namespaces()
        if isinstance(catalog, SqlCatalog):
            _probe_writes(catalog)


def _probe_writes(catalog: SqlCatalog) -> None:
    """Insert a row and roll back."""
    row = {"namespace": "skipstone.probe", "property_key": "probe", "property_value": "probe"}
    with catalog.engine.connect() as connection:
        connection.execute(insert(IcebergNamespaceProperties).values(catalog_name=catalog.name, **row))
        connection.rollback()
