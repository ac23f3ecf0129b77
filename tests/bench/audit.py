"""What the audit log of an API server tells of the operator: how many requests it sent, and when its pods were made."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any


@dataclass
class Audit:
    """Reads on from where it stopped, for the log is long.

    ``asked`` counts the requests of the operator by what they ask for, the Lease aside; a watch counts once, whatever
    it delivers. ``jobs`` are the seconds at which LoadJobs were asked for, by name, ``pods`` those at which pods were
    there, by the beginning of their owner's uid.
    """

    log: Path
    asked: Counter[str] = field(default_factory=Counter)
    jobs: dict[str, float] = field(default_factory=dict)
    pods: dict[str, float] = field(default_factory=dict)
    _offset: int = 0

    @property
    def requests(self) -> int:
        """How many requests the operator sent."""
        return self.asked.total()

    def read(self) -> Audit:
        """Take what was written since."""
        for event in self._lines():
            if event["stage"] != "ResponseComplete":
                continue
            reference = event.get("objectRef") or {}
            agent = str(event.get("userAgent", ""))
            ours = agent.startswith("kopf") or agent == "skipstone-operator"
            if ours and reference.get("resource") != "leases":
                self.asked[_asked(event, reference)] += 1
            if event["verb"] == "create" and event["responseStatus"]["code"] == 201:
                self._created(event, reference)
        return self

    def _created(self, event: dict[str, Any], reference: dict[str, Any]) -> None:
        if reference.get("subresource"):
            return
        if reference["resource"] == "pods":
            self.pods.setdefault(reference["name"].partition("-")[0], _seconds(event["stageTimestamp"]))
        elif reference["resource"] == "loadjobs":
            self.jobs[reference["name"]] = _seconds(event["requestReceivedTimestamp"])

    def _lines(self) -> Iterator[dict[str, Any]]:
        with self.log.open("rb") as log:
            log.seek(self._offset)
            # The last line may be half written.
            for line in log:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                yield json.loads(line)


def _asked(event: dict[str, Any], reference: dict[str, Any]) -> str:
    what = "/".join(filter(None, (reference.get("resource"), reference.get("subresource"))))
    code = event["responseStatus"]["code"]
    return " ".join(filter(None, (event["verb"], what, str(code) if code >= 400 else "")))


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
