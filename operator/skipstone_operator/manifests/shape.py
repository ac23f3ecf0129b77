"""What driver and executors of one run have in common, and where things are in the data plane's image.

Filled by ``run``, read by ``pods``, ``executors`` and ``spark``. Data only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skipstone_core.contract.requests import JobRequest

PYTHON = "/opt/skipstone/bin/python"
SCRATCH = "/tmp"
SPARK_DIRECTORY = "/var/lib/skipstone"
CONF_DIRECTORY = "/etc/skipstone"
REQUEST_FILE = "request.json"
PROPERTIES_FILE = "spark.properties"
EXECUTOR_TEMPLATE_FILE = "executor-pod-template.yaml"
DRIVER_PORT = 7078
BLOCK_MANAGER_PORT = 7079


@dataclass(frozen=True, kw_only=True)
class PodShape:
    """``claim`` is mounted at the root that the request names; ``template`` is the Warehouse's podTemplate."""

    request: JobRequest
    namespace: str
    warehouse_uid: str
    claim: str
    image: str
    pull_policy: str
    pull_secrets: tuple[str, ...]
    service_account: str
    secret_name: str
    secret_keys: tuple[str, ...]
    one_node: bool
    template: Mapping[str, Any]
