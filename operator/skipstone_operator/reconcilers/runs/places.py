"""The places of a run as its request names them: where its tables are, and where it reads sources.

Called where requests are built. Pure.
"""

from __future__ import annotations

from skipstone_core.contract.places import SourceLocationRef
from skipstone_core.contract.requests import CatalogRef, WarehouseRef

from skipstone_operator.resources.storage import SourceLocation, bucket_of, place_fields
from skipstone_operator.worlds.subjects import WarehouseSubject

MOUNT_ROOT = "/skipstone"
#: Where claims of source locations are mounted, and what the names of variables with their keys begin with.
SOURCES_ROOT, LOCATION_VARIABLES = "/skipstone-sources", "SKIPSTONE_LOCATION_"


def build_warehouse_ref(warehouse: WarehouseSubject, locations: tuple[str, ...] = ()) -> WarehouseRef:
    """The Warehouse as a run that reads ``locations`` sees it."""
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
        **place_fields(bucket, root=f"{MOUNT_ROOT}/{warehouse.meta.name}"),
    )


def _location_ref(location: SourceLocation) -> SourceLocationRef:
    bucket = bucket_of(location)
    own = bucket is not None and bucket.credentials_secret_ref is not None
    prefix = f"{LOCATION_VARIABLES}{location.name.upper().replace('-', '_')}_" if own else ""
    return SourceLocationRef(name=location.name, **place_fields(bucket, prefix, root=f"{SOURCES_ROOT}/{location.name}"))
