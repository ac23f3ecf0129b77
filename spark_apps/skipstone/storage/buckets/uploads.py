"""Uploads by parts that nobody will finish: what a process leaves in a bucket when it is killed as it writes.

No listing of objects shows them, and they take room until somebody aborts them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypedDict, cast
from urllib.parse import unquote_plus

from skipstone.storage.buckets.remote import Keys, Place

logger = logging.getLogger(__name__)
#: How often a request is sent before it has failed, and how long each may take, in seconds.
_MOST_REQUESTS = 3
_SECONDS = 20
#: What is said of an upload that somebody else has finished or aborted.
_GONE = "NoSuchUpload"


class _Upload(TypedDict):
    Key: str
    UploadId: str


class _Page(TypedDict, total=False):
    Uploads: Sequence[_Upload]
    IsTruncated: bool
    NextKeyMarker: str
    EncodingType: str


class _Client(Protocol):
    def list_multipart_uploads(self, **asked: str) -> _Page: ...

    def abort_multipart_upload(self, **asked: str) -> object: ...


def abort_uploads(place: Place, keys: Keys, folder: str, is_left: Callable[[str], bool]) -> None:
    """Abort the uploads to keys below ``folder`` of which ``is_left`` says that nobody finishes them.

    ``folder`` is empty for a whole bucket. Nothing depends on it: whatever goes wrong is logged, with the permissions
    that it takes.
    """
    aborted = 0
    try:
        client = _client(place, keys)
        for key, upload in _uploads(client, place.bucket, f"{folder}/" if folder else "", is_left):
            aborted += _abort(client, place.bucket, key, upload)
    except Exception as error:  # noqa: BLE001 - the errors of boto3 have no common base, and none may end a run
        logger.warning(
            "uploads that killed runs left below '%s' in bucket '%s' are not aborted, they take room until a lifecycle "
            "rule removes them: allow s3:ListBucketMultipartUploads and s3:AbortMultipartUpload (%s)",
            folder,
            place.bucket,
            _code_of(error),
        )
    if aborted:
        logger.info("aborted %d uploads that killed runs left below '%s'", aborted, folder)


def _uploads(client: _Client, bucket: str, prefix: str, is_left: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """The keys and the identities of uploads, each once. Whoever takes one aborts it.

    Pages are asked for by keys alone, because not every server takes the identity of an upload that is gone. A key may
    have several uploads, so a page is asked for again until it has none that was not met.
    """
    begin, met = "", set[tuple[str, str]]()
    while True:
        asked = {"KeyMarker": begin} if begin else {}
        page = client.list_multipart_uploads(Bucket=bucket, Prefix=prefix, EncodingType="url", **asked)
        read = unquote_plus if page.get("EncodingType") == "url" else str
        uploads = [(read(upload["Key"]), upload["UploadId"]) for upload in page.get("Uploads", ())]
        left = [upload for upload in uploads if is_left(upload[0]) and upload not in met]
        yield from left
        met.update(left)
        if not page.get("IsTruncated"):
            return
        if not left:
            following = read(page["NextKeyMarker"])
            if following <= begin:
                return
            begin = following


def _abort(client: _Client, bucket: str, key: str, upload: str) -> bool:
    """Return whether it was there. Raises what boto3 raises."""
    try:
        client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload)
    except Exception as error:
        if _code_of(error) != _GONE:
            raise
        return False
    return True


def _client(place: Place, keys: Keys) -> _Client:
    """Of boto3, which is imported here: few runs need it."""
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    access, secret, token = keys
    config = Config(
        signature_version=UNSIGNED if place.is_anonymous else None,
        retries={"mode": "standard", "total_max_attempts": _MOST_REQUESTS},
        connect_timeout=_SECONDS,
        read_timeout=_SECONDS,
        s3={"addressing_style": "virtual" if place.is_virtual else "path"},
    )
    client = boto3.client(
        "s3",
        endpoint_url=place.endpoint or None,
        region_name=place.region or None,
        verify=place.bundle or None,
        aws_access_key_id=access,
        aws_secret_access_key=secret,
        aws_session_token=token,
        config=config,
    )
    return cast(_Client, client)


def _code_of(error: Exception) -> str:
    """The code of an answer, or the kind of the error: the rest of it may name keys."""
    answer = getattr(error, "response", None)
    code = answer.get("Error", {}).get("Code") if isinstance(answer, dict) else None
    return str(code or type(error).__name__)
