"""Credentials of two Warehouses in one process: those of a job, and those of the Warehouse of its source table.

Used where catalogs are opened and source tables are loaded. The variables of the second Warehouse begin with a prefix.
Libraries look for keys under the usual names, where those of the first one are: so keys of the second one are always
given to them, and whoever has none is refused instead of being read with the keys of the other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from pyiceberg.io import AWS_ACCESS_KEY_ID, AWS_REGION, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
from pyiceberg.io import S3_ACCESS_KEY_ID as VENDED_KEY
from skipstone_core import signing
from skipstone_core.contract.requests import WarehouseRef
from skipstone_core.errors import BadSpec
from skipstone_core.reasons import Reason

from skipstone.storage.buckets.kind import all_kinds

_ACCESS, _SECRET, _TOKEN, _REGION = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION"
_KEYS = {
    _ACCESS: AWS_ACCESS_KEY_ID,
    _SECRET: AWS_SECRET_ACCESS_KEY,
    _TOKEN: AWS_SESSION_TOKEN,
    _REGION: AWS_REGION,
}
_SCHEMES = tuple(f"{scheme}://" for kind in all_kinds() for scheme in kind.schemes)
FIELD = "spec.source.table"


def environment_of(warehouse: WarehouseRef) -> Mapping[str, str]:
    """The variables that hold credentials of ``warehouse``, by their usual names."""
    prefix = warehouse.credentials_prefix
    if prefix is None:
        return os.environ
    return {name.removeprefix(prefix): value for name, value in os.environ.items() if name.startswith(prefix)}


def own_keys(warehouse: WarehouseRef, environment: Mapping[str, str]) -> dict[str, str]:
    """What PyIceberg is told of the keys of ``warehouse``, whose credentials ``environment`` holds.

    Raises BadSpec (INVALID_SPEC) when requests to its catalog would be signed with the keys of another Warehouse.
    """
    keys = {name: value for variable, name in _KEYS.items() if (value := environment.get(variable))}
    if AWS_ACCESS_KEY_ID not in keys and signing.is_signed(warehouse.catalog.properties) and _has_foreign_keys():
        raise _refused(warehouse, "its catalog, which takes signed requests,", "spec.credentialsSecretRef")
    return keys


def require_own_keys(warehouse: WarehouseRef, location: str, properties: Mapping[str, str]) -> None:
    """Refuse to read a table of ``warehouse`` at ``location`` with the keys of another Warehouse.

    ``properties``: of its FileIO. Raises BadSpec (INVALID_SPEC).
    """
    is_known = bool(properties.get(AWS_ACCESS_KEY_ID) or properties.get(VENDED_KEY))
    if location.startswith(_SCHEMES) and not is_known and _has_foreign_keys():
        raise _refused(warehouse, "its bucket", "spec.storage.s3.credentialsSecretRef")


def _has_foreign_keys() -> bool:
    return bool(os.environ.get(_ACCESS))


def _refused(warehouse: WarehouseRef, what: str, field: str) -> BadSpec:
    message = (
        f"Warehouse {warehouse.name!r}, in which the source table is, has no keys for {what} and those of the job's "
        f"Warehouse are not used for it: set {field} of Warehouse {warehouse.name!r}"
    )
    return BadSpec(Reason.INVALID_SPEC, message, field=FIELD)
