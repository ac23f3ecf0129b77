"""Where reports go: the pod's termination message and annotation, files, or stdout.

Chosen by ``run_app`` from the environment. Must not read or change reports.
"""

from __future__ import annotations

import json
import logging
import os
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
    """Files that whoever started this process reads, a pod's own sink inside Kubernetes (POD_NAME), or stdout.

    SKIPSTONE_REPORT names the file of the report, SKIPSTONE_TERMINATION_LOG that of a pod's termination message. With
    SKIPSTONE_REPORT_SYNC=0, they need not outlive the machine.
    """
    report, message = environment.get("SKIPSTONE_REPORT"), environment.get("SKIPSTONE_TERMINATION_LOG")
    if report and message:
        return FolderSink(Path(report), Path(message), is_synced=environment.get("SKIPSTONE_REPORT_SYNC") != "0")
    if environment.get("POD_NAME"):
        return PodSink(environment)
    return FileSink(Path(report)) if report else StreamSink()


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


class FolderSink:
    """Two files for somebody who carries them to the pod: what the pod's annotation and its termination message say.

    No account, no network: a run that outlives whoever started it has told all the same how it ended.
    """

    def __init__(self, report: Path, termination_log: Path, *, is_synced: bool = True) -> None:
        """``report`` and ``termination_log`` need not exist; their folders do.

        ``is_synced``: what was told outlives the machine, too. A kept driver is gone with it, so nobody would read it.
        """
        self._report = report
        self._termination_log = termination_log
        self._is_synced = is_synced

    def show(self, report: str) -> None:
        """Put ``report`` in the place of the one before: a reader sees either."""
        self._replace(self._report, report)

    def finish(self, report: str, short: str) -> None:
        """Put ``report`` in its place, then ``short`` into the termination message."""
        self._replace(self._report, report)
        self._replace(self._termination_log, short)

    def _replace(self, path: Path, text: str) -> None:
        unfinished = path.with_name(f"{path.name}.new")
        with unfinished.open("w") as file:
            file.write(text)
            file.flush()
            if self._is_synced:
                os.fsync(file.fileno())
        unfinished.replace(path)


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
