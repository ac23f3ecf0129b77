"""Runs in Airflow's environment: `DAGS NAME`. Parses the DAG, runs its Python task, prints the other one's pod."""

from __future__ import annotations

import json
import sys
from unittest.mock import patch

from airflow.dag_processing.dagbag import DagBag
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from kubernetes import client, config

dags, name = sys.argv[1:]
bag = DagBag(dags)
assert not bag.import_errors, bag.import_errors
dag = bag.dags["orders_merge"]
assert dag.max_active_runs == 1
config.load_kube_config()
with patch("airflow.providers.cncf.kubernetes.hooks.kubernetes.KubernetesHook.get_conn", client.ApiClient):
    rows = dag.get_task("merge").python_callable(name)
operator = dag.get_task("merge_by_kubectl")
assert isinstance(operator, KubernetesPodOperator)
pod = client.ApiClient().sanitize_for_serialization(operator.build_pod_request_obj())
print("ANSWER " + json.dumps({"rows": rows, "pod": pod, "script": operator.cmds[2]}))
