"""Objects that an API server takes or refuses for other reasons than a rule: metadata, types, Kubernetes' own kinds."""

from __future__ import annotations

import base64
from typing import Any

from tests.kube.cases import ABSENT, TABLE, WAREHOUSE, manifest

JsonObject = dict[str, Any]
TIME = "2026-01-02T03:04:05Z"
OWNER: JsonObject = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b", "controller": True}
READY: JsonObject = {"type": "Ready", "status": "True", "reason": "Created", "lastTransitionTime": TIME}

#: Metadata of a Table that is created.
METADATA: dict[str, JsonObject] = {
    "label": {"labels": {"a": "b", "example.org/c": ""}},
    "label-ill-formed": {"labels": {"a b": "b c"}},
    "label-long": {"labels": {"x" * 64: "y" * 64}},
    "label-keys": {"labels": {"/a": "x", "a/": "y", "a/b/c": "z", "A.org/x": "1"}},
    "label-null": {"labels": {"a": None}},
    "label-number": {"labels": {"a": 1}},
    "labels-null": {"labels": None},
    "labels-text": {"labels": "x"},
    "labels-list": {"labels": []},
    "annotation-ill-formed": {"annotations": {"a b": "x", "UPPER/x": "y"}},
    "annotations-large": {"annotations": {"a": "x" * (256 * 1024)}},
    "annotation-flag": {"annotations": {"a": True}},
    "annotations-empty": {"annotations": {}},
    "unknown": {"foo": 1, "labels": {}},
    "finalizers": {"finalizers": ["a", "b.c", "x/y", "foregroundDeletion", "orphan"]},
    "finalizer-ill-formed": {"finalizers": ["a b"]},
    "finalizers-text": {"finalizers": "x"},
    "finalizer-number": {"finalizers": [1]},
    "finalizer-null": {"finalizers": [None]},
    "owner-empty": {"ownerReferences": [{}]},
    "owners-of-control": {"ownerReferences": [OWNER, {**OWNER, "name": "c", "foo": 1}]},
    "owner-event": {"ownerReferences": [{**OWNER, "kind": "Event"}]},
    "owner-text": {"ownerReferences": ["x"]},
    "generation": {"generation": 5},
    "generation-text": {"generation": "x"},
    "generation-fraction": {"generation": 1.5},
    "deletion": {"deletionGracePeriodSeconds": 3, "deletionTimestamp": TIME},
    "time-null": {"creationTimestamp": None},
    "time-ill-formed": {"creationTimestamp": "x"},
    "prefix": {"generateName": "ok-"},
    "prefix-ill-formed": {"generateName": "Abc-"},
    "self-link": {"selfLink": "x"},
    "name-number": {"name": 5},
    "name-ill-formed": {"name": "A_b"},
    "name-with-dots": {"name": "a..b"},
    "name-long": {"name": "n" * 254},
    "managers-null": {"managedFields": None},
}
#: Changes of a stored Table with a status.
UPDATES: dict[str, JsonObject] = {
    "labels": {"metadata.labels": {"a": "b"}},
    "label-ill-formed": {"metadata.labels": {"a b": "b"}},
    "without-version": {"metadata.resourceVersion": ABSENT},
    "generation": {"metadata.generation": 7},
    "times": {"metadata.creationTimestamp": TIME, "metadata.deletionTimestamp": TIME},
    "finalizers": {"metadata.finalizers": ["a.b/c", "x"]},
    "status": {"status": {"rows": 1}},
    "without-status": {"status": ABSENT},
    "without-columns": {"spec.columns": []},
    "without-spec": {"spec": ABSENT},
    "columns-in-other-order": {
        "spec.columns": [{"name": name, "type": kind} for name, kind in (("id", "long"), ("day", "date"))]
    },
}
#: Statuses of a stored Table.
STATUSES: dict[str, Any] = {
    "empty": {},
    "text": "x",
    "null": None,
    "type": {"rows": "many"},
    "conditions-twice": {"conditions": [READY, READY]},
    "unknown": {"foo": 1, "rows": 2},
    "condition-ill-formed": {"conditions": [{"type": "", "status": "Maybe", "lastTransitionTime": "x"}]},
    **{
        f"time-{name}": {"conditions": [{**READY, "lastTransitionTime": value}]}
        for name, value in {
            "list": [], "number": 5, "flag": True, "hour": "2026-01-02T24:00:00Z", "zone": "2026-01-02T00:00:00+01:00",
            "day": "2026-02-30T00:00:00Z", "no-zone": "2026-01-02T00:00:00", "lower": "2026-01-02t00:00:00.5z",
        }.items()
    },
    "below-least": {"rows": -1, "observedGeneration": -2},
    "fractions": {"rows": 1.0, "files": 1.5},
    "large-numbers": {"rows": 2**70, "bytes": 1e25, "files": -1.5e-7},
    "nulls-in-lists": {"conditions": [None], "caveats": [None, 1]},
}  # fmt: skip
#: Specs of Tables and Warehouses with values of wrong types.
SPECS: dict[str, JsonObject] = {
    **{f"spec-{value!r}": {**manifest("Table", TABLE), "spec": value} for value in ("x", None, [], 5, {})},
    "without-spec": {name: value for name, value in manifest("Table", TABLE).items() if name != "spec"},
    "status": {**manifest("Table", TABLE), "status": {"rows": "x"}},
    "field-at-the-root": {**manifest("Table", TABLE), "sepc": {"a": [{"b": 1}]}},
    "html": manifest("Table", {**TABLE, "columns": {"<a>&": "\u2028\u00e9\x00\x7f"}}),
    "list-in-a-text": manifest("Warehouse", {**WAREHOUSE, "indexNamespace": [{"a": 1}, [{"b": 2}]]}),
    "number-in-a-text": manifest("Warehouse", {**WAREHOUSE, "indexNamespace": 1e21}),
}


def _named(kind: str, **fields: Any) -> JsonObject:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "case"}, **fields}


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


CONTAINER: JsonObject = {"name": "a", "image": "i"}
_CLAIM: JsonObject = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def _pod(**fields: Any) -> JsonObject:
    return _named("Pod", spec={"containers": [CONTAINER], **fields})


def _container(**fields: Any) -> JsonObject:
    return _pod(containers=[{**CONTAINER, **fields}])


#: Kinds of Kubernetes; the sentences of both judges are the same.
BUILTIN: dict[str, JsonObject] = {
    "config-map-keys": _named("ConfigMap", data={"a b": "b", "..": "x", "..a": "y", ".": ""}),
    "config-map-number": _named("ConfigMap", data={"a": 1}),
    "config-map-null": _named("ConfigMap", data={"a": None}),
    "config-map-large": _named("ConfigMap", data={"a": "x" * (1024 * 1024 + 1)}),
    "config-map-key-twice": _named("ConfigMap", data={"a": "1"}, binaryData={"a": _base64("x")}),
    "config-map-not-base64": _named("ConfigMap", binaryData={"a": "x!"}),
    "config-map-label": {**_named("ConfigMap"), "metadata": {"name": "case", "labels": {"a": 1}}},
    "config-map-name": {**_named("ConfigMap"), "metadata": {"name": "A_b"}},
    "secret": _named("Secret", data={"a": _base64("x")}),
    "secret-of-texts": _named("Secret", stringData={"a": "\u00fc"}, data={"a": _base64("1"), "b": _base64("2")}),
    "secret-not-base64": _named("Secret", data={"a": "???"}),
    "secret-key": _named("Secret", stringData={"a b": ""}),
    "pod-without-containers": _pod(containers=[]),
    "pod-empty": _named("Pod"),
    "pod-container-empty": _pod(containers=[{}]),
    "pod-container-name": _pod(containers=[{"name": "A", "image": ""}]),
    "pod-container-twice": _pod(containers=[CONTAINER, CONTAINER]),
    "pod-policy": _pod(restartPolicy="Sometimes"),
    "pod-variables": _container(env=[{"name": "", "value": "x"}, {"name": "a=b"}]),
    "pod-mounts": {
        **_container(volumeMounts=[{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/a"}, {}]),
    },
    "pod-volumes": _pod(
        volumes=[
            {"name": "w"},
            {"name": "W", "emptyDir": {}},
            {"name": "p", "persistentVolumeClaim": {}},
            *[{"name": "p", "emptyDir": {}}] * 2,
        ]
    ),
    "pod-amount": _container(resources={"requests": {"cpu": "2", "memory": "x"}}),
    "pod-over-limit": _container(
        resources={"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": 1, "memory": "1024Mi"}}
    ),
    "claim-empty": _named("PersistentVolumeClaim", spec={}),
    "claim-modes": _named(
        "PersistentVolumeClaim",
        spec={
            "accessModes": ["X", "ReadWriteOncePod", "ReadWriteMany"],
            "resources": {"requests": {"storage": "0"}},
            "volumeMode": "x",
        },
    ),
    "claim-amount": _named("PersistentVolumeClaim", spec={**_CLAIM, "resources": {"requests": {"storage": "1GB"}}}),
}
#: Kinds of Kubernetes that a server takes; it adds more defaults than admission does.
BUILTIN_ACCEPTED: dict[str, JsonObject] = {"pod": _pod(), "claim": _named("PersistentVolumeClaim", spec=_CLAIM)}
#: For a stored object of each kind, changes of it and whether they are taken.
BUILTIN_UPDATES: tuple[tuple[JsonObject, JsonObject, bool], ...] = (
    (_named("ConfigMap", data={"a": "b"}), {"data": {"a": 1}}, False),
    (_named("ConfigMap", data={"a": "b"}), {"data": {"a": "c"}, "metadata.resourceVersion": ABSENT}, True),
    (_named("ConfigMap", data={"a": "b"}, immutable=True), {"data.a": "c"}, False),
    (_named("ConfigMap", data={"a": "b"}, immutable=True), {"metadata.labels": {"a": "b"}}, True),
    (_named("Secret", data={"a": _base64("b")}), {"type": "example.org/x"}, False),
    (_named("Secret", data={"a": _base64("b")}), {"stringData": {"c": "d"}}, True),
    (_pod(), {"spec.containers.0.image": "j"}, True),
    (_pod(), {"spec.containers.0.args": ["j"]}, False),
    (_pod(), {"metadata.annotations": {"a": "b"}}, True),
    (_named("PersistentVolumeClaim", spec=_CLAIM), {"spec.accessModes": ["ReadWriteMany"]}, False),
    (_named("PersistentVolumeClaim", spec=_CLAIM), {"spec.resources.requests.storage": "2Gi"}, False),
    (_named("PersistentVolumeClaim", spec=_CLAIM), {"metadata.annotations": {"a": "b"}}, True),
)
