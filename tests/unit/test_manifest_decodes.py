"""Decoded manifests on disk: the next process finds them, and nothing that lies there can change an answer."""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import resource
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, ManifestFile
from skipstone.tables.decoding import decodes
from skipstone.tables.decoding.decodes import FILE_BYTES, DecodeFolder, ManifestKey, compacted, open_folder
from skipstone.tables.decoding.entries import DataManifest
from skipstone.tables.decoding.manifests import read_data_manifests

from tests.manifest_rows import expected_rows, rows_of
from tests.unit.manifest_files import BY_EVERYTHING, IO, PARTITIONS, at, data_file, entries, written_manifest


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which decodes are kept; made by the first that is."""
    monkeypatch.setenv("SKIPSTONE_CACHE_DIR", str(tmp_path / "decodes"))
    return tmp_path / "decodes" / f"skipstone-{os.geteuid()}"


def manifest_of(folder: Path, *names: str) -> ManifestFile:
    """A manifest of files ``names``."""
    found = [
        ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=77, data_file=data_file(name))
        for name in names
    ]
    return written_manifest(folder, found)


def kept(cache: Path) -> Path:
    """The one decode in the folder."""
    (path,) = cache.iterdir()
    return path


def load(manifest: ManifestFile) -> list[str] | None:
    """Paths of the files of ``manifest`` as the folder has them."""
    folder = open_folder()
    assert folder is not None
    found = folder.load(ManifestKey.of(manifest))
    return found.entries.column("path").to_pylist() if found else None


def read(manifest: ManifestFile) -> list[str]:
    """Paths of the files of ``manifest`` as a run reads them."""
    (found,), _ = read_data_manifests([manifest], IO)
    paths: list[str] = found.entries.column("path").to_pylist()
    return paths


def test_a_decode_is_read_once_more_from_memory(cache: Path, tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path, "a", "b")
    (first,), counters = read_data_manifests([manifest], IO)
    (second,), again = read_data_manifests([manifest], IO)
    assert second is first
    assert (counters.decoded, counters.from_disk, counters.from_memory) == (1, 0, 0)
    assert (again.decoded, again.from_disk, again.from_memory) == (0, 0, 1)


def in_another_process(manifest: ManifestFile) -> str:
    """What a process reads that has read nothing: the paths, then how many were decoded and how many came from disk.

    It is forked from one that has imported what it needs, which takes longer than to read.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    answers, asked = context.Pipe(duplex=False)
    folder, path = os.environ["SKIPSTONE_CACHE_DIR"], manifest.manifest_path.removeprefix("file://")
    process = context.Process(target=read_and_answer, args=(asked, folder, Path(path)))
    process.start()
    asked.close()
    with answers:
        said: str = answers.recv()
    process.join()
    process.close()
    return said


def read_and_answer(answers: Connection, folder: str, path: Path) -> None:
    """In the child."""
    os.environ["SKIPSTONE_CACHE_DIR"] = folder
    (found,), counters = read_data_manifests([at(path)], IO)
    paths = found.entries.column("path").to_pylist()
    answers.send(" ".join(map(str, [*paths, counters.decoded, counters.from_disk])))


def test_two_processes_share_the_folder(cache: Path, tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path, "a", "b")
    assert in_another_process(manifest) == "a b 1 0"
    assert in_another_process(manifest) == "a b 0 1"
    assert read(manifest) == ["a", "b"]


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(st.lists(entries(PARTITIONS), min_size=1, max_size=5))
def test_what_is_kept_is_what_was_decoded(cache: Path, tmp_path: Path, found: list[ManifestEntry]) -> None:
    manifest = written_manifest(tmp_path, found, spec=BY_EVERYTHING)
    read(manifest)
    folder = open_folder()
    assert folder
    loaded = folder.load(ManifestKey.of(manifest))
    assert loaded
    assert rows_of(loaded) == expected_rows(manifest, IO)


@pytest.mark.parametrize("left", [0, 3, 100, -1, -5, -300])
def test_a_truncated_file_is_written_anew(cache: Path, tmp_path: Path, left: int) -> None:
    manifest = manifest_of(tmp_path, "a")
    assert in_another_process(manifest) == "a 1 0"
    whole = kept(cache).read_bytes()
    kept(cache).write_bytes(whole[:left])
    assert load(manifest) is None
    assert read(manifest) == ["a"]
    assert kept(cache).read_bytes() == whole


def test_no_flipped_bit_goes_unseen(cache: Path, tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path, "a")
    read(manifest)
    whole = kept(cache).read_bytes()
    for place in range(0, len(whole), 61):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        kept(cache).write_bytes(damaged)
        assert load(manifest) is None, place


def test_the_decode_of_another_manifest_is_not_taken(cache: Path, tmp_path: Path) -> None:
    """As if both had the same digest."""
    one, other = manifest_of(tmp_path, "a"), manifest_of(tmp_path, "b")
    read(one)
    mine = kept(cache)
    read(other)
    (theirs,) = set(cache.iterdir()) - {mine}
    theirs.replace(mine)
    assert load(one) is None


@pytest.mark.parametrize("name", ["manifest_length", "sequence_number", "added_snapshot_id", "partition_spec_id"])
def test_a_manifest_that_is_listed_otherwise_is_decoded_anew(cache: Path, tmp_path: Path, name: str) -> None:
    """The same path with another length is another file; the rest is what entries inherit."""
    manifest = manifest_of(tmp_path, "a")
    read(manifest)
    position = {"manifest_length": 1, "partition_spec_id": 2, "sequence_number": 4, "added_snapshot_id": 6}[name]
    before = getattr(manifest, name)
    manifest._data[position] += 1  # type: ignore[misc]
    assert getattr(manifest, name) == before + 1
    assert load(manifest) is None
    assert read_data_manifests([manifest], IO)[1].decoded == 1


def test_another_layout_is_not_taken(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = manifest_of(tmp_path, "a")
    read(manifest)
    monkeypatch.setattr(decodes, "_LAYOUT", decodes._LAYOUT + 1)
    assert load(manifest) is None


def unwritable_parent(tmp_path: Path) -> None:
    (tmp_path / "decodes").write_text("a file, so that no folder can be made below it")


def open_to_others(tmp_path: Path) -> None:
    folder = tmp_path / "decodes" / f"skipstone-{os.geteuid()}"
    folder.mkdir(parents=True)
    folder.chmod(0o777)


def link_to_elsewhere(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (tmp_path / "decodes").mkdir()
    (tmp_path / "decodes" / f"skipstone-{os.geteuid()}").symlink_to(elsewhere)


@pytest.mark.parametrize("prepare", [unwritable_parent, open_to_others, link_to_elsewhere])
def test_without_a_private_folder_nothing_is_kept_and_nothing_fails(
    cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, prepare: object
) -> None:
    assert callable(prepare)
    prepare(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert open_folder() is None
        assert read(manifest_of(tmp_path, "a", "b")) == ["a", "b"]
    assert "SKIPSTONE_CACHE_DIR" in caplog.text
    assert not list(tmp_path.rglob("*.arrow"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_of_another_user_are_not_trusted(cache: Path, tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path, "a")
    read(manifest)
    assert load(manifest) == ["a"]
    os.chown(kept(cache), 12345, 12345)
    assert load(manifest) is None
    os.chown(cache, 12345, 12345)
    assert open_folder() is None


def test_files_that_others_may_write_are_not_trusted(cache: Path, tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path, "a")
    read(manifest)
    kept(cache).chmod(0o666)
    assert load(manifest) is None


@pytest.fixture
def no_umask() -> Iterator[None]:
    """Files are made with every right that is asked for."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_umask")
def test_decodes_are_private_whatever_the_umask(cache: Path, tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path, "a")
    read(manifest)
    assert (cache.stat().st_mode & 0o777, kept(cache).stat().st_mode & 0o777) == (0o700, 0o600)
    assert load(manifest) == ["a"]


@pytest.fixture
def tiny_files() -> Iterator[None]:
    """The kernel refuses to let any file grow, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_write_that_fails_does_not_stop_a_read(
    cache: Path, tmp_path: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    manifest = manifest_of(tmp_path, "a")
    request.getfixturevalue("tiny_files")
    assert read(manifest) == ["a"]
    assert not list(cache.iterdir())
    assert "decoded manifests are not kept" in caplog.text


def test_the_longest_unused_decodes_go_first(tmp_path: Path) -> None:
    found = {name: manifest_of(tmp_path, name) for name in ("old", "used", "new")}
    decoded, _ = read_data_manifests(list(found.values()), IO)
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    everything = DecodeFolder(private)
    keys = {name: ManifestKey.of(manifest) for name, manifest in found.items()}
    for age, (name, manifest) in enumerate(zip(found, decoded, strict=True)):
        everything.save(keys[name], manifest)
        (newest,) = [path for path in private.iterdir() if path.stat().st_mtime_ns > 10**18]
        os.utime(newest, (age, age))
    assert everything.load(keys["used"])
    sizes = {path.stat().st_size for path in private.iterdir()}
    assert max(sizes) < FILE_BYTES, "these would count for what they are"
    DecodeFolder(private, budget=2 * FILE_BYTES).trim()
    assert [name for name, key in keys.items() if everything.load(key)] == ["used", "new"]
    DecodeFolder(private, budget=0).trim()
    assert not list(private.iterdir())


def private_folder(parent: Path) -> DecodeFolder:
    private = parent / "private"
    private.mkdir(mode=0o700)
    return DecodeFolder(private)


def repeated(manifest: ManifestFile, rows: int) -> DataManifest:
    """The decode of ``manifest`` with its first entry so many times."""
    (decoded,), _ = read_data_manifests([manifest], IO)
    return DataManifest(decoded.spec_id, decoded.entries.take(pa.array([0] * rows)), decoded.partitions)


class LookedThrough(DecodeFolder):
    """A folder that knows how often it was trimmed."""

    trims = 0

    def trim(self) -> None:
        """Count it, too."""
        self.trims += 1
        super().trim()


def test_a_folder_of_small_decodes_is_seldom_looked_through_and_never_has_many(tmp_path: Path) -> None:
    """Whatever the number of decodes that were ever made: the files count, which have to be listed, not their bytes."""
    manifest = manifest_of(tmp_path, "a")
    (decoded,), _ = read_data_manifests([manifest], IO)
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    folder = LookedThrough(private, budget=10 * FILE_BYTES)
    random.seed(5)
    most, key = 0, ManifestKey.of(manifest)
    for number in range(1_000):
        folder.save(replace(key, length=number), decoded)
        if number % 50 == 49:
            most = max(most, len(list(private.iterdir())))
    assert folder.load(replace(key, length=999))
    assert 0 < folder.trims < 10
    assert most < 600


def test_a_large_decode_does_not_stay_beyond_the_budget(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path, "a" * 500)
    (decoded,), _ = read_data_manifests([manifest], IO)
    many = decoded.entries.take(pa.array([0] * 30_000))
    large = DataManifest(decoded.spec_id, many, decoded.partitions)
    assert large.nbytes > 256 * FILE_BYTES
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    folder = LookedThrough(private, budget=10 * FILE_BYTES)
    folder.save(ManifestKey.of(manifest), large)
    assert folder.trims == 1
    assert not list(private.iterdir())


@pytest.mark.parametrize("rows", [1, 30_000])
def test_entries_outlive_their_file(tmp_path: Path, rows: int) -> None:
    manifest, folder = manifest_of(tmp_path, "a"), private_folder(tmp_path)
    folder.save(ManifestKey.of(manifest), repeated(manifest, rows))
    found = folder.load(ManifestKey.of(manifest))
    for path in (tmp_path / "private").iterdir():
        path.unlink()
    assert found is not None
    assert found.entries.column("path") == pa.array(["a"] * rows)


def test_however_many_decodes_a_process_holds_none_keeps_a_file_open(tmp_path: Path) -> None:
    manifest, folder = manifest_of(tmp_path, "a"), private_folder(tmp_path)
    small, large = repeated(manifest, 1), repeated(manifest, 30_000)
    assert small.nbytes < FILE_BYTES < large.nbytes
    keys = [replace(ManifestKey.of(manifest), length=number) for number in range(20)]
    for number, key in enumerate(keys):
        folder.save(key, large if number % 2 else small)
    before = len(list(Path("/proc/self/fd").iterdir()))
    held = [folder.load(key) for key in keys]
    assert all(held)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def hold(folder: Path, sender: Connection) -> None:
    """Hold many small decodes; send the bytes by which that lets the process grow, and those that they count as."""
    manifest = manifest_of(folder, "a")
    (decoded,), _ = read_data_manifests([manifest], IO)
    key = ManifestKey.of(manifest)
    held = [compacted(key, decoded) for _ in range(100)]
    before = resident()
    held += [compacted(key, decoded) for _ in range(2_000)]
    sender.send((resident() - before, sum(one.nbytes for one in held)))


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_small_decodes_count_as_many_bytes_as_they_take(cache: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=hold, args=(tmp_path, sender))
    process.start()
    sender.close()
    taken, counted = receiver.recv()
    process.join()
    assert taken < 1.3 * counted
