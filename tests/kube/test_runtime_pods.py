"""Every pod that the operator may create is let in by Pod Security ``restricted``, judged by a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from kubernetes import client
from skipstone_core.contract.requests import SPARK_KINDS, RunKind
from skipstone_operator.manifests import build_run
from skipstone_operator.resources.warehouse import ExecutorSize

from tests.unit.manifest_cases import POD_TEMPLATE, run_manifest, warehouse

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.fixture
def core(api_client: client.ApiClient) -> client.CoreV1Api:
    return client.CoreV1Api(api_client)


@pytest.fixture
def restricted(api_client: client.ApiClient, core: client.CoreV1Api, namespace: str) -> Iterator[str]:
    """A namespace that enforces ``restricted``, with the accounts and the priority class that the pods name."""
    core.patch_namespace(namespace, {"metadata": {"labels": RESTRICTED}})
    for name in ("skipstone-spark", "skipstone-spark-local", "skipstone-spark-kept"):
        core.create_namespaced_service_account(namespace, {"metadata": {"name": name}})
    scheduling = client.SchedulingV1Api(api_client)
    scheduling.create_priority_class({"metadata": {"name": "low"}, "value": 1})
    yield namespace
    scheduling.delete_priority_class("low")


def pods_of(kind: RunKind, namespace: str, template: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Driver and, for Spark kinds, executor of a run with executors."""
    spec = warehouse(executor=ExecutorSize(instances=2), pod_template=template)
    conf, driver = build_run(run_manifest(kind, spec=spec, instances=2, namespace=namespace, one_node=True))
    found = {"driver": driver}
    if "executor-pod-template.yaml" in conf["data"]:
        executor = yaml.safe_load(conf["data"]["executor-pod-template.yaml"])
        executor["metadata"] |= {"name": "exec-1", "namespace": namespace}
        found["executor"] = executor
    return found


def admit(core: client.CoreV1Api, pod: dict[str, Any]) -> None:
    core.create_namespaced_pod(pod["metadata"]["namespace"], pod, dry_run="All", field_validation="Strict")


@pytest.mark.parametrize("template", [{}, POD_TEMPLATE], ids=["plain", "with podTemplate"])
def test_pods_of_every_kind_of_run_are_let_in(
    core: client.CoreV1Api, restricted: str, template: dict[str, Any]
) -> None:
    admitted = 0
    for kind in RunKind:
        for pod in pods_of(kind, restricted, template).values():
            admit(core, pod)
            admitted += 1
    assert admitted == len(RunKind) + len(SPARK_KINDS)


@pytest.mark.parametrize("role", ["driver", "executor"])
@pytest.mark.parametrize("dropped", ["allowPrivilegeEscalation", "capabilities"])
@pytest.mark.cluster("it judges no pods: they are processes of whoever started them")
def test_a_pod_without_one_of_the_restrictions_is_kept_out(
    core: client.CoreV1Api, restricted: str, role: str, dropped: str
) -> None:
    pod = yaml.safe_load(yaml.safe_dump(pods_of(RunKind.LOAD, restricted, {})[role]))
    del pod["spec"]["containers"][0]["securityContext"][dropped]
    with pytest.raises(client.ApiException, match="violates PodSecurity"):
        admit(core, pod)


def test_config_maps_of_every_kind_of_run_are_valid(core: client.CoreV1Api, namespace: str) -> None:
    for kind in RunKind:
        conf, _ = build_run(run_manifest(kind, namespace=namespace))
        core.create_namespaced_config_map(namespace, conf, dry_run="All", field_validation="Strict")
