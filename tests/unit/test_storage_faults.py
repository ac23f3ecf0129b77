"""An object store behind a network that fails: what is told is right or an error, what is made is whole or not there.

Also how many requests each operation takes when nothing fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from skipstone.storage.buckets.objects import ObjectStorage
from skipstone.storage.port import Entry
from skipstone_core.errors import DependencyUnavailable

from tests.s3client import S3Client
from tests.s3proxy import Fault, Proxy, Refusal, s3_proxy
from tests.s3server import OWNER, S3Server
from tests.storages import PREFIX, credentials, s3_ref

PATIENT = {
    "max_retries": 3,
    "backoff": {"init_backoff": timedelta(milliseconds=5), "max_backoff": timedelta(milliseconds=20), "base": 2},
    "retry_timeout": timedelta(seconds=120),
}
OLD, NEW = b"old content", b"new content"
FOREVER = 1000


@dataclass(frozen=True)
class Line:
    """A storage behind a proxy, and a client of the bucket that does not go through it."""

    storage: ObjectStorage
    proxy: Proxy
    bucket: S3Client

    def content(self, path: str) -> bytes | None:
        """What is really there."""
        answer = self.bucket.send("GET", f"{PREFIX}/{path}")
        return answer.content if answer.ok else None

    def put(self, path: str, content: bytes) -> None:
        """An object that others made."""
        assert self.bucket.send("PUT", f"{PREFIX}/{path}", content).ok


@pytest.fixture(scope="module")
def proxy(s3: S3Server) -> Iterator[Proxy]:
    with s3_proxy(s3.endpoint) as running:
        yield running


@pytest.fixture
def line(bucket: S3Client, proxy: Proxy) -> Iterator[Line]:
    proxy.forget()
    with credentials(OWNER):
        ref = replace(s3_ref(bucket), endpoint=proxy.endpoint)
        yield Line(ObjectStorage(ref, PATIENT), proxy, bucket)  # type: ignore[arg-type]
    proxy.forget()


def entry(line: Line, path: str) -> Entry:
    found = line.storage.look(path)
    assert isinstance(found, Entry)
    return found


def tried(ask: Callable[[], object]) -> object:
    """What was answered; the error when it is ours, which is the only one that there may be."""
    try:
        return ask()
    except DependencyUnavailable as error:
        return error


READS: dict[str, tuple[str, Callable[[Line, Entry], object], object]] = {
    "read": ("GET", lambda line, file: line.storage.read("in/a"), OLD),
    "open": ("GET", lambda line, file: line.storage.open(file).read(), OLD),
    "range": ("GET", lambda line, file: line.storage.get_range("in/a", (4, 7), None).content, OLD[4:7]),
    "entries": ("HEAD", lambda line, file: [one.path for one in line.storage.entries(["in/a"]) if one], ["in/a"]),
    "list": ("LIST", lambda line, file: [one.path for one in line.storage.list("in")], ["in/a"]),
    "match": ("LIST", lambda line, file: [one.path for one in line.storage.match("in/*")], ["in/a"]),
}


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("name", READS)
def test_a_read_that_fails_once_is_right_or_an_error(line: Line, name: str, fault: Fault) -> None:
    kind, ask, right = READS[name]
    line.put("in/a", OLD)
    file = entry(line, "in/a")
    line.proxy.fail(kind, fault)
    found = tried(lambda: ask(line, file))
    assert found == right or (fault is Fault.CUT and isinstance(found, DependencyUnavailable)), found


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("name", READS)
def test_a_read_that_always_fails_is_an_error(line: Line, name: str, fault: Fault) -> None:
    kind, ask, _ = READS[name]
    line.put("in/a", OLD)
    file = entry(line, "in/a")
    line.proxy.fail(kind, fault, FOREVER)
    found = tried(lambda: ask(line, file))
    assert isinstance(found, DependencyUnavailable)
    assert f"bucket '{line.bucket.bucket}' at {line.proxy.endpoint}" in str(found)


@pytest.mark.parametrize("times", [1, 2, FOREVER])
@pytest.mark.parametrize("fault", Fault)
def test_a_first_file_is_made_once_or_not_at_all(line: Line, fault: Fault, times: int) -> None:
    line.proxy.fail("PUT", fault, times)
    found = tried(lambda: line.storage.create("first", NEW))
    line.proxy.forget()
    is_there = line.content("first")
    if isinstance(found, DependencyUnavailable):
        assert is_there is None, "what is there counts, and can be told"
    else:
        assert found == is_there == NEW
    assert line.storage.create("first", OLD) == (is_there or OLD)


@pytest.mark.parametrize("fault", Fault)
def test_a_first_file_of_somebody_else_stays(line: Line, fault: Fault) -> None:
    line.put("first", OLD)
    line.proxy.fail("PUT", fault)
    assert tried(lambda: line.storage.create("first", NEW)) == OLD
    assert line.content("first") == OLD


@pytest.mark.parametrize("times", [1, FOREVER])
@pytest.mark.parametrize("fault", Fault)
def test_content_is_whole_or_not_there(line: Line, fault: Fault, times: int) -> None:
    line.proxy.fail("PUT", fault, times)
    found = tried(lambda: line.storage.keep_content("digest", NEW))
    assert line.content("digest") in ((NEW,) if found is None else (None, NEW))
    line.proxy.forget()
    line.storage.keep_content("digest", NEW)
    assert line.content("digest") == NEW


@pytest.mark.parametrize("fault", Fault)
def test_a_delete_that_fails_once_is_done_or_an_error(line: Line, fault: Fault) -> None:
    line.put("first", OLD)
    line.proxy.fail("DELETE", fault)
    found = tried(lambda: line.storage.delete("first"))
    assert found is None or isinstance(found, DependencyUnavailable)
    assert line.content("first") is None or found is not None
    line.proxy.forget()
    line.storage.delete("first")
    assert line.content("first") is None


def test_a_bucket_that_is_away_for_a_moment_loses_no_file(line: Line) -> None:
    line.put("in/a", OLD)
    asked: list[str] = []

    def away(kind: str, _: str) -> Refusal | None:
        asked.append(kind)
        return Refusal.GONE if asked == ["HEAD"] else None

    line.proxy.choose = away
    (found,) = line.storage.entries(["in/a"])
    assert found == entry(line, "in/a")


def test_a_refusal_to_look_is_told_with_its_reason(line: Line) -> None:
    line.put("in/a", OLD)
    line.proxy.choose = lambda *_: Refusal.SKEWED
    with pytest.raises(DependencyUnavailable, match="its clock differs from the node's: set the node's clock"):
        line.storage.look("in/a")


@pytest.mark.parametrize("content", [OLD, b""])
@pytest.mark.parametrize("refusal", [Refusal.SKEWED, Refusal.EXPIRED])
def test_a_refusal_that_does_not_last_is_no_missing_permission(line: Line, refusal: Refusal, content: bytes) -> None:
    line.put("in/a", content)
    for path, found in (("in/a", ["in/a"]), ("none", [])):
        refusals = iter([refusal])
        line.proxy.choose = lambda *_, left=refusals: next(left, None)  # type: ignore[misc]
        assert [one.path for one in line.storage.entries([path]) if one] == found


COSTS: dict[str, tuple[Callable[[Line, Entry], object], dict[str, int]]] = {
    "create": (lambda line, file: line.storage.create("new", NEW), {"PUT": 1}),
    "keep": (lambda line, file: line.storage.keep_content("new", NEW), {"PUT": 1}),
    "read": (lambda line, file: line.storage.read("in/a"), {"GET": 1}),
    "open": (lambda line, file: line.storage.open(file).read(), {"GET": 1}),
    "look at a file": (lambda line, file: line.storage.look("in/a"), {"HEAD": 1}),
    "look at a folder": (lambda line, file: line.storage.look("in"), {"HEAD": 1, "LIST": 1}),
    "look at nothing": (lambda line, file: line.storage.look("none"), {"HEAD": 1, "LIST": 1}),
    "match": (lambda line, file: line.storage.match("in/*"), {"LIST": 1}),
    "match folders": (lambda line, file: line.storage.match("*/a"), {"LIST": 2}),
    "list": (lambda line, file: list(line.storage.list("in")), {"LIST": 1}),
    "entries": (lambda line, file: list(line.storage.entries(["in/a", "in/b"])), {"HEAD": 2}),
    "delete": (lambda line, file: line.storage.delete("in/b"), {"DELETE": 1}),
}


@pytest.mark.parametrize("name", COSTS)
def test_each_operation_takes_few_requests(line: Line, name: str) -> None:
    ask, cost = COSTS[name]
    line.put("in/a", OLD)
    line.put("in/b", OLD)
    file = entry(line, "in/a")
    line.proxy.forget()
    ask(line, file)
    assert line.proxy.counted() == cost
