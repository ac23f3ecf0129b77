"""The cluster, the installed operator and the lakes that the end-to-end tests share.

Modules run side by side, each in a process and in lakes of its own. What disturbs everybody is in `test_operator`,
which waits until the others are done.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.kube import EMBEDDED, Kube
from tests.e2e.lake import Lake, index, install, lakes_of, load, merge, people, remove_all, table, warehouse
from tests.e2e.quick import quick
from tests.e2e.sharing import Share

LAKES = (
    "e2e-main",
    "e2e-wrong",
    "e2e-foreign",
    "e2e-forward",
    "e2e-backward",
    "e2e-doomed",
    "e2e-feed",
    "e2e-life",
    "e2e-faults",
    "e2e-rest",
    "e2e-planning",
    "e2e-sources",
    "e2e-kept",
    "e2e-bucket",
)
HERE = Path(__file__).parent
SHARE = pytest.StashKey[Share]()
#: Seconds for one test with its set-up: a bound against hangs. Several modules share two cores.
BOUND = 3000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test here the bound."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(BOUND))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Take part in the installation: no test of any process begins before all processes have collected."""
    mine = any(item.path.is_relative_to(HERE) for item in session.items)
    if mine and not session.config.option.collectonly and EMBEDDED.exists():
        session.config.stash[SHARE] = Share.take(EMBEDDED)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Nor does a process without a test take part any longer."""
    if share := session.config.stash.get(SHARE, None):
        share.users.close()


@pytest.fixture(scope="session")
def kube() -> Iterator[Kube]:
    """The embedded cluster."""
    os.environ["CLUSTER"] = "embedded"
    with quick(Kube.find()) as found:
        yield found


@pytest.fixture(scope="session")
def share(kube: Kube, pytestconfig: pytest.Config) -> Share:
    """The part of this process in the installation."""
    return pytestconfig.stash[SHARE]


@pytest.fixture(scope="session")
def lakes(kube: Kube, share: Share, testrun_uid: str) -> Iterator[dict[str, Lake]]:
    """All lakes with the operator watching them; the last process removes everything."""
    share.begin(testrun_uid, lambda: install(kube, LAKES))
    yield lakes_of(kube, LAKES)
    share.leave(lambda: remove_all(kube, LAKES))


@pytest.fixture(scope="session")
def main(lakes: dict[str, Lake]) -> Lake:
    """A lake with two loads of 100 people, an index and a merge, all finished; Spark reads what is Csv."""
    lake = lakes["e2e-main"]
    lake.write("in/1.parquet", people(1, 100))
    lake.write("in/2.csv", people(101, 200))
    lake.write(
        "feeds/1.csv",
        "op,seq,id,name,city,born\nU,1,7,renamed,Oslo,1950-01-01\nD,2,8,,,\nI,3,300,new,Bonn,2001-02-03\n",
    )
    lake.apply(warehouse(), table(), index("by-city", ["city"]), load("one", "in/1.parquet"), load("two", "in/2.csv"))
    for name in ("one", "two"):
        lake.until_complete("lj", name)
    lake.apply(merge("corrections", "feeds/1.csv"))
    lake.until_complete("mj", "corrections")
    lake.until_synced("by-city", with_job=("mj", "corrections"))
    return lake
