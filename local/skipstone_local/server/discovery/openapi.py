"""Schemas as OpenAPI 3: whole ones of Skipstone's kinds; of Kubernetes' own kinds only which requests they take."""

from __future__ import annotations

import copy
import hashlib
import json
from functools import cache

from skipstone_local.server.kinds.served import Catalog, ServedKind
from skipstone_local.store import JsonObject

#: What a request may say, for programs that ask before they rely on it.
PARAMETERS = ("dryRun", "fieldManager", "fieldValidation", "force", "pretty")
STRATEGIC = "application/strategic-merge-patch+json"
METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
PATCHES = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")


def describe_index(catalog: Catalog) -> JsonObject:
    """/openapi/v3: where the document of each version is."""
    versions = [("", "v1"), *((group, version) for group, all_ in catalog.groups().items() for version in all_)]
    paths = {}
    for group, version in versions:
        document = json.dumps(describe_version(catalog.within(group, version)), sort_keys=True)
        path = f"apis/{group}/{version}" if group else f"api/{version}"
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={hashlib.sha256(document.encode()).hexdigest()}"}
    return {"paths": paths}


@cache
def describe_version(kinds: tuple[ServedKind, ...]) -> JsonObject:
    """/openapi/v3/apis/GROUP/VERSION"""
    schemas = {METADATA: {"type": "object", "description": "Standard object's metadata.", "properties": _METADATA}}
    paths: JsonObject = {}
    for kind in kinds:
        schemas[_name(kind)] = _schema(kind)
        paths |= _paths(kind)
    info = {"title": "Skipstone local", "version": "v1"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


_METADATA: JsonObject = {
    name: {"type": "string", "description": text}
    for name, text in {"name": "Name of the object.", "namespace": "Namespace of the object."}.items()
} | {
    name: {"type": "object", "additionalProperties": {"type": "string"}, "description": text}
    for name, text in {"labels": "Labels of the object.", "annotations": "Annotations of the object."}.items()
}


def _name(kind: ServedKind) -> str:
    parts = kind.group.split(".") if kind.group else ["core", "k8s", "io"]
    return ".".join([*reversed(parts), kind.version, kind.name])


def _schema(kind: ServedKind) -> JsonObject:
    described: JsonObject = {"type": "object", "description": f"A {kind.name} of Kubernetes."}
    schema: JsonObject = copy.deepcopy(kind.schema) or described
    if kind.schema:
        reference = {"allOf": [{"$ref": f"#/components/schemas/{METADATA}"}], "description": "Metadata of the object."}
        schema["properties"]["metadata"] = reference
    return {**schema, "x-kubernetes-group-version-kind": [_version_kind(kind)]}


def _version_kind(kind: ServedKind) -> JsonObject:
    return {"group": kind.group, "version": kind.version, "kind": kind.name}


def _paths(kind: ServedKind) -> JsonObject:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    collection = f"{root}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    return {
        collection: {"post": _operation(kind, "post", ("application/json", "application/yaml"))},
        f"{collection}/{{name}}": {
            "put": _operation(kind, "put", ("application/json", "application/yaml")),
            "patch": _operation(kind, "patch", PATCHES),
            "delete": _operation(kind, "delete", ("application/json",)),
        },
    }


def _operation(kind: ServedKind, action: str, media: tuple[str, ...]) -> JsonObject:
    schema = {"$ref": f"#/components/schemas/{_name(kind)}"}
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}} for name in PARAMETERS
    ]
    answer = {"description": "OK", "content": {"application/json": {"schema": schema}}}
    return {
        "parameters": parameters,
        "requestBody": {"content": {name: {"schema": schema} for name in media}, "required": True},
        "responses": {"200": answer},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _version_kind(kind),
    }
