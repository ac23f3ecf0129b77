"""The cluster's network holds pods to NetworkPolicies, and those of the chart let through what they should."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from demo.kube import ROOT, JsonObject, Kube, condition
from demo.manifests import namespace
from tests.cluster.controlplane import SERVICE_IP
from tests.cluster.node import API_PORT, BRIDGE_IP
from tests.e2e.attempts import address_of, listening_pod, policy, until_attempts

HOME, ELSEWHERE = NAMESPACES = ("e2e-network", "e2e-network-elsewhere")
PORTS = {"web": 8000, "other": 8001}
WEB, OTHER = PORTS.values()
CLIENT = {"app": "client"}
OPEN, DROPPED = "open", "dropped"
#: Keeps a connection until no new one is let through, and then uses it.
HOLD = """
import socket, sys
host, port = sys.argv[1], int(sys.argv[2])
with socket.create_connection((host, port)) as held, held.makefile("rwb") as lines:
    print("connected", flush=True)
    for _ in range(600):
        try:
            socket.create_connection((host, port), timeout=1).close()
        except TimeoutError:
            break
    else:
        sys.exit("new connections are still let through")
    held.settimeout(60)
    lines.write(b"still here\\n")
    lines.flush()
    print(lines.readline().decode(), end="")
"""


@dataclass(frozen=True)
class Network:
    """A pod that listens on two ports behind a Service, and its clients: one beside it, one in another namespace."""

    home: Kube
    elsewhere: Kube
    server: str
    service: str
    client: str

    def apply(self, *rules: JsonObject, to: str = "server", **spec: Any) -> None:
        """One policy for the pod, in the place of the one before."""
        direction = "Ingress" if to == "server" else "Egress"
        chosen = {"podSelector": {"matchLabels": {"app": to}}, "policyTypes": [direction]}
        self.home.apply(policy("case", chosen | {direction.lower(): list(rules)} | spec))

    def until(self, beside: tuple[str, str, str], elsewhere: tuple[str, str]) -> None:
        """Wait until attempts end so: on the two ports and the Service beside the pod, on the ports from elsewhere."""
        web, other = f"{self.server}:{WEB}", f"{self.server}:{OTHER}"
        until_attempts(self.home, "client", *zip((web, other, f"{self.service}:80"), beside, strict=True))
        until_attempts(self.elsewhere, "client", *zip((web, other), elsewhere, strict=True))


@pytest.fixture(scope="module")
def network(kube: Kube) -> Iterator[Network]:
    home, elsewhere = (kube.within(name) for name in NAMESPACES)
    kube.run("delete", "namespace", *NAMESPACES, "--ignore-not-found")
    kube.apply(*map(namespace, NAMESPACES))
    service = {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": "web"}]}
    home.apply(
        listening_pod(kube, "server", PORTS, {"app": "server"}),
        listening_pod(kube, "client", {}, CLIENT),
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "server"}, "spec": service},
    )
    elsewhere.apply(listening_pod(kube, "client", {}, CLIENT))
    address_of(elsewhere, "client")
    cluster_ip = (home.get("service", "server") or {})["spec"]["clusterIP"]
    yield Network(home, elsewhere, address_of(home, "server"), cluster_ip, address_of(home, "client"))
    kube.run("delete", "namespace", *NAMESPACES, "--wait=false")


def test_connections_are_let_in_as_policies_say(network: Network) -> None:
    everything, nothing = ((OPEN,) * 3, (OPEN,) * 2), ((DROPPED,) * 3, (DROPPED,) * 2)
    web_only = ((OPEN, DROPPED, OPEN), (OPEN, DROPPED))
    beside_only, elsewhere_only = ((OPEN,) * 3, (DROPPED,) * 2), ((DROPPED,) * 3, (OPEN,) * 2)
    there = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ELSEWHERE}}}
    block = {"cidr": "10.244.0.0/16", "except": [f"{network.client}/32"]}
    cases: list[tuple[list[JsonObject], tuple[tuple[str, str, str], tuple[str, str]]]] = [
        ([], nothing),
        ([{}], everything),
        ([{"ports": [{"port": WEB}]}], web_only),
        ([{"from": [{"podSelector": {"matchLabels": CLIENT}}]}], beside_only),
        ([{"ports": [{"port": "web"}]}], web_only),
        ([{"from": [there | {"podSelector": {"matchLabels": CLIENT}}]}], elsewhere_only),
        ([{"from": [{"namespaceSelector": {}}], "ports": [{"port": WEB, "endPort": OTHER}]}], everything),
        ([{"from": [{"ipBlock": block}]}], elsewhere_only),
        ([], nothing),
    ]
    network.until(*everything)
    for rules, ends in cases:
        network.apply(*rules)
        network.until(*ends)
    server = network.home.get("pod", "server") or {}
    assert condition(server, "Ready")["status"] == "True", "the node's probes do not get through"
    network.home.run("delete", "networkpolicy", "case")
    network.until(*everything)


def test_connections_are_let_out_as_policies_say(network: Network) -> None:
    web, other, api = f"{network.server}:{WEB}", f"{network.server}:{OTHER}", f"{SERVICE_IP}:443"
    to_server = {"to": [{"podSelector": {"matchLabels": {"app": "server"}}}], "ports": [{"port": "web"}]}
    to_api = {"to": [{"ipBlock": {"cidr": f"{BRIDGE_IP}/32"}}], "ports": [{"port": API_PORT}]}
    until_attempts(network.home, "client", (web, OPEN), (other, OPEN), (api, OPEN))
    network.apply(to_server, to="client")
    until_attempts(network.home, "client", (web, OPEN), (other, DROPPED), (api, DROPPED))
    network.apply(to_api, to="client")
    until_attempts(network.home, "client", (web, DROPPED), (other, DROPPED), (api, OPEN))
    network.home.run("delete", "networkpolicy", "case")
    until_attempts(network.home, "client", (web, OPEN), (other, OPEN), (api, OPEN))


def test_a_connection_that_stands_outlives_the_policy_that_would_forbid_it(network: Network) -> None:
    until_attempts(network.home, "client", (f"{network.server}:{OTHER}", OPEN))
    words = ("exec", "client", "--", "python", "-c", HOLD, network.server, str(OTHER))
    command = [network.home.kubectl, "--namespace", HOME, *words]
    with subprocess.Popen(command, env=dict(network.home.environment), stdout=subprocess.PIPE, text=True) as holding:
        assert holding.stdout is not None
        assert holding.stdout.readline() == "connected\n"
        network.apply()
        assert holding.stdout.readline() == "still here\n"
    network.home.run("delete", "networkpolicy", "case")


def chart_policies(home: Kube, *settings: str) -> list[JsonObject]:
    """The chart's policies as it would be installed in the namespace, which it also watches."""
    names = [("--set", setting) for setting in (f"watchNamespaces={{{HOME}}}", *settings)]
    chosen = [word for pair in names for word in pair]
    only = ("--show-only", "templates/operator/networkpolicy.yaml")
    text = home.run_helm("template", "skipstone", str(ROOT / "charts" / "skipstone"), *only, *chosen)
    return [found for found in yaml.safe_load_all(text) if found is not None]


def test_runs_are_reached_by_runs_only(network: Network) -> None:
    home, ports = network.home, {"driver": 7078, "blocks": 7079, "ui": 4040}
    (runs,) = (found for found in chart_policies(home) if found["metadata"]["name"].endswith("-runs"))
    labels = runs["spec"]["podSelector"]["matchLabels"]
    home.apply(runs, *(listening_pod(home, name, ports, labels) for name in ("driver", "executor")))
    driver, executor = (address_of(home, name) for name in ("driver", "executor"))
    until_attempts(home, "executor", (f"{driver}:7078", OPEN), (f"{driver}:7079", OPEN), (f"{driver}:4040", DROPPED))
    until_attempts(home, "driver", (f"{executor}:7079", OPEN), (f"{network.server}:{WEB}", OPEN))
    for stranger in (home, network.elsewhere):
        until_attempts(stranger, "client", *((f"{driver}:{port}", DROPPED) for port in ports.values()))


def test_the_operator_is_reached_where_the_values_say(network: Network) -> None:
    home, ports = network.home, {"probes": 8080, "metrics": 8081, "dashboard": 8082}
    dashboard = ("dashboard.enabled=true", "dashboard.allowFrom[0].podSelector.matchLabels.app=client")
    policies = chart_policies(home, *dashboard, "networkPolicy.restrictEgress=true")
    (own,) = (found for found in policies if found["metadata"]["name"].endswith("-operator"))
    home.apply(own, listening_pod(home, "operator", ports, own["spec"]["podSelector"]["matchLabels"]))
    operator = address_of(home, "operator")
    anybody = ((f"{operator}:8080", OPEN), (f"{operator}:8081", OPEN))
    until_attempts(home, "client", *anybody, (f"{operator}:8082", OPEN))
    until_attempts(network.elsewhere, "client", *anybody, (f"{operator}:8082", DROPPED))
    until_attempts(home, "operator", (f"{SERVICE_IP}:443", OPEN), (f"{network.server}:{WEB}", DROPPED))
