"""The demonstration on this machine, without a cluster: `make demo` calls `python -m demo.local`.

`skipstone local` runs the operator, and each run as a process. Loads ten months of flights, indexes them, lets two more
months arrive while an index is suspended, queries in between, merges a CDC feed, and verifies everything with engines
that are not ours. The tables stay in build/demo.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from skipstone_cli.errors import CliError
from skipstone_local.places import RootFolder, find_root

from demo.kube import condition
from demo.lakes import CLASS_PATH_VARIABLE
from demo.machine import ROOT, DemoError, Machine, remove, run_program, shown, skipstone_up
from demo.manifests import claim
from demo.steps import is_in_sync, skipped, step, without_age
from tests.spark.jars import ICEBERG_RUNTIME, jar_paths

EXAMPLES = ROOT / "examples" / "flights"
CLAIM, TABLE = "flights-data", "nyc.flights"
FOLDER = ROOT / "build" / "demo" / "lake"
REPORT = ROOT / "build" / "demo" / "report.html"
STEP_SECONDS = 600.0


class LocalDemo:
    """The steps in order; each prints what a person would type and see."""

    def __init__(self, machine: Machine) -> None:
        """Remember the folder that is served; nothing is done yet."""
        self.machine = machine
        self.root = machine.folder.claim("default", CLAIM)

    def run(self) -> None:
        """All steps. Raises DemoError at the first that fails."""
        with step(f"lay 12 monthly CSV files (336,776 flights) and a CDC feed into {shown(self.root)}"):
            self.machine.create(claim(CLAIM))
            self.machine.wait_for("the claim has a folder", self.root.is_dir, STEP_SECONDS)
            run_program("lay", [str(self.root)], {})
        with step("declare a Warehouse, a Table, ten loads and two indexes"):
            self.declare()
        with step("suspend one index, let November and December arrive"):
            self.let_two_months_arrive()
        with step("query while the index lags: 10 of 12 segments by the index, 2 by min/max"):
            run_program("query", [str(self.root), TABLE], {})
        with step("resume: the index catches up"):
            self.suspend(is_suspended=False)
            self.watch("si", lambda: self.synced() == {"12/12"}, "both indexes cover 12 of 12 segments")
        with step("merge corrections, cancellations and added flights"):
            self.machine.apply(EXAMPLES / "06-merge.yaml")
            self.watch("mj", lambda: self.all_complete("MergeJob"), "the merge completes")
            self.watch("si", lambda: is_in_sync(self.synced()), "indexes in sync")
        with step("verify with plain Spark + Iceberg against a DuckDB replay of CSV and feed"):
            run_program("verify", [str(self.root), TABLE], {CLASS_PATH_VARIABLE: class_path()})
        self.finish()

    def declare(self) -> None:
        """Apply the manifests in one go, in any order, and watch the ten segments appear."""
        names = ("01-warehouse", "02-table", "03-loads-january-to-october", "04-indexes")
        self.machine.apply(*(EXAMPLES / f"{name}.yaml" for name in names))
        self.watch("lj", lambda: self.all_complete("LoadJob"), "ten loads complete")
        self.watch("si", lambda: self.synced() == {"10/10"}, "both indexes cover 10 of 10 segments")
        self.show("wh,tbl")

    def let_two_months_arrive(self) -> None:
        """Suspend `by-tailnum`; the other index goes on."""
        self.suspend(is_suspended=True)
        self.machine.apply(EXAMPLES / "05-loads-november-december.yaml")
        self.watch("lj", lambda: self.all_complete("LoadJob"), "loads 11 and 12 complete")
        self.watch("si", lambda: self.synced() == {"10/12", "12/12"}, "by-tailnum lags at 10/12")

    def suspend(self, *, is_suspended: bool) -> None:
        """Set ``spec.suspend`` of `by-tailnum`."""
        self.machine.patch("SecondaryIndex", "by-tailnum", {"spec": {"suspend": is_suspended}})

    def finish(self) -> None:
        """Show all objects, write the report, and say what stays."""
        self.show("tbl,si,lj,mj")
        report = ["report", "--file", str(REPORT)]
        run_command(self.machine.folder, *report)
        merge = self.machine.items("MergeJob")[0]
        print(f"\nAll flights are right: {skipped(merge)}")
        print(f"The report: {shown(REPORT)}. The tables: {shown(self.root)}; go on with 'skipstone local up'.")

    def all_complete(self, kind: str) -> bool:
        """Whether every job of the kind is complete. Raises DemoError as soon as one failed."""
        jobs = self.machine.items(kind)
        for job in jobs:
            if (failed := condition(job, "Failed")).get("status") == "True":
                raise DemoError(f"{job['metadata']['name']} failed: {failed['reason']}: {failed['message']}")
        return bool(jobs) and all(condition(job, "Complete").get("status") == "True" for job in jobs)

    def synced(self) -> set[str]:
        """The SYNCED strings of both indexes."""
        return {str(index.get("status", {}).get("synced", "")) for index in self.machine.items("SecondaryIndex")}

    def watch(self, kinds: str, done: Callable[[], bool], what: str) -> None:
        """Print the table each time it changes (ages left aside) until ``done``."""
        print(f"$ skipstone local get {kinds} --watch    # until {what}", flush=True)
        shown_table = ""

        def look() -> bool:
            nonlocal shown_table
            table = without_age(self.machine.table(kinds))
            if table != shown_table:
                print(table, flush=True)
                shown_table = table
            return done()

        self.machine.wait_for(what, look, STEP_SECONDS)

    def show(self, kinds: str) -> None:
        """Print the table once."""
        print(f"$ skipstone local get {kinds}\n{self.machine.table(kinds)}", flush=True)


def class_path() -> str:
    """Iceberg's runtime for plain Spark, and SQLite's driver; fetched once."""
    return ":".join(map(str, jar_paths("iceberg-runtime", ICEBERG_RUNTIME)))


def run_command(folder: RootFolder, *arguments: str) -> None:
    """Run the command line on the folder. Raises DemoError."""
    run_module("skipstone_cli", [*arguments, "--local", str(folder.path)])


def run_module(name: str, arguments: list[str]) -> None:
    """Run a module in this interpreter's environment. Raises DemoError."""
    sys.stdout.flush()
    if subprocess.run([sys.executable, "-m", name, *arguments], check=False).returncode:
        raise DemoError(f"{name} {arguments[0]} failed")


def main(argv: list[str]) -> int:
    """Command line: ``python -m demo.local [--down]``."""
    parser = argparse.ArgumentParser(prog="demo.local")
    parser.add_argument("--down", action="store_true", help="remove what the demonstration made")
    arguments = parser.parse_args(argv)
    folder, start = find_root(FOLDER), time.monotonic()
    # Whoever ends this program ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        remove(folder)
        if arguments.down:
            shutil.rmtree(FOLDER.parent, ignore_errors=True)
            return 0
        with skipstone_up(folder) as machine:
            LocalDemo(machine).run()
    except (DemoError, CliError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    print(f"{time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
