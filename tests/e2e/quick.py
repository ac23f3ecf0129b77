"""The cluster as ``demo.kube`` sees it, with reads that start no kubectl: tests wait by asking again and again.

A kubectl for each question took more processor time than the operator.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from demo.kube import JsonObject, Kube, KubeError

OURS = "/apis/skipstone.dev/v1alpha1/namespaces/{namespace}"
#: Where objects are, by what kubectl calls their kind.
COLLECTIONS = {
    **dict.fromkeys(("wh", "warehouse"), f"{OURS}/warehouses"),
    **dict.fromkeys(("tbl", "table"), f"{OURS}/tables"),
    **dict.fromkeys(("si", "secondaryindex"), f"{OURS}/secondaryindexes"),
    **dict.fromkeys(("lj", "loadjob"), f"{OURS}/loadjobs"),
    **dict.fromkeys(("mj", "mergejob"), f"{OURS}/mergejobs"),
    **dict.fromkeys(("ms", "mergeschedule"), f"{OURS}/mergeschedules"),
    **dict.fromkeys(("pod", "pods"), "/api/v1/namespaces/{namespace}/pods"),
    "deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "service": "/api/v1/namespaces/{namespace}/services",
    "networkpolicy": "/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies",
    "events": "/api/v1/namespaces/{namespace}/events",
    "namespace": "/api/v1/namespaces",
}
#: Connections that nobody uses now.
_idle: list[HTTPSConnection] = []


class QuickKube(Kube):
    """The embedded cluster. What changes something, and what people see, still goes through kubectl."""

    def get(self, kind: str, name: str) -> JsonObject | None:
        """The object, or None when it does not exist."""
        return self._ask(f"{self._path(kind)}/{name}")

    def items(self, kind: str, selector: str = "") -> list[JsonObject]:
        """All objects of the kinds, named with commas between them, in the namespace."""
        query = f"?{urlencode({'labelSelector': selector})}" if selector else ""
        lists = [self._ask(self._path(one) + query) for one in kind.split(",")]
        return [item for found in lists if found is not None for item in found["items"]]

    def wait_for(self, what: str, done: Callable[[], bool], *, seconds: float, every: float = 1.0) -> None:
        """Ask until ``done``; raises KubeError naming ``what`` after ``seconds``."""
        super().wait_for(what, done, seconds=seconds, every=every)

    def _path(self, kind: str) -> str:
        return COLLECTIONS[kind.lower()].format(namespace=self.namespace)

    def _ask(self, path: str) -> JsonObject | None:
        """The answer to a GET; None for 404. Asks again when the server has closed the connection meanwhile."""
        try:
            connection = _idle.pop()
        except IndexError:
            connection = self._connect()
        try:
            status, text = _answer(connection, path)
        except (OSError, HTTPException):
            connection = self._connect()
            status, text = _answer(connection, path)
        _idle.append(connection)
        if status == 404:
            return None
        if status != 200:
            raise KubeError(f"GET {path}: {status} {text.decode(errors='replace')}")
        found: JsonObject = json.loads(text)
        return found

    def _connect(self) -> HTTPSConnection:
        """As the administrator whom the kubeconfig names."""
        config = json.loads(Path(self.environment["KUBECONFIG"]).read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        context.load_cert_chain(user["client-certificate"], user["client-key"])
        server = urlsplit(cluster["server"])
        return HTTPSConnection(str(server.hostname), server.port, timeout=60, context=context)


def _answer(connection: HTTPSConnection, path: str) -> tuple[int, bytes]:
    try:
        connection.request("GET", path, headers={"Accept": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except BaseException:
        connection.close()
        raise


@contextmanager
def quick(kube: Kube) -> Iterator[QuickKube]:
    """The same cluster and namespace; closes the connections at the end."""
    yield QuickKube(**{field.name: getattr(kube, field.name) for field in fields(kube)})
    while _idle:
        _idle.pop().close()
