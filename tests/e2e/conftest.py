"""The cluster, the installed operator and the lakes that the end-to-end tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from demo.kube import Kube
from tests.e2e.lake import Lake, index, installed, load, merge, people, table, warehouse

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
    with installed(kube, LAKES) as made:
        yield made


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
