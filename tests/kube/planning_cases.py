"""Manifests of Warehouses with a planning server that the API server takes or refuses."""

from __future__ import annotations

import copy
from typing import Any

from tests.kube.cases import WAREHOUSE, Case, Edit, Manifest

HTTPS: Manifest = {"catalog": {"type": "Rest", "uri": "https://catalog.example.org/api"}}
HTTP: Manifest = {"catalog": {"type": "Rest", "uri": "http://catalog:8181"}}
SIGNED: Manifest = {"rest.sigv4-enabled": "true", "rest.signing-region": "eu-central-1"}
POSTGRESQL: Manifest = {"catalog.uri": "postgresql://db:5432/catalog"}
TOKENS: Manifest = {"tokensSecretRef": {"name": "readers", "key": "tokens"}}
WHOLE: Manifest = {
    "replicas": 3,
    "mode": "Default",
    "verify": "Sample",
    "allowPlaintextTokens": False,
    "upstreamTimeoutSeconds": 10,
    "serviceAccountName": "lake-reader",
    "allowFrom": [
        {"podSelector": {}, "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}},
        {"podSelector": {"matchLabels": {"team": "bi"}}},
        {"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.128/25"]}},
        {"ipBlock": {"cidr": "2001:db8::/32"}},
    ],
    "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "4Gi"}},
}


def _case(name: str, catalog: Manifest, planning: Manifest, at: str = "", says: str = "", **more: Any) -> Case:
    changes = {**copy.deepcopy(catalog), "planning": planning}
    return Case(f"planning-{name}", "Warehouse", WAREHOUSE, changes, at, says, **more)


def _size(name: str, resources: Manifest, at: str, says: str) -> Case:
    return _case(name, HTTPS, {"resources": resources}, f"spec.planning.resources.{at}", says)


def _peer(name: str, peer: Manifest, at: str, says: str) -> Case:
    changes = {"allowFrom": [{"podSelector": {}}, peer]}
    return _case(name, HTTPS, changes, f"spec.planning.allowFrom[1]{at}", f"planning.allowFrom has an {says}")


PLANNING_ACCEPTED = (
    _case("empty", HTTPS, {}),
    _case("whole", HTTPS, WHOLE),
    _case("unsigned", {**HTTPS, "catalog.properties": {"rest.sigv4-enabled": "false"}}, {}),
    _case("over-http-by-wish", HTTP, {"allowPlaintextTokens": True}),
    _case("sqlite", {}, TOKENS),
    _case("sqlite-of-one-replica", {}, {**TOKENS, "replicas": 1}),
    _case("postgresql", POSTGRESQL, {**TOKENS, "replicas": 4}),
    _case("small", HTTPS, {"resources": {"requests": {"cpu": "0.25", "memory": "2048Mi"}}}),
)
PLANNING_REJECTED = (
    _case("signed", {**HTTPS, "catalog.properties": SIGNED}, {}, "spec.planning",
          "planning cannot be used when catalog.properties has rest.sigv4-enabled"),
    _case("sql-without-tokens", {}, {}, "spec.planning", "planning.tokensSecretRef is required for an Sql catalog"),
    _case("rest-with-tokens", HTTPS, TOKENS, "spec.planning.tokensSecretRef",
          "planning.tokensSecretRef is for Sql catalogs only"),
    _case("sqlite-of-two-replicas", {}, {**TOKENS, "replicas": 2}, "spec.planning.replicas",
          "planning.replicas must be 1 with an SQLite catalog"),
    _case("sqlite-file-of-two-replicas", {"catalog.uri": "sqlite:////skipstone/lake/c.db"}, {**TOKENS, "replicas": 2},
          "spec.planning.replicas", "planning.replicas must be 1 with an SQLite catalog"),
    _case("over-http", HTTP, {}, "spec.planning", "planning would send tokens of callers to catalog.uri without"),
    _case("key-ill-formed", {}, {"tokensSecretRef": {"name": "readers", "key": "a/b"}},
          "spec.planning.tokensSecretRef.key", "planning.tokensSecretRef.key may hold letters, digits"),
    _case("secret-ill-formed", {}, {"tokensSecretRef": {"name": "Readers"}}, "spec.planning.tokensSecretRef.name",
          "planning.tokensSecretRef.name must be a Kubernetes name"),
    _case("account-ill-formed", HTTPS, {"serviceAccountName": "a_b"}, "spec.planning.serviceAccountName",
          "planning.serviceAccountName must be a Kubernetes name"),
    _case("no-replica", HTTPS, {"replicas": 0}, "spec.planning.replicas", "1", by_schema=True),
    _case("many-replicas", HTTPS, {"replicas": 65}, "spec.planning.replicas", "64", by_schema=True),
    _case("no-time", HTTPS, {"upstreamTimeoutSeconds": 0}, "spec.planning.upstreamTimeoutSeconds", "1", by_schema=True),
    _case("much-time", HTTPS, {"upstreamTimeoutSeconds": 601}, "spec.planning.upstreamTimeoutSeconds", "600",
          by_schema=True),
    _case("allows-no-entry", HTTPS, {"allowFrom": []}, "spec.planning.allowFrom", "1", by_schema=True),
    _peer("allows-nobody", {}, "", "entry without a peer"),
    _peer("allows-block-and-pods", {"podSelector": {}, "ipBlock": {"cidr": "192.0.2.0/24"}}, ".ipBlock",
          "entry with an ipBlock and a selector"),
    _peer("allows-address", {"ipBlock": {"cidr": "192.0.2.1"}}, ".ipBlock", "ipBlock that is not a block"),
    _peer("allows-all-but-no-block", {"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.0/33"]}}, ".ipBlock",
          "ipBlock that is not a block"),
    _size("cpu-ill-formed", {"requests": {"cpu": "half"}}, "requests.cpu", "planning.resources.requests.cpu must be"),
    _size("cpu-limit-ill-formed", {"limits": {"cpu": "0"}}, "limits.cpu", "planning.resources.limits.cpu must be"),
    _size("memory-ill-formed", {"requests": {"memory": "512M"}}, "requests.memory",
          "planning.resources.requests.memory must be a size in whole Mi or Gi"),
    _size("memory-limit-ill-formed", {"limits": {"memory": "0Gi"}}, "limits.memory",
          "planning.resources.limits.memory must be a size in whole Mi or Gi"),
    _size("memory-over-limit", {"requests": {"memory": "2049Mi"}}, "requests.memory",
          "planning.resources.requests.memory may not be more than planning.resources.limits.memory"),
    _size("cpu-over-limit", {"requests": {"cpu": "1.5"}, "limits": {"cpu": "1499m"}}, "requests.cpu",
          "planning.resources.requests.cpu may not be more than planning.resources.limits.cpu"),
)  # fmt: skip
PLANNING_UNTYPED = (
    _case("mode-unknown", HTTPS, {"mode": "Always"}, "spec.planning.mode", "OptIn"),
    _case("verify-unknown", HTTPS, {"verify": "All"}, "spec.planning.verify", "Sample"),
    _case("tokens-without-name", {}, {"tokensSecretRef": {"key": "tokens"}}, "spec.planning.tokensSecretRef.name",
          "Required"),
)  # fmt: skip
PLANNING_EDITS = (Edit("planning-added", "Warehouse", WAREHOUSE, {"planning": TOKENS}),)
