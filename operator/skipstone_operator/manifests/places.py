"""The places that a run reaches: the claims that its pods mount, and the variables that hold its keys.

What of the Warehouse's spec a run gets is what its request names: a load mounts no location that it does not read.
Called by ``run``; pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from skipstone_core.contract.places import BucketRef, SourceLocationRef
from skipstone_core.contract.requests import WarehouseRef

from skipstone_operator.manifests.shape import ClaimMount, SecretVariable
from skipstone_operator.resources.storage import BucketPlace, SourceLocation, bucket_of
from skipstone_operator.resources.warehouse import WarehouseSpec


def find_claims(spec: WarehouseSpec, ref: WarehouseRef) -> tuple[ClaimMount, ...]:
    """That of the Warehouse, and those of the locations that ``ref`` names, which are only read."""
    own = [ClaimMount(name="warehouse", claim=pvc.claim_name, path=ref.root) for pvc in (spec.storage.pvc,) if pvc]
    others = [
        ClaimMount(
            name=f"source-{location.name}", claim=location.pvc.claim_name, path=location_ref.root, read_only=True
        )
        for location, location_ref in _read(spec, ref)
        if location.pvc is not None
    ]
    return (*own, *others)


def find_source_claims(spec: WarehouseSpec, ref: WarehouseRef) -> tuple[ClaimMount, ...]:
    """That of the Warehouse of a source table, which is only read; mounted where its catalog says that files are."""
    pvc = spec.storage.pvc
    return (ClaimMount(name="table-source", claim=pvc.claim_name, path=ref.root, read_only=True),) if pvc else ()


def find_source_variables(spec: WarehouseSpec, ref: WarehouseRef) -> tuple[SecretVariable, ...]:
    """All credentials of the Warehouse of a source table, by names that begin with the prefix in ``ref``."""
    return (*_given(spec, ref), *_keys(bucket_of(spec.storage), ref.bucket))


def _given(spec: WarehouseSpec, ref: WarehouseRef) -> Iterator[SecretVariable]:
    if (secret := spec.credentials_secret_ref) is not None:
        for key in secret.keys:
            yield SecretVariable(name=f"{ref.credentials_prefix or ''}{key}", secret=secret.name, key=key)


def find_variables(spec: WarehouseSpec, ref: WarehouseRef) -> tuple[SecretVariable, ...]:
    """Those of spec.credentialsSecretRef by their own names, and keys of buckets by the names that ``ref`` tells."""
    read = ((bucket_of(location), location_ref) for location, location_ref in _read(spec, ref))
    places = [(bucket_of(spec.storage), ref.bucket), *((place, place_ref.bucket) for place, place_ref in read)]
    return (*_given(spec, ref), *(variable for place, place_ref in places for variable in _keys(place, place_ref)))


def _read(spec: WarehouseSpec, ref: WarehouseRef) -> Iterator[tuple[SourceLocation, SourceLocationRef]]:
    """The locations that ``ref`` names, each as it does."""
    known = {location.name: location for location in spec.source_locations}
    yield from ((known[location.name], location) for location in ref.locations if location.name in known)


def _keys(place: BucketPlace | None, ref: BucketRef | None) -> Iterator[SecretVariable]:
    if place is None or ref is None or place.credentials_secret_ref is None:
        return
    secret = place.credentials_secret_ref.name
    for key in place.KEYS:
        name = f"{ref.credentials_prefix}{key}"
        yield SecretVariable(name=name, secret=secret, key=key, optional=key in place.OPTIONAL_KEYS)
