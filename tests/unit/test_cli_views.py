"""What the command line judges: names, how objects stand, the tree, what is waited for, how a request ended."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import skipstone_cli
import yaml
from skipstone_cli import kinds
from skipstone_cli.errors import CliError
from skipstone_cli.escaping import clean, clean_line
from skipstone_cli.output.trees import older_text, tree_lines
from skipstone_cli.reading import JsonObject
from skipstone_cli.views.causes import Neighbor, Surroundings, explain
from skipstone_cli.views.outcomes import find_maintain_end, find_reindex_end
from skipstone_cli.views.pods import choose_driver, guess_driver
from skipstone_cli.views.standings import State, judge
from skipstone_cli.views.tree import Branch, build_tree, narrow
from skipstone_operator import labels
from skipstone_operator.manifests.names import driver_pod_name
from skipstone_operator.manifests.planning.deployment import CONTAINER as SERVER_CONTAINER
from skipstone_operator.manifests.planning.names import server_selector
from skipstone_operator.resources.kinds import API_VERSION, KINDS

from tests.unit.cli_stand_in import READY, TIME, condition, driver, index, job, stored, table, warehouse

ROOT = Path(__file__).parents[2]
BY_NAME = {kind.name: kind for kind in kinds.KINDS}
COMPLETE = condition("Complete", "True", "Committed")
FAILED = condition("Failed", "True", "BadRecords", "row 7")
STALLED = condition("Stalled", "True", "InvalidSpec", "spec.source.format: ...")


def progressing(reason: str, status: str = "False", message: str = "") -> dict[str, str]:
    return condition("Progressing", status, reason, message)


def tree_of(*objects: JsonObject, **options: Any) -> tuple[Branch, ...]:
    grouped = {kind: [one for one in objects if one["kind"] == kind.name] for kind in kinds.KINDS}
    return build_tree(grouped, **options)


def drawn(tree: Sequence[Branch]) -> list[str]:
    return ["".join(piece.text for piece in line) for line in tree_lines(tree, namespaces=False)]


def names(branches: Sequence[Branch]) -> list[str]:
    return [f"{one.kind.short}/{one.name}" for one in branches]


class TestNames:
    def test_kinds_and_labels_are_those_of_the_operator(self) -> None:
        told = {kind.name: (kind.plural, kind.singular, kind.short_name) for kind in KINDS.values()}
        assert {kind.name: (kind.plural, kind.singular, kind.short) for kind in kinds.KINDS} == told
        assert kinds.API_VERSION == API_VERSION
        for name in ("OWNER_UID_LABEL", "WAREHOUSE_UID_LABEL", "RUN_ID_LABEL", "OPERATION_LABEL", "ROLE_LABEL",
                     "DRIVER_ROLE", "DRIVER_CONTAINER"):  # fmt: skip
            assert getattr(kinds, name) == getattr(labels, name)
        assert server_selector("u")[kinds.COMPONENT_LABEL] == kinds.SERVER_COMPONENT
        assert kinds.SERVER_CONTAINER == SERVER_CONTAINER

    @pytest.mark.parametrize("word", ["si", "SI", "SecondaryIndex", "secondaryindexes", "secondaryindex.skipstone.dev",
                                      "secondaryindexes.v1alpha1.skipstone.dev"])  # fmt: skip
    def test_a_kind_has_the_names_that_kubectl_takes(self, word: str) -> None:
        assert str(kinds.parse_target(f"{word}/by-day")) == "si/by-day"

    @pytest.mark.parametrize(("text", "says"), [
        ("pod/a", "use one of warehouse (wh), table (tbl)"), ("tbl", "write KIND/NAME"), ("tbl/", "write KIND/NAME"),
        ("/a", "write KIND/NAME"), ("tbl/A", "lower-case"), ("tbl/..", "lower-case"), ("tbl/a..b", "lower-case"),
        ("tbl/a/log", "lower-case"), ("tbl/a%2f", "lower-case"),
    ])  # fmt: skip
    def test_what_names_nothing_is_refused_in_a_sentence(self, text: str, says: str) -> None:
        with pytest.raises(CliError) as refused:
            kinds.parse_target(text)
        assert says in str(refused.value)

    def test_the_version_is_that_of_the_package(self) -> None:
        text = (ROOT / "cli" / "pyproject.toml").read_text()
        assert f'version = "{skipstone_cli.__version__}"' in text


class TestEscaping:
    def test_nothing_moves_the_cursor_or_hides_text(self) -> None:
        unsafe = "a\x1b[2Jb\rc\x07d\x9be\u202ef\u200bg\ud800h\u2028i"
        assert clean(unsafe) == "a\\x1b[2Jb\\x0dc\\x07d\\x9be\\u202ef\\u200bg\\ud800h\\u2028i"
        assert clean("tab\tnew\nline ä 日本") == "tab\tnew\nline ä 日本"
        assert clean_line(" a\n\tb ") == "a b"


@pytest.mark.parametrize(("obj", "state", "reason"), [
    (stored("Table", "a"), State.UNKNOWN, ""),
    (table("a"), State.READY, "Checked"),
    (table("a", condition("Ready", "False", "SchemaMismatch")), State.FAILED, "SchemaMismatch"),
    (table("a", condition("Ready", "False", "WarehouseNotReady")), State.WAITING, "WarehouseNotReady"),
    (table("a", condition("Ready", "False", "RunIntended"), currentRun={"id": "r"}), State.RUNNING, "RunIntended"),
    (table("a", READY, condition("Healthy", "False", "SmallFiles")), State.READY, "SmallFiles"),
    (table("a", READY, condition("Healthy", "False", "MaintenanceFailed")), State.FAILED, "MaintenanceFailed"),
    (index("a", READY, condition("Synced", "False", "SegmentsMissing")), State.READY, "SegmentsMissing"),
    (index("a", READY, condition("Degraded", "True", "IndexDamaged")), State.FAILED, "IndexDamaged"),
    (index("a", READY, condition("Degraded", "False", "Healthy")), State.READY, "Checked"),
    (warehouse("a", condition("Ready", "Unknown", "CheckPending")), State.WAITING, "CheckPending"),
    (warehouse("a", condition("Ready", "False", "CheckFailed")), State.FAILED, "CheckFailed"),
    (warehouse("a", READY, condition("PlanningReady", "True", "Serving")), State.READY, "Checked"),
    (warehouse("a", READY, condition("PlanningReady", "False", "ReplicasPending")), State.READY, "ReplicasPending"),
    (warehouse("a", READY, condition("PlanningReady", "False", "InvalidSpec")), State.FAILED, "InvalidSpec"),
    (job("LoadJob", "a", COMPLETE), State.COMPLETE, "Committed"),
    (job("LoadJob", "a", condition("Complete", "False", "BadRecords"), FAILED), State.FAILED, "BadRecords"),
    (job("MergeJob", "a", progressing("Suspended")), State.WAITING, "Suspended"),
    (job("MergeJob", "a", progressing("Retrying", "True"), currentRun={"id": "r"}), State.RUNNING, "Retrying"),
    # Somebody has to change something, whatever the other conditions say.
    (job("LoadJob", "a", condition("Progressing", "Unknown", "InvalidSpec"), STALLED), State.FAILED, "InvalidSpec"),
    (table("a", READY, progressing("InvalidSpec"), STALLED), State.FAILED, "InvalidSpec"),
    ({**table("a"), "metadata": {"name": "a", "deletionTimestamp": TIME}}, State.DELETING, "Deleting"),
    ({"kind": "Table", "metadata": {"name": "a"}, "status": {"conditions": "odd"}}, State.UNKNOWN, ""),
    ({"kind": "Table", "metadata": {"name": "a"}, "status": {"conditions": [7, {"type": 7}]}}, State.UNKNOWN, ""),
])  # fmt: skip
def test_how_an_object_stands(obj: JsonObject, state: State, reason: str) -> None:
    standing = judge(BY_NAME[obj["kind"]], obj)
    assert (standing.state, standing.reason) == (state, reason)


class TestTree:
    def test_warehouses_hold_tables_and_those_indexes_schedules_and_the_newest_jobs_of_all_kinds(self) -> None:
        hourly = stored("MergeSchedule", "hourly", {"mergeTemplate": {"spec": {"tableRef": {"name": "orders"}}}})
        jobs = [
            job(
                "MergeJob" if day % 2 else "LoadJob",
                f"j{day}",
                FAILED if day == 1 else COMPLETE,
                created=f"2026-01-0{day}",
            )
            for day in range(1, 6)
        ]
        (root,) = tree_of(*jobs, hourly, index("b"), index("a"), table(), warehouse())
        (orders,) = root.children
        assert names(orders.children) == ["si/a", "si/b", "ms/hourly", "mj/j5", "lj/j4", "mj/j3"]
        assert orders.older is not None
        assert older_text(orders.older) == "2 older jobs, 1 failed (--all shows them)"
        (whole,) = tree_of(*jobs, hourly, table(), warehouse(), every_job=True)
        assert len(whole.children[0].children) == 6
        assert whole.children[0].older is None

    def test_what_names_an_absent_object_is_shown_below_it(self) -> None:
        tree = tree_of(table("a"), job("LoadJob", "lost", progressing("TableNotFound")), index("stray"))
        assert drawn(tree) == [
            "wh/-  no Warehouse is named",
            "└── tbl/orders  does not exist",
            "    ├── si/stray  Ready  SYNCED unknown",
            "    └── lj/lost  Waiting  TableNotFound",
            "wh/lake  does not exist",
            "└── tbl/a  Ready",
        ]

    def test_equal_names_in_other_namespaces_are_other_objects(self) -> None:
        there = table()
        there["metadata"]["namespace"] = "pond"
        tree = tree_of(table(), there, warehouse(), index())
        assert [(one.namespace, one.exists, len(one.children[0].children)) for one in tree] == [
            ("lake", True, 1),
            ("pond", False, 0),
        ]

    def test_one_object_is_shown_with_what_leads_to_it_and_what_it_holds(self) -> None:
        jobs = [job("LoadJob", f"j{day}", COMPLETE, created=f"2026-01-0{day}") for day in range(1, 6)]
        objects = (warehouse(), table(), table("other"), index(), *jobs)
        target = kinds.parse_target("lj/j1")
        assert drawn(narrow(tree_of(*objects, target=target), target, "lake")) == [
            "wh/lake  Ready  pvc/lake",
            "└── tbl/orders  Ready",
            "    └── lj/j1  Complete",
        ]
        (found,) = narrow(tree_of(*objects), kinds.parse_target("tbl/orders"), "lake")
        assert names(found.children[0].children) == ["si/by-day", "lj/j5", "lj/j4", "lj/j3"]
        assert narrow(tree_of(*objects), target, "pond") == ()

    def test_numbers_and_errors_stand_beside_the_names(self) -> None:
        lagging = index("by-day", READY, synced="3/5", missing="4,5", segments={"missing": 2})
        retried = job(
            "MergeJob", "m", progressing("Retrying", "True", "waits"),
            lastRun={"result": "Failed", "reason": "OutOfMemory", "message": "raise it"},
        )  # fmt: skip
        healthy = table("orders", READY, condition("Healthy", "True", "Healthy"), rows=1_204_000)
        assert drawn(tree_of(warehouse(), healthy, lagging, retried))[1:] == [
            "└── tbl/orders  Ready  1,204,000 rows  Healthy",
            "    ├── si/by-day  Ready  SYNCED 3/5  missing 4,5 (lag 2 segments)",
            "    └── mj/m  Waiting  Retrying: waits; last error: OutOfMemory: raise it",
        ]

    def test_a_planning_server_stands_beside_its_warehouse(self) -> None:
        served = warehouse("lake", READY, condition("PlanningReady", "True", "ReplicasPending"))
        served["status"]["planning"] = {"url": "http://lake-planning.ns.svc:8181", "replicas": 2, "readyReplicas": 1}
        assert drawn(tree_of(served)) == ["wh/lake  Ready  pvc/lake  planning 1/2 at http://lake-planning.ns.svc:8181"]
        refused = warehouse("lake", READY, condition("PlanningReady", "False", "ServerRefused"))
        refused["status"]["planning"] = {"retryTime": TIME}
        assert waits(refused) == (f"the refused object of the planning server is tried again at {TIME} or later",)

    def test_twice_the_objects_take_twice_the_calls(self) -> None:
        def calls(size: int) -> int:
            tables = [table(f"t{number}") for number in range(size)]
            others = [index(f"i{number}") for number in range(size)] + [job("LoadJob", f"j{n}") for n in range(size)]
            for number, one in enumerate(others):
                one["spec"]["tableRef"]["name"] = f"t{number % size}"
            count = 0

            def counting(_frame: Any, event: str, _argument: Any) -> None:
                nonlocal count
                count += event in ("call", "c_call")

            sys.setprofile(counting)
            try:
                drawn(tree_of(warehouse(), *tables, *others))
            finally:
                sys.setprofile(None)
            return count

        assert calls(200) < 2.3 * calls(100)


def waits(obj: JsonObject, **around: Any) -> tuple[str, ...]:
    target = kinds.Target(BY_NAME[obj["kind"]], obj["metadata"]["name"])
    return explain(target, obj, Surroundings(**around)).waits


def neighbor(text: str, obj: JsonObject | None) -> Neighbor:
    return Neighbor(kinds.parse_target(text), obj)


class TestWaits:
    def test_for_the_writer_of_the_table(self) -> None:
        written = table(writer={"kind": "MergeJob", "name": "m", "uid": "uid-m", "since": TIME})
        waiting = job("LoadJob", "l", progressing("WaitingForTable"))
        assert waits(waiting, table=neighbor("tbl/orders", written)) == (f"mj/m writes tbl/orders since {TIME}",)
        assert waits(job("MergeJob", "m", progressing("WaitingForTable")), table=neighbor("tbl/orders", written)) == ()

    def test_for_older_jobs_of_the_table(self) -> None:
        mine = job("LoadJob", "c", progressing("WaitingForTurn"), created="2026-01-03")
        others = [
            kinds.Item(BY_NAME["MergeJob"], job("MergeJob", "a", progressing("Suspended"), created="2026-01-01")),
            kinds.Item(BY_NAME["LoadJob"], job("LoadJob", "b", COMPLETE, created="2026-01-02")),
            kinds.Item(BY_NAME["LoadJob"], mine),
            kinds.Item(BY_NAME["LoadJob"], job("LoadJob", "d", created="2026-01-04")),
        ]
        assert waits(mine, jobs=others) == ("mj/a is older and goes first",)

    def test_for_slots_of_the_warehouse(self) -> None:
        holder = warehouse("lake", READY, maxConcurrentRuns=2)
        slots = [driver("p1", "u"), driver("p2", "u", phase="Succeeded")]
        found = waits(
            job("LoadJob", "l", progressing("WaitingForQuota")), warehouse=neighbor("wh/lake", holder), slots=slots
        )
        assert found == ("spec.maxConcurrentRuns of wh/lake is 2", "driver pod p1 runs")

    def test_for_what_it_names(self) -> None:
        waiting = job("LoadJob", "l", progressing("TableNotReady"))
        away = neighbor("wh/lake", warehouse("lake", condition("Ready", "False", "CheckFailed", "no catalog")))
        assert waits(waiting, table=neighbor("tbl/orders", None), warehouse=away) == (
            "wh/lake is not ready: CheckFailed: no catalog",
            "tbl/orders does not exist",
        )

    def test_for_people_times_and_pods(self) -> None:
        pending = driver("p", "u", state="waiting")
        pending["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "ErrImagePull", "message": "no"}}
        suspended = job("LoadJob", "l", progressing("Suspended"), retryTime=TIME)
        suspended["spec"]["suspend"] = True
        assert waits(suspended, driver=pending) == (
            "spec.suspend is true",
            f"the next attempt starts at {TIME} or later",
            "driver pod p: ErrImagePull: no",
        )
        closed = condition("Healthy", "False", "WindowClosed", "the window opens at noon")
        assert waits(table("a", READY, closed)) == ("the window opens at noon",)

    def test_for_replicas_of_its_planning_server(self) -> None:
        def replica(name: str, state: dict[str, Any], *, ready: bool = False) -> JsonObject:
            container = {"name": kinds.SERVER_CONTAINER, "state": state}
            conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
            return {"metadata": {"name": name}, "status": {"containerStatuses": [container], "conditions": conditions}}

        waiting = {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "readers" not found'}}
        going = replica("d", {"running": {}})
        going["metadata"]["deletionTimestamp"] = TIME
        pods = [replica("a", waiting), replica("b", {"running": {}}), replica("c", {"running": {}}, ready=True), going]
        assert waits(warehouse(), servers=pods) == (
            'pod a of the planning server: CreateContainerConfigError: secret "readers" not found',
            "pod b of the planning server: it has started and is not ready; its log says why",
        )

    def test_an_ended_job_waits_for_nothing(self) -> None:
        ended = job("LoadJob", "l", FAILED, retryTime=TIME)
        assert waits(ended, table=neighbor("tbl/orders", None)) == ()


def test_the_way_out_is_that_of_the_reference_page() -> None:
    found = explain(kinds.parse_target("lj/l"), job("LoadJob", "l", FAILED), Surroundings())
    page = (ROOT / "docs" / "reference" / "reasons.md").read_text()
    assert f"| `BadRecords` | {found.meaning} | {found.remedy} |" in page


def test_a_spec_that_was_not_judged_yet_is_told() -> None:
    newer = table("a")
    newer["metadata"]["generation"] = 2
    assert explain(kinds.parse_target("tbl/a"), newer, Surroundings()).stale
    assert not explain(kinds.parse_target("tbl/a"), table("a"), Surroundings()).stale
    fresh = explain(kinds.parse_target("tbl/a"), stored("Table", "a"), Surroundings())
    assert "check that the operator runs" in fresh.remedy


class TestDrivers:
    def test_the_latest_attempt_that_does_the_work_comes_first(self) -> None:
        pods = [
            driver("one", "u", attempt=1, created="2026-01-01"),
            driver("two", "u", attempt=2, created="2026-01-02"),
            driver("asks", "u", attempt=1, operation="Confirm", created="2026-01-03"),
        ]
        chosen = [choose_driver(BY_NAME["MergeJob"], pods, attempt) for attempt in (None, 1, 2, 3)]
        assert [one and one["metadata"]["name"] for one in chosen] == ["two", "one", "two", None]
        assert choose_driver(BY_NAME["MergeJob"], pods[2:]) == pods[2]

    def test_a_pod_that_cannot_be_listed_has_the_name_that_the_operator_gives_it(self) -> None:
        long = "x" * 63
        told = job("LoadJob", "l", currentRun={"id": long, "attempt": 2}, lastRun={"id": "abc-def-1", "attempt": 1})
        guessed = [guess_driver(told, attempt) for attempt in (None, 1, 3)]
        assert [one and one["metadata"]["name"] for one in guessed] == [driver_pod_name(long), "abc-def-1-driver", None]


ASKED: dict[str, Any] = {"annotations": {"skipstone.dev/reindex": "7", "skipstone.dev/maintain": "7"}}


class TestOutcomes:
    def reindexed(self, **status: Any) -> JsonObject:
        return stored("SecondaryIndex", "a", {}, {"observedReindex": "7", "synced": "2/2", **status}, **ASKED)

    def maintained(self, **status: Any) -> JsonObject:
        return stored("Table", "a", {}, {"observedMaintain": "7", **status}, **ASKED)

    @pytest.mark.parametrize("status", [
        {"observedReindex": "6", "lastRun": {"id": "r2", "result": "Succeeded"}},
        {"currentRun": {"id": "r2"}, "lastRun": {"id": "r1", "result": "Succeeded"}},
        {"lastRun": {"id": "r1", "result": "Succeeded"}},
        {"lastRun": {"id": "r2", "result": "Lost"}},
        {},
    ])  # fmt: skip
    def test_a_reindex_has_not_ended_before_a_run_that_knows_of_it(self, status: dict[str, Any]) -> None:
        assert find_reindex_end(self.reindexed(**status), "r1") is None

    @pytest.mark.parametrize(("status", "succeeded", "says"), [
        ({"lastRun": {"id": "r2", "result": "Succeeded"}}, True, "synced: 2/2"),
        ({"lastRun": {"id": "r2", "result": "Succeeded"}, "segments": {"failed": 1}}, False, "could not be indexed"),
        ({"lastRun": {"id": "r2", "result": "Succeeded"}, "degraded": "ColumnNotFound"}, False, "ColumnNotFound"),
        ({"lastRun": {"id": "r2", "result": "Failed", "reason": "DiskFull", "message": "full"}, "retryTime": TIME},
         False, f"DiskFull: full; the operator tries again at {TIME}"),
    ])  # fmt: skip
    def test_how_a_reindex_ends(self, status: dict[str, Any], succeeded: bool, says: str) -> None:
        end = find_reindex_end(self.reindexed(**status), "r1")
        assert end is not None
        assert (end.succeeded, says in end.message) == (succeeded, True)

    def test_maintenance_ends_as_its_steps_do(self) -> None:
        run = {"lastMaintainRun": {"id": "r2", "result": "Succeeded"}}
        compacted = {"step": "Compaction", "run": "r2", "done": True, "counts": {"filesRewritten": 3, "files": 0}}
        undone = {"step": "Snapshots", "run": "r2", "done": False, "reason": "GivingWay", "message": "a job waits"}
        old = {"step": "OrphanFiles", "run": "r1", "done": False}
        ended = find_maintain_end(self.maintained(**run, lastMaintenance=[compacted, old]), "r1")
        partly = find_maintain_end(self.maintained(**run, lastMaintenance=[compacted, undone]), "r1")
        assert ended is not None and partly is not None
        assert (ended.succeeded, ended.message) == (True, "the maintain run ended; Compaction: filesRewritten 3")
        assert (partly.succeeded, partly.message) == (False, "not all was done: Snapshots: GivingWay: a job waits")
        assert find_maintain_end(self.maintained(**run), "r2") is None
        assert find_maintain_end(self.maintained(observedMaintain="6"), "") is None

    def test_a_request_that_is_withdrawn_ends(self) -> None:
        for end in (find_reindex_end(stored("SecondaryIndex", "a"), ""), find_maintain_end(stored("Table", "a"), "")):
            assert end is not None and not end.succeeded
            assert "somebody removed the annotation" in end.message


def test_the_page_names_every_exit_code_and_command() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    for command in ("status", "why", "logs", "reindex", "maintain", "merge"):
        assert f"## {command}" in page
    rule = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    assert {resource for one in rule["rules"] for resource in one["resources"]} >= {"events", "pods", "pods/log"}
