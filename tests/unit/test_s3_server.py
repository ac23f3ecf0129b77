"""What the S3 server of the tests honors, told by signed requests: all that the project relies on is really there."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.s3client import S3Client, values
from tests.s3server import STRANGER, S3Server

PART = 5 << 20
RACERS = 8


def put(bucket: S3Client, key: str, body: bytes = b"x", **headers: str) -> str:
    """The ETag of an object that was just put."""
    answer = bucket.send("PUT", key, body, headers)
    assert answer.status_code == 200, answer.text
    return answer.headers["etag"]


def keys(bucket: S3Client, **query: str) -> list[str]:
    """All keys of a listing, page by page."""
    found: list[str] = []
    more: dict[str, str] = {}
    while True:
        answer = bucket.send("GET", list_type="2", **query, **more)
        assert answer.status_code == 200, answer.text
        found += values(answer, "Key")
        if values(answer, "IsTruncated") != ["true"]:
            return found
        more = {"continuation_token": values(answer, "NextContinuationToken")[0]}


def test_an_object_is_read_back_with_the_digest_of_its_content_as_its_etag(bucket: S3Client) -> None:
    etag = put(bucket, "folder/öl und 100%.csv", b"content")
    assert etag == f'"{hashlib.md5(b"content", usedforsecurity=False).hexdigest()}"'
    read, head = (bucket.send(method, "folder/öl und 100%.csv") for method in ("GET", "HEAD"))
    assert read.content == b"content"
    assert head.headers["content-length"] == "7"
    (listed,) = values(bucket.send("GET", list_type="2", prefix="folder/"), "ETag")
    assert {read.headers["etag"], head.headers["etag"], listed} == {etag}
    assert put(bucket, "folder/öl und 100%.csv", b"another") != etag


def test_of_racing_conditional_puts_one_wins(bucket: S3Client) -> None:
    def race(number: int) -> int:
        return bucket.send("PUT", "first", f"{number}".encode(), {"If-None-Match": "*"}).status_code

    with ThreadPoolExecutor(RACERS) as pool:
        answers = list(pool.map(race, range(RACERS)))
    assert sorted(set(answers) - {409}) == [200, 412]
    assert answers.count(200) == 1
    assert bucket.send("GET", "first").text == str(answers.index(200))


def test_a_conditional_put_of_a_deleted_object_succeeds(bucket: S3Client) -> None:
    put(bucket, "first", **{"If-None-Match": "*"})
    assert bucket.send("PUT", "first", b"y", {"If-None-Match": "*"}).status_code == 412
    assert bucket.send("DELETE", "first").status_code == 204
    put(bucket, "first", b"y", **{"If-None-Match": "*"})


def test_a_read_of_another_version_is_refused(bucket: S3Client) -> None:
    old = put(bucket, "file", b"old")
    new = put(bucket, "file", b"new")
    assert bucket.send("GET", "file", headers={"If-Match": old}).status_code == 412
    assert bucket.send("GET", "file", headers={"If-Match": new, "Range": "bytes=1-"}).content == b"ew"


@pytest.mark.parametrize(
    ("asked", "status", "content"),
    [
        ("bytes=0-1", 206, b"01"),
        ("bytes=7-", 206, b"789"),
        ("bytes=-3", 206, b"789"),
        ("bytes=8-100", 206, b"89"),
        ("bytes=10-11", 416, None),
    ],
)
def test_ranges(bucket: S3Client, asked: str, status: int, content: bytes | None) -> None:
    put(bucket, "digits", b"0123456789")
    answer = bucket.send("GET", "digits", headers={"Range": asked})
    assert answer.status_code == status
    assert content is None or answer.content == content


def test_a_multipart_upload_is_seen_when_it_is_complete(bucket: S3Client) -> None:
    upload = values(bucket.send("POST", "large", uploads=""), "UploadId")[0]
    parts = [b"a" * PART, b"b"]
    etags = [
        bucket.send("PUT", "large", part, partNumber=str(number), uploadId=upload).headers["etag"]
        for number, part in enumerate(parts, 1)
    ]
    assert (bucket.send("HEAD", "large").status_code, keys(bucket)) == (404, [])
    listed = "".join(
        f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>" for number, etag in enumerate(etags, 1)
    )
    body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
    done = bucket.send("POST", "large", body, uploadId=upload)
    assert done.status_code == 200, done.text
    assert bucket.send("GET", "large").content == b"".join(parts)
    assert bucket.send("HEAD", "large").headers["etag"].endswith('-2"')


def test_an_aborted_multipart_upload_leaves_nothing(bucket: S3Client) -> None:
    upload = values(bucket.send("POST", "large", uploads=""), "UploadId")[0]
    bucket.send("PUT", "large", b"a" * PART, partNumber="1", uploadId=upload)
    assert values(bucket.send("GET", uploads=""), "UploadId") == [upload]
    assert bucket.send("DELETE", "large", uploadId=upload).status_code == 204
    assert values(bucket.send("GET", uploads=""), "UploadId") == []
    assert keys(bucket) == []


def test_a_listing_of_more_than_a_thousand_keys_goes_on(bucket: S3Client, s3: S3Server) -> None:
    folder = s3.buckets / bucket.bucket / "many"
    folder.mkdir()
    names = [f"many/{number:05d}" for number in range(2345)]
    for name in names:
        (folder / name.removeprefix("many/")).touch()
    put(bucket, "other")
    first = bucket.send("GET", list_type="2", prefix="many/")
    assert (len(values(first, "Key")), values(first, "IsTruncated")) == (1000, ["true"])
    assert keys(bucket, prefix="many/") == names


def test_a_listing_names_folders_apart_when_it_is_asked_to(bucket: S3Client) -> None:
    for key in ("a/1", "a/b/2", "a/b/3", "ab"):
        put(bucket, key)
    answer = bucket.send("GET", list_type="2", prefix="a/", delimiter="/")
    assert values(answer, "Key") == ["a/1"]
    assert values(answer, "Prefix")[-1] == "a/b/"


def test_an_empty_object_may_stand_for_a_folder(bucket: S3Client) -> None:
    put(bucket, "marked/", b"")
    assert keys(bucket) == ["marked/"]


def test_errors_carry_the_codes_of_s3(bucket: S3Client) -> None:
    put(bucket, "file")
    stranger = replace(bucket, keys=STRANGER)
    liar = replace(bucket, keys=replace(bucket.keys, secret="another"))
    nobody = replace(bucket, keys=replace(bucket.keys, access="nobody"))
    answers = [one.send("GET", "file") for one in (stranger, liar, nobody, replace(bucket, bucket="missing"))]
    answers += [bucket.send("GET", "missing"), replace(bucket, region="us-west-2").send("GET", "file")]
    assert [(answer.status_code, values(answer, "Code")[0]) for answer in answers] == [
        (403, "AccessDenied"),
        (403, "SignatureDoesNotMatch"),
        (403, "InvalidAccessKeyId"),
        (404, "NoSuchBucket"),
        (404, "NoSuchKey"),
        (400, "AuthorizationHeaderMalformed"),
    ]


def test_a_policy_gives_single_rights(bucket: S3Client) -> None:
    statement = {
        "Effect": "Allow",
        "Principal": {"AWS": [STRANGER.access]},
        "Action": ["s3:GetObject"],
        "Resource": [f"arn:aws:s3:::{bucket.bucket}/*"],
    }
    rights = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    answer = bucket.send("PUT", "", rights.encode(), policy="")
    assert answer.ok, answer.text
    put(bucket, "file")
    stranger = replace(bucket, keys=STRANGER)
    statuses = [
        stranger.send("GET", "file").status_code,
        stranger.send("PUT", "file", b"y").status_code,
        stranger.send("DELETE", "file").status_code,
        stranger.send("GET", list_type="2").status_code,
    ]
    assert statuses == [200, 403, 403, 403]
