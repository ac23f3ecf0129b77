"""The check run and the frame around every run: exit codes, reports, and where they go."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from skipstone.runs.check import check_storage, run_check
from skipstone.runs.main import run_app
from skipstone.runs.reporting.report import Reporter, fit_annotation, fit_termination
from skipstone.runs.reporting.sinks import FileSink, FolderSink, PodSink, choose_sink
from skipstone.storage.volume import Volume
from skipstone_core.contract.reports import IndexState, JobReport, RunOutcome, StepReport, TableState
from skipstone_core.contract.requests import CatalogRef, CatalogType, JobRequest, RunKind, WarehouseRef
from skipstone_core.errors import BadData, BadSpec, ContractViolation, DependencyUnavailable, OutcomeUnknown
from skipstone_core.funnel import FunnelStage
from skipstone_core.history.commits import AlreadyCommitted, Committed, Conflicted, Outcome, TxnRecord, Unknown
from skipstone_core.maintenance.policies import MaintenanceStep
from skipstone_core.reasons import Reason


def request_for(warehouse: WarehouseRef) -> JobRequest:
    """A check request."""
    return JobRequest(
        kind=RunKind.CHECK,
        run_id="r-1",
        attempt=1,
        warehouse=warehouse,
        owner_kind="Warehouse",
        owner_name="wh",
        owner_uid="u",
    )


@pytest.fixture
def request_file(warehouse: WarehouseRef, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The request as a pod finds it."""
    path = tmp_path_factory.mktemp("conf") / "request.json"
    path.write_text(request_for(warehouse).to_json())
    return path


def run(path: Path, work: Callable[[JobRequest, Reporter], JobReport] = run_check) -> tuple[int, JobReport]:
    """Exit code and report of a whole application outside Kubernetes."""
    report = path.with_name("report.json")
    code = run_app(RunKind.CHECK, work, {"SKIPSTONE_REQUEST": str(path), "SKIPSTONE_REPORT": str(report)})
    return code, JobReport.from_json(report.read_text())


def test_a_good_warehouse_passes_and_keeps_no_probe(request_file: Path, tmp_path: Path) -> None:
    code, report = run(request_file)
    assert code == 0
    assert (report.outcome, report.reason) == (RunOutcome.COMMITTED, Reason.CHECKED)
    assert set(report.stages_ms) == {"storage", "catalog"}
    assert list((tmp_path / ".skipstone").iterdir()) == []
    assert (tmp_path / "catalog.db").exists()


def test_a_probe_that_an_earlier_attempt_left_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".skipstone").mkdir()
    (tmp_path / ".skipstone" / "probe-r-1").write_text("old")
    check_storage(Volume(str(tmp_path)), "r-1")
    assert list((tmp_path / ".skipstone").iterdir()) == []


def test_a_missing_root_is_told(tmp_path: Path) -> None:
    with pytest.raises(DependencyUnavailable, match="cannot be used") as caught:
        check_storage(Volume(str(tmp_path / "nowhere")), "r")
    assert caught.value.reason is Reason.STORAGE_UNAVAILABLE


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / ".skipstone").write_text("in the way")
    with pytest.raises(DependencyUnavailable) as caught:
        check_storage(Volume(str(tmp_path)), "r")
    assert caught.value.reason is Reason.STORAGE_UNAVAILABLE


def test_a_symbolic_link_out_of_the_root_is_refused(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "root" / ".skipstone").symlink_to(tmp_path / "out")
    with pytest.raises(BadSpec) as caught:
        check_storage(Volume(str(tmp_path / "root")), "r")
    assert caught.value.reason is Reason.PATH_OUTSIDE_WAREHOUSE
    assert list((tmp_path / "out").iterdir()) == []


def test_a_catalog_that_cannot_be_opened_exits_69(warehouse: WarehouseRef, request_file: Path) -> None:
    away = CatalogRef(type=CatalogType.REST, uri="http://127.0.0.1:9")
    request_file.write_text(request_for(replace(warehouse, catalog=away)).to_json())
    code, report = run(request_file)
    assert code == 69
    assert (report.outcome, report.reason) == (RunOutcome.UNKNOWN, Reason.CATALOG_UNAVAILABLE)


def test_a_catalog_that_cannot_be_written_exits_69(request_file: Path, tmp_path: Path) -> None:
    assert run(request_file)[0] == 0
    import sqlite3

    holder = sqlite3.connect(tmp_path / "catalog.db")
    holder.execute("drop table iceberg_namespace_properties")
    holder.execute("create view iceberg_namespace_properties as select '' catalog_name, '' namespace, '' property_key")
    holder.commit()
    holder.close()
    code, report = run(request_file)
    assert code == 69
    assert report.reason is Reason.CATALOG_UNAVAILABLE


ERRORS = [
    (BadSpec(Reason.COLUMN_NOT_FOUND, "no column"), 64, RunOutcome.FAILED, Reason.COLUMN_NOT_FOUND),
    (ContractViolation("odd"), 64, RunOutcome.FAILED, Reason.INVALID_SPEC),
    (BadData(Reason.BAD_RECORDS, "bad rows"), 65, RunOutcome.FAILED, Reason.BAD_RECORDS),
    (DependencyUnavailable(Reason.CATALOG_UNAVAILABLE, "away"), 69, RunOutcome.UNKNOWN, Reason.CATALOG_UNAVAILABLE),
    (OSError(5, "Input/output error"), 69, RunOutcome.UNKNOWN, Reason.STORAGE_UNAVAILABLE),
    (OutcomeUnknown("lost"), 75, RunOutcome.UNKNOWN, Reason.OUTCOME_UNKNOWN),
    (ZeroDivisionError("a bug"), 75, RunOutcome.UNKNOWN, Reason.DRIVER_FAILED),
]


@pytest.mark.parametrize(("error", "code", "outcome", "reason"), ERRORS, ids=[type(e[0]).__name__ for e in ERRORS])
def test_every_failure_ends_in_a_report_and_an_exit_code(
    request_file: Path, error: Exception, code: int, outcome: RunOutcome, reason: Reason
) -> None:
    def fail(request: JobRequest, reporter: Reporter) -> JobReport:
        raise error

    found, report = run(request_file, fail)
    assert (found, report.outcome, report.reason) == (code, outcome, reason)
    assert str(error) in report.message


OUTCOMES: list[tuple[Outcome, int, RunOutcome, str]] = [
    (Committed(5, TxnRecord(time_ms=1, snapshot_id=5)), 0, RunOutcome.COMMITTED, "5"),
    (Committed(5, TxnRecord(time_ms=1, snapshot_id=5, is_empty=True)), 0, RunOutcome.COMMITTED, "0"),
    (AlreadyCommitted(TxnRecord(time_ms=1, snapshot_id=7)), 0, RunOutcome.ALREADY_COMMITTED, "7"),
    (Conflicted(Reason.CONFLICTED, "m"), 69, RunOutcome.CONFLICTED, ""),
    (Conflicted(Reason.ROLLED_BACK, "m"), 64, RunOutcome.FAILED, ""),
    (Conflicted(Reason.SOURCE_ALREADY_APPLIED, "m"), 64, RunOutcome.FAILED, ""),
    (Conflicted(Reason.CATALOG_UNAVAILABLE, "m"), 69, RunOutcome.CONFLICTED, ""),
    (Unknown("m"), 75, RunOutcome.UNKNOWN, ""),
]


@pytest.mark.parametrize(("outcome", "code", "shown", "snapshot"), OUTCOMES)
def test_every_outcome_of_a_commit_has_its_report_and_exit_code(
    request_file: Path, outcome: Outcome, code: int, shown: RunOutcome, snapshot: str
) -> None:
    found, report = run(request_file, lambda request, reporter: reporter.judge(outcome, {"rowsLoaded": 3}))
    assert (found, report.outcome, report.snapshot_id) == (code, shown, snapshot)


def test_an_already_committed_report_is_rebuilt_from_the_record(warehouse: WarehouseRef) -> None:
    record = TxnRecord(time_ms=1, snapshot_id=7, counts={"rowsLoaded": 9}, rejected_path="r/p")
    report = Reporter(request_for(warehouse)).judge(AlreadyCommitted(record), {"rowsLoaded": 1})
    assert (report.counts, report.rejected_path) == ({"rowsLoaded": 9}, "r/p")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ('{"version": 99}', "version 99, this image reads version 1"),
        ('{"version": 1}', "required field is missing"),
    ],
)
def test_an_unreadable_request_exits_64_and_says_why(request_file: Path, text: str, said: str) -> None:
    request_file.write_text(text)
    code, report = run(request_file)
    assert code == 64
    assert said in report.message


def test_a_request_for_another_application_exits_64(request_file: Path) -> None:
    request_file.write_text(request_file.read_text().replace('"Check"', '"Drop"'))
    code, report = run(request_file)
    assert code == 64
    assert "asks for Drop, this application does Check" in report.message


def test_a_missing_request_exits_64(tmp_path: Path) -> None:
    assert run(tmp_path / "nothing.json")[0] == 64


def big_report(message: str) -> JobReport:
    """A report with many long names."""
    columns = {f"{'x' * 200}{number}": "decimal(38, 10)" for number in range(300)}
    state = TableState(
        namespace="n",
        name="t",
        uid="u",
        columns=columns,
        field_ids=dict.fromkeys(columns, 1),
        indexes=(IndexState(uid="i", name="i", missing_segments=tuple(range(20))),),
    )
    return JobReport(
        run_id="r",
        attempt=1,
        kind=RunKind.CHECK,
        outcome=RunOutcome.FAILED,
        reason=Reason.BAD_RECORDS,
        message=message,
        counts={"rowsLoaded": 3},
        table_states=(state,),
    )


@pytest.mark.parametrize(
    "message", ["short", "é" * 5000, '"\\\n' * 5000, "𝄞" * 3000], ids=["short", "é", "escapes", "𝄞"]
)
def test_a_termination_message_always_fits_and_is_always_readable(message: str) -> None:
    text = fit_termination(big_report(message))
    assert len(text.encode()) <= 2048
    read = JobReport.from_json(text)
    assert (read.reason, read.counts, read.table_states) == (Reason.BAD_RECORDS, {"rowsLoaded": 3}, ())
    assert read.message == message or message.startswith(read.message[:-1])


def test_a_termination_message_names_all_steps_however_much_they_say() -> None:
    told = [StepReport(step=step, is_done=True, reason=Reason.COMMITTED, message="é" * 500) for step in MaintenanceStep]
    text = fit_termination(replace(big_report("m" * 3000), steps=tuple(told)))
    assert len(text.encode()) <= 2048
    assert [(one.step, one.is_done) for one in JobReport.from_json(text).steps] == [(s, True) for s in MaintenanceStep]


def test_an_annotation_gives_up_columns_before_index_states() -> None:
    text = fit_annotation(big_report("m"))
    assert len(text.encode()) <= 64 * 1024
    (state,) = JobReport.from_json(text).table_states
    assert state.columns == {}
    assert [index.name for index in state.indexes] == ["i"]


class Pod(http.server.BaseHTTPRequestHandler):
    """The API server as one pod sees it."""

    def do_PATCH(self) -> None:
        """Remember the patch; refuse as often as the test asks."""
        server: Any = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.seen.append((self.path, dict(self.headers), json.loads(body)))
        self.send_response(server.answers.pop(0) if server.answers else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet."""


@pytest.fixture
def api_server() -> Iterator[Any]:
    """A server with ``seen`` and ``answers``."""
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pod)
    server.seen, server.answers = [], []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def pod_sink(api_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PodSink:
    """The sink of pod ns/p, which waits for an answer as long as a busy machine may take."""
    monkeypatch.setattr("skipstone.runs.reporting.sinks.FINISH_SECONDS", 300)
    monkeypatch.setattr("skipstone.runs.reporting.sinks.SHOW_SECONDS", 300)
    (tmp_path / "token").write_text("t0ken\n")
    environment = {
        "POD_NAME": "p",
        "POD_NAMESPACE": "ns",
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(api_server.server_port),
        "SKIPSTONE_API_SCHEME": "http",
    }
    return PodSink(environment, account=tmp_path, termination_log=tmp_path / "log")


def test_a_pod_writes_its_termination_message_and_its_own_annotation(
    pod_sink: PodSink, api_server: Any, tmp_path: Path
) -> None:
    pod_sink.finish("full", "short")
    assert (tmp_path / "log").read_text() == "short"
    ((path, headers, body),) = api_server.seen
    assert path == "/api/v1/namespaces/ns/pods/p"
    assert headers["Authorization"] == "Bearer t0ken"
    assert headers["Content-Type"] == "application/merge-patch+json"
    assert body == {"metadata": {"annotations": {"skipstone.dev/report": "full"}}}


def test_a_run_whose_reports_are_carried_to_its_pod_needs_no_account(tmp_path: Path) -> None:
    report, message = tmp_path / "report", tmp_path / "message"
    sink = choose_sink({"POD_NAME": "p", "SKIPSTONE_REPORT": str(report), "SKIPSTONE_TERMINATION_LOG": str(message)})
    assert isinstance(sink, FolderSink)
    sink.show("on the way")
    assert (report.read_text(), message.exists()) == ("on the way", False)
    sink.finish("at the end", "short")
    assert (report.read_text(), message.read_text()) == ("at the end", "short")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["message", "report"]


def test_the_last_annotation_is_tried_again(pod_sink: PodSink, api_server: Any) -> None:
    api_server.answers = [500, 503]
    pod_sink.finish("full", "short")
    assert len(api_server.seen) == 3


def test_an_annotation_that_cannot_be_written_fails_no_run(
    pod_sink: PodSink, api_server: Any, request_file: Path, tmp_path: Path
) -> None:
    api_server.answers = [403] * 10
    environment = {"SKIPSTONE_REQUEST": str(request_file)}
    assert run_app(RunKind.CHECK, run_check, environment, pod_sink) == 0
    assert JobReport.from_json((tmp_path / "log").read_text()).outcome is RunOutcome.COMMITTED


def test_progress_is_shown_at_most_every_five_seconds(warehouse: WarehouseRef) -> None:
    now, shown = [0.0], []

    class Sink(FileSink):
        def show(self, report: str) -> None:
            shown.append(JobReport.from_json(report).progress)

    reporter = Reporter(request_for(warehouse), Sink(Path("unused")), clock=lambda: now[0])
    for second, text in ((0.0, "a"), (4.9, "b"), (5.0, "c"), (9.0, "d"), (10.0, "e")):
        now[0] = second
        reporter.progress(text)
    assert shown == ["a", "c", "e"]


def test_what_a_run_learnt_goes_out_at_once_and_with_every_later_report(warehouse: WarehouseRef) -> None:
    shown: list[JobReport] = []

    class Sink(FileSink):
        def show(self, report: str) -> None:
            shown.append(JobReport.from_json(report))

    reporter = Reporter(request_for(warehouse), Sink(Path("unused")), clock=lambda: float(len(shown)))
    funnel = (FunnelStage(name="KeyRanges", files_in=400, files_out=12),)
    reporter.progress("a")
    reporter.learn({"filesTotal": 400}, funnel)
    reporter.progress("b", {"tasksDone": 1})
    reporter.learn({"filesTotal": 401})
    reporter.progress("c")
    assert [report.progress for report in shown] == ["a", "b", "c"]
    assert [report.counts for report in shown] == [{}, {"filesTotal": 400, "tasksDone": 1}, {"filesTotal": 401}]
    assert [report.funnel for report in shown] == [(), funnel, ()]
    assert reporter.base().counts == {}, "a failure tells of no merge"


def test_stages_add_up_also_when_they_fail(warehouse: WarehouseRef) -> None:
    now = [0.0]
    reporter = Reporter(request_for(warehouse), clock=lambda: now[0])
    for _ in range(2):
        with pytest.raises(ValueError, match="x"), reporter.stage("plan"):
            now[0] += 0.25
            raise ValueError("x")
    assert reporter.base().stages_ms == {"plan": 500}


def test_outside_kubernetes_a_report_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    choose_sink({}).finish('{"a":1}', "short")
    assert capsys.readouterr().out == '{"a":1}\n'


def test_steps_that_ended_are_in_every_later_report(warehouse: WarehouseRef) -> None:
    shown: list[JobReport] = []

    class Sink(FileSink):
        def show(self, report: str) -> None:
            shown.append(JobReport.from_json(report))

    reporter = Reporter(request_for(warehouse), Sink(Path("unused")), clock=lambda: 6.0 * len(shown))
    step = StepReport(step=MaintenanceStep.COMPACTION, is_done=True, reason=Reason.COMMITTED)
    reporter.progress("a")
    reporter.ended(step)
    reporter.progress("b")
    assert [report.steps for report in shown] == [(), (step,)]
    assert reporter.base().steps == (step,)
