"""Statuses of assigned pods, each written on the version that was judged.

A merge patch with a resourceVersion lands on this version or not at all. So a driver that was held up neither begins
nor ends a run that was deleted, created again or ended by the operator in the meantime.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from skipstone_core.ids import REPORT_ANNOTATION

from skipstone.keeping.cluster import RETRY_SECONDS, Answer, PodClient

JsonObject = dict[str, Any]
#: Answers after which the same write never lands: another version is there, or none.
_FINAL = (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StatusWriter:
    """Writes the statuses of pods until the API server has answered."""

    client: PodClient

    def write(
        self,
        pod: JsonObject,
        status: JsonObject,
        *,
        expects: Callable[[JsonObject], bool],
        gives_up: Callable[[], bool],
        report: str = "",
    ) -> JsonObject | None:
        """Write the status of ``pod``, and its report, while the pod is as ``expects`` wants it.

        Returns the pod as written. None: it is gone, is another one or is not as expected, or ``gives_up`` after an
        answer that decides nothing; nothing is written then, or it is not known.
        """
        current: JsonObject | None = pod
        while current is not None and expects(current):
            answer = self._ask("PATCH", current, "status", _build_change(current, status, report))
            if answer is not None and answer.ok:
                return answer.body
            if answer is None or answer.status not in _FINAL:
                if gives_up():
                    return None
                time.sleep(RETRY_SECONDS)
            current = self._read_again(current, gives_up)
            if current is not None and _covers(status, current.get("status")):
                return current  # the answer was lost, and not the write
        return None

    def _read_again(self, pod: JsonObject, gives_up: Callable[[], bool]) -> JsonObject | None:
        """The pod as it is now; None if it is gone, if another one has its name, or after ``gives_up``."""
        while True:
            answer = self._ask("GET", pod)
            if answer is not None and answer.ok:
                return answer.body if answer.body["metadata"]["uid"] == pod["metadata"]["uid"] else None
            if gives_up() or (answer is not None and answer.status == HTTPStatus.NOT_FOUND):
                return None
            time.sleep(RETRY_SECONDS)

    def _ask(
        self, method: str, pod: JsonObject, subresource: str = "", body: JsonObject | None = None
    ) -> Answer | None:
        """The answer about the pod; None if there is none."""
        name = pod["metadata"]["name"]
        try:
            answer = self.client.request(method, self.client.server.pods(name, subresource), body)
        except OSError as error:
            _log.warning("%s of pod %s is repeated: %s", method, name, error)
            return None
        if not answer.ok:
            _log.warning("%s of pod %s: %s", method, name, describe(answer))
        return answer


def describe(answer: Answer) -> str:
    """The status and the message of an answer."""
    return f"{answer.status} {answer.body.get('message', '')}".strip()


def _build_change(pod: JsonObject, status: JsonObject, report: str) -> JsonObject:
    metadata: JsonObject = {name: pod["metadata"][name] for name in ("uid", "resourceVersion")}
    if report:
        metadata["annotations"] = {REPORT_ANNOTATION: report}
    return {"metadata": metadata, "status": status}


def _covers(wanted: Any, stored: Any) -> bool:
    """Return whether ``stored`` has everything that ``wanted`` has; the API server may have added to it."""
    if isinstance(wanted, Mapping):
        return isinstance(stored, Mapping) and all(_covers(value, stored.get(name)) for name, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(stored, list) and len(stored) == len(wanted) and all(map(_covers, wanted, stored))
    return bool(wanted == stored)
