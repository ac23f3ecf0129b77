"""Versions, groups and resources, as kubectl and libraries look for them."""

from __future__ import annotations

from skipstone_local.server.kinds.served import Catalog, ServedKind
from skipstone_local.store import JsonObject

#: The release of Kubernetes whose answers these are.
MAJOR, MINOR, PATCH = "1", "34", "0"
VERSION: JsonObject = {
    "major": MAJOR,
    "minor": MINOR,
    "gitVersion": f"v{MAJOR}.{MINOR}.{PATCH}+skipstone-local",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "",
}
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
HALF_VERBS = ["get", "patch", "update"]
POSTED = ("binding", "eviction", "token")


def describe_core() -> JsonObject:
    """/api"""
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}


def describe_groups(catalog: Catalog) -> JsonObject:
    """/apis"""
    groups = [describe_group(group, versions) for group, versions in catalog.groups().items()]
    bare = [{name: value for name, value in group.items() if name not in ("kind", "apiVersion")} for group in groups]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": bare}


def describe_group(group: str, versions: tuple[str, ...]) -> JsonObject:
    """/apis/GROUP"""
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": listed, "preferredVersion": listed[0]}


def describe_resources(kinds: tuple[ServedKind, ...]) -> JsonObject:
    """/apis/GROUP/VERSION and /api/v1"""
    resources = [entry for kind in kinds for entry in (_resource(kind), *_subresources(kind))]
    version = kinds[0].api_version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}


def _resource(kind: ServedKind) -> JsonObject:
    listed = {"shortNames": list(kind.short_names), "categories": list(kind.categories)}
    return {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.name,
        "verbs": ["create"] if kind.name.startswith("SelfSubject") else VERBS,
        **{name: values for name, values in listed.items() if values},
    }


def _subresources(kind: ServedKind) -> list[JsonObject]:
    return [
        {
            "name": f"{kind.plural}/{name}",
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": _KINDS.get(name, kind.name),
            "verbs": ["create"] if name in POSTED else ["get"] if name == "log" else HALF_VERBS,
        }
        for name in kind.subresources
    ]


_KINDS = {"binding": "Binding", "eviction": "Eviction", "token": "TokenRequest"}
