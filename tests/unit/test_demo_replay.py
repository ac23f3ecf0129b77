"""The demonstration's check must be able to fail: every row of the feed counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.data import FEED, write_all
from demo.replay import ColumnPrint, differences, fingerprint, open_replay
from demo.steps import new_lines

Fingerprint = tuple[ColumnPrint, ...]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flights")
    assert write_all(path) == 336_776
    return path


@pytest.fixture(scope="module")
def expected(root: Path) -> Fingerprint:
    """What the feed makes of the months."""
    return fingerprint(open_replay(root), "expected")


@pytest.fixture
def changed_feed(root: Path, tmp_path: Path) -> Path:
    """A root with the same months whose feed can be edited."""
    (tmp_path / "landing").symlink_to(root / "landing")
    (tmp_path / "feeds").mkdir()
    (tmp_path / FEED).write_bytes((root / FEED).read_bytes())
    return tmp_path


def test_a_replay_equals_itself(root: Path, expected: Fingerprint) -> None:
    assert differences(expected, fingerprint(open_replay(root), "expected")) == ()


def test_every_kind_of_change_is_in_the_feed(root: Path) -> None:
    operations = {line.split(",", 1)[0] for line in (root / FEED).read_text().splitlines()[1:]}
    assert operations == {"U", "D", "I"}


@pytest.mark.parametrize("wanted", ["U,2,", "D,3,", "I,4,"])
def test_one_removed_row_of_the_feed_is_noticed(expected: Fingerprint, changed_feed: Path, wanted: str) -> None:
    lines = (changed_feed / FEED).read_text().splitlines(keepends=True)
    victim = next(i for i, line in enumerate(lines) if line.startswith(wanted) and ",LGA," not in line)
    (changed_feed / FEED).write_text("".join(lines[:victim] + lines[victim + 1 :]))
    assert differences(expected, fingerprint(open_replay(changed_feed), "expected")) != ()


def test_swapped_values_of_two_rows_are_noticed(root: Path, expected: Fingerprint) -> None:
    connection = open_replay(root)
    connection.execute(
        "UPDATE expected SET dest = CASE dest WHEN 'IAH' THEN 'MIA' ELSE 'IAH' END WHERE month = 1 AND day = 1"
        " AND dep_time IN (517, 542)"
    )
    names = [sentence.split(":")[0] for sentence in differences(expected, fingerprint(connection, "expected"))]
    assert names == ["column *"]


def test_the_same_files_are_written_twice(root: Path, tmp_path: Path) -> None:
    write_all(tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.rglob("*.csv")} == {
        p.name: p.read_bytes() for p in root.rglob("*.csv")
    }


def test_a_watched_table_shows_only_what_changed() -> None:
    first = "NAME   ROWS\na      1\nb\n"
    assert new_lines(first, "") == first.rstrip()
    assert new_lines("NAME   ROWS\na      1\nb      2\n", first) == "b      2"
    assert new_lines("NAME     ROWS\na        1\nlonger   2\n", first) == "longer   2"
