"""How the process of a run ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

#: Prints what is called at the end of a process; ``{run}`` is what runs before.
PROGRAM = """
import atexit, os, signal, sys
from skipstone.ending import end_with

class Global:
    def __del__(self):
        print("taken down")

kept = Global()
atexit.register(print, "at exit")

def run():
    {run}

end_with(run)
"""
#: Stops after one batch of a file of many row groups, which Arrow's threads go on to read through Python.
READER = """
import io, time
import pyarrow as pa, pyarrow.dataset as ds, pyarrow.fs as fs
from skipstone.ending import end_with

class Slow(io.FileIO):
    def read(self, size=-1):
        time.sleep(0.002)
        return super().read(size)

class Files(fs.FSSpecHandler):
    def __init__(self):
        pass
    def get_type_name(self):
        return "slow"
    def get_file_info(self, paths):
        return fs.LocalFileSystem().get_file_info(paths)
    def normalize_path(self, path):
        return path
    def open_input_file(self, path):
        return pa.PythonFile(Slow(path), "r")

def run():
    found = ds.dataset(["{path}"] * 20, filesystem=fs.PyFileSystem(Files()), format="parquet")
    global batches
    batches = found.scanner(batch_size=1_000, batch_readahead=64, fragment_readahead=8).to_batches()
    next(batches)
    return 0

end_with(run)
"""


APPS = Path(__file__).parents[2] / "spark_apps" / "skipstone" / "apps"
SCRIPTS = [path for path in APPS.glob("*.py") if "run_app(" in path.read_text()]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_application_imports_its_end_first_and_ends_with_it(script: Path) -> None:
    lines = script.read_text().splitlines()
    ours = [line.strip() for line in lines if line.strip().startswith("from skipstone")]
    assert ours[0] == "from skipstone.ending import end_with"
    assert lines[-1].strip().startswith("end_with(")


def ended(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("run", "code"),
    [
        ("return 0", 0),
        ("return 20", 20),
        ("sys.exit(21)", 21),
        ("sys.exit()", 0),
        ("sys.exit('a message')", 1),
    ],
)
def test_a_process_ends_with_the_code_of_its_run_and_is_not_taken_down(run: str, code: int) -> None:
    end = ended(PROGRAM.format(run=run))
    assert (end.returncode, end.stdout) == (code, "at exit\n"), end.stderr


def test_a_message_of_an_exit_is_printed() -> None:
    assert ended(PROGRAM.format(run="sys.exit('a message')")).stderr == "a message\n"


@pytest.mark.parametrize("closed", ["sys.stdout = None", "sys.stdout.close()", "os.close(1)"])
def test_a_process_without_output_ends_with_the_code_of_its_run(closed: str) -> None:
    assert ended(PROGRAM.format(run=f"{closed}; return 23")).returncode == 23


def test_a_signal_that_exits_ends_the_process_with_its_code() -> None:
    handled = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)); os.kill(os.getpid(), signal.SIGTERM)"
    assert ended(PROGRAM.format(run=f"{handled}; signal.pause()")).returncode == 128 + signal.SIGTERM


def test_an_error_of_a_run_ends_the_process_as_errors_do() -> None:
    end = ended(PROGRAM.format(run="raise RuntimeError('lost')"))
    assert end.returncode == 1
    assert end.stderr.rstrip().endswith("RuntimeError: lost")


def test_threads_of_arrow_that_still_read_do_not_disturb_the_end(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"number": range(200_000)}), path, row_group_size=2_000)
    end = ended(READER.format(path=path))
    assert end.returncode == 0, end.stderr
