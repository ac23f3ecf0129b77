"""Equality deletes that Flink's sink wrote, resolved: while it writes, after it has written, and killed at each write.

The rows are those that the changes give by their numbers, for our reader, plain Spark, PyIceberg and DuckDB. All of it
runs in `make soak-maintain` only; `make test` resolves the recorded tables of such jobs in tests/unit.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyspark.sql import SparkSession
from skipstone.tables.filesets import read_file_set
from skipstone_core.contract.reports import EXIT_COMMITTED
from skipstone_core.indexing.snapshots import DeleteKind
from skipstone_core.reasons import Reason

from tests.spark.kept import Kept
from tests.spark.lake import read_all
from tests.spark.merge_bed import rows_of
from tests.spark.resolve_bed import POLICY, STEP
from tests.spark.secondengine import spark_rows
from tests.spark.test_compaction_killed import drive
from tests.writers.harness import WriterBed
from tests.writers.recorded import held, laid_out
from tests.writers.registry import PROGRAMS, WRITERS

CHECKPOINTS = int(os.environ.get("SKIPSTONE_SOAK_CHECKPOINTS", "200"))
#: As FlinkWriter.java has them.
PER_CHECKPOINT, KEYS = 16, 90
#: Tables of a job, by their case: the name, and what Flink is told of each.
STREAMS = {"stream-v2": "streamed2", "stream-v3": "streamed3", "stream-parted": "streamed_parted"}


def expected_rows(changes: int) -> dict[int, int]:
    """The column ``n`` of each key after the first changes."""
    rows: dict[int, int] = {}
    for number in range(changes):
        key = (number * 2654435761 % 2**32 >> 8) % KEYS
        if number % 7 == 3:
            rows.pop(key, None)
        else:
            rows[key] = number * 3
    return rows


@dataclass
class FlinkJob:
    """A job that writes a table of a catalog that we write, too."""

    bed: WriterBed
    process: subprocess.Popen[str]

    @property
    def is_running(self) -> bool:
        """Whether Flink still runs."""
        return self.process.poll() is None

    def table_is_there(self) -> bool:
        """Whether it has made the table, and committed."""
        try:
            return self.bed.table().current_snapshot() is not None
        except NoSuchTableError:
            return False


@pytest.fixture(params=STREAMS)
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FlinkJob]:
    """The job of a case."""
    bed = WriterBed(tmp_path)
    bed.name = STREAMS[request.param]
    (writer,) = (one for one in WRITERS if one.name == "flink")
    shared = f"jdbc:sqlite:{tmp_path}/catalog.db?busy_timeout=120000"
    environment = {"CASES": request.param, "CHECKPOINTS": str(CHECKPOINTS), "SHARED": shared}
    with (tmp_path / "flink.log").open("w") as log:
        process = subprocess.Popen(
            writer.command(tmp_path, ""), stdout=log, stderr=log, text=True, env={**os.environ, **environment}
        )
    try:
        yield FlinkJob(bed, process)
    finally:
        process.kill()
        process.wait()
        bed.catalog.close()


def numbered(rows: Mapping[str, list[int]]) -> dict[int, int]:
    """``n`` by ``id``; fails if an id is there twice."""
    assert len(set(rows["id"])) == len(rows["id"])
    return dict(zip(rows["id"], rows["n"], strict=True))


def duckdb_rows(bed: WriterBed) -> dict[int, int]:
    """The rows as DuckDB reads them, in an environment that has its extension for Iceberg."""
    (writer,) = (one for one in WRITERS if one.name == "duckdb")
    target = bed.root / "duckdb.parquet"
    python = writer.command(bed.root, "")[0]
    place = bed.table().metadata_location.removeprefix("file://")
    subprocess.run([python, str(PROGRAMS / "duckdb_reader.py"), place, str(target)], check=True)
    return numbered(pq.read_table(target, columns=["id", "n"]).to_pydict())


def equality_files(bed: WriterBed) -> int:
    """How many equality deletes are live."""
    return sum(delete.kind is DeleteKind.EQUALITY for delete in bed.files().delete_files)


def unnamed_files(bed: WriterBed) -> set[str]:
    """Names of files of the table that no retained snapshot names; Flink writes paths in forms of its own."""
    table = bed.table()
    files = [read_file_set(table, snapshot.snapshot_id) for snapshot in table.snapshots()]
    named = {path for held_files in files for path in held_files.files["path"].to_pylist()}
    named |= {delete.file.file_path for held_files in files for delete in held_files.delete_files}
    folder = bed.root / bed.namespace / bed.name / "data"
    return {path.name for path in folder.rglob("*") if path.suffix != ".crc" and path.is_file()} - {
        Path(path).name for path in named
    }


def checkpoints(bed: WriterBed) -> int:
    """How many snapshots are of checkpoints."""
    summaries = [snapshot.summary for snapshot in bed.table().metadata.snapshots if snapshot.summary]
    return sum("flink.max-committed-checkpoint-id" in summary.additional_properties for summary in summaries)


@pytest.mark.soak
def test_rows_are_those_of_all_changes_while_flink_writes(job: FlinkJob, spark: SparkSession) -> None:
    bed, resolved, rounds = job.bed, 0, 0
    while job.is_running:
        if not job.table_is_there():
            with suppress(subprocess.TimeoutExpired):
                job.process.wait(0.5)
            continue
        (step,) = bed.run(bed.maintenance(STEP, POLICY)).steps
        assert step.is_done or step.reason is Reason.CONFLICTED, step
        resolved += step.counts["equalityDeletesResolved"]
        rounds += 1
        if rounds % 4 == 0:
            compaction = bed.compact()
            assert compaction.is_done or compaction.reason is Reason.CONFLICTED, compaction
        numbered(read_all(bed.table(), ["id", "n"]).to_pydict())
    log = (bed.root / "flink.log").read_text()
    assert '"refused"' not in log, log[-4000:]
    assert checkpoints(bed) >= CHECKPOINTS
    assert resolved and rounds > 1
    expected = expected_rows(CHECKPOINTS * PER_CHECKPOINT)
    for _ in range(2):
        assert numbered(read_all(bed.table(), ["id", "n"]).to_pydict()) == expected
        assert numbered(spark_rows(spark, bed.warehouse, f"ns.{bed.name}").to_pydict()) == expected
        assert duckdb_rows(bed) == expected
        (step,) = bed.run(bed.maintenance(STEP, POLICY)).steps
        assert step.is_done and equality_files(bed) == 0, step
    assert numbered(bed.table().scan().to_arrow().to_pydict()) == expected
    assert unnamed_files(bed) == set()


@pytest.mark.soak
def test_a_table_of_many_checkpoints_has_the_same_rows_before_and_after(job: FlinkJob, spark: SparkSession) -> None:
    bed = job.bed
    assert job.process.wait() == 0
    assert checkpoints(bed) >= CHECKPOINTS and equality_files(bed) > CHECKPOINTS / 2
    expected = expected_rows(CHECKPOINTS * PER_CHECKPOINT)
    paths = bed.files().files["path"].to_pylist()
    for _ in range(2):
        assert numbered(read_all(bed.table(), ["id", "n"]).to_pydict()) == expected
        assert numbered(spark_rows(spark, bed.warehouse, f"ns.{bed.name}").to_pydict()) == expected
        assert duckdb_rows(bed) == expected
        (step,) = bed.run(bed.maintenance(STEP, POLICY)).steps
        assert step.is_done and equality_files(bed) == 0, step
    assert bed.files().files["path"].to_pylist() == paths
    assert numbered(bed.table().scan().to_arrow().to_pydict()) == expected
    assert unnamed_files(bed) == set()


@pytest.mark.soak
@pytest.mark.parametrize("case", ["stream-v2", "stream-v3"])
def test_a_run_killed_at_any_write_leaves_the_rows_of_a_job(
    tmp_path_factory: pytest.TempPathFactory, case: str
) -> None:
    with held("flink"):
        place, expected = laid_out("flink", case)
        bed = WriterBed(place.root)
        bed.name = STREAMS[case]
        bed.catalog.register_table(bed.ref.identifier, place.metadata)
        bed.catalog.close()
        kept = Kept(place.root, tmp_path_factory.mktemp("kept"))
        steps = len(killed(kept, case, "0", rows_of(expected)))
        for fatal in range(1, steps + 1):
            killed(kept, case, str(fatal), rows_of(expected))


def killed(kept: Kept, case: str, fatal: str, rows: list[str]) -> list[str]:
    """Kill the run at a step, and let another one do the rest; the steps that the first took."""
    bed = WriterBed(kept.restored())
    bed.name = STREAMS[case]
    request = bed.maintenance(STEP, POLICY)
    ended = drive(bed, request, fatal)
    assert ended.code == (-signal.SIGKILL if fatal != "0" else EXIT_COMMITTED), ended.errors
    assert rows_of(read_all(bed.table())) == rows, ended.steps[-1]
    left = unnamed_files(bed)
    assert all(request.run_id in name for name in left)
    (step,) = bed.run(replace(request, attempt=2, run_id=f"{request.run_id[:-1]}2")).steps
    assert step.is_done and equality_files(bed) == 0, (step, ended.steps[-1])
    assert rows_of(bed.table().scan().to_arrow()) == rows_of(read_all(bed.table())) == rows, ended.steps[-1]
    assert unnamed_files(bed) == left, ended.steps[-1]
    bed.catalog.close()
    return ended.steps
