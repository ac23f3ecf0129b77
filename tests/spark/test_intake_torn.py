"""A driver that dies while it writes down what it took leaves nothing that a later job believes.

The file system is real; on one without hard links `link` says so. A death takes with it the second half of what was
being written, as a lost page cache does.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from skipstone.runs.intake import Intake
from skipstone.sources.listing import find_pin
from skipstone_core.history.commits import Committed, Outcome

from tests.spark.intake_bed import IntakeBed


class Killed(BaseException):
    """Stands for a driver that dies: nothing catches it."""


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[IntakeBed]:
    made = IntakeBed(tmp_path)
    yield made
    made.catalog.close()


@pytest.fixture(params=["hard links", "no hard links"])
def links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both kinds of file systems."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    if request.param == "no hard links":
        monkeypatch.setattr(os, "link", refuse)


def job(bed: IntakeBed, uid: str) -> Outcome:
    """One attempt of a job, from its list of files to its outcome."""
    _, intake = bed.take(uid)
    return bed.commit(uid, intake) if isinstance(intake, Intake) else intake


def dies(bed: IntakeBed, uid: str, number: int) -> bool:
    """Whether an attempt got as far as its sync ``number``, at which it dies with half of that file lost."""
    counter, fsync = itertools.count(1), os.fsync

    def fsync_or_die(descriptor: int) -> None:
        if next(counter) < number:
            return fsync(descriptor)
        name = Path(f"/proc/self/fd/{descriptor}").readlink()
        if name.is_file():
            os.truncate(name, name.stat().st_size // 2)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", fsync_or_die)
        # A process that is gone cleans nothing up
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        try:
            job(bed, uid)
        except Killed:
            return True
    return False


@pytest.mark.usefixtures("links")
@pytest.mark.parametrize("successor", ["another job", "the next attempt"])
def test_whatever_a_dead_driver_left_half_written_every_file_is_taken_once(bed: IntakeBed, successor: str) -> None:
    for number in itertools.count(1):
        bed.drop(name := f"{number:02}.csv")
        uid = f"{number:08d}-0000-4000-8000-000000000000"
        if not dies(bed, uid, number):
            break
        pin = find_pin(bed.warehouse, uid)
        if successor == "another job":
            assert bed.consume() == [name]
            assert not isinstance(job(bed, uid), Committed) or pin is None
        else:
            assert isinstance(job(bed, uid), Committed)
            assert pin is None or find_pin(bed.warehouse, uid) == pin
        assert bed.remembered([name]) == {name}
        assert bed.consume() == []
    assert number > 4, "deaths came while the pin and while the record was written"


def test_a_torn_record_under_the_name_of_a_whole_one_is_replaced(bed: IntakeBed) -> None:
    bed.drop("a.csv")
    uid, intake = bed.take()
    assert isinstance(intake, Intake) and intake.ledger is not None
    intake.ledger.properties(bed.table(), 1)
    (record,) = bed.records()
    whole = record.read_bytes()
    record.write_bytes(whole[: len(whole) // 2])
    assert isinstance(bed.commit(uid, intake), Committed)
    assert record.read_bytes() == whole
    assert bed.consume() == []
