"""What an object store answers in place of what it was asked for, as sentences for people.

Only the status and the code of an answer are told: the rest of it may name access keys and what was signed with them.
"""

from __future__ import annotations

import re

from skipstone_core.contract.places import BucketRef
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.reasons import Reason

from skipstone.storage.buckets.kind import Asked, kind_of

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_TRANSPORT = re.compile(r" in [\d.]+\S{1,3} - ([^<\n]{1,120})")
#: Where a pod of Amazon's gets credentials when it is given none.
_NO_CREDENTIALS = re.compile(r"169\.254\.|latest/api/token|InvalidGCSCredentials|CredentialsNotLoaded")
_NO_PATH = re.compile(r"empty path segment|illegal character sequence|parse path", re.IGNORECASE)
#: What tells of them stands behind the first line.
_UNTRUSTED = re.compile(r"invalid peer certificate|InvalidCertificate")
_TRUST = "no trusted authority signed its certificate: add the authority that did to the Warehouse"
_RENAME = "an object has a name that is not a path: rename objects with an empty part, '.', '..' or a line break"
_REGION = frozenset({"AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException"})


def status_of(error: Exception) -> int:
    """The status of the answer behind ``error``; 0 when there was none."""
    match = _STATUS.search(_first_line(error))
    return int(match[1]) if match else 0


def code_of(error: Exception) -> str:
    """The code of S3 in the answer behind ``error``; empty when there was none."""
    match = _CODE.search(_first_line(error))
    return match[1] if match else ""


def is_about_keys(ref: BucketRef, error: Exception) -> bool:
    """Return whether the answer says what is wrong with the keys, or with the clock that signed."""
    return code_of(error) in kind_of(ref).words.keys


def is_about_names(error: Exception) -> bool:
    """Return whether a listing was given, and holds the name of an object that is not a path."""
    return bool(_NO_PATH.search(_first_line(error)))


def place_of(ref: BucketRef, path: str = "") -> str:
    """A bucket with its prefix, or a file in it, and the endpoint, as people call it."""
    address = ref.location(path)
    return f"{address} at {ref.endpoint}" if ref.endpoint else address


def refusal(ref: BucketRef, asked: Asked, path: str, error: Exception) -> DependencyUnavailable:
    """``error`` as a sentence that names bucket, endpoint, what was asked, and what to do."""
    status, code = status_of(error), code_of(error)
    key = "/".join(part for part in (ref.prefix.strip("/"), path) if part)
    answer = " ".join(part for part in (str(status or ""), code) if part) or _transport(error)
    what = f"cannot {asked} '{key}' in {_bucket(ref)} ({answer}): {_advice(ref, asked, status, code, error)}"
    return DependencyUnavailable(_reason(status, code), what)


def _reason(status: int, code: str) -> Reason:
    if code == "ExpiredToken":
        return Reason.CREDENTIALS_EXPIRED
    return Reason.DISK_FULL if status == 507 or code == "QuotaExceeded" else Reason.STORAGE_UNAVAILABLE


def _advice(ref: BucketRef, asked: Asked, status: int, code: str, error: Exception) -> str:
    words = kind_of(ref).words
    if code in words.keys:
        return words.keys[code]
    signs = ((_NO_CREDENTIALS, words.no_credentials), (_NO_PATH, _RENAME))
    if advised := next((advice for sign, advice in signs if sign.search(_first_line(error))), None):
        return advised
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


def _permissions(ref: BucketRef, asked: Asked) -> str:
    words = kind_of(ref).words
    bucket, needed = f"{words.resource}{ref.bucket}", words.permissions[asked]
    objects = "/".join(part for part in (bucket, ref.prefix.strip("/"), "*") if part)
    pairs = ((needed.of_objects, objects), (needed.of_bucket, bucket))
    return " and ".join(f"{permission} on {resource}" for permission, resource in pairs if permission)


def _bucket(ref: BucketRef) -> str:
    return f"bucket '{ref.bucket}' at {ref.endpoint or kind_of(ref).words.name}"


def _transport(error: Exception) -> str:
    match = _TRANSPORT.search(_first_line(error))
    return match[1].strip() if match else type(error).__name__


def _first_line(error: Exception) -> str:
    return str(error).partition("\n\nDebug source:")[0]
