"""The places of a run as its request names them: where its tables are, and where it reads sources.

Called where requests are built. Pure.
"""

from __future__ import annotations

from skipstone_core.contract.requests import CatalogRef, S3Ref, SourceLocationRef, WarehouseRef

from skipstone_operator.resources.storage import S3Place, SourceLocation
from skipstone_operator.worlds.subjects import WarehouseSubject

MOUNT_ROOT = "/skipstone"
#: Where claims of source locations are mounted, and what the names of variables with their keys begin with.
SOURCES_ROOT, LOCATION_VARIABLES = "/skipstone-sources", "SKIPSTONE_LOCATION_"


def build_warehouse_ref(warehouse: WarehouseSubject, locations: tuple[str, ...] = ()) -> WarehouseRef:
    """The Warehouse as a run that reads ``locations`` sees it."""
    catalog, s3 = warehouse.spec.catalog, warehouse.spec.storage.s3
    read = (one for one in warehouse.spec.source_locations if one.name in locations)
    return WarehouseRef(
        name=warehouse.meta.name,
        root="" if s3 else f"{MOUNT_ROOT}/{warehouse.meta.name}",
        s3=_s3_ref(s3) if s3 else None,
        locations=tuple(map(_location_ref, read)),
        catalog=CatalogRef(
            type=catalog.type,
            name=catalog.name,
            uri=catalog.uri,
            properties=dict(catalog.properties),
            allow_plaintext_credentials=catalog.allow_plaintext_credentials,
        ),
        index_namespace=warehouse.spec.index_namespace,
    )


def _location_ref(location: SourceLocation) -> SourceLocationRef:
    if location.s3 is None:
        return SourceLocationRef(name=location.name, root=f"{SOURCES_ROOT}/{location.name}")
    own = location.s3.credentials_secret_ref is not None
    prefix = f"{LOCATION_VARIABLES}{location.name.upper().replace('-', '_')}_" if own else ""
    return SourceLocationRef(name=location.name, s3=_s3_ref(location.s3, prefix))


def _s3_ref(place: S3Place, credentials_prefix: str = "") -> S3Ref:
    return S3Ref(
        bucket=place.bucket,
        prefix=place.prefix,
        region=place.region,
        endpoint=place.endpoint,
        path_style_access=place.path_style_access,
        credentials_prefix=credentials_prefix,
    )
