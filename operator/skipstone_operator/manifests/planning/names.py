"""Names and labels of what a planning server consists of.

Called by the other builders of this room and by reconcilers. Pure.
"""

from __future__ import annotations

import re

from skipstone_core.contract.planning import PLANNING_PORT
from skipstone_core.ids import MAX_NAME, bounded_name, short_hash

from skipstone_operator.labels import (
    MANAGED_BY,
    MANAGED_BY_LABEL,
    OWNER_KIND_LABEL,
    OWNER_UID_LABEL,
    WAREHOUSE_LABEL,
    WAREHOUSE_UID_LABEL,
)
from skipstone_operator.manifests.names import APP_LABEL, COMPONENT_LABEL

COMPONENT = "planning"
#: Kinds of what a server consists of, in the order in which they are made. All have the name of the server.
PLANNING_KINDS = (
    "ServiceAccount",
    "ConfigMap",
    "NetworkPolicy",
    "Service",
    "PodDisruptionBudget",
    "Deployment",
)
SUFFIX = f"-{COMPONENT}"
#: What the name of a Service looks like.
_SERVICE_NAME = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")


def server_name(warehouse: str) -> str:
    """The name of everything that the server of this Warehouse consists of; at most 63 characters."""
    name = warehouse
    if not _SERVICE_NAME.fullmatch(name):
        # Two Warehouses must not come to the same name.
        name = f"{'' if name[0].isalpha() else 'w-'}{name.replace('.', '-')}-{short_hash(warehouse)}"
    return f"{bounded_name(name, MAX_NAME - len(SUFFIX))}{SUFFIX}"


def server_url(warehouse: str, namespace: str) -> str:
    """The address of the server inside the cluster."""
    return f"http://{server_name(warehouse)}.{namespace}.svc:{PLANNING_PORT}"


def seal_name(warehouse: str, settings_uid: str) -> str:
    """The Secret with the key of the server whose ConfigMap has this uid: one ConfigMap, one key."""
    return f"{server_name(warehouse)}-{settings_uid.replace('-', '')[:12]}"


def server_labels(warehouse: str, uid: str) -> dict[str, str]:
    """Labels of everything that the server consists of."""
    return {
        APP_LABEL: "skipstone",
        MANAGED_BY_LABEL: MANAGED_BY,
        COMPONENT_LABEL: COMPONENT,
        WAREHOUSE_LABEL: warehouse,
        WAREHOUSE_UID_LABEL: uid,
        OWNER_KIND_LABEL: "Warehouse",
        OWNER_UID_LABEL: uid,
    }


def pod_labels(warehouse: str, uid: str) -> dict[str, str]:
    """Labels of the server's pods: without the one by which pods of runs are known, which controllers may not set."""
    return {name: value for name, value in server_labels(warehouse, uid).items() if name != MANAGED_BY_LABEL}


def server_selector(uid: str) -> dict[str, str]:
    """What selects the pods of the server. Never changes, since the selector of a Deployment cannot."""
    return {COMPONENT_LABEL: COMPONENT, WAREHOUSE_UID_LABEL: uid}
