"""The storage of a Warehouse: one of the implementations of ``port``, by what the request names.

A catalog that was opened for a Warehouse remembers its storage in its properties, for those who get a table only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache

from skipstone_core.codec import decode, encode
from skipstone_core.contract.places import BucketRef, PlaceRef
from skipstone_core.contract.requests import WarehouseRef
from skipstone_core.errors import BadSpec, ContractViolation
from skipstone_core.ids import BUCKET_PROPERTY, ROOT_PROPERTY
from skipstone_core.reasons import Reason

from skipstone.storage.buckets.objects import ObjectStorage
from skipstone.storage.port import Storage
from skipstone.storage.volume import Volume

_MOST_OPEN = 16


def open_storage(warehouse: WarehouseRef) -> Storage:
    """Where ``warehouse`` keeps what is not a file of a table. Nothing is asked of it yet."""
    return _opened(warehouse)


def open_location(warehouse: WarehouseRef, name: str) -> Storage:
    """Where sources of the location ``name`` are; of the Warehouse itself when it is empty.

    Raises BadSpec (INVALID_SPEC) for a location that the request does not have.
    """
    if not name:
        return open_storage(warehouse)
    for location in warehouse.locations:
        if location.name == name:
            return _opened(location)
    message = f"the Warehouse has no source location '{name}': add it to spec.sourceLocations or name another one"
    raise BadSpec(Reason.INVALID_SPEC, message, field="source.location")


def storage_properties(warehouse: WarehouseRef) -> dict[str, str]:
    """Return the properties that a catalog of ``warehouse`` keeps for ``storage_of``."""
    places = ((name, getattr(warehouse, name)) for name in PlaceRef.BUCKETS)
    properties = {
        BUCKET_PROPERTY.format(name): json.dumps(encode(place)) for name, place in places if place is not None
    }
    return properties or {ROOT_PROPERTY: warehouse.root}


def storage_of(properties: Mapping[str, str | None]) -> Storage:
    """The storage of the Warehouse whose catalog has ``properties``. Raises ContractViolation for another catalog."""
    if root := properties.get(ROOT_PROPERTY):
        return Volume(root)
    for name in PlaceRef.BUCKETS:
        if place := properties.get(BUCKET_PROPERTY.format(name)):
            return _opened(decode(PlaceRef, {name: json.loads(place)}, strict=False))
    raise ContractViolation("a catalog that is not opened by open_catalog knows no storage for archived records")


def _opened(place: PlaceRef) -> Storage:
    return Volume(place.root) if place.bucket is None else _bucket(place.bucket)


@lru_cache(maxsize=_MOST_OPEN)
def _bucket(ref: BucketRef) -> ObjectStorage:
    """One for all who use a place: it keeps connections, and credentials until they expire."""
    return ObjectStorage(ref)
