"""What writes of existing objects are refused, and by which status: both API servers answer alike."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubernetes import client

from tests.kube.cases import TABLE, manifest

MERGE, STEPS, WHOLE = "application/merge-patch+json", "application/json-patch+json", "application/json"
DELETED = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
TABLES, MAPS = "/apis/skipstone.dev/v1alpha1/namespaces/{}/tables", "/api/v1/namespaces/{}/configmaps"
Write = tuple[str, str, str, Any]

WRITES: tuple[tuple[Write, int, str], ...] = (
    (("PATCH", f"{MAPS}/kept", MERGE, {"metadata": {"labels": 5}}), 422, "cannot unmarshal"),
    (("PATCH", f"{MAPS}/kept", MERGE, DELETED), 422, "metadata.deletionTimestamp: Invalid value: "),
    (("PATCH", f"{MAPS}/kept", MERGE, {"metadata": {"uid": "x"}}), 422, 'metadata.uid: Invalid value: "x": field is'),
    (("PATCH", f"{MAPS}/kept", MERGE, {"metadata": {"name": "x"}}), 400, "does not match the name on the URL (kept)"),
    (("PATCH", f"{TABLES}/kept", MERGE, {"spec": {"nope": 1}}), 422, 'unknown field "spec.nope"'),
    (("PATCH", f"{TABLES}/kept", MERGE, {"spec": {"nope": 1, "management": "No"}}), 422, 'unknown field "spec.nope"'),
    (("PATCH", f"{TABLES}/kept", MERGE, {"spec": {"management": "No"}}), 422, "spec.management: Unsupported value"),
    (("PATCH", f"{TABLES}/kept", MERGE, {"metadata": {"labels": 5}}), 422, "cannot unmarshal"),
    (("PATCH", f"{TABLES}/kept", MERGE, DELETED), 422, "metadata.deletionTimestamp: Invalid value: "),
    (("PATCH", f"{TABLES}/kept", MERGE, {"metadata": {"uid": "x"}}), 422, 'metadata.uid: Invalid value: "x": field is'),
    (("PATCH", f"{TABLES}/kept", MERGE, {"metadata": {"name": "x"}}), 400, "does not match the name on the URL (kept)"),
    (("PATCH", f"{TABLES}/kept", STEPS, [{"op": "add", "path": "/spec/nope", "value": 1}]), 422, "unknown field"),
    (("PUT", f"{TABLES}/kept", WHOLE, {"nope": 1}), 400, 'unknown field "nope"'),
    (("PUT", f"{TABLES}/kept", WHOLE, {}), 422, "metadata.resourceVersion: Invalid value: 0: must be specified"),
    (("POST", TABLES, WHOLE, {"nope": 1}), 400, 'unknown field "nope"'),
)  # fmt: skip


def send(api: client.ApiClient, method: str, path: str, media: str, body: Any) -> tuple[int, dict[str, Any]]:
    headers = {"Content-Type": media, "Accept": "application/json"}
    auth = api.configuration.auth_settings().get("BearerToken")
    headers |= {auth["key"]: auth["value"]} if auth else {}
    answer = api.rest_client.request(method, f"{api.configuration.host}{path}", headers=headers, body=body)
    return answer.status, json.loads(answer.read())


@pytest.fixture
def kept(api_client: client.ApiClient, namespace: str) -> str:
    """A namespace with a Table and a ConfigMap."""
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"a": "b"}}
    for path, obj in ((TABLES, manifest("Table", TABLE, "kept")), (MAPS, made)):
        assert send(api_client, "POST", path.format(namespace), WHOLE, obj)[0] == 201
    return namespace


def test_writes_are_refused_by_the_same_status(api_client: client.ApiClient, kept: str) -> None:
    wrong = []
    for (method, path, media, change), code, words in WRITES:
        body = change if method == "PATCH" else {**manifest("Table", TABLE, "kept"), **change}
        found = send(api_client, method, f"{path.format(kept)}?fieldValidation=Strict", media, body)
        if found[0] != code or words not in found[1]["message"]:
            wrong.append((method, path, change, found[0], found[1].get("message")))
    assert wrong == []
