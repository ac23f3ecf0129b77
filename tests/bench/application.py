"""How long one merge takes as an application of its own, from ``kubectl create`` to Complete, and where the time goes.

Run by ``make bench-application`` on the embedded cluster, which must be up. A table like TPC-H lineitem; each run is a
new MergeJob whose feed changes a tenth of the rows of the last 2 % of files and adds as many. The clock outside the
driver is the API server's audit log, inside it the driver's own log and its report. Then merges of 200 rows go through
kept drivers, alone and as many as possible. Prints medians, and appends all runs to ``build/bench/application.jsonl``.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from demo.kube import EMBEDDED, Kube
from tests.bench import application_rows, kept
from tests.bench.application_rows import COLUMNS, KEY, make_rows
from tests.bench.results import FOLDER, keep, show_goals
from tests.e2e.lake import Lake, installed, resource, warehouse

ROOT = Path(__file__).parents[2]
RESULTS = FOLDER / "application.jsonl"
AUDIT = EMBEDDED / "log" / "audit.log"
NAMESPACE, NAME = "bench-application", "lines"
SPARK = {
    "driver": {"cores": 2, "memory": "1Gi"},
    "executor": {"instances": 0},
    "conf": {"spark.kubernetes.driver.request.cores": "500m"},
}
#: Shares of the last files' rows: changed, of these gone; as many as are changed are new.
CHANGED, GONE = 0.1, 0.1
MOST_REPEATS = 10
SEED = 5
#: Stages of the driver's report, in their order.
STAGES = ("start", "open", "plan", "session", "read", "prune", "rewrite", "commit", "report")
BEGINS = re.compile(r"^(\S+ \S+) INFO \S+ run \S+ begins, (\S+) s after its process$", re.MULTILINE)
#: How long after the end of a run nothing else happens any more: its Table and its history are brought up to date.
REST_SECONDS = 5.0
Measured = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """How large the table is."""

    files: int
    rows: int

    @property
    def total(self) -> int:
        """Rows of all files."""
        return self.files * self.rows


def declare(lake: Lake, size: Size) -> None:
    """Warehouse and Table, with all rows."""
    columns = [{"name": name, "type": kind, "required": name == KEY} for name, kind in COLUMNS]
    spec = {
        "warehouseRef": {"name": "lake"},
        "identifier": {"namespace": "db", "name": NAME},
        "columns": columns,
        "primaryKey": [KEY],
    }
    lake.apply(warehouse(spark=SPARK), resource("Table", NAME, spec))
    lake.until_condition("tbl", NAME, "Ready")
    program = Path(application_rows.__file__).read_text()
    given = (lake.mount, f"db.{NAME}", str(size.files), str(size.rows))
    lake.run_pod("fill", "python", "-c", program, *given, seconds=600)


def write_feed(lake: Lake, size: Size, number: int) -> str:
    """The feed of run ``number``; returns its path below the Warehouse's root."""
    random = np.random.default_rng(number)
    recent = max(1, size.files // 50) * size.rows
    count = int(recent * CHANGED)
    # A part of its own for each run: a key that an earlier one deleted would be an insert among the old keys.
    shuffled = np.random.default_rng(SEED).permutation(np.arange(size.total - recent, size.total))
    keys = np.sort(shuffled[number * count : (number + 1) * count])
    fresh = size.total + number * count + np.arange(count)
    rows = make_rows(np.concatenate([keys, fresh]), size.files + number)
    gone = np.concatenate([random.random(count) < GONE, np.zeros(count, bool)])
    feed = rows.append_column("op", pa.array(np.where(gone, "D", "U")))
    sink = pa.BufferOutputStream()
    pq.write_table(feed, sink, compression="zstd")
    path = f"feeds/{number}.parquet"
    lake.write(path, sink.getvalue().to_pybytes())
    return path


def merge_job(name: str, path: str) -> Measured:
    """Deletes, updates and inserts by an operation column."""
    spec = {
        "tableRef": {"name": NAME},
        "source": {"format": "Parquet", "paths": [path]},
        "keys": [{"target": KEY, "source": KEY}],
        "whenMatched": [{"when": "source.op = 'D'", "action": "Delete"}, {"action": "Update"}],
        "whenNotMatched": [{"when": "source.op != 'D'", "action": "Insert"}],
    }
    return resource("MergeJob", name, spec)


def run_once(lake: Lake, size: Size, number: int, logs: Path | None) -> Measured:
    """One merge, undisturbed: what it took and where, in milliseconds."""
    path, name = write_feed(lake, size, number), f"recent-{number}"
    time.sleep(REST_SECONDS)
    begin = AUDIT.stat().st_size
    lake.create(merge_job(name, path))
    job = lake.until_complete("mj", name)
    run = job["status"]["lastRun"]
    log = lake.kube.run("logs", f"{run['id']}-driver")
    if logs is not None:
        (logs / f"{name}.log").write_text(log)
    said = split(Audit.since(begin, lake.kube.namespace), name, run, log)
    counts = {field: job["status"][field] for field in ("files", "rows")}
    return {"case": "recent keys, cold application", "run": number, **said, **counts}


@dataclass(frozen=True)
class Audit:
    """Requests on the objects of one namespace, in the order in which they came."""

    events: Sequence[Measured]

    @staticmethod
    def since(begin: int, namespace: str) -> Audit:
        """What the log has from the byte ``begin`` on."""
        with AUDIT.open("rb") as log:
            log.seek(begin)
            lines = [line for line in log.read().splitlines() if line.endswith(b"}")]
        events = [
            event for line in lines if (event := json.loads(line)).get("objectRef", {}).get("namespace") == namespace
        ]
        return Audit(sorted(events, key=lambda event: event["requestReceivedTimestamp"]))

    def times(self, verb: str, what: str, name: str, by: str = "") -> list[float]:
        """When so many requests were answered, in seconds: ``what`` is a resource or resource/subresource."""
        return [moment(event) for event in self.events if matches(event, (verb, what, name, by))]


def matches(event: Measured, wanted: tuple[str, str, str, str]) -> bool:
    """Whether an event is of this verb, resource and name, and of a user that is called like this."""
    verb, what, name, by = wanted
    about = event["objectRef"]
    found = "/".join(filter(None, (about["resource"], about.get("subresource"))))
    good = event.get("responseStatus", {}).get("code", 0) < 300
    return good and (event["verb"], found, about.get("name")) == (verb, what, name) and by in event["user"]["username"]


def moment(event: Measured) -> float:
    """When the request was answered."""
    return datetime.fromisoformat(event["stageTimestamp"]).timestamp()


def split(audit: Audit, name: str, run: Measured, log: str) -> Measured:
    """The run's spans, which follow each other, and the stages of its driver."""
    pod = f"{run['id']}-driver"
    begins, age = begin_of(log)
    created = audit.times("create", "mergejobs", name)[0]
    complete = audit.times("update", "mergejobs/status", name)[-1]
    launched = audit.times("create", "pods", pod)[0]
    bound = audit.times("create", "pods/binding", pod)[0]
    told = audit.times("patch", "pods", pod)[-1]
    ended = [at for at in audit.times("patch", "pods/status", pod, "system:node:") if at <= complete][-1]
    stages = {name: run["stagesMs"].get(name, 0) for name in STAGES}
    inside = ms(told - begins) + round(age * 1000)
    return {
        "total": ms(complete - created),
        "launch to commit": ms(begins - created) + sum(stages[name] for name in STAGES[1:-1]),
        "submit": ms(launched - created),
        "schedule": ms(bound - launched),
        "kubelet": ms(begins - age - bound),
        **stages,
        "other of the driver": inside - sum(stages.values()),
        "exit": ms(ended - told),
        "complete": ms(complete - ended),
    }


def begin_of(log: str) -> tuple[float, float]:
    """When the run began, and how old its process was then. Raises RuntimeError when the log does not tell."""
    found = BEGINS.search(log)
    if found is None:
        raise RuntimeError(f"the driver's log does not tell when it began: {log[:500]}")
    at = datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
    return at.timestamp(), float(found[2])


def ms(seconds: float) -> int:
    return round(1000 * seconds)


def medians(runs: Sequence[Measured], case: str) -> Measured:
    """The median of each span."""
    spans = [name for name, value in runs[0].items() if isinstance(value, int) and name != "run"]
    middle = {name: round(statistics.median(run[name] for run in runs)) for name in spans}
    return {"case": f"{case}, medians", "runs": len(runs), **middle}


def show(runs: Sequence[Measured], middle: Measured) -> None:
    """A line for each span: its median and all runs."""
    for name, value in list(middle.items())[2:]:
        print(f"{name:<22} {value:>7} ms   {' '.join(str(run[name]) for run in runs)}")


def run_kept(lake: Lake, given: argparse.Namespace) -> tuple[list[Measured], Measured]:
    """Merges that kept drivers take, one undisturbed after the other, then all at once."""
    kept.declare(lake, given.drivers)
    runs = []
    for number in range(given.repeats):
        begin = AUDIT.stat().st_size
        runs.append(kept.run_once(lake, number, lambda begin=begin: Audit.since(begin, NAMESPACE)))
    return runs, kept.run_many(lake, given.merges)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=50, help="data files of the table")
    parser.add_argument("--rows", type=int, default=120_000, help="rows of a file")
    parser.add_argument("--repeats", type=int, default=6, choices=range(1, MOST_REPEATS + 1), help="merges")
    parser.add_argument("--drivers", type=int, default=2, help="kept drivers")
    parser.add_argument("--merges", type=int, default=120, help="merges that kept drivers take all at once")
    parser.add_argument("--logs", type=Path, help="a folder to keep the drivers' logs in")
    given = parser.parse_args()
    size = Size(given.files, given.rows)
    with installed(Kube.find(), (NAMESPACE,)) as lakes:
        lake = lakes[NAMESPACE]
        declare(lake, size)
        runs = [run_once(lake, size, number, given.logs) for number in range(given.repeats)]
        small, many = run_kept(lake, given)
    middle, small_middle = medians(runs, "recent keys, cold application"), medians(small, "200 rows, kept driver")
    for measured, shown in ((runs, middle), (small, small_middle)):
        print(shown["case"])
        show(measured, shown)
    print(many)
    keep(RESULTS, {"case": middle["case"], "stages_ms": middle, "of": runs})
    seconds = small_middle["launch to commit"] / 1000
    keep(RESULTS, {"case": kept.LATENCY, "seconds": seconds, "stages_ms": small_middle, "of": small})
    keep(RESULTS, many)
    show_goals(RESULTS)


if __name__ == "__main__":
    main()
