"""The driver's real work in a process of its own: the real runs, a real Spark session, real commits.

The session is kept between runs so that dozens of runs fit into a test; everything else is as in a pod.
Called in worker processes by the simulated kubelet.
"""

from __future__ import annotations

import os
import runpy
import tempfile
from pathlib import Path

from skipstone.runs.reporting.report import fit_report
from skipstone_core.contract.reports import JobReport
from skipstone_core.contract.requests import JobRequest, RunKind

from tests.kube.faults.kubelet import Driven

APPLICATIONS = Path(__file__).resolve().parents[3] / "spark_apps" / "skipstone" / "apps"


def drive(request: str, root: str) -> Driven:
    """Run the request on the folder ``root`` in place of the pod's mount; returns what a driver leaves behind."""
    read = JobRequest.from_json(request)
    moved = request.replace(read.warehouse.root, root)
    with tempfile.TemporaryDirectory() as scratch:
        asked, said = Path(scratch) / "request.json", Path(scratch) / "report.json"
        asked.write_text(moved)
        os.environ |= {"SKIPSTONE_REQUEST": str(asked), "SKIPSTONE_REPORT": str(said)}
        code = run_application(read.kind)
        text = said.read_text()
    return Driven(code, fit_report(JobReport.from_json(text))[1], text)


def run_application(kind: RunKind) -> int:
    """Run the script that a pod of this kind runs; returns its exit code."""
    try:
        runpy.run_path(str(APPLICATIONS / f"{kind.value.lower()}.py"), run_name="__main__")
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def warm_up() -> int:
    """Import what takes time; returns this process's id."""
    return os.getpid()
