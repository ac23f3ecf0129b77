"""How long the key-range stage takes, by number of files and of source keys: `make bench-pruning`.

Bounds are in memory, as a FileSet gives them; source keys are in slices on disk, as a merge materializes them. Each
case runs the whole stage in a process of its own, on one core; CPU seconds and the peak of memory are its own.
Prints a table and writes build/bench/pruning.jsonl, one line for each case. Fails when a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from skipstone.kernels.changes import ROW_GROUP_ROWS, ChangeSlice
from skipstone.pruning.funnel import Candidates
from skipstone.pruning.keyranges import FileRanges
from skipstone.pruning.statistics import KeyRangeStage
from skipstone_core.keys import KeyFamily, KeyType
from skipstone_core.merging.merges import BoundKey

from tests.bench.results import EXIT_MISSED, FOLDER, keep, show_goals

ROOT = Path(__file__).parents[2]
RESULTS = FOLDER / "pruning.jsonl"
FULL = 1_000_000
KEYS = ("int64", "uuid")
#: In a slice of a real source there are so many rows, about.
SLICE_ROWS = 500_000
SPAN = 1 << 62
Int64s = npt.NDArray[np.int64]


def main() -> None:
    """Measure every case in processes of its own."""
    options = _options()
    if options.measure:
        print(json.dumps(_measure(**json.loads(options.measure))))
        return
    lines = [keep(RESULTS, _case(case, options.repeats)) for case in _cases(options.sizes)]
    print(f"{'keys':>6} {'ranges':>9} {'files':>9} {'source':>9} {'cpu s':>7} {'wall s':>7} {'MiB':>5} {'kept':>9}")
    for line in lines:
        sizes = f"{line['key']:>6} {line['ranges']:>9} {line['files']:>9} {line['keys']:>9}"
        print(f"{sizes} {line['cpu_s']:>7.3f} {line['wall_s']:>7.3f} {line['peak_mib']:>5.0f} {line['candidates']:>9}")
    if not show_goals(RESULTS):
        sys.exit(EXIT_MISSED)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, FULL])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    return parser.parse_args()


def _cases(sizes: list[int]) -> list[dict[str, Any]]:
    """Every kind of ranges at the greatest size, disjoint ones at every pair of sizes."""
    pairs = [(files, keys) for files in sizes for keys in sizes]
    growth = [{"ranges": "disjoint", "files": files, "keys": keys} for files, keys in pairs]
    others = [{"ranges": ranges, "files": sizes[-1], "keys": sizes[-1]} for ranges in RANGES if ranges != "disjoint"]
    return [{"key": key, **one} for key in KEYS for one in (*growth, *others)]


def _case(case: dict[str, Any], repeats: int) -> dict[str, Any]:
    runs = [_in_a_process(case) for _ in range(repeats)]
    cpu = statistics.median(run["cpu_s"] for run in runs)
    peak = max(run["peak_mib"] for run in runs)
    return {
        "case": f"{case['key']}, {case['ranges']}, {case['files']:,} files, {case['keys']:,} keys",
        **case,
        "cpu_s": cpu,
        "wall_s": statistics.median(run["wall_s"] for run in runs),
        "peak_mib": peak,
        "inputs_mib": max(run["inputs_mib"] for run in runs),
        "candidates": runs[0]["candidates"],
    }


def _in_a_process(case: dict[str, Any]) -> dict[str, Any]:
    """Inputs are made in another process than the measured one: what they leave behind is not a part of its peak."""
    with tempfile.TemporaryDirectory() as folder:
        for step in ("make", "prune"):
            work = json.dumps({"step": step, "folder": folder, **case})
            command = [sys.executable, "-m", "tests.bench.pruning", "--measure", work]
            one_core = {**os.environ, "OMP_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1"}
            done = subprocess.run(command, cwd=ROOT, env=one_core, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _measure(*, step: str, folder: str, key: str, ranges: str, files: int, keys: int) -> dict[str, Any]:
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    if step == "make":
        _make(Path(folder), key, ranges, files, keys)
        return {}
    return _prune(Path(folder), key)


def _prune(folder: Path, key: str) -> dict[str, Any]:
    bounds = pq.read_table(folder / "bounds.parquet").combine_chunks()
    lower, upper = (bounds.column(i).chunk(0) for i in range(2))
    one = FileRanges(lower, upper, np.zeros(len(lower), dtype=bool))
    family = KeyFamily.INTEGER if key == "int64" else KeyFamily.STRING
    slices = [_slice(path) for path in sorted(folder.glob("slice-*.parquet"))]
    stage = KeyRangeStage(lambda: [one], [BoundKey(target="k", source="k", type=KeyType(family))], slices)
    everything = Candidates(np.arange(len(lower), dtype=np.int64))
    before = _peak_mib()
    wall, cpu = time.perf_counter(), time.process_time()
    found = stage.prune(everything)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    if not isinstance(found, Candidates):
        raise RuntimeError(f"the stage was left out: {found}")
    return {
        "cpu_s": cpu,
        "wall_s": wall,
        "inputs_mib": before,
        "peak_mib": _peak_mib(),
        "candidates": len(found.files),
    }


def _slice(path: Path) -> ChangeSlice:
    rows = pq.read_metadata(path).num_rows
    return ChangeSlice(path=str(path), rows=rows, keyed=rows, read=rows, size=path.stat().st_size, checksum="")


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# --- inputs ---


def _make(folder: Path, key: str, ranges: str, files: int, keys: int) -> None:
    """Bounds of files in no order, and sorted keys in slices, both drawn evenly from the same span."""
    chance = np.random.default_rng(files + keys)
    typed: Callable[[Int64s], pa.Array] = _numbers if key == "int64" else _uuids
    lower, upper = RANGES[ranges](chance, files)
    pq.write_table(pa.table({"lower": typed(lower), "upper": typed(upper)}), folder / "bounds.parquet")
    source = typed(np.sort(chance.integers(0, SPAN, keys)))
    text = source if key == "int64" else source.cast(pa.large_string()).cast(pa.string())
    for number, start in enumerate(range(0, keys, SLICE_ROWS)):
        table = pa.table({"k": text.slice(start, SLICE_ROWS)})
        pq.write_table(table, folder / f"slice-{number:03}.parquet", row_group_size=ROW_GROUP_ROWS, compression="zstd")


def _disjoint(chance: np.random.Generator, files: int) -> tuple[Int64s, Int64s]:
    width = SPAN // files
    lower = chance.permutation(files) * width
    return lower, lower + width // 2


def _overlapping(chance: np.random.Generator, files: int) -> tuple[Int64s, Int64s]:
    """Every range overlaps ten others on either side, about."""
    lower, _ = _disjoint(chance, files)
    return lower, np.minimum(lower + 10 * (SPAN // files), SPAN - 1)


def _spanning(chance: np.random.Generator, files: int) -> tuple[Int64s, Int64s]:
    """One file in a hundred has the whole span."""
    lower, upper = _disjoint(chance, files)
    lower[::100], upper[::100] = 0, SPAN - 1
    return lower, upper


RANGES: dict[str, Callable[[np.random.Generator, int], tuple[Int64s, Int64s]]] = {
    "disjoint": _disjoint,
    "10-fold": _overlapping,
    "spanning": _spanning,
}


def _numbers(values: Int64s) -> pa.Array:
    return pa.array(values)


def _uuids(values: Int64s) -> pa.Array:
    """Text of UUIDs whose order is that of ``values``; the rest of their digits is spread by multiplication."""
    heads = values.astype(np.uint64) << np.uint64(2)
    tails = heads * np.uint64(0x9E3779B97F4A7C15)
    pairs = zip(heads.tolist(), tails.tolist(), strict=True)
    return pa.array([_uuid(f"{head:016x}{tail:016x}") for head, tail in pairs], pa.large_binary())


def _uuid(digits: str) -> bytes:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}".encode()


if __name__ == "__main__":
    main()
