"""A registry on the loopback address, a key, releases in it, and earlier versions of the project.

The node's containerd pulls from the registry as from any other: it speaks HTTP with registries on the loopback address
by itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

from demo.kube import ROOT, JsonObject, Kube
from tests.cluster.image_build import buildah
from tests.cluster.layout import NODE
from tests.cluster.node import ctr
from tests.cluster.processes import Program, start_program, stop_program
from tests.cluster.shell import run, wait_until
from tests.cluster.toolchain import build_tools
from tests.e2e.lake import CLAIM, Lake, lake_objects, lakes_of, remove_all
from tests.ports import free_port

LAKE = "e2e-release"
SYSTEM = "e2e-release-system"
#: Folders of earlier versions, by commit.
EARLIER = ROOT / ".cache" / "earlier"
#: What an earlier version's own program builds of its images, given the folder of that version.
BUILD = """
import json
from tests.cluster import image_build
names = ("skipstone-operator", "skipstone-spark")
image_build.IMAGES = tuple(image for image in image_build.IMAGES if image.name in names)
print(json.dumps(image_build.build_images()))
"""


@dataclass(frozen=True)
class Registry:
    """A running registry: its address, and the path in it that releases go to."""

    address: str

    @property
    def place(self) -> str:
        return f"{self.address}/team"

    @property
    def chart(self) -> str:
        return f"oci://{self.place}/charts/skipstone"

    def push(self, tag: str, name: str) -> str:
        """Push an image that buildah built as `name`; its full name, with the digest."""
        full = f"{self.place}/{name}"
        with_digest = NODE.root / "run" / "pushed"
        run(buildah("push", "--tls-verify=false", "--digestfile", with_digest, tag, f"docker://{full}"))
        return f"{full}@{with_digest.read_text().strip()}"


@contextmanager
def registry_running(folder: Path) -> Iterator[Registry]:
    """A registry that keeps what it holds in ``folder``."""
    address = f"127.0.0.1:{free_port()}"
    folder.mkdir(parents=True)
    config = {
        "version": 0.1,
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(folder)}},
        "http": {"addr": address},
    }
    (folder / "config.json").write_text(json.dumps(config))
    program = Program("release-registry", [build_tools(["registry"])["registry"], "serve", folder / "config.json"])
    start_program(NODE, program, die_with_parent=True)
    try:
        wait_until(lambda: _answers(address), seconds=300, failure=f"no registry answers at {address}")
        yield Registry(address)
    finally:
        stop_program(NODE, program.name)
        names = run([*ctr(NODE), "images", "list", "--quiet"]).split()
        if pulled := [name for name in names if name.startswith(address)]:
            run([*ctr(NODE), "images", "remove", *pulled])


def _answers(address: str) -> bool:
    connection = HTTPConnection(address, timeout=10)
    try:
        connection.request("GET", "/v2/")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def run_release(command: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """`python -m release <command>`, as make calls it."""
    words = [sys.executable, "-m", "release", command]
    settings = {**os.environ, **environment}
    return subprocess.run(words, cwd=ROOT, env=settings, capture_output=True, text=True, check=False, timeout=3000)


def find_earlier(given: str) -> str:
    """The commit of the version to upgrade from: ``given``, or the newest tag that is not of this commit."""
    if given:
        return run(["git", "rev-parse", f"{given}^{{commit}}"], cwd=ROOT).strip()
    return run(["git", "rev-list", "--max-count=1", _newest_tag()], cwd=ROOT).strip()


def _newest_tag() -> str:
    tags = run(["git", "tag", "--merged", "HEAD~1", "--sort=-creatordate"], cwd=ROOT).split()
    if not tags:
        raise LookupError("there is no tag of an earlier version: name a commit to upgrade from by FROM=…")
    return tags[0]


def check_out(commit: str) -> Path:
    """The files of a commit, in a folder of their own."""
    folder = EARLIER / commit[:12]
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        partial.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True, timeout=300)
        subprocess.run(["tar", "-x", "-C", partial], input=archive.stdout, check=True, timeout=300)
        partial.rename(folder)
    return folder


def build_earlier(folder: Path) -> dict[str, str]:
    """The images of the version in ``folder``, by its own program; tags by name."""
    said = run(["python3", "-c", BUILD], cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)})
    found: dict[str, str] = json.loads(said.splitlines()[-1])
    return found


@contextmanager
def release_lake(kube: Kube) -> Iterator[Lake]:
    """An empty lake, and a namespace for the release that will serve it."""
    clear(kube)
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}, *lake_objects(LAKE))
    lake = lakes_of(kube, (LAKE,))[LAKE]
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    body = {"spec": {**claim, "storageClassName": "", "volumeName": f"e2e-{LAKE}"}}
    lake.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM}, **body})
    yield lake
    clear(kube)


def clear(kube: Kube) -> None:
    """Remove the lake and the release, also those of a run that was cut off."""
    remove_all(kube, (LAKE,), SYSTEM)


def install(kube: Kube, *chart: str, images: Mapping[str, str] | None = None) -> None:
    """Install or upgrade the release by a chart (a folder, or an address and options)."""
    values = {"crds.enabled": "false", "watchNamespaces": f"{{{LAKE}}}", **(images or {})}
    settings = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    options = ("--install", "--wait", "--timeout", "600s", "--reset-values")
    kube.within(SYSTEM).run_helm("upgrade", "skipstone", *chart, *options, *settings)


def apply_crds(kube: Kube, folder: Path) -> str:
    """Apply the CRDs of a version, unless others use those that are there; says which."""
    found = json.loads(kube.run("get", "crd", "-o", "json"))["items"]
    ours = [one["metadata"]["name"] for one in found if one["spec"]["group"] == "skipstone.dev"]
    users = _namespaces_with_objects(kube) - {LAKE} if ours else set()
    if users:
        return f"the CRDs stay as they are, because {', '.join(sorted(users))} use them"
    kube.run("apply", "--server-side", "--force-conflicts", "-f", str(folder / "crds"))
    return f"the CRDs are those of {folder}"


def _namespaces_with_objects(kube: Kube) -> set[str]:
    listed = json.loads(kube.run("get", "wh,tbl", "--all-namespaces", "-o", "json"))["items"]
    return {one["metadata"]["namespace"] for one in listed}


def pods_images(kube: Kube, selector: str) -> dict[str, str]:
    """The image that each pod was started from, by the pod's name, as its spec says."""
    found: list[JsonObject] = kube.items("pods", selector)
    return {pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"] for pod in found}
