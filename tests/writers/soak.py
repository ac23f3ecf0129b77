"""Every writer writes its tables, and the harness takes each through its steps.

``python -m tests.writers.soak [--record] [WRITER …]``; CASES=one,another in the environment chooses cases. Progress is
printed. What was found is written to build/soak/writers.json; with ``--record`` also to tests/writers/result.json, of
which docs/works-with.md has a table, and the tables of ``SAMPLES`` to tests/writers/recorded.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.spark import conftest
from tests.spark.restserver import rest_catalog
from tests.writers.harness import PLACES, Findings, Place, check_table
from tests.writers.recorded import SAMPLES, held, record
from tests.writers.registry import ROOT, WRITERS, Writer

RESULT = ROOT / "build" / "soak" / "writers.json"
RECORDED = ROOT / "tests" / "writers" / "result.json"


@contextmanager
def session() -> Iterator[SparkSession]:
    """The session of the second engine, in a JVM as the tests have it."""
    with conftest.one_jvm():
        yield SparkSession.builder.getOrCreate()


def write_tables(writer: Writer, root: Path) -> list[dict[str, Any]]:
    """Run the program of ``writer``; what it says of each case."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    with rest_catalog(root) if writer.needs_rest else nullcontext("") as rest, (root / "writer.log").open("w") as log:
        command, settings = writer.command(root, rest), {**os.environ, **writer.environment}
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, check=False, env=settings)
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"case"')]
    if done.returncode:
        last = (root / "writer.log").read_text().strip().splitlines()[-1:] or [""]
        told.append({"case": "program", "refused": f"it ended with {done.returncode}: {last[0]}"})
    return told


def run_writer(writer: Writer, spark: SparkSession, samples: set[tuple[str, str]]) -> dict[str, Any]:
    """All tables of ``writer`` through all steps."""
    root, began = PLACES / writer.name, time.monotonic()
    cases, refused = [], {}
    for told in write_tables(writer, root):
        name = told["case"]
        if "refused" in told:
            refused[name] = told["refused"]
            print(f"  {name}: the writer refuses: {told['refused']}", flush=True)
            continue
        place = Place(root, name, told["metadata"].removeprefix("file://").removeprefix("file:"))
        if (writer.name, name) in samples:
            record(writer.name, place, spark)
        found = check_table(place, spark)
        if found.rows != told.get("rows", found.rows):
            found.wrong["reference"] = f"the reference has {found.rows} rows, the writer wrote {told['rows']}"
        print(f"  {name}: {_summary(found)}", flush=True)
        cases.append(found.told())
    print(f"{writer.title}: {time.monotonic() - began:.0f} s", flush=True)
    return {"writer": writer.name, "title": writer.title, "cases": cases, "refused": refused}


def _summary(found: Findings) -> str:
    lines = [f"{len(found.steps)} steps right, {len(found.refused)} refused, {len(found.wrong)} wrong"]
    for kind, said in (("refused", found.refused), ("WRONG", found.wrong), ("engine", found.engines)):
        lines += [f"    {kind} {step}: {message}" for step, message in said.items()]
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    """Run the writers that are named, or all of them; 1 if a step was wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args(argv)
    writers = [one for one in WRITERS if not asked.names or one.name in asked.names]
    samples = set(SAMPLES) if asked.record else set()
    with held(*(one.name for one in writers)), session() as spark:
        results = [run_writer(writer, spark, samples) for writer in writers]
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    if asked.record:
        _merge_recorded(results)
    wrong = [f"{one['writer']}/{case['name']}" for one in results for case in one["cases"] if case.get("wrong")]
    print(f"{sum(len(one['cases']) for one in results)} tables; wrong: {', '.join(wrong) or 'none'}")
    return 1 if wrong else 0


def _merge_recorded(results: list[dict[str, Any]]) -> None:
    """Replace what was recorded of these writers, or of their chosen cases; others keep theirs."""
    with RECORDED.open("r+") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)  # other writers may end at this moment
        _replace_recorded(results)


def _replace_recorded(results: list[dict[str, Any]]) -> None:
    known = {one["writer"]: one for one in json.loads(RECORDED.read_text())}
    for one in results:
        before = known.get(one["writer"]) if os.environ.get("CASES") else None
        known[one["writer"]] = one if before is None else _joined(before, one)
    ordered = [known[writer.name] for writer in WRITERS if writer.name in known]
    RECORDED.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")


def _joined(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """What was recorded of a writer with the cases of ``now`` in the place of theirs."""
    cases = {case["name"]: case for case in (*before["cases"], *now["cases"])}
    return {**now, "cases": list(cases.values()), "refused": {**before["refused"], **now["refused"]}}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
