"""kubectl and helm as the demonstration and the end-to-end tests use them. Standard library only.

`Kube.find()` picks the embedded cluster or, with CLUSTER=current, the user's own context.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.cluster.layout import CACHE, NODE

ROOT = Path(__file__).resolve().parents[1]
#: State of the embedded node: kubeconfig, volumes, logs.
EMBEDDED = NODE.root
JsonObject = dict[str, Any]


class KubeError(RuntimeError):
    """A command was refused or a wait ran out; the text is what kubectl said."""


@dataclass(frozen=True, kw_only=True)
class Images:
    """The images and how nodes get them; those of the S3 server and the REST catalog are on the embedded cluster."""

    operator: str
    spark: str
    demo: str
    pull_policy: str
    versitygw: str = ""
    nessie: str = ""


@dataclass(frozen=True, kw_only=True)
class Kube:
    """One cluster seen through kubectl, in one namespace."""

    kubectl: str
    helm: str
    environment: Mapping[str, str]
    images: Images
    embedded: bool
    namespace: str = "default"

    @staticmethod
    def find() -> Kube:
        """The embedded cluster, or the current context when CLUSTER=current. Raises KubeError when there is none."""
        return current_context() if os.environ.get("CLUSTER") == "current" else embedded_cluster()

    def within(self, namespace: str) -> Kube:
        """The same cluster, another namespace."""
        return replace(self, namespace=namespace)

    def run(self, *arguments: str, text: str | None = None, check: bool = True) -> str:
        """Run kubectl; returns standard output. Raises KubeError with kubectl's own words unless ``check`` is off."""
        return run_tool((self.kubectl, "--namespace", self.namespace, *arguments), self.environment, text, check=check)

    def run_helm(self, *arguments: str) -> str:
        """Run helm in the namespace; returns standard output."""
        return run_tool((self.helm, "--namespace", self.namespace, *arguments), self.environment, None, check=True)

    def apply(self, *sources: Path | JsonObject) -> None:
        """Apply manifest files or objects in one call."""
        files = [part for source in sources if isinstance(source, Path) for part in ("-f", str(source))]
        objects = [source for source in sources if not isinstance(source, Path)]
        if files:
            self.run("apply", *files)
        if objects:
            self.run("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def get(self, kind: str, name: str) -> JsonObject | None:
        """The object, or None when it does not exist."""
        text = self.run("get", kind, name, "--ignore-not-found", "-o", "json")
        return json.loads(text) if text.strip() else None

    def items(self, kind: str, selector: str = "") -> list[JsonObject]:
        """All objects of a kind in the namespace."""
        labels = ("-l", selector) if selector else ()
        objects: list[JsonObject] = json.loads(self.run("get", kind, *labels, "-o", "json"))["items"]
        return objects

    def wait_for(self, what: str, done: Callable[[], bool], *, seconds: float, every: float = 1.0) -> None:
        """Ask until ``done``; raises KubeError naming ``what`` after ``seconds``."""
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                raise KubeError(f"not reached within {seconds:.0f} s: {what}")
            time.sleep(every)


def address(kube: Kube, name: str) -> str:
    """The address of the first port of a Service by its number: the embedded cluster has no DNS."""
    spec = (kube.get("service", name) or {})["spec"]
    return f"http://{spec['clusterIP']}:{spec['ports'][0]['port']}"


def condition(resource: JsonObject | None, kind: str) -> JsonObject:
    """The condition of that type, or an empty object."""
    conditions = (resource or {}).get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == kind), {})


def run_tool(command: Sequence[str], environment: Mapping[str, str], text: str | None, *, check: bool) -> str:
    """Run one command line tool with a bound of ten minutes."""
    done = subprocess.run(
        command, input=text, env=dict(environment), capture_output=True, text=True, timeout=600, check=False
    )
    if check and done.returncode != 0:
        raise KubeError(
            f"{Path(command[0]).name} {' '.join(command[3:7])}: {done.stderr.strip() or done.stdout.strip()}"
        )
    return done.stdout if check else done.stdout + done.stderr


def embedded_cluster() -> Kube:
    """The cluster that `make cluster` started."""
    kubeconfig = EMBEDDED / "kubeconfig"
    if not kubeconfig.exists():
        raise KubeError("the embedded cluster is not running: start it by `make cluster`")
    return Kube(
        kubectl=str(CACHE / "bin" / "kubectl"),
        helm=str(CACHE / "bin" / "helm"),
        environment={**os.environ, "KUBECONFIG": str(kubeconfig)},
        images=Images(
            operator="localhost/skipstone-operator:dev",
            spark="localhost/skipstone-spark:dev",
            demo="localhost/skipstone-demo:dev",
            versitygw="localhost/skipstone-versitygw:dev",
            nessie="localhost/skipstone-nessie:dev",
            pull_policy="Never",
        ),
        embedded=True,
    )


def current_context() -> Kube:
    """The user's own context; images are named by OPERATOR_IMAGE, SPARK_IMAGE and DEMO_IMAGE."""
    tools = {name: shutil.which(name) for name in ("kubectl", "helm")}
    if missing := [name for name, path in tools.items() if path is None]:
        raise KubeError(f"CLUSTER=current needs {missing[0]} on the PATH")
    wanted = ("OPERATOR_IMAGE", "SPARK_IMAGE", "DEMO_IMAGE")
    if unset := [name for name in wanted if not os.environ.get(name)]:
        raise KubeError(f"CLUSTER=current needs {unset[0]}: an image that your cluster can pull (see docs/testbed.md)")
    operator, spark, demo = (os.environ[name] for name in wanted)
    return Kube(
        kubectl=str(tools["kubectl"]),
        helm=str(tools["helm"]),
        environment=dict(os.environ),
        images=Images(operator=operator, spark=spark, demo=demo, pull_policy="IfNotPresent"),
        embedded=False,
    )
