"""`make demo` with fewer months, where there is no Java: it goes to its end, and plain PyIceberg verifies the table."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from demo.machine import ROOT

PATIENCE = 600.0


def test_the_demonstration_goes_to_its_end_without_java(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "demo.local", "--first-month=10", f"--folder={tmp_path / 'a demo'}"]
    without_java = {**os.environ, "JAVA_HOME": "/nonexistent"}
    done = subprocess.run(
        command, env=without_java, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stderr == f"the report is in {tmp_path}/a demo/report.html\n"
    for printed in (
        "No Java for Spark is here",
        "3 rows, as DuckDB says; files opened: 2 with the indexes, 3 without them",
        "--- verify with plain PyIceberg",
        "All flights are right: the merge skipped 1 of 3 files and rewrote 2.",
        "Plain Spark has not verified them: this run needs Spark, and there is no Java in /nonexistent: install Java",
    ):
        assert printed in done.stdout, done.stdout
