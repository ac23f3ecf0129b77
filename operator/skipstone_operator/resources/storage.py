"""Where a Warehouse keeps its tables, and where else it reads sources: a volume, or a place in a bucket.

Imported by the Warehouse. Data only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Protocol

from skipstone_core.contract.places import BucketRef, PlaceRef, S3Ref
from skipstone_core.merging.feeds import in_words

from skipstone_operator.resources.common import LocalRef, object_name
from skipstone_operator.resources.rules.markers import Doc, Rule

#: Keys of a Secret for S3; the last one may be absent.
ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
MAX_LOCATIONS = 16
LOCATION_NAME = "^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$"
_LEVEL = "[A-Za-z0-9_=-][A-Za-z0-9_.=-]*"
PREFIX = f"^({_LEVEL}(/{_LEVEL})*/?)?$"


#: The fields of a storage, each in the place of the others.
_PLACES = ("pvc", *PlaceRef.BUCKETS)


def exactly_one(field_name: str) -> Rule:
    """A rule for what has a volume or a place in an object store."""

    def holds(place: Any) -> bool:
        return sum(getattr(place, name) is not None for name in _PLACES) == 1

    return Rule(
        holds=holds,
        rule=f"[{', '.join(f'has(self.{name})' for name in _PLACES)}].filter(one, one).size() == 1",
        message=f"{field_name} takes exactly one of {in_words(_PLACES)}: set one of them and remove the other",
    )


def has_bucket(where: str) -> str:
    """Return in CEL whether the storage ``where`` is a place in an object store."""
    return f"({' || '.join(f'has({where}.{name})' for name in PlaceRef.BUCKETS)})"


class BucketPlace(Protocol):
    """A place in an object store of some kind. FIELD: of a storage, that holds it.

    KEYS: of its Secret, that become variables of runs; OPTIONAL_KEYS: those of them that may be absent.
    """

    FIELD: ClassVar[str]
    KEYS: ClassVar[tuple[str, ...]]
    OPTIONAL_KEYS: ClassVar[tuple[str, ...]]

    @property
    def credentials_secret_ref(self) -> LocalRef | None:
        """The Secret with its keys."""
        ...

    def ref(self, credentials_prefix: str = "") -> BucketRef:
        """Return it as requests of runs name it."""
        ...


@dataclass(frozen=True, kw_only=True)
class ClaimRef:
    """A PersistentVolumeClaim of the same namespace."""

    claim_name: Annotated[
        str,
        object_name(
            "Name of the PersistentVolumeClaim, in the same namespace; it is mounted at /skipstone/<warehouse>.",
            "claimName",
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class SourceClaimRef:
    """A PersistentVolumeClaim of the same namespace that is only read."""

    claim_name: Annotated[
        str,
        object_name(
            "Name of the PersistentVolumeClaim, in the same namespace; runs that read from it mount it read-only.",
            "claimName",
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class S3Place:
    """A place in a bucket."""

    FIELD: ClassVar[str] = "s3"
    KEYS: ClassVar[tuple[str, ...]] = (ACCESS_KEY, SECRET_KEY, SESSION_TOKEN)
    OPTIONAL_KEYS: ClassVar[tuple[str, ...]] = (SESSION_TOKEN,)

    bucket: Annotated[
        str,
        Doc(
            "Name of the bucket.",
            min_length=3,
            max_length=63,
            pattern="^[a-z0-9][a-z0-9.-]*[a-z0-9]$",
            help="s3.bucket must be the name of a bucket: lower-case letters, digits, '-' and '.', such as 'lake'",
        ),
    ]
    prefix: Annotated[
        str,
        Doc(
            "Folder in the bucket that holds everything; the whole bucket when empty.",
            max_length=512,
            pattern=PREFIX,
            help="s3.prefix must be folders with '/' between them, of letters, digits, '_', '-', '=' and '.', and none "
            "may begin with '.': write for example prod/sales",
        ),
    ] = ""
    region: Annotated[
        str,
        Doc(
            "Region of the bucket; that of the pod's environment when empty.",
            max_length=64,
            pattern="^[a-z0-9-]*$",
            help="s3.region must be the name of a region: lower-case letters, digits and '-', such as eu-central-1",
        ),
    ] = ""
    endpoint: Annotated[
        str,
        Doc(
            "Address of the server, for S3 that is not Amazon's, such as https://s3.example.org.",
            max_length=1024,
            pattern="^(https?://[^/?#@ ]+)?$",
            help="s3.endpoint must be an http:// or https:// address without user, path or parameters: write for "
            "example https://s3.example.org",
        ),
    ] = ""
    path_style_access: Annotated[
        bool, Doc("Whether the bucket's name is in the path of addresses instead of their host; MinIO needs it.")
    ] = False
    credentials_secret_ref: Annotated[
        LocalRef | None,
        Doc(
            f"Secret with the keys {ACCESS_KEY} and {SECRET_KEY}, and {SESSION_TOKEN} for credentials that have one. "
            "Without it, the default credential chain of AWS applies, such as the role of the pods' "
            "ServiceAccount."
        ),
    ] = None

    def ref(self, credentials_prefix: str = "") -> S3Ref:
        """Return it as requests of runs name it."""
        return S3Ref(
            bucket=self.bucket,
            prefix=self.prefix,
            region=self.region,
            endpoint=self.endpoint,
            path_style_access=self.path_style_access,
            credentials_prefix=credentials_prefix,
        )


#: The kinds of places in object stores.
BUCKETS: tuple[type[BucketPlace], ...] = (S3Place,)


def bucket_of(place: Storage | SourceLocation) -> BucketPlace | None:
    """Return the place in an object store, of whichever kind; None of a volume."""
    buckets: list[BucketPlace] = [bucket for name in PlaceRef.BUCKETS if (bucket := getattr(place, name)) is not None]
    return buckets[0] if buckets else None


def place_fields(place: BucketPlace | None, credentials_prefix: str = "", *, root: str) -> Mapping[str, Any]:
    """Return the field of a PlaceRef that names ``place``, or of a volume ``root``, where it is mounted."""
    return {"root": root} if place is None else {place.FIELD: place.ref(credentials_prefix)}


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Where data files live."""

    RULES: ClassVar[tuple[Rule, ...]] = (exactly_one("storage"),)

    pvc: Annotated[ClaimRef | None, Doc("The volume that holds tables, sources and the records of runs.")] = None
    s3: Annotated[S3Place | None, Doc("The place in a bucket that holds tables, sources and the records of runs.")] = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class SourceLocation:
    """A place besides the Warehouse from which jobs read."""

    RULES: ClassVar[tuple[Rule, ...]] = (exactly_one("sourceLocations[]"),)

    name: Annotated[
        str,
        Doc(
            "The name by which source.location of jobs refers to it.",
            min_length=1,
            max_length=40,
            pattern=LOCATION_NAME,
            help="sourceLocations[].name must be lower-case letters, digits and '-', such as 'landing'",
        ),
    ]
    pvc: Annotated[SourceClaimRef | None, Doc("A volume.")] = None
    s3: Annotated[
        S3Place | None,
        Doc("A place in a bucket. Without a Secret of its own, it is read with the credentials of the Warehouse."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class AuthorityRef:
    """A ConfigMap with certificates of authorities."""

    name: Annotated[str, object_name("Name of the ConfigMap, in the same namespace.", "caBundleRef.name")]
    key: Annotated[
        str,
        Doc(
            "Key of the ConfigMap that holds the certificates, in PEM.",
            min_length=1,
            max_length=253,
            pattern="^[-._a-zA-Z0-9]+$",
            help="caBundleRef.key may hold letters, digits, '-', '_' and '.' only: write for example ca.crt",
        ),
    ] = "ca.crt"


def place_text(storage: Storage) -> str:
    """The storage as statuses show it."""
    bucket = bucket_of(storage)
    if bucket is None:
        return f"pvc/{storage.pvc.claim_name}" if storage.pvc else ""
    return bucket.ref().location()
