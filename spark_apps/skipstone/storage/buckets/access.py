"""How object stores are reached: which variables hold the keys of a place, and what Hadoop's S3A is told of it.

Keys are read from the environment when they are needed, and stand in nothing that is kept, shown or sent.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from skipstone_core.contract.requests import S3Ref
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.reasons import Reason

if TYPE_CHECKING:
    from obstore.store import S3Credential

ACCESS, SECRET, TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
#: Names a file with the certificates of authorities that are trusted besides the system's.
CA_VARIABLE = "SKIPSTONE_CA_BUNDLE"
#: What servers other than Amazon's take when nobody says which region they are.
ANY_REGION = "us-east-1"
_S3A = "org.apache.hadoop.fs.s3a"


def ca_file() -> str:
    """The file with the certificates of all authorities that are trusted; empty for the system's.

    The image's entrypoint makes it of the system's and those that the Warehouse adds.
    """
    return os.environ.get("SSL_CERT_FILE", "") if os.environ.get(CA_VARIABLE) else ""


def region_of(ref: S3Ref) -> str:
    """The region of a place; empty when it is Amazon that has to be asked."""
    told = ref.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return told or (ANY_REGION if ref.endpoint else "")


def own_keys(ref: S3Ref) -> Callable[[], S3Credential]:
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


def s3a_settings(ref: S3Ref) -> Mapping[str, str]:
    """The settings of S3A for the bucket of ``ref``. The JVM finds keys by the names of their variables."""
    told = {
        "endpoint": ref.endpoint,
        "endpoint.region": region_of(ref),
        "path.style.access": str(ref.path_style_access).lower(),
        "connection.ssl.enabled": str(not ref.endpoint.startswith("http://")).lower(),
        "input.stream.type": "classic",
        "change.detection.mode": "server",
        "change.detection.source": "etag",
        **_keys(ref),
    }
    return {f"fs.s3a.bucket.{ref.bucket}.{name}": value for name, value in told.items() if value}


def _keys(ref: S3Ref) -> Mapping[str, str]:
    if not ref.credentials_prefix:
        return {"aws.credentials.provider": _DEFAULT_CHAIN}
    access, secret, token = (f"{ref.credentials_prefix}{name}" for name in (ACCESS, SECRET, TOKEN))
    provider = "TemporaryAWSCredentialsProvider" if os.environ.get(token) else "SimpleAWSCredentialsProvider"
    told = {
        "aws.credentials.provider": f"{_S3A}.{provider}",
        "access.key": f"${{env.{access}}}",
        "secret.key": f"${{env.{secret}}}",
    }
    return {**told, "session.token": f"${{env.{token}}}"} if os.environ.get(token) else told


#: As Amazon's own programs find them: variables, web identity, and the roles of containers and machines.
_DEFAULT_CHAIN = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
