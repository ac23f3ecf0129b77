"""Merges of 200 rows that a kept driver takes: from their MergeJob to their commit, and how many fit into a minute.

Called by the benchmark of applications, on a small table of its own beside the large one. The clock is the API server's
audit log; a kept driver's own log has the lines of its runs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.bench.processors import read_processors, spent_each
from tests.e2e.lake import Lake, condition, resource, table

Measured = dict[str, Any]
#: Rows of a feed: half of them change rows of the table, half are new.
FEED_ROWS = 200
TABLE_ROWS = 2_000
TABLES = ("busy-0", "busy-1", "busy-2", "busy-3")
SINGLE = "busy-0"
#: Cases, by which their goals are found: one undisturbed merge, and as many as possible of all tables.
LATENCY, RATE = "kept driver, 200 rows: launch to commit", "kept driver, 200 rows: merges a minute"
REST_SECONDS = 3.0
#: Between two LISTs of all jobs, each of which takes as much processor time as a tenth of a merge.
POLL_SECONDS = 1.0


def declare(lake: Lake, drivers: int) -> None:
    """Tables of people with rows, and kept drivers that take runs."""
    lake.kube.run(
        "patch",
        "wh",
        "lake",
        "--type=merge",
        "-p",
        f'{{"spec": {{"warmDrivers": {{"min": {drivers}, "max": {drivers}}}, "maxConcurrentRuns": 20}}}}',
    )
    lake.apply(*(table(name) for name in TABLES))
    for name in TABLES:
        lake.until_condition("tbl", name, "Ready")
        write(lake, f"start-{name}", range(TABLE_ROWS))
        lake.create(job(f"start-{name}", name))
    lake.until_condition("wh", "lake", "WarmDriversReady", reason="KeptDriversReady")
    for name in TABLES:
        lake.until_complete("mj", f"start-{name}")


def write(lake: Lake, name: str, ids: Sequence[int]) -> None:
    """A feed that updates or inserts these people."""
    columns = {
        "op": pa.array(["U"] * len(ids)),
        "seq": pa.array(range(len(ids)), pa.int64()),
        "id": pa.array(list(ids), pa.int64()),
        "name": pa.array([f"person {name} {number}" for number in ids]),
        "city": pa.array(["Oslo"] * len(ids)),
        "born": pa.array([None] * len(ids), pa.date32()),
    }
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    lake.write(f"feeds/{name}.parquet", sink.getvalue().to_pybytes())


def job(name: str, of_table: str) -> Measured:
    """A MergeJob of the feed of this name."""
    spec = {
        "tableRef": {"name": of_table},
        "source": {"format": "Parquet", "paths": [f"feeds/{name}.parquet"]},
        "keys": [{"target": "id", "source": "id"}],
        "sequenceBy": "seq",
        "whenMatched": [{"action": "Update"}],
        "whenNotMatched": [{"action": "Insert"}],
    }
    return resource("MergeJob", name, spec)


def feed_of(lake: Lake, name: str, number: int) -> None:
    """Feed ``number`` of a table: half of its people are there, half are new."""
    half = FEED_ROWS // 2
    first = TABLE_ROWS + number * half
    write(lake, name, [*range(number * 7, number * 7 + half), *range(first, first + half)])


def run_once(lake: Lake, number: int, events: Callable[[], Any]) -> Measured:
    """One merge, undisturbed: what it took and where, in milliseconds. ``events``: the audit log since now."""
    name = f"kept-{number}"
    feed_of(lake, name, number)
    time.sleep(REST_SECONDS)
    lake.create(job(name, SINGLE))
    run = lake.until_complete("mj", name)["status"]["lastRun"]
    pod = f"{run['id']}-driver"
    keeper = (lake.kube.get("pod", pod) or {})["metadata"]["labels"].get("skipstone.dev/kept-driver", "")
    if not keeper:
        raise RuntimeError(f"{pod} was not assigned to a kept driver")
    begins, age = begin_of(lake.kube.run("logs", keeper), run["id"])
    audit = events()
    created = audit.times("create", "mergejobs", name)[0]
    assigned = audit.times("create", "pods", pod)[0]
    told = audit.times("patch", "pods/status", pod)
    complete = audit.times("update", "mergejobs/status", name)[-1]
    stages = {stage: spent for stage, spent in run["stagesMs"].items() if stage != "start"}
    before_commit = sum(spent for stage, spent in stages.items() if stage != "report")
    return {
        "case": "200 rows, kept driver",
        "run": number,
        "total": ms(complete - created),
        "launch to commit": ms(begins - created) + before_commit,
        "submit": ms(assigned - created),
        "begin": ms(told[0] - assigned),
        "fork": ms(begins - told[0]),
        "age of the process": ms(age),
        **stages,
        "end": ms(told[-1] - begins) - sum(stages.values()),
        "complete": ms(complete - told[-1]),
    }


def begin_of(log: str, run_id: str) -> tuple[float, float]:
    """When a run began, and how old its process was then. Raises RuntimeError when the log does not tell."""
    line = re.search(rf"^\[{run_id}\] (\S+ \S+) INFO \S+ run \S+ begins, (\S+) s after its process$", log, re.MULTILINE)
    if line is None:
        raise RuntimeError(f"the kept driver's log does not tell when {run_id} began")
    at = datetime.strptime(line[1], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
    return at.timestamp(), float(line[2])


def ms(seconds: float) -> int:
    return round(1000 * seconds)


def run_many(lake: Lake, merges: int) -> Measured:
    """As many merges as are asked for, of all tables, all there at once: how many end in a minute.

    Also the processor time of each part of the cluster for one of them, in milliseconds.
    """
    names = [(f"many-{number}", TABLES[number % len(TABLES)], 50 + number // len(TABLES)) for number in range(merges)]
    for name, _, number in names:
        feed_of(lake, name, number)
    begin, before = time.monotonic(), read_processors()
    lake.apply(*(job(name, of_table) for name, of_table, _ in names))
    left = {name for name, _, _ in names}
    while left:
        for item in lake.kube.items("mj"):
            name = item["metadata"]["name"]
            if name in left and condition(item, "Failed").get("status") == "True":
                raise RuntimeError(f"{name} failed: {item['status']}")
            if condition(item, "Complete").get("status") == "True":
                left.discard(name)
        time.sleep(POLL_SECONDS)
    seconds, spent = time.monotonic() - begin, spent_each(before, merges)
    kept = [pod for pod in lake.kube.items("pods", "skipstone.dev/operation=Merge") if is_kept(pod)]
    rate = round(merges * 60 / seconds)
    return {
        "case": RATE,
        "merges": merges,
        "seconds": round(seconds, 1),
        "per_minute": rate,
        "kept": len(kept),
        "cpu_ms": spent,
    }


def is_kept(pod: Measured) -> bool:
    """Whether a kept driver ran the pod."""
    return str(pod["spec"].get("schedulerName")).startswith("skipstone.dev/kept-driver-")
