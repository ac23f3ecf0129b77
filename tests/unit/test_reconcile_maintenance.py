"""The life of a table that asks for maintenance: when maintain runs come, what they give way to, how they are told."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from skipstone_core.contract.reports import RunOutcome, StepReport
from skipstone_core.contract.requests import RunKind
from skipstone_core.maintenance.policies import MaintenanceStep
from skipstone_core.reasons import Reason
from skipstone_operator.worlds.times import CLOCKS

from tests.unit.lake_double import Ends, request_of
from tests.unit.lives import driver, hold_pods, settled, synced
from tests.unit.objects import claim, index, load, observed_table, schedule, table, warehouse
from tests.unit.operator_double import World

COMPACTED = {"compaction": {"minInputFiles": 2}}


def started(maintenance: dict[str, Any] | None = COMPACTED, **spec: Any) -> World:
    """A world whose Table asks for this maintenance."""
    world = World()
    asked = {} if maintenance is None else {"maintenance": maintenance}
    for obj in (claim(), warehouse(), table(**asked, **spec)):
        world.kube.add(obj)
    world.run_until(lambda: world.holds("Table", "flights", "Ready"))
    return world


def loaded(world: World, *names: str) -> World:
    for name in names:
        world.kube.add(load(name))
        world.run_until(lambda name=name: world.holds("LoadJob", name, "Complete"))  # type: ignore[misc]
    return world


def status(world: World) -> dict[str, Any]:
    return world.kube.status("Table", "flights")


def healthy(world: World) -> tuple[str, str]:
    return world.kube.condition("Table", "flights", "Healthy")


def message(world: World, type_: str) -> str:
    return next(str(c["message"]) for c in status(world)["conditions"] if c["type"] == type_)


def runs(world: World) -> list[str]:
    return [reason for kind, reason in world.meter.finished if kind == "Maintain"]


def annotate(world: World, value: str) -> None:
    world.kube.edit("Table", "flights", lambda o: o["metadata"].update(annotations={"skipstone.dev/maintain": value}))


def ask(world: World, maintenance: dict[str, Any] | None) -> None:
    world.kube.edit("Table", "flights", lambda o: o["spec"].update(maintenance=maintenance))


def rest(world: World, ticks: int = 12) -> None:
    for _ in range(ticks):
        world.tick()


class TestDue:
    def test_a_table_with_small_files_is_compacted_and_is_healthy_again(self) -> None:
        world = loaded(started(), "jan")
        assert healthy(world) == ("True", "Healthy")
        loaded(world, "feb")
        seen = set()

        def done() -> bool:
            seen.update({healthy(world), world.kube.condition("Table", "flights", "Progressing")})
            return bool(runs(world))

        world.run_until(done)
        assert {("False", "SmallFiles"), ("True", "Maintaining")} <= seen
        world.run_until(lambda: healthy(world) == ("True", "Healthy"))
        assert "writer" not in status(world)
        assert [(one["step"], one["done"], one["counts"]) for one in status(world)["lastMaintenance"]] == [
            ("Compaction", True, {"filesRewritten": 2})
        ]
        assert status(world)["lastMaintainRun"]["result"] == "Succeeded"
        assert status(world)["health"]["smallFiles"] == 0
        assert world.meter.work["filesRewritten"] == 2
        assert "SmallFiles" in world.events.reasons("Table")
        rest(world)
        assert runs(world) == ["Committed"]

    def test_the_run_is_told_what_to_do_and_has_time_to_end(self) -> None:
        world = loaded(started(), "jan", "feb")
        world.run_until(lambda: any(world.kube.find("Pod", operation="Maintain")))
        pod = driver(world, "Maintain")
        request = request_of(world.kube, pod["metadata"]["name"].removesuffix("-driver"))
        assert request.maintain is not None and request.table is not None
        assert [step.value for step in request.maintain.steps] == ["Compaction"]
        assert request.maintain.policy == request.table.maintenance
        assert (request.owner_kind, request.txn) == ("Table", "")
        assert pod["spec"]["terminationGracePeriodSeconds"] == 60
        assert status(world)["writer"]["run"] == request.run_id

    def test_the_run_is_told_since_when_others_read_the_table(self) -> None:
        world = started({"compaction": {"minInputFiles": 2}, "snapshots": {"maxAge": "1h"}})
        source = {"table": {"name": "flights"}, "consume": "New"}
        reader = world.kube.add(schedule("copy", template={"tableRef": {"name": "copy"}, "source": source}))
        world.kube.add(schedule("other"))
        loaded(world, "jan", "feb")
        world.run_until(lambda: any(world.kube.find("Pod", operation="Maintain")))
        request = request_of(world.kube, driver(world, "Maintain")["metadata"]["name"].removesuffix("-driver"))
        assert request.maintain is not None
        since = datetime.fromisoformat(reader["metadata"]["creationTimestamp"]) - CLOCKS
        assert request.maintain.in_use_since_ms == int(since.timestamp() * 1000)

    @pytest.mark.parametrize("asked", [None, {}, {"compaction": {"policy": "Off"}}])
    def test_nothing_is_done_without_being_asked(self, asked: dict[str, Any] | None) -> None:
        world = loaded(started(asked), "jan", "feb", "mar")
        rest(world)
        assert runs(world) == []
        assert ("health" in status(world)) is (asked is not None)
        assert healthy(world) == (("", "") if asked is None else ("True", "Healthy"))

    def test_maintenance_that_is_given_up_takes_its_condition_along(self) -> None:
        world = loaded(started(), "jan")
        world.kube.edit("Table", "flights", lambda o: o["spec"].pop("maintenance"))
        world.run_until(lambda: healthy(world) == ("", ""))
        assert "health" not in status(world)

    def test_an_observed_table_is_maintained_when_it_asks(self) -> None:
        world = loaded(started(None), "jan", "feb")
        asked = observed_table("other", maintenance=COMPACTED)
        world.kube.edit("Table", "flights", lambda o: o["metadata"].update(finalizers=[]))
        world.kube.remove("Table", "lake", "flights")
        world.kube.add(asked)
        world.run_until(lambda: bool(runs(world)))
        world.run_until(lambda: world.holds("Table", "other", "Healthy"))
        assert len(world.lake.tables["air", "flights"].segments) == 1

    def test_orphan_files_are_looked_for_each_day(self) -> None:
        world = started({"orphanFiles": {"olderThan": "24h"}})
        world.run_until(lambda: bool(runs(world)))
        rest(world)
        assert len(runs(world)) == 1
        world.kube.clock.advance(86_400)
        rest(world)
        assert len(runs(world)) == 2

    def test_orphan_files_wait_for_a_job_that_may_still_commit(self) -> None:
        world = started({"orphanFiles": {"olderThan": "24h"}})
        world.run_until(lambda: bool(runs(world)))
        hold_pods(world, "Load")
        world.kube.add(load("jan"))
        world.run_until(lambda: any(world.kube.find("Pod", operation="Load")))
        world.kube.edit("LoadJob", "jan", lambda o: o["spec"].update(suspend=True))
        world.kube.clock.advance(86_400)
        rest(world)
        assert len(runs(world)) == 1
        assert healthy(world) == ("True", "OrphanFilesKept")
        assert "while LoadJob jan has begun" in message(world, "Healthy")


class TestByHand:
    def test_each_new_value_does_all_that_is_configured_once(self) -> None:
        world = started({**COMPACTED, "snapshots": {"maxAge": "5d"}})
        for value in ("now", "again"):
            annotate(world, value)
            world.run_until(lambda value=value: status(world).get("observedMaintain") == value)  # type: ignore[misc]
        rest(world)
        assert len(runs(world)) == 2
        assert [one["step"] for one in status(world)["lastMaintenance"]] == ["Compaction", "Manifests", "Snapshots"]

    def test_a_value_that_begins_with_steps_does_only_these(self) -> None:
        world = started({**COMPACTED, "snapshots": {"maxAge": "5d"}})
        annotate(world, "snapshots,Manifests/1")
        world.run_until(lambda: status(world).get("observedMaintain") == "snapshots,Manifests/1")
        assert [one["step"] for one in status(world)["lastMaintenance"]] == ["Manifests", "Snapshots"]

    def test_steps_that_the_spec_does_not_name_keep_nothing_from_being_done(self) -> None:
        world = loaded(started(), "jan", "feb")
        annotate(world, "OrphanFiles/1")
        world.run_until(lambda: bool(runs(world)))
        rest(world)
        assert status(world)["observedMaintain"] == ""
        assert [one["step"] for one in status(world)["lastMaintenance"]] == ["Compaction"]

    def test_outside_the_window_too(self) -> None:
        world = loaded(started({**COMPACTED, "window": {"schedule": "0 1 * * *", "duration": "4h"}}), "jan", "feb")
        rest(world)
        assert runs(world) == []
        annotate(world, "now")
        world.run_until(lambda: bool(runs(world)))
        world.run_until(lambda: world.holds("Table", "flights", "Healthy"))

    def test_a_request_is_not_forgotten_by_a_run_that_gives_way(self) -> None:
        world = started()
        hold_pods(world, "Maintain")
        annotate(world, "now")
        world.run_until(lambda: any(world.kube.find("Pod", operation="Maintain")))
        loaded(world, "jan")
        world.kubelet.holds = lambda _pod: False
        world.run_until(lambda: status(world).get("observedMaintain") == "now")


class TestWindow:
    def test_nothing_starts_before_it_opens(self) -> None:
        # The clock of the world begins at 12:00 UTC.
        window = {"schedule": "0 14 * * *", "duration": "1h", "timeZone": "Europe/Berlin"}
        world = loaded(started({**COMPACTED, "window": window}), "jan", "feb")
        rest(world)
        assert healthy(world) == ("False", "WindowClosed")
        assert "the window opens at 2026-01-01T13:00:00Z" in message(world, "Healthy")
        world.kube.clock.advance(3600)
        world.run_until(lambda: bool(runs(world)))

    def test_a_run_ends_with_it(self) -> None:
        world = loaded(started({**COMPACTED, "window": {"schedule": "0 12 * * *", "duration": "1h"}}), "jan", "feb")
        hold_pods(world, "Maintain")
        world.run_until(lambda: any(world.kube.find("Pod", operation="Maintain")))
        world.kube.clock.advance(3600)
        world.run_until(lambda: bool(runs(world)))
        assert runs(world) == ["WindowClosed"]
        rest(world)
        assert not list(world.kube.find("Pod", operation="Maintain"))
        assert status(world).get("failedMaintains", 0) == 0

    def test_what_a_run_committed_before_its_pod_vanished_is_looked_at(self) -> None:
        world = loaded(started({**COMPACTED, "window": {"schedule": "0 12 * * *", "duration": "1h"}}), "jan", "feb")
        hold_pods(world, "Maintain")
        world.run_until(lambda: any(world.kube.find("Pod", operation="Maintain")))
        pod = driver(world, "Maintain")
        world.lake.work(request_of(world.kube, pod["metadata"]["name"].removesuffix("-driver")))
        world.kube.clock.advance(3600)
        world.run_until(lambda: bool(runs(world)))
        assert status(world)["lastMaintainRun"]["result"] == "Lost"
        world.run_until(lambda: status(world)["health"]["smallFiles"] == 0)
        assert status(world)["sequenceNumber"] == world.lake.tables["air", "flights"].sequence == 3
        rest(world)
        assert [kind for kind, _ in world.meter.finished].count("Observe") == 1

    @pytest.mark.parametrize(
        ("window", "says"),
        [
            ({"schedule": "0 0 31 2 *"}, "spec.maintenance.window.schedule: '0 0 31 2 *' is no cron expression"),
            ({"timeZone": "Europe/Atlantis"}, "spec.maintenance.window.timeZone: 'Europe/Atlantis' is not a time zone"),
        ],
    )
    def test_one_that_never_opens_is_told_and_keeps_no_job_from_running(
        self, window: dict[str, str], says: str
    ) -> None:
        world = started({**COMPACTED, "window": {"schedule": "@daily", "duration": "1h", **window}})
        loaded(world, "jan", "feb")
        rest(world)
        assert healthy(world) == ("False", "InvalidSpec")
        assert message(world, "Healthy").startswith(says)
        assert runs(world) == []


class TestGivingWay:
    def test_a_job_stops_the_run_and_goes_first(self) -> None:
        world = loaded(started(), "jan", "feb")
        hold_pods(world, "Maintain")
        world.run_until(lambda: world.kube.condition("Table", "flights", "Progressing") == ("True", "Maintaining"))
        stops: list[str] = []

        def watch(number: int, moment: str) -> bool:
            if (world.kube.writes[number], moment) == ("delete Pod", "before"):
                stops.append(status(world)["maintainRun"]["stopReason"])
            return False

        world.kube.crash = watch
        loaded(world, "mar")
        assert stops == ["GivingWay"]
        assert runs(world) == ["GivingWay"]
        assert status(world).get("failedMaintains", 0) == 0
        assert status(world)["maintainsGivenWay"] == 1
        world.kubelet.holds = lambda _pod: False
        world.run_until(lambda: world.holds("Table", "flights", "Healthy"))
        assert world.lake.tables["air", "flights"].small == 0
        assert status(world).get("maintainsGivenWay", 0) == 0

    def test_after_giving_way_in_vain_it_keeps_the_place_for_a_while(self) -> None:
        world = loaded(started(), "jan", "feb")
        hold_pods(world, "Maintain")
        world.run_until(lambda: any(world.kube.find("Pod", operation="Maintain")))
        loaded(world, "mar")
        world.run_until(lambda: any(world.kube.find("Pod", operation="Maintain")))
        world.tick()
        since = world.kube.clock.now()
        loaded(world, "apr")
        assert (world.kube.clock.now() - since).total_seconds() >= 30
        assert runs(world) == ["GivingWay", "GivingWay"]

    def test_a_change_of_the_table_goes_first(self) -> None:
        world = loaded(started(), "jan", "feb")
        hold_pods(world, "Maintain")
        world.run_until(lambda: any(world.kube.find("Pod", operation="Maintain")))
        columns = [{"name": "id", "type": "long"}, {"name": "tailnum", "type": "string"}, {"name": "x", "type": "int"}]
        world.kube.edit("Table", "flights", lambda o: o["spec"].update(columns=columns))
        world.run_until(lambda: status(world).get("appliedGeneration") == 2)
        assert runs(world) == ["GivingWay"]

    def test_maintenance_that_is_no_longer_asked_for_is_stopped(self) -> None:
        world = loaded(started(), "jan", "feb")
        hold_pods(world, "Maintain")
        world.run_until(lambda: any(world.kube.find("Pod", operation="Maintain")))
        world.kube.edit("Table", "flights", lambda o: o["spec"].pop("maintenance"))
        world.run_until(lambda: bool(runs(world)))
        assert runs(world) == ["MaintenanceOff"]
        world.run_until(lambda: healthy(world) == ("", ""))

    def test_a_deleted_table_waits_for_no_maintenance(self) -> None:
        world = loaded(started(reclaimPolicy="Delete"), "jan", "feb")
        hold_pods(world, "Maintain")
        world.run_until(lambda: any(world.kube.find("Pod", operation="Maintain")))
        world.kube.remove("Table", "lake", "flights")
        world.run_until(lambda: ("Table", "lake", "flights") not in world.kube.objects)
        assert world.lake.tables == {}


class TestFailures:
    def test_they_are_told_and_tried_again_later_each_time(self) -> None:
        world = loaded(started(), "jan", "feb")
        ok = {"now": False}
        world.lake.script = lambda r: (
            Ends(69, Reason.STORAGE_UNAVAILABLE) if r.kind is RunKind.MAINTAIN and not ok["now"] else None
        )
        world.run_until(lambda: healthy(world) == ("False", "MaintenanceFailed"))
        assert "StorageUnavailable: as scripted" in message(world, "Healthy")
        begun = world.kube.clock.now()
        world.run_until(lambda: len(runs(world)) == 4)
        assert (world.kube.clock.now() - begun).total_seconds() >= 10 + 20 + 40
        assert world.kube.condition("Table", "flights", "Ready")[0] == "True"
        ok["now"] = True
        world.run_until(lambda: world.holds("Table", "flights", "Healthy"))
        assert status(world).get("failedMaintains", 0) == 0

    def test_a_run_that_does_nothing_is_not_repeated_at_once(self) -> None:
        world = loaded(started(), "jan", "feb")
        world.lake.script = lambda r: (
            Ends(0, Reason.COMMITTED, outcome=RunOutcome.COMMITTED) if r.kind is RunKind.MAINTAIN else None
        )
        world.run_until(lambda: bool(runs(world)))
        before = world.kube.clock.now()
        world.run_until(lambda: len(runs(world)) == 4)
        assert (world.kube.clock.now() - before).total_seconds() >= 10 + 20 + 40

    def test_a_step_that_fails_in_a_run_that_ends_well_is_told(self) -> None:
        world = loaded(started(), "jan", "feb")
        world.lake.failing_step = Reason.COLUMN_NOT_FOUND
        world.run_until(lambda: healthy(world) == ("False", "MaintenanceFailed"))
        assert message(world, "Healthy") == "Compaction ended with ColumnNotFound: as scripted"

    def test_steps_that_ended_before_the_run_failed_are_told_as_done(self) -> None:
        world = loaded(started({**COMPACTED, "snapshots": {"maxAge": "5d"}}), "jan")
        done = StepReport(
            step=MaintenanceStep.COMPACTION, is_done=True, reason=Reason.COMMITTED, counts={"filesRewritten": 2}
        )
        fails = Ends(69, Reason.STORAGE_UNAVAILABLE, outcome=RunOutcome.UNKNOWN, steps=(done,))
        world.lake.script = lambda r: fails if r.kind is RunKind.MAINTAIN else None
        annotate(world, "now")
        world.run_until(lambda: bool(runs(world)))
        assert [(one["step"], one["done"], one["reason"]) for one in status(world)["lastMaintenance"]] == [
            ("Compaction", True, "Committed"),
            ("Manifests", False, "StorageUnavailable"),
            ("Snapshots", False, "StorageUnavailable"),
        ]
        assert world.meter.work["filesRewritten"] == 2

    def test_a_quota_is_waited_for(self) -> None:
        world = started()
        hold_pods(world, "Reindex")
        world.kube.edit("Warehouse", "main", lambda o: o["spec"].update(maxConcurrentRuns=1))
        loaded(world, "jan")
        world.kube.add(index())
        world.run_until(lambda: any(world.kube.find("Pod", operation="Reindex")))
        annotate(world, "now")
        world.run_until(lambda: world.kube.condition("Table", "flights", "Progressing")[1] == "WaitingForQuota")
        world.kubelet.holds = lambda _pod: False
        world.run_until(lambda: bool(runs(world)))


class TestInline:
    def test_an_inline_index_is_in_sync_when_its_job_ends(self) -> None:
        world = started(None)
        world.kube.add(index(maintenance="Inline"))
        world.run_until(lambda: synced(world) == "0/0")
        loaded(world, "jan", "feb")
        world.run_until(lambda: synced(world) == "2/2")
        rest(world)
        assert "Reindex" not in {kind for kind, _ in world.meter.finished}

    def test_it_catches_up_after_a_run_that_did_not_get_so_far(self) -> None:
        world = started(None)
        world.lake.dies_before_entering = True
        world.kube.add(index(maintenance="Inline"))
        loaded(world, "jan")
        world.run_until(lambda: synced(world) == "1/1")
        assert ("Reindex", "Committed") in world.meter.finished

    def test_no_reindex_takes_from_a_live_run_what_that_enters_itself(self) -> None:
        world = started(None)
        world.kube.add(index(maintenance="Inline"))
        loaded(world, "jan")
        world.run_until(lambda: synced(world) == "1/1")
        hold_pods(world, "Load")
        world.kube.add(load("feb"))
        world.run_until(lambda: any(world.kube.find("Pod", operation="Load")))
        rest(world, 2)
        # Its commit has landed, and somebody else looks before it has entered its files.
        lake = world.lake.tables["air", "flights"]
        lake.sequence += 1
        lake.segments.append(lake.sequence)
        lake.change()
        world.kube.edit("Table", "flights", lambda o: o["spec"].update(refreshIntervalSeconds=30))
        world.run_until(lambda: synced(world) == "1/2")
        rest(world)
        waits = world.kube.condition("SecondaryIndex", "by-tail", "Progressing")
        assert waits == ("False", "WaitingForTable")
        assert "Reindex" not in {kind for kind, _ in world.meter.finished}


def test_maintenance_goes_on_in_a_world_that_was_settled_without_it() -> None:
    world = loaded(settled(World()), "jan", "feb")
    ask(world, COMPACTED)
    world.run_until(lambda: len(world.lake.tables["air", "flights"].segments) == 1)
