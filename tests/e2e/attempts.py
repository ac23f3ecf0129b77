"""Attempts of pods to connect, as tests of NetworkPolicies make them.

An attempt that a policy forbids gets no answer; one that is let through to a port where nobody listens is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from demo.kube import JsonObject, Kube
from demo.manifests import task_pod
from tests.e2e.lake import PATIENCE

#: Connects once to each HOST:PORT and tells how that ended. The kernel sends the first packet again after a second.
TRY = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def attempt(target):
    host, _, port = target.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1.5).close()
    except TimeoutError:
        return "dropped"
    except ConnectionRefusedError:
        return "refused"
    return "open"
with ThreadPoolExecutor(8) as pool:
    print(json.dumps(list(pool.map(attempt, sys.argv[1:]))))
"""
#: Listens on each PORT and answers each line that it is sent.
LISTEN = """
import socketserver, sys, threading
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line)
servers = [socketserver.ThreadingTCPServer(("", int(port)), Echo) for port in sys.argv[1:]]
for server in servers[1:]:
    threading.Thread(target=server.serve_forever).start()
servers[0].serve_forever()
"""


def attempts(kube: Kube, pod: str, *targets: str) -> list[str]:
    """How one attempt to connect to each host:port ends: open, refused or dropped. ``pod``: also deploy/<name>."""
    found: list[str] = json.loads(kube.run("exec", pod, "--", "python", "-c", TRY, *targets))
    return found


def until_attempts(kube: Kube, pod: str, *ends: tuple[str, str]) -> None:
    """Try until each attempt, a target and the end that it should have, ends so. Raises KubeError with what it saw."""
    targets, wanted = [target for target, _ in ends], [end for _, end in ends]
    seen: list[list[str]] = [[]]

    def look() -> bool:
        seen[0] = attempts(kube, pod, *targets)
        return seen[0] == wanted

    try:
        kube.wait_for(f"attempts of {pod} end as {dict(ends)}", look, seconds=PATIENCE)
    except Exception as error:
        raise type(error)(f"{error}; they end as {seen[0]}") from error


def listening_pod(kube: Kube, name: str, ports: Mapping[str, int], labels: Mapping[str, str]) -> JsonObject:
    """A pod that listens on ports by name, of which the node probes the first one. Without ports, it just lives."""
    numbers = list(ports.values())
    command = ("python", "-c", LISTEN, *map(str, numbers)) if ports else ("sleep", "3600")
    pod = task_pod(name, kube.images.demo, command, pull_policy=kube.images.pull_policy)
    pod["metadata"]["labels"] = dict(labels)
    pod["spec"]["terminationGracePeriodSeconds"] = 0
    if ports:
        probe = {"tcpSocket": {"port": numbers[0]}, "periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 3}
        named = [{"name": port, "containerPort": number} for port, number in ports.items()]
        pod["spec"]["containers"][0] |= {"ports": named, "readinessProbe": probe}
    return pod


def address_of(kube: Kube, pod: str) -> str:
    """The address of a pod, once it is ready."""
    kube.run("wait", "pod", pod, "--for=condition=Ready", f"--timeout={PATIENCE:.0f}s")
    found = kube.get("pod", pod) or {}
    return str(found["status"]["podIP"])


def policy(name: str, spec: JsonObject) -> JsonObject:
    """A NetworkPolicy."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }
