"""Drivers that are stopped and wake up: what holds the catalog's lock, and what an attempt says that comes too late."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from skipstone.runs.load import run_load
from skipstone.runs.main import _guarded
from skipstone.runs.reporting.report import Reporter
from skipstone.tables import catalogs
from skipstone.tables.answers.locks import NOTE_ENDING
from skipstone.tables.committing.commits import CommitPorts, NoHooks
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import ConsumePolicy, JobRequest, SourceFormat, SourceSpec
from skipstone_core.reasons import Reason

from tests.spark.load_bed import HEADER, Bed
from tests.spark.moments import at_statement

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
#: Another driver, which stops itself when SQLite is about to write what it changed, or has written it in part.
STOPPED = """
import os, signal, sys
from sqlalchemy import event
from sqlalchemy.engine import Engine
from skipstone.tables.catalogs import open_catalog
from skipstone_core.contract.requests import CatalogRef, CatalogType, WarehouseRef
root = sys.argv[1]
catalog = open_catalog(WarehouseRef(name="wh", root=root, catalog=CatalogRef(type=CatalogType.SQL)))
table = catalog.load_table("ns.t")
event.listen(Engine, "commit", lambda _: os.kill(os.getpid(), signal.SIGSTOP), once=True)
table.transaction().set_properties({"by": "the other one"}).commit_transaction()
"""


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    """A table ``ns.t``, and a file for it."""
    found = Bed(tmp_path)
    renew(found)
    return found


def renew(bed: Bed) -> None:
    """An empty table, and a file for it, that no job knows."""
    if bed.catalog.table_exists("ns.t"):
        bed.catalog.purge_table("ns.t")
    shutil.rmtree(bed.root / ".skipstone", ignore_errors=True)
    bed.catalog.create_table(("ns", "t"), SCHEMA, properties={"format-version": "2"})
    bed.put("in/a.csv", "id,name\n1,a\n2,b\n")


def request_of(bed: Bed, attempt: int = 1, consume: ConsumePolicy = ConsumePolicy.ALL) -> JobRequest:
    consumer = "c" if consume is ConsumePolicy.NEW else ""
    source = SourceSpec(
        format=SourceFormat.CSV, paths=("in/*.csv",), options=HEADER, consume=consume, consumer=consumer
    )
    return bed.request(source, uid="00000000-0000-0000-0000-00000000cafe", attempt=attempt)


def run(request: JobRequest, ports: CommitPorts | None = None) -> JobReport:
    """A whole run, with whatever goes wrong as its report."""
    return _guarded(lambda asked, reporter: run_load(asked, reporter, ports), request, Reporter(request))[0]


@dataclass
class Before(NoHooks):
    """Something happens before the catalog is asked to swap."""

    does: Callable[[], object]

    def before_swap(self, table: Table) -> None:
        """Let it."""
        self.does()


@contextmanager
def stopped(bed: Bed) -> Iterator[subprocess.Popen[bytes]]:
    """Another driver, stopped inside SQLite's commit; it goes on when the block ends."""
    other = subprocess.Popen([sys.executable, "-c", STOPPED, str(bed.root)])
    os.waitpid(other.pid, os.WUNTRACED)
    try:
        yield other
    finally:
        other.send_signal(signal.SIGCONT)
        assert other.wait(120) == 0


@pytest.mark.parametrize("is_written", [False, True])
def test_who_holds_the_lock_of_the_catalog_is_named_after_one_wait(
    is_written: bool, bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogs, "SQLITE_BUSY_SECONDS", "1")
    before = set(bed.root.rglob("*.parquet"))
    with ExitStack() as block:
        others: list[subprocess.Popen[bytes]] = []

        def stop() -> None:
            others.append(block.enter_context(stopped(bed)))

        if not is_written:
            stop()
        report = run(request_of(bed), CommitPorts(hooks=Before(stop)) if is_written else None)
    assert (report.outcome, report.reason) == (RunOutcome.UNKNOWN, Reason.CATALOG_UNAVAILABLE)
    assert "The catalog 'skipstone' did not answer: the SQLite file" in report.message
    assert "catalog.db was locked for more than 1 s by process" in report.message
    (other,) = others  # asked to swap once
    assert f"process {other.pid} of {os.uname().nodename}, which is stopped" in report.message
    assert set(bed.root.rglob("*.parquet")) == before, "nothing landed, so nothing stays"
    assert bed.catalog.load_table("ns.t").properties["by"] == "the other one"
    assert run(request_of(bed, 2)).outcome is RunOutcome.COMMITTED  # what the message says: it went on
    assert bed.catalog.load_table("ns.t").scan().count() == 2
    assert not list(bed.root.glob(f"*{NOTE_ENDING}"))


@pytest.mark.parametrize("consume", [ConsumePolicy.ALL, ConsumePolicy.NEW])
def test_an_attempt_that_wakes_up_after_another_one_committed_does_not_say_that_the_job_failed(
    consume: ConsumePolicy, bed: Bed
) -> None:
    ends = set()
    for number in range(1, 100):
        first, second = (request_of(bed, attempt, consume) for attempt in (1, 2))

        def commit(second: JobRequest = second) -> None:
            assert run(second).outcome in {RunOutcome.COMMITTED, RunOutcome.ALREADY_COMMITTED}
            (bed.root / "in" / "a.csv").unlink()  # what is done may be moved away

        with at_statement(number, commit) as seen:
            report = run(first)
        ends.add(report.outcome)
        assert report.outcome in {RunOutcome.COMMITTED, RunOutcome.ALREADY_COMMITTED}, report.message
        assert report.counts["rowsLoaded"] == 2
        assert bed.catalog.load_table("ns.t").scan().count() == 2
        if len(seen) < number:
            break
        renew(bed)
    assert ends == {RunOutcome.COMMITTED, RunOutcome.ALREADY_COMMITTED}
