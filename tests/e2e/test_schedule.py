"""A MergeSchedule on a real cluster: three feed drops, merged once each, with the operator killed in between."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from demo.install import SYSTEM
from demo.kube import Kube, condition
from tests.e2e.lake import (
    PATIENCE,
    JsonObject,
    Lake,
    change,
    has_ended,
    load,
    merge,
    people,
    resource,
    table,
    warehouse,
)

FEED = "feeds/people"
SELECTOR = "skipstone.dev/schedule=feed"


def schedule() -> JsonObject:
    """Every minute what is new in the feed; without sequenceBy, so that an old drop applied again would show."""
    spec = {name: value for name, value in merge("", f"{FEED}/.parquet")["spec"].items() if name != "sequenceBy"}
    spec["source"] = {**spec["source"], "paths": [FEED], "consume": "New"}
    template = {"schedule": "* * * * *", "successfulJobsHistoryLimit": 100, "mergeTemplate": {"spec": spec}}
    return resource("MergeSchedule", "feed", template)


def drop(lake: Lake, number: int) -> None:
    """One file, whole at once: it renames row 1 and adds a row."""
    rows = [change("U", 1, f"drop {number}", "Oslo"), change("I", 100 + number, "new", "Lima")]
    lake.write(f"{FEED}/.{number}.parquet", rows)
    part = lake.folder / FEED / f".{number}.parquet"
    part.rename(part.with_name(f"{number}.parquet"))


def merged_rows(lake: Lake) -> int:
    """Source rows of all MergeJobs together."""
    statuses = [job.get("status", {}) for job in lake.kube.items("mj", SELECTOR)]
    return sum(status.get("rows", {}).get("source", 0) for status in statuses)


def kill_operator(kube: Kube) -> None:
    """Without a chance to say good-bye."""
    system = kube.within(SYSTEM)
    pods = [pod["metadata"]["name"] for pod in system.items("pods") if pod["metadata"]["name"].startswith("skipstone-")]
    assert pods
    system.run("delete", "pod", *pods, "--grace-period=0", "--force")


@pytest.fixture(scope="module")
def fed(lakes: dict[str, Lake], kube: Kube) -> Iterator[Lake]:
    """A lake after three drops; the operator died as soon as it had created the MergeJob of the second."""
    lake = lakes["e2e-feed"]
    lake.write("in/1.parquet", people(1, 20))
    (lake.folder / FEED).mkdir(parents=True)
    lake.apply(warehouse(), table(), load("one", "in/1.parquet"))
    lake.until_complete("lj", "one")
    lake.apply(schedule())
    for number in (1, 2, 3):
        drop(lake, number)
        if number == 2:
            before = {job["metadata"]["name"] for job in lake.kube.items("mj", SELECTOR)}
            lake.kube.wait_for(
                "the next MergeJob",
                lambda before=before: {job["metadata"]["name"] for job in lake.kube.items("mj", SELECTOR)} > before,
                seconds=PATIENCE,
                every=0.2,
            )
            kill_operator(kube)
        lake.kube.wait_for(
            f"drop {number} is merged", lambda number=number: merged_rows(lake) >= 2 * number, seconds=PATIENCE
        )
    lake.kube.run("patch", "ms", "feed", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    lake.kube.wait_for(
        "all merges ended", lambda: all(has_ended(job) for job in lake.kube.items("mj", SELECTOR)), seconds=PATIENCE
    )
    yield lake
    lake.kube.run("delete", "ms", "feed", "--wait=true")


def test_three_drops_are_merged_once_each(fed: Lake) -> None:
    assert merged_rows(fed) == 6
    rows = {row["id"]: row["name"] for row in fed.rows()}
    assert rows[1] == "drop 3"
    assert sorted(rows) == [*range(1, 21), 101, 102, 103]


def test_every_merge_job_completed_and_no_minute_has_two(fed: Lake) -> None:
    jobs = fed.kube.items("mj", SELECTOR)
    assert [job["metadata"]["name"] for job in jobs if condition(job, "Complete").get("status") != "True"] == []
    times = [job["metadata"]["annotations"]["skipstone.dev/scheduled-time"] for job in jobs]
    assert len(set(times)) == len(times) >= 3


def test_kubectl_shows_the_schedule(fed: Lake) -> None:
    header, row = fed.kube.run("get", "ms").splitlines()
    assert header.split() == ["NAME", "SCHEDULE", "SUSPEND", "LAST", "NEXT", "ACTIVE", "READY", "AGE"]
    assert "True" in row
    assert "condition met" in fed.kube.run("wait", "ms/feed", "--for=condition=Ready", "--timeout=300s")
    status = (fed.kube.get("ms", "feed") or {})["status"]
    assert status["active"] == 0
    assert status["lastScheduleTime"] <= status["lastSuccessfulTime"]


def test_a_merge_without_new_files_leaves_the_table_alone(fed: Lake) -> None:
    idle = [job["status"] for job in fed.kube.items("mj", SELECTOR) if not job["status"]["rows"]["source"]]
    assert all(status["snapshotId"] == "0" for status in idle)
