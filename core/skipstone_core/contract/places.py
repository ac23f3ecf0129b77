"""The places that a run reaches: volumes that it mounts, and places in object stores of each kind there is.

Imported by ``requests`` and by who makes or opens places. Data only. A kind of object storage is a class here, with a
field in PlaceRef; a module of ``storage.kinds`` in the data plane opens it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from skipstone_core.errors import ContractViolation


@dataclass(frozen=True, kw_only=True)
class BucketRef:
    """A place in an object store: all keys that begin with ``prefix``. Credentials come from the environment.

    An empty ``endpoint`` is that of the store's own operator. ``credentials_prefix`` begins the names of the variables
    that hold credentials; when empty, they are found as the store's own programs find them. SCHEME: of locations of
    files, as tables name them.
    """

    SCHEME: ClassVar[str]

    bucket: str
    prefix: str = ""
    endpoint: str = ""
    credentials_prefix: str = ""

    def location(self, path: str = "") -> str:
        """Return what files of tables at ``path`` below it are called."""
        return "/".join(part for part in (f"{self.SCHEME}://{self.bucket}", self.prefix.strip("/"), path) if part)

    def is_reached_like(self, other: BucketRef) -> bool:
        """Return whether who reaches this place reaches ``other`` with the same settings and credentials."""
        apart = ("bucket", "prefix")
        names = [field.name for field in fields(self) if field.name not in apart]
        return type(self) is type(other) and all(getattr(self, name) == getattr(other, name) for name in names)


@dataclass(frozen=True, kw_only=True)
class S3Ref(BucketRef):
    """A place in an S3 bucket.

    An empty ``endpoint`` is Amazon's of ``region``; an empty region is the environment's. ``path_style_access``: the
    bucket's name is in the path of addresses, not in their host.
    """

    SCHEME: ClassVar[str] = "s3"

    region: str = ""
    path_style_access: bool = False


@dataclass(frozen=True, kw_only=True)
class PlaceRef:
    """A storage: ``root``, the absolute directory at which a claim is mounted, or a place in an object store.

    WHAT: what it is, for errors. BUCKETS: the fields that hold places in object stores.
    """

    WHAT: ClassVar[str] = "a place"
    BUCKETS: ClassVar[tuple[str, ...]] = ("s3",)

    root: str = ""
    s3: S3Ref | None = None

    @property
    def bucket(self) -> BucketRef | None:
        """The place in an object store, of whichever kind; None on a volume."""
        buckets: list[BucketRef] = [bucket for name in self.BUCKETS if (bucket := getattr(self, name)) is not None]
        return buckets[0] if buckets else None

    def __post_init__(self) -> None:
        """Raise ContractViolation unless there is exactly one storage."""
        if bool(self.root) + sum(getattr(self, name) is not None for name in self.BUCKETS) != 1:
            *others, last = ("root", *self.BUCKETS)
            raise ContractViolation(f"{self.WHAT} has exactly one storage: set one of {', '.join(others)} and {last}")


@dataclass(frozen=True, kw_only=True)
class SourceLocationRef(PlaceRef):
    """Where a run reads sources besides its Warehouse."""

    WHAT: ClassVar[str] = "a source location"

    name: str
