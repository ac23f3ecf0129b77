"""The driver's real work in a process of its own: the real runs, a real Spark session, real commits.

The session is kept between runs so that dozens of runs fit into a test; everything else is as in a pod.
Called in worker processes by the simulated kubelet.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from pathlib import Path

from skipstone.runs.main import run_app
from skipstone.runs.reporting.report import fit_report
from skipstone_core.contract.reports import JobReport
from skipstone_core.contract.requests import JobRequest, RunKind

from tests.kube.faults.kubelet import Driven


def drive(request: str, root: str) -> Driven:
    """Run the request on the folder ``root`` in place of the pod's mount; returns what a driver leaves behind."""
    read = JobRequest.from_json(request)
    moved = request.replace(read.warehouse.root, root)
    with tempfile.TemporaryDirectory() as scratch:
        asked, said = Path(scratch) / "request.json", Path(scratch) / "report.json"
        asked.write_text(moved)
        os.environ |= {"SKIPSTONE_REQUEST": str(asked), "SKIPSTONE_REPORT": str(said)}
        code = run_app(read.kind, find_run(read.kind))
        text = said.read_text()
    return Driven(code, fit_report(JobReport.from_json(text))[1], text)


def find_run(kind: RunKind):  # type: ignore[no-untyped-def]
    """The function that runs this kind, as the application scripts find it."""
    name = kind.value.lower()
    return getattr(importlib.import_module(f"skipstone.runs.{name}"), f"run_{name}")


def warm_up() -> int:
    """Import what takes time; returns this process's id."""
    return os.getpid()
