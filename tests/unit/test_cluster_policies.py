"""The rules that NetworkPolicies come to, and the mirror of the API server from which they are made."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.enforcer import Mirror
from tests.cluster.policies import Objects, Pod, read_pod, render_rules, selects

JsonObject = dict[str, Any]
WEB, READER, STRANGER, ELSEWHERE = (f"10.244.0.{number}" for number in (2, 3, 4, 5))
PODS = (
    Pod("home", "web", "1", WEB, {"app": "web"}, {("TCP", "http"): 8181, ("UDP", "http"): 53}),
    Pod("home", "reader", "1", READER, {"app": "reader"}, {("TCP", "http"): 9000}),
    Pod("home", "stranger", "1", STRANGER, {}, {}),
    Pod("elsewhere", "reader", "1", ELSEWHERE, {"app": "reader"}, {}),
)
NAMESPACES = {"home": {"team": "a"}, "elsewhere": {"team": "b"}}
ON_WEB = {"matchLabels": {"app": "web"}}
OPEN = f"ip saddr {WEB} return"


def policy(namespace: str = "home", types: tuple[str, ...] = ("Ingress",), **spec: Any) -> JsonObject:
    return {"metadata": {"namespace": namespace}, "spec": {"policyTypes": list(types), **spec}}


def chains(*policies: JsonObject, pods: tuple[Pod, ...] = PODS) -> dict[str, list[str]]:
    """The rules of each pod's chain, without the last one, which drops."""
    found = re.findall(r"chain (\S+) \{\n(.*?)\n  \}", render_rules(Objects(pods, NAMESPACES, policies)), re.DOTALL)
    rules = {name: [line.strip() for line in text.splitlines()] for name, text in found}
    own = {name: rules[name] for name in rules if name not in {"forward", "input"}}
    assert all(lines[-1].startswith("counter drop") for lines in own.values())
    return {name: lines[:-1] for name, lines in own.items()}


def allowed(**rule: Any) -> list[str]:
    """What lets others connect to the web pod, when its one policy has this rule."""
    (lines,) = chains(policy(podSelector=ON_WEB, ingress=[rule])).values()
    assert lines[0] == OPEN
    return lines[1:]


def test_without_policies_no_pod_is_isolated() -> None:
    assert chains() == {}


def test_a_policy_isolates_the_pods_of_its_namespace_that_it_selects() -> None:
    assert set(chains(policy(podSelector={}))) == {f"in-{address}" for address in (WEB, READER, STRANGER)}
    assert set(chains(policy("elsewhere"))) == {f"in-{ELSEWHERE}"}
    assert chains(policy(podSelector=ON_WEB)) == {f"in-{WEB}": [OPEN]}


def test_each_direction_is_isolated_by_itself() -> None:
    both = policy(types=("Ingress", "Egress"), podSelector=ON_WEB)
    assert chains(both) == {f"in-{WEB}": [OPEN], f"out-{WEB}": [f"ip daddr {WEB} return"]}
    assert set(chains(policy(types=("Egress",), podSelector=ON_WEB))) == {f"out-{WEB}"}


@pytest.mark.parametrize(
    ("rule", "rules"),
    [
        ({}, ["return"]),
        ({"from": [{"podSelector": {}}]}, [f"ip saddr {{ {WEB}, {READER}, {STRANGER} }} return"]),
        ({"from": [{"podSelector": {"matchLabels": {"app": "reader"}}}]}, [f"ip saddr {{ {READER} }} return"]),
        ({"from": [{"podSelector": {"matchLabels": {"app": "nobody"}}}]}, []),
        ({"from": [{"namespaceSelector": {}}]}, [f"ip saddr {{ {WEB}, {READER}, {STRANGER}, {ELSEWHERE} }} return"]),
        ({"from": [{"namespaceSelector": {"matchLabels": {"team": "b"}}}]}, [f"ip saddr {{ {ELSEWHERE} }} return"]),
        (
            {"from": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "reader"}}}]},
            [f"ip saddr {{ {READER}, {ELSEWHERE} }} return"],
        ),
        (
            {"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}, {"ipBlock": {"cidr": "::/0"}}]},
            ["ip saddr 10.0.0.0/8 ip saddr != { 10.1.0.0/16 } return"],
        ),
        ({"ports": [{"protocol": "TCP", "port": 8181}]}, ["tcp dport 8181 return"]),
        ({"ports": [{"port": 80, "endPort": 90}]}, ["tcp dport 80-90 return"]),
        ({"ports": [{"protocol": "UDP"}]}, ["meta l4proto udp return"]),
        ({"ports": [{"port": "http"}]}, [f"ip daddr {WEB} tcp dport 8181 return"]),
        ({"ports": [{"port": "http", "protocol": "UDP"}]}, [f"ip daddr {WEB} udp dport 53 return"]),
        ({"ports": [{"port": "unknown"}]}, []),
        (
            {"from": [{"podSelector": {"matchLabels": {"app": "reader"}}}], "ports": [{"port": 1}, {"port": 2}]},
            [f"ip saddr {{ {READER} }} tcp dport 1 return", f"ip saddr {{ {READER} }} tcp dport 2 return"],
        ),
    ],
)  # fmt: skip
def test_a_rule_allows_what_it_names(rule: JsonObject, rules: list[str]) -> None:
    assert allowed(**rule) == rules


def test_policies_add_up() -> None:
    first = policy(podSelector=ON_WEB, ingress=[{"ports": [{"port": 1}]}])
    second = policy(ingress=[{"ports": [{"port": 2}]}, {"ports": [{"port": 1}]}])
    assert chains(first, second)[f"in-{WEB}"] == [OPEN, "tcp dport 1 return", "tcp dport 2 return"]


def test_a_named_port_of_an_outgoing_connection_is_that_of_the_pod_it_goes_to() -> None:
    rule = {"to": [{"podSelector": {}}], "ports": [{"port": "http"}]}
    (lines,) = chains(policy(types=("Egress",), podSelector={"matchLabels": {"app": "reader"}}, egress=[rule])).values()
    at_home = f"ip daddr {{ {WEB}, {READER}, {STRANGER} }}"
    assert lines[1:] == [
        f"{at_home} ip daddr {WEB} tcp dport 8181 return",
        f"{at_home} ip daddr {READER} tcp dport 9000 return",
    ]


@pytest.mark.parametrize(
    ("operator", "values", "labels"),
    [("In", ["a", "b"], {"x": "a"}), ("NotIn", ["a"], {}), ("Exists", None, {"x": ""}), ("DoesNotExist", None, {})],
)
def test_expressions_of_selectors(operator: str, values: list[str] | None, labels: dict[str, str]) -> None:
    term = {"key": "x", "operator": operator} | ({"values": values} if values else {})
    assert selects({"matchExpressions": [term]}, labels)
    opposite = {"In": {"x": "c"}, "NotIn": {"x": "a"}, "Exists": {}, "DoesNotExist": {"x": ""}}[operator]
    assert not selects({"matchExpressions": [term]}, opposite)


def test_an_address_belongs_to_the_newest_pod_that_has_it() -> None:
    heir = Pod("home", "heir", "2", WEB, {}, {})
    assert chains(policy(podSelector=ON_WEB), pods=(heir, *PODS)) == {}


def api_pod(**status: str) -> JsonObject:
    container = {"ports": [{"containerPort": 8181, "name": "http"}, {"containerPort": 1}]}
    metadata = {"namespace": "home", "name": "web", "creationTimestamp": "1", "labels": {"app": "web"}}
    return {"metadata": metadata, "spec": {"containers": [container]}, "status": status}


def test_only_pods_with_an_address_of_their_own_are_read() -> None:
    ports = {("TCP", "http"): 8181}
    assert read_pod(api_pod(podIP=WEB, phase="Running")) == Pod("home", "web", "1", WEB, {"app": "web"}, ports)
    assert read_pod(api_pod(phase="Pending")) is None
    assert read_pod(api_pod(podIP=WEB, phase="Succeeded")) is None
    on_host = api_pod(podIP=WEB, phase="Running")
    on_host["spec"]["hostNetwork"] = True
    assert read_pod(on_host) is None


@pytest.mark.skipif(shutil.which("nft") is None or os.geteuid() != 0, reason="needs root and nftables, as the cluster")
def test_the_kernel_takes_the_rules_and_each_replaces_the_last(tmp_path: Path) -> None:
    block = {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16", "10.2.3.4/32"]}}
    ports = [{"port": "http"}, {"port": 80, "endPort": 90}, {"protocol": "SCTP", "port": 5}, {"protocol": "UDP"}]
    peers = [{"podSelector": {}}, block]
    ways = {"ingress": [{"from": peers, "ports": ports}, {}], "egress": [{"to": peers, "ports": ports}, {}]}
    for name, pods in (("some", PODS), ("none", ())):
        rules = render_rules(Objects(pods, NAMESPACES, [policy(types=("Ingress", "Egress"), **ways)]))
        (tmp_path / name).write_text(rules)
    script = "nft --file some && nft list chains && nft --file none && nft list chains | grep -c in-; nft --file some"
    command = ["unshare", "--net", "sh", "-c", script]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert f"chain in-{WEB} " in told
    assert told.splitlines()[-1] == "0"


def test_the_mirror_tells_only_of_what_reads_otherwise() -> None:
    mirror = Mirror({"things": lambda item: item.get("size")})

    def news() -> bool:
        told = mirror.changed.is_set()
        mirror.changed.clear()
        return told

    def thing(uid: str, size: int | None) -> JsonObject:
        return {"metadata": {"uid": uid}, "size": size}

    assert not mirror.is_complete()
    mirror.replace("things", [thing("a", 1), thing("b", None)])
    assert mirror.is_complete()
    assert (news(), mirror.values("things")) == (True, [1])
    mirror.change("things", "MODIFIED", thing("a", 1))
    assert (news(), mirror.values("things")) == (False, [1])
    mirror.change("things", "ADDED", thing("c", 3))
    assert (news(), sorted(mirror.values("things"))) == (True, [1, 3])
    mirror.change("things", "DELETED", thing("a", 1))
    assert (news(), mirror.values("things")) == (True, [3])
    mirror.replace("things", [])
    assert (news(), mirror.values("things")) == (True, [])
