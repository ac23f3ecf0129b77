"""What every storage of a Warehouse does, on a volume and in an object store alike."""

from __future__ import annotations

import io
import itertools
import pickle
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from skipstone.storage.port import Entry, Folder, Replaced, Storage

from tests.examples import cases
from tests.s3client import S3Client
from tests.s3server import OWNER
from tests.storages import PREFIX, Home, credentials, s3_home, volume_home

KINDS = ("volume", "s3")
RACERS = 8


@pytest.fixture(params=KINDS)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    if request.param == "volume":
        yield volume_home(tmp_path / "root")
    else:
        with credentials(OWNER):
            yield s3_home(request.getfixturevalue("bucket"))


def entry(storage: Storage, path: str) -> Entry:
    found = storage.look(path)
    assert isinstance(found, Entry)
    return found


def folder(storage: Storage, path: str) -> Folder:
    found = storage.look(path)
    assert isinstance(found, Folder)
    return found


def paths(found: tuple[Entry | Folder, ...]) -> list[str]:
    return [one.path for one in found]


def test_a_first_file_is_whole_and_stays(home: Home) -> None:
    assert home.storage.create("a/b/first", b"one") == b"one"
    assert home.storage.create("a/b/first", b"two") == b"one"
    assert home.storage.read("a/b/first") == b"one"


def test_of_racing_creators_one_counts(home: Home) -> None:
    with ThreadPoolExecutor(RACERS) as pool:
        found = set(pool.map(lambda number: home.storage.create("first", b"%d" % number), range(RACERS)))
    assert len(found) == 1
    assert home.storage.read("first") in found


def test_a_file_that_stands_for_its_content_is_put_right(home: Home) -> None:
    home.put("digests/d", b"torn")
    for _ in range(2):
        home.storage.keep_content("digests/d", b"whole")
        assert home.storage.read("digests/d") == b"whole"


def test_a_copy_is_whole_and_replaces_what_is_there(home: Home, tmp_path: Path) -> None:
    for content in (b"short", bytes(3 << 20), b""):
        (tmp_path / "source").write_bytes(content)
        home.storage.keep_copy("copies/.c", tmp_path / "source")
        assert home.storage.read("copies/.c") == content
        assert [one.path for one in home.storage.list("copies")] == ["copies/.c"]


def test_what_is_not_there_is_absent_and_nothing_else(home: Home) -> None:
    assert home.storage.look("nowhere") is None
    assert list(home.storage.entries(["nowhere", "no/where"])) == [None, None]
    assert list(home.storage.list("nowhere")) == []
    assert home.storage.match("nowhere/*") == ()
    with pytest.raises(FileNotFoundError):
        home.storage.read("nowhere")
    home.storage.delete("nowhere")


def test_a_place_is_taken_by_a_file_and_by_what_is_below_it(home: Home) -> None:
    for path in ("a/file", "b/_hidden/file", "cc/file"):
        home.put(path)
    assert [home.storage.is_taken(path) for path in ("a/file", "a", "b", "b/_hidden", "c", "d")] == [
        *[True] * 4,
        *[False] * 2,
    ]


def test_a_deleted_file_is_gone_and_may_be_made_again(home: Home) -> None:
    home.storage.create("first", b"one")
    home.storage.delete("first")
    assert home.storage.look("first") is None
    assert home.storage.create("first", b"two") == b"two"


def test_a_file_is_told_the_same_by_all_who_tell_it(home: Home) -> None:
    home.put("in/a.csv", b"content")
    found = entry(home.storage, "in/a.csv")
    assert (found.path, found.size) == ("in/a.csv", 7)
    same = [*folder(home.storage, "in").files, *home.storage.list("in"), *home.storage.match("in/*.csv")]
    same += [one for one in home.storage.entries(["in/a.csv"]) if one]
    assert same == [found] * 4
    assert {one.touched_ns for one in same if isinstance(one, Entry)} == {found.touched_ns}
    assert found.touched_ns > 0


def test_a_replaced_file_has_another_version_and_is_not_read(home: Home) -> None:
    home.put("a.csv", b"old")
    before = entry(home.storage, "a.csv")
    home.put("a.csv", b"newer")
    assert entry(home.storage, "a.csv").version != before.version
    with pytest.raises(Replaced):
        home.storage.open(before).read()
    home.remove("a.csv")
    with pytest.raises(Replaced):
        home.storage.open(before).read()


@pytest.mark.parametrize("buffering", [0, 3, 1 << 20])
def test_a_file_is_read_anywhere(home: Home, buffering: int) -> None:
    content = bytes(range(100))
    home.put("a", content)
    with home.storage.open(entry(home.storage, "a"), buffering=buffering) as file:
        assert (file.readable(), file.seekable(), file.writable()) == (True, True, False)
        assert file.read(3) == content[:3]
        assert (file.seek(-5, io.SEEK_END), file.read(), file.read(4)) == (95, content[-5:], b"")
        assert (file.seek(10), file.seek(5, io.SEEK_CUR), file.tell()) == (10, 15, 15)
        assert file.read(2) == content[15:17]
        assert (file.seek(200), file.read(1)) == (200, b"")


def test_a_record_is_read_by_ranges_without_knowing_more_than_its_path(home: Home) -> None:
    home.storage.keep_content("records/r", b"0123456789")
    with home.storage.open("records/r", buffering=0) as file:
        assert (file.seek(3), file.read(4), file.seek(0, io.SEEK_END)) == (3, b"3456", 10)
    with home.storage.open("records/r") as file:
        assert (file.seek(-2, io.SEEK_END), file.read()) == (8, b"89")
    with home.storage.open("records/r") as file:
        assert (file.read(4), file.read(), file.read()) == (b"0123", b"456789", b"")
    with home.storage.open("records/r", buffering=0) as file:
        assert (file.seek(20), file.read(1), file.seek(0, io.SEEK_END)) == (20, b"", 10)
    home.storage.keep_content("records/empty", b"")
    with home.storage.open("records/empty") as file:
        assert (file.read(), file.seek(0, io.SEEK_END)) == (b"", 0)
    for read in (lambda file: file.read(1), lambda file: file.seek(0, io.SEEK_END)):
        with pytest.raises(FileNotFoundError), home.storage.open("records/none", buffering=0) as file:
            read(file)


def test_arrow_reads_it(home: Home) -> None:
    rows = pa.table({"id": range(10_000)})
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=1000)
    home.put("a.parquet", sink.getvalue())
    found = entry(home.storage, "a.parquet")
    for buffering in (0, 1 << 20):
        with home.storage.open(found, buffering=buffering) as opened, pq.ParquetFile(opened) as file:
            assert file.read().equals(rows)


def test_an_empty_file_is_a_file(home: Home) -> None:
    home.put("in/empty", b"")
    found = entry(home.storage, "in/empty")
    with home.storage.open(found) as file:
        assert (found.size, file.read()) == (0, b"")
    assert paths(folder(home.storage, "in").files) == ["in/empty"]


@pytest.mark.parametrize("name", ["öl", "a b", "100%", "a%41", "a+b", "a#b", "a?b&c=d", "[x]*", "a\\b", "~", "a:b"])
def test_names_are_taken_as_they_are(home: Home, name: str) -> None:
    home.put(f"in/{name}", b"content")
    home.storage.create(f"out/{name}", b"content")
    assert home.storage.read(f"in/{name}") == b"content"
    assert paths(folder(home.storage, "in").files) == [f"in/{name}"]
    assert [one.path for one in home.storage.list("out")] == [f"out/{name}"]


def test_a_folder_shows_what_is_visible_and_a_list_all(home: Home) -> None:
    for path in ("in/b.csv", "in/a.csv", "in/_SUCCESS", "in/.part", "in/deep/c.csv", "in/_old/d.csv", "inner"):
        home.put(path)
    found = folder(home.storage, "in")
    assert (found.path, paths(found.files), found.folders) == ("in", ["in/a.csv", "in/b.csv"], ("deep",))
    assert folder(home.storage, "in/") == found
    below = ["in/.part", "in/_SUCCESS", "in/_old/d.csv", "in/a.csv", "in/b.csv", "in/deep/c.csv"]
    assert sorted(one.path for one in home.storage.list("in")) == below
    assert entry(home.storage, "in/_SUCCESS").path == "in/_SUCCESS"


def test_a_folder_with_nothing_visible_is_a_folder(home: Home) -> None:
    home.put("in/_SUCCESS")
    home.put("in/a.csv._COPYING_")
    assert folder(home.storage, "in") == Folder(path="in", files=(), folders=())


def test_many_files_are_all_told(home: Home, request: pytest.FixtureRequest) -> None:
    numbers = [f"{number:05d}" for number in range(1100)]
    names = [f"in/{number}" for number in numbers]
    if home.bucket is None:
        for name in names:
            home.put(name)
    else:
        request.getfixturevalue("s3").lay(home.bucket.bucket, f"{PREFIX}/in", numbers)
    assert paths(folder(home.storage, "in").files) == names
    assert sorted(one.path for one in home.storage.list("in")) == names
    assert [one.path for one in home.storage.entries(names[:50]) if one] == names[:50]


def test_it_goes_to_other_processes_and_says_where_it_is(home: Home) -> None:
    home.put("a", b"x")
    sent = pickle.loads(pickle.dumps(home.storage))
    assert sent == home.storage
    assert sent.read("a") == b"x"
    if home.bucket is None:
        assert home.storage.where("a") == f"{home.folder}/a"
    else:
        assert home.storage.where("a") == f"s3://{home.bucket.bucket}/prod/lake/a at {home.bucket.endpoint}"


def test_a_good_storage_passes_the_probe_and_keeps_nothing_of_it(home: Home) -> None:
    home.put(".skipstone/probe-r-1/first", b"left by an earlier attempt")
    home.storage.probe("probe-r-1")
    assert list(home.storage.list(".skipstone")) == []


NAMES = st.sampled_from(["a", "ab", "b.csv", "a.csv", "_h", ".d"])
TREES = st.lists(st.lists(NAMES, min_size=1, max_size=3).map("/".join), min_size=1, max_size=8, unique=True)
PARTS = st.sampled_from(["**", "*", "a*", "?", "[ab]*", "*.csv", "a", "_*", "_h", "*b*"])
PATTERNS = st.builds(
    lambda parts, end: "/".join(parts) + end, st.lists(PARTS, min_size=1, max_size=4), st.sampled_from(["", "", "/"])
)


def possible(tree: list[str]) -> list[str]:
    """Without names that would be a file and a folder at once."""
    above = {"/".join(parts[:depth]) for path in tree for parts in [path.split("/")] for depth in range(1, len(parts))}
    return [path for path in tree if path not in above]


@settings(
    max_examples=cases(25, 200), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(tree=TREES, patterns=st.lists(PATTERNS, min_size=1, max_size=6))
def test_both_match_look_and_list_alike(tmp_path: Path, bucket: S3Client, tree: list[str], patterns: list[str]) -> None:
    fresh = uuid.uuid4().hex
    here, there = volume_home(tmp_path / fresh), s3_home(replace(bucket))
    with credentials(OWNER):
        for path in possible(tree):
            here.put(path, path.encode())
            there.put(f"{fresh}/{path}", path.encode())
        for pattern in patterns:
            mine = [_shape(one) for one in here.storage.match(pattern)]
            theirs = [_shape(one, fresh) for one in there.storage.match(f"{fresh}/{pattern}")]
            assert theirs == list(dict.fromkeys(mine)), pattern
        for path in {"/".join(part) for one in tree for part in itertools.accumulate([[n] for n in one.split("/")])}:
            assert _shape(there.storage.look(f"{fresh}/{path}"), fresh) == _shape(here.storage.look(path)), path
        listed = sorted(one.path.removeprefix(f"{fresh}/") for one in there.storage.list(fresh))
        assert listed == sorted(possible(tree))


def _shape(found: Entry | Folder | None, below: str = "") -> object:
    """What is the same on both."""
    if found is None:
        return None
    path = found.path.removeprefix(below).removeprefix("/")
    if isinstance(found, Entry):
        return path, found.size
    return path, tuple(_shape(file, below) for file in found.files), found.folders
