"""The storage of a Warehouse: one of the implementations of ``port``, by what the request names.

A catalog that was opened for a Warehouse remembers its storage in its properties, for those who get a table only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache

from skipstone_core.codec import decode, encode
from skipstone_core.contract.requests import S3Ref, WarehouseRef
from skipstone_core.errors import BadSpec, ContractViolation
from skipstone_core.ids import ROOT_PROPERTY, S3_PROPERTY
from skipstone_core.reasons import Reason

from skipstone.storage.buckets.objects import ObjectStorage
from skipstone.storage.port import Storage
from skipstone.storage.volume import Volume

_MOST_OPEN = 16


def open_storage(warehouse: WarehouseRef) -> Storage:
    """Where ``warehouse`` keeps what is no file of a table. Nothing is asked of it yet."""
    return _bucket(warehouse.s3) if warehouse.s3 else Volume(warehouse.root)


def open_location(warehouse: WarehouseRef, name: str) -> Storage:
    """Where sources of the location ``name`` are; of the Warehouse itself when it is empty.

    Raises BadSpec (INVALID_SPEC) for a location that the request does not have.
    """
    if not name:
        return open_storage(warehouse)
    for one in warehouse.locations:
        if one.name == name:
            return _bucket(one.s3) if one.s3 else Volume(one.root)
    message = f"the Warehouse has no source location '{name}': add it to spec.sourceLocations or name another one"
    raise BadSpec(Reason.INVALID_SPEC, message, field="source.location")


def storage_properties(warehouse: WarehouseRef) -> dict[str, str]:
    """What a catalog of ``warehouse`` remembers for ``storage_of``."""
    return {S3_PROPERTY: json.dumps(encode(warehouse.s3))} if warehouse.s3 else {ROOT_PROPERTY: warehouse.root}


def storage_of(properties: Mapping[str, str | None]) -> Storage:
    """The storage of the Warehouse whose catalog has ``properties``. Raises ContractViolation for another catalog."""
    if root := properties.get(ROOT_PROPERTY):
        return Volume(root)
    if place := properties.get(S3_PROPERTY):
        return _bucket(decode(S3Ref, json.loads(place), strict=False))
    raise ContractViolation("a catalog that is not opened by open_catalog knows no storage for archived records")


@lru_cache(maxsize=_MOST_OPEN)
def _bucket(ref: S3Ref) -> ObjectStorage:
    """One for all who use a place: it keeps connections, and credentials until they expire."""
    return ObjectStorage(ref)
