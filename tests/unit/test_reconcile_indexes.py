"""The life of an index: built, behind, rebuilt, dropped."""

from __future__ import annotations

import pytest
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason

from tests.unit.lake_double import Ends
from tests.unit.lives import driver, hold_pods, started, synced
from tests.unit.objects import index, load


class TestIndex:
    def test_suspended_shows_the_missing_segments_and_catches_up(self) -> None:
        world = started(load("jan"), index())
        world.run_until(lambda: synced(world) == "1/1")
        world.kube.edit("SecondaryIndex", "by-tail", lambda o: o["spec"].update(suspend=True))
        world.kube.add(load("feb"))
        world.kube.add(load("mar"))
        world.run_until(lambda: world.kube.status("SecondaryIndex", "by-tail")["synced"] == "1/3")
        assert world.kube.status("SecondaryIndex", "by-tail")["missing"] == "2,3"
        assert world.kube.condition("SecondaryIndex", "by-tail", "Progressing") == ("False", "Suspended")
        assert world.kube.condition("SecondaryIndex", "by-tail", "Ready") == ("True", "Healthy")
        assert world.kube.status("SecondaryIndex", "by-tail")["segments"]["missing"] == 2
        world.kube.edit("SecondaryIndex", "by-tail", lambda o: o["spec"].update(suspend=False))
        world.run_until(lambda: world.kube.status("SecondaryIndex", "by-tail")["synced"] == "3/3")

    def test_by_hand_only_when_asked(self) -> None:
        world = started(load("jan"), index(maintenance="Manual"))
        world.run_until(lambda: world.kube.status("SecondaryIndex", "by-tail").get("synced") == "0/1")
        for _ in range(10):
            world.tick()
        assert not list(world.kube.find("Pod", operation="Reindex"))
        world.kube.edit(
            "SecondaryIndex", "by-tail", lambda o: o["metadata"].update(annotations={"skipstone.dev/reindex": "1"})
        )
        world.run_until(lambda: world.holds("SecondaryIndex", "by-tail", "Synced"))
        assert world.kube.status("SecondaryIndex", "by-tail")["observedReindex"] == "1"

    @pytest.mark.parametrize("trouble", ["fails", "is lost", "is suspended"])
    def test_by_hand_is_not_forgotten_when_an_attempt(self, trouble: str) -> None:
        world = started(load("jan"), index(maintenance="Manual"))
        world.run_until(lambda: synced(world) == "0/1")
        hold_pods(world, "Reindex")
        world.kube.edit(
            "SecondaryIndex", "by-tail", lambda o: o["metadata"].update(annotations={"skipstone.dev/reindex": "1"})
        )
        world.run_until(lambda: any(world.kube.find("Pod", operation="Reindex")))
        world.tick()
        if trouble == "fails":
            world.lake.script = lambda r: Ends(1) if r.kind is RunKind.REINDEX and r.attempt == 1 else None
        elif trouble == "is lost":
            world.kube.drop("Pod", "lake", driver(world, "Reindex")["metadata"]["name"])
        else:
            world.kube.edit("SecondaryIndex", "by-tail", lambda o: o["spec"].update(suspend=True))
            world.run_until(lambda: not any(world.kube.find("Pod", operation="Reindex")))
            assert world.kube.condition("SecondaryIndex", "by-tail", "Progressing") == ("False", "Suspended")
            world.kube.edit("SecondaryIndex", "by-tail", lambda o: o["spec"].update(suspend=False))
        world.kubelet.holds = lambda _pod: False
        world.run_until(lambda: world.holds("SecondaryIndex", "by-tail", "Synced"))
        for _ in range(10):
            world.tick()
        assert [reason for kind, reason in world.meter.finished if kind == "Reindex"][1:] == ["Committed"]

    def test_a_refused_reindex_is_remembered_until_its_inputs_change(self) -> None:
        world = started(load("jan"), index())
        refuse = {"now": True}
        world.lake.script = lambda r: (
            Ends(64, Reason.DELETES_UNSUPPORTED) if r.kind is RunKind.REINDEX and refuse["now"] else None
        )
        world.run_until(lambda: world.holds("SecondaryIndex", "by-tail", "Degraded"))
        runs = len([run for run in world.meter.finished if run[0] == "Reindex"])
        for _ in range(20):
            world.tick()
        assert len([run for run in world.meter.finished if run[0] == "Reindex"]) == runs == 1
        refuse["now"] = False
        columns = [{"name": "id", "type": "long"}, {"name": "tailnum", "type": "string"}, {"name": "x", "type": "int"}]
        world.kube.edit("Table", "flights", lambda o: o["spec"].update(columns=columns))
        world.run_until(lambda: world.holds("SecondaryIndex", "by-tail", "Synced"))
        assert world.kube.condition("SecondaryIndex", "by-tail", "Degraded") == ("False", "Healthy")

    def test_a_run_that_builds_nothing_is_not_repeated_at_once(self) -> None:
        world = started(load("jan"), index())
        world.lake.script = lambda r: (
            Ends(0, Reason.COMMITTED, outcome=RunOutcome.COMMITTED, end_reason="Completed")
            if r.kind is RunKind.REINDEX
            else None
        )
        for _ in range(60):
            world.tick()
        assert 2 <= len([run for run in world.meter.finished if run[0] == "Reindex"]) <= 7

    def test_lag_and_coverage_limits_turn_ready_off(self) -> None:
        lag, cover = (
            index("lag", suspend=True, maxLagSegments=0),
            index("cover", "id", suspend=True, minCoveredPercent=50),
        )
        world = started(load("jan"), lag, cover)
        world.run_until(lambda: world.kube.status("SecondaryIndex", "cover").get("synced") == "0/1")
        assert world.kube.condition("SecondaryIndex", "lag", "Ready") == ("False", "NotBuilt")
        for name in ("lag", "cover"):
            world.kube.edit("SecondaryIndex", name, lambda o: o["spec"].update(suspend=False))
        world.run_until(
            lambda: world.holds("SecondaryIndex", "lag", "Ready") and world.holds("SecondaryIndex", "cover", "Ready")
        )
        for name in ("lag", "cover"):
            world.kube.edit("SecondaryIndex", name, lambda o: o["spec"].update(suspend=True))
        world.kube.add(load("feb"))
        world.kube.add(load("mar"))
        world.run_until(lambda: world.kube.condition("SecondaryIndex", "lag", "Ready") == ("False", "LagExceeded"))
        world.run_until(
            lambda: world.kube.condition("SecondaryIndex", "cover", "Ready") == ("False", "CoverageBelowMinimum")
        )

    def test_a_new_least_coverage_of_use_is_stored_by_one_reindex(self) -> None:
        world = started(load("jan"), index(unusedBelowPercent=20))

        def stored(percent: int) -> bool:
            return world.kube.status("SecondaryIndex", "by-tail").get("unusedBelowPercent") == percent

        world.run_until(lambda: synced(world) == "1/1" and stored(20))
        world.kube.edit("SecondaryIndex", "by-tail", lambda o: o["spec"].update(unusedBelowPercent=60))
        world.run_until(lambda: stored(60) and world.holds("SecondaryIndex", "by-tail", "Ready"))
        for _ in range(10):
            world.tick()
        assert len([run for run in world.meter.finished if run[0] == "Reindex"]) == 2

    def test_deletion_drops_the_index_table_even_when_the_table_went_first(self) -> None:
        world = started(load("jan"), index())
        world.run_until(lambda: synced(world) == "1/1")
        uid = world.kube.objects["SecondaryIndex", "lake", "by-tail"]["metadata"]["uid"]
        world.kube.remove("Table", "lake", "flights")
        world.run_until(
            lambda: world.kube.condition("SecondaryIndex", "by-tail", "Ready") == ("False", "TableNotFound")
        )
        world.kube.remove("SecondaryIndex", "lake", "by-tail")
        world.run_until(lambda: ("SecondaryIndex", "lake", "by-tail") not in world.kube.objects)
        assert uid not in world.lake.tables["air", "flights"].covered
        assert "DataDeleted" in world.events.reasons("SecondaryIndex")
