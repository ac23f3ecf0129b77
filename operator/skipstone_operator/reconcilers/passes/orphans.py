"""Finds orphaned driver pods: an earlier Table left them, and they may still write the table of a new one.

Called by ``gather`` for a Table of which nothing is known yet. Reads only. A Table that was deleted and created again
has another uid, and its drivers bear the old one, so they are found by the table that their request names.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from skipstone_core.contract.requests import JobRequest
from skipstone_core.errors import ContractViolation

from skipstone_operator import labels
from skipstone_operator.manifests import conf_map_name
from skipstone_operator.manifests.names import DRIVER_SELECTOR
from skipstone_operator.manifests.shape import REQUEST_FILE
from skipstone_operator.ports import JsonObject, KubeApi
from skipstone_operator.worlds.pods import PodFacts, read_pod
from skipstone_operator.worlds.subjects import TableSubject, WarehouseSubject


async def find_orphaned_pods(table: TableSubject, warehouse: WarehouseSubject, kube: KubeApi) -> tuple[PodFacts, ...]:
    """Return the live drivers in the Warehouse that may write the declared table and belong to another Table."""
    return tuple([pod async for pod in _orphaned_pods(table, warehouse, kube)])


async def _orphaned_pods(table: TableSubject, warehouse: WarehouseSubject, kube: KubeApi) -> AsyncIterator[PodFacts]:
    selector = {**DRIVER_SELECTOR, labels.WAREHOUSE_UID_LABEL: warehouse.meta.uid}
    namespace = table.meta.namespace
    for raw in await kube.list("Pod", namespace, labels=selector, fields={"status.phase!": "Succeeded"}):
        pod = read_pod(raw)
        uid = raw["metadata"]["labels"].get(labels.TABLE_UID_LABEL, table.meta.uid)
        if pod.live and uid != table.meta.uid:
            conf = await kube.get("ConfigMap", pod.namespace, conf_map_name(pod.run_id))
            if _may_write(conf, table):
                yield pod


def _may_write(conf: JsonObject | None, table: TableSubject) -> bool:
    if conf is None:
        # It went with its owner, and the pod is about to; which table that was nobody can tell.
        return True
    try:
        asked = JobRequest.from_json((conf.get("data") or {}).get(REQUEST_FILE, "")).table
    except ContractViolation:
        return False
    identifier = table.spec.identifier
    return asked is not None and asked.identifier == (identifier.namespace, identifier.name)
