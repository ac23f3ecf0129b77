"""The lives of tables and Warehouses: created, changed, observed, checked, dropped."""

from __future__ import annotations

import pytest
from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason
from skipstone_operator.manifests import conf_map_name

from tests.unit.lake_double import Ends, LakeTable, end_pod
from tests.unit.lives import driver, hold_pods, job, refuse_all, started, synced
from tests.unit.objects import claim, index, load, observed_table, table, warehouse
from tests.unit.operator_double import World


class TestTable:
    def test_an_evolved_spec_is_applied_once(self) -> None:
        world = started()
        columns = [{"name": "id", "type": "long"}, {"name": "tailnum", "type": "string"}, {"name": "x", "type": "int"}]
        world.kube.edit("Table", "flights", lambda o: o["spec"].update(columns=columns))
        world.run_until(lambda: world.kube.status("Table", "flights")["columnTypes"].get("x") == "int")
        assert world.meter.finished.count(("Table", "Created")) == 2

    def test_a_refused_change_is_remembered_until_the_spec_changes(self) -> None:
        world = started()
        world.lake.script = lambda r: Ends(64, Reason.SCHEMA_MISMATCH) if r.kind is RunKind.TABLE else None
        world.kube.edit("Table", "flights", lambda o: o["spec"]["columns"][0].update(type="int"))
        world.run_until(lambda: world.kube.condition("Table", "flights", "Ready") == ("False", "SchemaMismatch"))
        for _ in range(20):
            world.tick()
        assert world.meter.finished.count(("Table", "SchemaMismatch")) == 1
        world.lake.script = lambda _request: None
        world.kube.edit("Table", "flights", lambda o: o["spec"]["columns"][0].update(type="long"))
        world.run_until(lambda: world.holds("Table", "flights", "Ready"))

    def test_what_was_wrong_with_a_spec_is_forgotten_with_that_spec(self) -> None:
        world = started()
        misspelt = {"write.parquet.row-group-limit": "banana"}
        world.kube.edit("Table", "flights", lambda o: o["spec"].update(properties=misspelt))
        world.run_until(lambda: world.kube.condition("Table", "flights", "Ready") == ("False", "InvalidSpec"))
        hold_pods(world, "Table")
        world.kube.edit("Table", "flights", lambda o: o["spec"].update(properties={"comment": "good"}))
        world.tick()
        assert world.kube.condition("Table", "flights", "Ready") == ("Unknown", "RunIntended")
        world.kubelet.holds = lambda _pod: False
        world.run_until(lambda: world.holds("Table", "flights", "Ready"))

    def test_the_older_of_two_claimants_wins(self) -> None:
        world = started()
        world.kube.clock.advance(10)
        world.kube.add(table("twin"))
        world.run_until(lambda: world.kube.condition("Table", "twin", "Ready") == ("False", "ResourceConflict"))
        assert world.holds("Table", "flights", "Ready")
        world.kube.remove("Table", "lake", "flights")
        world.run_until(lambda: world.holds("Table", "twin", "Ready"))
        assert world.kube.condition("Table", "twin", "Ready")[1] == "Adopted"

    def test_the_data_of_the_older_claimant_does_not_go_with_the_younger_that_created_it(self) -> None:
        world = World()
        for obj in (claim(), warehouse(), table("older", warehouseRef={"name": "late"})):
            world.kube.add(obj)
        world.kube.clock.advance(10)
        world.kube.add(table("younger", reclaimPolicy="Delete"))
        world.run_until(lambda: world.holds("Table", "younger", "Ready"))
        for obj in (warehouse("late"), load("jan", tableRef={"name": "older"})):
            world.kube.add(obj)
        world.run_until(lambda: world.holds("LoadJob", "jan", "Complete"))
        world.kube.remove("Table", "lake", "younger")
        world.run_until(lambda: ("Table", "lake", "younger") not in world.kube.objects)
        assert world.lake.tables["air", "flights"].segments == [1]
        (note,) = [record.note for record in world.events.records if record.reason is Reason.DATA_RETAINED]
        assert note.endswith("was kept: Table lake/older is older and claims the same table")

    def test_a_claimant_that_goes_as_well_keeps_no_data(self) -> None:
        world = World()
        older = table("older", warehouseRef={"name": "late"}, reclaimPolicy="Delete")
        for obj in (claim(), warehouse(), older):
            world.kube.add(obj)
        world.kube.clock.advance(10)
        world.kube.add(table("younger", reclaimPolicy="Delete"))
        world.run_until(lambda: world.holds("Table", "younger", "Ready"))
        world.kube.add(warehouse("late"))
        world.run_until(lambda: world.holds("Table", "older", "Ready"))
        for name in ("older", "younger"):
            world.kube.remove("Table", "lake", name)
        world.run_until(lambda: not any(kind == "Table" for kind, _, _ in world.kube.objects))
        assert not world.lake.tables

    @pytest.mark.parametrize("left", ["the job stays", "the job goes too", "its ConfigMap goes first"])
    def test_one_that_is_created_again_waits_for_the_driver_of_the_earlier_one(self, left: str) -> None:
        world = started(load("jan"))
        world.run_until(lambda: job(world)[1] == "DriverRunning")
        pod = driver(world)["metadata"]["name"]
        world.kubelet.holds = lambda found: found["metadata"]["name"] == pod
        world.kube.drop("Table", "lake", "flights")
        if left == "the job goes too":
            world.kube.drop("LoadJob", "lake", "jan")
        if left == "its ConfigMap goes first":  # the garbage collector keeps to no order
            world.kube.objects.pop(("LoadJob", "lake", "jan"))
            world.kube.objects.pop(("ConfigMap", "lake", conf_map_name(pod.removesuffix("-driver"))))
        world.kube.add(table())
        for _ in range(3):
            world.reconcile_all()
            world.kube.clock.advance(5)
        assert not list(world.kube.find("Pod", operation="Table"))
        assert world.kube.condition("Table", "flights", "Progressing") == ("False", "WaitingForTable")
        assert f"driver pod {pod} is writing the table" in str(world.kube.status("Table", "flights")["conditions"])
        world.kube.drop("Pod", "lake", pod)
        world.run_until(lambda: world.holds("Table", "flights", "Ready"))

    def test_one_that_is_created_again_waits_for_no_driver_of_another_table(self) -> None:
        world = started(load("jan"))
        world.run_until(lambda: job(world)[1] == "DriverRunning")
        pod = driver(world)["metadata"]["name"]
        world.kubelet.holds = lambda found: found["metadata"]["name"] == pod
        world.kube.drop("Table", "lake", "flights")
        world.kube.add(table("other", identifier={"namespace": "air", "name": "other"}))
        world.run_until(lambda: world.holds("Table", "other", "Ready"))

    def test_observed_tables_are_looked_at_again_and_again(self) -> None:
        world = World(seconds=20)
        world.lake.tables["air", "flights"] = LakeTable("somebody", {"tailnum": "string"}, segments=[1], sequence=1)
        for obj in (claim(), warehouse(), observed_table(refreshIntervalSeconds=60)):
            world.kube.add(obj)
        world.run_until(lambda: world.holds("Table", "flights", "Ready"))
        assert world.kube.condition("Table", "flights", "Ready") == ("True", "Observed")
        world.lake.tables["air", "flights"].segments.append(2)
        world.run_until(lambda: world.kube.status("Table", "flights")["segments"]["total"] == 2)
        del world.lake.tables["air", "flights"]
        world.run_until(lambda: world.kube.condition("Table", "flights", "Ready") == ("False", "TableMissing"))
        assert ("Observe", "Observed") in world.meter.finished
        assert not list(world.kube.find("Pod", operation="Table"))

    @pytest.mark.parametrize("lost", ["the annotation", "the pod"])
    def test_what_no_pod_tells_of_a_commit_is_looked_up(self, lost: str) -> None:
        world = started(load("jan"), index())
        before = world.kube.status("Table", "flights")
        world.run_until(lambda: job(world)[1] == "DriverRunning")
        pod = driver(world)
        end_pod(world.kube, world.lake, pod)
        if lost == "the annotation":
            world.kube.edit("Pod", pod["metadata"]["name"], lambda o: o["metadata"]["annotations"].clear())
            world.run_until(lambda: world.holds("LoadJob", "jan", "Complete"))
        else:
            world.run_until(lambda: world.holds("LoadJob", "jan", "Complete"))
            world.kube.drop("Pod", "lake", pod["metadata"]["name"])
            world.kube.edit("Table", "flights", lambda o: o.update(status=before))
        world.run_until(lambda: world.kube.status("Table", "flights")["segments"]["total"] == 1)
        world.run_until(lambda: synced(world) == "1/1")
        for _ in range(40):
            world.tick()
        assert world.meter.finished.count(("Observe", "Observed")) == 1
        assert not world.kube.status("Table", "flights").get("untoldTime")

    def test_one_observe_pod_serves_all_due_tables(self) -> None:
        world = World()
        for obj in (claim(), warehouse()):
            world.kube.add(obj)
        for name in ("a", "b", "c"):
            world.lake.tables["air", name] = LakeTable("somebody", {})
            world.kube.add(
                observed_table(name, identifier={"namespace": "air", "name": name}, refreshIntervalSeconds=0)
            )
        world.run_until(lambda: all(world.holds("Table", name, "Ready") for name in "abc"))
        assert world.meter.finished.count(("Observe", "Observed")) == 1

    def test_purged_with_the_resource_when_asked(self) -> None:
        world = started()
        world.kube.edit("Table", "flights", lambda o: o["spec"].update(reclaimPolicy="Delete"))
        world.kube.add(load("jan"))
        world.run_until(lambda: job(world)[1] == "DriverRunning")
        world.kube.remove("Table", "lake", "flights")
        world.run_until(lambda: ("Table", "lake", "flights") not in world.kube.objects)
        assert ("air", "flights") not in world.lake.tables
        assert "DataDeleted" in world.events.reasons("Table")
        assert job(world) == ("False", "TableNotFound")

    @pytest.mark.parametrize("words", ["Warehouse is gone", "PersistentVolumeClaim", "namespace is being deleted"])
    def test_kept_with_an_event_when_the_drop_cannot_start(self, words: str) -> None:
        world = started()
        world.kube.edit("Table", "flights", lambda o: o["spec"].update(reclaimPolicy="Delete"))
        for _ in range(5):
            world.tick()
        if words == "Warehouse is gone":
            world.kube.drop("Warehouse", "lake", "main")
        elif words == "PersistentVolumeClaim":
            world.kube.drop("PersistentVolumeClaim", "lake", "lake-data")
        else:
            refuse_all(world)
        world.kube.remove("Table", "lake", "flights")
        world.run_until(lambda: ("Table", "lake", "flights") not in world.kube.objects, ticks=10)
        notes = [record.note for record in world.events.records if record.reason is Reason.DATA_RETAINED]
        assert words in notes[0]
        assert "/skipstone/main/air/flights" in notes[0]

    def test_kept_after_ten_minutes_of_trying(self) -> None:
        world = started()
        world.kube.edit("Table", "flights", lambda o: o["spec"].update(reclaimPolicy="Delete"))
        world.tick()
        world.lake.script = lambda r: Ends(69, Reason.CATALOG_UNAVAILABLE) if r.kind is RunKind.DROP else None
        world.kube.remove("Table", "lake", "flights")
        begun = world.kube.clock.time
        world.run_until(lambda: ("Table", "lake", "flights") not in world.kube.objects)
        assert 600 <= (world.kube.clock.time - begun).total_seconds() <= 620
        assert ("air", "flights") in world.lake.tables
        assert "DataRetained" in world.events.reasons("Table")

    def test_a_table_that_is_not_ours_is_kept(self) -> None:
        world = World()
        world.lake.tables["air", "flights"] = LakeTable("somebody", {"id": "long"})
        for obj in (claim(), warehouse(), table(reclaimPolicy="Delete")):
            world.kube.add(obj)
        world.run_until(lambda: world.holds("Table", "flights", "Ready"))
        assert world.kube.condition("Table", "flights", "Ready") == ("True", "Adopted")
        world.kube.remove("Table", "lake", "flights")
        world.run_until(lambda: ("Table", "lake", "flights") not in world.kube.objects)
        assert ("air", "flights") in world.lake.tables
        assert "DataRetained" in world.events.reasons("Table")


class TestWarehouse:
    def test_a_failing_check_is_tried_again_until_it_works(self) -> None:
        world = World()
        world.lake.script = lambda r: Ends(69, Reason.CATALOG_UNAVAILABLE) if r.attempt < 3 else None
        for obj in (claim(), warehouse()):
            world.kube.add(obj)
        world.run_until(lambda: world.kube.condition("Warehouse", "main", "Ready") == ("False", "CatalogUnavailable"))
        world.run_until(lambda: world.holds("Warehouse", "main", "Ready"))
        assert world.meter.finished.count(("Check", "CatalogUnavailable")) == 2

    def test_checked_once_per_generation(self) -> None:
        world = started()
        assert world.meter.finished.count(("Check", "Checked")) == 1
        world.kube.edit("Warehouse", "main", lambda o: o["spec"].update(maxConcurrentRuns=5))
        world.run_until(lambda: world.meter.finished.count(("Check", "Checked")) == 2)

    def test_an_image_that_cannot_be_pulled_is_named(self) -> None:
        world = World()
        world.kubelet.holds = lambda _pod: True
        for obj in (claim(), warehouse()):
            world.kube.add(obj)
        world.run_until(lambda: bool(list(world.kube.find("Pod"))))
        waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
        status = {"containerStatuses": [{"name": "spark-kubernetes-driver", "state": waiting}]}
        world.kube.edit("Pod", driver(world, "Check")["metadata"]["name"], lambda p: p["status"].update(status))
        world.run_until(lambda: world.kube.condition("Warehouse", "main", "Ready") == ("False", "ImagePullFailed"))

    def test_stays_until_what_needs_it_is_gone(self) -> None:
        world = started(load("jan"), index())
        world.run_until(lambda: synced(world) == "1/1")
        for kind, name in (("Warehouse", "main"), ("Table", "flights")):
            world.kube.remove(kind, "lake", name)
        for _ in range(5):
            world.tick()
        assert world.kube.condition("Warehouse", "main", "Progressing") == ("True", "Deleting")
        world.kube.remove("SecondaryIndex", "lake", "by-tail")
        world.run_until(lambda: not any(kind == "Warehouse" for kind, _, _ in world.kube.objects))
        assert not world.lake.tables["air", "flights"].covered

    def test_goes_after_ten_minutes_in_any_case(self) -> None:
        world = started(load("jan"), index())
        world.run_until(lambda: synced(world) == "1/1")
        world.kube.remove("Warehouse", "lake", "main")
        world.run_until(lambda: ("Warehouse", "lake", "main") not in world.kube.objects)
        assert "DataRetained" in world.events.reasons("Warehouse")
