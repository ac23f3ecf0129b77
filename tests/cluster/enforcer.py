"""Hold pods to their NetworkPolicies: `python3 -m tests.cluster.enforcer KUBECONFIG`, a program of the node.

Started by `node`. It follows pods, namespaces and policies, and replaces one nftables table when what they come to
changes. The table stays when the program ends; `residue` removes it. A pod is isolated from when the API tells its
address, which is a moment after its start.
"""

from __future__ import annotations

import http.client
import json
import ssl
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.errors import ClusterError
from tests.cluster.policies import JsonObject, Objects, read_pod, render_rules
from tests.cluster.shell import run

PODS, NAMESPACES, POLICIES = PATHS = (
    "/api/v1/pods",
    "/api/v1/namespaces",
    "/apis/networking.k8s.io/v1/networkpolicies",
)
#: Before a list or watch that failed begins again.
PAUSE_SECONDS = 0.2
#: How long a watch lasts, and how long the server may say nothing.
WATCH_SECONDS, SILENCE_SECONDS = 300, 330


@dataclass
class Mirror:
    """What the API server has of some kinds: what is read of each object, by path of the kind and uid.

    ``changed`` is set when an object came, went or reads otherwise than before.
    """

    readers: dict[str, Callable[[JsonObject], Any]]
    changed: threading.Event = field(default_factory=threading.Event)
    found: dict[str, dict[str, Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def replace(self, path: str, items: Iterable[JsonObject]) -> None:
        """All objects of a kind."""
        self._put(path, {item["metadata"]["uid"]: self.readers[path](item) for item in items})

    def change(self, path: str, kind: str, item: JsonObject) -> None:
        """One object was ADDED, MODIFIED or DELETED."""
        uid = item["metadata"]["uid"]
        others = {known: read for known, read in self.found[path].items() if known != uid}
        self._put(path, others if kind == "DELETED" else others | {uid: self.readers[path](item)})

    def values(self, path: str) -> list[Any]:
        """What was read of all objects of a kind. KeyError before they are known."""
        with self._lock:
            return [value for value in self.found[path].values() if value is not None]

    def is_complete(self) -> bool:
        """Whether all kinds are known."""
        return len(self.found) == len(self.readers)

    def _put(self, path: str, read: dict[str, Any]) -> None:
        with self._lock:
            if self.found.get(path) == read:
                return
            self.found[path] = read
        self.changed.set()


@dataclass(frozen=True)
class Api:
    """The API server as the user of a kubeconfig sees it."""

    server: str
    context: ssl.SSLContext

    @staticmethod
    def of(kubeconfig: Path) -> Api:
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        context.load_cert_chain(user["client-certificate"], user["client-key"])
        return Api(cluster["server"], context)

    def follow(self, path: str, mirror: Mirror) -> None:
        """List the kind and watch it until the server ends that or says that it has forgotten too much."""
        with self._get(path) as answer:
            listed = json.load(answer)
        mirror.replace(path, listed["items"])
        version = listed["metadata"]["resourceVersion"]
        with self._get(f"{path}?watch=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}") as answer:
            for line in answer:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                mirror.change(path, event["type"], event["object"])

    def follow_for_good(self, path: str, mirror: Mirror) -> None:
        """Follow the kind again and again, also while the server is away."""
        while True:
            try:
                self.follow(path, mirror)
            except (OSError, http.client.HTTPException, ValueError) as error:
                print(f"{path}: {error}", file=sys.stderr, flush=True)
            time.sleep(PAUSE_SECONDS)

    def _get(self, path: str) -> http.client.HTTPResponse:
        answer: http.client.HTTPResponse = urllib.request.urlopen(
            self.server + path, context=self.context, timeout=SILENCE_SECONDS
        )
        return answer


def read_namespace(item: JsonObject) -> tuple[str, dict[str, str]]:
    """The name and the labels."""
    return item["metadata"]["name"], item["metadata"].get("labels", {})


def read_policy(item: JsonObject) -> JsonObject:
    """What rules are made from."""
    return {"metadata": {"namespace": item["metadata"]["namespace"]}, "spec": item["spec"]}


def enforce(api: Api) -> None:
    """Follow the cluster and keep the table as it should be. Does not return."""
    mirror = Mirror({PODS: read_pod, NAMESPACES: read_namespace, POLICIES: read_policy})
    for path in PATHS:
        threading.Thread(target=api.follow_for_good, args=(path, mirror), daemon=True).start()
    applied = ""
    while mirror.changed.wait():
        mirror.changed.clear()
        if not mirror.is_complete():
            continue
        objects = Objects(mirror.values(PODS), dict(mirror.values(NAMESPACES)), mirror.values(POLICIES))
        rules = render_rules(objects)
        if rules == applied:
            continue
        try:
            run(["nft", "--file", "-"], text_input=rules)
            applied = rules
        except ClusterError as error:
            print(f"{error}: trying again", file=sys.stderr, flush=True)
            mirror.changed.set()
            time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    enforce(Api.of(Path(sys.argv[1])))
