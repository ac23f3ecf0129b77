"""What pods of a Warehouse have in common, and where things are in the data plane's image.

Filled by ``run`` and ``planning``, read by ``pods``, ``executors`` and ``spark``. Data only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skipstone_core.contract.requests import JobRequest

from skipstone_operator.resources.storage import AuthorityRef

PYTHON = "/opt/skipstone/bin/python"
SCRATCH = "/tmp"
SPARK_DIRECTORY = "/var/lib/skipstone"
CONF_DIRECTORY = "/etc/skipstone"
AUTHORITIES_DIRECTORY, AUTHORITIES_FILE = "/etc/skipstone-ca", "ca.crt"
REQUEST_FILE = "request.json"
PROPERTIES_FILE = "spark.properties"
EXECUTOR_TEMPLATE_FILE = "executor-pod-template.yaml"
DRIVER_PORT = 7078
BLOCK_MANAGER_PORT = 7079


@dataclass(frozen=True, kw_only=True)
class SecretVariable:
    """A variable with what ``secret`` holds under ``key``; ``optional``: absent when there is no such key."""

    name: str
    secret: str
    key: str
    optional: bool = False


@dataclass(frozen=True, kw_only=True)
class ClaimMount:
    """A PersistentVolumeClaim as the volume ``name`` of a pod."""

    name: str
    claim: str
    path: str
    read_only: bool = False


@dataclass(frozen=True, kw_only=True)
class PodPlace:
    """What every pod of a Warehouse needs, whatever it does.

    ``variables`` are listed first, so ours win; ``template`` is the Warehouse's podTemplate.
    """

    namespace: str
    warehouse_uid: str
    claims: tuple[ClaimMount, ...]
    authorities: AuthorityRef | None
    image: str
    pull_policy: str
    pull_secrets: tuple[str, ...]
    service_account: str
    variables: tuple[SecretVariable, ...]
    one_node: bool
    template: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class PodShape(PodPlace):
    """The pods of the run that ``request`` asks for.

    ``source_claims`` and ``source_variables``: of the Warehouse of a source table, which only the driver reads.
    """

    request: JobRequest
    source_claims: tuple[ClaimMount, ...] = ()
    source_variables: tuple[SecretVariable, ...] = ()
