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
