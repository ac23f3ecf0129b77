"""The planning server of a Warehouse on a real API server, whose controllers make pods that the test gets ready."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from kubernetes import client
from skipstone_core.reasons import Reason
from skipstone_operator.manifests.planning import PLANNING_KINDS, build_seal, build_server

from tests.cluster.controlplane import ControlPlane
from tests.cluster.shell import wait_until
from tests.kube.planning_pods import PODS, ServerPods
from tests.kube.reconcile_lab import Obj, Scenario, Site, run_scenario
from tests.kube.test_admission import installed
from tests.unit.manifest_cases import planning_server
from tests.unit.objects import claim, warehouse

__all__ = ["installed"]

NAME = "main-planning"
REST = {"catalog": {"type": "Rest", "uri": "https://catalog.example.org"}}
POD_TEMPLATE = {
    "metadata": {"labels": {"team": "sales"}},
    "spec": {"containers": [{"env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}]}]},
}


@pytest.fixture
def play(control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[Scenario], None]:
    """Runs a scenario in a fresh namespace that takes restricted pods only."""
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig_admin))
    label = "pod-security.kubernetes.io/enforce=restricted"
    control_plane.kubectl("label", "namespace", namespace, label)
    return lambda scenario: run_scenario(control_plane, namespace, scenario)


def data_claim(mode: str = "ReadWriteOnce") -> Obj:
    found = claim(mode)
    found["spec"] |= {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "none"}
    return found


@pytest.mark.cluster("it has no controllers")
def test_replicas_get_ready_are_rolled_and_go(
    play: Callable[[Scenario], None], api_client: client.ApiClient, namespace: str
) -> None:
    pods = ServerPods(api_client, namespace)

    async def serving(site: Site, replicas: int, mode: str) -> bool:
        pods.get_ready()
        planning = (await site.status("Warehouse", "main")).get("planning") or {}
        _, reason = await site.condition("Warehouse", "main", "PlanningReady")
        settings = await site.get("ConfigMap", NAME) or {"data": {}}
        told = reason == Reason.SERVING and planning.get("readyReplicas") == replicas
        return told and f'"{mode}"' in settings["data"].get("planning.json", "")

    async def scenario(site: Site) -> None:
        shared = data_claim("ReadWriteMany")
        await site.apply(shared, warehouse(**REST, planning={}, spark={"podTemplate": POD_TEMPLATE}))
        await site.until(lambda: serving(site, 2, "OptIn"), "two replicas")
        assert (await site.status("Warehouse", "main"))["planning"]["url"] == f"http://{NAME}.{namespace}.svc:8181"
        await site.holds("Warehouse", "main", "Ready")
        assert await site.get("PodDisruptionBudget", NAME) is not None
        # What the API server fills in, and what other controllers write, is not a reason to write again.
        before = len(site.kube.writes)
        for _ in range(4):
            await site.round()
        assert site.kube.writes[before:] == []

        def change(obj: Obj) -> None:
            obj["spec"]["planning"] = {"mode": "Default", "replicas": 1, "serviceAccountName": "default"}

        await site.edit("Warehouse", "main", change)
        await site.until(lambda: serving(site, 1, "Default"), "one replica of the other mode")
        assert await site.get("PodDisruptionBudget", NAME) is None
        assert await site.get("ServiceAccount", NAME) is None
        await site.edit("Warehouse", "main", lambda obj: obj["spec"].pop("planning"))
        for kind in PLANNING_KINDS:
            await site.gone(kind, NAME)

        async def silent() -> bool:
            return (await site.condition("Warehouse", "main", "PlanningReady")) == ("", "")

        await site.until(silent, "nothing is told of a server")
        secrets = client.CoreV1Api(api_client)

        async def forgotten() -> bool:
            found = secrets.list_namespaced_secret(namespace).items
            return not [each for each in found if each.metadata.name.startswith(NAME)]

        await site.until(forgotten, "the key goes with the settings")

    play(scenario)


@pytest.mark.cluster("it has no controllers")
def test_pods_have_what_they_need_and_no_more(
    play: Callable[[Scenario], None], api_client: client.ApiClient, namespace: str
) -> None:
    pods = ServerPods(api_client, namespace)
    tokens = {"tokensSecretRef": {"name": "readers", "key": "tokens"}}

    async def scenario(site: Site) -> None:
        await site.apply(data_claim(), warehouse(planning=tokens, spark={"podTemplate": POD_TEMPLATE}))

        async def made() -> bool:
            return len(pods.get_ready()) == 1

        await site.until(made, "the pod of a server of one replica")
        (pod,) = pods.get_ready()
        assert pod.metadata.labels["team"] == "sales"
        assert pod.spec.service_account_name == NAME
        assert pod.spec.automount_service_account_token is False
        assert [volume.name for volume in pod.spec.volumes if volume.projected] == []
        (container,) = pod.spec.containers
        environment = {variable.name: variable for variable in container.env}
        assert environment["HTTPS_PROXY"].value == "http://proxy:3128"
        assert environment["SKIPSTONE_PLANNING_TOKENS"].value_from.secret_key_ref.name == "readers"
        seal = environment["SKIPSTONE_PLANNING_SEAL"].value_from.secret_key_ref
        secret = client.CoreV1Api(api_client).read_namespaced_secret(seal.name, namespace)
        assert set(secret.data) == {seal.key}
        assert secret.immutable
        mounts = {mount.name: (mount.mount_path, mount.read_only) for mount in container.volume_mounts}
        assert mounts["warehouse"] == ("/skipstone/main", True)
        assert container.security_context.read_only_root_filesystem

    play(scenario)


def test_what_the_api_server_refuses_is_quoted_and_runs_go_on(
    play: Callable[[Scenario], None], api_client: client.ApiClient, namespace: str
) -> None:
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"count/services": "0"}}}
    core = client.CoreV1Api(api_client)

    async def scenario(site: Site) -> None:
        core.create_namespaced_resource_quota(namespace, quota)

        async def enforced() -> bool:
            found = core.read_namespaced_resource_quota_status("none", namespace)
            return bool(found.status.hard)

        await site.until(enforced, "the quota is enforced")
        await site.apply(data_claim(), warehouse(**REST, planning={}))
        await site.holds("Warehouse", "main", "Ready")
        await site.shows("Warehouse", "main", "PlanningReady", Reason.WAITING_FOR_QUOTA)
        core.delete_namespaced_resource_quota("none", namespace)
        await site.edit("Warehouse", "main", lambda obj: obj["spec"]["planning"].update(replicas=1))
        await site.shows("Warehouse", "main", "PlanningReady", Reason.REPLICAS_PENDING)

    play(scenario)


@pytest.mark.cluster("it has no chart: nothing is installed")
def test_the_chart_lets_the_operator_and_the_controllers_make_a_server(
    control_plane: ControlPlane, installed: str, api_client: client.ApiClient
) -> None:
    text = json.dumps(warehouse("lake", **REST))
    owner = control_plane.kubectl(
        *("create", "--namespace", installed, "--filename", "-", "--output", "jsonpath={.metadata.uid}"),
        text_input=text.replace('"namespace": "lake"', f'"namespace": "{installed}"'),
    )
    server = planning_server(installed, owner)
    account = control_plane.service_account_kubeconfig(installed, "skipstone")

    def operate(verb: str, *arguments: str, manifest: Obj | None = None) -> None:
        given = ["--filename", "-"] if manifest else []
        control_plane.kubectl(
            *(verb, "--namespace", installed, *arguments, *given),
            text_input=json.dumps(manifest) if manifest else None,
            kubeconfig=account,
        )

    made = build_server(server)
    for manifest in (*made, build_seal(server, "key")):
        operate("create", manifest=manifest)
    for manifest in made:
        operate("replace", manifest=manifest)
    core = client.CoreV1Api(api_client)
    wait_until(
        lambda: len(core.list_namespaced_pod(installed, label_selector=PODS).items) == 2,
        seconds=300,
        failure="the controllers make no pods",
    )
    for manifest in reversed(made):
        operate("delete", str(manifest["kind"]), "lake-planning")
