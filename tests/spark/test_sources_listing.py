"""Which files a source is: paths, patterns, links, the pin, and the proof that nothing changed."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from skipstone.sources.listing import (
    SourceListing,
    find_pin,
    list_source,
    pin_source,
    pinned_source,
    require_unchanged,
)
from skipstone.sources.text.headers import read_header
from skipstone.sources.text.options import TextOptions
from skipstone.storage.beneath import open_beneath
from skipstone_core.contract.requests import CatalogRef, CatalogType, SourceFormat, SourceSpec, WarehouseRef
from skipstone_core.errors import BadData, BadSpec, DependencyUnavailable, UserError
from skipstone_core.reasons import Reason

from tests.spark.intake_bed import rewrite_unseen


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name in ("landing/2013-01.csv", "landing/2013-02.csv", "landing/_SUCCESS", "landing/.part", "single.csv"):
        put(root / name, name)
    put(tmp_path / "outside" / "secret.csv", "secret")
    return root


def put(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def warehouse(root: Path) -> WarehouseRef:
    return WarehouseRef(name="wh", root=str(root), catalog=CatalogRef(type=CatalogType.SQL))


def source(*paths: str) -> SourceSpec:
    return SourceSpec(format=SourceFormat.CSV, paths=paths)


def listed(root: Path, *paths: str) -> list[str]:
    return [file.path for file in list_source(warehouse(root), source(*paths)).files]


def refuse_to_link(*_: object, **__: object) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


def test_a_file_a_folder_and_a_pattern_name_their_visible_files_once(root: Path) -> None:
    months = ["landing/2013-01.csv", "landing/2013-02.csv"]
    assert listed(root, "single.csv") == ["single.csv"]
    assert listed(root, "landing") == months
    assert listed(root, "landing/") == months
    assert listed(root, "landing/*-0?.csv") == months
    assert listed(root, "landing/2013-02.csv", "landing", "**/2013-0[12].csv") == months


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(root: Path) -> None:
    put(root / "odd[1]*.csv", "x")
    assert listed(root, "odd[1]*.csv") == ["odd[1]*.csv"]


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../outside/secret.csv", "landing/../../outside/secret.csv", "file:///etc/passwd", ".."]
)
def test_paths_that_lead_out_are_refused(root: Path, path: str) -> None:
    with pytest.raises(BadSpec, match="leads out of the Warehouse") as caught:
        listed(root, path)
    assert caught.value.reason is Reason.PATH_OUTSIDE_WAREHOUSE


@pytest.mark.parametrize("path", ["link.csv", "linked/secret.csv", "linked", "*.csv", "linked/*"])
def test_links_that_lead_out_are_refused(root: Path, path: str) -> None:
    (root / "link.csv").symlink_to(root.parent / "outside" / "secret.csv")
    (root / "linked").symlink_to(root.parent / "outside")
    with pytest.raises(BadSpec, match=r"source\.paths: .* leads out of the Warehouse") as caught:
        listed(root, path)
    assert caught.value.reason is Reason.PATH_OUTSIDE_WAREHOUSE


def test_a_link_inside_is_the_file_it_names_and_counts_once(root: Path) -> None:
    (root / "again.csv").symlink_to(root / "single.csv")
    assert listed(root, "again.csv", "single.csv") == ["single.csv"]


@pytest.mark.parametrize("path", ["nowhere.csv", "nowhere/*.csv", "landing/*.json", "empty", "dangling.csv"])
def test_what_names_no_file_is_not_found(root: Path, path: str) -> None:
    (root / "empty").mkdir()
    (root / "dangling.csv").symlink_to(root / "gone.csv")
    with pytest.raises(BadData, match=f"'{path}'".replace("*", r"\*")) as caught:
        listed(root, path)
    assert caught.value.reason is Reason.SOURCE_NOT_FOUND


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("landing/_SUCCESS", "is hidden by its name"),
        ("nested/deep/b.csv._COPYING_", "is hidden by its name"),
        (".skipstone/runs/a.csv", "holds records of runs"),
        ("nested", "holds the folder 'deep'"),
        ("", "a path is empty"),
    ],
)
def test_what_is_never_read_is_told(root: Path, path: str, sentence: str) -> None:
    put(root / "nested/deep/a.csv", "x")
    put(root / "nested/deep/b.csv._COPYING_", "x")
    put(root / ".skipstone/runs/a.csv", "x")
    with pytest.raises(BadSpec, match=sentence) as caught:
        listed(root, path)
    assert caught.value.reason is Reason.INVALID_SPEC


@pytest.mark.parametrize("path", ["other", "other/\udcff.csv", "other/*.csv"])
def test_a_name_that_is_not_text_is_told(root: Path, path: str) -> None:
    put(root / "other" / "\udcff.csv", "a")
    with pytest.raises(BadSpec, match=r"the name of 'other/\\xff\.csv' is not UTF-8: rename the file") as caught:
        listed(root, path)
    assert caught.value.reason is Reason.INVALID_SPEC


def test_the_digest_tells_sources_apart_by_path_size_and_time(root: Path) -> None:
    def digest() -> str:
        return list_source(warehouse(root), source("landing")).digest

    first = digest()
    assert digest() == first
    os.utime(root / "landing/2013-01.csv", ns=(1, 1))
    touched = digest()
    put(root / "landing/2013-03.csv", "more")
    assert len({first, touched, digest()}) == 3


def test_the_first_pin_counts_for_all_attempts(root: Path) -> None:
    first = pinned_source(warehouse(root), source("landing"), "uid")
    put(root / "landing/2013-03.csv", "more")
    assert pinned_source(warehouse(root), source("landing"), "uid") == first
    assert pinned_source(warehouse(root), source("landing"), "other").files[2].path == "landing/2013-03.csv"


@pytest.mark.parametrize("links", [True, False], ids=["hard links", "no hard links"])
def test_of_two_drivers_that_pin_at_once_both_get_the_same_source(
    root: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", refuse_to_link)
    whole = list_source(warehouse(root), source("landing", "single.csv"))
    offers = [replace(whole, files=(file,)) for file in whole.files]
    barrier, found = threading.Barrier(len(offers)), []

    def pin(offer: SourceListing) -> None:
        barrier.wait(timeout=800)
        found.append(pin_source(offer, warehouse(root), "uid"))

    threads = [threading.Thread(target=pin, args=(offer,)) for offer in offers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=800)
    assert len(found) == len(offers) and set(found) == {find_pin(warehouse(root), "uid")}
    assert [path.name for path in (root / ".skipstone/runs/uid").iterdir()] == ["source.json"]


def test_a_damaged_pin_is_told_and_never_replaced(root: Path) -> None:
    put(root / ".skipstone/runs/uid/source.json", "{")
    with pytest.raises(DependencyUnavailable, match=r"source\.json") as caught:
        pinned_source(warehouse(root), source("landing"), "uid")
    assert caught.value.reason is Reason.STORAGE_UNAVAILABLE


def change_content(path: Path) -> None:
    path.write_text("changed")


def change_time(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def remove(path: Path) -> None:
    path.unlink()


def put_a_link_in_its_place(path: Path) -> None:
    path.rename(path.with_name("moved.csv"))
    path.symlink_to(path.with_name("moved.csv"))


@pytest.mark.parametrize("change", [change_content, change_time, remove, put_a_link_in_its_place])
def test_a_file_that_is_not_the_pinned_one_is_told_by_name(root: Path, change: object) -> None:
    listing = pinned_source(warehouse(root), source("landing"), "uid")
    require_unchanged(listing)
    assert callable(change)
    change(root / "landing/2013-02.csv")
    with pytest.raises(UserError, match=r"'landing/2013-02\.csv' is not the file") as caught:
        pinned_source(warehouse(root), source("landing"), "uid")
    assert caught.value.reason is Reason.SOURCE_CHANGED


def copy_elsewhere(root: Path) -> Path:
    """A folder outside with files of the same names, sizes and times, and other content."""
    outside = root.parent / "elsewhere"
    shutil.copytree(root / "landing", outside)
    for path in outside.iterdir():
        kept = path.stat()
        path.write_text("X" * kept.st_size)
        os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    return outside


@pytest.mark.parametrize("what", ["folder", "file"])
def test_a_link_out_that_takes_the_place_of_a_listed_file_is_never_followed(root: Path, what: str) -> None:
    listing = pinned_source(warehouse(root), source("landing"), "uid")
    outside, name = copy_elsewhere(root), "landing/2013-01.csv"
    moved, target = (root / "landing", outside) if what == "folder" else (root / name, outside / "2013-01.csv")
    moved.rename(root / "moved")
    moved.symlink_to(target)
    assert (root / name).read_text().startswith("X"), "a plain open follows it"
    with pytest.raises(UserError, match="is not the file") as caught:
        require_unchanged(listing)
    assert caught.value.reason is Reason.SOURCE_CHANGED
    with pytest.raises(BadData, match=r"landing/2013-01\.csv"):
        read_header(listing.stored[0], TextOptions())
    with pytest.raises(OSError, match=r"symbolic links|Not a directory"), open_beneath(root / name, name):
        pass


def test_a_file_rewritten_with_its_size_and_time_while_it_is_read_fails_the_attempt(root: Path) -> None:
    listing = pinned_source(warehouse(root), source("landing"), "uid")
    path = root / "landing/2013-01.csv"
    rewrite_unseen(path, "X" * path.stat().st_size)
    with pytest.raises(DependencyUnavailable, match="was written, moved or replaced while it was read") as caught:
        require_unchanged(listing)
    assert caught.value.reason is Reason.SOURCE_CHANGED
    require_unchanged(pinned_source(warehouse(root), source("landing"), "uid"))


def test_a_source_that_may_still_be_written_waits(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patient = replace(source("landing"), settle_seconds=3600)
    with pytest.raises(DependencyUnavailable, match="2 of 2 files changed less than 3600 seconds ago") as caught:
        pinned_source(warehouse(root), patient, "uid")
    assert caught.value.reason is Reason.SOURCE_NOT_SETTLED
    assert find_pin(warehouse(root), "uid") is None
    later = time.time_ns() + 3_601_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: later)
    assert len(pinned_source(warehouse(root), patient, "uid").files) == 2
