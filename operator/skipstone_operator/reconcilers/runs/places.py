"""The places of a run as its request names them: where its tables are, and where it reads sources.

Called where requests are built. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from skipstone_core.contract.places import SourceLocationRef
from skipstone_core.contract.requests import CatalogRef, WarehouseRef
from skipstone_core.ids import SOURCE_VARIABLES

from skipstone_operator.resources.storage import SourceLocation, bucket_of, place_fields
from skipstone_operator.resources.warehouse import WarehouseSpec
from skipstone_operator.worlds.subjects import WarehouseSubject

MOUNT_ROOT = "/skipstone"
#: Where claims of source locations are mounted, and what the names of variables with their keys begin with.
SOURCES_ROOT, LOCATION_VARIABLES = "/skipstone-sources", "SKIPSTONE_LOCATION_"


def build_warehouse_ref(warehouse: WarehouseSubject, locations: tuple[str, ...] = ()) -> WarehouseRef:
    """The Warehouse as a run that reads ``locations`` sees it."""
    return _warehouse_ref(warehouse, "", locations)


def build_source_warehouse_ref(warehouse: WarehouseSubject) -> WarehouseRef:
    """The Warehouse of a source table, which is not that of the run: its credentials have names of their own."""
    prefix = SOURCE_VARIABLES if has_own_keys(warehouse.spec) else ""
    return replace(_warehouse_ref(warehouse, prefix), credentials_prefix=SOURCE_VARIABLES)


def has_own_keys(spec: WarehouseSpec) -> bool:
    """Return whether a Secret holds the keys of the Warehouse's bucket."""
    bucket, reference = bucket_of(spec.storage), spec.credentials_secret_ref
    if bucket is None or bucket.credentials_secret_ref is not None:
        return bucket is not None
    return reference is not None and bucket.KEYS[0] in reference.keys


def _warehouse_ref(warehouse: WarehouseSubject, prefix: str, locations: tuple[str, ...] = ()) -> WarehouseRef:
    catalog, bucket = warehouse.spec.catalog, bucket_of(warehouse.spec.storage)
    read = (location for location in warehouse.spec.source_locations if location.name in locations)
    return WarehouseRef(
        name=warehouse.meta.name,
        locations=tuple(map(_location_ref, read)),
        catalog=CatalogRef(
            type=catalog.type,
            name=catalog.name,
            uri=catalog.uri,
            properties=dict(catalog.properties),
            allow_plaintext_credentials=catalog.allow_plaintext_credentials,
        ),
        index_namespace=warehouse.spec.index_namespace,
        **place_fields(bucket, prefix, root=f"{MOUNT_ROOT}/{warehouse.meta.name}"),
    )


def _location_ref(location: SourceLocation) -> SourceLocationRef:
    bucket = bucket_of(location)
    own = bucket is not None and bucket.credentials_secret_ref is not None
    prefix = f"{LOCATION_VARIABLES}{location.name.upper().replace('-', '_')}_" if own else ""
    return SourceLocationRef(name=location.name, **place_fields(bucket, prefix, root=f"{SOURCES_ROOT}/{location.name}"))
