"""What Skipstone's CRDs do not use yet, and rules that are newer than an object: judged as a kube-apiserver does."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from kubernetes import client
from skipstone_local.admission import Admission

from tests.cluster.controlplane import ControlPlane
from tests.cluster.shell import wait_until
from tests.kube.cases import ABSENT, changed
from tests.kube.twins import JsonObject, Judges, Verdict

PAIR: JsonObject = {
    "type": "object",
    "required": ["key"],
    "properties": {"key": {"type": "string"}, "value": {"type": "integer"}},
    "x-kubernetes-validations": [{"rule": "!has(self.value) || self.value != 13", "message": "13 is unlucky"}],
}
SPEC: JsonObject = {
    "type": "object",
    "properties": {
        "port": {"x-kubernetes-int-or-string": True, "maxLength": 5, "minimum": 1},
        "maybe": {"type": "string", "nullable": True, "default": "here"},
        "never": {"type": "string", "default": "there"},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "pairs": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["key"],
            "items": PAIR,
        },
        "named": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {
                "type": "string",
                "x-kubernetes-validations": [{"rule": "self != 'bad'", "reason": "FieldValueForbidden"}],
            },
        },
        "level": {"type": "integer", "enum": [1, 2, 3]},
        "free": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"known": {"type": "object", "properties": {"a": {"type": "boolean"}}}},
        },
        "numbers": {"type": "array", "items": {"type": "integer"}},
        "text": {"type": "string"},
    },
    "x-kubernetes-validations": [
        {"rule": "!has(self.set) || !has(oldSelf.set) || self.set == oldSelf.set", "message": "set is fixed"},
        {"rule": "!has(self.pairs) || !has(oldSelf.pairs) || self.pairs == oldSelf.pairs", "fieldPath": ".pairs"},
        {"rule": "!has(self.text) || self.text != 'twice'", "fieldPath": ".text", "reason": "FieldValueDuplicate"},
        {"rule": "!has(self.text) || self.text != 'needed'", "fieldPath": ".text", "reason": "FieldValueRequired"},
        {
            "rule": "!has(self.text) || self.text != 'long'",
            "message": "the message",
            "messageExpression": "self.numbers[7] > 0 ? 'a' : 'b'",
        },
        {"rule": "!has(self.text) || self.text != 'lines'", "messageExpression": "'a\\nb'"},
        {"rule": "!has(self.numbers) || self.numbers[2] > 0"},
    ],
}
SAMPLE: JsonObject = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "samples.tests.example.org"},
    "spec": {
        "group": "tests.example.org",
        "names": {"kind": "Sample", "plural": "samples", "singular": "sample", "listKind": "SampleList"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC}}},
            }
        ],
    },
}
CREATED: tuple[JsonObject, ...] = (
    *({"port": port} for port in (80, "http", "too-long", 0, 1.5, True, None, [])),
    *({"maybe": value, "never": value} for value in (None, "x", 1)),
    *({"set": items} for items in (["a", "b"], ["a", "a", "a"], [1, 1.0, True, "a"], [None, None])),
    *({"pairs": items} for items in ([{"key": "a"}, {"key": "b"}], [{"key": "a"}] * 2, [{}, {}], [None, "x"])),
    {"pairs": [{"key": "a", "value": 13}]},
    *({"named": value} for value in ({}, {"a": "b"}, {"a": "bad", "b": "bad"}, {"a.b": 1}, {"a": None})),
    *({"level": value} for value in (1, 1.0, 4, "1", True, None)),
    {"free": {"a": {"b": [1, {"c": 2}]}, "known": {"a": True, "b": 1}, "n": None}},
    *({"text": text} for text in ("twice", "needed", "long", "lines")),
    {"text": "long", "numbers": [1, 2, 3]},
    *({"numbers": items} for items in ([1, 2, 3], [1], [1, 2, 0], [2**63 - 1, 2**63, 1.0], ["1"])),
)
OLD: JsonObject = {"set": ["a", "b"], "pairs": [{"key": "a", "value": 1}, {"key": "b"}], "text": "x"}
UPDATED: tuple[JsonObject, ...] = (
    {"set": ["b", "a"], "pairs": [{"key": "b"}, {"key": "a", "value": 1}]},
    {"set": ["b", "c"]},
    {"pairs": [{"key": "a", "value": 2}, {"key": "b"}]},
    {"pairs": [{"key": "a", "value": 1}]},
    {"pairs": ABSENT, "set": ABSENT},
)
#: A schema that OLD breaks.
NEWER: JsonObject = changed(
    SPEC,
    {
        "properties/text/maxLength": 2,
        "properties/set/maxItems": 1,
        "properties/pairs/items/properties/key/minLength": 2,
        "properties/pairs/items/x-kubernetes-validations": [{"rule": "self.key != 'a'", "message": "a is gone"}],
        "x-kubernetes-validations": [{"rule": "!has(self.text) || self.text != 'old'", "message": "old is gone"}],
    },
)
STALE: JsonObject = {**OLD, "text": "old"}
RATCHETED: tuple[JsonObject, ...] = (
    {"level": 1},
    {"text": "olds"},
    {"text": "ok", "set": ["a"]},
    {"set": ["a", "b", "c"]},
    {"pairs": [{"key": "a", "value": 2}, {"key": "b"}]},
    {"pairs": [{"key": "b"}, {"key": "a", "value": 1}, {"key": "c"}]},
)


def sample(name: str, spec: JsonObject, namespace: str) -> JsonObject:
    return {
        "apiVersion": "tests.example.org/v1",
        "kind": "Sample",
        "metadata": {"name": name, "namespace": namespace},
        "spec": copy.deepcopy(spec),
    }


def with_spec(spec: JsonObject) -> JsonObject:
    return changed(SAMPLE, {"spec.versions.0.schema.openAPIV3Schema.properties.spec": spec})


@pytest.fixture(scope="module")
def extensions(api_client: client.ApiClient, control_plane: ControlPlane) -> client.ApiextensionsV1Api:
    """The definition of Sample is served."""
    found = client.ApiextensionsV1Api(api_client)
    found.create_custom_resource_definition(SAMPLE)
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=300s", "crd/samples.tests.example.org")
    return found


def is_enforced(judges: Judges, probe: JsonObject) -> bool:
    """Whether the server enforces the newer schema."""
    return judges.create(probe)[0].status == 422


def compare(name: object, verdicts: tuple[Verdict, Verdict]) -> list[tuple[object, Verdict, Verdict]]:
    return [] if verdicts[0] == verdicts[1] else [(name, *verdicts)]


@pytest.mark.cluster("it defines a kind of its own")
def test_schemas_and_rules_of_other_kinds_are_judged_alike(
    api_client: client.ApiClient, extensions: client.ApiextensionsV1Api, namespace: str
) -> None:
    judges = Judges(api_client, Admission.load((SAMPLE,)))
    wait_until(
        lambda: judges.create(sample("probe", {}, namespace))[0].status == 200, seconds=300, failure="not served"
    )
    found: list[Any] = []
    for spec in CREATED:
        found += compare(spec, judges.create(sample("case", spec, namespace)))
    old = judges.store(sample("old", OLD, namespace))
    stale = judges.store(sample("stale", STALE, namespace))
    for changes in UPDATED:
        found += compare(changes, judges.replace({**old, "spec": changed(old["spec"], changes)}, old))
    assert found == []

    newer = with_spec(NEWER)
    extensions.patch_custom_resource_definition("samples.tests.example.org", newer)
    judges = Judges(api_client, Admission.load((newer,)))
    probe = sample("probe", {"text": "long text"}, namespace)
    wait_until(lambda: is_enforced(judges, probe), seconds=300, failure="the newer schema is not enforced")
    for changes in RATCHETED:
        found += compare(changes, judges.replace({**stale, "spec": changed(stale["spec"], changes)}, stale))
    assert found == []
