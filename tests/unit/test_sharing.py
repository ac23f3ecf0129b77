"""How the processes of an end-to-end test run share one installation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.sharing import Share

DIES = """
import os, sys
from pathlib import Path
from tests.e2e.sharing import Share
share = Share.take(Path(sys.argv[1]))
print("taken", flush=True)
sys.stdin.read()
os._exit(1)
"""


def test_the_first_makes_the_installation_and_the_last_removes_it(tmp_path: Path) -> None:
    done: list[str] = []
    one, two = Share.take(tmp_path), Share.take(tmp_path)
    one.begin("run", lambda: done.append("one makes"))
    two.begin("run", lambda: done.append("two makes"))
    assert (one.is_alone(), two.is_alone()) == (False, False)
    two.leave(lambda: done.append("two removes"))
    assert one.is_alone()
    assert one.is_alone(), "asking changes nothing"
    one.leave(lambda: done.append("one removes"))
    assert done == ["one makes", "one removes"]


def test_who_comes_while_somebody_asks_for_being_alone_is_counted(tmp_path: Path) -> None:
    one = Share.take(tmp_path)
    assert one.is_alone()
    two = Share.take(tmp_path)
    assert (one.is_alone(), two.is_alone()) == (False, False)
    for share in (one, two):
        share.users.close()


def test_a_process_that_dies_has_left_and_the_next_run_begins_afresh(tmp_path: Path) -> None:
    done: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-c", DIES, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == b"taken\n"
        one = Share.take(tmp_path)
        one.begin("cut off", lambda: done.append("makes"))
        assert not one.is_alone()
        other.communicate()
    assert one.is_alone()
    one.users.close()  # this one is cut off as well
    two = Share.take(tmp_path)
    two.begin("next", lambda: done.append("makes again"))
    two.leave(lambda: done.append("removes"))
    assert done == ["makes", "makes again", "removes"]


def test_an_installation_that_failed_is_tried_by_the_next(tmp_path: Path) -> None:
    done: list[str] = []
    one, two = Share.take(tmp_path), Share.take(tmp_path)
    with pytest.raises(ZeroDivisionError):
        one.begin("run", lambda: done.append(str(1 // 0)))
    two.begin("run", lambda: done.append("makes"))
    for share in (one, two):
        share.leave(lambda: done.append("removes"))
    assert done == ["makes", "removes"]
