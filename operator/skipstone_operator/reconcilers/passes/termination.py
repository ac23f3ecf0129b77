"""Removes our finalizer in a namespace that is being deleted: its Role may be gone before our finalizers are.

Called by the entry when a read was forbidden. Needs the cluster-wide right to read and update our own kinds and to
read namespaces, which the chart gives unless it is installed without any. Touches nothing but our finalizer.
"""

from __future__ import annotations

from skipstone_core.reasons import Reason

from skipstone_operator.labels import FINALIZER
from skipstone_operator.ports import (
    AccessDenied,
    Conflict,
    EventRecord,
    EventType,
    Gone,
    JsonObject,
    Key,
    Ports,
    Refused,
    Requeue,
    Updated,
)

NOTE = "the data was kept: the namespace went away before it could be dropped"


async def let_go(key: Key, ports: Ports, denied: AccessDenied) -> Requeue:
    """Take our finalizer off the resource of ``key`` when its namespace is going away.

    Raises ``denied`` again in every other case: a Role that is not bound is for an administrator to see.
    """
    obj = await ports.kube.get(key.kind, key.namespace, key.name)
    if obj is None:
        return Requeue.never()
    finalizers = obj["metadata"].get("finalizers", [])
    if FINALIZER not in finalizers or not await ports.kube.is_terminating(key.namespace):
        raise denied
    obj["metadata"]["finalizers"] = [name for name in finalizers if name != FINALIZER]
    match await ports.kube.replace(obj):
        case Updated():
            await ports.events.publish(_record(obj))
            return Requeue.never()
        case Conflict() | Gone():
            return Requeue.now()
        case Refused():
            raise denied


def _record(obj: JsonObject) -> EventRecord:
    metadata = obj["metadata"]
    regarding = {"apiVersion": obj["apiVersion"], "kind": obj["kind"]}
    regarding |= {field: metadata[field] for field in ("namespace", "name", "uid")}
    return EventRecord(regarding=regarding, type=EventType.WARNING, reason=Reason.DATA_RETAINED, note=NOTE)
