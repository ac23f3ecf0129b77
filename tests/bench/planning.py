"""How long planning waits for a table's metadata: `make bench-planning`.

Makes the metadata of tables of many data files by PyIceberg's own commits (no Parquet files stand behind them), then
reads it in fresh processes: cold, from decodes that another process left on disk, and again in the same process.
Prints a table and writes build/bench/planning.jsonl, one line for each size of table.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from tests.bench.results import FOLDER, keep, show_goals

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "bench" / "planning"
RESULTS = FOLDER / "planning.jsonl"
COLUMNS = 16
#: Commits by which a table is made, and so its manifests: of 100,000 files each is 5 MB, which is what Spark aims at.
COMMITS = 10
WARM_READS = 5
#: Where bounds are wide, values lie below this.
KEYS = 1 << 40
#: Rises with every change of what is generated.
LAYOUT = 1
SCHEMA = Schema(
    *(NestedField(number, f"c{number}", LongType() if number % 2 else StringType()) for number in range(1, COLUMNS + 1))
)


def main() -> None:
    """Measure every size of table, each case in processes of its own."""
    options = _options()
    if options.measure:
        print(json.dumps(_measure(options.measure)))
        return
    lines = [keep(RESULTS, _case(files, options.repeats)) for files in options.files]
    print(f"{'files':>8} {'cold':>8} {'persisted':>10} {'warm':>8} {'peak MiB':>9}")
    for line in lines:
        times = f"{line['cold_s']:>8.3f} {line['persisted_s']:>10.3f} {line['warm_s']:>8.4f}"
        print(f"{line['files']:>8} {times} {line['peak_mib']:>9.0f}")
    show_goals(RESULTS)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _case(files: int, repeats: int) -> dict[str, Any]:
    root = generated_metadata(files)
    cold, persisted = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as decodes:
            cold.append(_in_a_process(root, decodes))
            persisted.append(_in_a_process(root, decodes))
    if any(run["from_disk"] for run in cold) or any(run["decoded"] for run in persisted):
        raise RuntimeError("decodes were not kept as this benchmark says")
    line = {
        "case": f"planning, {files} files",
        "files": files,
        "manifests": cold[0]["decoded"],
        "by_pyiceberg": cold[0]["by_pyiceberg"],
        "cold_s": statistics.median(run["first_s"] for run in cold),
        "persisted_s": statistics.median(run["first_s"] for run in persisted),
        "warm_s": statistics.median(run["warm_s"] for run in (*cold, *persisted)),
        "peak_mib": max(run["peak_mib"] for run in (*cold, *persisted)),
        "before_mib": max(run["before_mib"] for run in (*cold, *persisted)),
        "repeats": repeats,
    }
    ratio = line["warm_s"] / line["cold_s"]
    return {**line, "ratio": ratio}


def _in_a_process(root: Path, decodes: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.bench.planning", "--measure", str(root)]
    environment = {**os.environ, "SKIPSTONE_CACHE_DIR": decodes}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _measure(root: Path) -> dict[str, Any]:
    """Read the table's metadata as a planner does, first once, then again."""
    from skipstone.tables.filesets import read_file_set

    table = _catalog(root).load_table("ns.t")
    before = _peak_mib()

    def read() -> tuple[float, Any]:
        start = time.perf_counter()
        files = read_file_set(table)
        found = (len(files.files), len(files.bounds(1).lower))
        return time.perf_counter() - start, (files.decode_counts, found)

    first, (counts, found) = read()
    peak = _peak_mib()
    warm = statistics.median(read()[0] for _ in range(WARM_READS))
    if found[0] != found[1] or found[0] == 0:
        raise RuntimeError(f"files and bounds do not agree: {found}")
    return {
        "first_s": first,
        "warm_s": warm,
        "before_mib": before,
        "peak_mib": peak,
        "decoded": counts.decoded,
        "from_disk": counts.from_disk,
        "by_pyiceberg": counts.by_pyiceberg,
    }


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def generated_metadata(files: int, *, wide: bool = False) -> Path:
    """A warehouse with one table of ``files`` data files; complete when it says so. ``wide``: bounds leave none out."""
    root = CACHE / f"{files}-{LAYOUT}{'-wide' if wide else ''}"
    complete = root / "complete"
    if not complete.exists():
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        _make_table(root, files, wide=wide)
        complete.touch()
    return root


def _catalog(root: Path) -> SqlCatalog:
    return SqlCatalog("bench", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}")


def _make_table(root: Path, files: int, *, wide: bool) -> None:
    catalog = _catalog(root)
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.t", SCHEMA)
    chance = random.Random(files)
    for commit in range(COMMITS):
        with table.transaction() as change, change.update_snapshot().fast_append() as append:
            numbers = range(files * commit // COMMITS, files * (commit + 1) // COMMITS)
            for file in _data_files(table, numbers, chance, wide=wide):
                append.append_data_file(file)
    catalog.close()


def _data_files(table: Table, numbers: range, chance: random.Random, *, wide: bool) -> Iterator[DataFile]:
    columns = range(1, COLUMNS + 1)
    for number in numbers:
        lows = {column: 0 if wide else chance.getrandbits(40) for column in columns}
        width = KEYS if wide else 10**6
        name = f"{number:05}-{uuid.UUID(int=chance.getrandbits(128))}.parquet"
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{table.location()}/data/{name}",
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=150_000,
            file_size_in_bytes=chance.randrange(10**7, 10**8),
            column_sizes={column: chance.randrange(10**6) for column in columns},
            value_counts=dict.fromkeys(columns, 150_000),
            null_value_counts={column: chance.randrange(3) for column in columns},
            nan_value_counts={},
            lower_bounds={column: _bound(column, low) for column, low in lows.items()},
            upper_bounds={column: _bound(column, low + width) for column, low in lows.items()},
            split_offsets=[4, 4 + chance.randrange(10**7)],
        )
        file.spec_id = 0
        yield file


def _bound(column: int, value: int) -> bytes:
    return struct.pack("<q", value) if column % 2 else b"%016x" % value


if __name__ == "__main__":
    main()
