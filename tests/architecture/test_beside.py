"""`scripts/beside` runs the two halves of `make test`; whoever ends it leaves nothing behind."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

BESIDE = Path(__file__).parents[2] / "scripts" / "beside"


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_both_commands_end_with_it(tmp_path: Path, end: signal.Signals) -> None:
    lives = tmp_path / "lives"
    os.mkfifo(lives)
    # A grandchild holds the pipe open, so that it is read to its end only when each of them is gone.
    command = f"sh -c 'echo begun; exec sleep 600' > '{lives}'; true"
    # A shell cannot trap a signal that it is started to ignore, as whatever runs in the background of another one is.
    process = subprocess.Popen(
        ["env", f"--default-signal={end.name[3:]}", BESIDE, command, command], stdout=subprocess.PIPE
    )
    with lives.open() as pipe, process:
        assert [pipe.readline(), pipe.readline()] == ["begun\n", "begun\n"]
        process.send_signal(end)
        assert pipe.read() == ""
        process.communicate()
    assert process.returncode == 130


@pytest.mark.parametrize(("first", "second", "code"), [(0, 0, 0), (3, 0, 3), (0, 4, 4), (3, 4, 3)])
def test_it_fails_when_either_fails(first: int, second: int, code: int) -> None:
    done = subprocess.run(
        [BESIDE, f"echo one; exit {first}", f"echo two; exit {second}"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (code, "one")


def waiting_for(path: Path, then: str) -> str:
    """A command that goes on when a file is there."""
    return f"until [ -e '{path}' ]; do sleep 0.05; done; {then}"


@pytest.mark.parametrize("slow", [0, 1])
def test_the_side_that_ends_first_runs_the_rest_once(tmp_path: Path, slow: int) -> None:
    rest = tmp_path / "rest"
    sides = ["true", "true"]
    sides[slow] = waiting_for(rest, "true")  # would wait forever if the rest waited for both
    done = subprocess.run([BESIDE, *sides, f"echo rest >> '{rest}'; exit 5"], capture_output=True, text=True)
    assert (done.returncode, rest.read_text()) == (5, "rest\n")


def test_a_side_that_fails_leaves_the_rest_to_the_other(tmp_path: Path) -> None:
    rest = tmp_path / "rest"
    done = subprocess.run([BESIDE, "exit 3", "true", f"echo rest >> '{rest}'"], capture_output=True, text=True)
    assert (done.returncode, rest.read_text()) == (3, "rest\n")


def test_a_side_may_run_two_commands_itself() -> None:
    inner = f"'{BESIDE}' 'echo one' 'echo two'"
    done = subprocess.run([BESIDE, inner, "true"], capture_output=True, text=True, check=True)
    assert (done.stdout.splitlines()[-1], done.stderr) == ("one", "")
    assert "two" in done.stdout.splitlines()
