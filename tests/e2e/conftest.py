"""The cluster, the installed operator and the lakes that the end-to-end tests share.

All lakes are made before the chart is installed, because its roles go into the watched namespaces.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from demo.install import SYSTEM, install_arguments, lift_finalizers
from demo.kube import EMBEDDED, Kube
from demo.manifests import namespace
from tests.e2e.lake import Lake, index, load, make_lake, merge, people, table, warehouse

LAKES = (
    "e2e-main",
    "e2e-wrong",
    "e2e-wide",
    "e2e-foreign",
    "e2e-forward",
    "e2e-backward",
    "e2e-doomed",
    "e2e-feed",
    "e2e-faults",
)


@pytest.fixture(scope="session")
def kube() -> Kube:
    """The embedded cluster."""
    os.environ["CLUSTER"] = "embedded"
    return Kube.find()


@pytest.fixture(scope="session")
def lakes(kube: Kube) -> Iterator[dict[str, Lake]]:
    """All lakes with the operator watching them; everything is removed at the end."""
    remove_all(kube)
    made = {name: make_lake(kube, name) for name in LAKES}
    system = kube.within(SYSTEM)
    system.apply(namespace(SYSTEM))
    system.run_helm(*install_arguments(system, LAKES))
    yield made
    remove_all(kube)


def remove_all(kube: Kube) -> None:
    """Remove lakes and operator, also what a run that was cut off left: then nobody else lifts the finalizers."""
    for name in LAKES:
        kube.run("delete", "namespace", name, "--ignore-not-found", "--wait=false")
    kube.run("delete", "namespace", SYSTEM, "--ignore-not-found", "--timeout=120s")
    for name in LAKES:
        lift_finalizers(kube.within(name))
        kube.run("wait", f"namespace/{name}", "--for=delete", "--timeout=120s", check=False)
        kube.run("delete", "pv", f"e2e-{name}", "--ignore-not-found")
        shutil.rmtree(EMBEDDED / "volumes" / f"e2e-{name}", ignore_errors=True)


@pytest.fixture(scope="session")
def main(lakes: dict[str, Lake]) -> Lake:
    """A lake with two loads of 100 people, an index and a merge, all finished."""
    lake = lakes["e2e-main"]
    lake.write("in/1.csv", people(1, 100))
    lake.write("in/2.csv", people(101, 200))
    lake.write(
        "feeds/1.csv",
        "op,seq,id,name,city,born\nU,1,7,renamed,Oslo,1950-01-01\nD,2,8,,,\nI,3,300,new,Bonn,2001-02-03\n",
    )
    lake.apply(warehouse(), table(), index("by-city", ["city"]), load("one", "in/1.csv"), load("two", "in/2.csv"))
    for name in ("one", "two"):
        lake.until_complete("lj", name, seconds=300)
    lake.apply(merge("corrections", "feeds/1.csv"))
    lake.until_complete("mj", "corrections", seconds=300)
    lake.until_synced("by-city", with_job=("mj", "corrections"))
    return lake
