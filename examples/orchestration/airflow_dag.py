"""An Airflow 3 DAG that merges what came into feeds/orders each hour, in two ways: choose one.

Put it beside skipstone_job.py into the folder of DAGs. Needs apache-airflow-providers-cncf-kubernetes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import dag, task
from kubernetes import client
from skipstone_job import run_job

NAMESPACE = "lake"
#: Any image with a shell and kubectl.
KUBECTL_IMAGE = "alpine/k8s:1.34.1"
SPEC = {
    "tableRef": {"name": "orders"},
    "source": {
        "format": "Json",
        "paths": ["feeds/orders"],
        "consume": "New",
        "columns": [{"name": "op", "type": "string"}, {"name": "seq", "type": "long"}],
    },
    "keys": [{"target": "order_id", "source": "order_id"}],
    "sequenceBy": "seq",
    "whenMatched": [{"when": "source.op = 'D'", "action": "Delete"}, {"action": "Update"}],
    "whenNotMatched": [{"when": "source.op != 'D'", "action": "Insert"}],
}
#: The pod's program: create the job unless it is there, wait until it has ended, and fail if it did not complete.
SCRIPT = """
set -eu
kubectl get mj/$NAME --namespace $NAMESPACE >/dev/null 2>&1 || kubectl create --namespace $NAMESPACE --filename - <<EOF
{"apiVersion": "skipstone.dev/v1alpha1", "kind": "MergeJob", "metadata": {"name": "$NAME"}, "spec": $SPEC}
EOF
kubectl wait --namespace $NAMESPACE --for=jsonpath='{.status.completionTime}' mj/$NAME --timeout=1h
kubectl wait --namespace $NAMESPACE --for=condition=Complete mj/$NAME --timeout=0
"""


@dag(schedule="@hourly", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False, max_active_runs=1)
def orders_merge() -> None:
    """Both tasks do the same; the first needs no image, the second no Python package on the workers."""

    @task(retries=2, retry_delay=timedelta(minutes=5))
    def merge(name: str) -> dict[str, int]:
        api = client.CustomObjectsApi(KubernetesHook(conn_id="kubernetes_default").get_conn())
        manifest = {"kind": "MergeJob", "metadata": {"name": name}, "spec": SPEC}
        return run_job(api, NAMESPACE, manifest)["rows"]

    merge("orders-{{ ts_nodash | lower }}")

    KubernetesPodOperator(
        task_id="merge_by_kubectl",
        namespace=NAMESPACE,
        service_account_name="orchestrator",
        image=KUBECTL_IMAGE,
        cmds=["sh", "-c", SCRIPT],
        env_vars={
            "NAME": "orders-pod-{{ ts_nodash | lower }}",
            "NAMESPACE": NAMESPACE,
            "SPEC": "{{ params.spec | tojson }}",
        },
        params={"spec": SPEC},
        container_resources=client.V1ResourceRequirements(requests={"cpu": "50m", "memory": "64Mi"}),
    )


orders_merge()
