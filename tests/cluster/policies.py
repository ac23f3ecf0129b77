"""NetworkPolicies as rules of nftables: which new connections of pods the kernel lets through.

Called by `enforcer`. Pure: objects in, the text of one table out. The table sees what is forwarded between pods after
Services are resolved and before sources are masked, and what pods send to the node. What the node itself sends, such as
probes, is always let through. Only IPv4: pods have no other addresses.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.cluster.residue import POLICY_TABLE

JsonObject = dict[str, Any]
INGRESS, EGRESS = "Ingress", "Egress"
#: The direction's prefix of chains, and the other end of a connection as nftables calls it.
CHAIN = {INGRESS: "in", EGRESS: "out"}
OTHER_END = {INGRESS: "ip saddr", EGRESS: "ip daddr"}
PEERS = {INGRESS: "from", EGRESS: "to"}


@dataclass(frozen=True)
class Pod:
    """A pod with an address of its own. ``ports``: numbers by protocol and name; ``created``: as the API writes it."""

    namespace: str
    name: str
    created: str
    address: str
    labels: Mapping[str, str]
    ports: Mapping[tuple[str, str], int]


@dataclass(frozen=True)
class Objects:
    """All that rules are made from: pods, labels of namespaces by name, and NetworkPolicies as the API gives them."""

    pods: Sequence[Pod]
    namespaces: Mapping[str, Mapping[str, str]]
    policies: Sequence[JsonObject]


def read_pod(item: JsonObject) -> Pod | None:
    """The pod of the API object; None when it has no address of its own, not yet or no longer."""
    spec, status, metadata = item["spec"], item.get("status", {}), item["metadata"]
    address = status.get("podIP", "")
    if spec.get("hostNetwork") or not address or status.get("phase") in {"Succeeded", "Failed"}:
        return None
    containers = [*spec.get("initContainers", ()), *spec["containers"]]
    ports = {
        (port.get("protocol", "TCP"), port["name"]): port["containerPort"]
        for container in containers
        for port in container.get("ports", ())
        if "name" in port
    }
    return Pod(
        metadata["namespace"],
        metadata["name"],
        metadata["creationTimestamp"],
        address,
        metadata.get("labels", {}),
        ports,
    )


def render_rules(objects: Objects) -> str:
    """A script for `nft --file` that replaces the table as a whole."""
    family, table = POLICY_TABLE
    # An address whose last owner is not quite gone belongs to the newer pod.
    owners = {pod.address: pod for pod in sorted(objects.pods, key=lambda pod: pod.created)}
    objects = replace(objects, pods=sorted(owners.values(), key=lambda pod: ipaddress.ip_address(pod.address)))
    chains = [
        (pod, direction, list(_rules(pod, direction, mine, objects)))
        for pod in objects.pods
        for direction in (EGRESS, INGRESS)
        if (mine := _policies_of(pod, direction, objects.policies))
    ]
    lines = [
        f"table {family} {table}",
        f"delete table {family} {table}",
        f"table {family} {table} {{",
        *(line for chain in chains for line in _render_chain(*chain)),
        *_render_map(EGRESS, chains),
        *_render_map(INGRESS, chains),
        *_render_hook("forward", "ip saddr vmap @egress", "ip daddr vmap @ingress"),
        *_render_hook("input", "ip saddr vmap @egress"),
        "}",
    ]
    return "\n".join(lines) + "\n"


def selects(selector: JsonObject, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches; an empty one matches everything."""
    wanted = selector.get("matchLabels", {})
    terms = selector.get("matchExpressions", ())
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _holds(term, labels) for term in terms
    )


def _holds(term: JsonObject, labels: Mapping[str, str]) -> bool:
    value = labels.get(term["key"])
    match term["operator"]:
        case "In":
            return value in term["values"]
        case "NotIn":
            return value not in term["values"]
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case unknown:
            raise ValueError(f"unknown operator {unknown} of a label selector")


def _policies_of(pod: Pod, direction: str, policies: Iterable[JsonObject]) -> list[JsonObject]:
    """The policies that isolate the pod in that direction."""
    return [
        policy
        for policy in policies
        if policy["metadata"]["namespace"] == pod.namespace
        and direction in policy["spec"]["policyTypes"]
        and selects(policy["spec"].get("podSelector", {}), pod.labels)
    ]


def _rules(pod: Pod, direction: str, policies: Iterable[JsonObject], objects: Objects) -> Iterator[str]:
    """What the pod's policies allow, as matches of nftables; the empty match allows everything."""
    for policy in policies:
        for rule in policy["spec"].get(direction.lower(), ()):
            ports = list(_port_matches(pod, direction, rule.get("ports", ()), objects.pods))
            for peer in _peer_matches(policy["metadata"]["namespace"], direction, rule, objects):
                yield from (" ".join(filter(None, (peer, port))) for port in ports)


def _peer_matches(namespace: str, direction: str, rule: JsonObject, objects: Objects) -> Iterator[str]:
    end, peers = OTHER_END[direction], rule.get(PEERS[direction], ())
    if not peers:
        yield ""
    chosen = {
        pod.address
        for pod in objects.pods
        for peer in peers
        if "ipBlock" not in peer and _is_peer(pod, peer, namespace, objects.namespaces)
    }
    if chosen:
        yield f"{end} {_set(sorted(chosen))}"
    for block in (peer["ipBlock"] for peer in peers if "ipBlock" in peer):
        if ipaddress.ip_network(block["cidr"]).version == 4:
            spared = block.get("except", ())
            yield f"{end} {block['cidr']}" + (f" {end} != {_set(spared)}" if spared else "")


def _is_peer(pod: Pod, peer: JsonObject, namespace: str, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
    if "namespaceSelector" in peer:
        at_home = selects(peer["namespaceSelector"], namespaces.get(pod.namespace, {}))
    else:
        at_home = pod.namespace == namespace
    return at_home and selects(peer.get("podSelector", {}), pod.labels)


def _port_matches(pod: Pod, direction: str, ports: Iterable[JsonObject], pods: Sequence[Pod]) -> Iterator[str]:
    if not ports:
        yield ""
    for port in ports:
        protocol, number = port.get("protocol", "TCP"), port.get("port")
        if number is None:
            yield f"meta l4proto {protocol.lower()}"
        elif isinstance(number, str):
            yield from _named_port(protocol, number, [pod] if direction == INGRESS else pods)
        else:
            last = port.get("endPort", number)
            yield f"{protocol.lower()} dport {number}" + (f"-{last}" if last != number else "")


def _named_port(protocol: str, name: str, targets: Iterable[Pod]) -> Iterator[str]:
    """The number that each target gives to the name."""
    for target in targets:
        if number := target.ports.get((protocol, name)):
            yield f"ip daddr {target.address} {protocol.lower()} dport {number}"


def _render_chain(pod: Pod, direction: str, rules: Iterable[str]) -> Iterator[str]:
    yield f"  chain {_chain(pod, direction)} {{"
    # A pod can always reach itself.
    yield f"    {OTHER_END[direction]} {pod.address} return"
    yield from (f"    {rule} return" if rule else "    return" for rule in dict.fromkeys(rules))
    yield f'    counter drop comment "{f"{pod.namespace}/{pod.name}"[:100]}"'
    yield "  }"


def _render_map(direction: str, chains: Iterable[tuple[Pod, str, list[str]]]) -> Iterator[str]:
    entries = {pod.address: _chain(pod, isolated) for pod, isolated, _ in chains if isolated == direction}
    yield f"  map {direction.lower()} {{"
    yield "    type ipv4_addr : verdict"
    if entries:
        yield f"    elements = {_set(f'{address} : jump {chain}' for address, chain in entries.items())}"
    yield "  }"


def _render_hook(hook: str, *jumps: str) -> Iterator[str]:
    yield f"  chain {hook} {{"
    yield f"    type filter hook {hook} priority filter; policy accept;"
    yield "    ct state established,related accept"
    yield from (f"    {jump}" for jump in jumps)
    yield "  }"


def _chain(pod: Pod, direction: str) -> str:
    return f"{CHAIN[direction]}-{pod.address}"


def _set(elements: Iterable[str]) -> str:
    return "{ " + ", ".join(elements) + " }"
