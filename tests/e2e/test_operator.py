"""What an administrator does to the operator itself. These tests begin when all others are done: they disturb them.

Their lakes are made while the others run, which the operator then knows at rest as well.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from demo.install import SYSTEM
from demo.kube import EMBEDDED, Kube
from tests.e2e.conftest import BOUND, LAKES
from tests.e2e.lake import PATIENCE, Lake, change, index, install_operator, load, merge, people, table, warehouse
from tests.e2e.sharing import Share

#: Read from the end of the audit log: much more than a minute of it.
LOG_BYTES = 8 * 1024 * 1024


@pytest.fixture(scope="module")
def rest(lakes: dict[str, Lake], share: Share, kube: Kube) -> Lake:
    """A lake with a load and an index, after all other tests; the lake that will be deleted is as far."""
    rest, doomed = lakes["e2e-rest"], lakes["e2e-doomed"]
    doomed.write("feeds/1.parquet", [change("U", 7, "x", "y")])
    for lake in (rest, doomed):
        lake.write("in/1.parquet", people(1, 100))
        lake.apply(warehouse(), table(reclaimPolicy="Delete"), load("one", "in/1.parquet"))
        lake.apply(index("by-city", ["city"]), index("by-name", ["name"]))
    for lake in (rest, doomed):
        lake.until_complete("lj", "one")
    kube.wait_for("the other tests are done", share.is_alone, seconds=BOUND)
    return rest


@pytest.mark.timeout(2 * BOUND)
def test_at_rest_the_operator_writes_only_its_lease(rest: Lake, kube: Kube) -> None:
    """It knows the lakes of all tests, and took them over from an operator that was killed."""
    seen: list[Write] = []

    def quiet_for_a_minute() -> bool:
        seen[:] = recent_writes()
        quiet_since = max((write.time for write in seen if write.resource != "leases"), default=seen[0].time)
        return datetime.now(UTC) - quiet_since >= timedelta(seconds=60)

    kube.wait_for("a minute without writes but the Lease", quiet_for_a_minute, seconds=PATIENCE, every=2)
    leases = [write for write in seen if write.time > datetime.now(UTC) - timedelta(seconds=60)]
    assert leases != [], "the operator does not renew its Lease, or the audit log does not see it"


@dataclass(frozen=True)
class Write:
    """What the operator wrote, and when."""

    resource: str
    time: datetime


def recent_writes() -> list[Write]:
    """The newest writes of the operator, oldest first, from the end of the API server's audit log."""
    with (EMBEDDED / "log" / "audit.log").open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_BYTES))
        lines = log.read().split(b"\n")[1:-1]  # the first and the last may be a part of a line
    user = f"system:serviceaccount:{SYSTEM}:skipstone".encode()
    entries = (json.loads(line) for line in lines if user in line)
    return [
        Write(entry["objectRef"]["resource"], datetime.fromisoformat(entry["requestReceivedTimestamp"]))
        for entry in entries
        if entry["verb"] in {"create", "update", "patch", "delete", "deletecollection"}
        and entry["stage"] == "ResponseComplete"
    ]


def test_deleting_the_namespace_with_a_running_merge_ends_within_two_minutes(
    rest: Lake, lakes: dict[str, Lake]
) -> None:
    lake = lakes["e2e-doomed"]
    lake.apply(merge("running", "feeds/1.parquet"))
    lake.kube.wait_for(
        "the merge has a driver",
        lambda: bool(lake.kube.items("pods", "skipstone.dev/operation=Merge")),
        seconds=PATIENCE,
    )
    lake.kube.run("delete", "namespace", lake.kube.namespace, "--timeout=120s")  # raises when it takes longer


def test_the_operator_image_holds_no_data_plane(rest: Lake, kube: Kube) -> None:
    code = (
        "import importlib.util as u; print([m for m in ('pyspark', 'pyarrow', 'pyiceberg', 'kopf') if u.find_spec(m)])"
    )
    said = kube.within(SYSTEM).run("exec", "deploy/skipstone", "--", "python", "-c", code)
    assert said.strip() == "['kopf']"


def test_uninstalling_keeps_the_resources_and_a_new_release_takes_over(rest: Lake, kube: Kube) -> None:
    system = kube.within(SYSTEM)
    before = (rest.kube.get("tbl", "people") or {})["metadata"]["uid"]
    system.run_helm("uninstall", "skipstone", "--wait")
    assert (rest.kube.get("tbl", "people") or {})["metadata"]["uid"] == before
    rest.write("in/after.parquet", people(701, 710))
    rest.apply(load("after", "in/after.parquet"))
    alive = tuple(name for name in LAKES if kube.get("namespace", name))
    install_operator(kube, alive)
    assert rest.until_complete("lj", "after")["status"]["rowsLoaded"] == 10
