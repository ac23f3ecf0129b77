"""S3, and what speaks as it does.

Keys are read from the environment when they are needed, and stand in nothing that is kept, shown or sent: which
variables hold those of a place, and what Hadoop's S3A is told of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from obstore.store import S3Store
from pyiceberg.io import S3_ENDPOINT, S3_FORCE_VIRTUAL_ADDRESSING, S3_REGION
from skipstone_core.contract.places import BucketRef, S3Ref
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.reasons import Reason

from skipstone.storage.buckets.access import CA_VARIABLE
from skipstone.storage.buckets.kind import Asked, Permissions, StoreKind, Words, of_its_own

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig, S3Config, S3Credential

_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
ACCESS, SECRET, TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
#: What servers other than Amazon's take when nobody says which region they are.
ANY_REGION = "us-east-1"
_S3A = "org.apache.hadoop.fs.s3a"
#: As Amazon's own programs find keys: variables, web identity, and the roles of containers and machines.
_DEFAULT_CHAIN = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"


def _store(place: BucketRef, retries: RetryConfig | None) -> ObjectStore:
    ref = cast(S3Ref, place)
    endpoint = ref.endpoint
    if endpoint and not ref.path_style_access:
        parts = urlsplit(endpoint)
        endpoint = parts._replace(netloc=f"{ref.bucket}.{parts.netloc}").geturl()
    given: S3Config = {"virtual_hosted_style_request": not ref.path_style_access, "disable_bulk_delete": True}
    if endpoint:
        given["endpoint"] = endpoint
    if region := _region_of(ref):
        given["region"] = region
    client: ClientConfig = {"allow_http": endpoint.startswith("http://")}
    if bundle := os.environ.get(CA_VARIABLE):
        client["root_certificate"] = Path(bundle).read_bytes()
    return S3Store(
        ref.bucket,
        config=given,
        prefix=ref.prefix.strip("/") or None,
        retry_config=retries,
        client_options=client,
        credential_provider=_own_keys(ref) if ref.credentials_prefix else None,
    )


def _region_of(ref: S3Ref) -> str:
    """The region of a place; empty when it is Amazon that has to be asked."""
    known = (f"{prefix}{name}" for prefix in (ref.credentials_prefix, "") for name in _REGIONS)
    region = ref.region or next(filter(None, map(os.environ.get, known)), "")
    return region or (ANY_REGION if ref.endpoint else "")


def _own_keys(ref: S3Ref) -> Callable[[], S3Credential]:
    """What finds the keys of a place that has its own. It raises DependencyUnavailable when there are none."""
    names = [f"{ref.credentials_prefix}{name}" for name in (ACCESS, SECRET, TOKEN)]

    def keys() -> S3Credential:
        access, secret, token = (os.environ.get(name) for name in names)
        if not access or not secret:
            raise DependencyUnavailable(
                Reason.STORAGE_UNAVAILABLE,
                f"there are no credentials for bucket '{ref.bucket}': set {ACCESS} and {SECRET} in its Secret",
            )
        return {"access_key_id": access, "secret_access_key": secret, "token": token, "expires_at": None}

    keys()
    return keys


def _s3a_settings(ref: S3Ref) -> Mapping[str, str]:
    """The settings of S3A for the bucket of ``ref``. The JVM finds keys by the names of their variables."""
    settings = {
        "endpoint": ref.endpoint,
        "endpoint.region": _region_of(ref),
        "path.style.access": str(ref.path_style_access).lower(),
        "connection.ssl.enabled": str(not ref.endpoint.startswith("http://")).lower(),
        "input.stream.type": "classic",
        "change.detection.mode": "server",
        "change.detection.source": "etag",
        **_keys(ref),
    }
    return {f"fs.s3a.bucket.{ref.bucket}.{name}": value for name, value in settings.items() if value}


def _keys(ref: S3Ref) -> Mapping[str, str]:
    if not ref.credentials_prefix:
        return {"aws.credentials.provider": _DEFAULT_CHAIN}
    access, secret, token = (f"{ref.credentials_prefix}{name}" for name in (ACCESS, SECRET, TOKEN))
    provider = "TemporaryAWSCredentialsProvider" if os.environ.get(token) else "SimpleAWSCredentialsProvider"
    settings = {
        "aws.credentials.provider": f"{_S3A}.{provider}",
        "access.key": f"${{env.{access}}}",
        "secret.key": f"${{env.{secret}}}",
    }
    return {**settings, "session.token": f"${{env.{token}}}"} if os.environ.get(token) else settings


def _file_io(ref: S3Ref) -> Mapping[str, str]:
    settings = {S3_ENDPOINT: ref.endpoint, S3_REGION: _region_of(ref)}
    settings[S3_FORCE_VIRTUAL_ADDRESSING] = str(not ref.path_style_access).lower()
    return {name: value for name, value in settings.items() if value}


_KEYS = {
    "InvalidAccessKeyId": "it does not know the access key: set the keys of the Secret to those of the bucket's owner",
    "SignatureDoesNotMatch": "the secret is not that of the access key: fix AWS_SECRET_ACCESS_KEY in the Secret",
    "ExpiredToken": "the credentials expired: the next attempt takes new ones",
    "RequestTimeTooSkewed": "its clock differs from the node's: set the node's clock",
}
_PERMISSIONS = {
    Asked.READ: Permissions(of_objects="s3:GetObject"),
    # Who may not list a bucket is refused to look at what is not there.
    Asked.LOOK: Permissions(of_objects="s3:GetObject", of_bucket="s3:ListBucket"),
    Asked.WRITE: Permissions(of_objects="s3:PutObject"),
    Asked.DELETE: Permissions(of_objects="s3:DeleteObject"),
    Asked.LIST: Permissions(of_bucket="s3:ListBucket"),
}
KIND = StoreKind(
    ref=S3Ref,
    schemes=("s3", "s3a", "s3n"),
    store=_store,
    hadoop_scheme="s3a",
    hadoop_settings=of_its_own(_s3a_settings),
    file_io=of_its_own(_file_io),
    words=Words(
        name="Amazon S3",
        endpoint="an S3 endpoint",
        keys=_KEYS,
        no_credentials="there are no credentials: name a Secret with AWS_ACCESS_KEY_ID, or give the service account a "
        "role; those that a catalog vends are for files of its tables only",
        permissions=_PERMISSIONS,
        resource="arn:aws:s3:::",
    ),
    is_direct=True,
)
