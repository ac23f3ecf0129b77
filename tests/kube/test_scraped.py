"""Debian's Prometheus scrapes a real operator as the chart asks: every panel has data, every alert can be evaluated.

Beside that, kstatus and Argo CD judge the same objects as the API server has them. Runs in `make soak-operability`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from kubernetes import client
from kubernetes import config as client_config
from prometheus_client import start_http_server
from skipstone.caches import ByteCache
from skipstone.serving.measures import OUTCOMES, PARTS, UPSTREAM_ERRORS, USES, PlanningMeasures
from skipstone_operator.manifests.planning import build_server

from tests.cluster.controlplane import ControlPlane
from tests.cluster.errors import ClusterError
from tests.cluster.shell import wait_until
from tests.cluster.toolchain import build_tools
from tests.kube.busy_lake import EXPECTED, Drivers, first_objects, other_objects, run_kubelet
from tests.kube.planning_pods import ServerPods
from tests.kube.test_runtime_operator import CHART, Operator, prepare_namespace, render_chart
from tests.prometheus import PanelQuery, Prometheus, read_queries, resolve, run_prometheus, scrape_config
from tests.statetools import argocd_health, kstatus_library
from tests.unit import objects
from tests.unit.manifest_cases import planning_server
from tests.unit.test_argocd_health import OVERRIDES

Json = dict[str, Any]
NAMESPACE = "observed"
#: Seconds between two scrapes, and how long one may take.
SCRAPED = 5
#: The lowest thresholds, so that what is unwell is told of while the test looks.
LOWEST = {
    "indexLagMinutes": 1,
    "scheduleDelayMinutes": 1,
    "unmatchedDeletesPercent": 1,
    "tableUnhealthyHours": 1,
    "notReadyMinutes": 1,
    "failedRuns": 1,
}
VALUES = (
    *("--set", "serviceMonitor.enabled=true", "--set", f"serviceMonitor.interval={SCRAPED}s"),
    *("--set", "metrics.prometheusRule.enabled=true", "--set", "metrics.dashboards.enabled=true"),
    *(word for name, n in LOWEST.items() for word in ("--set", f"metrics.prometheusRule.thresholds.{name}={n}")),
)
BOARDS = {path.name: json.loads(path.read_text()) for path in sorted((CHART / "dashboards").glob("*.json"))}
QUERIES = [query for board in BOARDS.values() for query in read_queries(board)]
SECONDS = 300
#: An index has to lag for six minutes before its alert fires, beside which the machine may be busy.
FIRING_SECONDS = 900
#: Alerts about what is unwell here. The others are about outages; `tests/unit/alerts` has them all.
UNWELL = {
    "SkipstoneIndexLagging",
    "SkipstoneJobFailed",
    "SkipstoneRunsFailing",
    "SkipstoneResourceStalled",
    "SkipstoneWarehouseNotReady",
}
#: Kinds by their paths in the API.
PLURALS = {
    "Warehouse": "warehouses",
    "Table": "tables",
    "SecondaryIndex": "secondaryindexes",
    "LoadJob": "loadjobs",
    "MergeJob": "mergejobs",
    "MergeSchedule": "mergeschedules",
}
FINALIZER = "example.com/held"
pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]


@dataclass(frozen=True)
class Scraped:
    """A running operator, and the Prometheus that scrapes it. ``rules``: of the chart; ``began``: since when."""

    prometheus: Prometheus
    rules: list[Json]
    job: str
    began: float


@pytest.fixture(scope="module")
def scraped(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """Everything runs; what is declared is not at its end yet."""
    folder = tmp_path_factory.mktemp("scraped")
    rendered = render_chart(build_tools(["helm"])["helm"], NAMESPACE, *VALUES)
    control_plane.kubectl("create", "namespace", NAMESPACE)
    environment = prepare_namespace(control_plane, NAMESPACE, rendered)
    operator = Operator(environment | {"POD_NAME": "skipstone-0"}, folder / "operator.log")
    manifests = [found for found in yaml.safe_load_all(rendered) if found]
    monitor, of_servers = of_kind(manifests, "ServiceMonitor")
    config = scrape_config(monitor, of_kind(manifests, "Service"), only(manifests, "Deployment"), operator.metrics)
    rules = only(manifests, "PrometheusRule")["spec"]
    operator.start()
    try:
        with (
            run_planning_server() as port,
            run_prometheus(
                folder / "prometheus",
                {"scrape_configs": [config, scrape_config(of_servers, *server_manifests(), port)]},
                rules,
            ) as prometheus,
        ):
            began = time.time()
            operator.wait_healthy()
            wait_until(lambda: bool(prometheus.ask("skipstone_leader == 1")), seconds=SECONDS, failure="no scrape")
            with run_kubelet(control_plane, NAMESPACE, Drivers()):
                apply(control_plane, first_objects())
                control_plane.kubectl(
                    *("wait", "--namespace", NAMESPACE, "--for=condition=Ready", f"--timeout={SECONDS}s"),
                    *("tables/flights", "tables/archive"),
                )
                apply(control_plane, other_objects())
                with client_config.new_client_from_config(str(control_plane.kubeconfig_admin)) as opened:
                    pods = ServerPods(opened, NAMESPACE)
                    wait_until(lambda: len(pods.get_ready()) == 2, seconds=SECONDS, failure="no planning server")
                every = [rule for group in rules["groups"] for rule in group["rules"]]
                yield Scraped(prometheus, every, config["job_name"], began)
    finally:
        operator.kill()


def server_manifests() -> tuple[list[Json], Json]:
    """The Service and the Deployment of a planning server, as the operator makes them."""
    made = list(build_server(planning_server(NAMESPACE)))
    return of_kind(made, "Service"), only(made, "Deployment")


@contextmanager
def run_planning_server() -> Iterator[int]:
    """The port of what a planning server with something to do tells; it counts on until the block ends."""
    measures, stopping = PlanningMeasures(is_ready=lambda: True), threading.Event()
    ByteCache[str, str]("of this test", 1, len)

    def work() -> None:
        while not stopping.wait(1.0):
            count_on(measures)

    served, serving = start_http_server(0, "127.0.0.1", measures.registry)
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        try:
            yield served.server_port
        finally:
            stopping.set()
            served.shutdown()
            serving.join()
            served.server_close()
            working.result()


def count_on(measures: PlanningMeasures) -> None:
    """One of each."""
    measures.files_planned(240, 1)
    for outcome in OUTCOMES:
        # No alert is due: most plans end well.
        for _ in range(1000 if outcome == "completed" else 1):
            measures.plan_ended(outcome)
        measures.page_ended(outcome)
    for use in USES:
        if use != "broken":
            measures.index_used(use)
    measures.verified("right")
    for kind in UPSTREAM_ERRORS:
        measures.upstream_failed(kind)
    for part in PARTS:
        with measures.part(part), measures.upstream():
            pass


def of_kind(manifests: list[Json], kind: str) -> list[Json]:
    return [found for found in manifests if found["kind"] == kind]


def only(manifests: list[Json], kind: str) -> Json:
    (found,) = of_kind(manifests, kind)
    return found


def apply(plane: ControlPlane, declared: list[Json]) -> None:
    placed = [{**obj, "metadata": {**obj["metadata"], "namespace": NAMESPACE}} for obj in declared]
    plane.kubectl("apply", "--filename", "-", text_input=yaml.safe_dump_all(placed))


def variables(prometheus: Prometheus, board: Json) -> Iterator[dict[str, str]]:
    """What a user may have chosen: each value of each variable, and all of them."""
    chosen: dict[str, list[str]] = {}
    for variable in board["templating"]["list"]:
        if variable["type"] == "datasource":
            continue
        selector, label = variable["query"].removeprefix("label_values(").removesuffix(")").split(", ")
        found = prometheus.label_values(label, selector)
        assert found == [NAMESPACE]
        chosen[variable["name"]] = [*found, variable["allValue"]]
    assert len(chosen) <= 1
    yield from ({name: value} for name, values in chosen.items() for value in values)
    if not chosen:
        yield {}


def test_prometheus_finds_the_operator_by_the_service_monitor_and_keeps_namespaces_of_resources(
    scraped: Scraped,
) -> None:
    # A machine with much to do misses a scrape now and then, and the series are not there until the next one.
    found: list[Json] = []

    def is_scraped() -> bool:
        found[:] = scraped.prometheus.ask('skipstone_resource_ready{kind="Warehouse",name="main"}')
        return bool(found)

    wait_until(is_scraped, seconds=SECONDS, failure="the operator is not scraped")
    (target,) = (each for each in targets(scraped) if each["scrapePool"] == scraped.job)
    (series,) = found
    assert target["labels"]["pod"] == "skipstone-0"
    assert series["metric"]["namespace"] == NAMESPACE
    assert "exported_namespace" not in series["metric"]


def test_prometheus_finds_planning_servers_and_knows_of_which_warehouse_each_is(scraped: Scraped) -> None:
    (target,) = (each for each in targets(scraped) if each["scrapePool"] != scraped.job)
    told = ("namespace", "warehouse", "job")
    assert [target["labels"][name] for name in told] == [NAMESPACE, "lake", "skipstone-metrics"]


def targets(scraped: Scraped) -> list[Json]:
    found: list[Json] = scraped.prometheus.get("targets", state="active")["activeTargets"]
    return found


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: f"{query.board}: {query.panel}")
def test_every_query_of_every_panel_has_data(scraped: Scraped, query: PanelQuery) -> None:
    board = next(board for board in BOARDS.values() if board["title"] == query.board)
    for chosen in variables(scraped.prometheus, board):
        expression = resolve(query.expression, chosen, SCRAPED)
        wait_until(
            lambda expression=expression: bool(look(scraped, query, expression)),  # type: ignore[misc]
            seconds=SECONDS,
            failure=f"no data: {expression}",
            pause=1.0,
        )


def look(scraped: Scraped, query: PanelQuery, expression: str) -> list[Json]:
    """The series that the panel shows; rates that are above zero at some time, as all of them are counted up here."""
    if query.at_once:
        return scraped.prometheus.ask(expression)
    found = scraped.prometheus.ask_range(expression, scraped.began, time.time())
    counts = "rate(" in expression or "increase(" in expression
    return [each for each in found if not counts or any(float(value) > 0 for _, value in each["values"])]


def test_every_alert_can_be_evaluated(scraped: Scraped) -> None:
    found = scraped.prometheus.get("rules", type="alert")["groups"]
    told = {rule["name"]: (rule["health"], rule.get("lastError", "")) for group in found for rule in group["rules"]}
    assert told == {rule["alert"]: ("ok", "") for rule in scraped.rules}
    for rule in scraped.rules:
        scraped.prometheus.get("query", query=rule["expr"])


def test_alerts_fire_for_what_is_unwell_and_for_nothing_else(scraped: Scraped) -> None:
    def firing() -> list[Json]:
        return [each for each in scraped.prometheus.get("alerts")["alerts"] if each["state"] == "firing"]

    def names() -> set[str]:
        return {each["labels"]["alertname"] for each in firing()}

    with suppress(ClusterError):
        wait_until(lambda: names() == UNWELL, seconds=FIRING_SECONDS, failure="others fire", pause=1.0)
    assert names() == UNWELL
    for alert in firing():
        text = " ".join(alert["annotations"].values())
        assert "<no value>" not in text
        assert "error" not in text
        assert alert["labels"]["namespace"] == NAMESPACE
    named = {each["labels"].get("name", each["labels"].get("index")) for each in firing()}
    assert named == {"broken", "bad", "bad-feed", "unlucky", "lost", "refused", "twin", "never"}


def stored(api: client.CustomObjectsApi, kind: str, name: str) -> Json:
    found: Json = api.get_namespaced_custom_object("skipstone.dev", "v1alpha1", NAMESPACE, PLURALS[kind], name)
    return found


def judged(obj: Json) -> tuple[str, str]:
    """What kstatus and Argo CD say of an object."""
    return kstatus_library().ask(obj), json.loads(argocd_health(json.dumps(OVERRIDES)).ask(obj))["status"]


@pytest.mark.parametrize(("kind", "name"), EXPECTED)
def test_states_are_what_kstatus_and_argo_cd_say(
    scraped: Scraped, api: client.CustomObjectsApi, kind: str, name: str
) -> None:
    wait_until(
        lambda: judged(stored(api, kind, name)) == EXPECTED[kind, name],
        seconds=SECONDS,
        failure=f"{kind} {name} is not as expected",
        pause=1.0,
    )


def test_every_kind_is_among_these_in_every_state() -> None:
    found = {(kind, status) for (kind, _), (status, _) in EXPECTED.items()}
    assert found >= {(kind, status) for kind in PLURALS for status in ("Current", "Failed")}
    assert {kind for kind, _ in EXPECTED} == set(PLURALS)


@pytest.mark.parametrize("kind", PLURALS)
def test_what_nobody_has_seen_is_in_progress_and_what_is_deleted_is_terminating(
    control_plane: ControlPlane, api: client.CustomObjectsApi, second_namespace: str, kind: str
) -> None:
    made = {
        "Warehouse": objects.warehouse,
        "Table": objects.table,
        "SecondaryIndex": objects.index,
        "LoadJob": lambda: objects.load("jan"),
        "MergeJob": lambda: objects.merge("feed"),
        "MergeSchedule": objects.schedule,
    }[kind]()
    made["metadata"] = {"name": made["metadata"]["name"], "finalizers": [FINALIZER]}
    place = ("skipstone.dev", "v1alpha1", second_namespace, PLURALS[kind])
    assert judged(api.create_namespaced_custom_object(*place, made)) == ("InProgress", "Progressing")
    api.delete_namespaced_custom_object(*place, made["metadata"]["name"])
    assert judged(api.get_namespaced_custom_object(*place, made["metadata"]["name"])) == ("Terminating", "Progressing")
    api.patch_namespaced_custom_object(*place, made["metadata"]["name"], {"metadata": {"finalizers": []}})
