"""The chart: lint, rendered manifests against golden files, refused values, and what each Role may do.

Golden files are written again with ``SKIPSTONE_WRITE_GOLDEN=1 pytest tests/unit/test_chart_rendered.py``.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from skipstone_operator.manifests.shape import BLOCK_MANAGER_PORT, DRIVER_PORT
from skipstone_operator.resources.kinds import GROUP, KINDS
from skipstone_operator.settings import load_settings

from tests.cluster.toolchain import build_tools

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "charts" / "skipstone"
GOLDEN = Path(__file__).resolve().parent / "golden"
NAMESPACED = ("--set", "crds.enabled=false")
EVERYTHING = (
    *NAMESPACED,
    *("--set", "watchNamespaces={lake,ponds}"),
    *("--set", "serviceMonitor.enabled=true"),
    *("--set", "metrics.prometheusRule.enabled=true"),
    *("--set", "networkPolicy.restrictEgress=true"),
    *("--set", "image.pullSecrets={registry}"),
    *("--set", "operator.priorityClassName=high"),
    *("--set", "dashboard.enabled=true"),
    *("--set", "dashboard.allowFrom[0].namespaceSelector.matchLabels.team=ingress"),
)
#: What planning servers consist of.
SERVER = ("serviceaccounts", "services", "deployments", "networkpolicies", "poddisruptionbudgets")
PLURALS = {kind.plural for kind in KINDS.values()}


@pytest.fixture(scope="session")
def helm() -> Path:
    """The helm that the test cluster uses."""
    return build_tools(["helm"])["helm"]


def run_helm(helm: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([helm, *arguments], capture_output=True, text=True, check=False, timeout=300)


def render(helm: Path, *values: str, release: str = "skipstone") -> str:
    """The text of the chart's manifests in namespace skipstone-system."""
    done = run_helm(helm, "template", release, str(CHART), "--namespace", "skipstone-system", *values)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(text: str, kind: str = "") -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all(text) if found and kind in ("", found["kind"])]


def granted(role: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Group, resource and verb of everything that ``role`` allows."""
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield from ((group, resource, verb) for verb in rule["verbs"])


def verbs(roles: list[dict[str, Any]], name: str, namespace: str) -> dict[str, set[str]]:
    """Verbs by resource of one Role."""
    (role,) = [r for r in roles if r["metadata"]["name"] == name and r["metadata"]["namespace"] == namespace]
    found: dict[str, set[str]] = {}
    for _, resource, verb in granted(role):
        found.setdefault(resource, set()).add(verb)
    return found


def test_chart_passes_strict_lint(helm: Path) -> None:
    done = run_helm(helm, "lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("name", "values"), [("chart-namespaced", NAMESPACED), ("chart-everything", EVERYTHING)])
def test_rendered_manifests_are_those_of_the_golden_file(helm: Path, name: str, values: tuple[str, ...]) -> None:
    text = render(helm, *values)
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("SKIPSTONE_WRITE_GOLDEN"):
        path.write_text(text)
    assert objects(text) == objects(path.read_text())


def test_crds_are_templates_that_outlive_the_release(helm: Path) -> None:
    crds = objects(render(helm), "CustomResourceDefinition")
    assert {crd["metadata"]["name"] for crd in crds} == {f"{plural}.{GROUP}" for plural in PLURALS}
    assert {crd["metadata"]["annotations"]["helm.sh/resource-policy"] for crd in crds} == {"keep"}


def test_namespaced_install_makes_no_cluster_wide_object(helm: Path) -> None:
    found = objects(render(helm, *EVERYTHING))
    assert all(obj["metadata"].get("namespace") for obj in found), [obj["kind"] for obj in found]
    assert not {obj["kind"] for obj in found} & {"CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding"}


def test_default_install_is_cluster_wide_in_crds_in_lifting_finalizers_and_in_admission_only(helm: Path) -> None:
    unbound = [obj for obj in objects(render(helm)) if "namespace" not in obj["metadata"]]
    policies = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    own = {"CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding"}
    assert {obj["kind"] for obj in unbound} == own | policies
    assert not policies & {obj["kind"] for obj in objects(render(helm, "--set", "admissionPolicy.install=Never"))}
    (role,) = (obj for obj in unbound if obj["kind"] == "ClusterRole")
    assert [(rule["resources"], rule["verbs"]) for rule in role["rules"]] == [
        (["warehouses", "tables", "secondaryindexes"], ["get", "update"]),
        (["namespaces"], ["get"]),
    ]


def test_a_second_release_may_ask_for_lifting_finalizers(helm: Path) -> None:
    made = objects(render(helm, "--set", "crds.enabled=false,finishDeletions=true"))
    assert {obj["kind"] for obj in made if "namespace" not in obj["metadata"]} == {"ClusterRole", "ClusterRoleBinding"}


def test_chart_makes_no_resource_of_ours(helm: Path) -> None:
    assert not {obj["kind"] for obj in objects(render(helm))} & set(KINDS)


def test_no_role_has_a_wildcard_or_reads_a_secret(helm: Path) -> None:
    roles = objects(render(helm, *EVERYTHING), "Role")
    assert len(roles) >= 8
    for role in roles:
        for permission in granted(role):
            assert "*" not in permission
            assert permission[2] not in ("escalate", "bind", "impersonate")
        secrets = {permission[2] for permission in granted(role) if permission[1].startswith("secrets")}
        assert secrets == ({"create"} if role["metadata"]["name"] == "skipstone-operator" else set())


def test_operator_may_do_exactly_what_it_needs(helm: Path) -> None:
    roles = objects(render(helm, *EVERYTHING), "Role")
    for namespace in ("lake", "ponds"):
        read = {plural: {"get", "list", "watch", "update"} for plural in PLURALS}
        assert verbs(roles, "skipstone-operator", namespace) == {
            **read,
            "loadjobs": read["loadjobs"] | {"delete"},
            "mergejobs": read["mergejobs"] | {"create", "delete"},
            **{f"{plural}/status": {"update"} for plural in PLURALS},
            **{f"{plural}/finalizers": {"update"} for plural in PLURALS},
            "pods": {"get", "list", "watch", "create", "delete"},
            "pods/status": {"update"},
            "configmaps": {"get", "list", "watch", "create", "update", "delete"},
            **{resource: {"get", "list", "watch", "create", "update", "delete"} for resource in SERVER},
            "secrets": {"create"},
            "persistentvolumeclaims": {"get", "list", "watch"},
            "events": {"create", "patch"},
        }
    assert verbs(roles, "skipstone-lease", "skipstone-system") == {"leases": {"get", "create", "update"}}


def test_drivers_may_touch_pods_only(helm: Path) -> None:
    roles = objects(render(helm, *EVERYTHING), "Role")
    executors = {"get", "list", "watch", "create", "patch", "delete", "deletecollection"}
    for namespace in ("lake", "ponds"):
        assert verbs(roles, "skipstone-spark", namespace) == {"pods": executors}
        assert verbs(roles, "skipstone-spark-local", namespace) == {"pods": {"get", "patch"}}
        kept = {"pods": {"get", "list", "watch", "patch"}, "pods/status": {"patch"}}
        assert verbs(roles, "skipstone-spark-kept", namespace) == kept


def test_runs_are_reached_from_each_other_only_and_on_two_ports(helm: Path) -> None:
    policies = {p["metadata"]["name"]: p["spec"] for p in objects(render(helm), "NetworkPolicy")}
    (rule,) = policies["skipstone-runs"]["ingress"]
    own = {"matchLabels": {"app.kubernetes.io/managed-by": "skipstone-operator"}}
    assert rule == {"from": [{"podSelector": own}], "ports": [{"port": DRIVER_PORT}, {"port": BLOCK_MANAGER_PORT}]}
    assert policies["skipstone-operator"]["policyTypes"] == ["Ingress"]
    assert not objects(render(helm, "--set", "networkPolicy.enabled=false"), "NetworkPolicy")


def test_the_dashboard_is_off_and_reached_by_those_who_are_named(helm: Path) -> None:
    assert "dashboard" not in render(helm) and "DASHBOARD" not in render(helm)
    silent = objects(render(helm, "--set", "dashboard.enabled=true"))
    (service,) = (one for one in silent if one["metadata"]["name"] == "skipstone-dashboard")
    assert service["spec"]["ports"] == [{"name": "http", "port": 80, "targetPort": "dashboard"}]
    for found, peers in ((silent, []), (objects(render(helm, *EVERYTHING)), [{"matchLabels": {"team": "ingress"}}])):
        policies = {one["metadata"]["name"]: one["spec"] for one in found if one["kind"] == "NetworkPolicy"}
        rules = policies["skipstone-operator"]["ingress"]
        assert rules[0] == {"ports": [{"port": "probes"}, {"port": "metrics"}]}
        assert [peer["namespaceSelector"] for rule in rules[1:] for peer in rule["from"]] == peers
        assert all(rule["ports"] == [{"port": "dashboard"}] for rule in rules[1:])


def test_admission_policies_come_with_the_crds_or_when_asked_for(helm: Path) -> None:
    kind = "ValidatingAdmissionPolicy"
    assert len(objects(render(helm), kind)) == 2
    assert not objects(render(helm, *NAMESPACED), kind)
    assert len(objects(render(helm, *NAMESPACED, "--set", "admissionPolicy.install=Always"), kind)) == 2


def test_users_may_not_change_warehouses_and_admins_may(helm: Path) -> None:
    roles = objects(render(helm, *EVERYTHING), "Role")
    assert verbs(roles, "skipstone-user", "lake")["warehouses"] == {"get", "list", "watch"}
    assert verbs(roles, "skipstone-user", "lake")["tables"] > {"create", "update", "patch", "delete"}
    assert verbs(roles, "skipstone-admin", "lake")["warehouses"] > {"create", "update", "patch", "delete"}
    assert not any(resource.endswith("/status") for resource in verbs(roles, "skipstone-admin", "lake"))


def test_people_read_events_and_logs_and_only_admins_read_pods(helm: Path) -> None:
    roles = objects(render(helm, *EVERYTHING), "Role")
    for role, pods in (("skipstone-user", None), ("skipstone-admin", {"get", "list", "watch"})):
        allowed = verbs(roles, role, "lake")
        assert allowed["events"] == {"get", "list", "watch"}
        assert allowed["pods/log"] == {"get"}
        assert allowed.get("pods") == pods


def test_roles_are_bound_to_the_accounts_of_the_release(helm: Path) -> None:
    bindings = objects(render(helm, *EVERYTHING), "RoleBinding")
    found = {
        (b["metadata"]["namespace"], b["roleRef"]["name"], s["namespace"], s["name"])
        for b in bindings
        for s in b["subjects"]
    }
    operator = ("skipstone-system", "skipstone")
    expected = {("skipstone-system", "skipstone-lease", *operator)}
    for namespace in ("lake", "ponds"):
        expected |= {(namespace, "skipstone-operator", *operator)}
        expected |= {
            (namespace, name, namespace, name)
            for name in ("skipstone-spark", "skipstone-spark-local", "skipstone-spark-kept")
        }
    assert found == expected


def test_operator_runs_alone_and_restricted(helm: Path) -> None:
    (deployment,) = objects(render(helm), "Deployment")
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "probes"}
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {"probes": 8080, "metrics": 8081}


@pytest.mark.parametrize("values", [(), EVERYTHING], ids=["default", "everything"])
def test_environment_of_the_operator_is_what_its_settings_read(helm: Path, values: tuple[str, ...]) -> None:
    (deployment,) = objects(render(helm, *values), "Deployment")
    entries = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    environment = {entry["name"]: entry.get("value", "skipstone-system") for entry in entries}
    settings = load_settings(environment)
    assert settings.namespaces == (("lake", "ponds") if values else ("skipstone-system",))
    assert settings.spark_image == "skipstone-spark:0.1.0"
    assert settings.image_pull_secrets == (("registry",) if values else ())
    assert settings.service_account == "skipstone-spark"
    assert settings.lease_name == "skipstone-operator"
    assert settings.dashboard_port == (8082 if values else 0)


def test_names_follow_the_release(helm: Path) -> None:
    (deployment,) = objects(render(helm, *NAMESPACED, release="second"), "Deployment")
    assert deployment["metadata"]["name"] == "second-skipstone"


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("watchNamespace=lake", "watchNamespace"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("image.spark=", "spark"),
        ("operator.workers=0", "workers"),
        ("operator.logLevel=loud", "logLevel"),
        ("watchNamespaces={Not_A_Name}", "watchNamespaces"),
        ("spark.serviceAccount.name=Not_A_Name", "name"),
        ("networkPolicy.apiServerPorts={0}", "apiServerPorts"),
        ("admissionPolicy.install=Maybe", "install"),
        ("dashboard.allowFrom={everybody}", "allowFrom"),
    ],
)
def test_wrong_value_is_refused_by_name(helm: Path, setting: str, named: str) -> None:
    done = run_helm(helm, "template", "skipstone", str(CHART), "--set", setting)
    assert done.returncode != 0
    assert named in done.stderr


def test_every_value_is_described_by_the_schema() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    undescribed = [path for path, inner in leaves(values, schema, "") if not inner.get("description")]
    assert undescribed == []


def leaves(values: dict[str, Any], schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every value that is no group, with its schema (empty when it has none)."""
    for name, value in values.items():
        inner = schema.get("properties", {}).get(name, {})
        if isinstance(value, dict) and "properties" in inner:
            yield from leaves(value, inner, f"{path}.{name}")
        else:
            yield f"{path}.{name}", inner
