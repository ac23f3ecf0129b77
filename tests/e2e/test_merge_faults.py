"""Merges on a cluster: drivers killed in each phase, and ten merges that race another writer. Each ends right, once."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from demo.kube import EMBEDDED
from tests.e2e.lake import PATIENCE, Lake, change, merge, spark, table, warehouse

#: What the driver's log says when a phase begins; nothing: the commit is in the table, and not yet reported.
PHASES = {
    "read": "reading the source",
    "prune": "looking for keys",
    "rewrite": "merging",
    "commit": "committing",
    "report": "",
}
KILLED = {phase: f"killed-{phase}" for phase in PHASES}
#: Spark reads the feed in the first phase; the others are the same with and without Spark.
WITH_SPARK = ("read",)
RACED = ("raced-one", "raced-two")
#: Merges for each raced table. The driver of one of them needs Spark; the others do without, as for all Parquet.
MERGES = 5
STOP = "stop-appending"
SEED = """
import sys
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
root, *tables = sys.argv[1:]
catalog = SqlCatalog("skipstone", uri=f"sqlite:///{root}/catalog.db", warehouse=root)
for name in tables:
    for first in (1, 21):
        table = catalog.load_table(name)
        rows = [{"id": i, "name": "old", "city": "Oslo", "born": None} for i in range(first, first + 20)]
        table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
"""


def in_catalog(name: str) -> str:
    """What the catalog calls a Table."""
    return name.replace("-", "_")


@pytest.fixture(scope="module")
def faults(lakes: dict[str, Lake]) -> Iterator[Lake]:
    """A lake of small tables with rows 1 to 40 in two files each, and room for several drivers at once."""
    lake = lakes["e2e-faults"]
    names = (*KILLED.values(), *RACED)
    lake.apply(warehouse(spark=spark("200m"), maxConcurrentRuns=5), *(table(name) for name in names))
    for name in names:
        lake.until_condition("tbl", name, "Ready")
    lake.run_pod("seed", "python", "-c", SEED, lake.mount, *(f"db.{in_catalog(name)}" for name in names))
    yield lake
    lake.kube.run("delete", "mj", "--all", "--wait=true")


def metadata_of(lake: Lake, name: str) -> str:
    """Where the catalog says that the table's metadata is."""
    uri = f"file:{lake.folder / 'catalog.db'}?mode=rw"
    with closing(sqlite3.connect(uri, uri=True, timeout=60)) as catalog:
        asked = "select metadata_location from iceberg_tables where table_name = ?"
        return str(catalog.execute(asked, (in_catalog(name),)).fetchone()[0])


def starting_driver(lake: Lake, name: str) -> tuple[str, list[int]]:
    """The driver pod of a MergeJob and its processes, as soon as there are some: it has not imported anything then."""
    uid = (lake.kube.get("mj", name) or {})["metadata"]["uid"]
    pods: list[str] = []
    processes: list[int] = []

    def look() -> bool:
        if not pods:
            found = lake.kube.items("pods", f"skipstone.dev/owner-uid={uid},skipstone.dev/operation=Merge")
            pods.extend(pod["metadata"]["name"] for pod in found)
        processes.extend(processes_of(pods[0]) if pods else ())
        return bool(processes)

    lake.kube.wait_for(f"the driver of {name} starts", look, seconds=PATIENCE, every=0.2)
    return pods[0], processes


def until_said(lake: Lake, pod: str, text: str) -> None:
    """Return as soon as the pod's log has ``text``. Reads the node's file: a log that is asked for comes too late."""
    folders, logs = EMBEDDED / "log" / "pods", list[Path]()

    def said() -> bool:
        logs[:] = logs or folders.glob(f"{lake.kube.namespace}_{pod}_*/*/*.log")
        return any(text in log.read_text(errors="replace") for log in logs)

    lake.kube.wait_for(f"{pod} says {text!r}", said, seconds=PATIENCE, every=0.01)


def processes_of(pod: str) -> list[int]:
    """The pod's processes, by what the kernel knows of them."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended
            if f"POD_NAME={pod}".encode() in environment.read_bytes().split(b"\0"):
                found.append(int(environment.parent.name))
    return found


def kill(processes: Iterable[int]) -> int:
    """SIGKILL to each; how many there were."""
    killed = 0
    for process in processes:
        with suppress(ProcessLookupError):  # it ended with the first process of its container
            os.kill(process, signal.SIGKILL)
            killed += 1
    return killed


def kill_in(lake: Lake, phase: str) -> int:
    """Run the merge of the phase's table and kill its first driver there; how many processes that hit."""
    name = KILLED[phase]
    before = metadata_of(lake, name)
    kind = "csv" if phase in WITH_SPARK else "parquet"
    lake.apply(merge(name, f"feeds/changes.{kind}", table_name=name))
    pod, first = starting_driver(lake, name)  # to look for them later would be too late
    if PHASES[phase]:
        until_said(lake, pod, PHASES[phase])
    else:
        landed: Callable[[], bool] = lambda: metadata_of(lake, name) != before  # noqa: E731
        lake.kube.wait_for("the commit", landed, seconds=PATIENCE, every=0.01)
    return kill(first) + kill(processes_of(pod))


def test_a_merge_whose_driver_is_killed_in_any_phase_ends_right_once(faults: Lake) -> None:
    for kind in ("csv", "parquet"):
        changes = [change("U", 7, "new", "Oslo"), change("D", 8), change("I", 300, "new", "Bonn")]
        faults.write(f"feeds/changes.{kind}", changes)
    with ThreadPoolExecutor(len(PHASES)) as threads:
        killed = dict(zip(PHASES, threads.map(lambda phase: kill_in(faults, phase), PHASES), strict=True))
    jobs = {phase: faults.until_complete("mj", KILLED[phase]) for phase in PHASES}
    expected = {number: "new" if number in (7, 300) else "old" for number in (*range(1, 41), 300) if number != 8}
    for phase, rows in zip(PHASES, faults.all_rows(KILLED.values()).values(), strict=True):
        assert [(row["id"], row["name"]) for row in rows] == sorted(expected.items()), phase
    again = {phase for phase, job in jobs.items() if job["status"]["attempts"] >= 2}
    assert {"read", "prune"} <= again, f"late kills may come when all is said, these may not: {killed}"
    assert {job["status"]["rows"]["updated"] for job in jobs.values()} == {1}


def racing_merge(lake: Lake, name: str, number: int) -> dict[str, Any]:
    """A merge of a feed of its own that renames row 7 and adds a row."""
    says = f"merge {number}"
    path = f"feeds/race-{name}-{number}.{'csv' if (name, number) == (RACED[0], 0) else 'parquet'}"
    lake.write(path, [change("U", 7, says, "Oslo"), change("I", 50_000 + number, says, "Bonn")])
    return merge(f"{name}-{number}", path, table_name=name)


def test_ten_merges_race_another_writer_without_loss(faults: Lake) -> None:
    """Whose rows lie around the keys of the merges: bounds alone do not tell that it does not concern them."""
    paths = {name: f"db.{in_catalog(name)}" for name in RACED}
    with ThreadPoolExecutor(1) as threads:
        before = {name: metadata_of(faults, name) for name in RACED}
        appends = threads.submit(faults.ask, "appends", "appends.py", STOP, *paths.values(), seconds=3 * PATIENCE)
        try:
            faults.kube.wait_for(
                "both tables are appended to",
                lambda: appends.done() or all(metadata_of(faults, name) != before[name] for name in RACED),
                seconds=PATIENCE,
            )
            for number in range(MERGES):
                for name in RACED:
                    faults.apply(racing_merge(faults, name, number))
            for name in RACED:
                for number in range(MERGES):
                    faults.until_complete("mj", f"{name}-{number}")
        finally:
            faults.write(STOP, "")
        theirs = appends.result()
    for name, rows in faults.all_rows(RACED).items():
        merged = range(50_000, 50_000 + MERGES)
        assert len(theirs[paths[name]]) > 2 * MERGES, "they did not race"
        assert [row["id"] for row in rows] == sorted([*range(1, 41), *theirs[paths[name]], *merged])
        names = {row["id"]: row["name"] for row in rows}
        assert names[7] in {f"merge {number}" for number in range(MERGES)}
        assert [names[number] for number in merged] == [f"merge {number}" for number in range(MERGES)]
