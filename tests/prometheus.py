"""Debian's Prometheus on loopback for one test run, what the Prometheus operator tells it, and what Grafana asks it.

The chart declares a ServiceMonitor, a PrometheusRule and dashboards; no Prometheus operator and no Grafana run here.
``scrape_config`` is what the Prometheus operator makes of a ServiceMonitor and its Service, and ``resolve`` what
Grafana does to the variables of a query.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.shell import wait_until
from tests.debian import unpack_package
from tests.ports import free_port

Json = dict[str, Any]
LOOPBACK = "127.0.0.1"
SECONDS = 300
#: How often all rules are evaluated.
EVALUATED = "1s"


def find_program(name: str) -> Path:
    """``prometheus`` or ``promtool`` of Debian's package."""
    return unpack_package("prometheus") / "usr" / "bin" / name


def scrape_config(monitor: Json, services: Sequence[Json], deployment: Json, port: int) -> Json:
    """What the Prometheus operator makes of ``monitor``, for the one pod of ``deployment``, at ``port`` here.

    The labels of the target are those that it gives: namespace, service, pod, container, endpoint and job. Raises
    ValueError when the monitor selects no Service, or the Service not the pod: Prometheus would find no target.
    """
    (endpoint,) = monitor["spec"]["endpoints"]
    service = _select_service(monitor, services)
    (served,) = (each for each in service["spec"]["ports"] if each["name"] == endpoint["port"])
    container = _select_container(service, served["targetPort"], deployment)
    relabeled = {
        each["targetLabel"]: each["replacement"] if "replacement" in each else _source(each, service)
        for each in endpoint.get("relabelings", ())
    }
    labels = {
        "namespace": service["metadata"]["namespace"],
        "service": service["metadata"]["name"],
        "pod": f"{deployment['metadata']['name']}-0",
        "container": container,
        "endpoint": endpoint["port"],
        "job": service["metadata"]["name"],
        **relabeled,
    }
    return {
        "job_name": f"serviceMonitor/{monitor['metadata']['namespace']}/{monitor['metadata']['name']}/0",
        "honor_labels": endpoint.get("honorLabels", False),
        "scrape_interval": endpoint["interval"],
        "metrics_path": endpoint.get("path", "/metrics"),
        "scheme": endpoint.get("scheme", "http"),
        "static_configs": [{"targets": [f"{LOOPBACK}:{port}"], "labels": labels}],
    }


def _source(relabeling: Json, service: Json) -> str:
    """The value of a label of the Service, by the name that Prometheus gives it."""
    (source,) = relabeling["sourceLabels"]
    labels = {re.sub(r"\W", "_", name): value for name, value in service["metadata"]["labels"].items()}
    return str(labels[source.removeprefix("__meta_kubernetes_service_label_")])


def _select_service(monitor: Json, services: Sequence[Json]) -> Json:
    spec = monitor["spec"]
    namespaces = spec.get("namespaceSelector", {}).get("matchNames", [monitor["metadata"]["namespace"]])
    found = [
        service
        for service in services
        if service["metadata"]["namespace"] in namespaces
        and spec["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        and any(port["name"] == spec["endpoints"][0]["port"] for port in service["spec"]["ports"])
    ]
    if len(found) != 1:
        raise ValueError(f"the ServiceMonitor selects {len(found)} Services with its port: it must select one")
    return found[0]


def _select_container(service: Json, target_port: str, deployment: Json) -> str:
    template = deployment["spec"]["template"]
    if not service["spec"]["selector"].items() <= template["metadata"]["labels"].items():
        raise ValueError(f"Service {service['metadata']['name']} does not select the pods of the Deployment")
    for container in template["spec"]["containers"]:
        if target_port in {port["name"] for port in container.get("ports", ())}:
            return str(container["name"])
    raise ValueError(f"no container of the Deployment has the port {target_port} of the Service")


@dataclass(frozen=True)
class Prometheus:
    """A Prometheus that runs."""

    url: str

    def get(self, path: str, **parameters: str) -> Any:
        """``data`` of an answer. Raises AssertionError with the words of Prometheus when it refuses."""
        asked = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(asked, timeout=SECONDS) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error

    def ask(self, expression: str) -> list[Json]:
        """The series that ``expression`` has now."""
        found: list[Json] = self.get("query", query=expression)["result"]
        return [one for one in found if math.isfinite(float(one["value"][1]))]

    def ask_range(self, expression: str, start: float, end: float, step: float = 1.0) -> list[Json]:
        """The series that a time series panel draws from ``start`` to ``end``: those with a finite value."""
        found: list[Json] = self.get("query_range", query=expression, start=str(start), end=str(end), step=str(step))[
            "result"
        ]
        return [one for one in found if any(math.isfinite(float(value)) for _, value in one["values"])]

    def label_values(self, name: str, selector: str) -> list[str]:
        """Values of a label of the series of ``selector``, as Grafana's ``label_values`` asks for them."""
        found: list[str] = self.get(f"label/{name}/values", **{"match[]": selector})
        return found


@contextmanager
def run_prometheus(folder: Path, config: Json, rules: Json) -> Iterator[Prometheus]:
    """Prometheus with ``config``, to which ``rules`` are added; it and its data in ``folder`` end with the block."""
    folder.mkdir(parents=True)
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    whole = {"global": {"evaluation_interval": EVALUATED}, "rule_files": ["rules.yaml"], **config}
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(whole))
    port = free_port()
    command: list[str | Path] = [
        find_program("prometheus"),
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={LOOPBACK}:{port}",
        "--log.level=warn",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        url = f"http://{LOOPBACK}:{port}"
        wait_until(
            lambda: process.poll() is not None or _is_ready(url), seconds=SECONDS, failure="Prometheus did not start"
        )
        assert process.poll() is None, (folder / "log").read_text()
        yield Prometheus(url)
    finally:
        process.terminate()
        process.wait(timeout=SECONDS)


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=SECONDS) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@dataclass(frozen=True)
class PanelQuery:
    """One query of a panel. ``at_once``: for one moment, as tables ask; else for the time that the board shows."""

    board: str
    panel: str
    expression: str
    at_once: bool


def read_queries(board: Json) -> Iterator[PanelQuery]:
    """The queries of all panels of a dashboard, those inside rows too."""
    for panel in _read_panels(board["panels"]):
        for target in panel.get("targets", ()):
            yield PanelQuery(board["title"], panel["title"], target["expr"], bool(target.get("instant")))


def _read_panels(panels: Sequence[Json]) -> Iterator[Json]:
    for panel in panels:
        yield panel
        yield from _read_panels(panel.get("panels", ()))


def resolve(expression: str, variables: Mapping[str, str], scrape_seconds: float) -> str:
    """The query as Grafana sends it: its variables, and the interval of rates that it chooses at a step of a second."""
    built_in = {"__rate_interval": f"{max(1 + scrape_seconds, 4 * scrape_seconds):g}s"}
    for name, value in {**built_in, **variables}.items():
        expression = expression.replace(f"${{{name}}}", value).replace(f"${name}", value)
    if "$" in expression:
        raise ValueError(f"the dashboard does not define a variable of {expression}")
    return expression
