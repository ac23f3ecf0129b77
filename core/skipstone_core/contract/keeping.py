"""How the operator assigns runs to kept drivers: names, variables and the mark of one that is ready.

A run in a kept driver has a pod of its own, which no node ever starts: its scheduler is the kept driver, which runs it
in a process of its own and writes the pod's status as a node would. Both planes import this. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

#: Begins the scheduler's name of pods that are assigned; the uid of the kept driver's pod follows.
SCHEDULER_PREFIX = "skipstone.dev/kept-driver-"
#: Of a assigned pod: a JSON object with the files of its ConfigMap, by name. A pod's spec never changes.
FILES_VARIABLE = "SKIPSTONE_FILES"
#: Of a kept driver: how long it stays without a run, in seconds; absent: for ever.
IDLE_VARIABLE = "SKIPSTONE_IDLE_SECONDS"
#: Of a kept driver: the uid of the Warehouse whose runs it takes.
WAREHOUSE_VARIABLE = "SKIPSTONE_WAREHOUSE_UID"
#: Where a kept driver has the Warehouse's credentials: one file for each variable, by the variable's name.
CREDENTIALS_DIRECTORY = "/etc/skipstone-credentials"
#: What a kept driver writes into the report annotation of its own pod as soon as it takes runs.
READY_REPORT = json.dumps({"keeping": True})


def scheduler_name(uid: str) -> str:
    """The scheduler's name of pods that are assigned to the kept driver whose pod has this uid."""
    return f"{SCHEDULER_PREFIX}{uid}"


def kept_driver_uid(pod: Mapping[str, Any]) -> str:
    """The uid of the kept driver that ``pod`` is assigned to; empty for every other pod."""
    name = str((pod.get("spec") or {}).get("schedulerName") or "")
    return name.removeprefix(SCHEDULER_PREFIX) if name.startswith(SCHEDULER_PREFIX) else ""
