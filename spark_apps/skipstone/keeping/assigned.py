"""A pod that was assigned, as the process that is to run it needs it.

Pure but for ``read_credential``, by which a variable that names a Secret gets its value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skipstone_core.contract.keeping import FILES_VARIABLE
from skipstone_core.ids import DRIVER_SUFFIX, WAREHOUSE_UID_LABEL

JsonObject = Mapping[str, Any]
#: The folder that the operator writes paths of a run's files in.
CONF_DIRECTORY = "/etc/skipstone"
DEFAULT_GRACE = 30.0
_REFERENCE = re.compile(r"\$\$|\$\(([^)$]+)\)")
_FIELDS = ("metadata.name", "metadata.namespace", "metadata.uid")
#: Drivers without executors are reached by nobody else.
_ADDRESS_FIELD, _ADDRESS = "status.podIP", "127.0.0.1"
_APP = re.compile("[a-z]+")


class Unusable(ValueError):
    """The pod cannot be run here; the text is one sentence."""


@dataclass(frozen=True, kw_only=True)
class AssignedRun:
    """A run that is assigned. ``app``: the name of its program; times in seconds.

    ``files``: the content of its ConfigMap by file name; ``variables``: its environment, without the driver's own.
    """

    name: str
    namespace: str
    uid: str
    container: str
    image: str
    app: str
    variables: Mapping[str, str]
    files: Mapping[str, str]
    deadline: float | None
    grace: float

    @property
    def run_id(self) -> str:
        """The name of the run."""
        return self.name.removesuffix(DRIVER_SUFFIX)


def read_assigned(pod: JsonObject, warehouse_uid: str, read_credential: Callable[[str], str | None]) -> AssignedRun:
    """The run that ``pod`` is. ``read_credential``: a variable's value, None if there is none.

    Raises Unusable, also for a run of another Warehouse than that with ``warehouse_uid``.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    if (asked := (metadata.get("labels") or {}).get(WAREHOUSE_UID_LABEL)) != warehouse_uid:
        raise Unusable(f"the run uses the Warehouse with uid {asked}, and this kept driver that with {warehouse_uid}")
    container = spec["containers"][0]
    args = [str(arg) for arg in container.get("args") or ()]
    if len(args) != 2 or args[0] != "app" or _APP.fullmatch(args[1]) is None:
        raise Unusable(f"the arguments {args} do not name a program of the image")
    variables = _resolve(container.get("env") or [], pod, read_credential)
    return AssignedRun(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        container=container["name"],
        image=container.get("image", ""),
        app=args[1],
        files=_read_files(variables.pop(FILES_VARIABLE, "")),
        variables=variables,
        deadline=spec.get("activeDeadlineSeconds"),
        grace=float(spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE)),
    )


def is_waiting(pod: JsonObject) -> bool:
    """Return whether nobody has begun to run ``pod``."""
    status = pod.get("status") or {}
    return status.get("phase", "Pending") == "Pending" and not pod["metadata"].get("deletionTimestamp")


def is_over(pod: JsonObject) -> bool:
    """Return whether the status of ``pod`` says how it ended."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def order_of(pod: JsonObject) -> tuple[str, str]:
    """What orders pods: the one that was assigned first comes first."""
    return (str(pod["metadata"].get("creationTimestamp", "")), str(pod["metadata"]["name"]))


def placed(text: str, conf: Path) -> str:
    """``text`` with paths of the run's files as they are below ``conf``."""
    return text.replace(f"{CONF_DIRECTORY}/", f"{conf}/")


def _read_files(text: str) -> Mapping[str, str]:
    try:
        files = json.loads(text)
    except ValueError:
        files = None
    if not isinstance(files, dict) or not all(isinstance(content, str) for content in files.values()):
        raise Unusable(f"the variable {FILES_VARIABLE} does not hold the files of the run")
    if any("/" in name or name.startswith(".") for name in files):
        raise Unusable(f"the variable {FILES_VARIABLE} holds a file whose name is a path")
    return files


def _resolve(
    entries: Sequence[JsonObject], pod: JsonObject, read_credential: Callable[[str], str | None]
) -> dict[str, str]:
    """The variables as a node gives them to a container; of equal names the last counts."""
    known: dict[str, str] = {}
    for entry in entries:
        name, source = str(entry["name"]), entry.get("valueFrom")
        if not source:
            given = entry.get("value") or ""
            # Nothing in the files of a run is a reference.
            known[name] = given if name == FILES_VARIABLE else _expand(given, known)
        elif (value := _read_source(name, source, pod, read_credential)) is not None:
            known[name] = value
    return known


def _expand(text: str, known: Mapping[str, str]) -> str:
    return _REFERENCE.sub(lambda match: "$" if match[0] == "$$" else known.get(match[1], match[0]), text)


def _read_source(
    name: str, source: JsonObject, pod: JsonObject, read_credential: Callable[[str], str | None]
) -> str | None:
    if (reference := source.get("secretKeyRef")) is not None:
        value = read_credential(name)
        if value is None and not reference.get("optional"):
            raise Unusable(f"the kept driver has no credential for the variable {name}")
        return value
    path = (source.get("fieldRef") or {}).get("fieldPath", "")
    if path == _ADDRESS_FIELD:
        return _ADDRESS
    if path not in _FIELDS:
        raise Unusable(f"the variable {name} takes its value from where a kept driver has none")
    return str(pod["metadata"][path.removeprefix("metadata.")])
