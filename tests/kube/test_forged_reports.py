"""Reports that a driver did not write: an annotation proves nothing by itself, whoever may patch pods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from skipstone_core.contract.reports import JobReport, RunOutcome, report_digest
from skipstone_core.contract.requests import JobRequest, RunKind
from skipstone_core.reasons import Reason

from tests.cluster.controlplane import ControlPlane
from tests.kube.faults.kubelet import Driven
from tests.kube.reconcile_lab import Scenario, Site, run_scenario
from tests.kube.test_reconcile_server import prepare
from tests.unit.objects import load

Forge = Callable[[JobRequest], Driven]


@pytest.fixture
def play(control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[Scenario], None]:
    """Runs a scenario in a fresh namespace."""
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig_admin))
    return lambda scenario: run_scenario(control_plane, namespace, scenario)


def said(request: JobRequest, outcome: RunOutcome = RunOutcome.COMMITTED) -> JobReport:
    """A report of 999 rows that are in no table."""
    return JobReport(
        run_id=request.run_id,
        attempt=request.attempt,
        kind=request.kind,
        outcome=outcome,
        reason=Reason.COMMITTED,
        snapshot_id="9",
        counts={"rowsLoaded": 999, "segment": 9},
    )


def forge(site: Site, forged: Forge, kind: RunKind = RunKind.LOAD) -> None:
    """First attempts of this kind end as ``forged`` says, without having done anything."""
    honest = site.kubelet.drive

    def drive(text: str, root: str) -> Driven:
        request = JobRequest.from_json(text)
        return forged(request) if request.kind is kind and request.attempt == 1 else honest(text, root)

    site.kubelet.drive = drive


FORGERIES: dict[str, Forge] = {
    "annotation of a driver that was killed": lambda r: Driven(137, "", said(r).to_json()),
    "annotation of a driver that ended in silence": lambda r: Driven(0, "", said(r).to_json()),
    "annotation beside a message that was cut": lambda r: Driven(0, said(r).to_json()[:-20], said(r).to_json()),
    "log lines of a driver that was killed": lambda r: Driven(137, said(r).to_json(), ""),
    "message of another run": lambda r: Driven(0, replace(said(r), run_id="feedbeef-00000000-1").to_json(), ""),
}


@pytest.mark.parametrize("forged", FORGERIES.values(), ids=list(FORGERIES))
def test_a_job_is_complete_only_by_what_its_own_driver_said(play: Callable[[Scenario], None], forged: Forge) -> None:
    async def scenario(site: Site) -> None:
        await prepare(site)
        forge(site, forged)
        await site.apply(load("jan"))
        await site.holds("LoadJob", "jan", "Complete")
        status = await site.status("LoadJob", "jan")
        assert (status["attempts"], status["rowsLoaded"]) == (2, 10)
        assert site.lake.tables["air", "flights"].segments == [1]

    play(scenario)


def test_a_forged_report_fails_no_job_without_a_look_into_the_table(play: Callable[[Scenario], None]) -> None:
    async def scenario(site: Site) -> None:
        await prepare(site)
        failed = RunOutcome.FAILED
        forge(site, lambda r: Driven(137, "", replace(said(r, failed), reason=Reason.BAD_RECORDS).to_json()))
        await site.apply(load("jan", backoffLimit=0))
        await site.holds("LoadJob", "jan", "Failed")
        assert len(site.lake.tables["air", "flights"].aborted) == 1, "fenced off before it is called Failed"

    play(scenario)


def test_the_state_of_a_table_is_taken_from_no_annotation_that_others_changed(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(site: Site) -> None:
        await prepare(site)
        honest = site.kubelet.drive

        def drive(text: str, root: str) -> Driven:
            left = honest(text, root)
            report = JobReport.from_json(left.annotation)
            states = tuple(replace(state, rows=999, sequence_number=99) for state in report.table_states)
            return replace(left, annotation=replace(report, table_states=states).to_json())

        site.kubelet.drive = drive
        await site.apply(load("jan"))
        await site.holds("LoadJob", "jan", "Complete")
        for _ in range(3):  # the Table shows what a job changed a moment after the job does
            await site.round()
        assert (await site.status("Table", "flights")).get("rows") != 999
        assert (await site.status("Table", "flights")).get("sequenceNumber") != 99

    play(scenario)


def test_a_report_that_the_message_vouches_for_is_taken(play: Callable[[Scenario], None]) -> None:
    async def scenario(site: Site) -> None:
        await prepare(site, load("jan"))
        await site.holds("LoadJob", "jan", "Complete")

        async def taken() -> bool:
            return (await site.status("Table", "flights")).get("rows") == 10

        await site.until(taken, "the rows of the report")
        (pod, *_) = [
            pod
            for pod in await site.kube.list("Pod", site.namespace)
            if pod["metadata"]["labels"]["skipstone.dev/operation"] == "Load"
        ]
        message = pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"]
        annotation = pod["metadata"]["annotations"]["skipstone.dev/report"]
        assert JobReport.from_json(message).annotation_sha256 == report_digest(annotation)

    play(scenario)
