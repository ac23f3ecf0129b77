"""Both storages of a Warehouse for tests: a directory, and a bucket of the S3 server with a prefix of its own."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from skipstone.storage.buckets.objects import ObjectStorage
from skipstone.storage.port import Storage
from skipstone.storage.volume import Volume
from skipstone_core.contract.places import S3Ref

from tests.s3client import Keys, S3Client

PREFIX = "prod/lake"
#: Bytes of a file for which ``little_room`` has room.
ROOM = 100_000
#: Answers that are no answers are seen at once.
IMPATIENT = {
    "max_retries": 0,
    "retry_timeout": timedelta(seconds=60),
}


@dataclass(frozen=True)
class Home:
    """A storage, and a way to put files there that does not go through it."""

    storage: Storage
    folder: Path | None = None
    bucket: S3Client | None = None

    def put(self, path: str, content: bytes = b"x") -> None:
        """A file as people put it, in place of what is there."""
        if self.folder is not None:
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_bytes(content)
            # The clock of a file system may tick slower than files are written
            moment = time.time_ns()
            os.utime(self.folder / path, ns=(moment, moment))
        elif self.bucket is not None:
            answer = self.bucket.send("PUT", f"{PREFIX}/{path}", content)
            assert answer.ok, answer.text

    def remove(self, path: str) -> None:
        """Take a file away."""
        if self.folder is not None:
            (self.folder / path).unlink()
        elif self.bucket is not None:
            assert self.bucket.send("DELETE", f"{PREFIX}/{path}").ok


def volume_home(folder: Path) -> Home:
    """A directory."""
    folder.mkdir(parents=True, exist_ok=True)
    return Home(Volume(str(folder)), folder=folder)


def s3_ref(bucket: S3Client, prefix: str = PREFIX, **changed: str) -> S3Ref:
    """Where ``bucket`` is, as a request names it."""
    place = {"bucket": bucket.bucket, "endpoint": bucket.endpoint, "region": bucket.region, **changed}
    return S3Ref(prefix=prefix, path_style_access=True, **place)


def s3_home(bucket: S3Client) -> Home:
    """A bucket below PREFIX; credentials have to be in the environment."""
    return Home(ObjectStorage(s3_ref(bucket), IMPATIENT), bucket=bucket)  # type: ignore[arg-type]


@contextmanager
def credentials(keys: Keys | None) -> Iterator[None]:
    """The environment of a pod that has these ``keys``, and nothing else of Amazon's."""
    kept = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("AWS_")}
    given: Mapping[str, str] = {"AWS_ACCESS_KEY_ID": keys.access, "AWS_SECRET_ACCESS_KEY": keys.secret} if keys else {}
    os.environ.update(given)
    try:
        yield
    finally:
        for name in given:
            del os.environ[name]
        os.environ.update(kept)


@contextmanager
def little_room() -> Iterator[None]:
    """No file of this process grows beyond ROOM bytes, as on a file system that is nearly full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
