"""Whatever is killed while a lake is loaded and merged, and whenever: the next `up` ends right, each row once."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.local.lake import CLAIM, ROWS, Lake, kill, load, merge, table, wait_for, warehouse

JOB = [CLAIM, warehouse(), table(), load("a-load", "landing/*.parquet"), merge("b-merge")]
SOAK_CASES = int(os.environ.get("SKIPSTONE_SOAK_CASES", "30"))


def processes(lake: Lake) -> list[dict[str, int]]:
    """The pids of pods whose process has not ended: supervisor and driver."""
    found = []
    for path in lake.root.path.glob("pods/*/process.json"):
        if not (path.parent / "end.json").exists():
            found.append(json.loads(path.read_text()))
    return found


def has_intent(lake: Lake, kind: str, name: str) -> bool:
    status = lake.get(kind, name).get("status") or {}
    return bool(status.get("currentRun"))


def has_committed(lake: Lake, commits: int) -> bool:
    return len(lake.metadata_files()) > commits


def has_reported(lake: Lake, pods: int) -> bool:
    return len(list(lake.root.path.glob("pods/*/termination"))) >= pods


#: The first run checks the Warehouse, the second creates the table; then come the load and the merge.
MOMENTS: dict[str, Callable[[Lake], bool]] = {
    "the load is intended": lambda lake: has_intent(lake, "LoadJob", "a-load"),
    "the load runs": lambda lake: len(list(lake.root.path.glob("pods/*/process.json"))) >= 3,
    "the load has committed": lambda lake: has_committed(lake, 1),
    "the load has reported": lambda lake: has_reported(lake, 3),
    "the merge has committed": lambda lake: has_committed(lake, 2),
}


def strike(lake: Lake, victim: str, process: subprocess.Popen[str]) -> None:
    """Kill the process that serves, or the driver or its supervisor, if one runs."""
    if victim == "up":
        process.kill()
        process.wait()
    else:
        kill([one["process" if victim == "driver" else "supervisor"] for one in processes(lake)])


def check(lake: Lake) -> None:
    """Let another process go on until everything is settled."""
    printed = lake.run_once()
    assert "4 of 4 objects are as their manifests ask" in printed
    assert lake.rows() == ROWS


@pytest.mark.parametrize(
    ("victim", "moment"),
    [
        ("up", "the load has committed"),
        pytest.param("up", "the load is intended", marks=pytest.mark.soak),
        pytest.param("up", "the load runs", marks=pytest.mark.soak),
        pytest.param("up", "the load has reported", marks=pytest.mark.soak),
        pytest.param("up", "the merge has committed", marks=pytest.mark.soak),
        pytest.param("driver", "the load runs", marks=pytest.mark.soak),
        pytest.param("driver", "the load has committed", marks=pytest.mark.soak),
        pytest.param("driver", "the merge has committed", marks=pytest.mark.soak),
        pytest.param("supervisor", "the load runs", marks=pytest.mark.soak),
        pytest.param("supervisor", "the load has committed", marks=pytest.mark.soak),
        pytest.param("supervisor", "the merge has committed", marks=pytest.mark.soak),
    ],
)
def test_one_death_at_a_chosen_moment(lake: Lake, victim: str, moment: str) -> None:
    lake.write_orders()
    with lake.serving(*JOB) as process:
        wait_for(lambda: MOMENTS[moment](lake), moment, process)
        strike(lake, victim, process)
    check(lake)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(SOAK_CASES))
def test_deaths_at_random(lake: Lake, seed: int) -> None:
    draw = random.Random(seed + int(os.environ.get("SKIPSTONE_SOAK_SEED", "0")))
    lake.write_orders()
    manifests = JOB
    for _ in range(draw.randint(2, 5)):
        with lake.serving(*manifests) as process:
            if manifests:
                wait_for(lambda: lake.get("MergeJob", "b-merge"), "the manifests", process)
                manifests = []
            end = time.monotonic() + draw.uniform(0.0, 12.0)
            while time.monotonic() < end and process.poll() is None:
                time.sleep(draw.uniform(0.0, 3.0))
                if draw.random() < 0.4:
                    strike(lake, draw.choice(["driver", "supervisor"]), process)
    check(lake)


@pytest.mark.soak
def test_a_machine_that_loses_its_power_has_lost_nothing(lake: Lake) -> None:
    """All processes die at once, as late as it can be: the load has committed, and nobody was told."""
    lake.write_orders()
    with lake.serving(*JOB) as process:
        wait_for(lambda: has_committed(lake, 1), "a commit", process)
        pids = processes(lake)
        process.kill()
        kill([pid for one in pids for pid in (one["supervisor"], one["process"])])
    check(lake)
    assert not list(Path(lake.root.path / "pods").glob("*/scratch")), "what only processes needed is removed"
