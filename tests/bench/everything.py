"""All benchmarks, one after the other: `make bench-all` (hours), `make bench-all SMALL=1` (half an hour).

A benchmark that this commit has measured is left out, so that the same call goes on after a kill; one that was killed
leaves out the cases that it has kept, if it can. One that fails does not stop the others. Prints how far it is and what
is next, then all goals, then what failed. Each output is in build/bench/logs; small runs are in build/bench-small.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench import results
from tests.bench.results import EXIT_MISSED, ROOT
from tests.cluster.layout import NODE
from tests.cluster.processes import is_running

#: Seconds that one benchmark may take.
LIMITS = {"full": 8 * 3600, "small": 1800}
SMALL_LINES = "--segments 8 --files 40 --repeats 1"


@dataclass(frozen=True)
class Step:
    """One call of a benchmark. ``small``: its arguments in a small run; None: no part of one."""

    module: str
    full: str = ""
    small: str | None = None
    on_cluster: bool = False

    def arguments(self, size: str) -> str | None:
        """What the module is called with; None: not at all."""
        return self.full if size == "full" else self.small

    def name(self, size: str) -> str:
        """The call, as it is printed and found again."""
        return f"{self.module} {self.arguments(size)}".strip()


#: In this order; the first ones tell most.
PLAN = (
    Step("lookup", "--scale 3", f"--scale 0.3 {SMALL_LINES}"),
    Step("joins", "--scale 3", f"--scale 0.3 {SMALL_LINES}"),
    Step("tpch", "--scale 3", f"--scale 0.3 {SMALL_LINES} --only 6 11 17"),
    Step("merge", "", "--scale 0.3 --segments 4 --files 20 --repeats 1"),
    Step("merge_states", "", "--files 50 --merges 25 --rows 4000 --repeats 2"),
    Step("build", "--columns l_suppkey l_orderkey", f"--scale 0.3 {SMALL_LINES} --columns l_suppkey"),
    Step("catchup", "", "--few 5 --many 20 --repeats 3"),
    Step(
        "compaction",
        "--files 40 --target 16",
        "--scale 0.3 --segments 8 --of 40 --files 16 --target 2 --merges 10 --repeats 1",
    ),
    Step("equality", "", "--rows 40000 --files 2 --checkpoints 4 --upserts 50 --repeats 1"),
    Step("requests", "", ""),
    Step("latency", "", "--latency-ms 5 --repeats 1"),
    Step("thresholds", "--files 24 --repeats 3", "--files 4 --rows 20000 --repeats 1"),
    Step("overhead", "", "--files 4 --rows 5000 --repeats 3"),
    Step("planning", "", "--files 1000 --repeats 1"),
    Step("pruning", "", "--sizes 10000 --repeats 1"),
    Step("sizing", "", "--rows 20000 --files 4"),
    Step("hbase", "", "--rows 20000 --files 4 --repeats 2"),
    Step("peers_run", "", "--scale 0.05 --files 8 --repeats 1"),
    Step(
        "server",
        "--only 'point;server;many files;start;memory'",
        f"--scale 0.3 {SMALL_LINES} --many 1000 --most 2000 --queries 6",
    ),
    Step("server", "--only tpch --scale 1 --files 80"),
    Step("upsert", "", "--rows 100000 --keys 2000 --appends 4"),
    Step("freshness", "", "--files 1 --rows 10000"),
    Step("passes", "", "--jobs 100 --tables 10 --repeats 2 --only passes"),
    Step("memory", "", "--lengths 16 --decoded 16 --no-peers --only 'reindex;compaction'"),
    Step("application", "", "--files 4 --rows 1000 --repeats 1", on_cluster=True),
    Step("lookup", "--scale 10"),
    Step("joins", "--scale 10"),
    Step("tpch", "--scale 10"),
    Step("growth", "", "--commits 200 --without 0 --minutes 1"),
)


def main() -> None:
    """Run what is left, then tell goals and failures. Exits with 1 if a benchmark failed."""
    options = _options()
    size = "small" if options.small else "full"
    if options.small:
        results.FOLDER = results.FOLDER.with_name(f"{results.FOLDER.name}-small")
    steps = [step for step in PLAN if step.arguments(size) is not None and _is_chosen(step, options)]
    left = [step for step in steps if options.again or not is_done(step, size)]
    dirty = results.commit().endswith(results.DIRTY)
    print(f"{len(steps)} benchmarks, {len(steps) - len(left)} of them are measured on {results.commit()}", flush=True)
    if dirty:
        print("files differ from the commit: each call measures everything again", flush=True)
    if options.list:
        print("\n".join(f"{'left' if step in left else 'done':<5} {step.name(size)}" for step in steps))
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the benchmark ends, too
    failed = _run_all(left, size)
    results.main()
    for name, reason in failed.items():
        print(f"FAILED: {name}: {reason}")
    if failed:
        sys.exit(f"{len(failed)} of {len(left)} benchmarks failed; the same call measures only these again")


def is_done(step: Step, size: str) -> bool:
    """True if this commit has measured the step. Files that differ from their commit have measured nothing."""
    if results.commit().endswith(results.DIRTY):
        return False
    lines = [line for line in results.read(_ledger()) if line["case"] == step.name(size)]
    return any(line["commit"] == results.commit() and line["exit"] in (0, EXIT_MISSED) for line in lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="few rows: whether all benchmarks work, in half an hour")
    parser.add_argument("--only", default="", help="calls whose name holds one of these, separated by semicolons")
    parser.add_argument("--without", default="", help="calls to leave out, likewise")
    parser.add_argument("--again", action="store_true", help="also what this commit has measured")
    parser.add_argument("--list", action="store_true", help="run nothing: print what is done and what is left")
    return parser.parse_args()


def _is_chosen(step: Step, options: argparse.Namespace) -> bool:
    without = [part for part in options.without.split(";") if part]
    name = step.name("small" if options.small else "full")
    return any(part in name for part in options.only.split(";")) and not any(part in name for part in without)


def _ledger() -> Path:
    return results.FOLDER / "all.jsonl"


def _run_all(steps: Sequence[Step], size: str) -> dict[str, str]:
    """The reason of each step that failed, by its name. Stops if another commit is checked out meanwhile."""
    begun, failed = time.monotonic(), {}
    before = {line["case"]: line["seconds"] for line in results.read(_ledger())}
    for number, step in enumerate(steps, 1):
        if results.current_commit() != results.commit():
            sys.exit(f"the files are no longer those of {results.commit()}: call it again to measure these")
        name = step.name(size)
        usual = f", {_clock(before[name])} the last time" if name in before else ""
        after = f"; next: {steps[number].name(size)}" if number < len(steps) else ""
        elapsed = _clock(time.monotonic() - begun)
        print(f"\n[{number} of {len(steps)}] {name}{usual}; {elapsed} so far{after}", flush=True)
        reason = _run(step, size)
        if reason:
            failed[name] = reason
            print(f"FAILED: {reason}", flush=True)
    return failed


def _run(step: Step, size: str) -> str:
    """Why a step failed; empty if it ended well."""
    command = [sys.executable, "-m", f"tests.bench.{step.module}", *shlex.split(step.arguments(size) or "")]
    brought_up = step.on_cluster and not is_running(NODE, "kubelet")
    if brought_up and subprocess.run(["make", "--no-print-directory", "cluster"], cwd=ROOT, check=False).returncode:
        return "the cluster did not start: see above"
    try:
        return _logged(step.name(size), command, LIMITS[size])
    finally:
        if brought_up:
            subprocess.run(["make", "--no-print-directory", "cluster-down"], cwd=ROOT, check=True)


def _logged(name: str, command: Sequence[str], limit: float) -> str:
    """Run a command for at most ``limit`` seconds; its output goes to the terminal and to a file."""
    log = results.FOLDER / "logs" / f"{re.sub(r'[^a-z0-9.]+', '-', name.lower())}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    with (
        log.open("w") as lines,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, results.RESUME: "1", results.ELSEWHERE: str(results.FOLDER)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process,
    ):
        watch = threading.Timer(limit, _end, (process,))
        watch.start()
        try:
            for line in process.stdout or ():
                lines.write(line)
                print(f"  {line}", end="", flush=True)
            code = process.wait()
        except KeyboardInterrupt:
            _end(process)
            sys.exit("stopped; the same call goes on")
        finally:
            watch.cancel()
    seconds = time.monotonic() - begun
    results.keep(_ledger(), {"case": name, "seconds": round(seconds), "exit": code})
    if code in (0, EXIT_MISSED):
        return ""
    took = f" after {_clock(seconds)}" + (", the most that it may take" if seconds >= limit else "")
    return f"exit code {code}{took}; its output is in {log}"


def _end(process: subprocess.Popen[str]) -> None:
    """End a benchmark and the processes that it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


if __name__ == "__main__":
    main()
