"""What a merge costs by the state of its table: many files, many merges before it, deletion vectors.

Run by `make bench-merge-states`. The feeds are small, so that what is measured is planning and committing. Nothing
maintains the tables. Times are processor seconds of the driver, which other work on the machine hardly changes, except
where a key ends in ``_s``. Writes lines of the merge benchmark: build/bench/merge.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, DoubleType, LongType, NestedField, StringType
from skipstone_core.contract.reports import JobReport
from skipstone_core.reasons import Reason

from tests.bench.lineitem import ROOT, say
from tests.bench.results import FOLDER, is_left, keep, show_goals, verdict
from tests.spark.merge_bed import MergeBed, task_of

RESULTS = FOLDER / "merge.jsonl"
CACHE = ROOT / ".cache" / "bench" / "merge-states"
SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "amount", DoubleType()),
    NestedField(4, "day", DateType()),
)
#: Rows of each of many files, and files of a commit.
FEW_ROWS, FILES_AT_ONCE = 10, 500
TOUCHED = 4
#: Merges beside the 10th and the last one whose median stands for these.
SPAN = 10
ON_READ = {"write.merge.mode": "merge-on-read"}
DEEP, VECTORS = "processor seconds of the {:,}th merge / the 10th", "deletion vectors / position deletes"


def main() -> None:
    """Run all cases."""
    options = _options()
    if options.plan:
        print(json.dumps(_planned(MergeBed(Path(options.plan), cores=2), options.number)))
        return
    cases: dict[str, Callable[[], dict[str, Any]]] = {
        f"{TOUCHED} of {options.files:,} files": lambda: _many_files(options.files, options.repeats),
        DEEP.format(options.merges): lambda: _many_merges(options.merges),
        VECTORS: lambda: _vectors(options.rows, options.repeats),
    }
    for name, measure in cases.items():
        if options.only in name and is_left(RESULTS, [name]):
            kept = keep(RESULTS, {"case": name, **measure()})
            shown = {key: value for key, value in kept.items() if isinstance(value, float | int)}
            print(f"{name:<60} {shown} {verdict(kept)}", flush=True)
    show_goals(RESULTS)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000, help="of the table whose planning is measured")
    parser.add_argument("--merges", type=int, default=1_000, help="into the table that nothing maintains")
    parser.add_argument("--rows", type=int, default=400_000, help="of the tables with deletes")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="a part of the names of cases")
    parser.add_argument("--plan", default="", help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args()


def _rows(ids: Sequence[int], version: int) -> pa.Table:
    return pa.table({
        "id": pa.array(ids, pa.int64()),
        "name": [f"n{number % 977}-{version}" for number in ids],
        "amount": [number / 7 + version for number in ids],
        "day": pa.array([number % 20_000 for number in ids], pa.int32()).cast(pa.date32()),
    })  # fmt: skip


def _merge(bed: MergeBed, rows: pa.Table) -> tuple[JobReport, float]:
    """A merge and its processor seconds. Raises RuntimeError unless it is committed."""
    task = task_of(bed.source(rows))
    start = time.process_time()
    report = bed.merge(task, str(uuid.uuid4()))
    spent = time.process_time() - start
    if report.reason is not Reason.COMMITTED:
        raise RuntimeError(f"the merge ended as {report.reason}: {report.message}")
    return report, spent


@contextmanager
def _caches(folder: Path) -> Iterator[None]:
    """Inside the block, what is decoded is kept in ``folder``."""
    before = os.environ.get("SKIPSTONE_CACHE_DIR")
    os.environ["SKIPSTONE_CACHE_DIR"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SKIPSTONE_CACHE_DIR"]
        else:
            os.environ["SKIPSTONE_CACHE_DIR"] = before


def _many_files(files: int, repeats: int) -> dict[str, Any]:
    """Planning of a merge, each time in a new process in which nothing is decoded yet, as a job's driver is."""
    root = CACHE / f"files-{files}"
    if not (root / "complete").exists():
        say(f"writing {files} files")
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        bed = MergeBed(root)
        bed.create(SCHEMA)
        for first in range(0, files, FILES_AT_ONCE):
            numbers = range(first, min(files, first + FILES_AT_ONCE))
            bed.append(*(_rows(range(n * FEW_ROWS, (n + 1) * FEW_ROWS), 0).to_pylist() for n in numbers))
        (root / "complete").touch()
    found = []
    for number in range(repeats):
        with tempfile.TemporaryDirectory() as decoded:
            command = [sys.executable, "-m", "tests.bench.merge_states", "--plan", str(root), "--number", str(number)]
            command += ["--files", str(files)]
            environment = {**os.environ, "SKIPSTONE_CACHE_DIR": decoded}
            ended = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        found.append(json.loads(ended.stdout.splitlines()[-1]))
    if {line["touched"] for line in found} != {TOUCHED} or {line["files"] for line in found} != {files}:
        raise RuntimeError(f"a merge touched other files: {found}")
    return {"planning_s": statistics.median(line["planning_s"] for line in found), "runs": found}


def _planned(bed: MergeBed, number: int) -> dict[str, Any]:
    """A merge that changes a row of each of four files far apart; how long it planned."""
    table = bed.table()
    files = int(table.current_snapshot().summary["total-data-files"])  # type: ignore[union-attr, index]
    ids = [at * files // TOUCHED * FEW_ROWS + number % FEW_ROWS for at in range(TOUCHED)]
    report, spent = _merge(bed, _rows(ids, number + time.time_ns() % 1_000))
    stages = report.stages_ms
    return {
        "planning_s": (stages["plan"] + stages["prune"]) / 1_000,
        "processor_s": spent,
        "files": report.counts["filesTotal"],
        "touched": report.counts["filesTouched"],
        "stages_ms": dict(stages),
    }


def _many_merges(merges: int) -> dict[str, Any]:
    """Merges of one row each, into a table that keeps all snapshots and manifests of them."""
    with tempfile.TemporaryDirectory(prefix="merges-") as folder, _caches(Path(folder) / "decoded"):
        bed = MergeBed(Path(folder))
        bed.create(SCHEMA)
        bed.append(_rows(range(1_000), 0).to_pylist())
        spent = [_merge(bed, _rows([1_000 + number], number))[1] for number in range(merges)]
        manifests = len(bed.table().current_snapshot().manifests(bed.table().io))  # type: ignore[union-attr]
        bed.catalog.close()
    tenth = statistics.median(spent[max(0, 9 - SPAN // 2) : 9 + SPAN // 2])
    last = statistics.median(spent[-SPAN:])
    middle = statistics.median(spent[len(spent) // 2 :])
    ratios = {"ratio": last / tenth, "ratio_of_second_half": middle / tenth}
    return {**ratios, "tenth_cpu_s": tenth, "last_cpu_s": last, "manifests": manifests}


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _vectors(rows: int, repeats: int) -> dict[str, Any]:
    """Merges on read of a few rows of each of four files: in turn into a table of each format version."""
    with tempfile.TemporaryDirectory(prefix="vectors-") as folder, _caches(Path(folder) / "decoded"):
        beds = {version: MergeBed(_made(Path(folder) / version)) for version in ("2", "3")}
        spent: dict[str, list[float]] = {version: [] for version in beds}
        for version, bed in beds.items():
            bed.create(SCHEMA, **ON_READ, **{"format-version": version})
            step = rows // TOUCHED
            for at in range(TOUCHED):
                bed.append(_rows(range(at * step, (at + 1) * step), 0).to_pylist())
        for number in range(repeats + 1):
            ids = sorted({at * rows // TOUCHED + number + 100 * row for at in range(TOUCHED) for row in range(50)})
            for version, bed in beds.items():
                report, seconds = _merge(bed, _rows(ids, number + 1))
                if report.counts["filesMarked"] != TOUCHED:
                    raise RuntimeError(f"format version {version}: {report.counts}")
                spent[version] += [seconds] if number else []
        same = len({tuple(bed.rows()) for bed in beds.values()}) == 1 if rows <= 10_000 else True
        for bed in beds.values():
            bed.catalog.close()
    if not same:
        raise RuntimeError("the tables differ")
    medians = {version: statistics.median(seconds) for version, seconds in spent.items()}
    return {"ratio": medians["3"] / medians["2"], "vectors_cpu_s": medians["3"], "positions_cpu_s": medians["2"]}


if __name__ == "__main__":
    main()
