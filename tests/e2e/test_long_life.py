"""A table under a schedule of every minute, with two Inline indexes and maintenance: nothing lags, nothing is lost.

It lives for MINUTES: a few in `make test`, 30 in `make soak-life`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from tests.e2e.lake import (
    PATIENCE,
    JsonObject,
    Lake,
    change,
    has_ended,
    index,
    load,
    merge,
    people,
    resource,
    table,
    warehouse,
)
from tests.e2e.watching import Watch, watching

MINUTES = int(os.environ.get("SKIPSTONE_LIFE_MINUTES", "3"))
FEED = "feeds/life"
INDEXES = {"by-name": ["name"], "by-city": ["city", "id"]}
#: How many of each there are at most at any look: of files and manifests what a merge or two leave, of snapshots what
#: the policy retains, and what comes before it is due to let more go.
MOST = {"smallFiles": 12, "deleteFiles": 0, "manifests": 12, "snapshots": 20}
MAINTENANCE = {
    "compaction": {"policy": "Auto", "targetFileSize": "1Mi", "minInputFiles": 3},
    "snapshots": {"maxAge": "5m", "minToKeep": 5},
    "orphanFiles": {"policy": "Report", "olderThan": "24h"},
}


@dataclass
class Life:
    """What was seen of the lake, and the rows that a replay of its feed gives, by id."""

    lake: Lake
    watches: dict[str, Watch]
    table: Watch
    rows: dict[int, tuple[str | None, str | None]] = field(default_factory=dict)

    def drop(self, number: int) -> None:
        """One file of the feed, whole at once: it renames a row, deletes another and adds two."""
        feed = [change("U", number, f"drop {number}", "Oslo"), change("D", 100 + number)]
        feed += [change("I", 1000 + 2 * number + at, f"new {number}", "Lima") for at in range(2)]
        self.lake.write(f"{FEED}/.{number}.parquet", feed)
        part = self.lake.folder / FEED / f".{number}.parquet"
        part.rename(part.with_name(f"{number}.parquet"))
        for row in feed:
            self.rows.pop(row["id"], None)
            if row["op"] != "D":
                self.rows[row["id"]] = (row["name"], row["city"])

    def merged(self) -> int:
        """Source rows of all MergeJobs together."""
        jobs = self.lake.kube.items("mj", "skipstone.dev/schedule=life")
        return sum(job.get("status", {}).get("rows", {}).get("source", 0) for job in jobs)

    def steps(self, name: str) -> list[JsonObject]:
        """What each maintain run told of its step ``name``, in their order."""
        told = [one for sight in self.table.seen for one in sight.status.get("lastMaintenance", [])]
        return list({one["run"]: one for one in told if one["step"] == name}.values())


def schedule() -> JsonObject:
    """Every minute what is new in the feed."""
    spec = {name: value for name, value in merge("", f"{FEED}/.parquet")["spec"].items() if name != "sequenceBy"}
    spec["source"] = {**spec["source"], "paths": [FEED], "consume": "New"}
    template = {"schedule": "* * * * *", "successfulJobsHistoryLimit": 100, "mergeTemplate": {"spec": spec}}
    return resource("MergeSchedule", "life", template)


@pytest.fixture(scope="module")
def life(lakes: dict[str, Lake]) -> Iterator[Life]:
    """A lake after MINUTES of a schedule, whose indexes were watched all the time."""
    lake = lakes["e2e-life"]
    lake.write("in/1.parquet", people(1, 400))
    (lake.folder / FEED).mkdir(parents=True)
    inline = [index(name, columns, maintenance="Inline") for name, columns in INDEXES.items()]
    lake.apply(warehouse(), table(maintenance=MAINTENANCE), *inline)
    lake.until_condition("tbl", "people", "Ready")
    lake.apply(load("one", "in/1.parquet"))
    lake.until_complete("lj", "one")
    for name in INDEXES:
        lake.until_synced(name, with_job=("lj", "one"))
    with ExitStack() as open_watches:
        watches = {name: open_watches.enter_context(watching(lake.kube, "si", name)) for name in INDEXES}
        looked = open_watches.enter_context(watching(lake.kube, "tbl", "people"))
        made = Life(lake, watches, looked, {row["id"]: (row["name"], row["city"]) for row in people(1, 400)})
        lake.apply(schedule())
        for number in range(1, MINUTES + 1):
            made.drop(number)
            lake.kube.wait_for(
                f"drop {number} is merged", lambda number=number: made.merged() >= 4 * number, seconds=PATIENCE
            )
        lake.kube.run("patch", "ms", "life", "--type=merge", "-p", '{"spec":{"suspend":true}}')
        jobs = "skipstone.dev/schedule=life"
        lake.kube.wait_for(
            "all merges ended", lambda: all(has_ended(job) for job in lake.kube.items("mj", jobs)), seconds=PATIENCE
        )
        yield made
    lake.kube.run("delete", "ms", "life", "--wait=true")


def test_the_table_is_always_about_as_its_policy_asks(life: Life) -> None:
    life.lake.until_condition("tbl", "people", "Healthy")
    looks = [sight.status["health"] for sight in life.table.seen if "health" in sight.status]
    worst = {name: max(look.get(name, 0) for look in looks) for name in MOST}
    assert all(worst[name] <= MOST[name] for name in MOST), worst


def test_merges_do_not_keep_the_operator_from_compacting(life: Life) -> None:
    wanted = max(1, MINUTES // 3)
    life.table.until(
        f"{wanted} compactions",
        lambda _: sum(1 for step in life.steps("Compaction") if step.get("counts", {}).get("filesRewritten")) >= wanted,
        before=time.time() + PATIENCE,
    )


def test_the_rows_are_those_of_a_replay(life: Life) -> None:
    assert {row["id"]: (row["name"], row["city"]) for row in life.lake.rows()} == life.rows


def test_no_index_ever_lacks_the_segment_of_a_run_that_has_ended(life: Life) -> None:
    for name, watch in life.watches.items():
        lacking = [sight.status["missing"] for sight in watch.seen if sight.status["segments"]["missing"]]
        assert lacking == [], name


def test_the_indexes_cover_the_table_at_the_end(life: Life) -> None:
    told = life.lake.kube.get("tbl", "people") or {}
    for watch in life.watches.values():
        watch.until(
            "the last segment",
            lambda status: (
                status["tableSequenceNumber"] == told["status"]["sequenceNumber"] and not status["segments"]["missing"]
            ),
            before=time.time() + PATIENCE,
        )
