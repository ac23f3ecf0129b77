"""Installs the chart on the cluster at hand. Used by the demonstration and by the end-to-end tests."""

from __future__ import annotations

from demo.kube import EMBEDDED, ROOT, Kube

SYSTEM = "skipstone-system"


def make_folder(name: str) -> str:
    """A folder on the embedded node that pods of any user can write."""
    path = EMBEDDED / "volumes" / name
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o777)
    return str(path)


def install_arguments(kube: Kube, watched: tuple[str, ...]) -> tuple[str, ...]:
    """helm's arguments that install or upgrade the chart with the cluster's images."""
    values = {
        "image.operator": kube.images.operator,
        "image.spark": kube.images.spark,
        "image.pullPolicy": kube.images.pull_policy,
        "watchNamespaces": "{" + ",".join(watched) + "}",
    }
    settings = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
    chart = str(ROOT / "charts" / "skipstone")
    return ("upgrade", "--install", "skipstone", chart, "--wait", "--timeout", "180s", *settings)


def is_watched(kube: Kube, watched: str) -> bool:
    """Whether an operator of the demonstration's release runs that reconciles the namespace ``watched``."""
    deployment = kube.within(SYSTEM).get("deployment", "skipstone") or {}
    if not deployment.get("status", {}).get("availableReplicas"):
        return False
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    named = next((env.get("value", "") for env in container["env"] if env["name"] == "SKIPSTONE_NAMESPACES"), "")
    return watched in named.split(",")


def lift_finalizers(kube: Kube) -> None:
    """Take the finalizers off whatever is left in the namespace, when no operator is there to do it."""
    listed = kube.run("get", "si,tbl,wh", "-o", "name", check=False)
    if names := [word for word in listed.split() if ".skipstone.dev/" in word]:
        kube.run("patch", *names, "--type=merge", "-p", '{"metadata":{"finalizers":null}}', check=False)
