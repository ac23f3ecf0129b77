"""Files of tables in S3, read by few requests: whole, of one version, and with the errors that Arrow tells."""

from __future__ import annotations

import io
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import FileIO
from skipstone.causes import find_cause
from skipstone.storage.buckets.remote import TAIL_BYTES, TAILS_BYTES, joined
from skipstone.storage.port import Replaced
from skipstone.tables.parquetfiles import WholeFile
from skipstone.tables.storage import DurableFileIO

from tests.s3client import S3Client
from tests.s3proxy import Fault, Proxy, Refusal, s3_proxy
from tests.s3server import OWNER, VENDED, S3Server
from tests.storages import credentials

ADVICE = {
    Refusal.EXPIRED: "the credentials expired, and the next attempt takes new ones",
    Refusal.SKEWED: "set the node's clock",
    Refusal.GONE: "create the bucket, or fix its name",
    Refusal.FULL: "free some room or raise the quota",
}
LARGE = np.random.default_rng(1).bytes(5 * TAIL_BYTES)


@dataclass(frozen=True)
class Bed:
    """A bucket behind a proxy, and a FileIO that goes through it."""

    bucket: S3Client
    proxy: Proxy
    io: FileIO

    def put(self, content: bytes, name: str = "data/a.parquet") -> str:
        assert self.bucket.send("PUT", name, content).ok
        return f"s3://{self.bucket.bucket}/{name}"


@pytest.fixture
def bed(bucket: S3Client) -> Iterator[Bed]:
    with s3_proxy(bucket.endpoint) as proxy, credentials(OWNER):
        yield Bed(bucket, proxy, DurableFileIO({"s3.endpoint": proxy.endpoint, "s3.region": bucket.region}))


@pytest.mark.parametrize("fault", Fault)
def test_a_range_that_fails_once_is_right(bed: Bed, fault: Fault) -> None:
    path = bed.put(LARGE)
    with bed.io.new_input(path).open() as file:
        assert file.read(10) == LARGE[:10]
        bed.proxy.fail("GET", fault)
        file.seek(TAIL_BYTES)
        assert file.read(1000) == LARGE[TAIL_BYTES:][:1000]
        bed.proxy.fail("GET", fault)
        file.seek(-20, io.SEEK_END)
        assert file.read() == LARGE[-20:]


def test_an_object_that_is_replaced_is_never_mixed(bed: Bed) -> None:
    path = bed.put(LARGE)
    with bed.io.new_input(path).open() as file:
        assert file.read(10) == LARGE[:10]
        bed.put(LARGE[::-1])
        file.seek(TAIL_BYTES)
        with pytest.raises(Replaced, match="not the file any more"):
            file.read(10)
    with bed.io.new_input(path).open() as file:
        assert file.read() == LARGE[::-1]


def test_what_is_not_there_is_told_by_arrow(bed: Bed) -> None:
    with (
        bed.io.new_input(f"s3://{bed.bucket.bucket}/data/none.parquet").open() as file,
        pytest.raises(FileNotFoundError),
    ):
        file.read()


@pytest.mark.parametrize("refusal", ADVICE)
def test_a_refusal_says_what_to_do(bed: Bed, refusal: Refusal) -> None:
    path = bed.put(LARGE)
    bed.proxy.choose = lambda *_: refusal
    for ask in (lambda: bed.io.new_input(path).open().read(10), lambda: bed.io.new_output(path).create()):
        with pytest.raises(OSError, match=f"AWS Error {refusal.value[1]} ") as raised:
            ask()
        found = find_cause(raised.value)
        assert found is not None
        assert re.search(ADVICE[refusal], found.message), found


def test_a_file_that_is_there_is_not_made_again(bed: Bed) -> None:
    path = bed.put(b"old")
    with pytest.raises(FileExistsError):
        bed.io.new_output(path).create()
    assert bed.bucket.send("GET", "data/a.parquet").content == b"old"


def test_metadata_that_was_written_is_not_fetched(bed: Bed) -> None:
    path = f"s3://{bed.bucket.bucket}/t/metadata/00001-{uuid.uuid4()}.metadata.json"
    with bed.io.new_output(path).create() as file:
        file.write(b"{}")
    with bed.io.new_input(path).open() as found:
        assert found.read() == b"{}"
    assert bed.proxy.counted() == {"PUT": 1}


def test_columns_of_a_row_group_are_asked_for_at_once(bed: Bed) -> None:
    rows = pa.table({f"c{number}": np.random.default_rng(number).random(100_000) for number in range(6)})
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, use_dictionary=False)
    path = bed.put(sink.getvalue().to_pybytes())
    bed.proxy.forget()
    with bed.io.new_input(path).open() as file:
        assert WholeFile(file).read(["c0", "c2", "c4"]).equals(rows.select(["c0", "c2", "c4"]))
    assert bed.proxy.counted() == {"GET": 4}


def test_ends_are_remembered_within_one_bound_for_all_credentials(bed: Bed, s3: S3Server) -> None:
    """A driver takes other credentials again and again, and its memory does not grow."""
    half = TAILS_BYTES // TAIL_BYTES // 2 + 1
    s3.lay(bed.bucket.bucket, "data", [str(number) for number in range(half)], LARGE[:TAIL_BYTES])
    given = {"s3.endpoint": bed.proxy.endpoint, "s3.region": bed.bucket.region}
    others = [{"s3.access-key-id": keys.access, "s3.secret-access-key": keys.secret} for keys in VENDED[:2]]
    first, second = (DurableFileIO({**given, **keys}) for keys in others)

    def asked(file_io: FileIO, number: int) -> int:
        bed.proxy.forget()
        with file_io.new_input(f"s3://{bed.bucket.bucket}/data/{number}").open() as file:
            file.seek(-20, io.SEEK_END)
            assert file.read() == LARGE[:TAIL_BYTES][-20:]
        return len(bed.proxy.seen)

    assert [asked(first, 0), asked(first, 0), asked(second, 0)] == [1, 0, 1]
    for one in (first, second):
        assert sum(asked(one, number) for number in range(1, half)) == half - 1
    assert asked(first, 0) == 1


def test_near_ranges_are_joined_and_cover_what_was_asked() -> None:
    asked = [(5_000_000, 5_000_100), (0, 10), (20, 30), (25, 40)]
    found = joined(asked)
    assert found == [(0, 40), (5_000_000, 5_000_100)]
    assert all(one[1] < other[0] for one, other in pairwise(found))
