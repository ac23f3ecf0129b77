"""The demonstration on this machine, without a cluster: `make demo` calls `python -m demo.local`.

`skipstone local` runs the operator, and each run as a process. Loads ten months of flights, indexes them, lets two more
months arrive while an index is suspended, queries in between, merges a CDC feed, and verifies everything with engines
that are not ours. Without Java, plain PyIceberg takes the part of plain Spark. The tables stay in build/demo.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from skipstone.jvm import find_java_problem
from skipstone_cli.errors import CliError
from skipstone_local.places import RootFolder, find_root
from skipstone_local.runner.plane.jars import JarCache, JarsMissing

from demo.kube import condition
from demo.lakes import CLASS_PATH_VARIABLE
from demo.machine import ROOT, DemoError, Machine, Program, remove, shown, skipstone_up, start_program
from demo.manifests import claim
from demo.steps import is_in_sync, new_lines, skipped, step, without_age

EXAMPLES = ROOT / "examples" / "flights"
CLAIM, TABLE = "flights-data", "nyc.flights"
FOLDER = ROOT / "build" / "demo"
STEP_SECONDS = 600.0
#: The last month that is loaded at first, and how many come later.
OCTOBER, LATE = 10, 2


class LocalDemo:
    """The steps in order; each prints what a person would type and see."""

    def __init__(self, machine: Machine, libraries: Future[str], *, java_problem: str | None, first_month: int) -> None:
        """Remember the folder that is served; nothing is done yet.

        ``libraries``: the class path of plain Spark. ``java_problem``: why Spark cannot run here; None if it can.
        ``first_month``: earlier months are not loaded.
        """
        self.machine = machine
        self.libraries = libraries
        self.java_problem = java_problem
        self.first_month = first_month
        self.root = machine.folder.claim("default", CLAIM)

    def run(self, laying: Program) -> None:
        """All steps, the first of them begun by the program ``laying``. Raises DemoError at the first that fails."""
        with step(f"lay 12 monthly CSV files (336,776 flights) and a CDC feed into {shown(self.root)}"):
            laying.wait()
            self.machine.create(claim(CLAIM))
        with step(f"declare a Warehouse, a Table, {self.early} loads and two indexes"):
            self.declare()
        with step("suspend one index, let November and December arrive"):
            self.let_two_months_arrive()
        early, every = self.early, self.early + LATE
        with step(f"query while the index lags: {early} of {every} segments by the index, {LATE} by min/max"):
            self.start("query").wait()
        with step("resume: the index catches up"):
            self.suspend(is_suspended=False)
            self.watch("si", lambda: self.synced() == {f"{every}/{every}"}, f"both indexes cover {every} segments")
        with step("merge corrections, cancellations and added flights"):
            self.machine.apply(EXAMPLES / "06-merge.yaml")
            self.watch("mj", lambda: self.all_complete("MergeJob"), "the merge completes")
            self.watch("si", lambda: is_in_sync(self.synced()), "indexes in sync")
        self.verify()
        self.finish()

    def declare(self) -> None:
        """Apply the manifests in one go, in any order, and watch the ten segments appear."""
        first = [EXAMPLES / f"{name}.yaml" for name in ("01-warehouse", "02-table")]
        self.machine.apply(*first, self.early_loads(), EXAMPLES / "04-indexes.yaml")
        self.watch("lj", lambda: self.all_complete("LoadJob"), f"{self.early} loads complete")
        early = self.early
        self.watch("si", lambda: self.synced() == {f"{early}/{early}"}, f"both indexes cover {early} segments")
        self.show("wh,tbl")

    @property
    def early(self) -> int:
        """How many months are loaded before the index is suspended."""
        return OCTOBER - self.first_month + 1

    def early_loads(self) -> Path:
        """The manifests of these loads: those of the examples, or some of them."""
        given = EXAMPLES / "03-loads-january-to-october.yaml"
        if self.early == OCTOBER:
            return given
        chosen = self.machine.folder.path.parent / "some loads.yaml"
        chosen.write_text("---".join(given.read_text().split("---")[-self.early :]))
        return chosen

    def let_two_months_arrive(self) -> None:
        """Suspend `by-tailnum`; the other index goes on."""
        self.suspend(is_suspended=True)
        self.machine.apply(EXAMPLES / "05-loads-november-december.yaml")
        self.watch("lj", lambda: self.all_complete("LoadJob"), "loads 11 and 12 complete")
        early, every = self.early, self.early + LATE
        lagging = {f"{early}/{every}", f"{every}/{every}"}
        self.watch("si", lambda: self.synced() == lagging, f"by-tailnum lags at {early}/{every}")

    def suspend(self, *, is_suspended: bool) -> None:
        """Set ``spec.suspend`` of `by-tailnum`."""
        self.machine.patch("SecondaryIndex", "by-tailnum", {"spec": {"suspend": is_suspended}})

    def verify(self) -> None:
        """Compare the table with a replay, by engines that are not ours."""
        engine = "plain PyIceberg" if self.java_problem else "plain Spark + Iceberg"
        with step(f"verify with {engine} against a DuckDB replay of CSV and feed"):
            if self.java_problem:
                self.start("verify", "--engine=pyiceberg").wait()
            else:
                variables = {CLASS_PATH_VARIABLE: _fetched(self.libraries), "SPARK_LOCAL_IP": "127.0.0.1"}
                self.start("verify", **variables).wait()

    def finish(self) -> None:
        """Show all objects, write the report, and say what stays."""
        self.show("tbl,si,lj,mj")
        folder = self.machine.folder
        report = folder.path.parent / "report.html"
        run_command(folder, "report", "--file", str(report))
        merge = self.machine.items("MergeJob")[0]
        print(f"\nAll flights are right: {skipped(merge)}")
        if self.java_problem:
            print(f"Plain Spark has not verified them: {self.java_problem}; then run make demo again.")
        print(f"The report: {shown(report)}. The tables: {shown(self.root)}.")
        print("To go on, type the first three lines above, then 'skipstone status' or 'skipstone local get lj'.")

    def start(self, program: str, *options: str, **environment: str) -> Program:
        """Start a program that reads the table."""
        log = self.machine.folder.path.parent / f"{program}.log"
        words = [str(self.root), TABLE, f"--first-month={self.first_month}", *options]
        return start_program(program, words, log, **environment)

    def all_complete(self, kind: str) -> bool:
        """Whether every job of the kind is complete. Raises DemoError as soon as one failed."""
        jobs = self.machine.items(kind)
        for job in jobs:
            if (failed := condition(job, "Failed")).get("status") == "True":
                raise DemoError(f"{job['metadata']['name']} failed: {failed['reason']}: {failed['message']}")
        return bool(jobs) and all(condition(job, "Complete").get("status") == "True" for job in jobs)

    def synced(self) -> set[str]:
        """The SYNCED strings of both indexes. Raises DemoError when one is stalled."""
        indexes = self.machine.items("SecondaryIndex")
        for index in indexes:
            if (stalled := condition(index, "Stalled")).get("status") == "True":
                raise DemoError(f"{index['metadata']['name']} is stalled: {stalled['reason']}: {stalled['message']}")
        return {str(index.get("status", {}).get("synced", "")) for index in indexes}

    def watch(self, kinds: str, done: Callable[[], bool], what: str) -> None:
        """Print the table, then each line that changes (ages left aside) until ``done``."""
        print(f"$ skipstone local get {kinds} --watch    # until {what}", flush=True)
        table = ""

        def look() -> bool:
            nonlocal table
            before, table = table, without_age(self.machine.table(kinds))
            if lines := new_lines(table, before):
                print(lines, flush=True)
            if self.libraries.done():  # what is missing at the end is told at once
                _fetched(self.libraries)
            return done()

        self.machine.wait_for(what, look, STEP_SECONDS)

    def show(self, kinds: str) -> None:
        """Print the table once."""
        print(f"$ skipstone local get {kinds}\n{self.machine.table(kinds)}", flush=True)


def _fetched(libraries: Future[str]) -> str:
    try:
        return libraries.result()
    except JarsMissing as error:
        raise DemoError(f"{error}, or leave plain Spark out: 'JAVA_HOME=/nonexistent make demo'") from error


def class_path() -> str:
    """Iceberg's runtime for plain Spark, and SQLite's driver; fetched once. Raises JarsMissing."""
    cache = JarCache.of_machine(os.environ)
    return ":".join(map(str, (*cache.fetch("iceberg"), *cache.fetch("sqlite"))))


def run_command(folder: RootFolder, *arguments: str) -> None:
    """Run the command line on the folder. Raises DemoError."""
    sys.stdout.flush()
    command = [sys.executable, "-m", "skipstone_cli", *arguments, "--local", str(folder.path)]
    if subprocess.run(command, check=False).returncode:
        raise DemoError(f"skipstone {arguments[0]} failed")


@contextmanager
def libraries_fetched(java_problem: str | None) -> Iterator[Future[str]]:
    """The class path of plain Spark, fetched while other things are done; empty without Java."""
    threads = ThreadPoolExecutor(1)
    try:
        yield threads.submit((lambda: "") if java_problem else class_path)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def demonstrate(folder: RootFolder, first_month: int) -> None:
    """Run the demonstration in ``folder``, which is new. Raises DemoError and CliError."""
    java_problem = find_java_problem(os.environ)
    if java_problem:
        print("No Java for Spark is here: loads, indexes, queries and the merge of this demonstration need none.\n")
    folder.path.mkdir(parents=True, mode=0o700)
    # A claim finds what is in its folder.
    target = folder.claim("default", CLAIM)
    target.mkdir(parents=True)
    laying = start_program("lay", [str(target)], folder.path.parent / "lay.log")
    try:
        with libraries_fetched(java_problem) as libraries, skipstone_up(folder) as machine:
            LocalDemo(machine, libraries, java_problem=java_problem, first_month=first_month).run(laying)
    finally:
        laying.process.kill()


def main(argv: list[str]) -> int:
    """Command line: ``python -m demo.local [--folder DIR] [--first-month N] [--down]``."""
    parser = argparse.ArgumentParser(prog="demo.local")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="is made again (build/demo)")
    parser.add_argument("--first-month", type=int, default=1, choices=range(1, OCTOBER + 1), help="load fewer months")
    parser.add_argument("--down", action="store_true", help="remove what the demonstration made")
    arguments = parser.parse_args(argv)
    folder, start = find_root(arguments.folder / "lake"), time.monotonic()
    # Whoever ends this program ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        remove(folder)
        if arguments.down:
            shutil.rmtree(folder.path.parent, ignore_errors=True)
            return 0
        demonstrate(folder, arguments.first_month)
    except (DemoError, CliError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    print(f"{time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
