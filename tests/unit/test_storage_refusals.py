"""What people are told when an object store refuses, does not answer, or is none: bucket, endpoint, what to do.

No secret is in what they read, nor in what goes to another process.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from skipstone.storage.buckets.objects import ObjectStorage
from skipstone.storage.port import Entry, NoFile
from skipstone_core.contract.places import S3Ref
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.reasons import Reason

from tests.s3client import Keys, S3Client
from tests.s3server import OWNER, STRANGER
from tests.storages import IMPATIENT, PREFIX, credentials, s3_ref

FILE = Entry(path="a.csv", size=1, version='"e"')
LOOK = "s3:GetObject on arn:aws:s3:::{bucket}/prod/lake/* and s3:ListBucket on arn:aws:s3:::{bucket}"
ASKED: dict[str, tuple[Callable[[ObjectStorage], object], str]] = {
    "read": (lambda storage: storage.open(FILE).read(), "s3:GetObject on arn:aws:s3:::{bucket}/prod/lake/*"),
    "look": (lambda storage: storage.look("a.csv"), LOOK),
    "entries": (lambda storage: list(storage.entries(["a", "b"])), LOOK),
    "taken": (lambda storage: storage.is_taken("a.csv"), LOOK),
    "list": (lambda storage: list(storage.list("in")), "s3:ListBucket on arn:aws:s3:::{bucket}"),
    "match": (lambda storage: storage.match("in/*"), "s3:ListBucket on arn:aws:s3:::{bucket}"),
    "create": (lambda storage: storage.create("a", b""), "s3:PutObject on arn:aws:s3:::{bucket}/prod/lake/*"),
    "keep": (lambda storage: storage.keep_content("a", b""), "s3:PutObject on arn:aws:s3:::{bucket}/prod/lake/*"),
    "delete": (lambda storage: storage.delete("a"), "s3:DeleteObject on arn:aws:s3:::{bucket}/prod/lake/*"),
    "probe": (lambda storage: storage.probe("probe-r"), "s3:DeleteObject on arn:aws:s3:::{bucket}/prod/lake/*"),
}


def refused(ref: S3Ref, ask: Callable[[ObjectStorage], object], keys: Keys | None = OWNER) -> DependencyUnavailable:
    """The error, which holds no secret, itself and with what is behind it."""
    with credentials(keys), pytest.raises(DependencyUnavailable) as caught:
        ask(ObjectStorage(ref, IMPATIENT))  # type: ignore[arg-type]
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    for secret in (OWNER, STRANGER):
        assert secret.secret not in str(caught.value)
        assert secret.access not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("name", ASKED)
def test_a_missing_permission_is_named(bucket: S3Client, name: str) -> None:
    ask, permission = ASKED[name]
    error = refused(s3_ref(bucket), ask, STRANGER)
    assert error.reason is Reason.STORAGE_UNAVAILABLE
    assert f"bucket '{bucket.bucket}' at {bucket.endpoint}" in str(error)
    assert str(error).endswith(f": give the credentials {permission.format(bucket=bucket.bucket)}")


def test_what_was_asked_is_told_with_the_key(bucket: S3Client) -> None:
    error = refused(s3_ref(bucket), lambda storage: storage.create("a/b", b""), STRANGER)
    assert str(error).startswith(f"cannot write '{PREFIX}/a/b' in bucket '{bucket.bucket}' at {bucket.endpoint} (403 ")


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        (Keys(OWNER.access, "another-secret"), "the secret is not that of the access key"),
        (Keys("nobody", "another-secret"), "it does not know the access key"),
    ],
)
def test_wrong_keys_are_told(bucket: S3Client, keys: Keys, sentence: str) -> None:
    assert sentence in str(refused(s3_ref(bucket), lambda storage: storage.read("a"), keys))


@pytest.mark.parametrize("name", ASKED)
def test_a_missing_bucket_is_no_missing_file(bucket: S3Client, name: str) -> None:
    error = refused(replace(s3_ref(bucket), bucket="is-not-there"), ASKED[name][0])
    assert "bucket 'is-not-there'" in str(error)
    assert "there is no such bucket: create it" in str(error)


def test_another_region_is_told(bucket: S3Client) -> None:
    error = refused(s3_ref(bucket, region="us-west-2"), lambda storage: storage.read("a"))
    assert "the bucket is in another region: set the region of the bucket" in str(error)


@pytest.mark.parametrize("name", ASKED)
def test_an_endpoint_that_does_not_answer_is_told(name: str) -> None:
    ref = S3Ref(bucket="lake", endpoint="http://127.0.0.1:1", region="eu-central-1", path_style_access=True)
    error = refused(ref, ASKED[name][0])
    assert "bucket 'lake' at http://127.0.0.1:1 (HTTP error: error sending request): fix the endpoint" in str(error)


class Answers(BaseHTTPRequestHandler):
    """Gives every request the same answer."""

    status, body = 200, b""

    def answer(self) -> None:
        """Take the request, and send the answer."""
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(self.status)
        self.send_header("content-length", str(len(self.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(self.body)

    do_GET = do_HEAD = do_PUT = do_DELETE = answer

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def answering(kind: type[BaseHTTPRequestHandler]) -> Iterator[S3Ref]:
    """A place whose every request is handled by ``kind``."""
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = Thread(target=server.serve_forever, args=[0.02])
        thread.start()
        try:
            endpoint = f"http://127.0.0.1:{server.server_port}"
            yield S3Ref(bucket="lake", endpoint=endpoint, region="eu-central-1", path_style_access=True)
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "code", "reason", "sentence"),
    [
        (503, "SlowDown", Reason.STORAGE_UNAVAILABLE, "(503 SlowDown): fix the endpoint or wait"),
        (400, "ExpiredToken", Reason.CREDENTIALS_EXPIRED, "the credentials expired: the next attempt takes new ones"),
        (403, "RequestTimeTooSkewed", Reason.STORAGE_UNAVAILABLE, "its clock differs from the node's"),
        (507, "QuotaExceeded", Reason.DISK_FULL, "there is no room left: free some or raise the quota"),
    ],
)
def test_answers_that_are_no_content_are_told(status: int, code: str, reason: Reason, sentence: str) -> None:
    body = f"<Error><Code>{code}</Code><AWSAccessKeyId>{OWNER.access}</AWSAccessKeyId></Error>".encode()
    with answering(type("Refusing", (Answers,), {"status": status, "body": body})) as ref:
        error = refused(ref, lambda storage: storage.keep_content("a", b"x"))
    assert (error.reason, sentence in str(error)) == (reason, True), str(error)


@pytest.mark.parametrize("key", ["in//a.csv", "in/../a.csv", "in/a&#10;b.csv"])
@pytest.mark.parametrize("ask", ["look", "list"])
def test_an_object_whose_name_is_no_path_is_told(key: str, ask: str) -> None:
    listed = f"<Key>{key}</Key><Size>1</Size><ETag>e</ETag><LastModified>2026-11-23T06:00:00Z</LastModified>"
    body = f"<ListBucketResult><Contents>{listed}</Contents></ListBucketResult>".encode()
    with answering(type("Listing", (Answers,), {"body": body})) as ref:
        error = refused(ref, lambda storage: storage.look("in/") if ask == "look" else list(storage.list("in")))
    assert "an object has a name that is not a path: rename objects" in str(error)


@pytest.mark.parametrize("key", ["in/", "in/a\x7f.csv"], ids=["a folder", "no path"])
def test_an_object_that_is_no_file_keeps_nobody_from_reading_the_others(bucket: S3Client, key: str) -> None:
    for name in (key, "other.csv"):
        assert bucket.send("PUT", f"prod/lake/{name}", b"" if name.endswith("/") else b"x").ok
    with credentials(OWNER):
        ObjectStorage(s3_ref(bucket)).probe_reading()


class Forgetful(Answers):
    """Keeps objects, and overlooks every condition."""

    objects: dict[str, bytes] = {}  # noqa: RUF012 - shared by the requests of one test

    def do_PUT(self) -> None:
        """Keep the object, there or not."""
        self.objects[self.path] = self.rfile.read(int(self.headers["content-length"]))
        self.reply(b"")

    def do_GET(self) -> None:
        """The object, whatever version is asked for."""
        self.reply(self.objects.get(self.path))

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        """Forget the object."""
        self.objects.pop(self.path, None)
        self.reply(b"")

    def reply(self, content: bytes | None) -> None:
        """Send ``content``, or that there is none."""
        self.send_response(404 if content is None else 200)
        self.send_header("etag", '"same"')
        self.send_header("last-modified", "Mon, 23 Nov 2026 06:00:00 GMT")
        self.send_header("content-length", str(len(content or b"")))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content or b"")


def test_an_endpoint_that_overlooks_conditions_is_refused() -> None:
    with answering(type("Fresh", (Forgetful,), {"objects": {}})) as ref:
        error = refused(ref, lambda storage: storage.probe("probe-r"))
    assert re.search(r"(first puts \(If-None-Match: \*\)|is not listed)", str(error))
    assert "choose an S3 endpoint that honors conditional puts" in str(error)


def test_no_secret_leaves_the_process(bucket: S3Client) -> None:
    with credentials(OWNER):
        storage = ObjectStorage(s3_ref(bucket))
        storage.create("a", b"")
        shown = f"{storage!r} {storage} {storage.where()} {vars(storage)}".encode() + pickle.dumps(storage)
    for secret in (OWNER.secret, OWNER.access):
        assert secret.encode() not in shown


def test_a_name_that_no_object_can_have_is_no_file(bucket: S3Client) -> None:
    with credentials(OWNER), pytest.raises(NoFile):
        ObjectStorage(s3_ref(bucket)).look("a\nb")
