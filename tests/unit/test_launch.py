"""The launch protocol: what a pod says, what follows from it, and which child is made or removed next."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from skipstone_core.contract.reports import RunOutcome, report_digest
from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason
from skipstone_operator.ports import Refused, Timing
from skipstone_operator.reconcilers.runs.launch import (
    adopted_intent,
    clean_executors,
    discard,
    find_live,
    find_slots,
    launch,
    next_attempt,
    refusal_finding,
    trim,
)
from skipstone_operator.reconcilers.runs.requests import RunPlan, build_manifest, plan_job_run
from skipstone_operator.worlds.pods import PodFacts, read_pod
from skipstone_operator.worlds.runs import (
    ConfFacts,
    Ended,
    Ending,
    Foreign,
    Live,
    NotLaunched,
    RunWorld,
    judge_missing,
    judge_pod,
    judge_run,
)
from skipstone_operator.worlds.steps import Create, Delete, Slots
from skipstone_operator.worlds.subjects import Children, ClaimFacts
from skipstone_operator.worlds.times import backoff, format_span, parse_time, seconds_since, seconds_until

from tests.unit import objects
from tests.unit.kube_double import START
from tests.unit.world_cases import (
    SETTING,
    current_run,
    ended,
    good_table,
    good_warehouse,
    pending,
    place,
    pod,
    report,
    subject,
)

RUN = current_run()
OWNER = "uid-jan"


def raw_pod(status: dict[str, Any], annotations: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    labels = {
        "skipstone.dev/run-id": RUN.id,
        "skipstone.dev/owner-uid": OWNER,
        "skipstone.dev/operation": "Load",
    }
    base = {"name": f"{RUN.id}-driver", "namespace": "lake", "uid": "u", "labels": labels}
    return {"metadata": {**base, "annotations": annotations or {}, **metadata}, "status": status}


def terminated(message: str = "", code: int = 0, reason: str = "Completed") -> dict[str, Any]:
    state = {
        "terminated": {"exitCode": code, "reason": reason, "message": message, "finishedAt": "2026-01-01T12:00:00Z"}
    }
    return {
        "phase": "Failed" if code else "Succeeded",
        "containerStatuses": [
            {"name": "sidecar", "state": {"running": {}}},
            {"name": "spark-kubernetes-driver", "state": state},
        ],
    }


SAID = report(RUN, RunOutcome.COMMITTED, Reason.COMMITTED, snapshot_id="9")


#: Reasons of failed pods that kubelets and controllers write: evictions, shutdowns, and refusals by the node.
CLUSTER_REASONS = (
    "Evicted",
    "NodeLost",
    "Preempting",
    "NodeShutdown",
    "Shutdown",
    "Terminated",
    "OutOfcpu",
    "OutOfmemory",
    "OutOfpods",
    "OutOfephemeral-storage",
    "OutOfhugepages-2Mi",
    "OutOfexample.com/gpu",
    "UnexpectedAdmissionError",
    "TopologyAffinityError",
    "SMTAlignmentError",
    "NodeAffinity",
    "NodeName",
    "NodePorts",
    "PodOSNotSupported",
    "InvalidNodeInfo",
)


class TestReadingPods:
    def test_the_driver_container_counts_not_the_phase(self) -> None:
        facts = read_pod(raw_pod({**terminated(SAID.to_json()), "phase": "Running"}))
        assert facts.terminal
        assert facts.report == SAID
        assert facts.succeeded

    def test_a_termination_message_that_is_log_text_is_no_report(self) -> None:
        facts = read_pod(raw_pod(terminated("Traceback (most recent call last):\nboom", 1, "Error")))
        assert facts.report is None
        assert facts.text.endswith("boom")

    @pytest.mark.parametrize("message", ["", "{", "Traceback", SAID.to_json()], ids=["no", "cut", "logs", "without"])
    def test_an_annotation_counts_for_nothing_without_its_digest(self, message: str) -> None:
        facts = read_pod(raw_pod(terminated(message, 0), {"skipstone.dev/report": SAID.to_json()}))
        assert facts.states is None
        assert facts.report == (SAID if message == SAID.to_json() else None)

    def test_the_message_vouches_for_the_very_text_of_the_annotation(self) -> None:
        told = SAID.to_json()
        message = replace(SAID, annotation_sha256=report_digest(told)).to_json()
        assert read_pod(raw_pod(terminated(message, 0), {"skipstone.dev/report": told})).states == SAID
        assert read_pod(raw_pod(terminated(message, 0), {"skipstone.dev/report": told + " "})).states is None

    def test_a_container_that_was_started_again_is_not_the_driver_any_more(self) -> None:
        status = terminated(SAID.to_json())
        status["containerStatuses"][1]["restartCount"] = 1
        assert read_pod(raw_pod(status)).report is None

    def test_a_pod_is_the_run_that_its_name_tells_whatever_its_labels_say(self) -> None:
        labels = {"skipstone.dev/run-id": "feedbeef-12345678-1", "skipstone.dev/owner-uid": "feedbeef-0"}
        facts = read_pod(raw_pod(terminated(SAID.to_json()), labels=labels))
        assert (facts.run_id, facts.owner_uid, facts.report) == (RUN.id, "", SAID)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "x" * 200_000,
            "{",
            "{}",
            '{"version": 99}',
            json.dumps([1]),
            SAID.to_json().replace(RUN.id, "another"),
            '{"a":' * 40_000,
            '{"a":' + "[" * 200_000,
            '{"a": "\\ud800", "b":' + "[" * 200_000,
            '{"version": ' + "9" * 5000 + "}",
        ],
        ids=[
            "empty",
            "garbage",
            "half",
            "no version",
            "other version",
            "list",
            "another run",
            "deep",
            "deep list",
            "deep and torn",
            "long number",
        ],
    )
    def test_what_cannot_be_read_or_is_another_run_is_no_report(self, text: str) -> None:
        facts = read_pod(raw_pod(terminated(text), {"skipstone.dev/report": text}))
        assert facts.report is None
        assert facts.states is None
        running = read_pod(raw_pod({"phase": "Running"}, {"skipstone.dev/report": text}))
        assert (running.underway, running.live) == (None, True)

    def test_what_no_status_holds_is_brought_into_bounds(self) -> None:
        counts = {"filesTotal": -1, "filesCandidate": 10**30, "filesTouched": 7}
        torn = report(RUN, RunOutcome.RUNNING, Reason.DRIVER_RUNNING, progress="\ud800 ✓ \U0001f9ca", counts=counts)
        facts = read_pod(raw_pod({"phase": "Running"}, {"skipstone.dev/report": torn.to_json()}))
        assert facts.progress == "? ✓ \U0001f9ca"
        assert facts.underway is not None
        assert facts.underway.counts == {"filesTotal": 0, "filesCandidate": 2**63 - 1, "filesTouched": 7}

    def test_progress_of_a_running_driver_is_no_report(self) -> None:
        told = report(RUN, RunOutcome.RUNNING, Reason.DRIVER_RUNNING, progress="3 of 9")
        running = {"containerStatuses": [{"name": "spark-kubernetes-driver", "state": {"running": {}}}]}
        facts = read_pod(raw_pod({"phase": "Running", **running}, {"skipstone.dev/report": told.to_json()}))
        assert (facts.report, facts.progress, facts.live) == (None, "3 of 9", True)

    @pytest.mark.parametrize("reason", CLUSTER_REASONS)
    def test_losses_of_the_cluster_are_told_from_failures(self, reason: str) -> None:
        said = f"Pod was rejected: {reason} of the node"
        facts = read_pod(raw_pod({"phase": "Failed", "reason": reason, "message": said}))
        assert facts.disrupted
        verdict = judge_pod(facts, RUN)
        assert verdict.ending is Ending.LOST
        assert verdict.message == f"driver pod {facts.name} was lost: {reason}: {said}"

    def test_a_container_that_its_node_forgot_is_a_loss(self) -> None:
        # What a kubelet says after a restart of the node: the exit code is made up.
        text = "The container could not be located when the pod was terminated"
        facts = read_pod(raw_pod(terminated(text, 137, "ContainerStatusUnknown")))
        assert judge_pod(facts, RUN).ending is Ending.LOST

    @pytest.mark.parametrize("code", [1, 137, 143])
    def test_a_container_that_failed_by_itself_is_no_loss(self, code: int) -> None:
        facts = read_pod(raw_pod(terminated("boom", code, "Error")))
        assert judge_pod(facts, RUN).ending is Ending.UNKNOWN
        assert f"exit code {code}" in judge_pod(facts, RUN).message

    def test_a_deadline_is_no_loss(self) -> None:
        facts = read_pod(raw_pod({"phase": "Failed", "reason": "DeadlineExceeded"}))
        assert judge_pod(facts, RUN).reason is Reason.DEADLINE_EXCEEDED

    @pytest.mark.parametrize(
        "status",
        [
            {},
            {"message": "gone"},
            {
                "containerStatuses": [
                    {"name": "spark-kubernetes-driver", "state": {"waiting": {"reason": "PodInitializing"}}}
                ]
            },
            {"containerStatuses": [{"name": "spark-kubernetes-driver", "state": {}}]},
        ],
        ids=["nothing", "message", "waiting", "no state"],
    )
    def test_a_pod_that_failed_without_a_word_of_its_container_has_no_exit_code_to_tell(self, status: Any) -> None:
        facts = read_pod(raw_pod({"phase": "Failed", **status}))
        verdict = judge_pod(facts, RUN)
        assert (verdict.ending, verdict.reason) == (Ending.UNKNOWN, Reason.DRIVER_FAILED)
        assert "None" not in verdict.message
        assert facts.name in verdict.message

    def test_a_disruption_target_is_a_loss(self) -> None:
        targeted = {"type": "DisruptionTarget", "status": "True"}
        facts = read_pod(raw_pod({**terminated("", 143, "Error"), "conditions": [targeted]}))
        assert judge_pod(facts, RUN).reason is Reason.DRIVER_LOST

    def test_a_pod_without_status_waits_for_the_scheduler(self) -> None:
        facts = read_pod(raw_pod({}))
        assert facts.waits is not None
        assert facts.waits.reason is Reason.DRIVER_PENDING


def verdict(outcome: RunOutcome, code: int, **changes: Any) -> tuple[Ending, Reason]:
    found = judge_pod(ended(RUN, OWNER, code, report(RUN, outcome, Reason.BAD_RECORDS), **changes), RUN)
    return found.ending, found.reason


class TestVerdicts:
    @pytest.mark.parametrize(
        ("outcome", "code", "ending"),
        [
            (RunOutcome.COMMITTED, 0, Ending.SUCCEEDED),
            (RunOutcome.ALREADY_COMMITTED, 0, Ending.SUCCEEDED),
            (RunOutcome.ABSENT, 0, Ending.ABSENT),
            (RunOutcome.FAILED, 64, Ending.REFUSED),
            (RunOutcome.FAILED, 65, Ending.REFUSED),
            (RunOutcome.FAILED, 69, Ending.UNKNOWN),
            (RunOutcome.FAILED, 1, Ending.UNKNOWN),
            (RunOutcome.UNKNOWN, 75, Ending.UNKNOWN),
            (RunOutcome.UNKNOWN, 69, Ending.UNKNOWN),
            (RunOutcome.CONFLICTED, 69, Ending.UNKNOWN),
        ],
    )
    def test_the_report_decides(self, outcome: RunOutcome, code: int, ending: Ending) -> None:
        assert verdict(outcome, code) == (ending, Reason.BAD_RECORDS)

    @pytest.mark.parametrize(
        "outcome", [RunOutcome.RUNNING, RunOutcome.COMMITTED, RunOutcome.ALREADY_COMMITTED, RunOutcome.ABSENT]
    )
    def test_the_last_lines_of_a_driver_that_was_killed_prove_nothing(self, outcome: RunOutcome) -> None:
        assert verdict(outcome, 137) == (Ending.UNKNOWN, Reason.DRIVER_FAILED)

    def test_the_report_of_another_kind_of_run_is_silence(self) -> None:
        found = replace(SAID, kind=RunKind.OBSERVE)
        assert judge_pod(ended(RUN, OWNER, 0, found), RUN).ending is Ending.UNKNOWN

    @pytest.mark.parametrize("change", [{"deleting": True}, {"disrupted": True}], ids=["deleted", "evicted"])
    def test_what_a_driver_says_when_it_is_taken_away_is_a_loss(self, change: dict[str, bool]) -> None:
        assert verdict(RunOutcome.UNKNOWN, 75, **change) == (Ending.LOST, Reason.DRIVER_LOST)
        assert verdict(RunOutcome.COMMITTED, 143, **change)[0] is Ending.LOST
        assert verdict(RunOutcome.COMMITTED, 0, **change)[0] is Ending.SUCCEEDED

    @pytest.mark.parametrize(
        ("change", "ending", "reason"),
        [
            ({"exit_code": 1, "text": "line\nlast words"}, Ending.UNKNOWN, Reason.DRIVER_FAILED),
            ({"exit_code": 137, "end_reason": "OOMKilled"}, Ending.UNKNOWN, Reason.OUT_OF_MEMORY),
            ({"exit_code": None, "deadline_passed": True}, Ending.UNKNOWN, Reason.DEADLINE_EXCEEDED),
            ({"exit_code": 143, "deleting": True}, Ending.LOST, Reason.DRIVER_LOST),
            ({"exit_code": 0}, Ending.UNKNOWN, Reason.DRIVER_FAILED),
        ],
        ids=["crash", "memory", "deadline", "deleted", "silent success"],
    )
    def test_silence_is_never_success(self, change: dict[str, Any], ending: Ending, reason: Reason) -> None:
        found = judge_pod(silent(change), RUN)
        assert (found.ending, found.reason) == (ending, reason)

    @pytest.mark.parametrize(
        ("stop", "ending"),
        [
            (Reason.SUSPENDED, Ending.LOST),
            (Reason.TABLE_NOT_FOUND, Ending.LOST),
            (Reason.IMAGE_PULL_FAILED, Ending.UNKNOWN),
            (Reason.UNSCHEDULABLE, Ending.UNKNOWN),
            (Reason.DEADLINE_EXCEEDED, Ending.UNKNOWN),
        ],
    )
    def test_a_driver_that_we_stopped_ends_for_our_reason(self, stop: Reason, ending: Ending) -> None:
        current = current_run(stop_reason=stop.value, stop_message="why", launch_time="2026-01-01T11:00:00Z")
        for found in (judge_missing(current), judge_pod(silent({"exit_code": 143, "deleting": True}), current)):
            assert (found.ending, found.reason, found.message) == (ending, stop, "why")


def silent(changes: dict[str, Any]) -> PodFacts:
    return pod(RUN, OWNER, **{"terminal": True, **changes})


def stand(run: RunWorld) -> Any:
    return judge_run(run, now=START + timedelta(seconds=400), timing=Timing())


class TestStanding:
    def test_no_pod_and_none_ever_seen(self) -> None:
        assert stand(RunWorld(current=RUN, owner_uid=OWNER)) == NotLaunched()

    def test_no_pod_but_one_was_seen(self) -> None:
        seen = current_run(launch_time="2026-01-01T11:00:00Z")
        found = stand(RunWorld(current=seen, owner_uid=OWNER))
        assert isinstance(found, Ended)
        assert found.verdict.reason is Reason.DRIVER_LOST

    def test_a_child_of_somebody_else(self) -> None:
        assert isinstance(stand(RunWorld(current=RUN, owner_uid=OWNER, pod=pod(RUN, "another"))), Foreign)
        conf = ConfFacts(name="c", namespace="lake", uid="u", run_id=RUN.id, owner_uid="another")
        assert isinstance(stand(RunWorld(current=RUN, owner_uid=OWNER, conf=conf)), Foreign)
        other = pod(current_run(id="uidjan-99999999-1"), OWNER)
        assert isinstance(stand(RunWorld(current=RUN, owner_uid=OWNER, pod=other)), Foreign)

    def test_a_running_pod_is_never_overdue(self) -> None:
        found = stand(RunWorld(current=RUN, owner_uid=OWNER, pod=pod(RUN, OWNER)))
        assert isinstance(found, Live)
        assert (found.reason, found.overdue) == (Reason.DRIVER_RUNNING, False)

    @pytest.mark.parametrize(("waited", "overdue"), [(299, False), (300, True)])
    def test_a_pending_pod_has_a_deadline(self, waited: int, overdue: bool) -> None:
        run = RunWorld(current=RUN, owner_uid=OWNER, pod=pending(RUN, OWNER, Reason.UNSCHEDULABLE))
        found = judge_run(run, now=START + timedelta(seconds=waited), timing=Timing())
        assert found == Live(run.pod, Reason.UNSCHEDULABLE, "because", overdue=overdue)  # type: ignore[arg-type]


def load_plan(**spec: Any) -> RunPlan:
    job = subject(objects.load("jan", **spec))
    return plan_job_run(job, place(), good_table(), good_warehouse(), SETTING)


class TestLaunching:
    def test_the_config_map_comes_first_and_then_the_pod(self) -> None:
        plan = load_plan()
        current = plan.intent(1, "2026-01-01T12:00:00Z")
        first = launch(RunWorld(current=current, owner_uid=OWNER), plan, SETTING.now)
        assert isinstance(first, Create)
        assert (first.object["kind"], first.object["metadata"]["name"]) == ("ConfigMap", f"{current.id}-conf")
        conf = ConfFacts(name=f"{current.id}-conf", namespace="lake", uid="u", run_id=current.id, owner_uid=OWNER)
        second = launch(RunWorld(current=current, owner_uid=OWNER, conf=conf), plan, SETTING.now)
        assert isinstance(second, Create)
        assert (second.object["kind"], second.object["metadata"]["name"]) == ("Pod", f"{current.id}-driver")
        assert second.slots is not None
        assert (second.slots.warehouse_uid, second.slots.limit) == ("uid-main", 2)
        assert second.object["metadata"]["ownerReferences"][0]["uid"] == OWNER

    def test_a_claim_for_one_pod_allows_one_run(self) -> None:
        plan = plan_job_run(
            subject(objects.load("jan")),
            place(claim=ClaimFacts("lake-data", ("ReadWriteOncePod",))),
            good_table(),
            good_warehouse(),
            SETTING,
        )
        current = plan.intent(1, "2026-01-01T12:00:00Z")
        conf = ConfFacts(name="c", namespace="lake", uid="u", run_id=current.id, owner_uid=OWNER)
        step = launch(RunWorld(current=current, owner_uid=OWNER, conf=conf), plan, SETTING.now)
        assert isinstance(step, Create)
        assert step.slots is not None
        assert step.slots.limit == 1

    def test_the_name_follows_from_what_the_run_depends_on_and_nothing_else(self) -> None:
        base = load_plan()
        assert base.inputs_hash == load_plan(suspend=True, backoffLimit=9, ttlSecondsAfterFinished=5).inputs_hash
        assert base.inputs_hash != load_plan(timeZone="Europe/Berlin").inputs_hash
        assert base.intent(1, "x").id == f"uidjan-{base.inputs_hash}-1"

    def test_a_job_without_a_change_feed_is_named_and_asked_for_as_before_there_were_any(self) -> None:
        """The fields of change feeds are in no request that does not use them: an upgrade renames no attempt."""
        feed = {"source": {"format": "Json", "paths": ["feed"], "changeFormat": "Debezium", "allowTruncate": False}}
        for spec, found in (
            ({}, set()),
            ({**feed, "whenMatched": [], "whenNotMatched": []}, {"changeFormat", "allowTruncate"}),
        ):
            plan = plan_job_run(subject(objects.merge("jan", **spec)), place(), good_table(), good_warehouse(), SETTING)
            request = json.loads(build_manifest(plan, plan.intent(1, "2026-01-01T12:00:00Z")).request.to_json())
            inputs = json.loads(json.dumps(plan.inputs))
            for source in (inputs["spec"]["source"], request["merge"]["source"]):
                assert {"changeFormat", "allowTruncate", "timePrecision"} & set(source) == found

    def test_the_effective_warehouse_is_part_of_the_name(self) -> None:
        job, table = subject(objects.load("jan")), good_table()
        hashes = {
            plan_job_run(job, place(), table, good_warehouse(**spec), SETTING).inputs_hash
            for spec in ({}, {"spark": {"image": "other:1"}}, {"maxConcurrentRuns": 9})
        }
        assert len(hashes) == 2, "the image counts, the number of runs at once does not"

    def test_a_request_names_the_job_by_its_uid(self) -> None:
        plan = load_plan()
        request = build_manifest(plan, plan.intent(2, "x")).request
        assert (request.txn, request.attempt, request.kind) == (OWNER, 2, RunKind.LOAD)
        assert request.table is not None
        assert request.table.identifier == ("air", "flights")
        assert request.warehouse.root == "/skipstone/main"

    def test_a_given_up_intent_leaves_no_config_map(self) -> None:
        conf = ConfFacts(name="c", namespace="lake", uid="u", run_id=RUN.id, owner_uid=OWNER)
        assert discard(RunWorld(current=RUN, owner_uid=OWNER)) is None
        step = discard(RunWorld(current=RUN, owner_uid=OWNER, conf=conf))
        assert isinstance(step, Delete)
        assert (step.kind, step.uid) == ("ConfigMap", "u")

    def test_only_spark_runs_count_unless_the_claim_is_for_one_pod(self) -> None:
        load = replace(load_plan(), claim=ClaimFacts("lake-data", ("ReadWriteMany",)))
        spark = frozenset({"Load", "Merge", "DryRun", "Reindex", "Maintain"})
        assert find_slots(load) == Slots("uid-main", 2, spark, bound="spec.maxConcurrentRuns allows 2")
        light = replace(load, kind=RunKind.CONFIRM)
        assert find_slots(light) is None
        alone = find_slots(replace(light, claim=ClaimFacts("lake-data", ("ReadWriteOncePod",))))
        assert alone is not None
        assert (alone.limit, len(alone.operations)) == (1, len(RunKind))
        assert "ReadWriteOncePod" in alone.bound

    def test_what_one_node_mounts_keeps_every_run_out_while_that_node_is_dead(self) -> None:
        for kind in RunKind:
            slots = find_slots(replace(load_plan(), kind=kind))
            assert slots is not None
            assert slots.one_node
            assert (slots.limit is None) is (kind.value not in slots.operations)


class TestChildren:
    def test_the_next_attempt_is_after_every_known_one(self) -> None:
        third = pod(current_run(id="uidjan-12345678-3"), OWNER)
        assert next_attempt(Children(), (RunKind.LOAD,), 0) == 1
        assert next_attempt(Children(pods=(third,)), (RunKind.LOAD,), 1) == 4
        assert next_attempt(Children(pods=(third,)), (RunKind.CONFIRM,), 1) == 2

    def test_a_live_pod_is_taken_up_under_its_own_name(self) -> None:
        live = pod(current_run(id="uidjan-12345678-3"), OWNER)
        assert find_live(Children(pods=(live,)), (RunKind.LOAD,)) is live
        assert find_live(Children(pods=(live,)), (RunKind.MERGE,)) is None
        current = adopted_intent(live, load_plan(), "now")
        assert (current.id, current.attempt, current.inputs_hash) == ("uidjan-12345678-3", 3, "12345678")

    def test_executors_go_one_by_one_and_only_once(self) -> None:
        executors = (
            pod(RUN, "", name="e1", terminal=True),
            pod(RUN, "", name="e2", deleting=True),
            pod(RUN, "", name="e3"),
        )
        step = clean_executors(RunWorld(current=RUN, owner_uid=OWNER, executors=executors))
        assert isinstance(step, Delete)
        assert step.name == "e3"
        assert clean_executors(RunWorld(current=RUN, owner_uid=OWNER, executors=executors[:2])) is None

    def test_history_keeps_one_good_and_three_bad(self) -> None:
        def run(number: int, code: int) -> PodFacts:
            current = current_run(id=f"uidjan-12345678-{number}")
            return ended(current, OWNER, code, ended=START + timedelta(minutes=number))

        pods = [run(number, 1) for number in range(1, 6)] + [run(6, 0), run(7, 0)]
        confs = [
            ConfFacts(name=f"{p.run_id}-conf", namespace="lake", uid=p.run_id, run_id=p.run_id, owner_uid=OWNER)
            for p in pods
        ]
        gone: list[str] = []
        while step := trim(Children(pods=tuple(pods), confs=tuple(confs)), ()):
            assert isinstance(step, Delete)
            gone.append(step.name)
            pods = [p for p in pods if p.name != step.name]
            confs = [c for c in confs if c.name != step.name]
        assert [p.attempt for p in pods] == [3, 4, 5, 7]
        assert [c.run_id for c in confs] == [p.run_id for p in pods]
        assert len(gone) == 6

    def test_what_is_at_work_is_never_trimmed(self) -> None:
        done = [ended(current_run(id=f"uidjan-12345678-{n}"), OWNER, 1) for n in range(1, 6)]
        live = pod(current_run(id="uidjan-12345678-6"), OWNER)
        names = {p.run_id for p in done} | {live.run_id}
        assert trim(Children(pods=(*done, live)), names) is None

    @pytest.mark.parametrize(
        ("message", "reason"),
        [("exceeded quota: pods", Reason.WAITING_FOR_QUOTA), ("violates PodSecurity", Reason.POD_REJECTED)],
    )
    def test_a_refusal_is_named(self, message: str, reason: Reason) -> None:
        assert refusal_finding(Refused(status=403, reason="Forbidden", message=message)).reason is reason


class TestTimes:
    def test_back_off_doubles_up_to_its_cap(self) -> None:
        assert [backoff(n, base=10, cap=360) for n in (0, 1, 2, 3, 6, 7, 1000)] == [0, 10, 20, 40, 320, 360, 360]
        assert [backoff(n, base=10, cap=360, factor=3) for n in (0, 1, 2, 3, 5)] == [0, 10, 30, 90, 360]

    @pytest.mark.parametrize(
        ("seconds", "text"), [(0, "0s"), (59.9, "59s"), (72, "1m12s"), (7500, "2h05m"), (-3, "0s")]
    )
    def test_spans_read_well(self, seconds: float, text: str) -> None:
        assert format_span(seconds) == text

    @pytest.mark.parametrize("text", [None, "", "yesterday", "2026-13-01T00:00:00Z"])
    def test_what_names_no_time_is_none(self, text: str | None) -> None:
        assert parse_time(text) is None
        assert seconds_since(text, START) is None
        assert seconds_until(text, START) == 0
