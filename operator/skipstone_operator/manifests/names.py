"""Names and labels that a run's children get.

Called by the other builders; the watch takes its selector from here. Pure.
"""

from __future__ import annotations

from skipstone_core.contract.requests import JobRequest, RunKind
from skipstone_core.ids import DRIVER_SUFFIX, MAX_NAME, bounded_name

from skipstone_operator.labels import (
    APP_SELECTOR_LABEL,
    DRIVER_ROLE,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    OPERATION_LABEL,
    OWNER_KIND_LABEL,
    OWNER_UID_LABEL,
    ROLE_LABEL,
    RUN_ID_LABEL,
    TABLE_UID_LABEL,
    WAREHOUSE_UID_LABEL,
)

APP_LABEL = "app.kubernetes.io/name"
COMPONENT_LABEL = "app.kubernetes.io/component"
EXECUTOR_CONTAINER = "spark-kubernetes-executor"

#: What the watch selects: the pods whose container ends a run.
DRIVER_SELECTOR = {MANAGED_BY_LABEL: MANAGED_BY, ROLE_LABEL: DRIVER_ROLE}


def conf_map_name(run_id: str) -> str:
    """The ConfigMap with the request of run ``run_id``; at most 63 characters."""
    return f"{bounded_name(run_id, 63 - len('-conf'))}-conf"


def driver_pod_name(run_id: str) -> str:
    """The pod that is run ``run_id``; at most 63 characters."""
    return f"{bounded_name(run_id, MAX_NAME - len(DRIVER_SUFFIX))}{DRIVER_SUFFIX}"


def shared_labels(request: JobRequest, warehouse_uid: str) -> dict[str, str]:
    """Labels that driver, executors and ConfigMap of a run have in common."""
    labels = {
        APP_LABEL: "skipstone",
        MANAGED_BY_LABEL: MANAGED_BY,
        COMPONENT_LABEL: request.kind.lower(),
        OPERATION_LABEL: request.kind.value,
        RUN_ID_LABEL: bounded_name(request.run_id),
        OWNER_KIND_LABEL: request.owner_kind,
        OWNER_UID_LABEL: request.owner_uid,
        WAREHOUSE_UID_LABEL: warehouse_uid,
    }
    # An observe run looks at many tables and writes none: it must not look like a table's writer.
    if request.table is not None and request.kind is not RunKind.OBSERVE:
        labels[TABLE_UID_LABEL] = request.table.uid
    return labels


def run_labels(request: JobRequest, warehouse_uid: str) -> dict[str, str]:
    """Labels of the driver pod and of its ConfigMap."""
    return {
        **shared_labels(request, warehouse_uid),
        ROLE_LABEL: DRIVER_ROLE,
        APP_SELECTOR_LABEL: bounded_name(request.run_id),
    }
