"""Where reports go: the pod's termination message and annotation, a file, or stdout.

Chosen by ``run_app`` from the environment. Must not read or change reports.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path

import requests
from skipstone_core.ids import REPORT_ANNOTATION

from skipstone.runs.reporting.report import ReportSink

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TERMINATION_LOG = Path("/dev/termination-log")
SHOW_SECONDS = 2
FINISH_SECONDS = 5
FINISH_TRIES = 3
_log = logging.getLogger(__name__)


def choose_sink(environment: Mapping[str, str]) -> ReportSink:
    """A pod's own sink inside Kubernetes (POD_NAME), else the file of SKIPSTONE_REPORT, else stdout."""
    if environment.get("POD_NAME"):
        return PodSink(environment)
    if path := environment.get("SKIPSTONE_REPORT"):
        return FileSink(Path(path))
    return StreamSink()


class PodSink:
    """The termination message and an annotation of the pod this process runs in."""

    def __init__(
        self, environment: Mapping[str, str], account: Path = ACCOUNT, termination_log: Path = TERMINATION_LOG
    ) -> None:
        """``environment``: POD_NAME, POD_NAMESPACE and the API server's address as every pod has them."""
        host = environment.get("KUBERNETES_SERVICE_HOST", "")
        bracketed = f"[{host}]" if ":" in host else host
        scheme = environment.get("SKIPSTONE_API_SCHEME", "https")
        server = f"{scheme}://{bracketed}:{environment.get('KUBERNETES_SERVICE_PORT', '443')}"
        self._url = f"{server}/api/v1/namespaces/{environment.get('POD_NAMESPACE')}/pods/{environment['POD_NAME']}"
        self._account = account
        self._termination_log = termination_log

    def show(self, report: str) -> None:
        """Put ``report`` into the annotation."""
        self._annotate(report, SHOW_SECONDS)

    def finish(self, report: str, short: str) -> None:
        """Write ``short`` into the termination message, then ``report`` into the annotation."""
        self._termination_log.write_text(short)
        for _ in range(FINISH_TRIES - 1):
            try:
                self._annotate(report, FINISH_SECONDS)
            except OSError as error:
                _log.warning("the annotation is written again: %s", error)
            else:
                return
        self._annotate(report, FINISH_SECONDS)

    def _annotate(self, report: str, seconds: int) -> None:
        authority = self._account / "ca.crt"
        answer = requests.patch(
            self._url,
            data=json.dumps({"metadata": {"annotations": {REPORT_ANNOTATION: report}}}),
            headers={
                "Authorization": f"Bearer {(self._account / 'token').read_text().strip()}",
                "Content-Type": "application/merge-patch+json",
            },
            verify=str(authority) if authority.exists() else True,
            timeout=seconds,
        )
        answer.raise_for_status()


class FileSink:
    """One file, rewritten by every report."""

    def __init__(self, path: Path) -> None:
        """``path`` need not exist."""
        self._path = path

    def show(self, report: str) -> None:
        """Write ``report``."""
        self._path.write_text(report)

    def finish(self, report: str, short: str) -> None:
        """Write the full report."""
        self._path.write_text(report)


class StreamSink:
    """Stdout, one report a line."""

    def show(self, report: str) -> None:
        """Write ``report``."""
        sys.stdout.write(report + "\n")
        sys.stdout.flush()

    def finish(self, report: str, short: str) -> None:
        """Write the full report."""
        self.show(report)
