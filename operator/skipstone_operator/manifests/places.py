"""The places that a run reaches: the claims that its pods mount, and the variables that hold its keys.

What of the Warehouse's spec a run gets is what its request names: a load mounts no location that it does not read.
Called by ``run``; pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from skipstone_core.contract.requests import S3Ref, WarehouseRef

from skipstone_operator.manifests.shape import ClaimMount, SecretVariable
from skipstone_operator.resources.storage import BUCKET_KEYS, SESSION_TOKEN, S3Place, SourceLocation
from skipstone_operator.resources.warehouse import WarehouseSpec


def find_claims(spec: WarehouseSpec, ref: WarehouseRef) -> tuple[ClaimMount, ...]:
    """That of the Warehouse, and those of the locations that ``ref`` names, which are only read."""
    own = [ClaimMount(name="warehouse", claim=pvc.claim_name, path=ref.root) for pvc in (spec.storage.pvc,) if pvc]
    others = [
        ClaimMount(name=f"source-{location.name}", claim=location.pvc.claim_name, path=root, read_only=True)
        for location, root, _ in _read(spec, ref)
        if location.pvc is not None
    ]
    return (*own, *others)


def find_variables(spec: WarehouseSpec, ref: WarehouseRef) -> tuple[SecretVariable, ...]:
    """Those of spec.credentialsSecretRef by their own names, and keys of buckets by the names that ``ref`` tells."""
    secret = spec.credentials_secret_ref
    given = [SecretVariable(name=key, secret=secret.name, key=key) for key in secret.keys] if secret else []
    places = [(spec.storage.s3, ref.s3), *((location.s3, s3) for location, _, s3 in _read(spec, ref))]
    return (*given, *(variable for place, told in places for variable in _keys(place, told)))


def _read(spec: WarehouseSpec, ref: WarehouseRef) -> Iterator[tuple[SourceLocation, str, S3Ref | None]]:
    """The locations that ``ref`` names, each with its root and its bucket there."""
    known = {location.name: location for location in spec.source_locations}
    yield from ((known[one.name], one.root, one.s3) for one in ref.locations if one.name in known)


def _keys(place: S3Place | None, told: S3Ref | None) -> Iterator[SecretVariable]:
    if place is None or told is None or place.credentials_secret_ref is None:
        return
    secret = place.credentials_secret_ref.name
    for key in BUCKET_KEYS:
        name = f"{told.credentials_prefix}{key}"
        yield SecretVariable(name=name, secret=secret, key=key, optional=key == SESSION_TOKEN)
