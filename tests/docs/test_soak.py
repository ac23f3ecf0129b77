"""`make soak-docs`: pages of the documentation followed as they are printed, on the embedded cluster.

kind and Docker are stand-ins; `blocks.yaml` lists what else is not run. What was run and what came
is kept in build/docs-run.txt.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.install import lift_finalizers
from demo.kube import Kube
from tests.cluster.layout import NODE
from tests.docs.blocks import ROOT, Accounts
from tests.docs.follow import HELM, Reader, name_of

TRANSCRIPT = ROOT / "build" / "docs-run.txt"
#: A bound against hangs, for one page.
BOUND = 5400
pytestmark = [pytest.mark.soak, pytest.mark.timeout(BOUND)]


def volume(name: str, namespace: str, folder: Path) -> dict[str, object]:
    """What kind's provisioner would make for the claim `lake` of ``namespace``: an empty volume for it alone."""
    subprocess.run(["rm", "-rf", str(folder)], check=True)
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "claimRef": {"namespace": namespace, "name": "lake"},
            "hostPath": {"path": str(folder), "type": "Directory"},
        },
    }


def remove(kube: Kube, namespaces: tuple[str, ...], volume_name: str) -> None:
    """Release, namespaces and volume, as far as they are there."""
    lake, system = namespaces
    kube.within(lake).run("delete", "ms,mj,lj,si,tbl,wh", "--all", "--wait=false", check=False)
    subprocess.run(
        [kube.helm, "uninstall", "skipstone", "--namespace", system],
        env={**kube.environment},
        capture_output=True,
        check=False,
    )
    lift_finalizers(kube.within(lake))
    for namespace in namespaces:
        kube.run("delete", "namespace", namespace, "--ignore-not-found", "--timeout=300s", check=False)
    kube.run("delete", "persistentvolume", volume_name, "--ignore-not-found", "--wait=false", check=False)
    remove_definitions(kube)


def remove_definitions(kube: Kube) -> None:
    """The CRDs, unless a release needs them: they stay behind one, and would belong to the namespace that it was in."""
    releases = subprocess.run(
        [kube.helm, "list", "--all-namespaces", "--short", "--filter", "^skipstone$"],
        env={**kube.environment},
        capture_output=True,
        check=True,
    )
    if not releases.stdout.strip():
        kube.run("delete", "--filename", str(ROOT / "crds"), "--ignore-not-found", "--timeout=60s", check=False)


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Kube:
    """The embedded cluster."""
    return Kube.find()


def names_of_pages() -> tuple[str, str]:
    """The namespaces of the tables and of the operator in the pages."""
    return name_of("lake"), name_of("skipstone-system")


@pytest.fixture(scope="module")
def reader(kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """Someone on a cluster without Skipstone."""
    names = names_of_pages()
    remove(kube, names, names[0])
    kube.apply(volume(names[0], names[0], NODE.volumes / names[0]))
    TRANSCRIPT.parent.mkdir(parents=True, exist_ok=True)
    TRANSCRIPT.unlink(missing_ok=True)
    yield Reader(tmp_path_factory.mktemp("reader"), TRANSCRIPT)
    remove(kube, names, names[0])


@pytest.mark.parametrize("page", Accounts().followed)
def test_following_the_page_word_for_word_works(reader: Reader, page: str) -> None:
    reader.follow(page)


def test_the_demonstration_for_kind_works(kube: Kube, tmp_path: Path) -> None:
    """Its script, with kind and Docker replaced, in namespaces of its own; and what it removes."""
    names, pages = ("kind-demo-lake", "kind-demo-system"), names_of_pages()
    remove(kube, pages, pages[0])
    remove(kube, names, "kind-demo-lake-demo")
    reader = Reader(tmp_path, TRANSCRIPT)
    reader.environment |= {"NAMESPACE": names[0], "SYSTEM_NAMESPACE": names[1], "HELM_ARGS": HELM}
    try:
        said = reader.run("scripts/kind-demo up", "make kind-demo")
        assert "orders-changes-1" in said
        again = reader.run("scripts/kind-demo up", "make kind-demo, again")
        assert "unchanged" in again
    finally:
        remove(kube, names, "kind-demo-lake-demo")
    reader.run("scripts/kind-demo down", "make kind-demo-down")
    assert not (reader.checkout / "build" / "kind").exists()
    assert not Path("/skipstone-demo").is_symlink()
