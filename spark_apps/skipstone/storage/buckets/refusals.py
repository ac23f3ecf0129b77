"""What an object store answers in place of what it was asked for, as sentences for people.

Only the status and the code of an answer are told: the rest of it may name access keys and what was signed with them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from skipstone_core.contract.requests import S3Ref
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.reasons import Reason

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_TRANSPORT = re.compile(r" in [\d.]+\S{1,3} - ([^<\n]{1,120})")
#: Where a pod of Amazon's gets credentials when it is given none.
_NO_CREDENTIALS = re.compile(r"169\.254\.|latest/api/token|InvalidGCSCredentials|CredentialsNotLoaded")
_NO_PATH = re.compile(r"empty path segment|illegal character sequence|parse path", re.IGNORECASE)
#: What tells of them stands behind the first line.
_UNTRUSTED = re.compile(r"invalid peer certificate|InvalidCertificate")
_TRUST = "no trusted authority signed its certificate: add the authority that did to the Warehouse"
#: Signs in the first line of an error, and what to do.
_SIGNS = (
    (
        _NO_CREDENTIALS,
        "there are no credentials: name a Secret with AWS_ACCESS_KEY_ID, or give the service account a role; those "
        "that a catalog vends are for files of its tables only",
    ),
    (
        _NO_PATH,
        "an object has a name that is no path: rename objects with an empty part, '.', '..' or a line break",
    ),
)
_REGION = frozenset({"AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException"})
_KEYS = {
    "InvalidAccessKeyId": "it does not know the access key: set the keys of the Secret to those of the bucket's owner",
    "SignatureDoesNotMatch": "the secret is not that of the access key: fix AWS_SECRET_ACCESS_KEY in the Secret",
    "ExpiredToken": "the credentials expired: the next attempt takes new ones",
    "RequestTimeTooSkewed": "its clock differs from the node's: set the node's clock",
}


@dataclass(frozen=True)
class Asked:
    """What an object store was asked to do: ``verb`` for people, and the permissions that it takes.

    ``of_objects``: on the objects below the prefix, ``of_bucket``: on the bucket; empty for none.
    """

    verb: str
    of_objects: str = ""
    of_bucket: str = ""


READ = Asked("read", of_objects="s3:GetObject")
#: Who may not list a bucket is refused to look at what is not there.
LOOK = Asked("look at", of_objects="s3:GetObject", of_bucket="s3:ListBucket")
WRITE = Asked("write", of_objects="s3:PutObject")
DELETE = Asked("delete", of_objects="s3:DeleteObject")
LIST = Asked("list", of_bucket="s3:ListBucket")


def status_of(error: Exception) -> int:
    """The status of the answer behind ``error``; 0 when there was none."""
    found = _STATUS.search(_first_line(error))
    return int(found[1]) if found else 0


def code_of(error: Exception) -> str:
    """The code of S3 in the answer behind ``error``; empty when there was none."""
    found = _CODE.search(_first_line(error))
    return found[1] if found else ""


def is_about_keys(error: Exception) -> bool:
    """Whether the answer says what is wrong with the keys, or with the clock that signed."""
    return code_of(error) in _KEYS


def is_about_names(error: Exception) -> bool:
    """Whether a listing was given, and holds the name of an object that is no path."""
    return bool(_NO_PATH.search(_first_line(error)))


def place_of(ref: S3Ref, path: str = "") -> str:
    """A bucket with its prefix, or a file in it, and the endpoint, as people call it."""
    address = "/".join(part for part in (f"s3://{ref.bucket}", ref.prefix.strip("/"), path) if part)
    return f"{address} at {ref.endpoint}" if ref.endpoint else address


def refusal(ref: S3Ref, asked: Asked, path: str, error: Exception) -> DependencyUnavailable:
    """``error`` as a sentence that names bucket, endpoint, what was asked, and what to do."""
    status, code = status_of(error), code_of(error)
    key = "/".join(part for part in (ref.prefix.strip("/"), path) if part)
    told = " ".join(part for part in (str(status or ""), code) if part) or _transport(error)
    what = f"cannot {asked.verb} '{key}' in {_bucket(ref)} ({told}): {_advice(ref, asked, status, code, error)}"
    return DependencyUnavailable(_reason(status, code), what)


def _reason(status: int, code: str) -> Reason:
    if code == "ExpiredToken":
        return Reason.CREDENTIALS_EXPIRED
    return Reason.DISK_FULL if status == 507 or code == "QuotaExceeded" else Reason.STORAGE_UNAVAILABLE


def _advice(ref: S3Ref, asked: Asked, status: int, code: str, error: Exception) -> str:
    if code in _KEYS:
        return _KEYS[code]
    if told := next((advice for sign, advice in _SIGNS if sign.search(_first_line(error))), None):
        return told
    if _UNTRUSTED.search(str(error)):
        return _TRUST
    if code == "NoSuchBucket":
        return "there is no such bucket: create it, or fix its name or endpoint"
    if code in _REGION or "configured region" in _first_line(error):
        return "the bucket is in another region: set the region of the bucket"
    if status in (401, 403):
        return f"give the credentials {_permissions(ref, asked)}"
    if status == 507 or code == "QuotaExceeded":
        return "there is no room left: free some or raise the quota"
    return "fix the endpoint or wait until it answers, and try again"


def _permissions(ref: S3Ref, asked: Asked) -> str:
    bucket = f"arn:aws:s3:::{ref.bucket}"
    objects = "/".join(part for part in (bucket, ref.prefix.strip("/"), "*") if part)
    pairs = ((asked.of_objects, objects), (asked.of_bucket, bucket))
    return " and ".join(f"{permission} on {resource}" for permission, resource in pairs if permission)


def _bucket(ref: S3Ref) -> str:
    return f"bucket '{ref.bucket}' at {ref.endpoint or 'Amazon S3'}"


def _transport(error: Exception) -> str:
    found = _TRANSPORT.search(_first_line(error))
    return found[1].strip() if found else type(error).__name__


def _first_line(error: Exception) -> str:
    return str(error).partition("\n\nDebug source:")[0]
