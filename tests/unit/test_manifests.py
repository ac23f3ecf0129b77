"""Manifests of runs: golden files, and what must hold for every run. SKIPSTONE_UPDATE_GOLDEN=1 rewrites the files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from skipstone_core.contract.requests import SPARK_KINDS, JobRequest, RunKind
from skipstone_core.errors import BadSpec
from skipstone_operator.manifests import build_run
from skipstone_operator.manifests.planning import build_seal, build_server
from skipstone_operator.manifests.spark import render_properties
from skipstone_operator.resources.warehouse import DriverSize, ExecutorSize

from tests.unit.manifest_cases import POD_TEMPLATE, golden_runs, golden_servers, run_manifest, warehouse

GOLDEN = Path(__file__).parent / "golden"
LIGHT_KINDS = sorted(set(RunKind) - SPARK_KINDS)


def built(kind: RunKind, **fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return build_run(run_manifest(kind, **fields))


def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["spec"]["containers"]
    return only


def environment(pod: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container(pod)["env"]}


def properties(conf: dict[str, Any]) -> dict[str, str]:
    return dict(line.split("=", 1) for line in conf["data"]["spark.properties"].splitlines())


def executor(conf: dict[str, Any]) -> dict[str, Any]:
    return yaml.safe_load(conf["data"]["executor-pod-template.yaml"])


def on_executors(kind: RunKind = RunKind.LOAD, cores: int = 2, **fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    spec = warehouse(executor=ExecutorSize(instances=2), **fields)
    return built(kind, spec=spec, instances=2, cores=cores)


class Readable(yaml.SafeDumper):
    """Multi-line texts as blocks, so that golden files can be read."""


def block_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


Readable.add_representer(str, block_text)
Readable.ignore_aliases = lambda self, data: True  # type: ignore[method-assign]


def golden_manifests() -> dict[str, tuple[dict[str, Any], ...]]:
    """All manifests that are kept in golden files, by file name."""
    servers = golden_servers().items()
    return {
        **{name: build_run(run) for name, run in golden_runs().items()},
        **{name: (*build_server(server), build_seal(server, "random text")) for name, server in servers},
    }


@pytest.mark.parametrize("name", golden_manifests())
def test_manifests_are_as_the_golden_file_says(name: str) -> None:
    text = yaml.dump_all(golden_manifests()[name], Dumper=Readable, width=120, sort_keys=False)
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("SKIPSTONE_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("kind", RunKind)
def test_a_pod_runs_the_app_of_its_kind_with_the_request_it_was_given(kind: RunKind) -> None:
    conf, pod = built(kind)
    assert container(pod)["args"] == ["app", kind.value.lower()]
    assert JobRequest.from_json(conf["data"]["request.json"]) == run_manifest(kind).request
    mounts = {mount["mountPath"]: mount["name"] for mount in container(pod)["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes[mounts["/etc/skipstone"]]["configMap"]["name"] == conf["metadata"]["name"]
    assert environment(pod)["SKIPSTONE_REQUEST"] == "/etc/skipstone/request.json"


@pytest.mark.parametrize("kind", RunKind)
def test_children_belong_to_their_resource_and_are_found_by_label(kind: RunKind) -> None:
    for child in built(kind):
        (owner,) = child["metadata"]["ownerReferences"]
        labels = child["metadata"]["labels"]
        assert (owner["uid"], owner["controller"]) == (labels["skipstone.dev/owner-uid"], True)
        assert labels["skipstone.dev/operation"] == kind.value
        assert labels["skipstone.dev/run-id"] == labels["spark-app-selector"]
        assert labels["app.kubernetes.io/managed-by"] == "skipstone-operator"


@pytest.mark.parametrize("kind", RunKind)
def test_names_and_label_values_fit_kubernetes(kind: RunKind) -> None:
    for child in built(kind):
        for text in (child["metadata"]["name"], *child["metadata"]["labels"].values()):
            assert 0 < len(text) <= 63


def test_an_observe_run_is_not_taken_for_a_writer_of_a_table() -> None:
    _, pod = built(RunKind.OBSERVE)
    assert "skipstone.dev/table-uid" not in pod["metadata"]["labels"]


@pytest.mark.parametrize("kind", LIGHT_KINDS)
def test_a_run_without_spark_gets_no_spark_settings_and_a_small_request(kind: RunKind) -> None:
    conf, pod = built(kind)
    assert set(conf["data"]) == {"request.json"}
    assert "PYSPARK_SUBMIT_ARGS" not in environment(pod)
    assert container(pod)["resources"]["requests"] == {"cpu": "100m", "memory": "256Mi"}


@pytest.mark.parametrize("kind", sorted(SPARK_KINDS))
def test_without_executors_everything_runs_in_the_driver_pod(kind: RunKind) -> None:
    conf, pod = built(kind)
    assert properties(conf)["spark.master"] == "local[2]"
    assert "executor-pod-template.yaml" not in conf["data"]
    assert "k8s://" not in environment(pod)["PYSPARK_SUBMIT_ARGS"]


def test_with_executors_the_driver_asks_the_api_server_for_them() -> None:
    conf, pod = on_executors()
    found = properties(conf)
    assert found["spark.executor.instances"] == "2"
    assert found["spark.kubernetes.namespace"] == "data"
    assert found["spark.kubernetes.executor.disableConfigMap"] == "true"
    assert found["spark.kubernetes.authenticate.executor.serviceAccountName"] == "skipstone-spark"
    arguments = environment(pod)["PYSPARK_SUBMIT_ARGS"]
    assert "--master k8s\\://" not in arguments
    assert "--master k8s://https://$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)" in arguments
    assert "spark.kubernetes.driver.pod.name=$(POD_NAME)" in arguments


@pytest.mark.parametrize("kind", RunKind)
def test_only_a_run_that_makes_executors_gets_the_account_that_may(kind: RunKind) -> None:
    local = built(kind)[1]["spec"]["serviceAccountName"]
    wide = built(kind, instances=2)[1]["spec"]["serviceAccountName"]
    assert local == "skipstone-spark-local"
    assert wide == ("skipstone-spark" if kind in SPARK_KINDS else "skipstone-spark-local")


def test_a_warehouse_that_names_an_account_gets_it() -> None:
    assert built(RunKind.CHECK, spec=warehouse(service_account_name="own"))[1]["spec"]["serviceAccountName"] == "own"


def test_variables_are_defined_before_the_ones_that_refer_to_them() -> None:
    names = [entry["name"] for entry in container(on_executors()[1])["env"]]
    assert names.index("POD_NAME") < names.index("PYSPARK_SUBMIT_ARGS")
    assert names.index("POD_IP") < names.index("PYSPARK_SUBMIT_ARGS")


def test_executors_share_image_claim_credentials_and_node_but_have_no_token() -> None:
    spec = warehouse(executor=ExecutorSize(instances=2))
    conf, pod = built(RunKind.LOAD, spec=spec, instances=2, one_node=True)
    template = executor(conf)
    assert container(template)["image"] == container(pod)["image"] == "skipstone/spark:1"
    assert environment(template)["AWS_REGION"] == {"secretKeyRef": {"name": "lake-login", "key": "AWS_REGION"}}
    assert not [name for name in environment(template) if name.startswith("SKIPSTONE_CATALOG_")]
    assert template["spec"]["affinity"] == pod["spec"]["affinity"]
    assert template["spec"]["volumes"] == pod["spec"]["volumes"][:3]
    assert (template["spec"]["automountServiceAccountToken"], pod["spec"]["automountServiceAccountToken"]) == (
        False,
        True,
    )
    assert "name" not in template["metadata"]


@pytest.mark.parametrize(
    ("heap", "conf", "request_mib"),
    [
        ("512m", {}, 512 + 384),
        ("960m", {}, 960 + 384),
        ("1g", {}, 1024 + 410),
        ("8g", {}, 8192 + 3277),
        ("8Gi", {}, 8192 + 3277),
        ("471859k", {}, 461 + 384),
        ("1g", {"spark.driver.memoryOverhead": "700m"}, 1724),
        ("1g", {"spark.driver.memoryOverhead": "700"}, 1724),
        ("4g", {"spark.driver.memoryOverheadFactor": "0.5"}, 6144),
        ("4Gi", {"spark.driver.memoryOverheadFactor": "0.5"}, 6144),
    ],
)
def test_a_driver_asks_for_heap_and_overhead(heap: str, conf: dict[str, str], request_mib: int) -> None:
    spec = warehouse(driver=DriverSize(memory=heap), executor=ExecutorSize(instances=1), conf=conf)
    _, pod = built(RunKind.LOAD, spec=spec, instances=1)
    resources = container(pod)["resources"]
    assert resources["requests"]["memory"] == resources["limits"]["memory"] == f"{request_mib}Mi"


def test_local_mode_leaves_room_for_each_python_worker() -> None:
    _, pod = built(RunKind.LOAD, spec=warehouse(driver=DriverSize(cores=2, memory="1g")))
    resources = container(pod)["resources"]
    assert (resources["requests"]["memory"], resources["limits"]["memory"]) == ("1434Mi", "2254Mi")


def test_only_a_driver_with_one_core_that_does_all_gets_the_collector_for_one_core() -> None:
    assert environment(built(RunKind.MERGE, cores=1)[1])["SPARK_SUBMIT_OPTS"] == "-XX:+UseSerialGC"
    for other in (built(RunKind.MERGE), built(RunKind.OBSERVE, cores=1), on_executors(cores=1)):
        assert "SPARK_SUBMIT_OPTS" not in environment(other[1])


def test_a_smaller_cpu_request_can_be_asked_for() -> None:
    _, pod = built(RunKind.LOAD, spec=warehouse(conf={"spark.kubernetes.driver.request.cores": "300m"}))
    assert container(pod)["resources"]["requests"]["cpu"] == "300m"


def test_settings_that_answers_depend_on_are_fixed() -> None:
    conf, _ = on_executors()
    found = properties(conf)
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert found["spark.sql.files.ignoreCorruptFiles"] == "false"
    assert found["spark.sql.files.ignoreMissingFiles"] == "false"
    assert found["spark.speculation"] == "false"


def test_an_allowed_setting_reaches_spark() -> None:
    conf, _ = on_executors(conf={"spark.speculation": "true", "spark.sql.shuffle.partitions": "8"})
    found = properties(conf)
    assert (found["spark.speculation"], found["spark.sql.shuffle.partitions"]) == ("true", "8")


@pytest.mark.parametrize(
    "key",
    [
        "spark.driver.extraJavaOptions",
        "spark.sql.session.timeZone",
        "spark.kubernetes.authenticate.executor.serviceAccountName",
        "spark.jars.packages",
        "SPARK.UI.ENABLED",
    ],
)
def test_any_other_setting_is_refused_by_name(key: str) -> None:
    with pytest.raises(BadSpec, match=r"^spec\.spark\.conf.*may not be set; remove it") as caught:
        built(RunKind.LOAD, spec=warehouse(conf={key: "x"}))
    assert key in str(caught.value)


@pytest.mark.parametrize("memory", ["", "2", "2Gib", "-1g", "1.5g", "lots"])
def test_an_unreadable_amount_of_memory_is_refused(memory: str) -> None:
    with pytest.raises(BadSpec, match=r"^spec\.spark\.driver\.memory: .*write for example 2Gi"):
        built(RunKind.LOAD, spec=warehouse(driver=DriverSize(memory=memory)))


@pytest.mark.parametrize("memory", ["1k", "449m", "999999999t", "17t"])
def test_memory_that_no_run_starts_with_is_refused(memory: str) -> None:
    with pytest.raises(BadSpec, match=r"^spec\.spark\.driver\.memory: .*450m or more, and 16t are the limit"):
        built(RunKind.LOAD, spec=warehouse(driver=DriverSize(memory=memory)))


@pytest.mark.parametrize("name", ["system-node-critical", "system-cluster-critical", 7])
def test_priority_classes_of_the_cluster_are_refused(name: Any) -> None:
    with pytest.raises(BadSpec, match=r"^spec\.spark\.podTemplate\.spec\.priorityClassName: "):
        built(RunKind.LOAD, spec=warehouse(pod_template={"spec": {"priorityClassName": name}}))


@pytest.mark.parametrize("text", ["a=b", "c:\\d", "# no comment", "two\nlines", " leading", "käse"])
def test_values_survive_the_properties_file(text: str) -> None:
    written = render_properties({"spark.app.name": text})
    assert unescaped(written.removesuffix("\n").split("=", 1)[1]) == text


def unescaped(value: str) -> str:
    """As java.util.Properties reads a value."""
    plain, characters = "", iter(value)
    for character in characters:
        if character == "\\":
            following = next(characters)
            character = {"n": "\n", "t": "\t", "r": "\r"}.get(following, following)
        plain += character
    return plain


@pytest.mark.parametrize("kind", RunKind)
def test_a_deadline_is_kept_by_the_kubelet(kind: RunKind) -> None:
    assert built(kind, deadline_seconds=90)[1]["spec"]["activeDeadlineSeconds"] == 90
    assert "activeDeadlineSeconds" not in built(kind)[1]["spec"]


def test_pods_of_a_claim_for_one_node_seek_each_other() -> None:
    _, pod = built(RunKind.LOAD, one_node=True)
    (term,) = pod["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (label,) = term["labelSelector"]["matchLabels"].items()
    assert label in pod["metadata"]["labels"].items()
    assert "affinity" not in built(RunKind.LOAD)[1]["spec"]


def test_our_variables_win_over_credentials_of_the_same_name() -> None:
    names = [entry["name"] for entry in container(built(RunKind.LOAD)[1])["env"]]
    assert names.index("SKIPSTONE_CATALOG_USER") < names.index("POD_NAME")


def test_a_pod_template_is_laid_over_driver_and_executors() -> None:
    conf, pod = on_executors(pod_template=POD_TEMPLATE)
    for made in (pod, executor(conf)):
        spec = made["spec"]
        assert made["metadata"]["labels"]["team"] == "air"
        assert made["metadata"]["annotations"] == {"example.org/cost": "42"}
        assert (spec["nodeSelector"], spec["priorityClassName"]) == ({"disk": "ssd"}, "low")
        assert spec["imagePullSecrets"] == [{"name": "registry"}]
        assert environment(made)["TZ"] == "UTC"
        assert {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}} in spec["volumes"]
        assert container(made)["resources"]["requests"]["cpu"] == "250m"


def test_a_pod_template_keeps_what_it_does_not_name() -> None:
    _, plain = on_executors()
    _, pod = on_executors(pod_template=POD_TEMPLATE)
    assert container(pod)["resources"]["requests"]["memory"] == container(plain)["resources"]["requests"]["memory"]
    assert pod["spec"]["securityContext"] == plain["spec"]["securityContext"]
    assert container(pod)["securityContext"] == container(plain)["securityContext"]


def test_affinity_of_template_and_claim_are_joined() -> None:
    _, pod = built(RunKind.LOAD, spec=warehouse(pod_template=POD_TEMPLATE), one_node=True)
    terms = pod["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [term["topologyKey"] for term in terms] == ["kubernetes.io/hostname", "zone"]


REFUSED_TEMPLATES: dict[str, tuple[dict[str, Any], str]] = {
    "service account": ({"spec": {"serviceAccountName": "root"}}, "spec.serviceAccountName"),
    "host network": ({"spec": {"hostNetwork": True}}, "spec.hostNetwork"),
    "host pid": ({"spec": {"hostPID": True}}, "spec.hostPID"),
    "host ipc": ({"spec": {"hostIPC": True}}, "spec.hostIPC"),
    "host path": ({"spec": {"volumes": [{"name": "tmp", "hostPath": {"path": "/"}}]}}, "spec.volumes[tmp].hostPath"),
    "secret volume": ({"spec": {"volumes": [{"name": "tmp", "secret": {}}]}}, "spec.volumes[tmp].secret"),
    "other volume": ({"spec": {"volumes": [{"name": "warehouse", "emptyDir": {}}]}}, "spec.volumes[warehouse]"),
    "security context": ({"spec": {"securityContext": {}}}, "spec.securityContext"),
    "init container": ({"spec": {"initContainers": []}}, "spec.initContainers"),
    "node name": ({"spec": {"nodeName": "n1"}}, "spec.nodeName"),
    "second container": ({"spec": {"containers": [{}, {}]}}, "spec.containers[1]"),
    "privileged": (
        {"spec": {"containers": [{"securityContext": {"privileged": True}}]}},
        "spec.containers[0].securityContext",
    ),
    "another image": ({"spec": {"containers": [{"image": "x"}]}}, "spec.containers[0].image"),
    "another command": ({"spec": {"containers": [{"command": ["sh"]}]}}, "spec.containers[0].command"),
    "env from": ({"spec": {"containers": [{"envFrom": []}]}}, "spec.containers[0].envFrom"),
    "secret variable": (
        {"spec": {"containers": [{"env": [{"name": "A", "valueFrom": {"secretKeyRef": {}}}]}]}},
        "spec.containers[0].env[A].valueFrom",
    ),
    "our variable": (
        {"spec": {"containers": [{"env": [{"name": "SKIPSTONE_REQUEST", "value": "x"}]}]}},
        "spec.containers[0].env[SKIPSTONE_REQUEST]",
    ),
    "loader variable": (
        {"spec": {"containers": [{"env": [{"name": "LD_PRELOAD", "value": "x"}]}]}},
        "spec.containers[0].env[LD_PRELOAD]",
    ),
    "unnamed variable": ({"spec": {"containers": [{"env": [{"value": "x"}]}]}}, "spec.containers[0].env[].name"),
    "number as value": (
        {"spec": {"containers": [{"env": [{"name": "A", "value": 1}]}]}},
        "spec.containers[0].env[A].value",
    ),
    "our label": (
        {"metadata": {"labels": {"skipstone.dev/owner-uid": "x"}}},
        "metadata.labels[skipstone.dev/owner-uid]",
    ),
    "a false report": (
        {"metadata": {"annotations": {"skipstone.dev/report": "{}"}}},
        "metadata.annotations[skipstone.dev/report]",
    ),
    "a label that is no text": ({"metadata": {"labels": {"a": True}}}, "metadata.labels[a]"),
    "a name": ({"metadata": {"name": "x"}}, "metadata.name"),
    "another top field": ({"status": {}}, "status"),
    "a list as spec": ({"spec": []}, "spec"),
    "an object as list": ({"spec": {"tolerations": {}}}, "spec.tolerations"),
    "a text in a list": ({"spec": {"tolerations": ["all"]}}, "spec.tolerations[0]"),
    "other resources": (
        {"spec": {"containers": [{"resources": {"claims": {}}}]}},
        "spec.containers[0].resources.claims",
    ),
}


@pytest.mark.parametrize("case", REFUSED_TEMPLATES)
@pytest.mark.parametrize("kind", [RunKind.CHECK, RunKind.LOAD])
def test_a_pod_template_that_could_lend_rights_is_refused_by_field(case: str, kind: RunKind) -> None:
    template, field = REFUSED_TEMPLATES[case]
    with pytest.raises(BadSpec) as caught:
        built(kind, spec=warehouse(pod_template=template))
    assert caught.value.field == f"spec.spark.podTemplate.{field}"
    assert str(caught.value).count(": ") >= 1


def test_host_namespaces_may_be_written_out_as_false() -> None:
    _, pod = built(RunKind.CHECK, spec=warehouse(pod_template={"spec": {"hostNetwork": False}}))
    assert "hostNetwork" not in pod["spec"]


def test_building_leaves_the_template_as_it_was() -> None:
    before = yaml.safe_dump(POD_TEMPLATE)
    on_executors(pod_template=POD_TEMPLATE)
    assert yaml.safe_dump(POD_TEMPLATE) == before
