"""What an administrator does to the operator itself. These tests begin when all others are done: they disturb them.

Their lakes are made while the others run, which the operator then knows at rest as well.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from demo.install import SYSTEM
from demo.kube import EMBEDDED, Kube
from tests.e2e.conftest import BOUND, LAKES
from tests.e2e.lake import PATIENCE, Lake, index, install_operator, load, merge, people, table, warehouse
from tests.e2e.sharing import Share


@pytest.fixture(scope="module")
def rest(lakes: dict[str, Lake], share: Share, kube: Kube) -> Lake:
    """A lake with a load and an index, after all other tests; the lake that will be deleted is as far."""
    rest, doomed = lakes["e2e-rest"], lakes["e2e-doomed"]
    doomed.write("feeds/1.csv", "op,seq,id,name,city,born\nU,1,7,x,y,1950-01-01\n")
    for lake in (rest, doomed):
        lake.write("in/1.csv", people(1, 100))
        lake.apply(warehouse(), table(reclaimPolicy="Delete"), load("one", "in/1.csv"))
        lake.apply(index("by-city", ["city"]), index("by-name", ["name"]))
    for lake in (rest, doomed):
        lake.until_complete("lj", "one")
    kube.wait_for("the other tests are done", share.is_alone, seconds=BOUND)
    return rest


@pytest.mark.timeout(2 * BOUND)
def test_deleting_the_namespace_with_a_running_merge_ends_within_two_minutes(
    rest: Lake, lakes: dict[str, Lake]
) -> None:
    lake = lakes["e2e-doomed"]
    lake.apply(merge("running", "feeds/1.csv"))
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
    rest.write("in/after.csv", people(701, 710))
    rest.apply(load("after", "in/after.csv"))
    alive = tuple(name for name in LAKES if kube.get("namespace", name))
    install_operator(kube, alive)
    assert rest.until_complete("lj", "after")["status"]["rowsLoaded"] == 10


def test_at_rest_the_operator_writes_only_its_lease(rest: Lake, kube: Kube) -> None:
    window = [datetime.now(UTC)]
    writes: list[str] = []

    def quiet_for_a_minute() -> bool:
        now = datetime.now(UTC)
        writes[:] = operator_writes(window[0])
        if any(write != "leases" for write in writes):
            window[0] = now
            return False
        return now - window[0] >= timedelta(seconds=60)

    kube.wait_for("a minute without writes but the Lease", quiet_for_a_minute, seconds=PATIENCE, every=5)
    assert writes != [], "the audit log does not see the operator at all"


def operator_writes(since: datetime) -> list[str]:
    """Resources that the operator wrote since then, from the API server's audit log."""
    user = f"system:serviceaccount:{SYSTEM}:skipstone"
    text = (EMBEDDED / "log" / "audit.log").read_text()
    lines = text[: text.rfind("\n") + 1].splitlines()[-20000:]  # the last line may be half written
    entries = (json.loads(line) for line in lines if user in line)
    return [
        entry["objectRef"]["resource"]
        for entry in entries
        if entry["verb"] in {"create", "update", "patch", "delete", "deletecollection"}
        and entry["stage"] == "ResponseComplete"
        and datetime.fromisoformat(entry["requestReceivedTimestamp"]) >= since
    ]
