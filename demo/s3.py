"""An S3 server (versitygw) and a REST catalog (Nessie) in pods, for the demonstration and the end-to-end tests.

`start` puts both into a namespace and returns their addresses. What they hold ends with their pods: there is no claim.
The cluster must have their images: `make cluster STORAGE=s3`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from demo.kube import Kube, address
from demo.manifests import CONTAINER_SECURITY, POD_SECURITY

JsonObject = dict[str, Any]
REGION = "eu-central-1"
#: The one account of the S3 server. It guards nothing: the server is in the cluster and ends with it.
ACCESS_KEY, SECRET_KEY = "skipstone-demo", "demo/secret+of=buckets"
KEYS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
BUCKETS, CATALOG = "s3", "catalog"
PORTS = {BUCKETS: 7070, CATALOG: 19120}
#: Ready when these answer.
PROBES = {BUCKETS: "/health", CATALOG: "/iceberg/v1/config"}
SECRET = "s3-keys"
START_SECONDS = 600


@dataclass(frozen=True, kw_only=True)
class Endpoints:
    """Addresses inside the cluster: of the S3 server and of the REST catalog."""

    s3: str
    catalog: str


def start(kube: Kube, *, buckets: Sequence[str], warehouses: Mapping[str, str]) -> Endpoints:
    """Both servers in the namespace of ``kube``, ready to use.

    ``buckets``: the empty buckets of the server. ``warehouses``: the location in a bucket (s3://bucket/prefix) of each
    warehouse that the catalog knows; the first one is the default.
    """
    kube.apply(keys_secret(SECRET), service(BUCKETS), service(CATALOG))
    endpoints = Endpoints(s3=address(kube, BUCKETS), catalog=f"{address(kube, CATALOG)}/iceberg")
    kube.apply(s3_server(kube, buckets), rest_catalog(kube, endpoints.s3, warehouses))
    for name in (BUCKETS, CATALOG):
        kube.run("rollout", "status", f"deployment/{name}", f"--timeout={START_SECONDS}s")
    return endpoints


def keys_secret(name: str) -> JsonObject:
    """A Secret with the keys of the S3 server, as a Warehouse names it."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": KEYS}


def service(name: str) -> JsonObject:
    """The Service of a server."""
    spec = {"selector": {"app": name}, "ports": [{"port": PORTS[name]}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def s3_server(kube: Kube, buckets: Sequence[str]) -> JsonObject:
    """versitygw. A bucket is a folder, and each folder a volume of its own, so that no request has to make it."""
    options = (f"--port=:{PORTS[BUCKETS]}", f"--region={REGION}", f"--health={PROBES[BUCKETS]}")
    folders = {f"bucket-{name}": f"/buckets/{name}" for name in buckets}
    container = {
        "image": kube.images.versitygw,
        "args": [*options, "posix", "--sidecar=/metadata", "/buckets"],
        "env": [
            key_variable("ROOT_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
            key_variable("ROOT_SECRET_KEY", "AWS_SECRET_ACCESS_KEY"),
        ],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
    }
    return deployment(BUCKETS, kube, container, {"buckets": "/buckets", "metadata": "/metadata", **folders})


def rest_catalog(kube: Kube, endpoint: str, warehouses: Mapping[str, str]) -> JsonObject:
    """Nessie, which remembers tables as long as it runs. It gives no keys to its clients."""
    s3 = "nessie.catalog.service.s3.default-options"
    settings = {
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": next(iter(warehouses)),
        **{f"nessie.catalog.warehouses.{name}.location": place for name, place in warehouses.items()},
        f"{s3}.endpoint": endpoint,
        f"{s3}.region": REGION,
        f"{s3}.path-style-access": "true",
        f"{s3}.request-signing-enabled": "false",
        f"{s3}.access-key": "urn:nessie-secret:quarkus:keys",
        "quarkus.otel.sdk.disabled": "true",
    }
    container = {
        "image": kube.images.nessie,
        "env": [
            {"name": "JAVA_TOOL_OPTIONS", "value": " ".join(f"-D{key}={value}" for key, value in settings.items())},
            key_variable("KEYS_NAME", "AWS_ACCESS_KEY_ID"),
            key_variable("KEYS_SECRET", "AWS_SECRET_ACCESS_KEY"),
        ],
        "resources": {"requests": {"cpu": "100m", "memory": "384Mi"}, "limits": {"memory": "768Mi"}},
    }
    return deployment(CATALOG, kube, container, {})


def deployment(name: str, kube: Kube, container: JsonObject, folders: Mapping[str, str]) -> JsonObject:
    """One pod of ``container`` with an empty volume at each of ``folders``."""
    volumes = {**folders, "scratch": "/tmp"}
    container |= {
        "name": name,
        "imagePullPolicy": kube.images.pull_policy,
        "readinessProbe": {"httpGet": {"port": PORTS[name], "path": PROBES[name]}, "periodSeconds": 1},
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [{"name": volume, "mountPath": path} for volume, path in volumes.items()],
    }
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": POD_SECURITY,
        "containers": [container],
        "volumes": [{"name": volume, "emptyDir": {}} for volume in volumes],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "skipstone-demo"}},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "strategy": {"type": "Recreate"},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
        },
    }


def key_variable(variable: str, key: str) -> JsonObject:
    """An environment variable with one of the keys."""
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": SECRET, "key": key}}}
