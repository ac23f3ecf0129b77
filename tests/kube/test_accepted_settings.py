"""What the operator accepts as CPU and memory of a Warehouse, the API server takes as those of a pod."""

from __future__ import annotations

import pytest
from kubernetes import client
from skipstone_core.contract.requests import RunKind
from skipstone_operator.manifests import build_run
from skipstone_operator.resources.warehouse import DriverSize

from tests.unit.manifest_cases import run_manifest, warehouse


@pytest.mark.parametrize(
    ("conf", "memory"),
    [
        ({"spark.kubernetes.driver.request.cores": "1m"}, "450m"),
        ({"spark.kubernetes.driver.request.cores": "0.001", "spark.driver.memoryOverhead": "1"}, "16t"),
        ({"spark.kubernetes.driver.request.cores": "256", "spark.driver.memoryOverhead": "16t"}, "2Gi"),
        ({"spark.kubernetes.driver.request.cores": "99999m", "spark.driver.memoryOverheadFactor": "100"}, "1GI"),
    ],
)
def test_a_pod_of_accepted_values_is_valid(
    api_client: client.ApiClient, namespace: str, conf: dict[str, str], memory: str
) -> None:
    spec = warehouse(driver=DriverSize(cores=1, memory=memory), conf=conf)
    _, pod = build_run(run_manifest(RunKind.LOAD, spec=spec, namespace=namespace))
    account = {"metadata": {"name": pod["spec"]["serviceAccountName"]}}
    core = client.CoreV1Api(api_client)
    core.create_namespaced_service_account(namespace, account)
    made = core.create_namespaced_pod(namespace, pod, dry_run="All")
    assert made.spec.containers[0].resources.requests["cpu"]
