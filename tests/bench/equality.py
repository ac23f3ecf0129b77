"""Equality deletes resolved, beside compactions that rewrite the files that they touch: `make bench-equality-deletes`.

A table of large files gets upserts as a stream writes them: each checkpoint adds a file of equality deletes and a file
of rows. From the same state, ours resolves the deletes, ours compacts the files, and Iceberg's rewrite_data_files
rewrites them. The rows are compared after each, and scans and lookups of plain Spark are timed before and after. Prints
tables and writes build/bench/equality.jsonl: ratios are of medians.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType
from pyspark.sql import SparkSession
from skipstone.files.writer import DataFileWriter, to_data_files, write_spec
from skipstone.tables.committing.commits import TableCommit, commit_table
from skipstone.tables.filesets import pin_table, read_file_set
from skipstone_core.contract.requests import MaintainTask, RunKind
from skipstone_core.maintenance.policies import (
    CompactionPolicy,
    EqualityDeletesPolicy,
    MaintenancePolicy,
    MaintenanceStep,
)

from tests.bench import compaction_tables as tables
from tests.bench.compaction_tables import Bed
from tests.bench.lineitem import ROOT, Lineitem, iceberg_session
from tests.bench.results import FOLDER, keep, show_goals
from tests.spark.rawdeletes import add_equality_delete, upgrade

RESULTS = FOLDER / "equality.jsonl"
SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "version", IntegerType()),
    *(NestedField(number, f"d{number}", DoubleType()) for number in range(3, 9)),
    NestedField(9, "text", StringType()),
)
_COUNTS = "count(*), sum(version), sum(id), sum(d3)"


@dataclass(frozen=True)
class EqualityBed(Bed):
    """A table in each version of the format, with its deletes."""

    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    @property
    def root(self) -> Path:
        """Where they lie."""
        return ROOT / ".cache" / "bench" / "equality"

    def write(self, name: str, options: argparse.Namespace, version: int) -> None:
        """The table, and its checkpoints."""
        table = self.catalog.create_table(("compact", name), SCHEMA, properties={"format-version": "2"})
        rows = options.rows // options.files
        for number in range(options.files):
            self._append(name, np.arange(number * rows, (number + 1) * rows), 0)
        if version > 2:
            upgrade(table)
        for checkpoint in range(options.checkpoints):
            ids = self.random.choice(options.rows, options.upserts, replace=False)
            add_equality_delete(self.table(name), {"id": ids.tolist()})
            self._append(name, np.sort(ids), checkpoint + 1)
        self.keep(name)

    def _append(self, name: str, ids: Any, version: int) -> None:
        table, count = self.table(name), len(ids)
        writer = DataFileWriter(write_spec(table, f"bench{time.time_ns()}"), "t")
        doubles = [self.random.random(count) for _ in range(6)]
        texts = pa.array([f"text {value:x}" for value in self.random.integers(1 << 40, size=count).tolist()])
        columns = [pa.array(ids), pa.repeat(pa.scalar(version, pa.int32()), count), *map(pa.array, doubles), texts]
        writer.write(pa.Table.from_arrays(columns, schema=writer.arrow_schema))
        change = TableCommit(
            pinned=pin_table(table), added=tuple(to_data_files((one.to_row() for one in writer.close()), table))
        )
        commit_table(self.catalog, self.ref(name), change)

    def maintain(self, name: str, step: MaintenanceStep, policy: MaintenancePolicy) -> float:
        """Seconds of a maintain run."""
        task = MaintainTask(policy=policy, steps=(step,))
        return tables.ran(self.request(name, RunKind.MAINTAIN, maintain=task))

    def sizes_by_path(self, table: Table) -> dict[str, int]:
        """Bytes of the live data and delete files, by path."""
        found = read_file_set(table)
        data = dict(zip(found.files["path"].to_pylist(), found.files["size"].to_pylist(), strict=True))
        return data | {one.file.file_path: one.file.file_size_in_bytes for one in found.delete_files}


def main() -> None:
    """Run all cases."""
    options = _options()
    bed = EqualityBed(Lineitem(1, 1, 1), 1)
    shutil.rmtree(bed.root, ignore_errors=True)
    bed.catalog.list_tables("compact")
    spark = iceberg_session(bed, {f"spark.sql.catalog.{bed.warehouse.catalog.name}.cache-enabled": "false"})
    spark.sparkContext.setLogLevel("ERROR")
    try:
        for version in options.versions:
            name = f"upserted{version}"
            bed.write(name, options, version)
            for line in _lines(bed, spark, name, options):
                shown = line | {"version": version}
                keep(RESULTS, shown | vars(options) | {"scale": f"{options.rows} v{version}"})
                print(shown, flush=True)
    finally:
        tables.close()
    show_goals(RESULTS)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--checkpoints", type=int, default=100)
    parser.add_argument("--upserts", type=int, default=200, help="rows of each checkpoint")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--versions", type=int, nargs="+", default=[2, 3])
    return parser.parse_args()


def _lines(bed: EqualityBed, spark: SparkSession, name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    resolving = MaintenancePolicy(equality_deletes=EqualityDeletesPolicy(min_files=1))
    compacting = MaintenancePolicy(
        compaction=CompactionPolicy(target_file_size=64 << 20, min_input_files=2, delete_permille=1)
    )
    call = (
        f"call {bed.warehouse.catalog.name}.system.rewrite_data_files(table => 'compact.{name}', options => map("
        "'delete-file-threshold', '1', 'remove-dangling-deletes', 'true', 'target-file-size-bytes', '67108864', "
        "'max-concurrent-file-group-rewrites', '2', 'partial-progress.enabled', 'false'))"
    )
    engines: dict[str, Callable[[], float]] = {
        "resolve": lambda: bed.maintain(name, MaintenanceStep.RESOLVE_EQUALITY_DELETES, resolving),
        "compact": lambda: bed.maintain(name, MaintenanceStep.COMPACTION, compacting),
        "rewrite_data_files": lambda: _timed(lambda: spark.sql(call).collect()),
    }
    question = f"select {_COUNTS} from {bed.sql(name)}"
    lookup = f"select count(*), sum(version) from {bed.sql(name)} where id = {options.rows // 3}"
    expected, before = _asked(spark, question, options.repeats)
    one, lookup_before = _asked(spark, lookup, options.repeats)
    lines = []
    for engine, run in engines.items():
        seconds, written = [], 0
        for _ in range(options.repeats + 1):  # the first one is warm-up
            bed.restore(name)
            held = bed.sizes_by_path(bed.table(name))
            seconds.append(run())
            after = bed.sizes_by_path(bed.table(name))
            written = sum(size for path, size in after.items() if path not in held)
        rows, scan = _asked(spark, question, options.repeats)
        found, looked_up = _asked(spark, lookup, options.repeats)
        if (rows[:2], found) != (expected[:2], one):
            raise RuntimeError(f"{engine}: {rows} and {found} instead of {expected} and {one}")
        line = {"case": engine, "seconds": statistics.median(seconds[1:]), "written": written}
        line |= {"before": before, "scan": scan, "lookup_before": lookup_before, "lookup": looked_up}
        lines.append(line)
    first = lines[0]
    return [
        _with_ratios(line, seconds=line["seconds"] / first["seconds"], bytes=first["written"] / max(line["written"], 1))
        for line in lines
    ]


def _with_ratios(line: dict[str, Any], **ratios: float) -> dict[str, Any]:
    """The line, with what it is to the first one."""
    return line | {f"ratio_{name}": round(value, 4) for name, value in ratios.items()}


def _timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _asked(spark: SparkSession, question: str, repeats: int) -> tuple[tuple[Any, ...], float]:
    """The answer of Spark, and the median of its seconds."""
    answers: list[tuple[Any, ...]] = []
    seconds = [_timed(lambda: answers.append(tuple(spark.sql(question).collect()[0]))) for _ in range(repeats + 1)]
    return answers[-1], statistics.median(seconds[1:])


if __name__ == "__main__":
    main()
