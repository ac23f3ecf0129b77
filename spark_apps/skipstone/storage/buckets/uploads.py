"""Uploads by parts that nobody will finish: what a process leaves in a bucket when it is killed as it writes.

No listing of objects shows them, and they take room until somebody aborts them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, cast

from skipstone.storage.buckets.remote import Keys, Place

logger = logging.getLogger(__name__)
#: How often a request is sent before it has failed, and how long each may take, in seconds.
_MOST_REQUESTS = 3
_SECONDS = 20


class _Paginator(Protocol):
    def paginate(self, **asked: str) -> Iterable[Mapping[str, Sequence[Mapping[str, str]]]]: ...


class _Client(Protocol):
    def get_paginator(self, name: str) -> _Paginator: ...

    def abort_multipart_upload(self, **asked: str) -> object: ...


def abort_uploads(place: Place, keys: Keys, folder: str, is_left: Callable[[str], bool]) -> None:
    """Abort the uploads to keys below ``folder`` of which ``is_left`` says that nobody finishes them.

    Nothing depends on it: whatever goes wrong is logged, with the permissions that it takes.
    """
    try:
        client = _client(place, keys)
        found = list(_uploads(client, place.bucket, folder, is_left))
        for key, upload in found:
            client.abort_multipart_upload(Bucket=place.bucket, Key=key, UploadId=upload)
    except Exception as error:  # noqa: BLE001 - the errors of boto3 have no common base, and none may end a run
        logger.warning(
            "uploads that killed runs left below '%s' in bucket '%s' are not aborted, they take room until a lifecycle "
            "rule removes them: allow s3:ListBucketMultipartUploads and s3:AbortMultipartUpload (%s)",
            folder,
            place.bucket,
            _told(error),
        )
        return
    if found:
        logger.info("aborted %d uploads that killed runs left below '%s'", len(found), folder)


def _uploads(client: _Client, bucket: str, folder: str, is_left: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """The keys and the identities of uploads below ``folder``."""
    for page in client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=f"{folder.strip('/')}/"):
        for found in page.get("Uploads", ()):
            if is_left(found["Key"]):
                yield found["Key"], found["UploadId"]


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


def _told(error: Exception) -> str:
    """The code of an answer, or the kind of the error: the rest of it may name keys."""
    answer = getattr(error, "response", None)
    return str(answer["Error"]["Code"]) if isinstance(answer, dict) else type(error).__name__
