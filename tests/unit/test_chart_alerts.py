"""Alerts and dashboards of the chart: they ask for what is told, and each alert has its runbook."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Metric
from skipstone.caches import ByteCache
from skipstone.serving.measures import PlanningMeasures
from skipstone_core.contract.planning import METRICS_PATH
from skipstone_core.contract.requests import RunKind
from skipstone_operator.__main__ import MAX_RESYNC_AGE
from skipstone_operator.labels import WAREHOUSE_LABEL
from skipstone_operator.manifests.planning import build_server
from skipstone_operator.measuring.families import FAMILIES, WORK
from skipstone_operator.metrics import Metrics
from skipstone_operator.routing import KEY_KINDS
from skipstone_operator.runtime.resync import ResyncTiming

from tests.cluster.toolchain import build_tools
from tests.unit.manifest_cases import planning_server
from tests.unit.test_chart_rendered import CHART, NAMESPACED, REPOSITORY, objects, render, run_helm

RULES = (*NAMESPACED, "--set", "metrics.prometheusRule.enabled=true")
BOARDS = (*NAMESPACED, "--set", "metrics.dashboards.enabled=true")
RUNBOOKS = (REPOSITORY / "docs" / "runbooks.md").read_text()
#: Labels that Prometheus gives to whatever it scrapes, and those of buckets.
GIVEN = {"instance", "pod", "job", "namespace", "le"}
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}
Rule = dict[str, Any]


def exposed() -> Mapping[str, set[str]]:
    """The series that the operator and planning servers serve by name, with the labels of each."""
    found: dict[str, set[str]] = {}
    metrics = Metrics(KEY_KINDS)
    metrics.run_stages(RunKind.MERGE, {"prune": 1.0})
    for family in metrics.registry.collect():
        found |= {f"{family.name}{suffix}": labels_of(family) for suffix in SUFFIXES[family.type]}
    # A cache tells of itself once it is there.
    ByteCache[str, str]("of this test", 1, len)
    for family in PlanningMeasures().registry.collect():
        # The ServiceMonitor of planning servers tells of which Warehouse each is.
        labels = {label for sample in family.samples for label in sample.labels} | {"warehouse"}
        found |= {f"{family.name}{suffix}": labels for suffix in SUFFIXES[family.type]}
    return found


def labels_of(family: Metric) -> set[str]:
    """The labels of a family of the operator: from its series, or as its collector declares them."""
    declared = {**FAMILIES, **WORK}.get(family.name.removeprefix("skipstone_"))
    if declared is not None:
        return set(declared.labels)
    return {label for sample in family.samples for label in sample.labels}


EXPOSED = exposed()
NAME = re.compile(r"\bskipstone_\w+")
#: A selector: the name and what is between its braces.
SELECTOR = re.compile(r"\b(skipstone_\w+)(?:\{([^}]*)\})?")
GROUPED = re.compile(r"\b(?:by|on) \(([^)]*)\)")


@pytest.fixture(scope="session")
def helm() -> Path:
    """The helm that the test cluster uses."""
    return build_tools(["helm"])["helm"]


@pytest.fixture(scope="module")
def rules(helm: Path) -> list[Rule]:
    """All alerts."""
    (found,) = objects(render(helm, *RULES), "PrometheusRule")
    return [rule for group in found["spec"]["groups"] for rule in group["rules"]]


@pytest.fixture(scope="module")
def boards(helm: Path) -> dict[str, Any]:
    """All dashboards by file name."""
    (found,) = objects(render(helm, *BOARDS), "ConfigMap")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    return {name: json.loads(text) for name, text in found["data"].items()}


def find_faults(expression: str) -> Iterator[str]:
    """Names and labels in ``expression`` that no scrape of the operator has."""
    names = set(NAME.findall(expression))
    if not names:
        yield f"no metric in {expression}"
    known: set[str] = set(GIVEN)
    for name, matchers in SELECTOR.findall(expression):
        labels = EXPOSED.get(name)
        if labels is None:
            yield f"{name} is not exposed"
            continue
        known |= labels
        used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        yield from (f"{name} has no label {label}" for label in used - labels - GIVEN)
    grouped = {label.strip() for group in GROUPED.findall(expression) for label in group.split(",")}
    yield from (f"no metric of {expression} has the label {label}" for label in grouped - known)
    if expression.count("(") != expression.count(")") or expression.count("{") != expression.count("}"):
        yield f"unbalanced: {expression}"


def test_this_file_finds_what_is_not_exposed() -> None:
    assert list(find_faults("sum by (kind) (skipstone_runs_total)")) == []
    assert list(find_faults("skipstone_run_total > 0")) == ["skipstone_run_total is not exposed"]
    assert list(find_faults('skipstone_leader{kind="x"}')) == ["skipstone_leader has no label kind"]
    assert list(find_faults("sum by (shape) (skipstone_leader)"))


def test_every_metric_of_the_alerts_is_exposed(rules: list[Rule]) -> None:
    assert [fault for rule in rules for fault in find_faults(rule["expr"])] == []


def test_an_operator_that_cannot_list_is_told_of_though_the_kubelet_starts_it_again_and_again(
    rules: list[Rule], helm: Path
) -> None:
    """A start sets the age back, long before an alert is due: each start must find the alert still pending."""
    (rule,) = (rule for rule in rules if rule["alert"] == "SkipstoneOperatorNotReconciling")
    found = re.search(r"max_over_time\(skipstone_resync_age_seconds(?:\{\})?\[(\d+)m\]\) > (\d+)", rule["expr"])
    assert found is not None
    window, limit = 60 * int(found.group(1)), int(found.group(2))
    (deployment,) = objects(render(helm, *NAMESPACED), "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    probe = pod["containers"][0]["livenessProbe"]
    killed = MAX_RESYNC_AGE + probe["failureThreshold"] * probe["periodSeconds"] + pod["terminationGracePeriodSeconds"]
    assert 1.5 * ResyncTiming().interval < limit < MAX_RESYNC_AGE
    starting = 60
    assert window > starting + limit, "the age is high again before the last start is forgotten"
    pending = 60 * int(rule["for"].removesuffix("m"))
    assert killed - limit + window < pending, "one outage that is over by the next start is no alert"


def test_no_alert_has_to_stay_pending_for_longer_than_operators_live(rules: list[Rule]) -> None:
    """Series of a new pod are new ones, and what is pending for them begins again."""
    assert [rule["alert"] for rule in rules if rule.get("for", "0m").endswith(("h", "d"))] == []


def test_labels_in_the_texts_of_alerts_are_those_of_their_metrics(rules: list[Rule]) -> None:
    for rule in rules:
        grouped = GROUPED.search(rule["expr"])
        labels = set.union(*(EXPOSED[name] for name in NAME.findall(rule["expr"])))
        kept = set(grouped.group(1).split(", ")) if grouped is not None else labels
        used = re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values()))
        assert set(used) <= kept, rule["alert"]


def test_every_alert_is_complete_and_has_a_section_of_the_runbooks(rules: list[Rule]) -> None:
    names = [rule["alert"] for rule in rules]
    assert len(set(names)) == len(names) >= 8
    assert re.findall(r"^## (\w+)$", RUNBOOKS, re.MULTILINE) == names
    for rule in rules:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks.md#{rule['alert'].lower()}"


def test_links_inside_the_runbooks_lead_somewhere() -> None:
    sections = {name.lower() for name in re.findall(r"^## (\w+)$", RUNBOOKS, re.MULTILINE)}
    assert set(re.findall(r"\(#([^)]+)\)", RUNBOOKS)) <= sections
    for path in re.findall(r"\(([\w/]+\.md)\)", RUNBOOKS):
        assert (REPOSITORY / "docs" / path).exists()


def test_every_threshold_of_the_runbooks_is_a_value() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())["metrics"]["prometheusRule"]["thresholds"]
    named = set(re.findall(r"`(\w+(?:Minutes|Hours|Runs|Percent))`", RUNBOOKS))
    assert named == set(values) - {"notReadyMinutes"}


def test_thresholds_runbooks_and_selector_are_values(helm: Path) -> None:
    chosen = {
        "thresholds.indexLagMinutes": "7",
        "runbookUrl": "https://example.com/books",
        "selector": 'job="mine"',
        "labels.release": "monitoring",
    }
    values = [word for name, value in chosen.items() for word in ("--set", f"metrics.prometheusRule.{name}={value}")]
    (found,) = objects(render(helm, *RULES, *values), "PrometheusRule")
    assert found["metadata"]["labels"]["release"] == "monitoring"
    rules = [rule for group in found["spec"]["groups"] for rule in group["rules"]]
    (lagging,) = (rule for rule in rules if rule["alert"] == "SkipstoneIndexLagging")
    assert lagging["expr"] == 'skipstone_index_lag_seconds{catches_up="true",job="mine"} > 60 * 7'
    assert lagging["annotations"]["runbook_url"] == "https://example.com/books#skipstoneindexlagging"
    for rule in rules:
        assert [matchers for _, matchers in SELECTOR.findall(rule["expr"]) if 'job="mine"' not in matchers] == []
        assert list(find_faults(rule["expr"])) == []


def test_every_metric_of_the_dashboards_is_exposed(boards: dict[str, Any]) -> None:
    assert len(boards) == 3
    for board in boards.values():
        panels = board["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        expressions = [target["expr"] for panel in panels for target in panel["targets"]]
        assert [fault for expression in expressions for fault in find_faults(expression)] == []
        for variable in board["templating"]["list"]:
            assert variable["type"] == "datasource" or list(find_faults(variable["query"])) == []


def test_legends_of_dashboards_use_labels_of_their_metrics(boards: dict[str, Any]) -> None:
    targets = [target for board in boards.values() for panel in board["panels"] for target in panel["targets"]]
    for target in targets:
        labels = set.union(GIVEN, *(EXPOSED[name] for name in NAME.findall(target["expr"])))
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels, target["expr"]


def test_nothing_of_it_is_made_unless_asked_for(helm: Path) -> None:
    assert not {obj["kind"] for obj in objects(render(helm, *NAMESPACED))} & {"PrometheusRule", "ConfigMap"}


def test_series_keep_the_namespace_of_their_resource(helm: Path) -> None:
    monitor, planning = objects(render(helm, *NAMESPACED, "--set", "serviceMonitor.enabled=true"), "ServiceMonitor")
    assert [endpoint["honorLabels"] for endpoint in monitor["spec"]["endpoints"]] == [True]
    # Series of planning servers are named by the namespace of their pods, which is that of the Warehouse.
    assert "honorLabels" not in planning["spec"]["endpoints"][0]


def test_the_service_of_a_planning_server_is_selected_with_its_port_and_its_warehouse(helm: Path) -> None:
    values = ("--set", "serviceMonitor.enabled=true", "--set", "watchNamespaces={lake,ponds}")
    _, monitor = objects(render(helm, *NAMESPACED, *values), "ServiceMonitor")
    (service,) = (made for made in build_server(planning_server()) if made["kind"] == "Service")
    labels, spec = service["metadata"]["labels"], monitor["spec"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    assert spec["namespaceSelector"] == {"matchNames": ["lake", "ponds"]}
    (endpoint,), (port,) = spec["endpoints"], service["spec"]["ports"]
    assert (endpoint["port"], endpoint.get("path", "/metrics")) == (port["name"], METRICS_PATH)
    (warehouse,) = (each for each in endpoint["relabelings"] if each["targetLabel"] == "warehouse")
    name = re.sub(r"\W", "_", WAREHOUSE_LABEL)
    assert warehouse["sourceLabels"] == [f"__meta_kubernetes_service_label_{name}"]
    assert labels[WAREHOUSE_LABEL] == "lake"


@pytest.mark.parametrize(
    "value",
    [
        "prometheusRule.thresholds.indexLagMinutes=0",
        "prometheusRule.runbookUrl=here#there",
        "prometheusRule.selector={x}",
        "dashboards.enabled=maybe",
    ],
)
def test_values_that_would_break_them_are_refused(helm: Path, value: str) -> None:
    assert run_helm(helm, "template", "skipstone", str(CHART), "--set", f"metrics.{value}").returncode != 0
